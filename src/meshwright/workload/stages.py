"""The program of a step of one layout from a graph of operators: the parts of each stage, which `assembly` fills in."""

import math
from collections.abc import Sequence

import msgspec

from ..layout import Layout
from ..mesh import Axis, size
from ..pipelines import schedule
from .assembly import Once, Part, StageParts, as_unit, filled
from .conventions import Conventions, engine
from .graph import Layer, Workload
from .holdings import held_by
from .program import StepProgram, Unit
from .split import LayerTraffic, Sizes, context_exchange, end_exchange, expert_exchange, tensor_exchange
from .weight_traffic import has_matrix_twice

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
    chain = _parts(workload, layout, c)
    bounds = bounds or (0, len(chain))
    holders = rank_of_stages(layout, micro_batches)
    stages = []
    for number, rank in enumerate(holders):
        once = Once()
        if number == holders.index(rank):  # the stage of the rank whose backward ends last
            own = [n for stage, holder in enumerate(holders) if holder == rank for n in _span(bounds, stage)]
            once = _once(workload, layout, own, bucket_bytes, c)
        stages.append(StageParts(tuple(chain[bounds[number] : bounds[number + 1]]), once))
    return filled(
        layout, c, micro_batches, stages, _sizes(workload, layout).residual,
        held=held_by(workload, layout, micro_batches, bounds) if held else (),
    )  # fmt: skip


def rank_of_stages(layout: Layout, micro_batches: int) -> tuple[int, ...]:
    """Return the pipeline rank of each stage."""
    return schedule(layout.schedule, layout.pp, layout.vpp, micro_batches).rank_of_stage if layout.pp > 1 else (0,)


def sent_by_unit(workload: Workload, layout: Layout) -> list[Unit]:
    """Return what each unit of the chain sends: the embedding, every layer for itself, the output.

    Where a pipeline has a tied matrix twice, the output's unit has the copy.
    """
    c = engine(workload.precision)
    return [as_unit(layout, c, part) for part in _parts(workload, layout, c)]


def _parts(workload: Workload, layout: Layout, c: Conventions) -> list[Part]:
    """Return the chain, each layer for itself."""
    found = []
    for layer in workload.layers:
        exchange = layer_exchange(workload, layout, layer, c)
        routed = layer.expert_parameters if layout.ep > 1 else 0
        held = _held(workload, layout, layer)
        part = Part(
            name=layer.name,
            exchange=exchange if layout.recompute != "none" else exchange._replace(again=()),
            dense=held - routed,
            routed=routed,
            staying=held if stays_whole(workload, layer, c) else 0,
            is_end=not layer.recomputable,
        )
        found += [part] * layer.count
    return found


def _held(workload: Workload, layout: Layout, layer: Layer) -> int:
    """Return the parameters of a unit of the chain, of the output with its copy of a tied matrix."""
    is_output = layer is workload.layers[-1]
    copied = is_output and has_matrix_twice(layout, tied=is_tied(workload))
    return layer.parameters + (workload.layers[0].parameters if copied else 0)


def layer_exchange(workload: Workload, layout: Layout, layer: Layer, c: Conventions) -> LayerTraffic:
    """Return what activations one layer, the embedding or the output sends."""
    sizes = _sizes(workload, layout, layer)
    if not layer.recomputable:
        ends = end_exchange(sizes, layout, c, rows=sizes.residual // hidden_size(workload))
        return ends.embedding if layer is workload.layers[0] else ends.output
    if any(operator.kind == "dropout" for operator in layer.operators):  # which comes after the last sum
        c = msgspec.structs.replace(c, stops_early=0)
    parts = [exchange(sizes, layout, c) for exchange in (tensor_exchange, context_exchange)]
    parts += [expert_exchange(sizes, layout, c)] if sizes.experts else []
    return LayerTraffic(*(tuple(comm for each in parts for comm in each[way]) for way in range(3)))


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


def _once(workload: Workload, layout: Layout, held: Sequence[int], bucket_bytes: int, c: Conventions) -> Once:
    """Return what a rank with these units of the chain sends once a step."""
    every = {"data": 0, "edp": 0}
    of_rows, last = 0, sum(layer.count for layer in workload.layers) - 1
    for shape, axis in held_shapes(workload, layout, held):
        every[axis] += math.prod(shape)
        of_rows += shape[0] if len(shape) == 1 else 0
    routers = sum(workload.layers[1].experts * hidden_size(workload) for number in held if 0 < number < last)
    is_shared = layout.pp > 1 and is_tied(workload) and (0 in held) != (last in held)
    return Once(
        buckets=_buckets(workload, layout, held, bucket_bytes, c),
        dense=every["data"],
        routed=every["edp"],
        tied=workload.layers[0].parameters if is_shared else 0,
        of_rows=of_rows + routers,
        is_whole=True,
    )


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
) -> list[tuple[int, int]]:
    """Return the buckets of gradients of the units on a rank, in the order in which backward fills them.

    Of each the parameters outside of routed experts and in these.
    """
    if layout.zero >= 2:
        return []
    current: dict[Axis, int] = {}
    found: list[tuple[int, int]] = []

    def close(axis: Axis) -> None:
        ranks, elements = size(layout, axis), current.pop(axis)
        padded = -(-elements // ranks) * ranks if layout.zero else elements
        found.append((0, padded) if axis == "edp" else (padded, 0))

    for shape, axis in reversed(held_shapes(workload, layout, held)):
        current[axis] = current.get(axis, 0) + math.prod(shape)
        if c.gradient_bytes * current[axis] >= bucket_bytes:
            close(axis)
    for axis in list(current):
        close(axis)
    return found
