"""The options of `plan`, `simulate` and `--job` as they were typed: a field an option, None where it was not given.

Their parts take these in place of click's dictionaries, so that a misspelt or mistyped option does not type-check.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from ..plan.analytic.calibration import Calibration


class JobQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's own files, and what other options add to them."""

    files: tuple[str, ...] = ()
    model: str | None = None
    gpus: int | None = None
    global_batch: int | None = None  # sequences
    seq_len: int | None = None
    precision: str | None = None
    mtp_layers: int | None = None
    cluster: str | None = None
    stack: str | None = None
    weights: str | None = None
    loss: str | None = None
    fabric: str = "flat"
    intra: str | None = None
    inter: str | None = None
    latency: str | None = None
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    save: Path | None = None
    own: "Calibration | None" = None  # what --calibrate found


class PlanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `meshwright plan`."""

    model_name: str | None
    cluster: str | None
    gpus: int | None
    global_batch: int | None  # sequences
    seq_len: int | None
    allow_unknown: bool
    precision: str
    stack: str | None
    optimizer: str
    weights: str | None
    loss: str | None
    lora_rank: int
    mtp_layers: int | None
    imbalance: float | None
    recompute_modules: str | None
    activations_away: str | None
    recipe: Literal["newest", "none"]
    calibrate: str | None
    save: Path | None
    layout: str | None
    job: tuple[str, ...]
    engine: str | None
    only: tuple[str, ...]
    without: tuple[str, ...]
    emit: str | None
    emit_to: Path | None
    refine: int | None
    intra: str | None
    inter: str | None
    latency: str | None
    fabric: str
    placements: str | None
    hardware: tuple[str, ...]
    target_mfu: float | None
    target_step_time: str | None
    target_days: float | None
    tokens: str | None
    compare: str | None
    scaling: Literal["fixed", "grown"] | None
    modes: bool
    slow: float | None
    params: str | None
    mfu: float | None
    recompute: Literal["none", "full"]
    layers: int | None
    output: Path | None
    plot: Path | None
    html: Path | None
    graph: Path | None
    as_json: bool
    more: tuple[str, ...]
    own: "Calibration | None" = None  # what --calibrate found


class SimulateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `meshwright simulate`."""

    collective: str | None
    algorithm: str | None
    file: Path | None
    counts: Path | None
    ranks: int | None
    size: str | None
    ranks_per_node: int | None
    root: int | None
    model: str | None
    layout: str | None
    plan_file: Path | None
    job: tuple[str, ...]
    gpus: int | None
    global_batch: int | None  # sequences
    seq_len: int | None
    precision: str
    stack: str | None
    cluster: str | None
    fabric: str
    nodes_per_leaf: int | None
    leaves_per_group: int | None
    oversubscription: float | None
    hop_latency: str | None
    routing: str | None
    alpha: str | None
    reduce_rate: str | None
    slow: tuple[str, ...]
    slow_share: float
    slow_to: float
    cut: tuple[str, ...]
    late: tuple[str, ...]
    straggler: tuple[str, ...]
    jitter: float
    seed: int
    method: Literal["auto", "exact", "bounded"]
    trace: Path | None
    as_json: bool
    more: tuple[str, ...]
