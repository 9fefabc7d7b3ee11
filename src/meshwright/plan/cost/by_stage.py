"""Peak memory of every stage of one layout's pipeline: the most loaded rank's, and which of them that is."""

import itertools
from collections.abc import Sequence

import msgspec
import numpy as np

from ...layout import Layout
from .loads import ZERO_BUBBLE, Load, in_flight, loads
from .memory import stage_memory
from .price import Setting, coefficients_of, machine_of
from .quantities import Grid, Model


class StageMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank of a pipeline holds at its peak."""

    stage: int
    layers: float  # a fraction where layers do not divide by the virtual stages
    allocated_bytes: float
    reserved_bytes: float
    card_bytes: float


def memory_of_stages(setting: Setting, layout: Layout, stages: Sequence[int] = ()) -> list[StageMemory]:
    """Return the memory of each rank of the pipeline, from the first.

    `stages` are the layers of the virtual stages in the order of the model, where a job cuts them unevenly.
    """
    grid = Grid.of([layout])
    model = Model.of(setting.architecture)
    shard = grid.dp * grid.cp / grid.replicas
    micro = float(setting.global_batch) / (grid.dp * grid.mbs)
    found = []
    for place, (dense, moe) in enumerate(_layers(model, grid, layout, stages, micro)):
        folded = bool((grid.schedule[0] == ZERO_BUBBLE) & (layout.vpp > 1))  # a V: the first has the last stage too
        load = Load(
            dense=np.array([dense]),
            moe=np.array([moe]),
            embedding=np.array([1.0 * (place == 0)]),
            output=np.array([1.0 * (place == (0 if folded else layout.pp - 1))]),
            in_flight=in_flight(grid, np.array([1.0 * place]), micro),
        )
        memory = stage_memory(
            machine_of(setting),
            coefficients_of(setting),
            model,
            grid,
            load,
            seq_len=float(setting.seq_len),
            shard=shard,
        )
        found.append(
            StageMemory(
                stage=place,
                layers=dense + moe,
                allocated_bytes=float(memory.allocated_bytes[0]),
                reserved_bytes=float(memory.reserved_bytes[0]),
                card_bytes=float(memory.card_bytes[0]),
            )
        )
    return found


def _layers(model: Model, grid: Grid, layout: Layout, stages: Sequence[int], micro: float) -> list[tuple[float, float]]:
    """Return the layers without and with experts of each rank; the model's dense layers are its first."""
    dense = float(model.layers - model.moe_layers) if np.all(model.experts > 0) else float(model.layers)
    if len(stages) == layout.pp * layout.vpp:
        starts = [0, *itertools.accumulate(stages)]
        found = [(0.0, 0.0)] * layout.pp
        for number, count in enumerate(stages):
            without = min(max(dense - starts[number], 0.0), float(count))
            one, other = found[number % layout.pp]
            found[number % layout.pp] = (one + without, other + count - without)
        return found
    first, between, last = (float(load.layers[0]) for load in loads(model, grid, micro))
    holds = [first, *[between] * (layout.pp - 2), last] if layout.pp > 1 else [first]
    result = []
    for place, each in enumerate(holds):
        without = each
        if dense < model.layers:
            without = min(max(dense - place * each / layout.vpp, 0.0), each / layout.vpp)
        result.append((without, each - without))
    return result
