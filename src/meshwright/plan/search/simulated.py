"""A layout as the simulator takes it: the cost model's seconds of computation, the bytes that each layer communicates.

The closed formulas of `analytic` and the simulator start from the same computation; they differ in what communication
takes: here every message goes over its links, beside all others.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from ...cluster.graph import Cluster, Fabric
from ...errors import InputError
from ...layout import Layout, micro_batches
from ...pipelines import even_stages
from ...simulate.libraries import OF_XLA
from ...simulate.nodes import NodesTopology
from ...simulate.problem import Costs, Disturbance
from ...simulate.step import simulate_step
from ...timeline import Timeline
from ...workload.program import Comm, Number, Pass, Stage, StepProgram, Unit
from ...workload.split import LayerTraffic, Sizes, context_exchange, expert_exchange, stage_message, tensor_exchange
from ...workload.stages import rank_of_stages
from ...workload.weight_traffic import WeightTraffic, called, has_matrix_twice, outside_of_layers
from ..analytic.coefficients import Coefficients
from ..analytic.host import LINK_SHARE
from ..analytic.layer import LayerTime, copies_sent, expert_span, layer_s, sent_again, tensor_hidden
from ..analytic.loads import cut_layers, output_cost
from ..analytic.price import Setting, coefficients_of, machine_of, node_group_of, price_layouts
from ..analytic.quantities import Grid, Machine, ModelQuantities
from ..analytic.states import end_parameters, further_parameters, has_tied_output, staying_parameters
from ..analytic.step import (
    experts_of_rank,
    gathered_again,
    output_s,
    parameters_of_layers,
    summed_s,
)


def simulate_plan(
    setting: Setting, layout: Layout, *, routing: str | None = None, disturbance: Disturbance | None = None,
    stragglers: Mapping[int, float] | None = None, stages: Sequence[int] = (),
) -> Timeline:  # fmt: skip
    """Simulate one step of a layout on the setting's cluster; InputError where it does not fit there.

    `stages` are the layers of the virtual stages in the order of the model, where a job cuts them in its own way.
    """
    if layout.is_folded:
        raise InputError(f"{layout}: experts folded over tp are priced by closed formulas alone, not simulated")
    program = step_program(setting, layout, stages)
    topology = NodesTopology(effective_cluster(setting), layout.world_size, routing=routing)
    return simulate_step(program, topology, costs=Costs(), disturbance=disturbance, stragglers=stragglers)


def effective_cluster(setting: Setting) -> Cluster:
    """Return the cluster with the rates and latencies that the stack's constants say software reaches."""
    c = coefficients_of(setting)
    group = node_group_of(setting.cluster)
    link = float(c.link / c.pace)
    inside = (setting.intra_bytes_per_s or group.gpu_bandwidth_bytes_per_s) * link
    node = (setting.inter_bytes_per_s or group.node_bandwidth_bytes_per_s) * float(c.network / c.pace)
    group = replace(
        group,
        gpu_bandwidth_bytes_per_s=inside,
        peer_bandwidth_bytes_per_s=group.peer_bandwidth_bytes_per_s * inside / group.gpu_bandwidth_bytes_per_s,
        mesh=tuple((a, b, rate * link) for a, b, rate in group.mesh),
        gpu_latency_s=float(c.small_s / 10.0 * c.pace),  # as the cost model takes it for a send
        nic_bandwidth_bytes_per_s=node / max(1, group.nics),
        nic_latency_s=float(c.network_latency_s * c.pace),
        count=-(-setting.gpus // group.gpus) if setting.gpus > group.gpus else group.count,
    )
    return replace(setting.cluster, groups=(group,), fabric=setting.cluster.fabric or Fabric())


def left_out_on_torus(setting: Setting) -> tuple[str, ...]:
    """Return what a simulated step lacks where nodes are a torus."""
    fabric = setting.cluster.fabric
    return (OF_XLA,) if fabric is not None and fabric.kind == "torus" and setting.cluster.num_nodes > 1 else ()


def step_program(setting: Setting, layout: Layout, stages: Sequence[int] = ()) -> StepProgram:
    """Return what one step of a layout computes and communicates, stage by stage; `stages` as `simulate_plan` has them.

    A stage without layers holds the embedding or the output alone.
    """
    c, machine, model = coefficients_of(setting), machine_of(setting), ModelQuantities.of(setting.architecture)
    grid = Grid.of([layout])
    seconds = layer_s(machine, c, model, grid, float(setting.seq_len))
    head = [float(np.ravel(s)[0]) for s in output_s(machine, c, model, grid, float(setting.seq_len))]
    output = output_cost(c, model, grid, float(setting.seq_len))
    counts = tuple(stages) or cut_layers(model, layout, output) or _layers(int(model.layers), layout)
    prices = price_layouts(setting, grid, stages)
    sizes = _sizes(setting, layout)
    micro, shard = micro_batches(layout, setting.global_batch), layout.dp * layout.cp / layout.replicas
    repeated = tuple(float(np.ravel(share)[0]) for share in sent_again(c, model, grid))
    ring = context_exchange(sizes, layout, c)
    sent = (
        _inside(setting, layout, c, machine, model, sizes, repeated),
        ring._replace(again=_part(ring.again, repeated[0])),
    )
    nothing = LayerTraffic((), ()), LayerTraffic((), ())
    programs = []
    for number, layers in enumerate(counts):
        last = number == len(counts) - 1
        ends = _ends(model, layout, first=not number, last=last)
        held, outside, staying, routed, again = (
            float(np.ravel(each)[0])
            for each in (
                parameters_of_layers(model, grid, float(layers)),
                end_parameters(model, grid, **ends),
                staying_parameters(c, model, grid, **ends),
                experts_of_rank(model, grid, float(layers)),
                gathered_again(model, grid, float(layers)),
            )
        )
        summed = float(np.ravel(summed_s(machine, c, grid, held + outside, micro, shard))[0])
        held += again
        if last and model.mtp_layers is not None:
            dense, experts = (float(np.ravel(more)[0]) for more in further_parameters(model, grid))
            held, routed = held + dense + experts, routed + experts
        routed = routed if layout.ep > 1 else 0.0
        own = _Own(held - routed, routed, outside, staying)
        beside = [head[0], head[1] + summed] if last else [0.0, summed]
        of_layer = sent if layers else nothing
        programs.append(_stage(setting, layout, c, seconds, layers, beside, own, sizes.residual, of_layer))
    host_rate = float(machine.host_rate * LINK_SHARE / c.pace)
    ranks = rank_of_stages(layout, micro)
    back_s = _back_bytes(programs, ranks) / host_rate if layout.offload == "optimizer" else 0.0
    return StepProgram(
        layout=layout,
        micro_batches=micro,
        stages=tuple(programs),
        optimizer_s=float(prices.optimizer_s[0]) - back_s + float(c.step_s * c.pace),
        host_bytes_per_s=host_rate,
    )


class _Own(NamedTuple):
    """The parameters of a stage."""

    dense: float  # of its layers, without routed experts
    routed: float  # which fewer ranks share
    outside: float  # embedding, last norm and output
    staying: float  # of these, what ZeRO 3 leaves whole from forward to backward


def _ends(model: ModelQuantities, layout: Layout, *, first: bool, last: bool) -> dict[str, float]:
    """Return what of embedding and output a stage holds: a tied matrix is not held again on the rank that has it."""
    tied = bool(has_tied_output(model))
    output = last and (first or not tied or has_matrix_twice(layout, tied=tied))
    return {"embedding": 1.0 * first, "output": 1.0 * output}


def _back_bytes(stages: Sequence[Stage], ranks: Sequence[int]) -> int:
    """Return what the rank that has most copies back from its host once it has updated, which the simulator plays."""
    of_rank = [0] * (max(ranks) + 1)
    for stage, rank in zip(stages, ranks, strict=True):
        of_rank[rank] += sum(comm.size_bytes for comm in stage.parameters if comm.axis == "host")
    return max(of_rank)


def _stage(
    setting: Setting,
    layout: Layout,
    c: Coefficients,
    seconds: LayerTime,
    layers: int,
    head: list[float],
    own: _Own,
    residual: Number,
    sent: tuple[LayerTraffic, LayerTraffic],
) -> Stage:
    """Return a stage: the root, where the stack gathers one, and equal layers, which have a part of it each elsewhere.

    `sent` is what a layer sends within tensor and expert parallelism, and round the ring of its context.
    """
    pace = float(c.pace)
    forward, backward, again = (
        float(np.ravel(part.compute_s)[0]) for part in (seconds.forward, seconds.backward, seconds.again)
    )
    inside, rings = sent
    units, micro = max(layers, 1), micro_batches(layout, setting.global_batch)  # one unit for an end that is alone
    before, behind = outside_of_layers(layout, c, own.outside, own.staying, micro_batches=micro)
    rooted = own.outside if before or behind else 0.0
    every = WeightTraffic.of(layout, c, own.dense + own.outside, own.routed)
    dense = (own.dense + own.outside - rooted) / units
    of_layer = WeightTraffic.of(layout, c, dense, own.routed / units, micro_batches=micro)
    weights = _rounded(of_layer.unit())
    beside = c.keys_ring > 0
    hidden, blocking = ([called(way) if is_one else () for way in rings] for is_one in (beside, not beside))
    equal = Unit(
        forward=Pass(
            compute_s=(layers * forward + head[0] + float(c.micro_s)) * pace,
            layers=units,
            comms=_whole(blocking[0]) + inside.forward,
            ahead=_whole(hidden[0]) + weights.forward.ahead,
        ),
        backward=Pass(
            compute_s=(layers * (backward + again) + head[1]) * pace,
            layers=units,
            comms=_whole(blocking[2]) + inside.again + _whole(blocking[1]) + inside.backward + weights.backward.comms,
            ahead=_whole(hidden[2] + hidden[1]) + weights.backward.ahead,
            behind=weights.backward.behind,
        ),
    )
    back = () if c.host_overlaps else every.returning  # else within the update's time
    return Stage(
        units=(*map(_rounded, before), equal, *map(_rounded, behind)),
        output_bytes=round(float(stage_message(residual, layout, c))),
        gradients=_whole(of_layer.bucket) * units,
        sums=_whole(every.leaving),
        parameters=_whole(back + every.updated),
    )


def _rounded(unit: Unit) -> Unit:
    """Return a unit whose collectives have whole numbers of bytes."""
    passes = (
        replace(one, comms=_whole(one.comms), ahead=_whole(one.ahead), behind=_whole(one.behind)) for one in unit.both
    )
    forward, backward = passes
    return replace(unit, forward=forward, backward=backward)


def _whole(comms: Iterable[Comm]) -> tuple[Comm, ...]:
    """Return collectives of whole numbers of bytes."""
    return tuple(replace(comm, bytes=round(float(comm.bytes))) for comm in comms)


def _inside(
    setting: Setting, layout: Layout, c: Coefficients, machine: Machine, model: ModelQuantities, sizes: Sizes,
    repeated: Sequence[float],
) -> LayerTraffic:  # fmt: skip
    """Return the exposed collectives of a layer: those of tensor parallelism, those of the experts of its share.

    `repeated` is the share of them that recomputation calls again, and of the experts' that it does besides.
    """
    experts_in = setting.architecture
    share = experts_in.moe_layers / experts_in.num_hidden_layers * float(c.ep_exposed) if experts_in.experts else 0.0
    tensor, experts = (exchange(sizes, layout, c) for exchange in (tensor_exchange, expert_exchange))
    over = expert_span(machine, c, Grid.of([layout]))
    sent, once = (float(np.ravel(each)[0]) for each in (copies_sent(c, model, over) if share else (1.0, 1.0)))
    hidden = float(np.ravel(tensor_hidden(machine, c, Grid.of([layout])))[0])
    away = {"tp": 1.0, "ep": once}
    shares = (1.0, 1.0), (1.0, 1.0), (repeated[0], sum(repeated))  # of tp and of ep forwards, backwards, again
    ways = []
    for tp, ep, (inside, routed) in zip(tensor, experts if share else LayerTraffic((), ()), shares, strict=True):
        rows = (comm for comm in ep if comm.axis == "ep")
        comms = *_part(tp, (1 - hidden) * inside), *_part(rows, share * sent * routed)
        ways.append(_whole(called(replace(comm, leaving=away[comm.axis]) for comm in comms)))
    return LayerTraffic(*ways)


def _part(comms: Iterable[Comm], share: float) -> tuple[Comm, ...]:
    """Return a share of what is called: of the bytes of each call."""
    return tuple(replace(comm, bytes=comm.bytes * share) for comm in comms) if share else ()


def _sizes(setting: Setting, layout: Layout) -> Sizes:
    """Return the elements of what a layer sends."""
    model = setting.architecture
    tokens = layout.mbs * float(ModelQuantities.of(model).rows(setting.seq_len)) / layout.cp
    kv_width = model.num_key_value_heads * model.head_dim
    return Sizes(
        residual=tokens * model.hidden_size,
        keys_values=tokens * layout.cp * 2 * kv_width / layout.tp,
        routed=tokens * model.experts_per_token * model.hidden_size,
        chosen=tokens * model.experts_per_token,
        experts=model.experts,
        queries=tokens * model.num_attention_heads * model.head_dim / layout.tp,
    )


def _layers(layers: int, layout: Layout) -> tuple[int, ...]:
    """Return the layers of each stage; where they do not divide, the first stages have one more.

    Where virtual stages divide layers + 2, embedding and output have a slot each, as `step.paced_layers` takes it.
    """
    slots = layout.pp * layout.vpp
    counted = layout.vpp > 1 and layout.pp > 1 and (layers + 2) % slots == 0
    return even_stages(layers, slots, ends=(1, 1) if counted else (0, 0))
