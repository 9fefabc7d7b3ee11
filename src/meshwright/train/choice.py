"""The choice of a layout by measured times: what the layouts need is calibrated, each is priced, one is taken."""

from collections.abc import Callable, Collection, Sequence

import msgspec
import torch

from .. import device
from ..bench.calibrate import Request, calibrate, peak_product
from ..cluster.graph import Host, Measurements, Timed
from ..errors import InputError
from ..hardware import load_catalogue
from ..layout import Layout, Plan
from ..plan.measured.data_parallel import sizes_to_measure
from ..plan.measured.needs import ALL_REDUCE, needs
from ..plan.search.measured_search import SearchProblem, choose_layout, is_worth_splitting
from ..timeline import Timeline
from ..workload.graph import Operator

PRODUCTS = {"": torch.float32, "bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn, "fp8-emulated": torch.bfloat16}
Say = Callable[[str], None]


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """The fastest of some layouts, with the figures that it was priced with."""

    measured: Measurements
    plan: Plan
    timeline: Timeline


class Measuring(msgspec.Struct, frozen=True, kw_only=True):
    """The means by which a job's layouts are measured and compared."""

    host: Host
    problem: SearchProblem
    autocast: str
    datasheet: float | None  # FLOP/s of a rank; None: the rate of a product is measured
    min_ranks: int
    say: Say

    def fastest(self, plain: Sequence[Layout], others: Sequence[Layout], *, recalibrate: bool) -> Chosen:
        """Return the fastest layout: of plain ones, and of `others` too where plain ones wait long for gradients.

        Where there are no plain ones the others are measured at once.
        """
        chosen = self.measured_and_chosen(plain or others, again=recalibrate)
        if not plain or not others or not is_worth_splitting(chosen.plan):
            return chosen
        self.say(f"gradients keep {chosen.plan.layout} waiting: {len(others)} other splits are measured too")
        sure = {request.ranks for request in requests(plain, self.problem, self.autocast)}
        return self.measured_and_chosen([*plain, *others], again=False, sure=sure)

    def measured_and_chosen(self, layouts: Sequence[Layout], *, again: bool, sure: Collection[int] = ()) -> Chosen:
        """Measure what these layouts need and was not measured (or all, `again`), and return the fastest of them.

        Figures of as many ranks as are in `sure` are not compared with the machine's pace now: they were just made.
        """
        asked = requests(layouts, self.problem, self.autocast)
        measured = calibrate(self.host, asked, again=again, sure=sure, say=self.say)
        peaks = {
            n: self.datasheet or _product_flops_per_s(measured, n, self.autocast, self.problem.backend)
            for n in {layout.world_size for layout in layouts}
        }
        plan, timeline = choose_layout(
            layouts, self.problem, measured, peak_flops_per_s=peaks, min_ranks=self.min_ranks
        )
        return Chosen(measured=measured, plan=plan, timeline=timeline)


def requests(layouts: Sequence[Layout], problem: SearchProblem, autocast: str) -> list[Request]:
    """Return what has to be measured for these layouts, by rank count."""
    operators: dict[int, dict[str, Operator]] = {}
    largest: dict[int, int] = {}
    besides: dict[int, set[Timed]] = {}
    blocking: dict[int, set[Timed]] = {}
    crossing: dict[int, int] = {}
    for layout in layouts:
        needed = needs(layout, problem.describe(layout), problem.global_batch)
        operators.setdefault(layout.world_size, {}).update({op.key: op for op in needed.operators})
        crossing[layout.world_size] = max(needed.host_bytes, crossing.get(layout.world_size, 0))
        for ranks, size_bytes in needed.largest_bytes.items():
            largest[ranks] = max(size_bytes, largest.get(ranks, 0))
        for ranks, names in needed.overlapped.items():
            besides.setdefault(ranks, set()).update(names)
        for ranks, names in needed.blocking.items():
            blocking.setdefault(ranks, set()).update(names)
    return [
        Request(
            ranks=ranks,
            backend=problem.backend,
            operators=tuple(operators.get(ranks, {}).values()),
            autocast=autocast,
            collective_bytes=tuple(sizes_to_measure(largest[ranks])) if ranks in largest else (),
            overlapped=tuple(sorted(besides.get(ranks, {ALL_REDUCE}))),
            blocking=tuple(sorted(blocking.get(ranks, ()))),
            host_bytes=tuple(sizes_to_measure(crossing[ranks])) if crossing.get(ranks) else (),
        )
        for ranks in sorted(operators.keys() | largest.keys())
    ]


def datasheet_flops_per_s(autocast: str, backend: str, say: Say) -> float | None:
    """Return the dense peak, in the precision of the run, of an accelerator that the catalogue knows; else None."""
    if not device.uses_accelerators(backend):
        return None
    dtype = PRODUCTS[autocast]
    try:
        peak = device.peak_flops_per_s(load_catalogue(), device.name(), dtype)
    except InputError as error:
        say(f"MFU is held against the rate of a matrix product: {error}")
        return None
    say(f"MFU is held against the dense {device.DTYPE_NAMES[dtype]} peak of the datasheet, {peak / 1e12:g} TFLOP/s")
    return peak


def _product_flops_per_s(measured: Measurements, ranks: int, autocast: str, backend: str) -> float:
    """Return the rate of a large product on one rank, all ranks busy: the yardstick of MFU without a datasheet."""
    peak = peak_product(autocast, backend)
    times = [t.forward_s for t in measured.operators if t.operator == peak.key and t.ranks == ranks]
    return peak.forward_flops / times[0]
