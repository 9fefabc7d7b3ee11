"""Time of one layer for one micro-batch on one rank, forward and backward, with what travels inside it.

Shapes: T tokens of the micro-batch on this rank (micro-batch x sequence / cp), h hidden, f the network's width, all
divided by tp where Megatron's column and row cuts divide them (Shoeybi et al. 2019, arXiv 1909.08053).
"""

from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from ...workload.elements import HALF_BYTES, SINGLE_BYTES
from ...workload.program import Comm
from ...workload.routing import nodes_beside, nodes_reached
from ...workload.split import LayerTraffic, Sizes, context_exchange, expert_exchange, tensor_exchange
from .adapters import adapters_s, unpacking_s
from .attention import flash_s, recurrence_s, unfused_s
from .axis_traffic import Axis, is_never
from .coefficients import Coefficients
from .collective import AxisPlacement, all_to_all_s, axis_span, span
from .host import LINK_SHARE
from .products import linear_s
from .quantities import Grid, Machine, ModelQuantities, Number
from .saved_activations import away_bytes, is_again, is_kept, repeated_share
from .sent import layer_sizes

OUTER_PASSES = 10.0  # norms, residual sums and dropout: reads and writes of T x h in the forward
INNER_PASSES = 2.0  # activation function: reads and writes of each T x f
EXPERT_PRODUCTS = 2.0  # of one expert: gate and up together, and down
# bytes of an element that the two norms of a layer move as operators of single precision, each written and read again:
# conversion, square, mean, product, conversion back, weight (LlamaRMSNorm of transformers), less those counted above
NORMS_APART_BYTES = 2 * (7.0 * SINGLE_BYTES + 4.0 * HALF_BYTES - 2.0 * HALF_BYTES)
NORM_SHARE = 0.4  # of the first: two norms read and write T x h
SORTS = 4.0  # passes over rows that are exchanged for heads: read and written before it and after it
BACKWARD_PASSES = 2.0  # of the forward's element-wise bytes
ROUTING_PASSES = 6.0  # of rows that are sorted by expert, and back: a read, an index and a write each
# over what products of experts with biases return: biases are added expert by expert and the parts joined, after the
# second product weighted, in single precision (4 to 14 passes); the clamped activation between both is of several
# operators (NVIDIA/Megatron-LM:megatron/core/transformer/moe/experts.py, _apply_bias and bias_act_func)
BIAS_PASSES = 12.0


@dataclass(frozen=True, slots=True)
class PassSeconds:
    """Seconds of one direction of a layer: compute, and collectives that nothing hides."""

    compute_s: Number
    exposed_s: Number
    hidden_s: Number

    @property
    def total_s(self) -> Number:
        """Seconds that the layer takes."""
        return self.compute_s + self.exposed_s


@dataclass(frozen=True, slots=True)
class LayerTime:
    """One layer: its forward, its backward, and what recomputation adds to the backward."""

    forward: PassSeconds
    backward: PassSeconds
    again: PassSeconds


