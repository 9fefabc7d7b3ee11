"""Models by name, and from a config file: what `--model` accepts.

An entry of the catalogue is a TOML file whose `[config]` has the keys of the model's Hugging Face config.json, with
the source of those numbers, the published parameter count and its source. A file of the user's is such a config.json,
a folder that holds one, or a TOML file with the same keys (or in the form of the catalogue). It is untrusted: nothing
but numbers, words and switches is read, and every fault is an InputError that names the file and the key.
"""

import functools
import json
import os
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from ...errors import InputError, nearest
from ...files import convert, read_text
from ..architecture import Architecture
from ..configs import Described, architecture_of
from .convolution import Convolution
from .pyramid import KINDS, Pyramid
from .spelling import base_meant, entry_meant

MAX_CONFIG_BYTES = 2**20
LONGEST_ASSUMED = 16_384  # tokens: a longer maximum of a config is no length that it is trained at


class ModelEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One file of the catalogue."""

    title: str
    source: str
    config: dict[str, Any]
    names: tuple[str, ...] = ()  # others that it goes by
    parameters: int | None = None  # as published
    parameters_source: str = ""
    parameters_within: float = 0.0  # relative: what rounding the published count allows
    active_parameters: int | None = None
    active_parameters_source: str = ""
    forward_flops: int | None = None  # of one sample, as published (convolutional models)
    forward_flops_source: str = ""
    seq_len: int | None = None  # of its training


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A model that can be planned for."""

    name: str
    title: str
    source: str
    description: Architecture | Convolution | Pyramid
    seq_len: int | None = None  # tokens of a sequence, where that is known
    seq_len_from: str = ""  # where it is from; without seq_len, why there is none
    assumed: tuple[str, ...] = ()  # in reading its config
    ignored: tuple[str, ...] = ()  # keys that were passed over

    @property
    def architecture(self) -> Architecture:
        """The transformer; InputError if the model is none."""
        if isinstance(self.description, Architecture):
            return self.description
        network = self.description
        size = f"{network.parameters / 1e9:.4g} B parameters, {network.forward_flops / 1e9:.4g} GFLOP forward an image"
        told = f"{size}; layouts are planned for transformers whose layers are equally wide"
        raise InputError(f"{self.name}: {told}; give --mfu for the arithmetic of a step")

    def training(self, mtp_layers: int) -> "Model":
        """Return the model with this many modules that predict further tokens trained beside its layers."""
        if not mtp_layers:
            return self
        try:
            trained = msgspec.structs.replace(self.architecture, mtp_trained=mtp_layers)
        except ValueError as error:
            raise InputError(f"--mtp-layers {mtp_layers}: {error}") from None
        return msgspec.structs.replace(self, description=trained)

    def length_assumed(self, asked: int | None) -> tuple[str, ...]:
        """Return what an answer assumes of the tokens of a sequence: nothing where they are asked for."""
        if asked is not None or self.seq_len is None:
            return ()
        return (f"sequence length {self.seq_len:,}: {self.seq_len_from}",)


def model_names() -> list[str]:
    """Return the names of the catalogue."""
    return list(_names())


