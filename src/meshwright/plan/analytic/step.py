"""Time of one training step of every layout of a grid, term by term."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from ...mesh import stride
from ...workload.elements import HALF_BYTES, SINGLE_BYTES, STATES_BYTES
from ...workload.held import gradients_are_shares, updated_by_rank
from ...workload.program import Comm
from ...workload.split import Sharding, stage_message, stage_sends
from .axis_traffic import Axis
from .coefficients import Coefficients
from .collective import AxisPlacement, all_reduce_s, axis_span, span
from .distinct import LAYER, SENT, by_facts, once_each
from .further_tokens import further_s
from .host import LINK_SHARE, hosted_s
from .layer import LayerTime, layer_s
from .loads import cut_pace, is_folded, output_cost, rank_layers
from .products import linear_s
from .quantities import Grid, Machine, ModelQuantities, Number
from .rank_parameters import (
    ends_meet,
    gathered_again,
    parameters_of_layers,
    with_further,
)
from .sent import (
    RankParameters,
    bucket_parameters,
    buckets,
    ends_traffic,
    sharers,
    sums_sent,
    weights_sent,
)
from .states import end_parameters, further_parameters, staying_parameters

# a logit: written, read by the cast and its gradient in half precision; cast, softmax and gradient in single precision
LOSS_BYTES = 3.0 * HALF_BYTES + 3.0 * SINGLE_BYTES
# a parameter: gradient read, master weight and two moments read and written, weight written
UPDATE_BYTES = float(SINGLE_BYTES + 2 * STATES_BYTES + HALF_BYTES)
SENDS = 10.0  # small messages between two GPUs of a node in the time of one small all-reduce


@dataclass(frozen=True, slots=True)
class StepSeconds:
    """Seconds of one step by term, arrays of length n; the terms below `total_s` add up to it."""

    total_s: Number
    forward_s: Number
    backward_s: Number
    recompute_s: Number  # part of backward_s
    tensor_comm_s: Number  # exposed: inside the layers
    pipeline_comm_s: Number  # exposed sends between stages
    data_comm_s: Number  # exposed gradient and parameter traffic
    hidden_comm_s: Number
    bubble_s: Number
    optimizer_s: Number
    other_s: Number  # what the host adds to each step

    @property
    def exposed_comm_s(self) -> Number:
        """Communication during which a rank computes nothing."""
        return self.tensor_comm_s + self.pipeline_comm_s + self.data_comm_s


def step_s(
    machine: Machine,
    c: Coefficients,
    model: ModelQuantities,
    grid: Grid,
    *,
    seq_len: Number,
    global_batch: Number,
    shard: Number,
    stages: Sequence[int] = (),
) -> StepSeconds:
    """Return the terms of one step; `shard` is the ranks over which ZeRO-3 shards (the rest replicates).

    `stages` are the layers of the virtual stages in the order of the model, where a job cuts them in its own way.
    """
    inside = partial(_inside_s, machine, c, model, seq_len=seq_len)
    layer, head, ends, send_s = once_each(model, grid, by_facts(LAYER, c), inside)
    most, last = paced_layers(model, grid, stages, output_cost(c, model, grid, seq_len))
    micro = global_batch / (grid.dp * grid.mbs)
    each = layer.forward.total_s + layer.backward.total_s + layer.again.total_s
    meet = ends_meet(grid)
    first, behind, outside = _with_ends(most * each, last * each, head[0] + head[1], ends, meet)
    held, experts = with_further(model, grid, most, last)
    shown, beside = _sends_s(c, grid, send_s, most * each)
    host_s = c.micro_s * grid.vpp
    sends = shown + host_s
    added, added_by_all = _summing_s(machine, c, model, grid, held, micro, shard)
    longest = np.maximum(first, behind) + sends + added
    total = model.layers * each + outside + grid.pp * sends + added_by_all
    bubble = np.maximum(total - longest, 0.0) / grid.vpp * np.where(grid.schedule == 3, 1.0 / 3.0, 1.0)
    work = micro * longest
    own = RankParameters(held, experts, staying_parameters(c, model, grid, embedding=1.0, output=meet))
    sent = own._replace(held=held + gathered_again(model, grid, most))
    data = _data_parallel(machine, c, model, grid, sent, layer, most, micro, work, shard)
    update_s = _update_s(machine, c, grid, held, experts, shard)
    if np.any(grid.offload):
        backward_s = micro * (most * (layer.backward.total_s + layer.again.total_s) + head[1])
        window = {"micro": micro, "work_s": work + data.exposed_s, "backward_s": backward_s}
        host = hosted_s(machine, c, grid, own, update_s, **window, shard=shard)
        update_s, data = host.update_s, DataTraffic(data.exposed_s + host.exposed_s, data.hidden_s + host.hidden_s)
    total_s = (work + bubble + data.exposed_s + update_s + c.step_s) * c.pace
    forward = micro * (most * layer.forward.compute_s + head[0] * np.where(grid.pp > 1, 0.0, 1.0))
    again = micro * most * layer.again.compute_s
    comm = micro * most * (layer.forward.exposed_s + layer.backward.exposed_s + layer.again.exposed_s)
    comm = comm if ends is None else comm + micro * (ends.before_s + meet * ends.behind_s)
    hidden = micro * most * (layer.forward.hidden_s + layer.backward.hidden_s + layer.again.hidden_s)
    backward = work - forward - comm - micro * shown - micro * host_s
    return StepSeconds(
        total_s=total_s,
        forward_s=forward * c.pace,
        backward_s=backward * c.pace,
        recompute_s=again * c.pace,
        tensor_comm_s=comm * c.pace,
        pipeline_comm_s=micro * shown * c.pace,
        data_comm_s=data.exposed_s * c.pace,
        hidden_comm_s=(hidden + micro * beside + data.hidden_s) * c.pace,
        bubble_s=bubble * c.pace,
        optimizer_s=update_s * c.pace,
        other_s=(c.step_s + micro * host_s) * c.pace,
    )


def _with_ends(
    first: Number, last: Number, output: Number, ends: "EndSeconds | None", meet: Number
) -> tuple[Number, Number, Number]:
    """Return the seconds of the ranks with the embedding and with the output, and of what is outside of the layers.

    `first` and `last` are those of both ranks' layers, `output` those of the output and what follows it.
    """
    if ends is None:
        return first, last + output, output
    return (
        first + ends.before_s,
        last + output + (meet * ends.before_s + ends.behind_s),
        output + (ends.before_s + ends.behind_s),
    )


class EndSeconds(NamedTuple):
    """Seconds of what is sent along tp in a micro-batch, before the layers and behind them."""

    before_s: Number
    behind_s: Number


class Inside(NamedTuple):
    """The seconds of a micro-batch's parts."""

    layer: LayerTime  # the average one
    head: tuple[Number, Number]  # of what follows the layers: forward, backward
    ends: EndSeconds | None  # None for a stack whose constants have them
    send_s: Number  # of a message to another stage


