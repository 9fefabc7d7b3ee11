"""Memory of a rank, and the moment at which it holds most: the one place that says what ZeRO and offload leave there.

Written for one layout or for arrays of many (`Number`), by the facts of a stack (`Conventions`). Megatron-LM in half
precision: weight 2, sum of gradients 4, master weight and Adam's moments 12, of which ZeRO 1 divides the 12 over the
data-parallel ranks, ZeRO 2 the gradient too, ZeRO 3 all (Rajbhandari et al. 2020, arXiv 1910.02054). PyTorch's FSDP
holds its share of the weights in single precision, without a second copy: 4 + 4 + 8, and gathers in half precision. In
a pipeline that does not reshard, gradients are summed whole and weights stay gathered.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from .conventions import Conventions
from .elements import SINGLE_BYTES
from .program import Flag, Held, Moment, Number, States
from .split import SplitDegrees, host_master_bytes, host_weight_bytes, in_each_micro_batch, where

GATHERED_LAYERS = 2  # under ZeRO 3: the one that computes and the one that is prefetched


class Counts(NamedTuple):
    """Parameters of one rank, as tensor, expert and pipeline parallelism leave them."""

    held: Number
    own: Number  # what ZeRO leaves of them
    layer: Number  # of its largest layer
    ends: Number = 0  # outside of the stack of layers
    fused: Number = 0  # of one layer, weights whose gradients kernels add to their sum
    matrix: Number = 0  # of the largest matrix of a layer
    stacked: Number = 0  # of the largest weight of a layer, the same matrix of all its experts together
    own_ends: Number = 0  # what ZeRO leaves of `ends`
    frozen: Number = 0  # beside `held`, weights that nothing trains or gathers: encoders that no token passes
    own_frozen: Number = 0  # what ZeRO 3 leaves of them


def gradients_are_shares(split: SplitDegrees, c: Conventions) -> Flag:
    """Return whether a rank adds up its share of the gradients alone: ZeRO 2 and 3 scatter them in each micro-batch."""
    return (split.zero >= 2) & (in_each_micro_batch(split, c) > 0)


def updated_by_rank(split: SplitDegrees, *, held: Number, own: Number) -> Number:
    """Return the parameters whose states a rank has and that it updates: all that are `held`, or ZeRO's share."""
    return where(split.zero >= 1, own, held)


