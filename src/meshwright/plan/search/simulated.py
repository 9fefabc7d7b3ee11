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
from ...workload.assembly import NOTHING, Once, Part, StageParts, filled
from ...workload.program import Comm, Stage, StepProgram
from ...workload.split import (
    EndTraffic,
    LayerTraffic,
    Sizes,
    context_exchange,
    end_exchange,
    expert_exchange,
    tensor_exchange,
)
from ...workload.stages import rank_of_stages
from ...workload.weight_traffic import called, has_matrix_twice
from ..analytic.coefficients import Coefficients
from ..analytic.host import LINK_SHARE
from ..analytic.layer import LayerTime, copies_sent, expert_span, layer_s, sent_again, tensor_hidden
from ..analytic.loads import cut_layers, output_cost
from ..analytic.price import Setting, coefficients_of, machine_of, node_group_of, price_layouts
from ..analytic.quantities import Grid, Machine, ModelQuantities
from ..analytic.rank_parameters import experts_of_rank, gathered_again, parameters_of_layers
from ..analytic.sent import layer_sizes, rows_parameters, tied_parameters
from ..analytic.states import end_parameters, further_parameters, has_tied_output, staying_parameters
from ..analytic.step import output_s, summed_s


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
    tokens = layout.mbs * float(model.rows(float(setting.seq_len))) / layout.cp
    sizes = Sizes(*(float(np.ravel(size)[0]) for size in layer_sizes(model, grid, tokens)))
    micro, shard = micro_batches(layout, setting.global_batch), layout.dp * layout.cp / layout.replicas
    repeated = tuple(float(np.ravel(share)[0]) for share in sent_again(c, model, grid))
    traffic = _traffic(setting, layout, c, machine, model, sizes, repeated)
    ranks, parts = rank_of_stages(layout, micro), []
    for number, layers in enumerate(counts):
        first, last = not number, number == len(counts) - 1
        own = _own(c, model, grid, layers, _ends(model, layout, first=first, last=last), last=last)
        summed_up = parameters_of_layers(model, grid, float(layers)) + own.outside
        summed = float(np.ravel(summed_s(machine, c, grid, summed_up, micro, shard))[0])
        beside = [head[0], head[1] + summed] if last else [0.0, summed]
        found = _parts(c, seconds, layers, beside, own, traffic, first=first, last=last)
        mine = [stage for stage, rank in enumerate(ranks) if rank == ranks[number]]
        once = _once(own, max(layers, 1), layout)
        if number == mine[0]:
            tied, of_rows = _partly(model, grid, counts, mine)
            once = once._replace(is_whole=True, tied=tied, of_rows=of_rows)
        parts.append(StageParts(found, once))
    host_rate = float(machine.host_rate * LINK_SHARE / c.pace)
    program = filled(layout, c, micro, parts, sizes.residual, adding=micro, host_bytes_per_s=host_rate)
    back_s = _back_bytes(program.stages, ranks) / host_rate if layout.offload == "optimizer" else 0.0
    return replace(program, optimizer_s=float(prices.optimizer_s[0]) - back_s + float(c.step_s * c.pace))


class _Own(NamedTuple):
    """The parameters of a stage."""

    dense: float  # of its layers, without routed experts
    routed: float  # which fewer ranks share
    outside: float  # embedding, last norm and output
    staying: float  # of these, what ZeRO 3 leaves whole from forward to backward


def _own(
    c: Coefficients, model: ModelQuantities, grid: Grid, layers: int, ends: Mapping[str, float], *, last: bool
) -> _Own:
    """Return the parameters of a stage as they are gathered."""
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
    held += again
    if last and model.mtp_layers is not None:
        dense, experts = (float(np.ravel(more)[0]) for more in further_parameters(model, grid))
        held, routed = held + dense + experts, routed + experts
    routed = routed if np.all(grid.ep > 1) else 0.0  # of one layout
    return _Own(held - routed, routed, outside, staying)


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


def _parts(
    c: Coefficients, seconds: LayerTime, layers: int, head: Sequence[float], own: _Own, traffic: "_Traffic",
    *, first: bool, last: bool,
) -> tuple[Part, ...]:  # fmt: skip
    """Return the parts of a stage: equal layers, which compute what the ends do too, and ends where they send."""
    pace = float(c.pace)
    forward, backward, again = (
        float(np.ravel(part.compute_s)[0]) for part in (seconds.forward, seconds.backward, seconds.again)
    )
    equal = Part(
        units=max(layers, 1),  # one for an end that is alone
        exchange=traffic.inside if layers else NOTHING,
        beside=traffic.ring if layers else NOTHING,
        dense=own.dense,
        routed=own.routed,
        forward_s=(layers * forward + head[0] + float(c.micro_s)) * pace,
        backward_s=(layers * (backward + again) + head[1]) * pace,
    )
    parts, outside = [equal], (own.outside, own.staying)
    if last:
        parts.append(_end("output", traffic.ends.output, *((0.0, 0.0) if first else outside)))
    if first:
        parts.insert(0, _end("embedding", traffic.ends.embedding, *outside))
    return tuple(parts)


