"""Time and memory of one step of a pipeline: the best cut by measured times, its grid over time, what each rank holds.

The timeline has one rank for each position of a pipeline. Compute is that of the rank's stages; activations travel
while others compute, gradients of data parallelism after a rank's last backward, the update when all stages are done.
"""

import itertools
from collections.abc import Sequence

import msgspec

from ..layout import Layout, micro_batches
from ..pipelines import Cut, Grid, Target, best_cut, peak_in_flight, schedule, stage_times, timed
from ..timeline import Span, Timeline
from ..workload.chain import units
from ..workload.graph import Layer, Workload
from .memory import kept_activation_bytes, peak_memory_bytes
from .step import LOSS_BYTES, StepInputs, Times, collective_s

FLOAT32_BYTES = 4
SLACK = 0.02  # share by which the slowest stage may be slower if less crosses the cuts


def grid_of(layout: Layout, global_batch: int) -> Grid:
    """Return the grid that a pipeline runs; InputError where the schedule cannot take so many micro-batches."""
    return schedule(layout.schedule, layout.pp, layout.vpp, micro_batches(layout, global_batch))


def activation_bytes(workload: Workload, layout: Layout) -> int:
    """Return the bytes of one micro-batch that cross a cut, on one rank of tp and cp."""
    rows = workload.tokens // layout.cp // (layout.tp if layout.sp else 1)
    return FLOAT32_BYTES * rows * workload.layers[0].operators[0].shape[-1]


def plan_cut(layout: Layout, inputs: StepInputs) -> Cut:
    """Return the best cut of the workload by its measured times, and the links between neighbours."""
    times = Times(inputs.measured, layout.world_size)
    grid = grid_of(layout, inputs.global_batch)
    chain = units(inputs.workload, times.of, recompute=layout.recompute == "full")
    return best_cut(chain, _target(layout, inputs, grid), slack=SLACK)


def predict_pipeline_step(layout: Layout, inputs: StepInputs, cut: Cut) -> Timeline:
    """Return the timeline of one step of the ranks of one pipeline; InputError where a figure was not measured."""
    grid = grid_of(layout, inputs.global_batch)
    times = Times(inputs.measured, layout.world_size)
    chain = units(inputs.workload, times.of, recompute=layout.recompute == "full")
    timing = timed(grid, stage_times(chain, _target(layout, inputs, grid), cut.bounds))
    data_s = inputs.data_s * grid.micro_batches
    update_s = sum(times.of(operator)[0] for operator in inputs.workload.update) / layout.pp
    spans: list[Span] = []
    free_s = []
    for rank, row in enumerate(grid.rows):
        spans.append(Span(rank, "data", "data", 0.0, data_s))
        now = data_s
        for action in row:
            start, end = (data_s + t for t in timing.intervals[action])
            if start > now:
                name = "recv_activation" if action.kind == "F" else "recv_gradient"
                spans.append(Span(rank, "comm", name, now, start, detail=str(action)))
            name = "forward" if action.kind == "F" else "backward"
            spans.append(Span(rank, "compute", name, start, end, detail=str(action)))
            now = end
        free_s.append(now)
    drained = max(free_s)
    sums_s = _gradient_sums_s(layout, inputs, cut, grid)
    for rank, now in enumerate(free_s):
        if drained > now:
            spans.append(Span(rank, "comm", "drain", now, drained))
        now = drained
        for name, seconds, lane in (
            ("all_reduce", sums_s[rank], "comm"),
            ("optimizer", update_s, "compute"),
            ("all_reduce", _all_reduce_s(inputs, layout.world_size, LOSS_BYTES), "comm"),
        ):
            spans.append(Span(rank, lane, name, now, now + seconds))  # type: ignore[arg-type]
            now += seconds
    return Timeline(spans=tuple(spans), source="predicted")


