"""Peak memory of the most loaded rank of every layout, term by term: allocated, reserved, and what the card shows.

`workload.held` says what a rank holds throughout and when it holds most, `kept` what a layer keeps for its backward,
`loads` what each rank of a pipeline has of both. The peak is at the beginning of a backward, with all that was kept: at
the loss where the rank has the output, else in its last layer. What torch's allocator reserves is more, by blocks that
it split and cannot use again; the card shows besides the CUDA context, libraries' workspaces and communicators'
buffers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ...workload.held import Peak, peak
from ...workload.program import Held, Moment, States
from .coefficients import Coefficients
from .distinct import KEPT, STATES, once_each
from .kept import layer_bytes, residual_bytes, working_bytes
from .loads import RankLoad, loads
from .quantities import Grid, Machine, ModelQuantities, Number
from .states import states_of

CONTEXT_BYTES = 0.6e9  # CUDA context and libraries' workspaces
SPLIT_BYTES = 1.5 * 2**30  # most of what the allocator holds in split blocks, whatever comes and goes
BUFFER_BYTES = 0.3e9  # communicators' buffers, more with every kind of group


@dataclass(frozen=True, slots=True)
class MemoryTerms:
    """Bytes of the most loaded rank; the terms below `card_bytes` add up to `allocated_bytes`."""

    allocated_bytes: Number  # live tensors at the peak
    reserved_bytes: Number  # held by torch's allocator
    card_bytes: Number  # what the driver shows as used
    parameters_bytes: Number
    gradients_bytes: Number
    optimizer_bytes: Number
    activations_bytes: Number
    logits_bytes: Number
    working_bytes: Number
    host_bytes: Number  # of a rank, in the memory of its host: on the rank that has most there
    pinned_bytes: Number


def memory_bytes(
    machine: Machine,
    c: Coefficients,
    model: ModelQuantities,
    grid: Grid,
    *,
    seq_len: Number,
    global_batch: Number,
    shard: Number,
    stages: Sequence[int] = (),
) -> MemoryTerms:
    """Return the peak memory of the most loaded rank; `stages` as in `loads`."""
    micro = global_batch / (grid.dp * grid.mbs)

    def states(some: Grid, shard: Number) -> list[States]:
        return [states_of(machine, c, model, some, load, shard) for load in loads(model, some, 1.0, stages)]

    kept, work = once_each(model, grid, KEPT, partial(_layers, machine, c, model, seq_len=seq_len))
    held_by = once_each(model, grid, STATES, states, shard)
    ranks = [
        Held(held, _moments(machine, c, model, grid, load, held, kept, work, seq_len))
        for load, held in zip(loads(model, grid, micro, stages), held_by, strict=True)
    ]
    return _whole(c, grid, peak(ranks))


def stage_memory(
    machine: Machine,
    c: Coefficients,
    model: ModelQuantities,
    grid: Grid,
    load: RankLoad,
    *,
    seq_len: Number,
    shard: Number,
) -> MemoryTerms:
    """Return the peak memory of a rank with this load."""
    kept, work = _layers(machine, c, model, grid, seq_len=seq_len)
    held = states_of(machine, c, model, grid, load, shard)
    return _whole(c, grid, peak([Held(held, _moments(machine, c, model, grid, load, held, kept, work, seq_len))]))


def _layers(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, *, seq_len: Number
) -> tuple[list[Number], list[Number]]:
    """Return what a layer keeps for backward and what it needs while it runs, without and with experts."""
    kept = [layer_bytes(machine, c, model, grid, seq_len, moe) for moe in (False, True)]
    return kept, [working_bytes(machine, c, model, grid, seq_len, moe) for moe in (False, True)]


def _whole(c: Coefficients, grid: Grid, found: Peak) -> MemoryTerms:
    """Return the terms of a rank with what the allocator holds besides and the card shows."""
    moving = found.activations + found.logits + found.working
    reserved = found.allocated + c.fragments * moving + np.minimum(SPLIT_BYTES, moving / 2.0)
    groups = 1.0 * (grid.tp > 1) + (grid.pp > 1) + (grid.dp > 1) + (grid.cp > 1) + (grid.ep > 1)
    return MemoryTerms(
        allocated_bytes=found.allocated,
        reserved_bytes=reserved,
        card_bytes=reserved + CONTEXT_BYTES + BUFFER_BYTES * groups,
        parameters_bytes=found.parameters,
        gradients_bytes=found.gradients,
        optimizer_bytes=found.optimizer,
        activations_bytes=found.activations,
        logits_bytes=found.logits,
        working_bytes=found.working,
        host_bytes=found.host,
        pinned_bytes=found.pinned,
    )


def _entry(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, load: RankLoad, seq_len: Number
) -> Number:
    """Return the bytes of what enters the output: the last norm's input and result, and where it is gathered that."""
    rows = np.where(grid.sp > 0, grid.tp, 1.0)
    copies = 2.0 / rows + np.where(c.gathers_kept > 0, 1.0 - 1.0 / rows, 0.0)
    return load.output * copies * residual_bytes(machine, c) * grid.mbs * seq_len / grid.cp * model.hidden


def _moments(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, load: RankLoad, held: States,
    kept: list[Number], work: list[Number], seq_len: Number,
) -> tuple[Moment, Moment]:  # fmt: skip
    """Return what one rank holds at the loss, and in its last layer."""
    activations = load.in_flight * (load.dense * kept[0] + load.moe * kept[1])
    activations = activations + _entry(machine, c, model, grid, load, seq_len)
    tokens = grid.mbs * seq_len / grid.cp
    each = np.where((grid.tp > 1) & (c.parallel_logit_bytes > 0), c.parallel_logit_bytes, c.logit_bytes)
    logits = load.output * each * tokens * model.vocab / grid.tp / c.loss_chunks
    layer = np.maximum(work[0] * (load.dense > 0), work[1] * (load.moe > 0))
    return Moment(activations, logits, held.passing), Moment(activations, 0.0, held.passing + layer)
