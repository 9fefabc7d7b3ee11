"""The traffic of a split step: the one place that knows which collective travels on which axis, how large, when.

Written for one layout or for arrays of many (`Number`), by the facts of a stack (`Conventions`). C are the elements of
the residual stream [rows, features] on a rank of cp:

    tp    an all-reduce of C after attention and after the network, one before each in backward; the embedding one, the
          output one. Under sequence parallelism each is a reduce-scatter and, where rows are wanted whole, an
          all-gather; once a step the gradients of the norms are summed
    cp    an all-gather of keys and values forwards, a reduce-scatter of their gradients backwards; or rows for heads
          and back by all-to-all (Jacobs et al. 2023, arXiv 2309.14509)
    ep    rows to their experts and back, forwards and backwards
    zero  1: gradients scattered in buckets and weights gathered, once a step; 2: weights gathered once a step,
          gradients scattered in each micro-batch; 3: weights gathered twice in each micro-batch, but what stays whole
          (`root_stays`: of the root, which is embedding, last norm and output in one piece) once
    pp    C at every cut, forwards and backwards; once a step the gradient of a matrix that two stages use
    host  where a device's states or weights live in the memory of its host (offload): gradients to the host, weights
          back once a step, or with each gather of ZeRO 2 and 3
    world the gradient's norm
"""

from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from ..mesh import Axis
from .conventions import Conventions
from .elements import DOUBLE_BYTES, LONG_BYTES, SINGLE_BYTES
from .program import Comm, Flag, Number

COUNT_BYTES = LONG_BYTES  # the number of rows for one expert, the number of one expert
NORM_BYTES = DOUBLE_BYTES  # the sum of squares of a gradient
LOSS_VALUES = 3  # single ones of a row travel where the vocabulary is cut: highest logit, sum, chosen logit


class SplitDegrees(Protocol):
    """The degrees and switches of one layout, or of many as arrays."""

    @property
    def tp(self) -> Number:
        """Ranks of tensor parallelism."""

    @property
    def cp(self) -> Number:
        """Ranks of context parallelism."""

    @property
    def dp(self) -> Number:
        """Ranks of data parallelism."""

    @property
    def ep(self) -> Number:
        """Ranks of expert parallelism."""

    @property
    def pp(self) -> Number:
        """Ranks of a pipeline."""

    @property
    def vpp(self) -> Number:
        """Stages of each rank of a pipeline."""

    @property
    def zero(self) -> Number:
        """Level of ZeRO."""

    @property
    def sp(self) -> Number:
        """1 for sequence parallelism."""


class Sizes(NamedTuple):
    """Sizes of one micro-batch on one rank, in elements; 0 where there are no experts."""

    residual: Number  # rows of a rank of cp x features
    keys_values: Number  # of the whole sequence, of the heads of a rank of tp
    routed: Number = 0  # rows for experts x features: each row as often as it has experts
    chosen: Number = 0  # rows x experts of each
    experts: Number = 0
    queries: Number = 0  # rows of a rank of cp x the heads of a rank of tp


class LayerTraffic(NamedTuple):
    """The traffic of one layer forwards, backwards, and once more backwards where it is recomputed."""

    forward: tuple[Comm, ...]
    backward: tuple[Comm, ...]
    again: tuple[Comm, ...] = ()


def tensor_exchange(s: Sizes, split: SplitDegrees, c: Conventions) -> LayerTraffic:
    """Return what a layer sends along tp."""
    summed, cut = 2 * (split.tp > 1) * (split.sp == 0), 2 * (split.tp > 1) * (split.sp > 0)
    entering = s.residual * c.residual_bytes
    leaving = entering if np.all(c.product_bytes == c.residual_bytes) else s.residual * c.product_bytes
    wide, narrow = c.residual_bytes, c.product_bytes
    forward = (
        Comm(axis="tp", collective="all_gather", bytes=entering, element_bytes=wide, calls=cut),
        Comm(axis="tp", collective="all_reduce", bytes=leaving, element_bytes=narrow, calls=summed),
        Comm(axis="tp", collective="reduce_scatter", bytes=leaving, element_bytes=narrow, calls=cut),
    )
    backward = (
        Comm(axis="tp", collective="all_reduce", bytes=entering, element_bytes=wide, calls=summed),
        Comm(axis="tp", collective="all_gather", bytes=leaving, element_bytes=narrow, calls=cut),
        Comm(axis="tp", collective="reduce_scatter", bytes=entering, element_bytes=wide, calls=cut),
    )
    fewer = c.stops_early * (split.tp > 1)
    again = (
        forward[0],
        msgspec.structs.replace(forward[1], calls=summed - fewer * (split.sp == 0)),
        msgspec.structs.replace(forward[2], calls=cut - fewer * (split.sp > 0)),
    )
    return LayerTraffic(forward, backward, again)