def _inside_s(machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number) -> Inside:
    """Return the seconds of parts of a micro-batch that depend neither on ZeRO nor on the schedule."""
    message = stage_message(grid.mbs * seq_len / grid.cp * model.hidden, grid, c)
    found = Inside(
        layer_s(machine, c, model, grid, seq_len),
        output_s(machine, c, model, grid, seq_len),
        None,
        _send_s(machine, c, grid, message),
    )
    if not np.any(c.ends_sent):
        return found
    axis, ends = Axis(c, axis_span(machine, c, grid, "tp")), ends_traffic(c, model, grid, seq_len)
    before, behind = (c.ends_sent * sum(axis.total_s(comms) for comms in end) for end in ends)
    return found._replace(ends=EndSeconds(before, behind))


def _update_s(machine: Machine, c: Coefficients, grid: Grid, held: Number, experts: Number, shard: Number) -> Number:
    """Return seconds of the update on the device: of what ZeRO leaves a rank of its parameters."""
    ranks, expert_ranks = grid.sharing(shard, copied=c.experts_copied)
    updated = updated_by_rank(grid, held=held, own=(held - experts) / ranks + experts / expert_ranks)
    return UPDATE_BYTES * c.optimizer * c.trained * updated / (machine.memory_rate * c.memory)


def paced_layers(
    model: ModelQuantities, grid: Grid, stages: Sequence[int] = (), output: Number | None = None
) -> tuple[Number, Number]:
    """Return the layers of the rank that has most, and those of the last one, which carries the output.

    `stages` are the layers of each virtual stage where the job says them. Where layers do not divide, the last one has
    fewer. Where virtual stages divide layers + 2, embedding and output have a slot each, so that the first and the last
    rank have a layer less (Megatron-LM's accounting for both). `output` as in `loads`.
    """
    if stages:
        folded = bool(np.atleast_1d(is_folded(grid))[0])
        holds, _ = rank_layers(model, int(np.atleast_1d(grid.pp)[0]), stages, folded=folded)
        return holds.max() + 0.0 * grid.pp, holds[0 if folded else -1] + 0.0 * grid.pp
    if output is not None:
        return cut_pace(model, grid, output)
    per_stage = model.layers / grid.pp
    slots = (grid.vpp > 1) & (grid.pp > 1) & ((model.layers + 2.0) % (grid.pp * grid.vpp) == 0)
    most = grid.vpp * np.ceil(per_stage / grid.vpp)
    last = np.where(grid.pp > 1, model.layers - most * (grid.pp - 1.0), most)
    last = np.where(last > 0, last, per_stage)
    ends = (model.layers + 2.0) / grid.pp - 1.0
    return np.where(slots, ends + (grid.pp > 2), most), np.where(slots, ends, last)


