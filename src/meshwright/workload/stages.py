"""The program of a step of one layout: what `split` says of a layer, put together stage by stage of a pipeline."""

import math
from collections.abc import Sequence

import msgspec

from ..layout import Layout
from ..mesh import Axis, size
from ..pipelines import schedule
from .conventions import Conventions, engine
from .elements import DOUBLE_BYTES, SINGLE_BYTES
from .graph import Layer, Workload
from .holdings import held_by
from .program import Comm, Number, Stage, StepProgram, Unit
from .split import LayerTraffic, Sizes, context_exchange, expert_exchange, stage_message, tensor_exchange
from .weight_traffic import WeightTraffic, called, has_matrix_twice, outside_of_layers

NORM_BYTES = DOUBLE_BYTES  # the sum of squares of a gradient
LOSS_VALUES = 3  # single ones of a row travel where the vocabulary is cut: highest logit, sum, chosen logit
ENDS = frozenset({"embedding", "output"})  # units outside of the stack of layers


def step_program(
    workload: Workload, layout: Layout, micro_batches: int, *, bucket_bytes: int = 2**62, bounds: Sequence[int] = (),
    held: bool = False,
) -> StepProgram:  # fmt: skip
    """Return what a step of one rank of tp, cp and dp sends, stage by stage; with `held`, also what it holds.

    `workload` is one rank's share of a micro-batch (`transformer.describe_workload`). Stage s has the units
    `bounds[s]` to `bounds[s + 1]` of the chain of embedding, layers and output.
    """
    c = engine(workload.precision)
    chain = sent_by_unit(workload, layout)
    bounds = bounds or (0, len(chain))
    holders = rank_of_stages(layout, micro_batches)
    message = int(stage_message(_sizes(workload, layout).residual, layout, c))
    stages = []
    for number, rank in enumerate(holders):
        buckets: list[WeightTraffic] = []
        sums: tuple[Comm, ...] = ()
        returning: tuple[Comm, ...] = ()
        if number == holders.index(rank):  # the stage of the rank whose backward ends last
            own = [n for stage, holder in enumerate(holders) if holder == rank for n in _span(bounds, stage)]
            buckets = _buckets(workload, layout, own, bucket_bytes, c)
            leaving, returning = _crossing(workload, layout, own, c)
            sums = _sums(workload, layout, own, c) + leaving
        stages.append(
            Stage(
                units=_rooted(workload, layout, chain, _span(bounds, number), c),
                output_bytes=message if number + 1 < len(holders) else 0,
                gradients=tuple(comm for bucket in buckets for comm in bucket.bucket),
                sums=sums,
                parameters=returning + tuple(comm for bucket in buckets for comm in bucket.updated),
            )
        )
    return StepProgram(
        layout=layout,
        micro_batches=micro_batches,
        stages=tuple(stages),
        held=held_by(workload, layout, micro_batches, bounds) if held else (),
    )


def rank_of_stages(layout: Layout, micro_batches: int) -> tuple[int, ...]:
    """Return the pipeline rank of each stage."""
    return schedule(layout.schedule, layout.pp, layout.vpp, micro_batches).rank_of_stage if layout.pp > 1 else (0,)


def sent_by_unit(workload: Workload, layout: Layout) -> list[Unit]:
    """Return what each unit of the chain sends: the embedding, every layer for itself, the output.

    Where a pipeline has a tied matrix twice, the output's unit has the copy.
    """
    found, c = [], engine(workload.precision)
    for layer in workload.layers:
        exchange = layer_exchange(workload, layout, layer, c)
        routed = layer.expert_parameters if layout.ep > 1 else 0
        held = _held(workload, layout, layer)
        staying = held if stays_whole(workload, layer, c) else 0
        weights = WeightTraffic.of(layout, c, held - routed, routed, staying=staying).unit()
        again = exchange.again if layout.recompute != "none" else ()
        backward = called(again + exchange.backward)
        unit = Unit(
            name=layer.name,
            forward=msgspec.structs.replace(weights.forward, comms=called(exchange.forward)),
            backward=msgspec.structs.replace(weights.backward, comms=backward),
        )
        found += [unit] * layer.count
    return found


def _held(workload: Workload, layout: Layout, layer: Layer) -> int:
    """Return the parameters of a unit of the chain, of the output with its copy of a tied matrix."""
    is_output = layer is workload.layers[-1]
    copied = is_output and has_matrix_twice(layout, tied=is_tied(workload))
    return layer.parameters + (workload.layers[0].parameters if copied else 0)