def context_exchange(s: Sizes, split: SplitDegrees, c: Conventions) -> LayerTraffic:
    """Return what a layer sends along cp: keys and values, gathered or passed round, or all of it for other heads."""
    bytes_ = s.keys_values * c.residual_bytes
    many = 1 * (split.cp > 1) * (1 - c.heads_exchanged)
    gather = Comm(axis="cp", collective="all_gather", bytes=bytes_, element_bytes=c.residual_bytes, calls=many)
    backward = (
        msgspec.structs.replace(gather, calls=2 * many * c.keys_ring),
        msgspec.structs.replace(gather, collective="reduce_scatter", calls=many * (1 - c.keys_ring)),
    )
    if not np.any(c.heads_exchanged):
        return LayerTraffic((gather,), backward, (gather,))
    there = Comm(
        axis="cp", collective="all_to_all", bytes=(s.queries + part(s.keys_values, split.cp)) * c.residual_bytes,
        element_bytes=c.residual_bytes, calls=1 * (split.cp > 1) * c.heads_exchanged,
    )  # fmt: skip
    back = msgspec.structs.replace(there, bytes=s.queries * c.residual_bytes)
    return LayerTraffic((gather, there, back), (*backward, back, there), (gather, there, back))


def expert_exchange(s: Sizes, split: SplitDegrees, c: Conventions) -> LayerTraffic:
    """Return what a layer of experts sends: rows there and back (ep), what the router chose (tp)."""
    rows = part(s.routed, where((split.sp > 0) & (c.routed_cut > 0), split.tp, 1))
    many = 1 * (split.ep > 1)
    wide, narrow = c.residual_bytes, c.product_bytes
    there = Comm(axis="ep", collective="all_to_all", bytes=rows * wide, element_bytes=wide, calls=many)
    narrower = not np.all(c.product_bytes == c.residual_bytes)
    back = msgspec.structs.replace(there, bytes=rows * narrow, element_bytes=narrow) if narrower else there
    told = c.router_messages * (s.experts > 0)
    counts = Comm(
        axis="ep", collective="all_to_all", bytes=COUNT_BYTES * s.experts, element_bytes=COUNT_BYTES,
        calls=told * many,
    )  # fmt: skip
    cut, whole = told * (split.tp > 1) * (split.sp > 0), told * (split.tp > 1) * (split.sp == 0)
    weights = Comm(axis="tp", collective="all_gather", bytes=SINGLE_BYTES * s.chosen, calls=cut)
    choices = msgspec.structs.replace(weights, bytes=COUNT_BYTES * s.chosen, element_bytes=COUNT_BYTES)
    forward = (weights, choices, counts, there, back)
    backward = (
        back,
        there,
        Comm(axis="tp", collective="reduce_scatter", bytes=SINGLE_BYTES * s.chosen, calls=cut),
        Comm(axis="tp", collective="all_reduce", bytes=SINGLE_BYTES * s.chosen, calls=whole),
    )
    return LayerTraffic(forward, backward, forward)


class EndTraffic(NamedTuple):
    """The traffic of what stands before the layers and behind them."""

    embedding: LayerTraffic
    output: LayerTraffic  # with its loss


