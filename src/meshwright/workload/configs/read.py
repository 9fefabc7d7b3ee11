"""From a config.json to an Architecture: unknown keys are refused by name, assumptions are listed."""

import difflib
import functools
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any, NamedTuple

import msgspec

from ...errors import InputError
from ...quantities import MOST_COUNT
from ..architecture import Architecture
from ..kinds import Attention
from . import vision
from .classes import FURTHER, OWN, UNNAMED, by_class
from .composites import COMPOSITES, tied_by
from .directions import directed
from .families import RECIPES, Recipe
from .ignored import is_ignored
from .named import HEADS, first_class, model_types, type_of_class
from .others import PAIRS
from .outputs import NO_WORDS, NOT_POOLED, OTHERS, POOLED, has_other_output, is_other_of_whole, with_other_output
from .own_forms import under_a_type
from .published import FORMS, by_todays_names, under_todays_type
from .reader import ALIASES, ConfigReader, is_empty
from .refused import (
    ENCODES,
    OF_DRAFTS,
    OTHER_OUTPUT,
    UNKNOWN_OUTPUT,
    auto_map,
    instead_of_type,
    is_draft,
    of_parts,
    of_unknown_type,
    other_output,
    without_attention,
)
from .wav2vec import SOUND

INSIDE = ("text_config", "llm_config", "language_config", "thinker_config")  # where a vision model keeps its text model


class Described(NamedTuple):
    """An architecture, what was assumed in reading it, and the keys that were passed over."""

    architecture: Architecture
    assumed: tuple[str, ...]
    ignored: tuple[str, ...]
    token: tuple[str, ...] = ()  # of the assumptions, what a token stands for, where it is no word of one text
    meant: str = ""  # a hint of the key that the first of these may be a misspelling of
    length: tuple[int, str] = (0, "")  # tokens of a sequence that the class has no use for, and the key that says them
    usual_length: bool = False  # that of the architecture is the default of the model type


