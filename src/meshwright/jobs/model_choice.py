"""Choice of the model of a job, by what its files say: sizes, a config.json among them, a name of the catalogue."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import msgspec

from ..errors import InputError
from ..files import parse_json, read_text
from ..workload.architecture import Architecture
from ..workload.models import load_model
from .models import (
    SIZES,
    architecture_named,
    architecture_of_sizes,
    by_shape,
    catalogue_name,
    changed,
    differences,
    differs_in_sizes,
    has_other_weights,
    with_sizes,
)
from .nearby import nearby
from .savings import Remarked
from .shell.marks import OPEN, without_unknown
from .sources import Sources

PATH = re.compile(rf"[/~.$]|{OPEN}")  # begins a path of some machine; a name on Hugging Face does not
COMPLETE = frozenset({"hidden_size", "num_hidden_layers", "num_attention_heads"})


class OwnModel(msgspec.Struct, frozen=True, kw_only=True):
    """One model by a config.json among the files of a job; `quantization` is what it says of weights in few bits."""

    file: str
    architecture: Architecture
    quantization: dict[str, Any] = {}
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelSaid:
    """One model as the files of an engine say it: its name, sizes under the keys of a config.json, and the file."""

    name: str
    config: Mapping[str, Any]
    where: str
    partial: bool = False  # whether sizes that the file leaves out are the published model's
    unsure: frozenset[str] = frozenset()  # sizes that are a guess, by which no published model is known


def own_model(sources: Sources) -> OwnModel | None:
    """Return the model whose config.json is among the files, taken from them; None where there is none.

    Raises InputError for a second one, and for one that is not understood.
    """
    found = [one for one in sources.documents if one.kind == "json" and one.path and _is_model(one.keys)]
    if len(found) > 1:
        raise InputError(f"{found[1].name}: a second model beside {found[0].name}; expected one")
    if not found:
        return None
    document = found[0]
    sources.documents.remove(document)
    return _read_model(document.path, document.name, document.data)


def _read_model(path: str, name: str, data: Mapping[str, Any]) -> OwnModel:
    model = load_model(path)
    quantization = data.get("quantization_config")
    return OwnModel(
        file=name,
        architecture=model.architecture,
        quantization=quantization if isinstance(quantization, dict) else {},
        assumed=model.assumed,
    )


def model_at(path: str, folder: str) -> OwnModel | None:
    """Return the model in the folder that a job names by its path, as from_pretrained takes it; None if it is not here.

    A path starts at the job's own folder, as the files that a script names do.
    """
    if not path or without_unknown(path) != path:
        return None
    named = PurePath(path) if PurePath(path).suffix == ".json" else PurePath(path) / "config.json"
    here = Path(named).is_absolute() and Path(named).is_file()
    found = Path(named) if here else nearby(Path(folder), str(named), whole=True)
    if found is None:
        return None
    data = parse_json(read_text(found), where=str(named))
    return _read_model(str(found), str(named), data) if isinstance(data, dict) and _is_model(frozenset(data)) else None


def _is_model(keys: frozenset[str]) -> bool:
    """Whether the first level of a JSON is that of a model from Hugging Face."""
    return "model_type" in keys and bool(keys & {"architectures", "hidden_size", "n_embd", "d_model", "text_config"})


def chosen_model(said: ModelSaid, own: OwnModel | None, remarked: Remarked) -> Architecture | None:
    """Return the model by its sizes, else by its config.json, else by its name; what differs is said."""
    if own is not None and not said.config.keys() >= COMPLETE:
        return _from_config(said, own, remarked)
    model = _without_config(said, remarked)
    if own is not None and model is not None and _sizes(model) != _sizes(own.architecture):
        told = f"its {_sizes(own.architecture)} are passed over"
        remarked.note(f"{own.file}: {said.where} has the sizes of its model itself, {_sizes(model)}; {told}")
    return model


def _from_config(said: ModelSaid, own: OwnModel, remarked: Remarked) -> Architecture:
    """Return the model of a config.json, with the sizes that other files say beside it."""
    for text in own.assumed:
        remarked.assume(text)
    sizes = {key: value for key, value in said.config.items() if key in SIZES}
    model = changed(msgspec.structs.replace(own.architecture, name=said.name), sizes, said.where)
    published = catalogue_name(said.name) if said.name else None
    if published is not None:
        _say_differences(model, published, own.file, remarked)
    return model


def _sizes(model: Architecture) -> str:
    return f"{model.num_hidden_layers} layers of {model.hidden_size}"


def _without_config(said: ModelSaid, remarked: Remarked) -> Architecture | None:
    name = catalogue_name(said.name) if said.name else None
    if not said.config.keys() >= COMPLETE:
        if name is not None and PATH.match(said.name):
            remarked.assume(f"the model is {name}: by the name of {said.name}, which is not here")
        return None if name is None else _named(name, said, remarked)
    shape = {key: value for key, value in said.config.items() if key not in said.unsure}
    alike = [name] if name else by_shape(shape)
    if said.partial and len(alike) == 1:
        remarked.assume(
            f"what the file does not say of the model is as in {alike[0]}, of the same layers, width and heads"
        )
        return _named(alike[0], said, remarked)
    config = dict(said.config)
    if not name and len(alike) == 1:
        bare = architecture_of_sizes({"vocab_size": 1, **config}, name="", where=said.where)
        alike = [] if differs_in_sizes(bare, alike[0]) else alike
    if "vocab_size" not in config:
        config["vocab_size"] = _vocabulary(alike, remarked)
    model = architecture_of_sizes(config, name=said.name or (alike[0] if len(alike) == 1 else ""), where=said.where)
    if len(alike) == 1:
        _say_differences(model, alike[0], said.where, remarked)
    if not said.name and len(alike) == 1 and has_other_weights(model, alike[0]):
        return msgspec.structs.replace(model, name="")
    return model


def _named(name: str, said: ModelSaid, remarked: Remarked) -> Architecture:
    """Return a model of the catalogue with the file's sizes; sizes that cannot be changed in it are named."""
    model, kept = with_sizes(name, said.config, said.where)
    for text in kept:
        remarked.ignore(text)
    if model != architecture_named(name):
        _say_differences(model, name, said.where, remarked)
    return model


def _say_differences(model: Architecture, published: str, where: str, remarked: Remarked) -> None:
    for text in differences(model, published, where):
        remarked.note(text)


def _vocabulary(alike: list[str], remarked: Remarked) -> int:
    if len(alike) == 1:
        size = architecture_named(alike[0]).vocab_size
        remarked.assume(f"vocabulary of {size}: that of {alike[0]}, whose layers, width and heads are the same")
        return size
    remarked.assume("vocabulary of 50257: the files do not say it; --job vocab_size=N says another")
    return 50257
