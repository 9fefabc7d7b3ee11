"""A layout as the configuration of an engine: the text that the engine takes, with why beside each line."""

from collections.abc import Callable

from ...errors import InputError
from ...workload.architecture import Architecture
from ...workload.engines import engine_named
from ...workload.models import load_model, model_names
from . import maxtext, megatron, torch_engines
from .model import unlike
from .target import EmitTarget, check_engine_rules

EMITTERS: dict[str, Callable[[EmitTarget], str]] = {
    "megatron": megatron.megatron,
    "bridge": megatron.bridge,
    "nemo": megatron.nemo,
    "automodel": torch_engines.automodel,
    "torchtitan": torch_engines.torchtitan,
    "deepspeed": torch_engines.deepspeed,
    "accelerate": torch_engines.accelerate,
    "maxtext": maxtext.maxtext,
}
# what the emitted text is named, so that it reads back as what it is
SUFFIXES = {
    "megatron": ".sh",
    "bridge": ".sh",
    "nemo": ".yaml",
    "automodel": ".yaml",
    "torchtitan": ".py",
    "deepspeed": ".sh",
    "accelerate": ".sh",
    "maxtext": ".yml",
}

BY_SIZES = frozenset({"megatron", "nemo"})  # whose text says the sizes of a model; others know one by its name
FURTHER = frozenset({"megatron", "bridge"})  # whose text says how many modules predict further tokens


def emitted(engine: str, target: EmitTarget) -> str:
    """Return the configuration of an engine; InputError with every rule of the engine that the layout breaks."""
    name = engine_named(engine, flag="--emit").name
    check_engine_rules(target, name)
    if target.architecture.mtp_trained and name not in FURTHER:
        raise InputError(
            f"--emit {name}: of modules that predict further tokens (--mtp-layers) nothing is emitted; "
            f"expected one of {', '.join(sorted(FURTHER))}"
        )
    if name not in BY_SIZES:
        _refuse_another(target, name)
    if target.half_sums and name != "megatron":
        raise InputError(f"--emit {name}: gradients add up in bf16, which is emitted for megatron alone")
    return EMITTERS[name](target)


def _refuse_another(target: EmitTarget, engine: str) -> None:
    """Raise InputError where the model that the engine would take by its name is not the one that was priced."""
    named = load_model(target.model).description if target.model in model_names() else None
    told = unlike(target.architecture, named) if isinstance(named, Architecture) else []
    if told:
        raise InputError(
            f"--emit {engine}: it would train {target.model} as published, and the job's model has {'; '.join(told)}; "
            f"expected an engine that is told sizes: {', '.join(sorted(BY_SIZES))}"
        )