def _rooted(workload: Workload, layout: Layout, chain: Sequence[Unit], span: range, c: Conventions) -> tuple[Unit, ...]:
    """Return the units of a stage, of which those outside of the layers have their weights in units of their own."""
    ends = {0: workload.layers[0], len(chain) - 1: workload.layers[-1]}
    mine = [ends[number] for number in span if number in ends]
    held = sum(_held(workload, layout, layer) for layer in mine)
    staying = sum(_held(workload, layout, layer) for layer in mine if stays_whole(workload, layer, c))
    before, behind = outside_of_layers(layout, c, held, staying)
    if not before:
        return tuple(chain[number] for number in span)
    between = (_without_weights(chain[number]) if number in ends else chain[number] for number in span)
    return (*before, *between, *behind)


def _without_weights(unit: Unit) -> Unit:
    forward, backward = (msgspec.structs.replace(one, ahead=(), behind=()) for one in unit.both)
    return msgspec.structs.replace(unit, forward=forward, backward=backward)


def layer_exchange(workload: Workload, layout: Layout, layer: Layer, c: Conventions) -> LayerTraffic:
    """Return what activations one layer, the embedding or the output sends."""
    sizes = _sizes(workload, layout, layer)
    if not layer.recomputable:
        return _end_exchange(sizes, layout, c, rows=sizes.residual // hidden_size(workload), layer=layer)
    if any(operator.kind == "dropout" for operator in layer.operators):  # which comes after the last sum
        c = msgspec.structs.replace(c, stops_early=0)
    parts = [exchange(sizes, layout, c) for exchange in (tensor_exchange, context_exchange)]
    parts += [expert_exchange(sizes, layout, c)] if sizes.experts else []
    return LayerTraffic(*(tuple(comm for each in parts for comm in each[way]) for way in range(3)))


def _end_exchange(s: Sizes, layout: Layout, c: Conventions, *, rows: Number, layer: Layer) -> LayerTraffic:
    """Return what the embedding or the output with its loss sends along tp."""
    if layout.tp == 1:
        return LayerTraffic((), ())
    whole = Comm(
        axis="tp", collective="all_reduce", bytes=s.residual * c.residual_bytes, element_bytes=c.residual_bytes
    )
    gather, scatter = (msgspec.structs.replace(whole, collective=name) for name in ("all_gather", "reduce_scatter"))
    if layer.name == "embedding":
        return LayerTraffic((scatter,), (gather,)) if layout.sp else LayerTraffic((whole,), ())
    values = Comm(axis="tp", collective="all_reduce", bytes=SINGLE_BYTES * rows, calls=LOSS_VALUES)
    return LayerTraffic((gather, values), (scatter,)) if layout.sp else LayerTraffic((values,), (whole,))


def _sizes(workload: Workload, layout: Layout, layer: Layer | None = None) -> Sizes:
    hidden = hidden_size(workload)
    residual = workload.micro_batch * (workload.seq_len // layout.cp) * hidden
    keys_values = chosen = queries = 0
    for operator in layer.operators if layer is not None else ():
        if operator.kind == "context_attention":
            batch, heads, kv_heads, length, width, ranks = operator.shape
            queries = batch * length * heads * width
            keys_values = 2 * batch * length * ranks * kv_heads * width
        if operator.kind == "swiglu" and layer is not None and layer.experts:
            chosen = operator.shape[0]
    experts = layer.experts if layer is not None else 0
    return Sizes(residual, keys_values, chosen * hidden, chosen, experts, queries)


def hidden_size(workload: Workload) -> int:
    """Return the features of the residual stream."""
    return workload.parameter_shapes[0][1]


def is_tied(workload: Workload) -> bool:
    """Return whether the output uses the embedding's matrix."""
    return workload.layers[-1].parameters < workload.layers[0].parameters


def stays_whole(workload: Workload, layer: Layer, c: Conventions) -> bool:
    """Return whether a layer's weights stay whole from forward to backward under ZeRO 3: some outside of the stack."""
    shared = layer is workload.layers[-1] or is_tied(workload)
    return not layer.recomputable and bool(c.root_stays == 1 or (c.root_stays == 2 and shared))


def updated(workload: Workload, layout: Layout, held: Sequence[int] | None = None) -> dict[Axis, int]:
    """Return how many parameters a rank updates of some units of the chain, or of all, by who shares them."""
    chain = range(sum(layer.count for layer in workload.layers)) if held is None else held
    found: dict[Axis, int] = {}
    for shape, axis in held_shapes(workload, layout, chain):
        over: Axis = "shard" if axis == "data" and layout.zero >= 2 else axis
        found[over] = found.get(over, 0) + math.prod(shape)
    return {axis: count // size(layout, axis) if layout.zero else count for axis, count in found.items()}


def _crossing(
    workload: Workload, layout: Layout, held: Sequence[int], c: Conventions
) -> tuple[tuple[Comm, ...], tuple[Comm, ...]]:
    """Return what crosses to the host before the update of the units on a rank, and back to the device after it.

    Under offload=parameters weights and gradients have crossed with what ZeRO sends, but for experts of one rank.
    """
    every = {"data": 0, "edp": 0}
    for shape, axis in held_shapes(workload, layout, held):
        every[axis] += math.prod(shape)
    moved = WeightTraffic.of(layout, c, every["data"], every["edp"])
    return moved.leaving, moved.returning


def _span(bounds: Sequence[int], stage: int) -> range:
    return range(bounds[stage], bounds[stage + 1])


def held_shapes(workload: Workload, layout: Layout, held: Sequence[int]) -> list[tuple[tuple[int, ...], Axis]]:
    """Return the shapes of the parameters of some units of the chain, in the module's order, and who shares them."""
    shapes, count = list(workload.parameter_shapes), workload.layers[1].count
    tail = 1 if is_tied(workload) else 2
    each = (len(shapes) - 1 - tail) // count
    found: list[tuple[tuple[int, ...], Axis]] = []
    for number in held:
        if number == 0:
            mine = shapes[:1]
        elif number <= count:
            mine = shapes[1 + (number - 1) * each : 1 + number * each]
        else:
            mine = shapes[-tail:] + (shapes[:1] if is_tied(workload) and 0 not in held else [])
        found += [(shape, "edp" if layout.ep > 1 and len(shape) == 3 else "data") for shape in mine]
    return found


def _buckets(
    workload: Workload, layout: Layout, held: Sequence[int], bucket_bytes: int, c: Conventions
) -> list[WeightTraffic]:
    """Return the buckets of gradients of the units on a rank, in the order in which backward fills them."""
    if layout.zero >= 2:
        return []
    current: dict[Axis, int] = {}
    found: list[WeightTraffic] = []

    def close(axis: Axis) -> None:
        ranks, elements = size(layout, axis), current.pop(axis)
        padded = -(-elements // ranks) * ranks if layout.zero else elements
        found.append(WeightTraffic.of(layout, c, *((0, padded) if axis == "edp" else (padded, 0))))

    for shape, axis in reversed(held_shapes(workload, layout, held)):
        current[axis] = current.get(axis, 0) + math.prod(shape)
        if c.gradient_bytes * current[axis] >= bucket_bytes:
            close(axis)
    for axis in list(current):
        close(axis)
    return found


def _sums(workload: Workload, layout: Layout, held: Sequence[int], c: Conventions) -> tuple[Comm, ...]:
    """Return the sums after backward of the units on a rank.

    Of gradients of which ranks hold parts: of a matrix that two stages use, of norms and routers under sequence
    parallelism; and the norm of the whole gradient.
    """
    found: list[tuple[Axis, int]] = []
    last = sum(layer.count for layer in workload.layers) - 1
    if layout.pp > 1 and is_tied(workload) and (0 in held) != (last in held):
        shards = size(layout, "shard") if layout.zero >= 2 else 1
        found.append(("pp", int(c.gradient_bytes) * workload.layers[0].parameters // shards))
    if layout.sp:
        of_rows = sum(shape[0] for shape, _ in held_shapes(workload, layout, held) if len(shape) == 1)
        of_rows += sum(workload.layers[1].experts * hidden_size(workload) for number in held if 0 < number < last)
        shards = size(layout, "data") // layout.replicas if layout.zero else 1
        found.append(("tp", int(c.gradient_bytes) * of_rows // shards))
    if layout.world_size > 1 and not layout.is_plain:
        found.append(("world", NORM_BYTES))
    sums: list[Comm] = []
    for axis, bytes_ in found:
        summed = Comm(axis=axis, collective="all_reduce", bytes=bytes_, calls=0, once=1)
        there, back = (
            msgspec.structs.replace(summed, axis="host", collective=name) for name in ("to_device", "to_host")
        )
        away = layout.offload == "parameters" and axis != "world"  # gradients on the host, which devices sum
        sums += [there, summed, back] if away else [summed]
    return tuple(sums)
