"""Peak memory of every stage of one layout's pipeline: the most loaded rank's, and which of them that is."""

from collections.abc import Sequence

import msgspec
import numpy as np

from ...layout import Layout
from .loads import (
    RankLoad,
    cut_layers,
    is_folded,
    loads,
    output_cost,
    rank_chunks,
    rank_layers,
    unequal_chunks,
    without_experts,
)
from .memory import stage_memory
from .price import Setting, coefficients_of, machine_of
from .quantities import Array, Grid, ModelQuantities


class StageMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of one rank of a pipeline at its peak."""

    stage: int
    layers: float  # a fraction where layers do not divide by the virtual stages
    allocated_bytes: float
    reserved_bytes: float
    card_bytes: float


def memory_of_stages(setting: Setting, layout: Layout, stages: Sequence[int] = ()) -> list[StageMemory]:
    """Return the memory of each rank of the pipeline, from the first.

    `stages` are the layers of the virtual stages in the order of the model, where a job cuts them unevenly.
    """
    grid, model = Grid.of([layout] * layout.pp), ModelQuantities.of(setting.architecture)
    micro, place = float(setting.global_batch) / (grid.dp * grid.mbs), np.arange(float(layout.pp))
    stages = stages or layers_of_stages(setting, layout)
    layers, dense = _layers(model, layout, stages)
    chunks = None
    if stages and len(stages) == layout.pp * layout.vpp:
        own = rank_chunks(stages, layout.pp, folded=bool(np.all(is_folded(grid))))
        chunks = unequal_chunks(grid, place, own, micro / layout.pp)
    load = RankLoad.of(grid, place, dense=dense, moe=layers - dense, micro_batches=micro, chunks=chunks)
    memory = stage_memory(
        machine_of(setting),
        coefficients_of(setting),
        model,
        grid,
        load,
        seq_len=float(setting.seq_len),
        micro_batches=micro,
        shard=grid.dp * grid.cp / grid.replicas,
    )
    names = ("allocated_bytes", "reserved_bytes", "card_bytes")
    columns = {"layers": layers, **{name: np.asarray(getattr(memory, name)) for name in names}}
    return [
        StageMemory(stage=stage, **{name: float(column[stage]) for name, column in columns.items()})
        for stage in range(layout.pp)
    ]


def layers_of_stages(setting: Setting, layout: Layout) -> tuple[int, ...]:
    """Return the layers of each virtual stage that a stack cuts by cost, in the model's order; () for any other."""
    model, grid = ModelQuantities.of(setting.architecture), Grid.of([layout])
    output = output_cost(coefficients_of(setting), model, grid, float(setting.seq_len))
    return cut_layers(model, layout, output)


def _layers(model: ModelQuantities, layout: Layout, stages: Sequence[int]) -> tuple[Array, Array]:
    """Return the layers of each rank, and those of them without experts."""
    if len(stages) == layout.pp * layout.vpp:
        folded = bool(np.all(is_folded(Grid.of([layout]))))
        return rank_layers(model, layout.pp, stages, folded=folded)
    first, between, last = (np.ravel(load.layers)[0] for load in loads(model, Grid.of([layout]), 1.0))
    holds = np.array([first, *[between] * (layout.pp - 2), last] if layout.pp > 1 else [first])
    each = holds / layout.vpp
    return holds, np.asarray(without_experts(model, np.arange(layout.pp) * each, each, holds))