def end_exchange(s: Sizes, split: SplitDegrees, c: Conventions, *, rows: Number) -> EndTraffic:
    """Return what embedding and output send along tp, which cuts the vocabulary; `rows` of a micro-batch on a rank."""
    whole, cut = 1 * (split.tp > 1) * (split.sp == 0), 1 * (split.tp > 1) * (split.sp > 0)
    wide = c.residual_bytes
    summed = Comm(axis="tp", collective="all_reduce", bytes=s.residual * wide, element_bytes=wide, calls=whole)
    gather, scatter = (
        msgspec.structs.replace(summed, collective=name, calls=cut) for name in ("all_gather", "reduce_scatter")
    )
    values = Comm(axis="tp", collective="all_reduce", bytes=SINGLE_BYTES * rows, calls=LOSS_VALUES * (split.tp > 1))
    return EndTraffic(
        embedding=LayerTraffic((summed, scatter), (gather,)),
        output=LayerTraffic((gather, values), (summed, scatter)),
    )


class Sharding(NamedTuple):
    """The traffic of data parallelism and ZeRO for some parameters."""

    gather: Comm  # ZeRO 2, 3: weights, for the forward
    again: Comm  # ZeRO 3: for the backward
    scatter: Comm  # ZeRO 2, 3: gradients
    copies: Comm  # gradients, summed over the copies of a sharded model
    reduce: Comm  # gradients, where nothing is sharded
    scatter_once: Comm  # ZeRO 1
    spread: Comm  # ZeRO 1: weights, after the update


def sharding(
    held: Number, split: SplitDegrees, c: Conventions, *, shards: Number, copies: Number = 1, over: Axis = "shard",
    staying: Number = 0,
) -> Sharding:  # fmt: skip
    """Return what is sent of `held` parameters, of which each of `copies` lies on `shards` ranks.

    In a pipeline a stack may do once a step what it does in each micro-batch without one (`reshards`). `staying` of
    them are whole from forward to backward: gathered once where others are gathered twice.
    """
    weights, trained = gathered_weight_bytes(c) * held, held * c.trained
    whole_bytes = c.gradient_bytes
    cut_bytes = where(np.greater(c.scattered_bytes, 0), c.scattered_bytes, whole_bytes)
    gradients, scattered = whole_bytes * trained, cut_bytes * trained
    zero, many = split.zero, shards * copies > 1
    each = scatters_each(split, c)
    both, three = 1 * ((zero >= 2) & (shards > 1)), gathers_twice(split, c) * (shards > 1)
    again = weights if np.all(np.equal(staying, 0)) else gathered_weight_bytes(c) * (held - staying)
    whole: Axis = "data" if over == "shard" else over

    def comm(axis: Axis, collective: str, size_bytes: Number, element: Number, calls: Number, once: Number = 0) -> Comm:
        return Comm(axis=axis, collective=collective, bytes=size_bytes, element_bytes=element, calls=calls, once=once)

    copied = part(scattered, shards)
    return Sharding(
        gather=comm(over, "all_gather", weights, c.weight_bytes, three, both - three),
        again=comm(over, "all_gather", again, c.weight_bytes, three * (held > staying)),
        scatter=comm(over, "reduce_scatter", scattered, cut_bytes, both * each, both * (1 - each)),
        copies=comm("replica", "all_reduce", copied, cut_bytes, 0, 1 * ((zero >= 2) & (copies > 1))),
        reduce=comm(whole, "all_reduce", gradients, whole_bytes, 0, 1 * ((zero == 0) & many)),
        scatter_once=comm(whole, "reduce_scatter", gradients, whole_bytes, 0, 1 * ((zero == 1) & many)),
        spread=comm(whole, "all_gather", c.weight_bytes * trained, c.weight_bytes, 0, 1 * ((zero == 1) & many)),
    )


def in_each_micro_batch(split: SplitDegrees, c: Conventions) -> Number:
    """Return 1 where ZeRO gathers and scatters in each micro-batch, 0 where a pipeline does it once a step."""
    return 1 * ((split.pp <= 1) | (c.reshards > 0))


