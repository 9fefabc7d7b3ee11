"""Programs that wrap another engine's arguments: ms-swift's `megatron sft`, and AMD's Primus around two engines.

Each is turned into the settings of the engine that runs, with the defaults that the wrapper sets beside the engine's.
Sources: modelscope/ms-swift:swift/megatron/arguments/megatron_args.py (4.6.0), AMD-AIG-AIMA/Primus:primus/configs
(models/megatron/language_model.yaml, modules/megatron/trainer_base.yaml, modules/torchtitan/pre_trainer.yaml).
"""

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from ...errors import InputError
from ..documents import Document
from ..keys import Keys, dotted_keys
from ..launch import SWIFT
from ..sources import Sources

SWIFT_DEFAULTS: Mapping[str, Any] = {
    "micro-batch-size": 1,
    "global-batch-size": 16,
    "recompute-granularity": "selective",
    "use-distributed-optimizer": True,
    "expert-tensor-parallel-size": 1,
    "moe-token-dispatcher-type": "alltoall",
    "bf16": True,
}
# what of ms-swift's own changes neither time nor memory of a step: data, files, and the kernels of attention
SWIFT_HARMLESS = (
    r"(?:dataset.*|split-dataset.*|max-epochs|num-train-epochs|packing.*|streaming|output-dir|add-version|merge-lora)",
    r"(?:padding-free|attention-backend|attn-impl|use-flash-attn|report-to|no-save.*|save.*|mcore-model|load-.*|use-hf)",
    r"(?:truncation.*|system|template|loss-scale|lazy-tokenize|model-(?:author|name|type)|new-special.*|cross-entropy-loss.*)",
    r"(?:target-modules|lora-.*|moe-(?:permute|router)-fusion|moe-grouped-gemm|swanlab.*|logging.*|check-model|rope-scaling)",
)
PRIMUS_MEGATRON: Mapping[str, Any] = {
    **{"micro_batch_size": 2, "global_batch_size": 128, "seq_length": 4096, "bf16": True},
    **{"sequence_parallel": True, "moe_token_dispatcher_type": "allgather"},
}
PRIMUS_TITAN: Mapping[str, Any] = {
    **{"training.batch_size": 1, "training.seq_len": 8192},
    **{"activation_checkpoint.mode": "selective", "activation_checkpoint.selective_ac_option": "op"},
}
PRIMUS_HARMLESS = (r"(?:(?:file-|stderr-)?sink-level|disable-last.*)",)
MODEL_ARGS = "MODEL_ARGS"  # flags of pretrain_gpt.py, as NVIDIA/Megatron-LM:tests/functional_tests keeps them
VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::([^${}]*))?\}")


def with_swift(values: dict[str, Any], sources: Sources) -> tuple[str, ...]:
    """Add ms-swift's defaults to Megatron's flags where its command runs; return its flags that change nothing.

    Raises InputError where fp16 is neither true nor false, and for a way to train some weights that is not known.
    """
    launch = sources.launch
    if launch is None or launch.program != SWIFT:
        return ()
    taken = {flag: value for flag, value in SWIFT_DEFAULTS.items() if values.get(flag) is None}
    if Keys(values, sources.names[0]).switch("fp16"):
        taken.pop("bf16", None)
    values |= taken
    if taken:
        sources.assumed.append(f"{', '.join(f'{flag} {value}' for flag, value in taken.items())}: ms-swift's defaults")
    if "max-length" in values:
        values.setdefault("seq-length", values.pop("max-length"))
    values.pop("model-name", None)  # by which the trained model calls itself (`--model_name`, `--model_author`)
    named = values.get("model") or values.get("mcore-model") or values.get("load")
    if isinstance(named, str):
        values["model"] = re.sub(r"-mcore$", "", named.rstrip("/"))
    tuned = values.pop("tuner-type", None) or values.pop("train-type", None)
    if not (tuned is None or re.match(r"full$|lora", str(tuned))):
        raise InputError(f"{sources.names[0]}: tuner-type {tuned}: expected full or lora")
    if str(tuned).startswith("lora"):
        values["peft"] = tuned
        if values.get("lora-rank") is None:
            values["lora-rank"] = 8
            sources.assumed.append("lora-rank 8 (the default of ms-swift)")
    return SWIFT_HARMLESS


