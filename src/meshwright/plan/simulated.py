"""A layout as the simulator takes it: the cost model's seconds of computation, the bytes that each layer communicates.

The closed formulas of `cost` and the simulator start from the same computation; they differ in what communication
takes: here every message goes over its links, beside all others.
"""

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from ..cluster.graph import Cluster, Fabric
from ..layout import Layout, micro_batches
from ..mesh import Axis
from ..simulate.axes import Comm
from ..simulate.nodes import NodesTopology
from ..simulate.problem import Costs, Disturbance
from ..simulate.step import Pass, Stage, StepProgram, simulate_step
from ..timeline import Timeline
from .cost.coefficients import Coefficients
from .cost.layer import HALF_BYTES, Layer, layer_s
from .cost.price import Setting, coefficients_of, machine_of, node_group_of, price
from .cost.quantities import Grid, Model
from .cost.step import head_s, parameters_of_rank


def simulate_plan(
    setting: Setting, layout: Layout, *, routing: str | None = None, disturbance: Disturbance | None = None,
    stragglers: Mapping[int, float] | None = None,
) -> Timeline:  # fmt: skip
    """Simulate one step of a layout on the setting's cluster; InputError where it does not fit there."""
    program = step_program(setting, layout)
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


def step_program(setting: Setting, layout: Layout) -> StepProgram:
    """Return what one step of a layout computes and communicates, stage by stage."""
    c, machine, model = coefficients_of(setting), machine_of(setting), Model.of(setting.architecture)
    grid = Grid.of([layout])
    seconds = layer_s(machine, c, model, grid, float(setting.seq_len))
    head = [float(np.ravel(s)[0]) for s in head_s(machine, c, model, grid, layout.mbs * setting.seq_len / layout.cp)]
    counts = _layers(int(model.layers), layout.pp * layout.vpp)
    prices = price(setting, grid)
    stages = []
    for number, layers in enumerate(counts):
        last = number == len(counts) - 1
        held = float(np.ravel(parameters_of_rank(model, grid, float(layers)))[0])
        stages.append(_stage(setting, layout, c, seconds, layers, head if last else [0.0, 0.0], held))
    return StepProgram(
        layout=layout,
        micro_batches=micro_batches(layout, setting.global_batch),
        stages=tuple(stages),
        optimizer_s=float(prices.optimizer_s[0]) + float(c.step_s * c.pace),
    )


def _stage(
    setting: Setting, layout: Layout, c: Coefficients, seconds: Layer, layers: int, head: list[float], held: float
) -> Stage:
    pace = float(c.pace)
    forward, backward, again = (
        float(np.ravel(part.compute_s)[0]) for part in (seconds.forward, seconds.backward, seconds.again)
    )
    inside = _inside(setting, layout, c)
    twice = (1 if layout.recompute == "full" else 0) + 1
    each = held / layers
    over: Axis = "shard" if layout.replicas > 1 else "data"
    gather = Comm(axis=over, collective="all_gather", bytes=round(HALF_BYTES * each))
    scatter = Comm(axis=over, collective="reduce_scatter", bytes=round(float(c.gradient_bytes) * each))
    rings = _rings(setting, layout)
    alone = layout.pp == 1  # in a pipeline weights stay gathered and gradients are summed whole, as `cost` has it
    zero3 = layout.zero == 3 and alone
    scattered = layout.zero >= 2 and alone
    all_reduce = Comm(axis="data", collective="all_reduce", bytes=scatter.bytes)
    shards = layout.dp * layout.cp // layout.replicas
    summed = Comm(axis="replica", collective="all_reduce", bytes=round(scatter.bytes / shards))
    once: tuple[Comm, ...] = () if scattered else (scatter,) if layout.zero else (all_reduce,)
    once += (summed,) if layout.replicas > 1 else ()  # copies of a sharded model: once a step, as `cost` has it
    return Stage(
        forward=Pass(
            compute_s=(layers * forward + head[0] + float(c.micro_s)) * pace,
            layers=layers,
            comms=inside,
            ahead=rings + ((gather,) if zero3 else ()),
        ),
        backward=Pass(
            compute_s=(layers * (backward + again) + head[1]) * pace,
            layers=layers,
            comms=inside * twice,
            ahead=rings * 2 + ((gather,) if zero3 else ()),
            behind=(scatter,) if scattered else (),
        ),
        output_bytes=round(_activation_bytes(setting, layout) / (layout.tp if layout.sp or c.scatter > 0 else 1)),
        gradients=once * layers,
        parameters=(replace(gather, bytes=round(HALF_BYTES * held)),) if layout.zero and not zero3 else (),
    )


def _inside(setting: Setting, layout: Layout, c: Coefficients) -> tuple[Comm, ...]:
    """Return the exposed collectives of one direction of a layer: two of tensor parallelism, two of the experts."""
    found: list[Comm] = []
    if layout.tp > 1:
        size = round(_activation_bytes(setting, layout) * (1 - float(c.tp_hidden)))
        names = ("all_gather", "reduce_scatter") if layout.sp else ("all_reduce",)
        found += [Comm(axis="tp", collective=name, bytes=size) for name in names * 2]
    model = setting.architecture
    if layout.ep > 1 and model.experts:
        share = model.moe_layers / model.num_hidden_layers * float(c.ep_exposed)
        sent = _activation_bytes(setting, layout) * model.experts_per_token / (layout.tp if layout.sp else 1)
        found += [Comm(axis="ep", collective="all_to_all", bytes=round(sent * share))] * 2
    return tuple(found)


def _rings(setting: Setting, layout: Layout) -> tuple[Comm, ...]:
    """Return what passes keys and values along the cp axis, hidden behind attention as far as it lasts."""
    if layout.cp == 1:
        return ()
    model = setting.architecture
    size = HALF_BYTES * layout.mbs * setting.seq_len * 2 * model.num_key_value_heads * model.head_dim / layout.tp
    return (Comm(axis="cp", collective="all_gather", bytes=round(size)),)


def _activation_bytes(setting: Setting, layout: Layout) -> float:
    return HALF_BYTES * layout.mbs * setting.seq_len / layout.cp * setting.architecture.hidden_size


def _layers(layers: int, stages: int) -> list[int]:
    """Return the layers of each stage; where they do not divide, the first stages have one more."""
    each, rest = divmod(layers, stages)
    return [each + (number < rest) for number in range(stages)]