@functools.cache
def _names() -> tuple[str, ...]:
    files = resources.files(__package__).joinpath("data").iterdir()
    return tuple(sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml")))


@functools.lru_cache(maxsize=4096)  # a table of runs names few models many times
def resolve_model(name: str) -> str | None:
    """Return the entry that a name means as people write it, None where none does."""
    known = model_names()
    return name if name in known else entry_meant(name, ((key, entry(key).names) for key in known))


@functools.cache
def entry(name: str) -> ModelEntry:
    """Return one entry of the catalogue; InputError with the nearest name if there is none."""
    if name not in model_names():
        hint = nearest(name.rpartition("/")[2].lower().replace("_", "-"), model_names())
        raise InputError(f"--model {name}: not in the catalogue and not a file ({hint})")
    text = resources.files(__package__).joinpath("data", f"{name}.toml").read_text("utf-8")
    return convert(tomllib.loads(text), ModelEntry, where=f"catalogue: {name}")


TRAINED_ON = "{name} is counted as {base}, from which it was trained on with the same sizes"
NO_CONFIG = "expected the model's config.json, or a file .toml with the same keys; weights and logs are not read"


def load_model(text: str, *, allow_unknown: bool = False) -> Model:
    """Return the model that `--model` names: an entry of the catalogue, or a file or folder with a config."""
    path = Path(text)
    if path.suffix not in {".json", ".toml"} and not path.is_dir():
        known = resolve_model(text)
        if known is None and path.is_file():
            raise InputError(f"{text}: {NO_CONFIG}")
        base = None if known or path.suffix[1:].isalpha() else base_meant(text)  # a file of weights is no name
        return _trained_on(base, text) if base in model_names() else _of_catalogue(known or text)
    file = _config_in(path) if path.is_dir() else path
    data = _read(file)
    if isinstance(data.get("config"), Mapping) and "class_name" not in data:  # the form of the catalogue
        found = convert(data, ModelEntry, where=str(file))
        model = _of_entry(found, path.stem, where=f"{file}: config", allow_unknown=allow_unknown)
        return msgspec.structs.replace(model, source=str(file))
    name = Path(os.path.abspath(file)).parent.name if file.stem == "config" else file.stem
    return _of_config(data, name, str(file), allow_unknown=allow_unknown)


def _config_in(folder: Path) -> Path:
    """Return the config.json of a folder, or a file in its place from which is told what else the folder holds."""
    beside = (folder / name for name in ("adapter_config.json", "model_index.json", "params.json"))
    own = folder / "config.json"
    return own if own.exists() else next((file for file in beside if file.exists()), own)


@functools.cache
def _of_catalogue(name: str) -> Model:
    return _of_entry(entry(name), name, where=f"catalogue: {name}")


def _trained_on(base: str, name: str) -> Model:
    model = _of_catalogue(base)
    return msgspec.structs.replace(model, assumed=(TRAINED_ON.format(name=name, base=base), *model.assumed))


def _of_entry(found: ModelEntry, name: str, where: str, *, allow_unknown: bool = False) -> Model:
    model = _of_config(found.config, name, where, allow_unknown=allow_unknown)
    told = {"seq_len": found.seq_len, "seq_len_from": "of its training, as published"} if found.seq_len else {}
    return msgspec.structs.replace(model, title=found.title, source=found.source, **told)


def _of_config(config: Mapping[str, Any], name: str, where: str, *, allow_unknown: bool) -> Model:
    if config.get("model_type") == "resnet":
        network = Convolution.from_config(config, where=where)
        return Model(name=name, title=name, source=where, description=network)
    if config.get("model_type") in KINDS:
        pyramid, assumed = Pyramid.from_config(config, where=where)
        return Model(name=name, title=name, source=where, description=pyramid, assumed=assumed)
    found = architecture_of(config, name=name, where=where, allow_unknown=allow_unknown)
    longest, told = _longest(found, name, where)
    short = 0 < longest <= LONGEST_ASSUMED
    return Model(
        name=name,
        title=name,
        source=where,
        description=found.architecture,
        seq_len=longest if short else None,
        seq_len_from=told,
        assumed=found.assumed,
        ignored=found.ignored,
    )


def _longest(found: Described, name: str, where: str) -> tuple[int, str]:
    """Return the most tokens of a sequence, 0 where nothing says them, and where they are from or why none are."""
    own, (beside, key) = found.architecture.max_position_embeddings, found.length
    longest = own or beside
    if longest > LONGEST_ASSUMED and found.usual_length:
        return longest, f"its model type allows up to {longest} tokens by default, and {where} says none"
    if longest > LONGEST_ASSUMED:
        return longest, f"{where} allows up to {longest} tokens, which is no length that it is trained at"
    if own and found.usual_length:
        return own, f"the longest that its model type allows by default; {where} says none"
    if own:
        return own, f"the longest that {where} allows"
    if beside:
        return beside, f"{key} of {where}, which limits nothing in the model itself"
    return 0, f"{name} does not say how long a sequence is, and {'; '.join(found.token)}" if found.token else ""


def _read(file: Path) -> dict[str, Any]:
    text = read_text(file, max_bytes=MAX_CONFIG_BYTES).removeprefix("\ufeff")  # as Windows begins a file
    try:
        data = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text, object_pairs_hook=_said_once)
    except json.JSONDecodeError as error:
        raise InputError(f"{file}: {_no_json(text, error)}") from None
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        raise InputError(f"{file}: {error}") from None
    if not isinstance(data, dict):
        raise InputError(f"{file}: expected an object with the keys of a config.json, got {type(data).__name__}")
    return data


def _said_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; ValueError for a key that stands in it twice with two values, of which neither is known
    to be meant.
    """
    found: dict[str, Any] = {}
    for key, value in pairs:
        if found.setdefault(key, value) != value:
            raise ValueError(f"{key}: stands twice, with {found[key]!r:.40} and {value!r:.40}; expected one value")
    return found


def _no_json(text: str, error: json.JSONDecodeError) -> str:
    """Return where a text stops to be JSON, and what stands there."""
    line = text[error.pos :].strip().partition("\n")[0].rstrip()
    behind = " behind the end of the object" if error.msg.startswith("Extra data") else ""
    return f"{error}, {repr(line[:60]) if line else 'nothing'}{behind or ' stands there'}"