def unwrap(sources: Sources) -> None:
    """Put the arguments that a wrapper's YAML gives to its engine in the place of that file."""
    for document in tuple(sources.documents):
        inner = _unwrapped(document, sources)
        if inner is not document and document in sources.documents:
            sources.documents[sources.documents.index(document)] = inner


def _unwrapped(document: Document, sources: Sources) -> Document:
    """Return the arguments that a YAML of Primus or of Megatron's own tests gives to its engine, any other as it is.

    Raises InputError where it trains with several modules or for an engine that is not read.
    """
    if isinstance(flags := document.data.get(MODEL_ARGS), Mapping):
        settings = {str(flag).lstrip("-").replace("-", "_"): value for flag, value in flags.items()}
        return Document(document.name, document.kind, settings, document.path)
    modules = document.data.get("modules")
    if not isinstance(modules, Mapping):
        return document
    trained = [each for each in modules.values() if isinstance(each, Mapping) and "framework" in each]
    if len(trained) != 1:
        return document
    module = trained[0]
    framework = str(module["framework"])
    if framework not in {"megatron", "torchtitan"}:
        raise InputError(f"{document.name}: framework {framework}: expected megatron or torchtitan")
    given = _resolved(module.get("overrides"), document.name, sources)
    model = _resolved({"model": module.get("model")}, document.name, sources).get("model")
    own = _model(str(model or ""), sources, document)
    defaults = PRIMUS_MEGATRON if framework == "megatron" else PRIMUS_TITAN
    taken = {key: value for key, value in defaults.items() if key not in given and key not in own}
    if taken:
        sources.assumed.append(f"{', '.join(f'{key} {value}' for key, value in taken.items())}: Primus's defaults")
    named = PurePath(str(model or "")).stem
    if framework == "torchtitan" and named and not own:
        own = {"model.name": named}
    elif named and not own:
        own = {"model-name": named}
    settings = {key: value for key, value in {**taken, **own, **given}.items() if value is not None}
    return Document(document.name, "toml" if framework == "torchtitan" else document.kind, nested(settings))


def _model(name: str, sources: Sources, outer: Document) -> dict[str, Any]:
    """Return the settings of the YAML that a module names as its model, with its `bases`; empty unless all are given.

    The files are taken from the sources; `outer`, which names them, is none of them though its name be the same.
    """
    file = PurePath(name).name
    document = next((one for one in sources.documents if one.name == file and one is not outer), None)
    if document is None:
        return {}
    sources.documents.remove(document)
    own = {key: value for key, value in document.data.items() if key not in {"bases", "includes"}}
    bases = [base for key in ("bases", "includes") for base in _names(document.data.get(key))]
    found: dict[str, Any] = {}
    for base in bases:
        here = any(one.name == PurePath(base).name for one in sources.documents)
        below = _model(base, sources, outer)
        if not below:
            text = f"{document.name}: builds on {base}, which is not here: the model is taken by its name"
            sources.notes += [] if here else [text]  # of what that builds on is said there
            return {}
        found |= below
    return found | _resolved(own, document.name, sources)


def _names(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def _resolved(data: Any, where: str, sources: Sources) -> dict[str, Any]:
    """Return settings under dotted names, with ${NAME:default} as the given variables or their defaults."""
    settings = dotted_keys(data) if isinstance(data, Mapping) else {}
    return {key: _value(value, where, sources) for key, value in settings.items()}


def _value(value: Any, where: str, sources: Sources) -> Any:
    if not isinstance(value, str) or "${" not in value:
        return value

    given = {**sources.variables, **sources.overrides}

    def replaced(match: re.Match[str]) -> str:
        name, default = match.group(1), match.group(2) or ""
        if name in given:
            return given[name]
        sources.assumed.append(f"{name}={default} (its default in {where})")
        return default

    return VARIABLE.sub(replaced, value)


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings under dotted names as mappings in each other, as a file has them."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        *heads, last = key.split(".")
        inner = found
        for head in heads:
            inner = inner.setdefault(head, {})
            if not isinstance(inner, dict):
                raise InputError(f"{key}: {head} is a value already")
        inner[last] = value
    return found
