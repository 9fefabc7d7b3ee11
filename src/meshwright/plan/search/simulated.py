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
from ...mesh import Axis, size
from ...pipelines import even_stages
from ...simulate.nodes import NodesTopology
from ...simulate.problem import Costs, Disturbance
from ...simulate.step import simulate_step
from ...timeline import Timeline
from ...workload.conventions import Conventions
from ...workload.program import Comm, Number, Pass, Stage, StepProgram, Unit
from ...workload.split import (
    HostTraffic,
    LayerTraffic,
    Sharding,
    Sizes,
    context_exchange,
    expert_exchange,
    expert_traffic,
    host_traffic,
    sharding,
    stage_message,
    tensor_exchange,
)
from ...workload.stages import ROOT, holds_copy, rank_of_stages
from ..analytic.coefficients import Coefficients
from ..analytic.host import LINK_SHARE
from ..analytic.layer import LayerTime, copies_sent, expert_span, layer_s, sent_again, tensor_hidden
from ..analytic.loads import cut_layers, output_cost
from ..analytic.price import Setting, coefficients_of, machine_of, node_group_of, price_layouts
from ..analytic.quantities import Grid, Machine, ModelQuantities
from ..analytic.states import end_parameters, further_parameters, staying_parameters
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
    tied = model.head_parameters <= model.vocab * model.hidden
    apart = layout.pp > 1 and holds_copy(layout)
    return {"embedding": 1.0 * first, "output": 1.0 * (last and bool(apart or first or not tied))}


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
    units = max(layers, 1)  # one for the embedding or the output that is alone
    rooted = own.outside if c.root_stays and layout.zero >= 2 else 0.0
    every = _Moved.of(layout, c, own.dense + own.outside, own.routed)
    of_layer = _Moved.of(layout, c, (own.dense + own.outside - rooted) / units, own.routed / units)
    before, behind = _outside(layout, c, own) if rooted else ((), ())
    back = () if c.host_overlaps else _once(one.back for one in every.hosts)  # else within the update's time
    beside = c.keys_ring > 0
    several = micro_batches(layout, setting.global_batch) > 1  # FSDP2 waits for gradients that the host adds up
    waited = bool(layout.offload == "parameters" and c.shares_single > 0 and several)
    hidden = [_in_each(way) if beside else () for way in rings]
    blocking = [() if beside else _in_each(way) for way in rings]
    equal = Unit(
        forward=Pass(
            compute_s=(layers * forward + head[0] + float(c.micro_s)) * pace,
            layers=units,
            comms=blocking[0] + inside.forward,
            ahead=hidden[0] + of_layer.ahead,
        ),
        backward=Pass(
            compute_s=(layers * (backward + again) + head[1]) * pace,
            layers=units,
            comms=blocking[2] + inside.again + blocking[1] + inside.backward + (of_layer.leaving if waited else ()),
            ahead=hidden[2] + hidden[1] + of_layer.again,
            behind=of_layer.scattered + (() if waited else of_layer.leaving),
        ),
    )
    return Stage(
        units=(*(one.unit(waited=waited) for one in before), equal, *(one.unit(waited=waited) for one in behind)),
        output_bytes=round(float(stage_message(residual, layout, c))),
        gradients=of_layer.buckets * units + tuple(comm for one in (*behind, *before) for comm in one.buckets),
        sums=_once(comm for one in every.hosts for comm in (one.leave, one.leave_once)),
        parameters=back
        + _once(one.fetch for one in every.hosts)
        + tuple(_whole(comm) for sent in every.shared for comm in (sent.spread, sent.gather) if comm.once),
    )


def _outside(layout: Layout, c: Conventions, own: _Own) -> tuple[tuple["_Moved", ...], tuple["_Moved", ...]]:
    """Return what is gathered by itself outside of the layers, before them and behind them.

    That is the root, whole from the beginning of forward to the end of backward; or an embedding that does not stay
    whole, before the layers, and the output behind them.
    """
    lone = own.outside - own.staying
    if not lone:
        return (_Moved.of(layout, c, own.outside, staying=own.staying),), ()
    output = (_Moved.of(layout, c, own.staying, staying=own.staying),) if own.staying else ()
    return (_Moved.of(layout, c, lone),), output