def layer_s(machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number) -> LayerTime:
    """Return the seconds of the average layer, experts included where the model has them."""
    c = _scaled(c, grid)
    tokens = grid.mbs * model.rows(seq_len) / grid.cp
    attention = _attention(machine, c, model, grid, seq_len)
    projections = _projections(machine, c, model, grid, tokens)
    network = _network(machine, c, model, grid, tokens)
    outer, inner = _element_wise(machine, c, model, grid, tokens)
    share = model.moe_share
    sizes = layer_sizes(model, grid, tokens)
    comm = _tensor_parallel(c, machine, sizes, grid)
    ring = _context_parallel(c, machine, sizes, grid, attention)
    routed = [seconds * share for seconds in _expert_parallel(machine, c, model, sizes, grid)]
    moved = outer + inner
    unpacking = unpacking_s(machine, c, model, grid)
    adapted = [seconds + unpacking for seconds in adapters_s(machine, c, model, grid, tokens)]
    forward_gpu = projections[0] + network[0] + attention[0] + moved + adapted[0]
    backward_gpu = projections[1] + network[1] + attention[1] + BACKWARD_PASSES * moved + adapted[1]
    shown = 1.0 - tensor_hidden(machine, c, grid)
    exposed_tp, exposed_tp_backward, exposed_tp_again = (seconds * shown for seconds in comm)
    floor = c.launch_s * _fallback(c, model, grid)
    routing_floor = (c.launch_moe_s + c.launch_expert_s * _expert_kernels(machine, model, grid)) * c.moe_pace
    floor = np.where(share > 0, share * np.maximum(floor, routing_floor) + (1.0 - share) * floor, floor)
    power = np.where((c.host_waits > 0) & (share > 0), 1.0, np.where(grid.tp == 1, 3.0, 2.0))
    forward = _pass(forward_gpu, exposed_tp + ring[0] + routed[0], comm[0] - exposed_tp, floor, power)
    exposed = exposed_tp_backward + ring[1] + routed[1]
    backward = _pass(backward_gpu, exposed, comm[1] - exposed_tp_backward, 2.0 * floor, power)
    full = grid.recompute == 2
    selective = grid.recompute == 1
    products = projections[0] + network[0]
    part = c.selective_products * products + c.selective_elements * moved + c.selective_attention * attention[0]
    if np.any(c.modules_again):
        named = _modules(c, model, attention[0], projections[0], network[0], outer, inner)
        part = np.where(c.modules_again > 0, named, part)
    if np.any(c.results_kept):
        unnamed = _unnamed(c, model, attention[0], projections[0], network[0], moved)
        part = np.where(c.results_kept > 0, unnamed, part)
    whole: Number = repeated_share(c, model, grid) if np.any(c.layers_again) else 1.0
    repeated, routed_alone = sent_again(c, model, grid)
    again = PassSeconds(
        compute_s=np.where(full, whole * forward.compute_s, np.where(selective, part, 0.0)),
        exposed_s=repeated * (exposed_tp_again + ring[0] + routed[2]) + routed_alone * routed[2],
        hidden_s=repeated * (comm[2] - exposed_tp_again),
    )
    found = LayerTime(forward, backward, again)
    return _with_copies(machine, c, model, grid, seq_len, found) if np.any(c.results_away) else found


def sent_again(c: Coefficients, model: ModelQuantities, grid: Grid) -> tuple[Number, Number]:
    """Return the share of a layer's collectives that recomputation calls again, and of its experts' that it does alone.

    Selective recomputation that goes by names calls none again but the experts', where their results are not kept.
    """
    full, selective = grid.recompute == 2, grid.recompute == 1
    repeated = np.where(full, 1.0, np.where(selective, c.selective_comm, 0.0))
    routed: Number = 0.0
    if np.any(c.modules_again):
        routed = np.where(selective & (c.modules_again > 0), is_again(c, "moe"), 0.0)
        repeated = np.where(selective & (c.modules_again > 0), 0.0, repeated)
    if np.any(c.results_kept):
        routed = np.where(selective & (c.results_kept > 0), 1.0, routed)
    if np.any(c.layers_again):
        repeated = np.where(full, repeated_share(c, model, grid), repeated)
    return repeated, routed


def _with_copies(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number, layer: LayerTime
) -> LayerTime:
    """Return a layer whose activations go to the host and come back, beside what it computes.

    What leaves beside the forward may still be on its way while the backward of later layers runs: what is longer
    than both together is waited for.
    """
    dense, routed = (away_bytes(machine, c, model, grid, seq_len, moe) for moe in (False, True))
    both = (1.0 - model.moe_share) * dense + model.moe_share * routed
    copies_s = 2.0 * both / (machine.host_rate * LINK_SHARE)
    waited = np.maximum(copies_s - layer.forward.total_s - layer.backward.total_s - layer.again.total_s, 0.0)
    last = layer.backward
    backward = PassSeconds(last.compute_s, last.exposed_s + waited, last.hidden_s + copies_s - waited)
    return LayerTime(layer.forward, backward, layer.again)


def _scaled(c: Coefficients, grid: Grid) -> Coefficients:
    """Return the constants with what a recipe's scales for rows or blocks make of a layer's products and casts."""
    if not np.any(np.not_equal(c.scaled, 1.0)):
        return c
    rate = np.where(grid.tp > 1, c.scaled_cut, c.scaled)
    return replace(c, product=c.product * rate, cast=c.cast / c.scaled)


