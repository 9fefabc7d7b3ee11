"""A layout as the configuration of an engine: the text that the engine takes, with why beside each line."""

from collections.abc import Callable

from ..errors import InputError
from ..workload.engines import engine_named
from . import emit_maxtext, emit_megatron, emit_torch
from .target import EmitTarget, check_engine_rules

EMITTERS: dict[str, Callable[[EmitTarget], str]] = {
    "megatron": emit_megatron.megatron,
    "bridge": emit_megatron.bridge,
    "nemo": emit_megatron.nemo,
    "automodel": emit_torch.automodel,
    "torchtitan": emit_torch.torchtitan,
    "deepspeed": emit_torch.deepspeed,
    "accelerate": emit_torch.accelerate,
    "maxtext": emit_maxtext.maxtext,
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
    return EMITTERS[name](target)