class _Moved(NamedTuple):
    """The traffic of some parameters: between the ranks that share them, and between device and host."""

    shared: list[Sharding]
    hosts: list[HostTraffic]

    @classmethod
    def of(cls, layout: Layout, c: Conventions, dense: float, routed: float = 0.0, *, staying: float = 0.0) -> "_Moved":
        """Return what is sent of parameters outside of routed experts and in these; `staying` as in `sharding`."""
        return cls(_shared(layout, c, (dense, routed), staying), _crossing(layout, c, (dense, routed), staying))

    def unit(self, *, waited: bool) -> Unit:
        """Return these as a unit outside of the layers; gradients are `waited` for where the host adds them."""
        backward = Pass(
            comms=self.leaving if waited else (),
            ahead=self.again,
            behind=self.scattered + (() if waited else self.leaving),
        )
        return Unit(name=ROOT, forward=Pass(ahead=self.ahead), backward=backward)

    @property
    def ahead(self) -> tuple[Comm, ...]:
        """The weights of a forward: from the host, and then from the ranks that share them."""
        return _in_each(one.fetch for one in self.hosts) + _in_each(sent.gather for sent in self.shared)

    @property
    def again(self) -> tuple[Comm, ...]:
        """The weights of a backward."""
        return _in_each(one.again for one in self.hosts) + _in_each(sent.again for sent in self.shared)

    @property
    def scattered(self) -> tuple[Comm, ...]:
        """The gradients of each micro-batch."""
        return _in_each(sent.scatter for sent in self.shared)

    @property
    def leaving(self) -> tuple[Comm, ...]:
        """The gradients of each micro-batch that go to the host."""
        return _in_each(one.leave for one in self.hosts)

    @property
    def buckets(self) -> tuple[Comm, ...]:
        """The gradients of a step."""
        each = [comm for sent in self.shared for comm in (sent.scatter, sent.reduce, sent.scatter_once, sent.copies)]
        return tuple(_whole(comm) for comm in each if comm.once)


def _shared(layout: Layout, facts: Conventions, own: Sequence[float], staying: float) -> list[Sharding]:
    """Return what is sent of the parameters outside of routed experts, and of those where there are any."""
    dense, routed = own
    shards = size(layout, "shard")
    found = [sharding(dense, layout, facts, shards=shards, copies=layout.replicas, staying=staying)]
    if routed and size(layout, "edp") > 1:
        found.append(sharding(routed, layout, facts, shards=size(layout, "edp"), over="edp"))
    return found


def _crossing(layout: Layout, facts: Conventions, own: Sequence[float], staying: float) -> list[HostTraffic]:
    """Return what crosses between device and host, of the same parameters; nothing where nothing is offloaded."""
    if layout.offload == "none":
        return []
    over: Axis = "shard" if layout.zero >= 2 else "data"
    shards, offload = size(layout, over), layout.offloaded
    found = [
        host_traffic(own[0], layout, facts, offload=offload, shards=shards, copies=layout.replicas, staying=staying)
    ]
    if own[1]:
        found.append(expert_traffic(own[1], layout, facts, offload=offload, shards=size(layout, "edp")))
    return found


def _once(comms: Iterable[Comm]) -> tuple[Comm, ...]:
    """Return what is called once a step."""
    return tuple(replace(_whole(comm), calls=0) for comm in comms if comm.once)


def _whole(comm: Comm) -> Comm:
    """Return a collective of a whole number of bytes."""
    return replace(comm, bytes=round(float(comm.bytes)))


def _in_each(comms: Iterable[Comm]) -> tuple[Comm, ...]:
    """Return those collectives that each micro-batch calls."""
    return tuple(replace(_whole(comm), once=0) for comm in comms if comm.calls)


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
    called = (1.0, 1.0), (1.0, 1.0), (repeated[0], sum(repeated))  # of tp and of ep forwards, backwards, again
    ways = []
    for tp, ep, (inside, routed) in zip(tensor, experts if share else LayerTraffic((), ()), called, strict=True):
        rows = (comm for comm in ep if comm.axis == "ep")
        comms = *_part(tp, (1 - hidden) * inside), *_part(rows, share * sent * routed)
        ways.append(_in_each(replace(comm, leaving=away[comm.axis]) for comm in comms))
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