def _modules(
    c: Coefficients, model: ModelQuantities, attention: Number, projections: Number, network: Number,
    outer: Number, inner: Number,
) -> Number:  # fmt: skip
    """Return the seconds of the modules of a layer that are computed again by name, from those of a forward's parts.

    Of a network, its share of the weights that a token of the average layer is multiplied with.
    """
    sparse, dense = model.moe_share, model.ffn * model.plain_share
    routed, shared = sparse * model.expert_ffn * model.experts_per_token, sparse * model.shared_ffn
    every = np.maximum(dense + routed + shared, 1.0)
    moe = is_again(c, "moe")
    networks = (
        is_again(c, "mlp") * dense + moe * (routed + shared) + (1.0 - moe) * is_again(c, "shared_experts") * shared
    )
    return (
        is_again(c, "core_attn") * attention
        + is_again(c, "layernorm") * outer * NORM_SHARE
        + is_again(c, "mla_up_proj") * projections * model.lifted_weights / model.attention_weights
        + (1.0 - moe) * is_again(c, "moe_act") * inner * routed / every
        + networks / every * (network + inner)
    )


def _unnamed(
    c: Coefficients, model: ModelQuantities, attention: Number, projections: Number, network: Number, moved: Number
) -> Number:
    """Return the seconds of what a checkpoint by names does not keep, from those of a forward's parts.

    The last product of a dense network is never repeated: nothing in its layer's backward reads what it returns.
    """
    routed = model.moe_share * model.expert_ffn * model.experts_per_token
    plain = model.ffn * model.plain_share + model.moe_share * model.shared_ffn
    out = model.mixer_out * model.hidden / model.attention_weights
    first = (model.matrices - 1.0) / model.matrices
    networks = routed + (1.0 - is_kept(c, "mlpwi")) * first * plain
    return (
        (1.0 - is_kept(c, "qkv_proj")) * projections * (1.0 - out)
        + (1.0 - is_kept(c, "context")) * attention
        + (1.0 - is_kept(c, "out_proj")) * projections * out
        + networks / np.maximum(routed + plain, 1.0) * network
        + moved
    )


def _pass(gpu_s: Number, exposed_s: Number, hidden_s: Number, floor_s: Number, power: Number) -> PassSeconds:
    """Return a pass whose kernels the host must launch: the longer of the GPU's time and the host's, smoothed.

    (gpu^3 + host^3)^(1/3): where both need about as long, each waits for the other in turn, small kernels for their
    launch and launches for large kernels. Ranks of a tensor-parallel group wait for one another's hosts too, at every
    collective: powers of two there. The published runs of one node prefer both to a plain maximum. A host that waits
    for the GPU in each layer launches nothing ahead: the sum of both, a power of one.
    """
    busy = gpu_s + exposed_s
    squares = busy * busy + floor_s * floor_s
    cubes = busy * busy * busy + floor_s * floor_s * floor_s
    smooth = np.where(power == 3.0, np.cbrt(cubes), np.sqrt(squares))
    return PassSeconds(np.where(power == 1.0, busy + floor_s, smooth) - exposed_s, exposed_s, hidden_s)


def _fallback(c: Coefficients, model: ModelQuantities, grid: Grid) -> Number:
    split = (grid.mbs * model.heads / grid.tp) % 4 > 0
    return np.where(np.logical_and(split, c.flash == 0), c.launch_fallback, 1.0)


def _expert_kernels(machine: Machine, model: ModelQuantities, grid: Grid) -> Number:
    """Return the kernels of a rank's experts in a forward, where each expert has its own.

    Two products each; in eight bits or fewer what enters each of them is cast, and its transpose for the backward.
    """
    each = np.where(machine.product_bytes < HALF_BYTES, EXPERT_PRODUCTS * 3.0, EXPERT_PRODUCTS)
    return np.maximum(model.experts / grid.ep, 1.0) * each


def _attention(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number
) -> tuple[Number, Number]:
    fused = flash_s(machine, c, model, grid, seq_len)
    apart = unfused_s(machine, c, model, grid, seq_len)
    scores = np.where(c.flash > 0, fused[0], apart[0]), np.where(c.flash > 0, fused[1], apart[1])
    scanned = recurrence_s(machine, c, model, grid, grid.mbs * seq_len / grid.cp)
    return scores[0] + scanned[0], scores[1] + scanned[1]


def _projections(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, tokens: Number
) -> tuple[Number, Number]:
    """Return seconds of the projections into and out of the attention (latent ones as products of equal weight)."""
    out = model.mixer_out / grid.tp
    into = model.attention_weights / model.hidden / grid.tp - out
    a = linear_s(machine, c, tokens, np.maximum(into, 1.0), model.hidden)
    b = linear_s(machine, c, tokens, model.hidden, np.maximum(out, 1.0))
    there = np.greater(model.attention_weights, 0.0)  # a layer may be a network alone
    return (a[0] + b[0]) * there, (a[1] + b[1]) * there