@functools.cache
def config_defaults() -> dict[str, dict[str, Any]]:
    """Return what the configuration class of each model type assumes for keys that are not given."""
    text = resources.files(__package__).joinpath("defaults.json").read_text("utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text)
    return found


@functools.cache
def config_names() -> dict[str, list[str]]:
    """Return which of the names of the same size the configuration class of each model type takes."""
    found: dict[str, list[str]] = json.loads(resources.files(__package__).joinpath("names.json").read_text("utf-8"))
    return found


def architecture_of(
    config: Mapping[str, Any], *, name: str = "", where: str = "config.json", allow_unknown: bool = False
) -> Described:
    """Return the architecture that a config.json describes.

    Raises InputError naming an unknown model type, or a key that is wrong, missing, or not understood (unless
    `allow_unknown`, which passes over such keys and lists them).
    """
    try:
        config, of_form = under_a_type(config)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{where}: {error}") from None
    if "model_type" not in config and (typed := type_of_class(config)):
        config, of_form = {**config, "model_type": typed}, (OF_CLASS.format(named=first_class(config), kind=typed),)
    config, told = under_todays_type(config)
    kind = _model_type(config, where, alone=allow_unknown)
    _check_head(config, kind, where, allow_unknown=allow_unknown)
    try:
        found = _read(config, kind, where)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{where}: {error}") from None
    if found.ignored and not allow_unknown:
        raise InputError(
            f"{where}: {found.ignored[0]}: not understood for model_type {kind}, and it may change the size "
            f"({len(found.ignored)} such: {', '.join(found.ignored)}){found.meant}; --allow-unknown passes over it"
            f"{_class_of(config, kind)}"
        )
    _refuse_huge(msgspec.to_builtins(found.architecture), where)
    if not _is_counted(config, kind):
        found = found._replace(ignored=(CLASS.format(named=config["architectures"][0], kind=kind), *found.ignored))
    named = msgspec.structs.replace(found.architecture, name=name)
    told = of_form or told or _own_code(config, kind) or _another_class(config, kind, found.architecture)
    assumed = (*told, *found.assumed, *_quantized(config), *_output_of(config, named, where), *_one_layer(named))
    return found._replace(architecture=named, assumed=assumed)


def _read(config: Mapping[str, Any], kind: str, where: str) -> Described:
    if kind in COMPOSITES:
        return _composite(config, kind, where)
    if kind not in RECIPES:
        return _text_alone(config, kind, where)
    named = first_class(config) or ("AutoModel" if kind in NO_WORDS else "")
    if by_class(kind, named) is not None:
        return _single(config, kind, where, recipe=by_class(kind, named))
    other = not named.endswith(HEADS) and has_other_output(named, kind)
    return _single(config, kind, where, named=named if other else "")


def _output_of(config: Mapping[str, Any], model: Architecture, where: str) -> tuple[str, ...]:
    """Return which output is counted of an encoder whose file does not name the class that has one."""
    mixers = [mixer for run in model.runs for mixer in run.layer.mixers]
    named = first_class(config)
    if config["model_type"] in OWN:
        return () if named else (UNNAMED.format(first=next(iter(OWN[config["model_type"]]))),)
    if config["model_type"] in NO_WORDS or named in FURTHER.get(config["model_type"], {}):
        return ()
    if any(not isinstance(m, Attention) or m.masked for m in mixers) or (named and not named.endswith(PRETRAINED)):
        return ()
    if named:
        return (OTHERWISE.format(named=named),)
    kind, without = config["model_type"], ""
    if kind in {*POOLED, *NOT_POOLED}:
        bare = _single(config, kind, where, named="AutoModel").architecture
        without = f", and AutoModel reads it as one of {bare.parameters:,} parameters without that"
    return (OUTPUT.format(count=model.vocab_size, what="words" if model.embeds else "classes") + without,)


def _one_layer(model: Architecture) -> tuple[str, ...]:
    """Return what may be amiss where one wide layer is all of a decoder."""
    alone = model.num_hidden_layers == 1 and model.hidden_size >= DRAFTS_FROM
    return (ONE_LAYER,) if alone and model.runs[0].layer.mixer is not None and _is_causal(model) else ()


def _is_causal(model: Architecture) -> bool:
    return all(not isinstance(m, Attention) or m.masked for run in model.runs for m in run.layer.mixers)


DRAFTS_FROM = 1024  # width: narrower models of one layer are made for tests
ONE_LAYER = (
    "a decoder of one layer is counted as its type has it: drafts for speculative decoding (EAGLE) call themselves so "
    "too, and read a layer of another model by weights that their files do not name"
)
CLASS = "architectures: {named}, in whose place the output of a {kind} is counted"
PRETRAINED = "ForPreTraining"
OTHERWISE = "an output over words is counted; what {named} has beside it, or in its place, is not"
OUTPUT = "an output over {count:,} {what} is counted: the file names no class (architectures) that has another or none"


def _quantized(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what is passed over of a checkpoint whose weights are stored in few bits."""
    inside = _inside(config)
    for part in (config, config[inside] if inside else {}):
        for key in ("quantization_config", "compression_config", "quantization"):
            stored = part.get(key)
            if isinstance(stored, Mapping) and stored:
                method = stored.get("quant_method") or "its method is not said"
                return (STORED.format(key=key, method=method),)
    return ()


STORED = (
    "{key} ({method}): how the checkpoint stores its weights is passed over; they are counted whole, and trained in "
    "the plan's precision; frozen ones under adapters are held in few bits where --weights says so"
)


def _refuse_huge(part: Any, where: str) -> None:
    """Raise InputError at a number that follows from sizes each of which is possible, and that no model has."""
    inside = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list | tuple) else ()
    for name, value in inside:
        if isinstance(value, int) and value > MOST_COUNT:
            raise InputError(f"{where}: {name}: {value:.3g} follow from these sizes, which is more than any model has")
        _refuse_huge(value, where)


def _model_type(config: Mapping[str, Any], where: str, *, alone: bool) -> str:
    """Return the model type; one that is not known where its text model is, `alone`, may stand for it."""
    kind = config.get("model_type")
    if kind is None:
        raise InputError(f"{where}: model_type: missing ({instead_of_type(config)})")
    if not isinstance(kind, str):
        raise InputError(f"{where}: model_type: expected a word, got {kind!r}")
    if kind not in RECIPES and kind not in COMPOSITES:
        inside = _inside(config)
        text = config[inside].get("model_type") if inside else None
        if not isinstance(text, str) or text not in {*RECIPES, *COMPOSITES}:
            raise InputError(f"{where}: model_type: {kind} is not known ({_like(kind)}{_instead_of_kind(config)})")
        if not alone:
            raise InputError(
                f"{where}: model_type: {kind} is not known, but {inside} is a {text}: --allow-unknown plans it alone"
            )
    return kind


COUNTED_AS = "{named} (auto_map) is counted as a {kind}: what that code has beside it is not"
UNDERSTOOD_AS = (
    "its keys are all keys of a {kind}, which would have {count:.4g} B parameters; where its layers are those of one, "
    "a copy of the file with that model_type is read"
)
PLAIN_TYPES = ("llama", "mixtral", "qwen3_moe", "deepseek_v3")


def _instead_of_kind(config: Mapping[str, Any]) -> str:
    """Return a hint for an unknown type: what its class puts out, where that is no text, or what its keys are."""
    if is_draft(config["model_type"]) and "vision_config" not in config:
        return OF_DRAFTS.format(first=config["model_type"])
    if told := of_parts(config, model_types()):
        return told
    given = config.get("architectures")
    first = given[0] if isinstance(given, list) and given else None
    if isinstance(first, str) and ("For" in first or first.endswith("Model")) and not first.endswith(HEADS):
        return other_output(config, first, UNKNOWN_OUTPUT if first.endswith(OTHERS) else OTHER_OUTPUT)
    return _read_as(config)


def _own_code(config: Mapping[str, Any], kind: str) -> tuple[str, ...]:
    """Return that the class of a file is one of code beside its weights, whose name is that of no type."""
    named = str(auto_map(config).get("AutoModelForCausalLM") or "")
    plain = re.sub(f"(Model)?({'|'.join(HEADS)})$", "", named.rpartition(".")[2]).lower().replace("_", "")
    types = model_types()
    if kind not in types:  # its text model alone is counted, which is said
        return ()
    known = {re.sub("[_-]|text$", "", name) for name in types}
    return (COUNTED_AS.format(named=named, kind=kind),) if plain and plain not in known else ()


def _read_as(config: Mapping[str, Any]) -> str:
    """Return a hint for an unknown type: which of the plainest types understands every key of it, if any could."""
    told = without_attention(config)
    if told:
        return told
    first = first_class(config)
    sizes = {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"}
    for kind in PLAIN_TYPES:
        if first.endswith(ENCODES) or not sizes <= config.keys():
            break
        try:
            found = _single({**config, "model_type": kind}, kind, "")
        except (InputError, ValueError, OverflowError):
            continue
        if not found.ignored:
            return UNDERSTOOD_AS.format(kind=kind, count=found.architecture.parameters / 1e9)
    return of_unknown_type(config, first)


def _like(kind: str) -> str:
    """Return a hint of the model types that are written much the same, nothing where none is."""
    close = difflib.get_close_matches(kind.lower(), model_types(), n=1, cutoff=0.85)
    return f"did you mean {close[0]}? " if close else ""


OF_CLASS = "the file names no model_type; {named} is the class of {kind}, and it is read as one"
ANOTHER_CLASS = (
    "read as a {kind}, which model_type says, not as {other}, whose class {named} is (architectures): they differ"
)


def _class_of(config: Mapping[str, Any], kind: str) -> str:
    """Return a hint where the class that a config names is that of another model type."""
    found = type_of_class(config) or kind
    return "" if found == kind else f"; {first_class(config)} is the class of model_type {found}"


def _another_class(config: Mapping[str, Any], kind: str, model: Architecture) -> tuple[str, ...]:
    """Return what to say where the class that a file names is of another type, as which it would be another model."""
    other = type_of_class(config)
    if other in {None, kind} or other not in RECIPES or kind not in RECIPES:
        return ()
    try:
        read = _read({**config, "model_type": other}, str(other), "")
    except (InputError, ValueError, OverflowError):  # its keys are none of that type
        return ()
    if read.ignored or _sizes(read.architecture) == _sizes(model):
        return ()
    return (ANOTHER_CLASS.format(kind=kind, named=first_class(config), other=other),)


def _sizes(model: Architecture) -> tuple[object, ...]:
    return model.runs, model.parameters


def _check_head(config: Mapping[str, Any], kind: str, where: str, *, allow_unknown: bool) -> None:
    given = config.get("architectures") or []
    if not isinstance(given, list) or not all(isinstance(item, str) for item in given):
        raise InputError(f"{where}: architectures: expected a list of words")
    if config.get("add_cross_attention") and kind not in PAIRS:
        raise InputError(f"{where}: add_cross_attention: expected false: attention over another model is not counted")
    if given and kind in PAIRS and given[0].endswith("ForCausalLM"):
        raise InputError(f"{where}: architectures: {given[0]}: the decoder of a pair alone is not counted")
    if given and kind in OWN and given[0] not in {*OWN[kind], "AutoModel"}:
        raise InputError(f"{where}: architectures: {given[0]} is not counted; expected {', '.join(OWN[kind])}")
    if given and by_class(kind, given[0]) is not None:
        return
    if given and kind in SOUND and given[0].endswith(PRETRAINED):
        raise InputError(f"{where}: architectures: {given[0]}: its output is not counted")
    if not _is_counted(config, kind) and not allow_unknown:
        raise InputError(f"{where}: architectures: {other_output(config, given[0])}")


def _is_counted(config: Mapping[str, Any], kind: str) -> bool:
    """Return whether the class of a file, where it names one, has an output that is counted."""
    named = first_class(config)
    if not named or by_class(kind, named) is not None or (named.endswith(HEADS) and not is_draft(named)):
        return True
    if is_draft(named):
        return False
    return (has_other_output if kind in RECIPES else is_other_of_whole)(named, kind)


def _single(
    config: Mapping[str, Any], kind: str, where: str, *, named: str = "", recipe: Recipe | None = None
) -> Described:
    """Return what a file of one type describes.

    `named`: a class with another output than that of the type; `recipe`: how a class is read that differs in more.
    """
    usual, names = config_defaults().get(kind, {}), config_names().get(kind)
    reader = ConfigReader(by_todays_names(config, kind), usual, where, names)
    try:
        architecture = (recipe or RECIPES[kind])(reader)
        if named:
            architecture = with_other_output(reader, kind, architecture, named)
        architecture = directed(reader, kind, architecture)
    except (ValueError, OverflowError, InputError) as error:
        raise type(error)(f"{error}{_of_defaults(reader, str(error))}") from None
    unknown = reader.unknown()
    assumed = (*reader.assumed, *reader.otherwise())
    lengths = (reader.length_beside(), reader.is_usual_length(architecture.max_position_embeddings))
    return Described(architecture, assumed, tuple(unknown), tuple(reader.token), _meant(unknown, reader), *lengths)


def _of_defaults(reader: ConfigReader, fault: str) -> str:
    """Return which sizes in a message come from the model type, since the file has none of them."""
    keys = [key for key in (told.partition(" = ")[0] for told in reader.assumed) if f"{key} " in fault]
    return f" ({' and '.join(keys)}: missing; the number is the default of the model type)" if keys else ""


def _meant(unknown: list[str], reader: ConfigReader) -> str:
    """Return a hint of the key that the first unknown one may stand for; nothing where none is like it."""
    if not unknown:
        return ""
    same = [key for name, keys in ALIASES.items() if unknown[0] in keys for key in reader.keys(name)]
    close = same or difflib.get_close_matches(unknown[0], reader.used - {unknown[0]}, n=1, cutoff=0.8)
    return f"; did you mean {close[0]}?" if close else ""


def _inside(config: Mapping[str, Any]) -> str | None:
    """Return the key under which a config keeps its text model, None where it has none."""
    return next((key for key in INSIDE if isinstance(config.get(key), Mapping)), None)


def _text_alone(config: Mapping[str, Any], kind: str, where: str) -> Described:
    """Return the text model of a model whose type is not known; everything beside it is passed over."""
    inside = _inside(config)
    assert inside is not None
    tied = {key: config[key] for key in ("tie_word_embeddings",) if key in config}
    text = {**tied, **config[inside]}
    read = _composite if text["model_type"] in COMPOSITES else _single
    found = read(text, text["model_type"], f"{where}: {inside}")
    rest = {key: value for key, value in config.items() if key != inside}
    beside = _beside({key: value for key, value in rest.items() if key != "model_type"}, found.architecture, where)
    told = f"{inside} alone: parts of {kind} beside it, such as encoders, are not counted"
    ignored = (f"model_type {kind}", *beside, *found.ignored)
    return found._replace(assumed=(*found.assumed, told), ignored=ignored, token=(), meant="")


def _composite(config: Mapping[str, Any], kind: str, where: str) -> Described:
    if kind in FORMS:
        kind, form = FORMS[kind]
        config = form(config)
    composite, config = COMPOSITES[kind], by_todays_names(config, kind)
    inside = _inside(config)
    rest = {key: value for key, value in config.items() if key not in {*ENCODERS, inside}}
    if inside is None and "hidden_size" not in rest:
        raise InputError(f"{where}: text_config: missing (expected the sizes of the text model of a {kind})")
    text = dict(config[inside]) if inside else {**rest, "model_type": composite.text}
    text_kind = text.get("model_type", composite.text)
    if not isinstance(text_kind, str) or text_kind not in RECIPES:
        raise InputError(f"{where}: {inside or 'text_config'}: model_type: {text_kind!r} is not known")
    text = dict(by_todays_names(text, text_kind))
    filled = [(key, value) for key, value in composite.sizes if key not in text]
    text |= dict(filled)
    of_text = text.get("tie_word_embeddings", config_defaults().get(text_kind, {}).get("tie_word_embeddings")) is True
    text["tie_word_embeddings"], tied_as = tied_by(config, composite, kind, of_text=of_text)
    named = first_class(config)
    named = named if is_other_of_whole(named, kind) and not named.endswith(HEADS) else ""
    text |= {key: rest.pop(key) for key in ("num_labels", "id2label") if named and key in rest}
    found = _single(text, text_kind, f"{where}: {inside}" if inside else where, named=named)
    towers, told, unknown = _encoders(config, kind, found.architecture.hidden_size, where)
    beside = _beside(rest, found.architecture, where) if inside else []
    unknown += [key for key in found.ignored if key not in composite.passed]
    unknown += [key for key in beside if key not in composite.beside]
    filled_in = (FILLED.format(key, value, kind) for key, value in filled)
    return found._replace(
        architecture=msgspec.structs.replace(found.architecture, tower_parameters=towers),
        assumed=(*found.assumed, *filled_in, *(() if named else tied_as), *told),
        ignored=tuple(unknown),
        meant=found.meant if unknown[:1] == list(found.ignored[:1]) else "",
    )


JOINS = frozenset(key for composite in COMPOSITES.values() for key in composite.beside)
ENCODERS = {"vision_config": "image", "audio_config": "sound"}


def _encoders(config: Mapping[str, Any], kind: str, width: int, where: str) -> tuple[int, list[str], list[str]]:
    """Return the parameters of a model's encoders, what to say of them, and the keys that are not understood."""
    composite = COMPOSITES[kind]
    beside = {key: config[key] for key in composite.beside if key in config}
    towers, told, unknown = 0, [], []
    for part, tower in zip(ENCODERS, (composite.tower, composite.sound), strict=True):
        own = config.get(part) or {}
        if not isinstance(own, Mapping):
            raise InputError(f"{where}: {part}: expected an object")
        if tower is None and own:
            raise InputError(
                f"{where}: {part}: not understood: encoders of {ENCODERS[part]} are not counted for {kind}"
            )
        if tower is None or (part in composite.optional and config.get(part) is None):
            continue
        joined = {key: value for key, value in own.items() if key not in composite.beside} | beside
        named = f"{kind}/{part.removesuffix('_config')}"
        usual = config_defaults().get(named, {})
        if (other := vision.sight_defaults(tower, own)) is not None:  # of the encoder alone, not of what joins it
            joins = {key: value for key, value in usual.items() if key in composite.beside}
            usual = {key: value for key, value in config_defaults()[other].items() if key not in JOINS} | joins
        reader = ConfigReader(by_todays_names(joined, named), usual, f"{where}: {part}")
        reader.skip("model_type")
        towers += (one := tower(reader, width))
        told.append(vision.told_of_encoder(ENCODERS[part], one))
        unknown += [f"{part}.{key}" for key in reader.unknown()]
        beside = {}  # of the first encoder alone
    return towers, told, unknown


FILLED = "{} = {}, the default of {} for its text model"


def _beside(rest: Mapping[str, Any], model: Architecture, where: str) -> list[str]:
    """Return the keys beside the text model that are not understood; sizes repeated there must agree with it."""
    found = []
    for key, value in rest.items():
        if key in {"vocab_size", "hidden_size"}:
            if value is not None and value != getattr(model, key):
                raise InputError(f"{where}: {key}: {value} beside the text model, {getattr(model, key)} inside")
        elif not is_empty(value) and not is_ignored(key, value) and key not in MULTIMODAL:
            found.append(key)
    return found


MULTIMODAL = frozenset(
    {
        *("vision_feature_layer", "vision_feature_select_strategy", "multimodal_projector_bias", "tie_word_embeddings"),
        *("image_seq_length", "projector_hidden_act", "projection_dim", "spatial_merge_size", "image_grid_pinpoints"),
        *("vision_aspect_ratio", "vision_soft_tokens_per_image", "use_image_newline_parameter", "video_seq_length"),
        *("max_position_embeddings", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
        "use_unified_vision_chunk",  # of Kimi: how images and videos are cut
        *("position_id_per_seconds", "seconds_per_chunk"),  # of Qwen's models of sound: how positions count time
        "video_temporal_patch_size",  # of Nemotron: the encoder's own, said again
    }
)