def states(
    p: Counts, split: SplitDegrees, c: Conventions, *, sharded: Flag, offload: Number, halves: Flag = False,
    single: Flag = True,
) -> States:  # fmt: skip
    """Return the states of a rank.

    `sharded`: whether several ranks share the weights; `halves`: whether backward is split in a pipeline; `single`:
    whether products are in single precision, so that everything is; `offload`: the place in `layout.OFFLOADS`.
    """
    sharded = sharded | (offload == 2)  # one rank whose weights live on the host gathers them too
    resharded = in_each_micro_batch(split, c) > 0  # else a pipeline keeps what it gathered, and sums whole
    each = resharded & sharded
    cut = (split.zero >= 2) & sharded
    own = cut & (c.shares_single > 0)  # FSDP: the share is the master copy
    weight = where(single, SINGLE_BYTES, c.held_weight_bytes)
    share = where(own, where(single, weight, SINGLE_BYTES * c.trained + weight * (1.0 - c.trained)), weight)
    summed = where(single, SINGLE_BYTES, c.held_gradient_bytes) * c.trained
    alone = c.optimizer_bytes - c.master_bytes  # no second copy in single precision
    moments = where(single, alone, where(own, alone, c.optimizer_bytes)) * c.trained
    kept = (split.zero == 3) & each
    frozen = weight * where(kept, p.own_frozen, p.frozen)
    parameters = where(kept, share * p.own, weight * p.held + where(own, share * p.own, 0)) + frozen
    shares = gradients_are_shares(split, c) & sharded
    gradients = summed * where(shares, p.own, p.held + c.sums_apart * where(split.zero == 1, p.own, 0))
    whole = halves & (split.pp > 1) & (c.whole_halves > 0)
    # what is outside of the layers counts as whole, of stacks too where it does not stay so: where backwards begin the
    # output is, and measured peaks of torchtitan, which drops its embedding, are nearer to all of it
    passing = where(kept, weight * where(whole, p.held, np.minimum(p.held, 2 * p.layer + p.ends)), 0)
    passing = passing + where(shares, summed * where(whole, p.held, p.layer), 0)
    if np.any(c.gathers_matrix):  # two matrices and a gradient, or the output's weights and their gradient
        passing = where((c.gathers_matrix > 0) & kept, weight * np.maximum(3 * p.stacked, p.ends), passing)
    passing = passing + c.spare_gradient_bytes * c.trained * where(cut, 0, p.fused)
    moved = updated_by_rank(split, held=p.held, own=p.own)
    paged = c.paged_bytes * c.trained  # torch's allocator does not hold them
    at_ends = c.ends_moment_bytes * c.trained * updated_by_rank(split, held=p.ends, own=p.own_ends)
    found = States(parameters, gradients, (moments - paged) * moved + at_ends, passing, host=paged * moved)
    less = where(c.base_bytes > 0, (weight - c.base_bytes) * (1.0 - c.trained), 0) if np.any(c.base_bytes) else 0
    if np.any(less):
        found = _packed(found, p, less, kept, unpacked=where(c.base_bytes > 0, weight * p.matrix, 0))
    if not np.any(offload):
        return found
    away = where(offload == 1, c.host_share, where(offload > 0, 1, 0))
    moved = moved * away
    # gradients that leave beside backward are on the device for a layer at a time; a pipeline's gathered weights stay
    weights = offload == 2
    leaves = resharded & (weights | ((offload == 1) & (c.host_beside > 0) & (split.zero >= 2)))
    gradient, copy = c.host_gradient_bytes * c.trained * moved, c.host_weight_bytes * moved
    master = where(single, SINGLE_BYTES, host_master_bytes(c))
    host = (alone + master) * c.trained * moved + away * at_ends + gradient
    # weights beside their master copies, which frozen ones and those in half precision alone lack
    kept_there = where(own | (c.master_bytes == 0), weight * (1.0 - c.trained) * moved, copy)
    packed = less * _in_layers(p) * moved if np.any(less) else 0
    return States(
        parameters=where(weights, where(kept, 0, weight * p.held + frozen), found.parameters),
        gradients=where(leaves, 0, gradients),
        optimizer=(1 - away) * found.optimizer,
        passing=found.passing,
        host=host + where(weights, kept_there - packed + frozen, 0) + where(offload > 0, 0, found.host),
        pinned=gradient + where(weights, host_weight_bytes(c) * moved + frozen, copy * c.trained),
    )


def _packed(s: States, p: Counts, less: Number, kept: Flag, *, unpacked: Number) -> States:
    """Return the states of a rank whose frozen layers take `less` bytes a weight, `kept` as shares.

    Embedding and output are not packed; one matrix at a time is unpacked.
    """
    layers = np.minimum(p.held - p.ends, GATHERED_LAYERS * p.layer)
    return s._replace(
        parameters=s.parameters - less * _in_layers(p) * where(kept, p.own, p.held),
        passing=s.passing - where(kept, less * layers, 0) + unpacked,
    )


def _in_layers(p: Counts) -> Number:
    """Return the share of a rank's parameters that lies in its layers."""
    return 1.0 - p.ends / p.held


class Gathered(NamedTuple):
    """Bytes of weights and gradients that come and go in a micro-batch beside a rank's states."""

    states: States
    loss: Number  # in the loss's backward
    last: Number  # in that of the last layer
    first: Number  # in that of the first layer
    late: Number  # of the states' gradients, what comes at the end alone where a step has one micro-batch
    halves: tuple[Number, Number] | None  # at the beginning and the end of the second half of a split backward


