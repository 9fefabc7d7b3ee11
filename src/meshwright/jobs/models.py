"""The model that a configuration means: by the name it gives, or by the sizes it lists; differences are said."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..errors import InputError
from ..workload.architecture import Architecture
from ..workload.kinds import runs_of
from ..workload.models import load_model, model_names, resolve_model
from ..workload.models.spelling import TRAINED_ON, of_family

NOISE = re.compile(
    r"(?:^|[-_.])(meta|hf|instruct|chat|base|preview|pretrain(ing)?|v0\.\d|\d{4}|it|thinking|bf16|fp8)(?=[-_.]|$)"
)
FAMILIES: tuple[tuple[str, str], ...] = (  # what names look like, and the catalogue's name for it
    *TRAINED_ON,
    (r"llama[-_ ]?3\.2[-_ ]?(\d+)b", r"llama3.2-\1b"),
    (r"llama[-_ ]?3([._][13])?[-_ ]?(\d+)b", r"llama3-\2b"),
    (r"llama[-_ ]?31[-_ ](\d+)b", r"llama3-\1b"),
    (r"llama[-_ ]?2[-_ ]?(\d+)b", r"llama2-\1b"),
    (r"qwen[-_ ]?2[._ ]?5[-_ ]?(\d+(?:\.\d+)?b)", r"qwen2.5-\1"),
    (r"qwen[-_ ]?2[-_ ](\d+(?:\.\d+)?b)", r"qwen2.5-\1"),  # of the same sizes
    (r"deepseek[-_ ]?v2[-_ ]?lite", "deepseek-v2-lite"),
    (r"qwen[-_ ]?3[-_ ]?(?:moe[-_ ]?)?(\d+(?:\.\d+)?b(?:[-_ ]?a\d+b)?)", r"qwen3-\1"),
    (r"mixtral[-_ ]?(8x\d+b)", r"mixtral-\1"),
    (r"mistral[-_ ]?(\d+)b", r"mistral-\1b"),
    (r"deepseek[-_ ]?(?:v[-_ ]?)?3(?:[-_ ]?671b)?", "deepseek-v3"),
    (r"gpt[-_ ]?oss[-_ ]?(\d+)b", r"gpt-oss-\1b"),
    (r"nemotron[-_ ]?4[-_ ]?(\d+)b", r"nemotron4-\1b"),
    (r"gpt[-_ ]?3[-_ ]?175b", "gpt3-175b"),
    (r"bloom(?:-176b)?", "bloom-176b"),
    (r"dbrx", "dbrx-132b"),
    (r"gpt[-_]?2", "gpt2"),
    (r"tinyllama[-_]1\.1b", "tinyllama-1.1b"),
    (r"smollm[-_ ]?(135m|360m|1\.7b)", r"smollm2-\1"),  # of the same sizes
)
SHAPE = ("num_hidden_layers", "hidden_size", "num_attention_heads")
OTHER_SIZE = 0.01  # of a model's parameters: more than biases, norms and learned positions come to
COMPARED = ("num_key_value_heads", "intermediate_size", "vocab_size", "expert_size", "experts", "experts_per_token")
FINER = {
    "num_experts": "experts",
    "intermediate_size": "intermediate_size",
    "num_key_value_heads": "num_key_value_heads",
    "vocab_size": "vocab_size",
}
# classes of tokenizers whose vocabulary is that of their file, and the size of the first model that had them
CLASSES = ((r"\bllama2?tokenizer", 32000),)
# sizes of tokenizers that launch scripts name without their vocabulary
TOKENIZERS = (
    (r"llama[-_]?4", 202048),
    (r"llama3|llama-3|Meta-Llama-3", 128256),
    (r"baichuan-?2", 125696),
    (r"baichuan|\bYi-?(?:1\.5-?)?(?:6|9|34)B", 64000),
    (r"internlm2", 92544),
    (r"internlm", 103168),
    (r"llama[-_]?2(?!Tokenizer)|mistral-7b|mixtral|codellama|TinyLlama", 32000),
    (r"qwen3|qwen2|qwen-?1\.5", 151936),
    (r"gpt[-_]oss|o200k", 201088),
    (r"GPT2BPE|gpt2", 50257),
    (r"deepseek[-_]?(?:ai/DeepSeek[-_])?(?:V3|R1)", 129280),
    (r"deepseek[-_]?(?:ai/DeepSeek[-_])?(?:V2|MoE)|deepseek-llm", 102400),
    (r"kimi|moonlight", 163840),
    (r"falcon-(?:7b|40b|180b)", 65024),
    (r"starcoder", 49152),
    (r"bloom", 250880),
    (r"gpt-?neox|pythia", 50277),
    (r"gemma-?2?-|nemotron[-_]?4", 256000),
)

# sizes that a file gives beside a model's name and that the catalogue's model keeps: key of a config.json and field
FIXED = {
    "hidden_size": "hidden_size",
    "num_attention_heads": "num_attention_heads",
    "head_dim": "head_dim",
    "num_experts": "experts",
    "num_experts_per_tok": "experts_per_token",
    "moe_intermediate_size": "expert_size",
}
# sizes by which a model is another one than the file's, whatever the file leaves out
TELLING = {"num_hidden_layers": "num_hidden_layers"} | {
    key: FIXED[key] for key in ("hidden_size", "num_attention_heads", "num_experts", "num_experts_per_tok")
}
SIZES = frozenset({"num_hidden_layers", "num_key_value_heads", "intermediate_size", "vocab_size"})


def catalogue_name(text: str) -> str | None:
    """Return the catalogue's name of the model that a name in a file means, None where it is not there."""
    known = model_names()
    plain = text.strip().strip("/").rpartition("/")[2].lower()
    if named := resolve_model(plain):
        return named
    plain = NOISE.sub("", plain)
    if named := resolve_model(plain):
        return named
    found = of_family(plain, FAMILIES)
    return found if found in known else None


