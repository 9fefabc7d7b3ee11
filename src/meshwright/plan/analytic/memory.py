"""Peak memory of the most loaded rank of every layout, term by term: allocated, reserved, and what the card shows.

`workload.held` gives the bytes that a rank holds throughout and at its peak, `kept` the bytes that a layer saves for
its backward, `loads` the share of both of each pipeline rank. The peak is at the beginning of a backward, when all
saved activations are there: at the loss on the rank with the output, else in the rank's last layer. torch's allocator
reserves more: blocks that it split and cannot reuse; XLA, which places buffers ahead, does not. The card shows, in
addition, the CUDA context, workspaces of libraries and buffers of communicators.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import NamedTuple

import numpy as np

from ...workload.conventions import LOGIT_GRADIENT_BYTES
from ...workload.held import Gathered, KeptActivations, Peak, Update, gathered, moments, moments_at_peaks, peak, update
from ...workload.program import Flag, Held, Moment, States
from .coefficients import Coefficients
from .distinct import IN_FLIGHT, KEPT, KEPT_CAST, STATES, by_facts, once_each, once_each_in_turn
from .further_tokens import further_bytes
from .loads import ZERO_BUBBLE, RankLoad, loads, output_cost
from .quantities import Grid, Machine, ModelQuantities, Number
from .saved_activations import (
    away_bytes,
    delayed_bytes,
    element_bytes,
    layer_bytes,
    layer_parts,
    norm_bytes,
    residual_bytes,
    rows_cut,
    widest_bytes,
    working_bytes,
)
from .states import counts_of, experts_alone, states_of

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
    update_bytes: Number  # what the optimiser makes while it steps
    host_bytes: Number  # of a rank, in the memory of its host: on the rank that has most there
    pinned_bytes: Number


class Weights(NamedTuple):
    """A rank's weights, gradients and moments, by what is known of its engine: when they come and go, or their peak."""

    freed: Gathered | None  # of an engine that frees what it has used
    peak: States | None  # of others
    update: Update | None = None  # of such an engine, what its optimiser's step makes
    matrix: Number = 0.0  # the gradient of its largest matrix


class Activations(NamedTuple):
    """Bytes that a rank keeps for backward, by what is known of its engine: as it is freed, or at its peak."""

    freed: KeptActivations | None
    peak: Moment | None  # in the last layer, but for gathered weights
    logits: Number  # at the loss, of such an engine
    first: Number = 0.0  # in the backward of its first layer
    away: Number = 0.0  # in the memory of its host


