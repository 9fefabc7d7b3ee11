"""`--engine` and `--emit`: layouts that an engine can run, and the winner written as its configuration."""

from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from ..files import write_atomic, writing
from ..units import counted
from .options import PlanOptions

if TYPE_CHECKING:
    from ..jobs.job import Job
    from ..layout import Layout
    from ..plan.analytic import Setting

ADAMW = "adamw"
ADAMWS = frozenset({ADAMW, "adamw-fused"})  # that what is written trains with
# what an engine does of itself as it is written, or in place of what takes more; "" is a plan of our own
WRITTEN = frozenset({("torchtitan", "chunked"), ("torchtitan", "compiled"), ("", "compiled")})
MOST = ("loss", "whole")  # no engine's own way to the loss takes more
# what a job has otherwise than what is written
WRITES = {
    "weights": "what is written holds weights as the engine does of itself",
    "loss": "which the written configuration does not ask for: --loss whole prices the most that it may hold",
    "optimizer": "what is written trains with AdamW",
}


def check_engine(name: str | None, setting: "Setting", layout: "Layout") -> None:
    """Raise InputError, with the rules that it breaks, for a layout that the engine of --engine cannot run."""
    from ..plan.layouts.filters import broken_on, near_on
    from ..workload.engines import engine_named

    if name is not None and (broken := broken_on(engine_named(name), setting, layout)):
        near = " | ".join(map(str, near_on(engine_named(name), setting, layout)))
        more = f"; nearest that it runs: {near}" if near else ""
        raise InputError(f"--engine {name}: it cannot run {layout}: {'; '.join(broken)}{more}")


def engine_refusals(engine: str, setting: "Setting", layout: "Layout") -> list[str]:
    """Return the rules of an engine that a layout breaks, in words."""
    from ..jobs.emit.rules import refusals
    from ..workload.engines import engine_named

    model = setting.architecture
    sizes = (model.num_key_value_heads, model.num_hidden_layers)
    return refusals(engine_named(engine), layout, *sizes, compiled=setting.compiled)


def runnable_on(priced: Any, engine: str | None) -> Any:
    """Return priced layouts kept to what an engine can run; all of them without one."""
    from ..plan.search.engine import restricted
    from ..workload.engines import engine_named

    return priced if engine is None else restricted(priced, engine_named(engine))


def emit(given: PlanOptions, setting: "Setting", layout: "Layout", *, model: str) -> None:
    """Write a layout as the configuration of `--emit`, to `--emit-to` or standard output."""
    from ..jobs.emit.config import emitted
    from ..jobs.emit.target import EmitTarget
    from ..jobs.models import catalogue_name
    from ..plan.analytic.told_traits import NO_SYNC
    from ..plan.clusters.machines import node

    target = EmitTarget(
        layout=layout,
        architecture=setting.architecture,
        model=catalogue_name(model) or setting.architecture.name,
        global_batch=setting.global_batch,
        seq_len=setting.seq_len,
        precision=setting.precision,
        half_sums=bool(setting.half_sums),
        gpus_per_node=node(setting.cluster).gpus,
        reason=f"meshwright plan: {setting.cluster.name}, {counted(setting.gpus, 'GPU')}",
        compiled=setting.compiled,
        sums_whole=NO_SYNC in setting.traits,
        offload_share=setting.offload_share,
        notes=_notes_of_titan(setting, layout) if given.emit == "torchtitan" else (),
    )
    assert given.emit is not None
    text = emitted(given.emit, target)
    if given.emit_to is None:
        click.echo(text, nl=False)
        return
    with writing(f"--emit-to {given.emit_to}"):
        write_atomic(given.emit_to, text.encode())


def _notes_of_titan(setting: "Setting", layout: "Layout") -> tuple[str, ...]:
    """Return what a registry function of torchtitan does not say, as comments."""
    from ..plan.analytic.coefficients import book

    found = [
        "a registry function: a TOML file of releases before it takes [parallelism] and [training] by the same keys"
    ]
    if book().fitted(setting.stack) == "titan" and layout.tp > 1 and "vanilla" not in setting.traits:
        found.append(
            "priced with asynchronous tensor parallelism: switch enable_async_tensor_parallel on, with compile"
        )
    return tuple(found)


def check_emit(given: PlanOptions) -> None:
    """Raise InputError for options of emission that do not go together."""
    from ..workload.engines import engine_named

    for flag in ("engine", "emit"):
        if getattr(given, flag) is not None:
            engine_named(getattr(given, flag), flag=f"--{flag}")
    if given.emit_to is not None and given.emit is None:
        raise InputError("--emit-to: needs --emit ENGINE")
    if given.emit is not None and given.as_json and given.emit_to is None:
        raise InputError("--emit with --json: needs --emit-to FILE, since standard output holds the JSON")
    if given.more and not given.job:
        raise InputError(f"{given.more[0]}: unexpected; files go with --job")


def check_written(job: "Job", flag: str, engine: str) -> None:
    """Raise InputError for a job that holds less than what is written of it would: a plan, or an engine's text."""
    from ..jobs.job import HELD

    if job.lora_rank:
        raise InputError(f"--{flag}: the job trains adapters alone, a plan all parameters")
    for name in HELD:
        value = getattr(job, name)
        if value in ADAMWS:
            continue
        if value and (engine, value) not in WRITTEN and (name, value) != MOST and not _is_single(name, value, engine):
            told = f"--{name} {value}" if name != "optimizer" else f"the optimiser {value}"
            raise InputError(f"--{flag}: the job has {told}, {WRITES[name]}")


def _is_single(name: str, value: str, engine: str) -> bool:
    """Whether weights are in single precision, as our engine ("") and others have them, or a copy of them, anyway."""
    from ..workload.conventions import OWN, conventions_of

    by_itself = engine in {"", OWN} or bool(conventions_of(engine).master_bytes)
    return by_itself and (name, value) == ("weights", "fp32")
