"""Time of one step of a pipeline: the best cut by measured times, its grid over time.

The timeline has one rank for each position of a pipeline. Compute is that of the rank's stages; activations travel
while others compute, gradients of data parallelism after a rank's last backward, the update when all stages are done.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from ...cluster.graph import blocking, on_link
from ...layout import Layout, micro_batches
from ...mesh import size
from ...pipelines import (
    SLACK,
    ChainUnit,
    Cut,
    PipelineGrid,
    StageTarget,
    StageTimes,
    best_cut,
    links_of_cuts,
    schedule,
    stage_times,
    timed_sharing,
)
from ...timeline import Span, Timeline
from ...workload.chain import chain_units
from ...workload.conventions import engine
from ...workload.graph import Workload
from ...workload.holdings import part_of
from ...workload.program import Comm, Stage, called_in
from ...workload.split import stage_message
from ...workload.stages import hidden_size, step_program
from ...workload.stages import sent_by_unit as units_sent
from .data_parallel import StepInputs, Times, find_fit, gradients_copy_s, straggling
from .spmd import LOSS, RESUMING, blocked_by_s, copy_s, sharding_s, update_operators


def grid_of(layout: Layout, global_batch: int) -> PipelineGrid:
    """Return the grid that a pipeline runs; InputError where the schedule cannot take that number of micro-batches."""
    return schedule(layout.schedule, layout.pp, layout.vpp, micro_batches(layout, global_batch))


def plan_cut(layout: Layout, inputs: StepInputs) -> Cut:
    """Return the best cut of the workload by measured times; InputError where a figure was not measured."""
    grid = grid_of(layout, inputs.global_batch)
    return best_cut(_chain(layout, inputs)[0], _target(layout, inputs, grid), slack=SLACK)


def predict_pipeline_step(layout: Layout, inputs: StepInputs, bucket_bytes: int) -> Timeline:
    """Return the timeline of one step of the ranks of one pipeline under its best cut, for any `bucket_bytes`.

    Raises InputError where a figure was not measured.
    """
    grid = grid_of(layout, inputs.global_batch)
    chain, sent = _chain(layout, inputs)
    bounds, target = plan_cut(layout, inputs).bounds, _target(layout, inputs, grid)
    times = Times(inputs.measured, inputs.at_work(layout))
    busy = _busy(stage_times(chain, target, bounds), target, times.of(RESUMING)[0])
    links = _links(layout, inputs)
    at_once = [1 if link is None else links[link].at_once for link in links_of_cuts(grid)]
    timing = timed_sharing(grid, busy, times.slowdown, at_once)
    blocked = [tuple(map(sum, zip(*sent[first:end], strict=True))) for first, end in itertools.pairwise(bounds)]
    data_s = inputs.data_s * grid.micro_batches
    spans: list[Span] = []
    free_s = []
    for rank, row in enumerate(grid.rows):
        spans.append(Span(rank, "data", "data", 0.0, data_s))
        now = data_s
        for action in row:
            start, end = (data_s + t for t in timing.intervals[action])
            forward = action.kind == "F"
            if start > now:
                name = "recv_activation" if forward else "recv_gradient"
                spans.append(Span(rank, "comm", name, now, start, detail=str(action)))
            computed = end
            if end > start and action.kind != "W":
                computed -= blocked[action.stage][0 if forward else 1] * (end - start) / busy.of(action)
            name = "forward" if forward else "backward"
            spans.append(Span(rank, "compute", name, start, computed, detail=str(action)))
            if computed < end:
                spans.append(Span(rank, "comm", "collectives", computed, end, detail=str(action)))
            now = end
        free_s.append(now)
    late = straggling(inputs.measured, layout.world_size, together=layout.pp, busy=inputs.at_work(layout))
    drained = max(free_s) * (1 + late)
    program = step_program(inputs.workload, layout, grid.micro_batches, bucket_bytes=bucket_bytes, bounds=bounds)
    for rank, (now, held) in enumerate(zip(free_s, _parameters(inputs, grid, bounds), strict=True)):
        stages = [program.stages[stage] for stage in grid.stages_of(rank)]
        spans += _end_of_step(layout, inputs, rank, now, drained, held / inputs.workload.parameters, stages)
    return Timeline(spans=tuple(spans), source="predicted")


def _end_of_step(
    layout: Layout, inputs: StepInputs, rank: int, now: float, drained: float, share: float, stages: Sequence[Stage]
) -> list[Span]:
    """Return what a rank does when its row is done: wait for the others, sum gradients, update, sum the loss.

    The rank holds `share` of the parameters.
    """
    times = Times(inputs.measured, inputs.at_work(layout))
    update_s = share * sum(times.of(operator)[0] for operator in update_operators(inputs.workload, layout))
    sums = [comm for stage in stages for comm in stage.sums]
    behind = [comm for stage in stages for unit in stage.units for comm in unit.backward.behind]
    copies = [comm for comm in behind if comm.axis == "replica"]  # of what each copy has scattered inside
    buckets = [comm for stage in stages for comm in stage.gradients]
    gathers = [comm for stage in stages for comm in stage.parameters]
    inside, spans = {"tp", "host"}, []
    for lane, name, seconds in (
        ("comm", "drain", drained - now),
        *(("comm", "all_reduce", _shared_s(layout, inputs, comm)) for comm in sums if comm.axis == "pp"),
        *(("comm", comm.collective, _summed_s(inputs, layout, comm)) for comm in buckets),
        *(("comm", comm.collective, blocked_by_s(inputs, layout, comm)) for comm in copies),
        *(("comm", comm.collective, blocked_by_s(inputs, layout, comm)) for comm in sums if comm.axis in inside),
        ("compute", "optimizer", update_s),
        *(("comm", comm.collective, blocked_by_s(inputs, layout, comm)) for comm in gathers),
        *(("comm", comm.collective, blocked_by_s(inputs, layout, comm)) for comm in sums if comm.axis == "world"),
        ("comm", LOSS.collective, blocked_by_s(inputs, layout, LOSS)),
    ):
        spans.append(Span(rank, lane, name, now, now + seconds))  # type: ignore[arg-type]
        now += seconds
    return spans


def _target(layout: Layout, inputs: StepInputs, grid: PipelineGrid) -> StageTarget:
    """Return the pipeline's ranks and links: a message is work for its ends, whatever it takes on the link."""
    sent = message_bytes(layout, inputs.workload)
    return StageTarget.of(grid, links=[(link.work_s, link.all_s / sent) for link in _links(layout, inputs)])