def _network(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, tokens: Number
) -> tuple[Number, Number]:
    """Return seconds of the feed-forward network, averaged over layers with and without experts."""
    share, plain = model.moe_share, model.plain_share
    dense = _mlp(machine, c, model, tokens, model.ffn / grid.tp)
    if not np.any(share):
        return dense[0] * plain, dense[1] * plain
    routed = _routed_network(machine, c, model, grid, tokens)
    shared = _mlp(machine, c, model, tokens, np.maximum(model.shared_ffn, 1.0) / grid.tp)
    moe = [(routed[i] + shared[i] * (model.shared_ffn > 0)) * c.moe_pace for i in (0, 1)]
    return share * moe[0] + plain * dense[0], share * moe[1] + plain * dense[1]


def _routed_network(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, tokens: Number
) -> tuple[Number, Number]:
    """Return seconds of the experts of a rank: one product each of their rows, and passes over these rows.

    Kernels for all experts of a rank do no worse than one product of the shape of each, timed alone: 1.1 to 1.3 times
    as well for 128 to 9,832 rows an expert on B200 (MooreThreads/SimuMax:configs/system/b200_bf16_ceperm.json,
    group_matmul), 1.2 to 1.5 times for 2,048 and 4,096 on H100 (NVIDIA/TransformerEngine, pull request 2045). What
    experts cost beyond products are bytes: rows permuted, padded and weighted (`routing`), and biases. In a narrower
    stream rows are as wide as it is.
    """
    stream = model.hidden * model.stream
    held, cut = np.maximum(model.experts / grid.ep, 1.0), grid.expert_cut
    rows = np.maximum(tokens * model.experts_per_token * cut / np.maximum(model.experts, 1.0), 1.0)
    width = np.maximum(model.expert_ffn, 1.0) / model.stream * grid.ep / (cut * grid.tp)
    each = _mlp(machine, c, model, rows, width, stream)
    rate = machine.memory_rate * c.memory
    own = grid.expert_tp / grid.tp  # of the tokens: where experts are not cut, each rank of tp sorts its own
    permuted = ROUTING_PASSES * HALF_BYTES * tokens * own * model.experts_per_token * stream * c.routing
    added = (
        0.0
        if not np.any(model.expert_bias)
        else model.expert_bias * BIAS_PASSES * HALF_BYTES * held * rows * ((model.matrices - 1) * width + stream)
    )
    passes = (permuted + added) / rate, (permuted + BACKWARD_PASSES * added) / rate
    found = [held * each[i] * c.imbalance + passes[i] for i in (0, 1)]  # of the rank with most rows
    return found[0], found[1]


def _mlp(
    machine: Machine, c: Coefficients, model: ModelQuantities, rows: Number, width: Number, stream: Number | None = None
) -> tuple[Number, Number]:
    """Return seconds of a network of this width; `stream` is that of its rows, of the residual stream by default."""
    stream, width = model.hidden if stream is None else stream, np.maximum(width, 1.0)
    up = linear_s(machine, c, rows, (model.matrices - 1) * width, stream)
    down = linear_s(machine, c, rows, stream, width)
    return up[0] + down[0], up[1] + down[1]


def _element_wise(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, tokens: Number
) -> tuple[Number, Number]:
    """Return seconds of what is bound by memory in a forward: outside and inside the tensor-parallel region.

    Sequence parallelism divides the outer part over tp too (Korthikanti et al. 2022).
    """
    routed = model.expert_ffn / model.stream * model.experts_per_token
    width = model.ffn * model.plain_share + model.moe_share * (routed + model.shared_ffn)
    rate = machine.memory_rate * c.memory
    stream = tokens * model.hidden / np.where(grid.sp > 0, grid.tp, 1.0)
    outer = OUTER_PASSES * HALF_BYTES * stream * c.element_wise + c.norms_single * NORMS_APART_BYTES * stream
    inner = INNER_PASSES * HALF_BYTES * tokens * (model.matrices - 1) * width / grid.tp * c.element_wise
    return outer / rate, inner / rate


def _tensor_parallel(c: Coefficients, machine: Machine, sizes: Sizes, grid: Grid) -> tuple[Number, Number, Number]:
    """Return seconds of the collectives of forward, of backward, and of what recomputation calls again."""
    axis = Axis(c, axis_span(machine, c, grid, "tp"))
    exchange = tensor_exchange(sizes, grid, c)
    return axis.total_s(exchange.forward), axis.total_s(exchange.backward), axis.total_s(exchange.again)