def output_s(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number
) -> tuple[Number, Number]:
    """Return seconds of forward and backward of what follows the layers: the output, and modules for further tokens."""
    head = head_s(machine, c, model, grid, grid.mbs * seq_len / grid.cp)
    if model.mtp_layers is None:
        return head
    further = further_s(machine, c, model, grid, seq_len, head)
    return head[0] + further[0], head[1] + further[1]


def head_s(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, tokens: Number
) -> tuple[Number, Number]:
    """Return seconds of forward and backward of the output projection and the loss, in half precision."""
    half = machine.peak / machine.peak_half
    forward, backward = linear_s(machine, c, tokens, model.vocab / grid.tp, model.hidden)
    loss = LOSS_BYTES * c.loss * tokens * model.vocab / grid.tp / (machine.memory_rate * c.memory)
    return forward * half + loss / 3.0, backward * half + loss * 2.0 / 3.0


def _sends_s(c: Coefficients, grid: Grid, send_s: Number, computing_s: Number) -> tuple[Number, Number]:
    """Return exposed and hidden seconds of a rank's sends between stages in one micro-batch.

    A rank between two others sets the pace; of two ranks, each waits for as many messages as it would send there. An
    interleaved schedule hides them beside the `computing_s` of the rank's layers in a micro-batch, and no more than
    that: a slower link sets the pace.
    """
    messages = stage_sends(0.0, grid, first=0, last=0, turns=0)  # counted alone
    sent = sum(comm.calls for comm in messages) * send_s
    hidden = np.minimum(c.sends_hidden * (grid.vpp > 1) * sent, computing_s)
    return sent - hidden, hidden


def _send_s(machine: Machine, c: Coefficients, grid: Grid, message: Number) -> Number:
    """Return seconds of passing one micro-batch's activations to the next stage; all ranks of a node send at once."""
    step = stride(grid, "pp")
    crosses = step * grid.pp > machine.domain
    leaf = machine.nodes_per_leaf * machine.gpus_per_node
    climbing = np.where(step * grid.pp > leaf, np.minimum(1.0, step / leaf), 0.0)  # share of a leaf's sends
    up = np.maximum(1.0, machine.oversubscription * climbing)
    if machine.sides:  # one link of the torus leads to the next stage
        up = 2.0 * len(machine.sides)
    rate = np.where(crosses, machine.node_rate * c.sends / machine.gpus_per_node / up, machine.rate_among(2.0) * c.link)
    abroad = step * grid.pp > machine.slice_ranks  # the slowest send is between two slices, where all ranks send
    rate = np.where(abroad, np.minimum(rate, machine.slice_rate * c.sends / machine.gpus_per_node), rate)
    latency = np.where(crosses, c.network_latency_s, c.small_s / SENDS)
    return message / rate + latency


def summed_s(machine: Machine, c: Coefficients, grid: Grid, held: Number, micro: Number, shard: Number) -> Number:
    """Return seconds of adding one micro-batch's gradients to their sum, where kernels of their own do it.

    A gradient is read in half precision, its sum read and written: 2 + 2g bytes a parameter. Megatron-LM adds in the
    epilogue of the products since 2022. Where ZeRO-2 or -3 shards gradients, a rank adds its own share.
    """
    own = held / np.where(gradients_are_shares(grid, c), grid.sharing(shard)[0], 1.0)
    moved = (HALF_BYTES + 2.0 * c.gradient_bytes) * own * c.trained
    return np.where(micro > 1, c.summed_apart * moved / (machine.memory_rate * c.memory), 0.0)