class CutLink(NamedTuple):
    """The cost of messages of some size at a cut, and how many pipelines share a link there."""

    work_s: float  # of a message, for both its ends
    all_s: float  # until all that are under way at once are there
    at_once: int


def _links(layout: Layout, inputs: StepInputs, size_bytes: int | None = None) -> list[CutLink]:
    """Return the links of all cuts, for messages of that size or those with the activations of a micro-batch.

    The ranks of tensor and context parallelism send at once and go on together: one pipeline, the last message counts.
    """
    sent = size_bytes or message_bytes(layout, inputs.workload)
    links = []
    for cut in range(layout.pp if layout.vpp > 1 else layout.pp - 1):
        work, link = (
            find_fit(inputs.measured, name("send_recv"), inputs.backend, layout.pp, sent, cut=cut)
            for name in (blocking, on_link)
        )
        pipelines = max(1, link.at_once // (layout.tp * layout.cp))
        links.append(CutLink(work.time_s(sent), link.time_s(sent), pipelines))
    return links


def message_bytes(layout: Layout, workload: Workload) -> int:
    """Return the bytes of one micro-batch that cross a cut of a pipeline, on one rank of tp and cp."""
    residual = workload.tokens // layout.cp * hidden_size(workload)
    return int(stage_message(residual, layout, engine(workload.precision)))


def _shared_s(layout: Layout, inputs: StepInputs, comm: Comm) -> float:
    """Return the seconds in which the first and the last stage sum the gradient of the matrix that both use.

    Each sends the other as much as it has, over the slowest of the links between; the last pipeline finds it free.
    """
    return max(link.work_s + link.all_s / link.at_once for link in _links(layout, inputs, comm.size_bytes))


def _summed_s(inputs: StepInputs, layout: Layout, bucket: Comm) -> float:
    ranks = size(layout, bucket.axis)
    fit = find_fit(inputs.measured, bucket.collective, inputs.backend, ranks, bucket.size_bytes, dtype=bucket.dtype)
    return fit.time_s(bucket.size_bytes)


def _busy(times: StageTimes, target: StageTarget, resuming_s: float) -> StageTimes:
    """Return what occupies the ranks: the work of a message is half at either end, the rest of it on the link.

    Each action but the second half of a split backward begins after a wait.
    """
    work_s = [link[0] if link else 0.0 for link in target.links]
    more_s = [resuming_s + (a + b) / 2 for a, b in zip([0.0, *work_s], [*work_s, 0.0], strict=True)]
    return StageTimes(
        forward_s=tuple(map(sum, zip(times.forward_s, more_s, strict=True))),
        backward_s=tuple(map(sum, zip(times.backward_s, more_s, strict=True))),
        weight_s=times.weight_s,
        transfer_s=tuple(all_s - own_s for all_s, own_s in zip(times.transfer_s, work_s, strict=True)),
    )


def _chain(layout: Layout, inputs: StepInputs) -> tuple[list[ChainUnit], list[tuple[float, float]]]:
    """Return the units with their measured times, and what of forward and backward of each is blocking collectives.

    Averages per micro-batch: only the first skips gradient accumulation, and ZeRO 2 gathers weights once a step. The
    sum over copies of a sharded model comes at the end of the step.
    """
    times = Times(inputs.measured, inputs.at_work(layout))
    count = micro_batches(layout, inputs.global_batch)
    sharded_s = sharding_s(layout, inputs.workload, times, index=count - 1)
    sent, own = [], []
    every = [layer for layer in inputs.workload.layers for _ in range(layer.count)]
    for layer, unit in zip(every, units_sent(inputs.workload, layout), strict=True):
        moved = [[comm for comm in (*each.ahead, *each.behind) if comm.axis != "replica"] for each in unit.both]
        seconds, copied_s = [], []
        for each, weights in zip(unit.both, moved, strict=True):
            waits_s = sum(blocked_by_s(inputs, layout, comm) for comm in called_in(each.comms))
            often = [float(comm.in_step(count)) / count for comm in weights]
            pairs = list(zip(often, weights, strict=True))
            seconds.append(waits_s + sum(n * blocked_by_s(inputs, layout, comm) for n, comm in pairs))
            copied_s.append(sum(n * copy_s(inputs, layout, (comm,)) for n, comm in pairs))
        added_s = gradients_copy_s(inputs, layer.parameters, inputs.at_work(layout)) * (1 - 1 / count)
        host_s = times.recomputing(layer, layout.recompute)
        weights_s = sharded_s[1] + copied_s[1] + added_s
        sent.append((seconds[0], seconds[1]))
        own.append((sharded_s[0] + copied_s[0] + host_s[0], weights_s + host_s[1], weights_s))
    chain = chain_units(inputs.workload, times.of, recompute=layout.recompute)
    return [
        dataclasses.replace(
            unit,
            forward_s=unit.forward_s + sent_s[0] + own_s[0],
            backward_s=unit.backward_s + sent_s[1] + own_s[1],
            weight_s=unit.weight_s + own_s[2],
        )
        for unit, sent_s, own_s in zip(chain, sent, own, strict=True)
    ], sent


def _parameters(inputs: StepInputs, grid: PipelineGrid, bounds: Sequence[int]) -> list[int]:
    """Return the parameters that each rank of a pipeline holds, a second copy of a tied matrix with them."""
    each = [layer for layer in inputs.workload.layers for _ in range(layer.count)]
    of_stage = [each[first:end] for first, end in itertools.pairwise(bounds)]
    of_rank = [[layer for stage in grid.stages_of(rank) for layer in of_stage[stage]] for rank in range(grid.ranks)]
    return [part_of(inputs.workload, layers).parameters for layers in of_rank]