def gathered(
    s: States, p: Counts, split: SplitDegrees, *, layers: Number, alone: Number, single: Flag, halves: Flag
) -> Gathered:
    """Return what comes and goes of weights on a rank of `layers` equal layers, in single precision.

    `alone`: parameters of a layer's experts that no other rank has, which ZeRO does not cut; `single`: one rank's
    gradients are all; `halves`: whether this rank's backward is split.
    """
    cut, once = split.zero >= 2, split.zero == 2
    one, root = SINGLE_BYTES * (p.layer - alone), SINGLE_BYTES * p.ends  # gathered, the root throughout
    whole = SINGLE_BYTES * (p.held - p.ends - layers * alone)
    all_layers, ahead = where(once, whole, 0), where(once, 0, GATHERED_LAYERS * one)
    # experts that one rank has alone are not scattered, so that they have no second buffer
    gradients = s.gradients - where(split.zero == 1, SINGLE_BYTES * layers * alone, 0)
    found = s._replace(
        parameters=s.parameters + where(cut, root - where(once, SINGLE_BYTES * p.held, 0), 0),
        gradients=gradients,
        passing=0,
    )
    return Gathered(
        states=found,
        loss=where(cut, all_layers, 0),
        last=where(cut, all_layers + ahead + root + one, 0),
        first=where(cut, ahead + root + 2 * one, 0),
        late=where(cut | (single & (split.zero == 0)), gradients, 0),  # else they lie in buckets, or add up
        halves=(where(halves & cut, whole, 0), where(halves & cut, 2 * whole + root, 0))
        if np.any(halves & cut)
        else None,
    )


class KeptActivations(NamedTuple):
    """Bytes that a rank keeps for backward and needs in it."""

    activations: Number  # of all micro-batches that are in flight when the backward of one begins
    last: Number  # of these, what the output and its loss keep; of a rank without them its last layer
    first: Number  # what is left of them in the backward of the first layer, which has computed again what it needs
    beside: Number  # what other micro-batches than that in backward keep
    logits: Number  # gradients in the backward of the loss, or of what another rank goes on with
    again: Number  # what a layer's backward computes again
    widest: Number  # the largest gradient inside of a layer


def moments(k: KeptActivations, w: Gathered, *, once: Flag) -> Held:
    """Return what a rank holds whose backward frees what it has used: the moments at which it may hold most.

    There are four: in the loss's backward, with all activations; in the last layer's; in the first layer's; and in the
    second half of a zero-bubble pipeline's. `once`: the step has one micro-batch.
    """
    states, late = w.states, 0 if not np.any(once) else where(once, w.late, 0)
    found: tuple[Moment, ...] = (
        Moment(k.activations, k.logits, w.loss),
        Moment(k.activations - k.last, 0, k.again + k.widest + w.last),
        Moment(k.first, 0, k.widest + w.first, gradients=late),
    )
    if w.halves is not None:
        begin, end = w.halves
        found += (Moment(where(begin > 0, k.activations, 0), 0, begin), Moment(where(end > 0, k.beside, 0), 0, end))
    return Held(states._replace(gradients=states.gradients - late), found)


class Update(NamedTuple):
    """Bytes of gradients and of the optimiser's step on a rank, of a stack of which peaks alone are known."""

    late: Number  # gradients that no step of one micro-batch has before its backward has made them
    output: Number  # of these, what the last layer's backward finds: of the output's matrix, or all
    scratch: Number  # while the optimiser steps
    whole: Number = 0  # gradients of earlier micro-batches that each rank has whole under ZeRO 2 and 3 (`sums_whole`)


