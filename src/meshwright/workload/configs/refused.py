"""Hints in the place of files that are not read: what they are, what their class puts out, what to give instead."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from ..adapters import ADAPTED, without_adapters
from .named import HEADS
from .outputs import OTHERS
from .reader import ALIASES, SIZES

ENCODES = ("ForMaskedLM",)  # classes whose tokens see those behind them
OF_IMAGES = frozenset({"image_size", "num_channels", "stem_num_channels"})
OTHER_OUTPUT = (
    "{first} has another output than a language model; expected a name that ends in "
    f"{', '.join((*HEADS, *OTHERS))}; plan --params takes a size"
)
DRAFTING = re.compile("(?i:eagle|medusa|draft|speculator|nextn|_mtp$)|MTP")  # as engines of inference call them
OF_DRAFTS = (
    "{first} drafts tokens for another model (speculative decoding), and has weights beside its layers that are not "
    "counted; plan --params takes a size"
)
UNKNOWN_OUTPUT = "{first} may have another output than a language model; plan --params takes a size"
OWN_CODE = "the code of {first}, which lies beside the weights, is not read; plan --params takes a size"
NO_HEADS = (
    "its keys are of images, and none is of attention, such as num_attention_heads: of networks of convolutions "
    "resnet alone is counted; plan --params takes a size"
)
IN_STAGES = (
    "its keys are of images, with heads for each of several stages: of networks in stages swin, swinv2 and donut-swin "
    "alone are counted; plan --params takes a size"
)


WITHOUT_HEADS = "no key of it is of attention, such as num_attention_heads; plan --params takes a size"
UNKNOWN_TYPE = (
    "where its layers are those of a type that is known, such as {types}, a copy of the file with that model_type and "
    "its keys is read"
)
# types to compare a file with, by the end of its class
EXAMPLES = {
    "ForMaskedLM": "bert, modernbert or deberta-v2",
    "ForConditionalGeneration": "t5, bart or llava",
    "ForCTC": "wav2vec2 or wav2vec2-bert",
    "ForImageClassification": "vit or swin",
}


def other_output(config: Mapping[str, Any], first: str, otherwise: str = OTHER_OUTPUT) -> str:
    """Return why a class is not counted: its code is its own, or it puts out something else."""
    if is_draft(first):
        return OF_DRAFTS.format(first=first)
    own = any(str(named).endswith(f".{first}") for named in auto_map(config).values())
    return (OWN_CODE if own and ("ForCausalLM" in first or "For" not in first) else otherwise).format(first=first)


def is_draft(first: str) -> bool:
    """Return whether a class is of models that draft tokens for another, and not of one that sees or hears."""
    return bool(DRAFTING.search(first)) and not first.endswith("ForConditionalGeneration")


def auto_map(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return which classes a file takes from code that lies beside its weights."""
    found = config.get("auto_map")
    return found if isinstance(found, Mapping) else {}


def of_unknown_type(config: Mapping[str, Any], first: str) -> str:
    """Return what to do with a file whose type is not known: nothing is, where its code or its layers are its own."""
    if any(str(named).endswith(f".{first}") for named in auto_map(config).values() if first):
        return OWN_CODE.format(first=first)
    if config.keys() - NO_SIZES and not _has_heads(config):
        return WITHOUT_HEADS
    types = next((names for end, names in EXAMPLES.items() if first.endswith(end)), "llama, mixtral or deepseek_v3")
    return UNKNOWN_TYPE.format(types=types)


OF_PARTS = "it joins {parts}, which is not counted as a whole{known}; plan --params takes a size"
KNOWN_PARTS = "; a file with what {parts} says is read, as that part alone"


def of_parts(config: Mapping[str, Any], known: Collection[str]) -> str:
    """Return that a file joins models of several types, and which of them are `known`; "" of other files."""
    parts = {key: part["model_type"] for key, part in config.items() if _is_part(part)}
    if len(parts) < 2:
        return ""
    named = ", ".join(f"{key} ({kind})" for key, kind in parts.items())
    read = [key for key, kind in parts.items() if kind in known and not config[key].get("add_cross_attention")]
    return OF_PARTS.format(parts=named, known=KNOWN_PARTS.format(parts=" or ".join(read)) if read else "")


def _is_part(part: object) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("model_type"), str) and bool(part["model_type"])


NO_SIZES = frozenset({"model_type", "architectures"})


def _has_heads(config: Mapping[str, Any]) -> bool:
    """Return whether a file, or a part of it, says how many heads there are."""
    sized = (config, *(part for part in config.values() if isinstance(part, Mapping)))
    return any(str(key).endswith(("heads", "n_head")) for part in sized for key in part)


def without_attention(config: Mapping[str, Any]) -> str:
    """Return that a file is of a network over images that is none of attention, or one in stages; "" of others."""
    if not OF_IMAGES & config.keys():
        return ""
    if not _has_heads(config):
        return NO_HEADS
    return IN_STAGES if any(isinstance(config.get(key), list) for key in ALIASES["num_attention_heads"]) else ""