def _summing_s(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, held: Number, micro: Number, shard: Number
) -> tuple[Number, Number]:
    """Return seconds of `summed_s` of the rank that holds most, and of all ranks of a pipeline one after the other.

    The embedding is in the first of them and the output in the last, and in no other.
    """
    if not np.any(c.summed_apart):
        return 0.0, 0.0
    dense, experts = (0.0, 0.0) if model.mtp_layers is None else further_parameters(model, grid)
    meet = ends_meet(grid)
    first, last = (end_parameters(model, grid, embedding=one, output=other) for one, other in ((1.0, meet), (0.0, 1.0)))
    every = parameters_of_layers(model, grid, model.layers) + first + (1.0 - meet) * last + dense + experts
    return summed_s(machine, c, grid, held, micro, shard), summed_s(machine, c, grid, every, micro, shard)


class DataTraffic(NamedTuple):
    """Seconds of what travels of weights and gradients in a step: beside nothing, and beside computation."""

    exposed_s: Number
    hidden_s: Number


def _data_parallel(
    machine: Machine,
    c: Coefficients,
    model: ModelQuantities,
    grid: Grid,
    parameters: RankParameters,
    layer: LayerTime,
    layers: Number,
    micro: Number,
    work: Number,
    shard: Number,
) -> DataTraffic:
    """Return seconds of gradients and sharded `parameters`.

    Plain and ZeRO-1: one all-reduce (scatter and gather) a step, in the window of one micro-batch's backward and, for
    the gather, forward, unless it is waited for after the update. ZeRO-2: a scatter in every micro-batch's backward,
    and a gather. ZeRO-3: parameters gathered for the forward and again for the backward of every micro-batch, gradients
    scattered, all beside the computation (Zhao et al. 2023, arXiv 2304.11277). In a pipeline that does not reshard
    (torchtitan's default) both scatter once a step, and ZeRO-3 gathers once: its stages keep what they gathered.
    """
    names = (*SENT, "recompute") if np.any(c.cut_by_cost) else SENT  # which decides where stages are cut
    names = (*names, "sp", "offload") if np.any(c.ends_sent) else names
    sent = once_each(model, grid, names, partial(_sent_s, machine, c, model), *parameters, layers, shard)
    plain, exposed_plain = _unsharded(c, model, grid, sent, layer, layers, micro, parameters.held)
    sharded = micro * (sent.weights.each_s + sent.gradients.each_s) + sent.weights.once_s + sent.gradients.once_s
    busy = np.maximum(work, sharded) + c.fsdp_drag * np.minimum(work, sharded)
    exposed_sharded = busy - work
    total = np.where(grid.zero == 3, sharded, plain)
    exposed = np.where(grid.zero == 3, exposed_sharded, exposed_plain)
    several = grid.dp * grid.cp > 1
    exposed = np.where(several, exposed, 0.0)
    return DataTraffic(exposed + sent.sums_s, np.where(several, np.maximum(total - exposed, 0.0), 0.0))


class CallSeconds(NamedTuple):
    """Seconds of some calls: of those in each micro-batch, and of those once a step."""

    each_s: Number
    once_s: Number

    def plus(self, other: "CallSeconds") -> "CallSeconds":
        """Return both together."""
        return CallSeconds(self.each_s + other.each_s, self.once_s + other.once_s)


@dataclass(frozen=True, slots=True)
class _Sent:
    """Seconds of what data parallelism and ZeRO send, of weights and of gradients."""

    weights: CallSeconds
    gradients: CallSeconds
    scatters: tuple[Number, Number]  # of gradients, under ZeRO: in each micro-batch, and once a step
    sums_s: Number  # after the backward, of gradients that ranks hold parts of


def _sent_s(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, held: Number, experts: Number,
    staying: Number, layers: Number, shard: Number,
) -> _Sent:  # fmt: skip
    """Return the seconds of each collective: those of dense weights, and beside them those of `experts`.

    Expert parallelism leaves fewer copies of an expert, whose ranks are further apart: dp x cp / ep of them.
    """
    among, step = sharers(c, grid, shard), _data_step(grid)
    dense, routed = weights_sent(c, grid, RankParameters(held, experts, staying), among)
    placed = partial(_placed_s, machine, c)
    priced = placed(dense, buckets(c, grid, held - experts, among.group), among.group, among.copies, step)
    if np.any(experts):
        group, copies, apart = among.expert_group, among.expert_copies, step * grid.expert_cut
        beside = placed(routed, buckets(c, grid, experts, group), group, copies, apart)
        # none: not even a latency
        added = (CallSeconds(*(np.where(experts > 0, s, 0.0) for s in each)) for each in beside)
        priced = [own.plus(more) for own, more in zip(priced, added, strict=True)]
    weights, gradients = priced
    scatters = np.where(grid.zero >= 2, dense.scatter.calls, 0.0), np.where(grid.zero >= 2, dense.scatter.once, 1.0)
    sums_s = _sums_s(machine, c, model, grid, layers, shard) if np.any(c.ends_sent) else 0.0
    return _Sent(weights, gradients, scatters, sums_s)