def update(
    s: States, p: Counts, split: SplitDegrees, c: Conventions, *, output: Number, single: Flag, offload: Number
) -> Update:
    """Return what an optimiser's step and the backward before it make, on a rank with `output` weights of an output.

    `single`: one rank's gradients are all; `offload` as in `states`. PyTorch's `zero_grad` drops gradients, autograd
    makes new ones. But DistributedDataParallel's buckets stay (torch/nn/parallel/distributed.py), and FSDP2's shares
    are made on the stream of their reduce-scatter, whose blocks no other stream gets
    (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, foreach_reduce): both count throughout. AdamW on a list
    of all parameters makes the roots of their second moments, as large as one of its two moments
    (torch/optim/adam.py, _multi_tensor_adam).
    """
    at_once, each = c.gradients_late == 1, (c.gradients_late == 2) & single & (split.zero == 0)
    late = where(at_once | each, s.gradients, 0)
    moment = (c.optimizer_bytes - c.master_bytes) / 2 * c.trained
    on_device = where(offload == 1, 1.0 - c.host_share, where(offload > 0, 0, 1))
    stepped = on_device * updated_by_rank(split, held=p.held, own=p.own)
    whole: Number = 0
    if np.any(c.sums_whole):
        each = where(np.greater(c.scattered_bytes, 0), c.scattered_bytes, c.gradient_bytes) * c.trained
        apart = gradients_are_shares(split, c) & (c.sums_whole > 0) & (p.own < p.held)
        whole = where(apart, each * p.held, 0)
    return Update(late, where(at_once, late, late * output / p.held), c.roots_at_once * moment * stepped, whole)


def moments_at_peaks(at: Moment, first: Number, logits: Number, s: States, u: Update, *, once: Flag) -> Held:
    """Return what a rank of a stack holds of which peaks alone are known, and when it may hold most.

    In the loss's backward with all activations, in the last layer's (`at`), in the first layer's, which keeps `first`,
    and in the optimiser's step, beside all gradients. `once`: a step has one micro-batch, and no gradients before it.
    """
    late, output = where(once, u.late, 0), where(once, u.output, 0)
    earlier = where(once, 0, u.whole) if np.any(u.whole) else 0
    in_layer = s.passing + at.working
    last = Moment(at.activations, 0, in_layer, gradients=output + earlier)
    found: tuple[Moment, ...] = (Moment(at.activations, logits, s.passing, gradients=earlier), last)
    if np.any(late):
        found += (Moment(first, 0, in_layer, gradients=late + earlier),)
    if np.any(u.scratch):
        found += (Moment(0, 0, 0, u.scratch, late),)
    return Held(s._replace(gradients=s.gradients - late), found)


class Peak(NamedTuple):
    """Bytes of the fullest rank at its peak, term by term, and of the rank that has most in its host's memory."""

    parameters: Number
    gradients: Number
    optimizer: Number
    activations: Number
    logits: Number
    working: Number
    update: Number = 0
    host: Number = 0
    pinned: Number = 0

    @property
    def allocated(self) -> Number:
        """Bytes of live tensors."""
        return sum(self[:7])


def peak(ranks: Iterable[Held]) -> Peak:
    """Return what the fullest of some ranks holds at its peak, the first of equals; of arrays, for each layout."""
    best: Sequence[Number] = ()
    most, host, pinned = np.asarray(0.0), np.asarray(0), np.asarray(0)
    for rank in ranks:
        states, at = rank.states, _fullest(rank.moments)
        terms = (states.parameters, states.gradients + at.gradients, states.optimizer, *at[:4])
        bytes_ = sum(terms)
        best = _better(bytes_ > most, terms, best) if best else terms
        most = np.maximum(bytes_, most)
        host, pinned = np.maximum(states.host, host), np.maximum(states.pinned, pinned)
    parameters, gradients, optimizer, activations, logits, working, made = best
    return Peak(parameters, gradients, optimizer, activations, logits, working, made, host, pinned)


def _fullest(moments: Sequence[Moment]) -> Moment:
    """Return the moment with most bytes, the first of equals."""
    best, most = moments[0], sum(moments[0])
    for other in moments[1:]:
        bytes_ = sum(other)
        best = Moment(*_better(bytes_ > most, other, best))
        most = np.maximum(bytes_, most)
    return best


def _better(more: Flag, these: Sequence[Number], those: Sequence[Number]) -> tuple[Number, ...]:
    """Return some terms where they are `more`, and others elsewhere."""
    return tuple(one if one is other else where(more, one, other) for one, other in zip(these, those, strict=True))
