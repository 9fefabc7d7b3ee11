"""Peak memory of the most loaded rank of every layout, term by term: allocated, reserved, and what the card shows.

`states` says what a rank holds throughout, `kept` what a layer keeps for its backward, `loads` what each rank of a
pipeline has of both. The peak is at the beginning of a backward, with all that was kept: at the loss where the rank
has the output, else in its last layer. What torch's allocator reserves is more, by blocks that it split and cannot
use again; the card shows besides the CUDA context, libraries' workspaces and communicators' buffers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from .coefficients import Coefficients
from .distinct import KEPT, STATES, once_each
from .kept import layer_bytes, residual_bytes, working_bytes
from .loads import Load, loads
from .quantities import Grid, Machine, Model, Number
from .states import States, states_of

CONTEXT_BYTES = 0.6e9  # CUDA context and libraries' workspaces
SPLIT_BYTES = 1.5 * 2**30  # most of what the allocator holds in split blocks, whatever comes and goes
BUFFER_BYTES = 0.3e9  # communicators' buffers, more with every kind of group


@dataclass(frozen=True, slots=True)
class Memory:
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
    host_bytes: Number = 0.0  # of a rank, in the memory of its host: on the rank that has most there
    pinned_bytes: Number = 0.0


def memory_bytes(
    machine: Machine,
    c: Coefficients,
    model: Model,
    grid: Grid,
    *,
    seq_len: Number,
    global_batch: Number,
    shard: Number,
    stages: Sequence[int] = (),
) -> Memory:
    """Return the peak memory of the most loaded rank; `stages` as in `loads`."""
    micro = global_batch / (grid.dp * grid.mbs)

    def states(some: Grid, shard: Number) -> list[States]:
        return [states_of(machine, c, model, some, load, shard) for load in loads(model, some, 1.0, stages)]

    kept, work = once_each(model, grid, KEPT, partial(_layers, machine, c, model, seq_len=seq_len))
    parts = []
    held_by = once_each(model, grid, STATES, states, shard)
    for load, held in zip(loads(model, grid, micro, stages), held_by, strict=True):
        parts.append(_rank(machine, c, model, grid, load, held, kept, work, seq_len))
    table = np.stack([np.stack([np.broadcast_to(term, np.shape(grid.tp)) for term in part]) for part in parts])
    most = table.sum(axis=1).argmax(axis=0)
    terms = np.take_along_axis(table, most[None, None, ...], axis=0)[0]
    found = _whole(c, grid, terms)
    if not np.any(grid.offload):
        return found
    host, pinned = (np.max([np.broadcast_to(x, np.shape(grid.tp)) for x in those], axis=0) for those in (
        [held.host for held in held_by], [held.pinned for held in held_by])
    )  # fmt: skip
    return replace(found, host_bytes=host, pinned_bytes=pinned)


def stage_memory(
    machine: Machine, c: Coefficients, model: Model, grid: Grid, load: Load, *, seq_len: Number, shard: Number
) -> Memory:
    """Return the peak memory of a rank with this load."""
    kept, work = _layers(machine, c, model, grid, seq_len=seq_len)
    held = states_of(machine, c, model, grid, load, shard)
    terms = _rank(machine, c, model, grid, load, held, kept, work, seq_len)
    return _whole(c, grid, np.stack([np.broadcast_to(term, np.shape(grid.tp)) for term in terms]))


def _layers(
    machine: Machine, c: Coefficients, model: Model, grid: Grid, *, seq_len: Number
) -> tuple[list[Number], list[Number]]:
    """Return what a layer keeps for backward and what it needs while it runs, without and with experts."""
    kept = [layer_bytes(machine, c, model, grid, seq_len, moe) for moe in (False, True)]
    return kept, [working_bytes(machine, c, model, grid, seq_len, moe) for moe in (False, True)]


def _whole(c: Coefficients, grid: Grid, terms: Number) -> Memory:
    """Return the terms of a rank with what the allocator holds besides and the card shows."""
    parameters, gradients, optimizer, activations, logits, working = terms
    allocated = terms.sum(axis=0)
    moving = activations + logits + working
    reserved = allocated + c.fragments * moving + np.minimum(SPLIT_BYTES, moving / 2.0)
    groups = 1.0 * (grid.tp > 1) + (grid.pp > 1) + (grid.dp > 1) + (grid.cp > 1) + (grid.ep > 1)
    return Memory(
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        card_bytes=reserved + CONTEXT_BYTES + BUFFER_BYTES * groups,
        parameters_bytes=parameters,
        gradients_bytes=gradients,
        optimizer_bytes=optimizer,
        activations_bytes=activations,
        logits_bytes=logits,
        working_bytes=working,
    )


def _entry(machine: Machine, c: Coefficients, model: Model, grid: Grid, load: Load, seq_len: Number) -> Number:
    """Return the bytes of what enters the output: the last norm's input and result, and where it is gathered that."""
    rows = np.where(grid.sp > 0, grid.tp, 1.0)
    copies = 2.0 / rows + np.where(c.gathers_kept > 0, 1.0 - 1.0 / rows, 0.0)
    return load.output * copies * residual_bytes(machine, c) * grid.mbs * seq_len / grid.cp * model.hidden


def _rank(
    machine: Machine, c: Coefficients, model: Model, grid: Grid, load: Load, held: States, kept: list[Number],
    work: list[Number], seq_len: Number,
) -> tuple[Number, ...]:  # fmt: skip
    """Return the terms of one rank in the order of Memory's fields."""
    activations = load.in_flight * (load.dense * kept[0] + load.moe * kept[1])
    activations = activations + _entry(machine, c, model, grid, load, seq_len)
    tokens = grid.mbs * seq_len / grid.cp
    each = np.where((grid.tp > 1) & (c.parallel_logit_bytes > 0), c.parallel_logit_bytes, c.logit_bytes)
    logits = load.output * each * tokens * model.vocab / grid.tp
    layer = np.maximum(work[0] * (load.dense > 0), work[1] * (load.moe > 0))
    at_loss = logits >= layer
    return (
        held.parameters,
        held.gradients,
        held.optimizer,
        activations,
        np.where(at_loss, logits, 0.0),
        held.passing + np.where(at_loss, 0.0, layer),
    )