def pipeline_peak_bytes(workload: Workload, layout: Layout, bounds: Sequence[int], global_batch: int) -> int:
    """Return the peak bytes of live tensors of the fullest rank of a pipeline.

    A rank holds its stages' weights and what `in_flight` micro-batches keep for backward; one of them is in backward at
    a time, as `memory.peak_memory_bytes` says for one stage alone.
    """
    grid = grid_of(layout, global_batch)
    each = [layer for layer in workload.layers for _ in range(layer.count)]
    of_stage = [each[first:end] for first, end in itertools.pairwise(bounds)]
    kept = [sum(_kept(layer, layout) for layer in layers) for layers in of_stage]
    waiting = [sum(_gradients(layer) for layer in layers) for layers in of_stage]
    in_flight = peak_in_flight(grid, kept, waiting.__getitem__)
    peaks = []
    for rank in range(grid.ranks):
        stages = grid.stages_of(rank)
        own = held_workload(workload, [layer for stage in stages for layer in of_stage[stage]])
        alone = peak_memory_bytes(own, layout, micro_batches=grid.micro_batches)
        peaks.append(alone - sum(kept[stage] for stage in stages) + in_flight[rank])
    return int(max(peaks))


def held_workload(workload: Workload, held: Sequence[Layer]) -> Workload:
    """Return the part of a workload that has these layers; a tied output without the embedding has a copy of it."""
    embedding, output = workload.layers[0], workload.layers[-1]
    hidden, vocabulary = next(op.shape[1:] for op in output.operators if op.kind == "linear")
    layers: list[Layer] = []
    for layer in held:
        if layer is output and layer.parameters < hidden * vocabulary and embedding not in held:
            layer = msgspec.structs.replace(layer, parameters=layer.parameters + embedding.parameters)
        if layers and layers[-1].name == layer.name:
            layers[-1] = msgspec.structs.replace(layers[-1], count=layers[-1].count + 1)
        else:
            layers.append(msgspec.structs.replace(layer, count=1))
    shapes = tuple((layer.count * layer.parameters,) for layer in layers)
    return msgspec.structs.replace(workload, layers=tuple(layers), parameter_shapes=shapes)


def _gradients(layer: Layer) -> int:
    """Return the bytes that wait in a split backward: of all that has weights, the gradient of what it returned."""
    columns = {"linear": 2, "rms_norm": 1}
    found = (op.shape[0] * op.shape[columns[op.kind]] for op in layer.operators if op.kind in columns)
    return FLOAT32_BYTES * sum(found)


def _kept(layer: Layer, layout: Layout) -> int:
    one = msgspec.structs.replace(layer, count=1)
    return kept_activation_bytes(
        Workload(name="", micro_batch=1, seq_len=1, layers=(one,), parameter_shapes=()), layout
    )


def _target(layout: Layout, inputs: StepInputs, grid: Grid) -> Target:
    """Return the pipeline's ranks and links: a message takes half an all-reduce of its size between two ranks."""
    size = activation_bytes(inputs.workload, layout)
    seconds = _all_reduce_s(inputs, 2, size) / 2
    return Target.of(grid, links=[(0.0, seconds / size)] * layout.pp)


def _gradient_sums_s(layout: Layout, inputs: StepInputs, cut: Cut, grid: Grid) -> list[float]:
    """Return for each rank the seconds of the sum of its gradients over the data-parallel ranks."""
    if layout.dp * layout.cp == 1:
        return [0.0] * grid.ranks
    each = [layer for layer in inputs.workload.layers for _ in range(layer.count)]
    of_stage = [sum(layer.parameters for layer in each[a:b]) for a, b in itertools.pairwise(cut.bounds)]
    held = [sum(of_stage[stage] for stage in grid.stages_of(rank)) for rank in range(grid.ranks)]
    return [_all_reduce_s(inputs, layout.dp * layout.cp, FLOAT32_BYTES * parameters) for parameters in held]


def _all_reduce_s(inputs: StepInputs, ranks: int, size_bytes: int) -> float:
    return collective_s(inputs.measured, "all_reduce", inputs.backend, ranks, size_bytes)
