"""The needs of a prediction: what is measured before the step of a layout can be priced from measured times."""

from typing import NamedTuple

from ...cluster.graph import Timed
from ...layout import Layout, micro_batches
from ...mesh import size
from ...workload.graph import Operator, Workload
from ...workload.program import Comm, StepProgram
from ...workload.stages import step_program
from .spmd import LOSS, operators_of

ALL_REDUCE = Timed("all_reduce")


class Needs(NamedTuple):
    """Operators, and collectives by the number of their ranks."""

    operators: tuple[Operator, ...]
    largest_bytes: dict[int, int]  # of a collective
    overlapped: dict[int, set[Timed]]  # collectives that go on beside computation
    blocking: dict[int, set[Timed]]  # those for which ranks wait: none under plain data parallelism
    host_bytes: int = 0  # the largest transfer between a device and its host; 0: there are none


def needs(layout: Layout, workload: Workload, global_batch: int) -> Needs:
    """Return what the step of a layout needs; `workload` is that of one of its ranks."""
    program = step_program(workload, layout, micro_batches(layout, global_batch), bounds=_bounds(layout, workload))
    waited = [] if layout.is_plain else [*_waited(program), LOSS]
    crossing = [comm.size_bytes for comm in waited if comm.axis == "host"]
    waited = [comm for comm in waited if comm.axis != "host"]
    buckets = [comm for stage in program.stages for comm in stage.gradients]
    largest: dict[int, int] = {}
    overlapped: dict[int, set[Timed]] = {size(layout, "data"): {ALL_REDUCE}}
    blocking: dict[int, set[Timed]] = {}
    for comm in [*waited, *buckets, LOSS]:
        ranks = size(layout, comm.axis)
        largest[ranks] = max(comm.size_bytes, largest.get(ranks, 0))
    for comm in buckets:
        overlapped.setdefault(size(layout, comm.axis), {ALL_REDUCE}).add(Timed(comm.collective, comm.dtype))
    for comm in waited:
        blocking.setdefault(size(layout, comm.axis), set()).add(Timed(comm.collective, comm.dtype))
    if layout.pp > 1:
        message = max(stage.output_bytes for stage in program.stages)
        largest[layout.pp] = max(message, largest.get(layout.pp, 0))
        blocking.setdefault(layout.pp, set()).add(Timed("send_recv"))
    known = {ranks: bytes_ for ranks, bytes_ in sorted(largest.items()) if ranks > 1}
    return Needs(
        operators=tuple(operators_of(workload, layout)),
        largest_bytes=known,
        overlapped={ranks: names for ranks, names in overlapped.items() if ranks > 1},
        blocking={ranks: names for ranks, names in blocking.items() if ranks > 1},
        host_bytes=max(crossing, default=0),
    )


def _bounds(layout: Layout, workload: Workload) -> tuple[int, ...]:
    """Return some cut into stages: what is called does not depend on where it lies."""
    chain = sum(layer.count for layer in workload.layers)
    stages = layout.pp * layout.vpp
    return tuple(round(stage * chain / stages) for stage in range(stages + 1)) if stages > 1 else ()


def _waited(program: StepProgram) -> list[Comm]:
    """Return every collective for which ranks wait."""
    units = [unit for stage in program.stages for unit in stage.units]
    inside = [comm for unit in units for each in (unit.forward, unit.backward) for comm in each.sent]
    return [*inside, *(comm for stage in program.stages for comm in (*stage.sums, *stage.parameters))]
