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
from typing import NamedTuple

import numpy as np

from ...workload.conventions import LOGIT_GRADIENT_BYTES
from ...workload.held import Kept, Peak, moments, peak
from ...workload.program import Held, Moment, States
from .coefficients import Coefficients
from .distinct import KEPT, STATES, once_each
from .kept import (
    delayed_bytes,
    element_bytes,
    layer_bytes,
    residual_bytes,
    rows_cut,
    whole_layer_bytes,
    widest_bytes,
    working_bytes,
)
from .loads import ZERO_BUBBLE, RankLoad, loads
from .quantities import Grid, Machine, ModelQuantities, Number
from .states import SINGLE_BYTES, counts_of, experts_alone, states_of

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

    layers = once_each(model, grid, KEPT, partial(_layers, machine, c, model, seq_len=seq_len))
    held_by = once_each(model, grid, STATES, states, shard)
    ranks = [
        _held(machine, c, model, grid, load, held, layers, seq_len=seq_len, micro_batches=micro, shard=shard)
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
    micro_batches: Number,
    shard: Number,
) -> MemoryTerms:
    """Return the peak memory of a rank with this load."""
    layers = _layers(machine, c, model, grid, seq_len=seq_len)
    held = states_of(machine, c, model, grid, load, shard)
    found = _held(
        machine, c, model, grid, load, held, layers, seq_len=seq_len, micro_batches=micro_batches, shard=shard
    )
    return _whole(c, grid, peak([found]))


class LayerBytes(NamedTuple):
    """Bytes of a layer of each kind: without experts, with them."""

    kept: list[Number]  # for backward
    working: list[Number]  # while it runs
    whole: list[Number]  # kept where nothing is recomputed
    widest: Number  # of either: the largest gradient inside
    delayed: Number  # of either: gradients between the halves of a split backward


def _layers(machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, *, seq_len: Number) -> LayerBytes:
    """Return what a layer keeps for backward and what it needs while it runs, without and with experts."""
    kept, work, whole = (
        [of(machine, c, model, grid, seq_len, moe) for moe in (False, True)]
        for of in (layer_bytes, working_bytes, whole_layer_bytes)
    )
    widest, delayed = (of(machine, c, model, grid, seq_len) for of in (widest_bytes, delayed_bytes))
    return LayerBytes(kept, work, whole, widest, delayed)


def _held(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, load: RankLoad, held: States,
    layers: LayerBytes, *, seq_len: Number, micro_batches: Number, shard: Number,
) -> Held:  # fmt: skip
    """Return what one rank holds, and when it may hold most."""
    traced = c.frees_early > 0
    if np.all(traced):
        return _traced(machine, c, model, grid, load, held, layers, seq_len, micro_batches, shard)
    found = Held(held, _moments(machine, c, model, grid, load, held, layers.kept, layers.working, seq_len))
    if not np.any(traced):
        return found
    own = _traced(machine, c, model, grid, load, held, layers, seq_len, micro_batches, shard)
    others = found.moments + found.moments[-1:] * (len(own.moments) - len(found.moments))
    return Held(
        States(*(np.where(traced, *pair) for pair in zip(own.states, held, strict=True))),
        tuple(
            Moment(*(np.where(traced, *pair) for pair in zip(*both, strict=True)))
            for both in zip(own.moments, others, strict=True)
        ),
    )


def _traced(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, load: RankLoad, held: States,
    layers: LayerBytes, seq_len: Number, micro_batches: Number, shard: Number,
) -> Held:  # fmt: skip
    """Return what one rank of an engine holds whose backward frees what it has used (`workload.held.moments`)."""
    logits = _logits(c, model, grid, seq_len) * load.output
    gradients = LOGIT_GRADIENT_BYTES / SINGLE_BYTES * _logits(c, model, grid, seq_len, each=SINGLE_BYTES) * load.output
    output = logits - gradients + _entry(machine, c, model, grid, load, seq_len)
    one = load.dense * layers.kept[0] + load.moe * layers.kept[1]
    waiting = load.delayed * load.layers * layers.delayed
    activations = load.in_flight * one + load.of_output * output + waiting
    beside = activations - one - output
    has = (load.dense > 0, load.moe > 0)
    whole, kept = (np.maximum(each[0] * has[0], each[1] * has[1]) for each in (layers.whole, layers.kept))
    entry = residual_bytes(machine, c) * grid.mbs * seq_len / grid.cp * model.hidden / rows_cut(grid)
    k = Kept(
        activations=activations,
        output=output,
        first=whole + beside,
        beside=beside,
        logits=gradients,
        again=np.where(grid.recompute > 0, whole - kept + entry, 0.0),
        widest=layers.widest,
        layers=load.layers,
        alone=experts_alone(model, grid, shard),
    )
    return moments(
        k, held, counts_of(model, grid, load, shard), grid, once=micro_batches == 1, single=grid.dp * grid.cp == 1,
        halves=(grid.schedule == ZERO_BUBBLE) & (load.embedding == 0),
    )  # fmt: skip


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
    rows = rows_cut(grid)
    entering = element_bytes(machine, c) * (1.0 / rows + np.where(c.gathers_kept > 0, 1.0 - 1.0 / rows, 0.0))
    copies = residual_bytes(machine, c) * c.norm_copies / rows + entering
    cast = c.cast_bytes * model.vocab * model.hidden / grid.tp
    return load.output * (copies * grid.mbs * seq_len / grid.cp * model.hidden + cast)


def _logits(c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number, each: Number | None = None) -> Number:
    """Return the bytes of the logits at the peak of the loss, or of `each` bytes of theirs."""
    if each is None:
        each = np.where((grid.tp > 1) & (c.parallel_logit_bytes > 0), c.parallel_logit_bytes, c.logit_bytes)
    return each * (grid.mbs * seq_len / grid.cp) * model.vocab / grid.tp


def _moments(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, load: RankLoad, held: States,
    kept: list[Number], work: list[Number], seq_len: Number,
) -> tuple[Moment, ...]:  # fmt: skip
    """Return what one rank holds at the loss, and in its last layer, of a stack whose peaks alone are known."""
    activations = load.in_flight * (load.dense * kept[0] + load.moe * kept[1])
    activations = activations + _entry(machine, c, model, grid, load, seq_len)
    logits = load.output * _logits(c, model, grid, seq_len)
    layer = np.maximum(work[0] * (load.dense > 0), work[1] * (load.moe > 0))
    return Moment(activations, logits, held.passing), Moment(activations, 0.0, held.passing + layer)
