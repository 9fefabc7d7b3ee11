"""The job that a plan describes: its model, layout and batch, on the machines that it was made for."""

from pathlib import Path
from typing import Any

import msgspec

from ..errors import InputError
from ..files import convert, parse_json, read_struct, read_text
from ..hardware import load_catalogue
from ..layout import Plan
from ..plan.tables.row_machine import accelerator_of
from ..workload.architecture import Architecture
from ..workload.conventions import EMULATES
from ..workload.transformer import ModelConfig
from .job.config import JobConfig, with_overrides
from .model.decoder_sizes import decoder_config

PRECISIONS = {  # of `plan`; auto is bf16 on GPUs, float32 on CPUs
    **{"": "auto", "bf16": "auto", "fp32": "float32"},
    **{each: each for each in EMULATES},
}
SCHEMA = "meshwright.plan/"


def is_plan(path: Path | None) -> bool:
    """Return whether a file is a plan, as `plan --output` and a run folder have it."""
    if path is None or path.suffix != ".json":
        return False
    try:
        found = parse_json(read_text(path), where=str(path))
    except InputError:
        return False
    return isinstance(found, dict) and str(found.get("schema", "")).startswith(SCHEMA)


def planned_job(path: Path, overrides: dict[str, Any], *, replan: bool = False) -> JobConfig:
    """Return the job that trains the layout of a plan; what a plan does not say is overridden, or has its default.

    Raises InputError where the plan has no model, was made for other machines than this one (unless `replan`, which
    prices the layout here), or for what `train` cannot do.
    """
    plan = read_struct(path, Plan)
    if plan.schema == "meshwright.plan/1" or not plan.model:
        raise InputError(f"{path}: {plan.schema} does not say which model it is for; make it anew with `plan --output`")
    if plan.precision not in PRECISIONS:
        raise InputError(f"{path}: precision: train runs bf16, fp8 and fp32, the plan is for {plan.precision}")
    config = with_overrides(
        JobConfig(),
        {
            "model": _model(plan, str(path)),
            "data": {"seq_len": plan.seq_len},
            "train": {"global_batch": plan.global_batch_sequences, "precision": PRECISIONS[plan.precision]},
            "launch": {"layout": str(plan.layout), "ranks": plan.layout.world_size},
        },
        overrides,
        where=str(path),
    )
    if not replan:
        _check_machines(plan, str(path), nodes=config.launch.nodes)
    return config


def job_here(
    model: Architecture,
    *,
    global_batch: int,
    seq_len: int,
    precision: str,
    layout: str | None,
    ranks: int | None,
    where: str = "--cluster this",
) -> JobConfig:
    """Return the job that trains a model on this machine; the data and all else are the defaults of a job.

    `precision` is as `plan --precision` names it; without `layout` and `ranks` the planner chooses. Raises InputError
    for what `train` cannot do; `where` is how this machine was asked for.
    """
    if precision not in PRECISIONS:
        raise InputError(f"--precision {precision}: train runs bf16 (float32 on CPUs), fp8 and fp32")
    return with_overrides(
        JobConfig(),
        {
            "model": _decoder(model, seq_len, where),
            "data": {"seq_len": seq_len},
            "train": {"global_batch": global_batch, "precision": PRECISIONS[precision]},
            "launch": {"layout": layout or "", "ranks": ranks or 0},
        },
        {},
        where=where,
    )


def _model(plan: Plan, where: str) -> dict[str, Any]:
    """Return the sizes of the decoder that the plan is for, as the job's configuration names them."""
    if "tie_word_embeddings" in plan.model:  # of a plan that train made
        return msgspec.to_builtins(convert(plan.model, ModelConfig, where=f"{where}: model"))  # type: ignore[no-any-return]
    return _decoder(convert(plan.model, Architecture, where=f"{where}: model"), plan.seq_len, where)


def _decoder(model: Architecture, seq_len: int, where: str) -> dict[str, Any]:
    """Return the sizes of the decoder that a model is, under the names of the job's configuration."""
    return msgspec.to_builtins(decoder_config(model, seq_len, where))  # type: ignore[no-any-return]


def _check_machines(plan: Plan, where: str, *, nodes: int) -> None:
    """Raise InputError where this machine is not one that the plan was made for."""
    from .. import device

    made_for = plan.cluster
    if made_for is None:
        return
    count = device.count()
    here = f"{count} x {device.name()}" if count else "no GPU"
    asked = f"{made_for.ranks} x {made_for.accelerator or 'CPU'} of {made_for.name}"
    instead = "--replan measures this machine and prices the layout here"
    if bool(count) != bool(made_for.accelerator) or (count and not _is(made_for.accelerator)):
        raise InputError(f"{where}: made for {asked}, this machine has {here}; {instead}")
    if count and count * nodes < made_for.ranks:
        raise InputError(
            f"{where}: made for {asked}, here are {count} x {nodes} GPUs; expected --set launch.nodes=N, or {instead}"
        )


def _is(accelerator: str) -> bool:
    """Return whether this machine's GPUs are of that kind."""
    from .. import device

    try:
        return accelerator_of(load_catalogue(), device.name()) == accelerator
    except InputError:
        return False