def _data_step(grid: Grid) -> Number:
    """Return how many ranks apart the ranks are that share a parameter, along dp and cp together.

    The outer of both axes is so far apart as the inner one is wide, and further where another axis lies between.
    """
    dp, cp = stride(grid, "dp"), stride(grid, "cp")
    both = np.where(dp > cp, dp / grid.cp, cp / grid.dp)
    return np.where(grid.cp <= 1, dp, np.where(grid.dp <= 1, cp, both))


def _placed_s(
    machine: Machine, c: Coefficients, sent: Sharding, many: Number, group: Number, copies: Number, step: Number
) -> list[CallSeconds]:
    """Return the seconds of weights and of gradients that `group` ranks share, in `many` messages each.

    Collectives of layers that follow each other are timed as one of all their bytes.
    """
    inner = span(machine, c, group, step)
    axis = Axis(c, inner)
    outer = Axis(c, span(machine, c, copies, step * group)) if np.any(sent.copies.once) else axis

    def seconds(*comms: Comm) -> CallSeconds:
        found = CallSeconds(0.0, 0.0)
        for comm in comms:
            if np.any(comm.calls) or np.any(comm.once):
                over = outer if comm is sent.copies else axis
                s = many * over.call_s(comm, many)
                found = found.plus(CallSeconds(comm.calls * s, comm.once * s))
        return found

    weights = seconds(sent.gather, sent.again, sent.spread)
    return [weights, seconds(sent.scatter, sent.copies, sent.reduce, sent.scatter_once)]


def _sums_s(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, layers: Number, shard: Number
) -> Number:
    """Return the seconds of what the rank with most layers and the embedding sums after its backward."""
    sums = sums_sent(c, model, grid, layers, shard, embedding=1.0, output=ends_meet(grid))
    apart = stride(grid, "pp") * np.maximum(grid.pp - 1.0, 1.0)  # the first stage and the last one
    over: dict[str, AxisPlacement] = {
        "pp": span(machine, c, np.minimum(grid.pp, 2.0), apart),
        "tp": axis_span(machine, c, grid, "tp"),
        "world": span(machine, c, grid.tp * grid.cp * grid.dp * grid.pp, 1.0),
    }
    found: Number = 0.0
    for comm in sums:
        if np.any(comm.once):
            host = comm.axis == "host"
            s = comm.bytes / (machine.host_rate * LINK_SHARE) if host else all_reduce_s(c, over[comm.axis], comm.bytes)
            found = found + comm.once * s
    return c.ends_sent * found


def _unsharded(
    c: Coefficients,
    model: ModelQuantities,
    grid: Grid,
    sent: _Sent,
    layer: LayerTime,
    layers: Number,
    micro: Number,
    held: Number,
) -> tuple[Number, Number]:
    """Return all and the exposed seconds of what travels without ZeRO-3.

    Each bucket of gradients travels beside the backward of the layers below it, each of weights beside the forward of
    those above: what is longer than that window is exposed, and always the bucket that ends or begins it, that of the
    embedding. What is hidden slows the computation beside it, since both share memory and multiprocessors.
    """
    # ZeRO-2 holds no whole gradient, so that each micro-batch scatters its own, unless the last one of a pipeline does
    scatters = sent.scatters[0] * micro + sent.scatters[1]
    first, weights = sent.gradients.each_s * micro + sent.gradients.once_s, sent.weights.once_s
    forward, backward = layers * layer.forward.total_s, layers * (layer.backward.total_s + layer.again.total_s)
    waits = (grid.zero >= 1) & (grid.zero <= c.gather_waits)
    second = np.where(waits, 0.0, weights)  # of the weights, what may travel beside computation
    bucket = bucket_parameters(c, grid.dp * grid.cp)
    alone = np.minimum(1.0, np.maximum(bucket, model.vocab * model.hidden / grid.tp) / np.maximum(held, 1.0))
    shown = np.maximum(first - c.dp_hidden * scatters * backward, np.where(c.dp_hidden > 0, alone, 1.0) * first)
    shown = shown + np.maximum(second - c.dp_hidden * forward, np.where(c.dp_hidden > 0, alone, 1.0) * second)
    after = np.where(waits, weights, 0.0)
    return first + second + after, shown + c.dp_drag * (first + second - shown) + after