def instead_of_type(config: Mapping[str, Any]) -> str:
    """Return what to give in place of a file that is no config.json of a language model."""
    made = config.get("_class_name")
    if isinstance(made, str):
        return (OF_PIPELINE if _lists_classes(config) else OF_DIFFUSERS).format(made=made)
    if isinstance(config.get("peft_type"), str):
        return _of_adapter(config)
    for library, keys in OF_LIBRARIES.items():
        if keys <= config.keys():
            return OTHER_LIBRARY.format(library=library)
    if any(key.startswith(("speculators_", "medusa_")) for key in config):
        return "this is a draft for another model (speculative decoding), which is not counted; --params takes a size"
    if header := _of_gguf(config):
        return header
    if "weight_map" in config:
        return "this is an index of weights; take the config.json beside it"
    if "n_layers" in config and "dim" in config:
        return "this has the keys of other code, as Meta's params.json has; take the config.json of the same model"
    if len(told := [f"{key} is {IN_TABLES[key]}" for key in config if key in IN_TABLES]) > 1:
        theirs = "its keys are columns of a table of `validate`; expected those of a config.json"
        return f"{theirs}: {', '.join(told)}{TYPES}"
    if not any(key in config for name in SIZES for key in ALIASES.get(name, (name,))):
        return "no size of a model is in it; take the config.json that lies beside the weights"
    return "expected a word such as llama"


# columns of a table of runs, by the key of a config.json for the same size
IN_TABLES = {
    **{"layers": "num_hidden_layers", "hidden": "hidden_size", "heads": "num_attention_heads", "vocab": "vocab_size"},
    **{"kv_heads": "num_key_value_heads", "ffn_hidden": "intermediate_size", "tied": "tie_word_embeddings"},
    **{"experts": "num_experts", "top_k": "num_experts_per_tok", "expert_ffn": "moe_intermediate_size"},
}
TYPES = '; model_type "llama" is a decoder whose networks are gated'
# keys of a model's file as other libraries write it
OF_LIBRARIES = {
    "Keras": {"class_name", "config"},
    "timm": {"architecture", "pretrained_cfg"},
    "OpenCLIP": {"model_cfg"},
}
OTHER_LIBRARY = "this is a model's file of {library}, whose layers are not read; plan --params takes a size"
OF_DIFFUSERS = "{made} is a part of diffusers: its models of images and videos are not counted; --params takes a size"
OF_PIPELINE = (
    "{made} is a pipeline of diffusers: its model_index.json lists classes and no sizes, which the config.json of "
    "each folder beside it has (transformer or unet, text_encoder, vae); of these, models of text are counted; "
    "--params takes a size"
)


OF_GGUF = (
    "this is the metadata of a GGUF file{named}, whose weights are stored for inference and which does not say whether "
    "the output has weights of its own; give the config.json of the model that it was made from, or its name"
)


def _of_gguf(config: Mapping[str, Any]) -> str:
    """Return that a file has the keys of a GGUF file's header, as its readers write them out; "" of others."""
    inside = config.get("metadata")
    for keys in (config, inside if isinstance(inside, Mapping) else {}):
        if ARCHITECTURE in keys:
            said = (_value(keys.get(key)) for key in ("general.name", ARCHITECTURE))
            named = ", ".join(text for text in said if text)
            return OF_GGUF.format(named=f" ({named})" if named else "")
    return ""


ARCHITECTURE = "general.architecture"


def _value(said: object) -> str:
    """Return the text of a key, which gguf-dump --json writes as an object with its type."""
    value = said.get("value") if isinstance(said, Mapping) else said
    return value if isinstance(value, str) else ""


def _lists_classes(config: Mapping[str, Any]) -> bool:
    """Return whether a file says of each part which library and class it is of, as a pipeline's does."""
    parts = [value for key, value in config.items() if not key.startswith("_")]
    return any(isinstance(part, list) and len(part) == 2 and isinstance(part[1], str) for part in parts)


def _of_adapter(config: Mapping[str, Any]) -> str:
    """Return what to plan in place of an adapter's own file: the model beneath it, with adapters of its rank."""
    base, rank, kind = config.get("base_model_name_or_path"), config.get("r"), config["peft_type"]
    under = base if isinstance(base, str) and base else "the model beneath it"
    option = f" with --lora-rank {rank}" if kind == "LORA" and type(rank) is int and rank > 0 else ""
    some = config.get("target_modules")
    targets = ", ".join(sorted(map(str, some))) if isinstance(some, list) else str(some or "")
    if option and without_adapters(targets):
        option += f" ({ADAPTED}; this one has them on {targets})"
    told = f"this is an adapter, peft_type {kind}; give --model {under}, or its config.json,{option}".rstrip(",")
    said = {key: config.get(key) for key in BESIDE_RANK}
    beside = [f"{BESIDE_RANK[key]} ({key}: {_listed(value)})" for key, value in said.items() if not _is_off(value)]
    return f"{told}; not counted in that: {', '.join(beside)}" if beside else told


# keys of an adapter (peft: LoraConfig) by which it trains other weights than one of its rank on all layers
BESIDE_RANK = {
    "modules_to_save": "weights trained whole",
    "trainable_token_indices": "rows of the embedding",
    "bias": "biases",
    "lora_bias": "biases of the adapters",
    "rank_pattern": "other ranks",
    "layers_to_transform": "some layers alone",
    "layer_replication": "layers that stand several times",
    "exclude_modules": "matrices without adapters",
    "target_parameters": "parameters with adapters",
    "use_dora": "magnitudes beside the adapters",
}


def _is_off(value: object) -> bool:
    return value is None or value is False or value in ("none", [], {})


def _listed(value: object) -> str:
    """Return the names in a list or an object, any other value as JSON has it."""
    return ", ".join(map(str, value)) if isinstance(value, list | Mapping) else str(value).lower()
