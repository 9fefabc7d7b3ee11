"""The choice of a layout by measured times: what the layouts need is calibrated, each is priced, one is taken."""

from collections.abc import Callable, Collection, Iterator, Sequence

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
from ..plan.search.asynchronous import worker_layout
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
    island: int = 0  # ranks of a worker of an asynchronous mode; 0: all ranks train together

    def fastest(self, plain: Sequence[Layout], others: Sequence[Layout], *, recalibrate: bool) -> Chosen:
        """Return the fastest layout: of plain ones, and of `others` too where plain ones wait long for gradients.

        Where there are no plain ones the others are measured at once.
        """
        chosen = self.measured_and_chosen(plain or others, again=recalibrate)
        if not plain or not others or not is_worth_splitting(chosen.plan):
            return chosen
        self.say(f"gradients keep {chosen.plan.layout} waiting: {len(others)} other splits are measured too")
        sure = {request.ranks for request in self.requests(plain)}
        return self.measured_and_chosen([*plain, *others], again=False, sure=sure)

    def measured_and_chosen(self, layouts: Sequence[Layout], *, again: bool, sure: Collection[int] = ()) -> Chosen:
        """Measure what these layouts need and was not measured (or all, `again`), and return the fastest of them.

        Figures of as many ranks as are in `sure` are not compared with the machine's pace now: they were just made.
        """
        asked = self.requests(layouts)
        measured = calibrate(self.host, asked, again=again, sure=sure, say=self.say)
        return self._chosen(layouts, self.problem, measured, min_ranks=self.min_ranks)

    def worker(self, job: Chosen, workers: int) -> Chosen:
        """Return one of the workers among whom the ranks of a job are shared out, on its share of the batch.

        Its program alone is priced, at the pace that operators have while the ranks of all workers compute.
        """
        layout, share = job.plan.layout, self.problem.global_batch // workers
        problem = msgspec.structs.replace(self.problem, global_batch=share, busy_ranks=layout.world_size)
        return self._chosen([worker_layout(layout, workers)], problem, job.measured, min_ranks=1)

    def requests(self, layouts: Sequence[Layout]) -> list[Request]:
        """Return what has to be measured for these layouts and their workers, by rank count."""
        return requests(layouts, self.problem, self.autocast, island=self.island)

    def _chosen(
        self, layouts: Sequence[Layout], problem: SearchProblem, measured: Measurements, *, min_ranks: int
    ) -> Chosen:
        peaks = {
            n: self.datasheet or _product_flops_per_s(measured, n, self.autocast, problem.backend)
            for n in {problem.busy_ranks or layout.world_size for layout in layouts}
        }
        plan, timeline = choose_layout(layouts, problem, measured, peak_flops_per_s=peaks, min_ranks=min_ranks)
        return Chosen(measured=measured, plan=plan, timeline=timeline)


def requests(layouts: Sequence[Layout], problem: SearchProblem, autocast: str, *, island: int = 0) -> list[Request]:
    """Return what has to be measured for these layouts, by rank count, and for their workers of `island` ranks."""
    operators: dict[int, dict[str, Operator]] = {}
    largest: dict[int, int] = {}
    besides: dict[int, set[Timed]] = {}
    blocking: dict[int, set[Timed]] = {}
    crossing: dict[int, int] = {}
    for layout, busy in _run(layouts, island):
        share = problem.global_batch * layout.world_size // busy
        needed = needs(layout, problem.describe(layout), share)
        operators.setdefault(busy, {}).update({op.key: op for op in needed.operators})
        crossing[busy] = max(needed.host_bytes, crossing.get(busy, 0))
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


def _run(layouts: Sequence[Layout], island: int) -> Iterator[tuple[Layout, int]]:
    """Yield each layout, and that of its workers of `island` ranks, with the ranks that compute at once."""
    for layout in layouts:
        yield layout, layout.world_size
        if island and layout.dp % island == 0:
            yield worker_layout(layout, layout.dp // island), layout.world_size


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