def scatters_each(split: SplitDegrees, c: Conventions) -> Number:
    """Return 1 where ZeRO scatters gradients in each micro-batch, 0 where once a step."""
    each = in_each_micro_batch(split, c)
    return each * (c.sums_whole == 0) if np.any(c.sums_whole) else each


def gathers_twice(split: SplitDegrees, c: Conventions) -> Number:
    """Return 1 where ZeRO drops a layer's weights after its forward and gathers them again for its backward."""
    return in_each_micro_batch(split, c) * (split.zero == 3)


class HostTraffic(NamedTuple):
    """The traffic between the device and the host of a rank, for some parameters."""

    fetch: Comm  # offload=parameters: a rank's share of the weights, before they are gathered for the forward
    again: Comm  # the same for the backward
    leave: Comm  # gradients of what the host updates, behind the backward of a micro-batch
    leave_once: Comm  # the same after the last one
    back: Comm  # offload=optimizer: weights, after the update


def host_traffic(
    held: Number, split: SplitDegrees, c: Conventions, *, offload: Number, shards: Number, copies: Number = 1,
    staying: Number = 0,
) -> HostTraffic:  # fmt: skip
    """Return what crosses between device and host of `held` parameters that lie on `shards` ranks.

    `offload` is the place in `layout.OFFLOADS`. A rank sends what it updates: its share under ZeRO, else everything.
    Weights come as often as ZeRO gathers them (`staying` as in `sharding`), also where one rank has nothing to gather.
    Copies of a sharded model sum their gradients once a step, and none leave before; so do ranks that ZeRO 1 leaves all
    gradients.
    """
    own, own_staying = (where(split.zero > 0, part(count, shards), count) for count in (held, staying))
    states, weights = 1 * (offload == 1), 1 * (offload == 2)
    each = scatters_each(split, c)
    moved = c.trained * where(offload == 1, c.host_share, 1.0)
    three = weights * gathers_twice(split, c)
    beside = where(offload == 2, each * (copies <= 1), each * (c.host_beside > 0) * (split.zero >= 2)) * (
        states + weights
    )
    weight_bytes = host_weight_bytes(c)

    def comm(
        collective: str, element_bytes: Number, share: Number, calls: Number, once: Number = 0, count: Number = own
    ) -> Comm:
        return Comm(
            axis="host", collective=collective, bytes=element_bytes * count * share, element_bytes=element_bytes,
            calls=calls, once=once,
        )  # fmt: skip

    return HostTraffic(
        fetch=comm("to_device", weight_bytes, 1, three, weights - three),
        again=comm("to_device", weight_bytes, 1, three * (held > staying), count=own - own_staying),
        leave=comm("to_host", c.host_gradient_bytes, moved, beside, weights * (1 - beside)),
        leave_once=comm("to_host", c.host_gradient_bytes, moved, 0, states * (1 - beside)),
        back=comm("to_device", c.host_weight_bytes, moved, 0, states),
    )


def adds_on_host(leave: Comm, c: Conventions, *, offload: Number, micro_batches: Number) -> Flag:
    """Return whether a host adds up gradients that `leave` in each micro-batch, so that backward waits for copies.

    So FSDP2 does: torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, foreach_reduce.
    """
    return (offload == 2) & (c.shares_single > 0) & (micro_batches > 1) & (leave.calls > 0)


def expert_traffic(
    held: Number, split: SplitDegrees, c: Conventions, *, offload: Number, shards: Number, copies: Number = 1
) -> HostTraffic:
    """Return what `host_traffic` says of experts, of which one rank may have its own alone."""
    stay = (offload == 2) & (shards <= 1) & (c.lone_experts_stay > 0)
    return host_traffic(held, split, c, offload=where(stay, 1, offload), shards=shards, copies=copies)


def gathered_weight_bytes(c: Conventions) -> Number:
    """Return the bytes of a weight that is gathered, in the mean: frozen ones in few bits travel as they lie."""
    return _with_packed(c, c.weight_bytes, c.weight_bytes)