def tensor_hidden(machine: Machine, c: Coefficients, grid: Grid) -> Number:
    """Return the share of the tensor-parallel collectives that computation hides: none between nodes.

    Transformer Engine's overlap and torch's symmetric memory write into peers' memory, over the GPUs' own links alone
    (NVIDIA/TransformerEngine, issue 1071, and pull request 1470 of racks). XLA's goes over a torus too.
    """
    over = axis_span(machine, c, grid, "tp")
    return np.where(over.crosses & np.logical_not(over.on_torus), 0.0, c.tp_hidden)


def _context_parallel(
    c: Coefficients, machine: Machine, sizes: Sizes, grid: Grid, attention: tuple[Number, Number]
) -> tuple[Number, Number]:
    """Return what sending keys and values takes, round a ring beyond the attention that hides it.

    Rows that are exchanged for heads are sorted by rank before and by sequence after, and nothing hides them.
    """
    over = axis_span(machine, c, grid, "cp")
    axis = Axis(c, over)
    exchange: LayerTraffic = context_exchange(sizes, grid, c)
    ways = []
    for comms, beside in zip((exchange.forward, exchange.backward), attention, strict=True):
        ring = axis.total_s(comm for comm in comms if comm.collective != "all_to_all")
        shown = np.where(c.keys_ring > 0, np.maximum(ring - beside, (1.0 - c.tp_hidden) * ring), ring)
        swaps = [comm for comm in comms if comm.collective == "all_to_all"]
        sorting_s = sum(comm.calls * SORTS * comm.bytes / (machine.memory_rate * c.memory) for comm in swaps)
        swapped = sorting_s + sum(comm.calls * all_to_all_s(machine, c, over, comm.bytes) for comm in swaps)
        ways.append((shown + swapped) * (grid.cp > 1))
    return ways[0], ways[1]


def _expert_parallel(
    machine: Machine, c: Coefficients, model: ModelQuantities, sizes: Sizes, grid: Grid
) -> list[Number]:
    """Return seconds of what experts send forwards, backwards and again: rows to them and back, messages of routers."""
    over = expert_span(machine, c, grid)
    sent, once = copies_sent(c, model, over)
    axis = Axis(c, axis_span(machine, c, grid, "tp"))
    known: dict[int, Number] = {}  # by the identity of the bytes, which the traffic of all ways has in common

    def rows_s(comm: Comm) -> Number:
        if id(comm.bytes) not in known:
            known[id(comm.bytes)] = all_to_all_s(machine, c, over, sent * comm.bytes, once=once)
        return comm.calls * known[id(comm.bytes)]

    ways = []
    traffic = expert_exchange(sizes, grid, c)
    for comms in traffic:
        rows = sum(rows_s(comm) for comm in comms if comm.axis == "ep" and not is_never(comm))
        chosen = axis.total_s(comm for comm in comms if comm.axis == "tp")
        ways.append(rows * c.ep_exposed * c.moe_pace * c.imbalance + chosen)
    return ways


def copies_sent(c: Coefficients, model: ModelQuantities, over: AxisPlacement) -> tuple[Number, Number]:
    """Return the share of the rows for experts that is sent, and what of that share leaves for other nodes once.

    All of them, or where a dispatcher sends a row once to each rank that some of its experts are on, as many; those for
    ranks of one other node go there once and are passed on.
    """
    each = np.maximum(model.experts_per_token, 1.0)
    places = over.ranks, over.ranks / over.inside
    reached = [nodes_reached(one, each, model.expert_groups, model.top_groups) for one in places]
    if np.any(c.experts_beside):
        beside = [nodes_beside(one, each, np.maximum(model.experts, 1.0)) for one in places]
        reached = [np.where(c.experts_beside > 0, near, far) for near, far in zip(beside, reached, strict=True)]
    ranks, nodes = (np.minimum(one / each, 1.0) for one in reached)
    once = c.routed_once > 0
    return np.where(once, ranks, 1.0), np.where(once, nodes / ranks, 1.0)


def expert_span(machine: Machine, c: Coefficients, grid: Grid) -> AxisPlacement:
    """Return where the ranks of an expert-parallel group lie."""
    return span(machine, c, grid.ep, grid.expert_cut * grid.tp / grid.ep)