def peak_memory(
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
    names = by_facts(_kept_by(c, model), c)

    def weights(some: Grid, shard: Number, output: Number | None) -> list[Weights]:
        each = loads(model, some, 1.0, stages, output, moments=False)
        return [_weights(machine, c, model, some, load, shard) for load in each]

    def activations(some: Grid, micro: Number, output: Number | None) -> list[Activations]:
        layers = once_each(model, some, names, partial(_layers, machine, c, model, seq_len=seq_len))
        return [_activations(c, load, layers) for load in loads(model, some, micro, stages, output)]

    output = output_cost(c, model, grid, seq_len)
    kept_by = tuple(dict.fromkeys((*names, *IN_FLIGHT)))
    kept = once_each_in_turn(model, grid, kept_by, activations, micro, output)
    held = once_each_in_turn(model, grid, _held_by(output), weights, shard, output)
    return _whole(c, grid, peak(_held(c, *each, once=micro == 1) for each in zip(held, kept, strict=True)))


def _kept_by(c: Coefficients, model: ModelQuantities) -> tuple[str, ...]:
    """Return what the activations of a layer depend on: of experts also whether rows travel, where that is kept."""
    names = KEPT_CAST if np.any(c.cast_bytes) else KEPT
    every_second = np.any((c.selective_saves == 1) | (c.selective_saves == 3))
    return (*names, "ep") if every_second and np.any(model.moe_layers) and "ep" not in names else names


def least_states(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, *, seq_len: Number, global_batch: Number,
    shard: Number,
) -> Number:  # fmt: skip
    """Return what `peak_memory` of a layout is at least: states of its first rank, without what may come at the end.

    Of weights, gradients and moments far less differs between layouts than of activations.
    """

    def least(some: Grid, shard: Number, output: Number | None) -> Number:
        first = loads(model, some, 1.0, (), output, moments=False)[0]
        return _least(c, _weights(machine, c, model, some, first, shard))

    output = output_cost(c, model, grid, seq_len)
    return once_each(model, grid, _held_by(output), least, shard, output)


def _held_by(output: Number | None) -> tuple[str, ...]:
    """Return what weights depend on, with what an output costs where stages are cut by that."""
    return STATES if output is None else (*STATES, "recompute")


def _least(c: Coefficients, weights: Weights) -> Number:
    """Return the bytes of one rank's states, without gradients that may come at the end of a step."""
    ways = []
    if weights.peak is not None:
        late = weights.update.late if weights.update else 0.0
        gradients = (weights.peak.gradients - late) * (c.steps_early == 0)
        ways.append(weights.peak.parameters + gradients + weights.peak.optimizer)
    if weights.freed is not None:
        states = weights.freed.states
        ways.append(sum((states.parameters, states.gradients - weights.freed.late, states.optimizer)))
    return np.where(c.frees_early > 0, ways[-1], ways[0])


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
    kept = _activations(c, load, _layers(machine, c, model, grid, seq_len=seq_len))
    weights = _weights(machine, c, model, grid, load, shard)
    return _whole(c, grid, peak([_held(c, weights, kept, once=micro_batches == 1)]))


class LayerBytes(NamedTuple):
    """Bytes of activations; those of a layer without experts, and with them."""

    kept: list[Number]  # of a layer, for backward
    working: list[Number]  # while it runs
    whole: list[Number]  # kept where nothing is recomputed
    again: list[Number]  # computed again in its backward
    widest: Number  # of either: the largest gradient inside
    delayed: Number  # of either: gradients between the halves of a split backward
    delayed_output: Number  # likewise of the output and the norm before it
    residual: Number  # gradients of what it returns, two of them
    entry: Number  # kept of what enters the output
    logits: Number  # at the peak of the loss
    gradients: Number  # of these, gradients in its backward
    further: Number = 0.0  # kept by modules that predict further tokens, beside the output
    away: Sequence[Number] = (0.0, 0.0)  # of a layer, from its forward to its backward in the host's memory


def _weights(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, load: RankLoad, shard: Number
) -> Weights:
    counts = counts_of(c, model, grid, load, shard)
    held = states_of(machine, c, grid, counts, shard)
    early, single = c.frees_early > 0, grid.dp * grid.cp == 1
    output = model.vocab * model.hidden / grid.tp * load.output
    made = update(held, counts, grid, c, output=output, single=single, offload=grid.offload)
    if not np.any(early):
        table = model.vocab * model.hidden / grid.tp * np.minimum(load.embedding + load.output, 1.0)
        return Weights(None, held, made, c.held_gradient_bytes * c.trained * np.maximum(counts.matrix, table))
    come = gathered(
        held, counts, grid, layers=load.layers, alone=experts_alone(c, model, grid, shard),
        single=single, halves=(grid.schedule == ZERO_BUBBLE) & (load.embedding == 0),
    )  # fmt: skip
    return Weights(come, None if np.all(early) else held, made)


def _activations(c: Coefficients, load: RankLoad, layers: LayerBytes) -> Activations:
    early = c.frees_early > 0
    return Activations(
        freed=_kept(load, layers) if np.any(early) else None,
        peak=None if np.all(early) else _at_peak(load, layers),
        logits=load.output * layers.logits,
        first=_largest(load, layers.kept),
        away=load.in_flight * _sum(load, layers.away),
    )


def _layers(machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, *, seq_len: Number) -> LayerBytes:
    """Return what layers, without and with experts, and the output keep for backward and need while they run."""
    kept, work, whole, away = [], [], [], []
    for moe in (False, True):
        parts = layer_parts(machine, c, model, grid, seq_len, moe)
        whole.append(every := parts.all)
        kept.append(left := layer_bytes(machine, c, model, grid, seq_len, parts, moe))
        far = away_bytes(machine, c, model, grid, seq_len, moe) if np.any(c.results_away) else 0.0
        work.append(working_bytes(machine, c, model, grid, seq_len, every, left, moe) + far)  # and one on its way
        away.append(far)
    widest, delayed = (of(machine, c, model, grid, seq_len) for of in (widest_bytes, delayed_bytes))
    tokens = grid.mbs * seq_len / grid.cp
    entry = residual_bytes(machine, c) * tokens * model.hidden / rows_cut(grid)
    each = np.where((grid.tp > 1) & (c.parallel_logit_bytes > 0), c.parallel_logit_bytes, c.logit_bytes)
    outputs = 1.0 + model.mtp  # with a loss each, whose logits are there until backward
    return LayerBytes(
        kept=kept,
        working=work,
        whole=whole,
        again=[np.where(grid.recompute > 0, w - k + entry, 0.0) for w, k in zip(whole, kept, strict=True)],
        widest=widest,
        delayed=delayed,
        delayed_output=tokens * element_bytes(machine, c) * model.vocab / grid.tp + entry,
        residual=LOGIT_GRADIENT_BYTES * tokens * model.hidden / rows_cut(grid),
        entry=_entry(machine, c, model, grid, seq_len),
        logits=each * _rows_of_logits(c, tokens) * model.vocab / grid.tp * outputs,
        gradients=LOGIT_GRADIENT_BYTES * tokens * model.vocab / grid.tp,
        further=further_bytes(machine, c, model, grid, seq_len),
        away=away,
    )


def _rows_of_logits(c: Coefficients, tokens: Number) -> Number:
    """Return how many tokens of a micro-batch have their logits at once."""
    part = tokens / c.loss_chunks
    return np.where(c.loss_rows > 0, np.minimum(part, c.loss_rows), part) if np.any(c.loss_rows) else part


def _held(c: Coefficients, weights: Weights, kept: Activations, *, once: Flag) -> Held:
    """Return what one rank holds, and when it may hold most."""
    own = moments(kept.freed, weights.freed, once=once) if kept.freed and weights.freed else None
    others = None
    if kept.peak and weights.peak and weights.update:
        held, made = _beside(c, weights.peak, weights.update, weights.matrix, kept, once=once)
        others = moments_at_peaks(kept.peak, kept.first, kept.logits, held, made, once=once)
    if own is None or others is None:
        found = own or others
        assert found is not None  # an engine frees early or does not
        return found
    early = c.frees_early > 0
    most = max(len(own.moments), len(others.moments))
    of_own, rest = (found.moments + found.moments[-1:] * (most - len(found.moments)) for found in (own, others))
    return Held(
        States(*(np.where(early, *pair) for pair in zip(own.states, others.states, strict=True))),
        tuple(
            Moment(*(np.where(early, *pair) for pair in zip(*both, strict=True)))
            for both in zip(of_own, rest, strict=True)
        ),
    )


def _beside(
    c: Coefficients, held: States, made: Update, matrix: Number, kept: Activations, *, once: Flag
) -> tuple[States, Update]:
    """Return states with the activations that lie in the host's memory beside them, whose pages are pinned.

    Gradients that are used up at once, in a step of one micro-batch, are there for a `matrix` at a time, and so is
    what the optimiser's steps make.
    """
    if np.any(kept.away):
        held = held._replace(host=held.host + kept.away, pinned=held.pinned + kept.away)
    if not np.any(c.steps_early):
        return held, made
    brief = (c.steps_early > 0) & once
    gradients = np.where(brief, np.minimum(held.gradients, matrix), held.gradients)
    return held._replace(gradients=gradients), Update(*(np.where(brief, 0.0, one) for one in made))


def _kept(load: RankLoad, layers: LayerBytes) -> KeptActivations:
    """Return what one rank keeps of an engine whose backward frees what it has used."""
    output = load.output * (layers.entry + layers.further + layers.logits - layers.gradients)
    one = _sum(load, layers.kept)
    waits, late = load.layers * layers.delayed, load.output * layers.delayed_output
    beside = reduce(
        np.maximum,
        (
            (at.layers - 1.0) * one + (at.outputs - 1.0) * output + at.waiting * waits + at.waiting_outputs * late
            for at in load.at_once
        ),
    )
    whole, ends = _largest(load, layers.whole), load.output > 0
    return KeptActivations(
        activations=one + output + beside,
        last=np.where(ends, output, whole),
        first=whole + beside,
        beside=beside,
        logits=np.where(ends, layers.gradients, layers.residual),
        again=_largest(load, layers.again),
        widest=layers.widest,
    )


def _sum(load: RankLoad, layers: Sequence[Number]) -> Number:
    """Return what all layers of a rank add up to."""
    dense = load.dense * layers[0]
    return dense + load.moe * layers[1] if np.any(load.moe) else dense


def _largest(load: RankLoad, layers: list[Number]) -> Number:
    """Return the larger of the kinds of layers that a rank has."""
    dense = layers[0] * (load.dense > 0)
    return np.maximum(dense, layers[1] * (load.moe > 0)) if np.any(load.moe) else dense


def _whole(c: Coefficients, grid: Grid, found: Peak) -> MemoryTerms:
    """Return the terms of a rank with what the allocator holds besides and the card shows."""
    moving = found.activations + found.logits + found.working + found.update
    split = np.where(np.greater(c.fragments, 0), np.minimum(SPLIT_BYTES, moving / 2.0), 0.0)
    reserved = found.allocated + c.fragments * moving + split
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
        update_bytes=found.update,
        host_bytes=found.host,
        pinned_bytes=found.pinned,
    )


def _entry(machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number) -> Number:
    """Return the bytes of what enters the output: the last norm's input and result, and where it is gathered that.

    Modules that predict further tokens have a norm each, and enter the same output.
    """
    rows = rows_cut(grid)
    entering = element_bytes(machine, c) * (1.0 / rows + np.where(c.gathers_kept > 0, 1.0 - 1.0 / rows, 0.0))
    copies = (sum(norm_bytes(machine, c)) / rows + entering) * (1.0 + model.mtp)
    cast = c.output_cast_bytes * model.vocab * model.hidden / grid.tp
    return copies * grid.mbs * seq_len / grid.cp * model.hidden + cast


def _at_peak(load: RankLoad, layers: LayerBytes) -> Moment:
    """Return what one rank keeps in its last layer, gathered weights aside, of a stack whose peaks alone are known."""
    activations = load.in_flight * _sum(load, layers.kept) + load.output * layers.entry
    if np.any(layers.further):
        activations = activations + load.output * layers.further * load.at_once[0].outputs
    return Moment(activations, 0.0, _largest(load, layers.working))