def by_flavor(flavor: str, families: Sequence[str] = ()) -> list[str]:
    """Return the catalogue's models whose name ends in a size such as "30B-A3B", of given families if any are.

    A family is written as folders write it ("deepseek_v3", "qwen3").
    """
    ending = "-" + flavor.strip().lower().replace("_", "-")
    starts = tuple(family.lower().replace("_", "-") for family in families)
    return [name for name in model_names() if name.endswith(ending) and (not starts or name.startswith(starts))]


def by_shape(config: Mapping[str, Any]) -> list[str]:
    """Return the catalogue's models with the layers, width and heads of a configuration; experts where it has some."""
    models = {name: load_model(name).description for name in model_names()}
    sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads")
    alike = [
        (name, model)
        for name, model in models.items()
        if isinstance(model, Architecture)
        and all(getattr(model, key) == config.get(key) for key in sizes)
        and bool(model.experts) == bool(config.get("num_experts"))
    ]
    for key, theirs in FINER.items():  # of several, the models that agree in what the configuration says beside
        if len(alike) > 1 and (key in config or key == "num_experts"):
            closer = [pair for pair in alike if getattr(pair[1], theirs) == config.get(key, 0)]
            alike = closer or alike
    return [name for name, _ in alike]


def architecture_named(name: str) -> Architecture:
    """Return a model of the catalogue."""
    return load_model(name).architecture


def vocabulary_of(tokenizer: str) -> tuple[int, str, bool] | None:
    """Return the vocabulary of a tokenizer by its name, path or class, by what, and whether that makes it sure.

    None where it is not known.
    """
    for pattern, size in TOKENIZERS:
        if re.search(pattern, tokenizer, re.IGNORECASE):
            return size, f"that of the tokenizer {tokenizer}", True
    for pattern, size in CLASSES:
        if found := re.search(pattern, tokenizer, re.IGNORECASE):
            return size, f"the usual one of {found[0]}, whose file may hold another; --job vocab_size=N says it", False
    return None