def host_weight_bytes(c: Conventions) -> Number:
    """Return the bytes of a weight that comes from its host, in the mean.

    Frozen ones have no master copy: they come as they are held, those in few bits as they lie.
    """
    return _with_packed(c, c.host_weight_bytes, np.minimum(c.host_weight_bytes, c.held_weight_bytes))


def host_master_bytes(c: Conventions) -> Number:
    """Return the bytes of a weight that a host updates: of its master copy, or of the weight where there is none."""
    return where((c.master_bytes > 0) | (c.shares_single > 0), SINGLE_BYTES, c.held_weight_bytes)


def _with_packed(c: Conventions, trained: Number, frozen: Number) -> Number:
    """Return the mean of the bytes of a trained and of a frozen weight, of which some may lie in few bits."""
    if np.all(c.trained >= 1.0):
        return trained
    packed = where(c.base_bytes > 0, c.base_share, 0.0)
    return c.trained * trained + (1.0 - c.trained) * (packed * c.base_bytes + (1.0 - packed) * frozen)


def stage_message(residual: Number, split: SplitDegrees, c: Conventions) -> Number:
    """Return the bytes of activations that a rank sends to the next stage for each micro-batch."""
    return part(residual * c.residual_bytes, where((split.sp > 0) | (c.sends_cut > 0), split.tp, 1))


def stage_sends(
    message: Number, split: SplitDegrees, *, first: Number, last: Number, turns: Number
) -> tuple[Comm, Comm]:
    """Return what a rank of a pipeline sends on and back in each micro-batch; `message` is the bytes of one.

    1 or 0: whether it has the model's `first` stage, the `last` one, and two neighbours (where stages in a V turn).
    """
    many = 1 * (split.pp > 1)
    on, back = many * (split.vpp - last - turns), many * (split.vpp - first - turns)
    return (
        Comm(axis="pp", collective="send_activation", bytes=message, calls=on),
        Comm(axis="pp", collective="send_gradient", bytes=message, calls=back),
    )


def partial_sums(
    split: SplitDegrees, c: Conventions, *, tied: Number, of_rows: Number, shards: Number, offload: Number
) -> tuple[Comm, ...]:
    """Return the sums after the last backward, of gradients that ranks hold parts of, and the gradient's norm.

    `tied` are a rank's parameters of a matrix that another stage has too, `of_rows` those of norms and routers, which
    under sequence parallelism see their rank's rows alone; ZeRO leaves each of `shards` ranks a part of both. Gradients
    in the memory of the host come to the devices for it (`offload` as in `host_traffic`).
    """
    found: list[Comm] = []
    each: tuple[tuple[Axis, Number, Number], ...] = (
        ("pp", tied * (split.pp > 1), where(split.zero >= 2, shards, 1)),
        ("tp", of_rows * ((split.tp > 1) & (split.sp > 0)), where(split.zero > 0, shards, 1)),
    )
    for axis, parameters, parts in each:
        there = np.greater(parameters, 0)
        summed = Comm(
            axis=axis, collective="all_reduce", bytes=part(c.gradient_bytes * parameters, parts), calls=0,
            element_bytes=c.gradient_bytes, once=1 * there,
        )  # fmt: skip
        fetched, left = (
            msgspec.structs.replace(summed, axis="host", collective=name, once=there * (1 * (offload == 2)))
            for name in ("to_device", "to_host")
        )
        found += [fetched, summed, left]
    several = split.tp * split.cp * split.pp * split.ep > 1
    sent = (split.dp * split.tp * split.cp * split.pp > 1) & (several | (split.zero > 0) | (offload > 0))
    # libraries take a tree for so small a message
    norm = Comm(axis="world", collective="all_reduce", bytes=NORM_BYTES, calls=0, once=1 * sent, algorithm="tree")
    return (*found, norm)


def where(condition: Number, yes: Number, no: Number) -> Number:
    """Return one of two numbers, or of each pair of elements one."""
    if np.ndim(condition):
        return np.where(condition, yes, no)
    return yes if condition else no


def part(whole: Number, parts: Number) -> Number:
    """Return the quotient, a whole number where both are."""
    return whole // parts if isinstance(whole, int) and isinstance(parts, int) else whole / parts
