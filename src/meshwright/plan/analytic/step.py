"""Time of one training step of every layout of a grid, term by term."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from ...mesh import stride
from ...workload.elements import HALF_BYTES, SINGLE_BYTES, STATES_BYTES
from ...workload.held import gradients_are_shares, updated_by_rank
from ...workload.split import sharding, stage_message
from .coefficients import Coefficients
from .collective import all_reduce_s, gather_s, span
from .distinct import LAYER, SENT, by_facts, once_each
from .further_tokens import further_s
from .host import RankParameters, hosted_s
from .layer import LayerTime, layer_s
from .loads import cut_pace, is_folded, output_cost, rank_layers
from .products import linear_s
from .quantities import Grid, Machine, ModelQuantities, Number
from .states import end_parameters, further_parameters, staying_parameters

# a logit: written, read by the cast and its gradient in half precision; cast, softmax and gradient in single precision
LOSS_BYTES = 3.0 * HALF_BYTES + 3.0 * SINGLE_BYTES
# a parameter: gradient read, master weight and two moments read and written, weight written
UPDATE_BYTES = float(SINGLE_BYTES + 2 * STATES_BYTES + HALF_BYTES)
# of a bucket, as Megatron-LM fills them: a minimum, and an amount for each data-parallel rank
BUCKET_PARAMETERS, BUCKET_PARAMETERS_A_RANK = 40e6, 1e6
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
    layer = once_each(model, grid, by_facts(LAYER, c), partial(layer_s, machine, c, model, seq_len=seq_len))
    tokens = grid.mbs * seq_len / grid.cp
    head = output_s(machine, c, model, grid, seq_len)
    most, last = paced_layers(model, grid, stages, output_cost(c, model, grid, seq_len))
    micro = global_batch / (grid.dp * grid.mbs)
    each = layer.forward.total_s + layer.backward.total_s + layer.again.total_s
    extra = head[0] + head[1]
    held, experts = with_further(model, grid, most, last)
    shown, beside = _sends_s(machine, c, model, grid, tokens, most * each)
    sends = shown + c.micro_s * grid.vpp
    added, added_by_all = _summing_s(machine, c, model, grid, held, micro, shard)
    longest = np.maximum(most * each, last * each + extra) + sends + added
    total = model.layers * each + extra + grid.pp * sends + added_by_all
    bubble = np.maximum(total - longest, 0.0) / grid.vpp * np.where(grid.schedule == 3, 1.0 / 3.0, 1.0)
    work = micro * longest
    own = RankParameters(held, experts, staying_parameters(c, model, grid, embedding=1.0, output=ends_meet(grid)))
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
    hidden = micro * most * (layer.forward.hidden_s + layer.backward.hidden_s + layer.again.hidden_s)
    exposed_sends = micro * shown
    backward = work - forward - comm - exposed_sends - micro * c.micro_s * grid.vpp
    p = c.pace
    return StepSeconds(
        total_s=total_s,
        forward_s=forward * p,
        backward_s=backward * p,
        recompute_s=again * p,
        tensor_comm_s=comm * p,
        pipeline_comm_s=exposed_sends * p,
        data_comm_s=data.exposed_s * p,
        hidden_comm_s=(hidden + micro * beside + data.hidden_s) * p,
        bubble_s=bubble * p,
        optimizer_s=update_s * p,
        other_s=(c.step_s + micro * c.micro_s * grid.vpp) * p,
    )


def _update_s(machine: Machine, c: Coefficients, grid: Grid, held: Number, experts: Number, shard: Number) -> Number:
    """Return seconds of the update on the device: of what ZeRO leaves a rank of its parameters."""
    ranks, expert_ranks = grid.sharing(shard)
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


def _sends_s(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, tokens: Number, computing_s: Number
) -> tuple[Number, Number]:
    """Return exposed and hidden seconds of a rank's sends between stages in one micro-batch.

    Each virtual stage sends activations on and gradients back. An interleaved schedule hides them beside the
    `computing_s` of the rank's layers in a micro-batch, and no more than that: a slower link sets the pace.
    """
    sent = 2.0 * grid.vpp * _send_s(machine, c, model, grid, tokens) * (grid.pp > 1)
    hidden = np.minimum(c.sends_hidden * (grid.vpp > 1) * sent, computing_s)
    return sent - hidden, hidden


def _send_s(machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, tokens: Number) -> Number:
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
    return stage_message(tokens * model.hidden, grid, c) / rate + latency


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


def ends_meet(grid: Grid) -> Number:
    """Return 1 where the rank with the embedding has the output too: without a pipeline, or where stages lie in a V."""
    return np.where(grid.pp <= 1, 1.0, 1.0 * is_folded(grid))


def parameters_of_rank(model: ModelQuantities, grid: Grid, layers: Number) -> Number:
    """Return the parameters of the rank that holds most: `layers` layers and the embedding, cut over tp."""
    ends = end_parameters(model, grid, embedding=1.0, output=ends_meet(grid))
    return parameters_of_layers(model, grid, layers) + ends


def parameters_of_layers(model: ModelQuantities, grid: Grid, layers: Number) -> Number:
    """Return the parameters that a rank of tp has of some layers."""
    own = model.held_share * layers
    return own * _matrices(model, grid) / grid.tp + own * model.small_parameters


def gathered_again(model: ModelQuantities, grid: Grid, layers: Number) -> Number:
    """Return the parameters that ZeRO-3 gathers for a layer though an earlier one, which holds them, had them too."""
    borrowed = (1.0 - model.held_share) * layers
    each = _matrices(model, grid) / grid.tp + model.small_parameters
    return np.where(grid.zero == 3, borrowed * each, 0.0)


def _matrices(model: ModelQuantities, grid: Grid) -> Number:
    """Return the weights of a mean layer, before tp cuts them."""
    network = model.matrices * model.hidden * model.ffn
    expert = model.matrices * model.hidden * model.expert_ffn
    shared = model.matrices * model.hidden * model.shared_ffn
    routed = expert * model.experts / grid.expert_cut + shared + model.hidden * model.experts
    return model.attention_weights + model.plain_share * network + model.moe_share * routed


def with_further(model: ModelQuantities, grid: Grid, most: Number, last: Number) -> tuple[Number, Number]:
    """Return the parameters of the rank that holds most, and those of routed experts among them.

    That is the one with `most` layers, or with the `last` ones and the modules that predict further tokens.
    """
    held, experts = parameters_of_rank(model, grid, most), experts_of_rank(model, grid, most)
    if model.mtp_layers is None:
        return held, experts
    dense, routed = further_parameters(model, grid)
    ending = parameters_of_rank(model, grid, last) + dense + routed
    more = (model.mtp > 0) & (ending > held)
    return np.where(more, ending, held), np.where(more, experts_of_rank(model, grid, last) + routed, experts)


def experts_of_rank(model: ModelQuantities, grid: Grid, layers: Number) -> Number:
    """Return the parameters of routed experts among those of a rank with this many layers."""
    expert = model.held_share * model.matrices * model.hidden * model.expert_ffn
    return layers * model.moe_share * expert * model.experts / grid.expert_cut / grid.tp


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
    ranks = grid.dp * grid.cp
    names = (*SENT, "recompute") if np.any(c.cut_by_cost) else SENT  # which decides where stages are cut
    sent = once_each(model, grid, names, partial(_sent_s, machine, c), *parameters, shard)
    plain, exposed_plain = _unsharded(c, model, grid, sent, layer, layers, micro, parameters.held)
    often = np.where(sent.each, micro * (sent.gather_s + sent.again_s + sent.scatter_s), sent.gather_s + sent.scatter_s)
    if np.any(c.sums_whole):
        often = np.where(sent.each, micro * (sent.gather_s + sent.again_s), sent.gather_s)
        often = often + (sent.scatters[0] * micro + sent.scatters[1]) * sent.scatter_s
    sharded = often + sent.copies_s
    busy = np.maximum(work, sharded) + c.fsdp_drag * np.minimum(work, sharded)
    exposed_sharded = busy - work
    total = np.where(grid.zero == 3, sharded, plain)
    exposed = np.where(grid.zero == 3, exposed_sharded, exposed_plain)
    exposed = np.where(ranks > 1, exposed, 0.0)
    return DataTraffic(exposed, np.where(ranks > 1, np.maximum(total - exposed, 0.0), 0.0))


@dataclass(frozen=True, slots=True)
class _Sent:
    """Seconds of one call of what data parallelism and ZeRO send; of one shard, and where nothing is sharded."""

    gather_s: Number
    again_s: Number  # of ZeRO-3, for the backward
    scatter_s: Number
    each: Number  # whether ZeRO-3 does it in each micro-batch
    copies_s: Number
    gradients_s: Number  # ZeRO-1 and -2, over all ranks
    weights_s: Number
    reduced_s: Number
    scatters: tuple[Number, Number]  # of ZeRO-2 and -3: in each micro-batch, and once a step


def _sent_s(
    machine: Machine, c: Coefficients, grid: Grid, held: Number, experts: Number, staying: Number, shard: Number
) -> _Sent:
    """Return the seconds of each collective: those of dense weights, and beside them those of `experts`.

    Expert parallelism leaves fewer copies of an expert, whose ranks are further apart: dp x cp / ep of them.
    """
    ranks, step = grid.dp * grid.cp, _data_step(grid)
    group, expert_group = grid.sharing(shard)
    dense = _shared_s(machine, c, grid, held - experts, ranks, group, step, staying=staying)
    if not np.any(experts):
        return dense
    routed = _shared_s(machine, c, grid, experts, grid.sharing(ranks)[1], expert_group, step * grid.expert_cut)
    names = ("gather_s", "again_s", "scatter_s", "copies_s", "gradients_s", "weights_s", "reduced_s")
    beside = {name: np.where(experts > 0, getattr(routed, name), 0.0) for name in names}  # none: not even a latency
    return replace(dense, **{name: getattr(dense, name) + beside[name] for name in names})


def _data_step(grid: Grid) -> Number:
    """Return how many ranks apart the ranks are that share a parameter, along dp and cp together.

    The outer of both axes is so far apart as the inner one is wide, and further where another axis lies between.
    """
    dp, cp = stride(grid, "dp"), stride(grid, "cp")
    both = np.where(dp > cp, dp / grid.cp, cp / grid.dp)
    return np.where(grid.cp <= 1, dp, np.where(grid.dp <= 1, cp, both))


def _shared_s(
    machine: Machine, c: Coefficients, grid: Grid, held: Number, ranks: Number, group: Number, step: Number,
    staying: Number = 0.0,
) -> _Sent:  # fmt: skip
    """Return the seconds of each collective of parameters that `ranks` ranks share, ZeRO-3 in groups of `group`."""
    whole = span(machine, c, ranks, step)
    inner, outer = span(machine, c, group, step), span(machine, c, ranks / group, step * group)
    sent = sharding(held, grid, c, shards=group, copies=ranks / group, staying=staying)
    buckets = np.where(np.greater(c.bucket, 0), np.maximum(held / _bucket_parameters(c, ranks), 1.0), 1.0)
    gathered = gather_s(c, inner, sent.gather.bytes)
    gradients = np.where(grid.zero >= 2, sent.scatter.bytes, sent.scatter_once.bytes)
    return _Sent(
        gather_s=gathered,
        again_s=gather_s(c, inner, sent.again.bytes) if np.any(staying) else gathered,
        scatter_s=gather_s(c, inner, sent.scatter.bytes),
        each=sent.gather.calls > 0,
        copies_s=np.where(group < ranks, all_reduce_s(c, outer, sent.copies.bytes), 0.0),
        gradients_s=buckets * gather_s(c, whole, gradients / buckets),
        weights_s=buckets * gather_s(c, whole, sent.gather.bytes / buckets),
        reduced_s=buckets * all_reduce_s(c, whole, sent.reduce.bytes / buckets),
        scatters=(sent.scatter.calls, sent.scatter.once),
    )


def _bucket_parameters(c: Coefficients, ranks: Number) -> Number:
    """Return the parameters of a bucket that `ranks` ranks sum: the stack's own, or as Megatron-LM fills it.

    Each bucket starts anew, and a ring's start grows with its ranks; so does Megatron-LM's bucket.
    """
    usual = np.maximum(BUCKET_PARAMETERS, BUCKET_PARAMETERS_A_RANK * ranks)
    return np.where(np.greater(c.bucket, 0), c.bucket, usual)


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
    gradients, weights = sent.gradients_s, sent.weights_s
    # ZeRO-2 holds no whole gradient, so that each micro-batch scatters its own, unless the last one of a pipeline does
    scatters = np.where(grid.zero == 2, sent.scatters[0] * micro + sent.scatters[1], 1.0)
    forward, backward = layers * layer.forward.total_s, layers * (layer.backward.total_s + layer.again.total_s)
    waits = (grid.zero >= 1) & (grid.zero <= c.gather_waits)
    hidden = np.where(waits, 0.0, weights)  # of the weights, what may travel beside computation
    first = np.where(grid.zero > 0, scatters * gradients, sent.reduced_s)
    second = np.where(grid.zero > 0, hidden, 0.0)
    bucket = _bucket_parameters(c, grid.dp * grid.cp)
    alone = np.minimum(1.0, np.maximum(bucket, model.vocab * model.hidden / grid.tp) / np.maximum(held, 1.0))
    shown = np.maximum(first - c.dp_hidden * scatters * backward, np.where(c.dp_hidden > 0, alone, 1.0) * first)
    shown = shown + np.maximum(second - c.dp_hidden * forward, np.where(c.dp_hidden > 0, alone, 1.0) * second)
    after = np.where(waits, weights, 0.0)
    return first + second + after, shown + c.dp_drag * (first + second - shown) + after