def architecture_of_sizes(config: Mapping[str, Any], *, name: str, where: str) -> Architecture:
    """Return the architecture of sizes listed under the keys of a Hugging Face config.json.

    `layers_with_experts` in them says of each layer whether it has experts, where they are not the last layers.
    """
    sparse = config.get("layers_with_experts")
    try:
        if sparse is None:
            return Architecture.from_sizes(config, name=name, where=where)
        model = Architecture.from_sizes({**config, "first_k_dense_replace": 1}, name=name, where=where)
        dense, routed = model.runs[0].layer, model.runs[-1].layer
        stack = runs_of(routed if one else dense for one in sparse)
        return msgspec.structs.replace(model, stack=stack, dense_layers=sparse.count(0))
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: {error}") from None


def changed(model: Architecture, sizes: Mapping[str, int], where: str) -> Architecture:
    """Return a model with some sizes as a file gives them; InputError where they do not fit together."""
    try:
        return model.resized(**sizes)
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None


def with_sizes(name: str, config: Mapping[str, Any], where: str) -> tuple[Architecture, list[str]]:
    """Return a model of the catalogue with the sizes of a file, and in words the sizes that cannot be changed in it."""
    published = architecture_named(name)
    fixed, given = {}, {key: value for key, value in config.items() if key in SIZES}
    if published.stack:  # layers of several kinds: their number and the vocabulary alone
        fixed = {key: value for key, value in given.items() if key not in {"num_hidden_layers", "vocab_size"}}
    fixed |= {FIXED[key]: value for key, value in config.items() if key in FIXED}
    told = [
        f"{key} = {value}: {name} has {getattr(published, key)}, which is priced"
        for key, value in fixed.items()
        if value != getattr(published, key)
    ]
    model = changed(published, {key: value for key, value in given.items() if key not in fixed}, where)
    if published.positions == "learned" and (rows := config.get("max_position_embeddings")):
        model = changed(model, {"max_position_embeddings": rows}, where)  # of the table
    if config.get("tie_word_embeddings") is False and model.tied:
        model = msgspec.structs.replace(model, tied=False)
    if published.kv_rank and config.get("multi_latent_attention") is False:
        told.append(f"multi-latent-attention is off: {name} has it, which is priced")
    return model, told


def differences(model: Architecture, published: str, where: str) -> list[str]:
    """Return in what a model differs from the published one."""
    other = architecture_named(published)
    return [
        f"{where}: {key} is {getattr(model, key)}; the published {published} has {getattr(other, key)} "
        "(the file's number is used)"
        for key in (*SHAPE, *COMPARED)
        if getattr(model, key) != getattr(other, key) and not _without_effect(key, model, other)
    ]


def differs_in_sizes(model: Architecture, published: str) -> bool:
    """Whether a model of the layers, width and heads of a published one is another.

    So it is where two more of its sizes differ, or where the networks of one alone have gates.
    """
    other = architecture_named(published)
    if _gated(model) != _gated(other):
        return True
    unlike = [key for key in (*SHAPE, *COMPARED) if getattr(model, key) != getattr(other, key)]
    return sum(key != "vocab_size" and not _without_effect(key, model, other) for key in unlike) > 1


def has_other_weights(model: Architecture, published: str) -> bool:
    """Whether a model, of the vocabulary that it has, is not as large as the published one: tied weights, say."""
    other = changed(architecture_named(published), {"vocab_size": model.vocab_size}, published)
    return abs(other.parameters - model.parameters) > OTHER_SIZE * other.parameters


def _gated(model: Architecture) -> bool:
    """Whether some layer's network has a gate."""
    return any(run.layer.network is not None and run.layer.network.gated for run in model.runs)


def other_sizes(model: Architecture, config: Mapping[str, Any]) -> list[str]:
    """Return the sizes of a file that a model has otherwise, in words."""
    given = [key for key, field in TELLING.items() if config.get(key) and config[key] != getattr(model, field)]
    return [f"{key} {config[key]}" for key in given]


def _without_effect(key: str, model: Architecture, other: Architecture) -> bool:
    """Whether a vocabulary differs by padding to a multiple alone, or dense networks of layers that have experts."""
    if key == "intermediate_size":
        return model.moe_layers == model.num_hidden_layers
    return key == "vocab_size" and 0 <= model.vocab_size - other.vocab_size <= 1024