def _end(name: str, exchange: LayerTraffic, dense: float, staying: float) -> Part:
    """Return the embedding or the output of a stage, as a unit where it sends anything."""
    return Part(
        units=1 * any(exchange), name=name, exchange=exchange, is_end=True, dense=dense, staying=staying
    )  # fmt: skip


def _once(own: _Own, units: int, layout: Layout) -> Once:
    """Return what a stage sends once of its weights: a bucket of gradients for each of its layers."""
    each = (own.dense + own.outside) / units, own.routed / units
    return Once(buckets=[each] * units if layout.zero < 2 else (), dense=own.dense + own.outside, routed=own.routed)


def _partly(
    model: ModelQuantities, grid: Grid, counts: Sequence[int], mine: Sequence[int]
) -> tuple[int, int]:  # fmt: skip
    """Return the parameters of a rank with the stages `mine` whose gradients other ranks have parts of too.

    Those of a tied matrix, and of norms and routers.
    """
    first, last = 0 in mine, len(counts) - 1 in mine
    tied = tied_parameters(model, grid) * (first != last)
    rows = rows_parameters(model, float(sum(counts[stage] for stage in mine)), 1.0 * last)
    return round(float(np.ravel(tied)[0])), round(float(np.ravel(rows)[0]))


class _Traffic(NamedTuple):
    """The traffic of activations."""

    inside: LayerTraffic  # by each layer, which waits for it
    ring: LayerTraffic  # likewise, beside its computation
    ends: EndTraffic


def _traffic(
    setting: Setting, layout: Layout, c: Coefficients, machine: Machine, model: ModelQuantities, sizes: Sizes,
    repeated: Sequence[float],
) -> _Traffic:  # fmt: skip
    """Return what layers send: of tensor and context parallelism, and of the experts of a layer's share.

    `repeated` is the share of them that recomputation calls again, and of the experts' that it does besides.
    """
    experts_in = setting.architecture
    share = experts_in.moe_layers / experts_in.num_hidden_layers if experts_in.experts else 0.0
    exchanges = [exchange(sizes, layout, c) for exchange in (tensor_exchange, context_exchange, expert_exchange)]
    over = expert_span(machine, c, Grid.of([layout]))
    sent, once = (float(np.ravel(each)[0]) for each in (copies_sent(c, model, over) if share else (1.0, 1.0)))
    shown = 1.0 - float(np.ravel(tensor_hidden(machine, c, Grid.of([layout])))[0])
    inside, rings = [], []
    for way in range(3):
        again = way == 2
        tp, cp, ep = (exchange[way] for exchange in exchanges)
        of_experts = sum(repeated) if again else 1.0
        of_layer = repeated[0] if again else 1.0
        ring = _part(cp, of_layer)
        rows = [
            replace(comm, leaving=once, bytes=comm.bytes * sent * float(c.ep_exposed)) if comm.axis == "ep" else comm
            for comm in ep
        ]
        own = (*_part(tp, shown * of_layer), *(() if c.keys_ring > 0 else ring), *_part(rows, share * of_experts))
        inside.append(called(own))
        rings.append(called(ring) if c.keys_ring > 0 else ())
    return _Traffic(LayerTraffic(*inside), LayerTraffic(*rings), _end_traffic(layout, c, sizes, model))


def _end_traffic(layout: Layout, c: Coefficients, sizes: Sizes, model: ModelQuantities) -> EndTraffic:
    if not c.ends_sent:
        return EndTraffic(NOTHING, NOTHING)
    found = end_exchange(sizes, layout, c, rows=sizes.residual / float(model.hidden))
    return EndTraffic(*(LayerTraffic(*map(called, end)) for end in found))


def _part(comms: Iterable[Comm], share: float) -> tuple[Comm, ...]:
    """Return a share of what is called: of the bytes of each call."""
    return tuple(replace(comm, bytes=comm.bytes * share) for comm in comms) if share else ()


def _layers(layers: int, layout: Layout) -> tuple[int, ...]:
    """Return the layers of each stage; where they do not divide, the first stages have one more.

    Where virtual stages divide layers + 2, embedding and output have a slot each, as `step.paced_layers` takes it.
    """
    slots = layout.pp * layout.vpp
    counted = layout.vpp > 1 and layout.pp > 1 and (layers + 2) % slots == 0
    return even_stages(layers, slots, ends=(1, 1) if counted else (0, 0))
