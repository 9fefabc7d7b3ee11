"""The search of `train`: which layouts are worth measuring, and which of the measured ones is the fastest.

Plain data parallelism comes first: its figures are few and well known. Other splits are measured where nothing plain
fits, or where a plain step waits so long for its gradients that another split might be faster by more than the errors
of both prices (`is_worth_splitting`). For the same reason the winner is the layout whose step is shortest at the long
end of its error band.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from ...cluster.graph import Measurements
from ...errors import InputError
from ...layout import Candidate, Layout, Offload, Plan, micro_batches
from ...timeline import Performance, Timeline
from ...units import counted, format_bytes, format_time
from ...workload.elements import SINGLE_BYTES
from ...workload.graph import Workload
from ...workload.held import peak
from ...workload.holdings import held_by, peak_memory_bytes
from ...workload.program import Held
from ..layouts.legality import Splittable, divisors, expert_count, illegal
from ..layouts.space import RankSplit, factorisations
from ..measured.data_parallel import SPLIT_ERROR_BAND, StepInputs, performance, predict_step
from ..measured.pipeline import plan_cut, predict_pipeline_step
from ..measured.spmd import predict_spmd_step

MIN_BUCKET_BYTES = 2**20
BATCHES_PER_STAGE = 4  # micro-batches that keep a pipeline's bubble below a fifth


class SearchProblem(msgspec.Struct, frozen=True, kw_only=True):
    """The problem to plan."""

    describe: Callable[[Layout], Workload]  # what one rank computes in a micro-batch
    global_batch: int
    seq_len: int
    backend: str
    memory_bytes: int  # that all ranks of the host may take together
    runtime_bytes: int  # that the process of a rank takes before the model
    data_s_per_sequence: float  # of drawing a micro-batch
    data_s_per_draw: float = 0.0  # of drawing it, besides
    host_memory_bytes: int = 0  # of the host of accelerators, for what all ranks offload; 0: ranks are on CPUs
    busy_ranks: int | None = None  # that compute on the machine at once; None: those of a layout


def candidate_layouts(ranks: Iterable[int], global_batch: int, wanted: Layout | None = None) -> list[Layout]:
    """Return the data-parallel layouts of these ranks, of each micro-batch that divides, with and without recompute."""
    if wanted is not None:
        micro_batches(wanted, global_batch)
        return [wanted]
    found = []
    for dp in sorted(set(ranks)):
        share, rest = divmod(global_batch, dp)
        if rest or not share:
            continue
        sizes = [size for size in range(1, share + 1) if share % size == 0]
        found += [Layout(dp=dp, mbs=mbs, recompute=mode) for mbs in sizes for mode in ("none", "full")]
    if not found:
        raise InputError(
            f"train.global_batch: {counted(global_batch, 'sequence')} {'does' if global_batch == 1 else 'do'} not "
            "divide over "
            f"{', '.join(map(str, sorted(set(ranks))))} ranks"
        )
    return found


def fits(layout: Layout, problem: SearchProblem) -> bool:
    """Return whether the ranks of a layout fit into memory together, and what they offload into the host's."""
    held = _held(layout, problem)
    hosted = layout.world_size // layout.pp * sum(one.states.host for one in held)
    return bool(hosted <= problem.host_memory_bytes and _needed(layout, problem, held) <= problem.memory_bytes)


def needed_bytes(layout: Layout, problem: SearchProblem) -> int:
    """Return the bytes that all ranks of a layout take together."""
    return _needed(layout, problem, _held(layout, problem))


def _needed(layout: Layout, problem: SearchProblem, held: Sequence[Held]) -> int:
    return layout.world_size * (problem.runtime_bytes + int(peak(held).allocated))


def _held(layout: Layout, problem: SearchProblem) -> tuple[Held, ...]:
    """Return what each rank of a layout's pipeline holds."""
    return held_by(problem.describe(layout), layout, micro_batches(layout, problem.global_batch))


def shortlist(layouts: Sequence[Layout], problem: SearchProblem) -> list[Layout]:
    """Return the layouts worth measuring: of each rank count the largest micro-batch that fits, and a quarter of it.

    Recomputation only costs time where the layout fits without it.
    """
    chosen = []
    for dp in sorted({layout.dp for layout in layouts}):
        fitting = [layout for layout in layouts if layout.dp == dp and fits(layout, problem)]
        plain = [layout for layout in fitting if layout.recompute == "none"] or fitting
        if plain:
            largest = max(plain, key=lambda layout: layout.mbs)
            smaller = [layout for layout in plain if layout.mbs * 4 <= largest.mbs]
            chosen += [largest, *sorted(smaller, key=lambda layout: -layout.mbs)[:1]]
    return chosen


def splits(
    ranks: Iterable[int], model: Splittable, problem: SearchProblem, offloads: Sequence[Offload] = ("none",)
) -> list[Layout]:
    """Return a layout that fits for each way to split the model over some ranks that is not plain data parallelism.

    Of each way to factor the ranks into tp, cp, dp and pp, with each ZeRO stage: the least recomputation under which
    it fits, and with it the largest micro-batch; pipelines only as large as leaves enough of them to fill it.
    """
    found = []
    for degrees in (d for count in sorted(set(ranks)) for d in factorisations(count)):
        for switches in _switches(degrees, model, offloads):
            best = _largest_that_fits(degrees, switches, model, problem)
            if best is not None and not best.is_plain:
                found.append(best)
    return found


def too_large(layouts: Sequence[Layout], problem: SearchProblem, fitting: Sequence[Layout] = ()) -> InputError:
    """Return the error for layouts of which none fits; it names some that do."""
    instead = f"; these fit: {' | '.join(map(str, fitting))}" if fitting else ""
    least = min(layouts, key=lambda layout: needed_bytes(layout, problem))
    return InputError(
        f"not enough memory: the smallest layout ({least}) needs {format_bytes(needed_bytes(least, problem))}, "
        f"{format_bytes(problem.memory_bytes)} are free; use fewer ranks, a smaller model or a smaller batch"
        f"{instead}"
    )


def is_worth_splitting(plan: Plan) -> bool:
    """Return whether a split that never waits might beat the plan by more than the prices of both may be wrong.

    It would take as long as the plain layout of as many ranks without its exposed communication.
    """
    priced = (plan.predicted, *(other.predicted for other in plan.alternatives))
    least_s = min(predicted.step_time_s - predicted.exposed_comm_s for predicted in priced)
    return least_s * (1 + SPLIT_ERROR_BAND) < _at_worst_s(plan.predicted)


def _switches(degrees: RankSplit, model: Splittable, offloads: Sequence[Offload]) -> list[dict[str, int | Offload]]:
    """Return the other choices that go with one way to factor the ranks."""
    data = degrees.dp * degrees.cp
    zeros = (0, 1, 2, 3) if data > 1 else (0, 3) if "parameters" in offloads else (0,)  # alone FSDP2 gathers nothing
    experts = {1, max(e for e in divisors(max(1, expert_count(model))) if data % e == 0)}
    return [
        {"zero": zero, "sp": int(degrees.tp > 1), "ep": ep, "offload": offload}
        for zero in zeros
        for ep in sorted(experts)
        for offload in offloads
        if offload != "parameters" or zero >= 2
    ]


def _largest_that_fits(
    degrees: RankSplit, switches: dict[str, int | Offload], model: Splittable, problem: SearchProblem
) -> Layout | None:
    share = problem.global_batch // degrees.dp
    least_count = BATCHES_PER_STAGE * degrees.pp if degrees.pp > 1 else 1
    for recompute in ("none", "selective", "full"):
        for mbs in reversed(divisors(max(1, share))):
            if share // mbs < least_count and mbs > 1:
                continue
            fields = {"tp": degrees.tp, "cp": degrees.cp, "dp": degrees.dp, "pp": degrees.pp, **switches}
            layout = Layout(mbs=mbs, recompute=recompute, **fields)  # type: ignore[arg-type]
            if illegal(layout, model, global_batch=problem.global_batch, seq_len=problem.seq_len):
                continue
            if fits(layout, problem):
                return layout
    return None


def choose_layout(
    layouts: Sequence[Layout],
    problem: SearchProblem,
    measured: Measurements,
    *,
    peak_flops_per_s: dict[int, float],
    min_ranks: int,
) -> tuple[Plan, Timeline]:
    """Return the fastest of `layouts` on at least `min_ranks` ranks, with the others as alternatives.

    The fastest is the one with the shortest step at the long end of its error band.
    """
    priced = []
    cuts: dict[str, tuple[int, ...]] = {}
    for layout in layouts:
        inputs = StepInputs(
            workload=problem.describe(layout),
            whole=problem.describe(Layout(mbs=layout.mbs)),
            global_batch=problem.global_batch,
            measured=measured,
            backend=problem.backend,
            peak_flops_per_s=peak_flops_per_s.get(problem.busy_ranks or layout.world_size),
            busy_ranks=problem.busy_ranks,
            data_s=problem.data_s_per_draw + problem.data_s_per_sequence * layout.mbs,
        )
        if layout.pp > 1:
            cuts[str(layout)] = plan_cut(layout, inputs).bounds
        count = micro_batches(layout, problem.global_batch)
        memory = peak_memory_bytes(inputs.workload, layout, micro_batches=count)
        options: list[tuple[Performance, int, Timeline]] = []
        predict = predict_step if layout.is_plain else predict_spmd_step
        sizes = bucket_sizes(SINGLE_BYTES * inputs.workload.parameters, layout.dp)
        if layout.pp > 1:
            predict, sizes = predict_pipeline_step, sizes[:1]  # its price does not depend on them
        for bucket in sizes:
            timeline = predict(layout, inputs, bucket)
            options.append((performance(timeline, layout, inputs, memory), bucket, timeline))
        best = min(options, key=lambda option: option[0].step_time_s)
        priced.append((Candidate(layout, best[0]), best[1], best[2]))
    priced.sort(key=lambda item: _at_worst_s(item[0].predicted))
    allowed = [item for item in priced if item[0].layout.world_size >= min_ranks] or priced
    winner, bucket_bytes, timeline = allowed[0]
    others = tuple(item[0] for item in priced if item[0] is not winner)
    plan = Plan(
        layout=winner.layout,
        predicted=winner.predicted,
        global_batch_sequences=problem.global_batch,
        seq_len=problem.seq_len,
        bucket_bytes=bucket_bytes,
        cut=cuts.get(str(winner.layout), ()),
        alternatives=others,
        reason=_reason(winner, others, min_ranks),
    )
    return plan, timeline


def bucket_sizes(gradient_bytes: int, dp: int) -> list[int]:
    """Return the bucket sizes to price: all gradients at once, and halves of it down to 1 MiB."""
    sizes = [gradient_bytes]
    while dp > 1 and sizes[-1] // 2 >= MIN_BUCKET_BYTES:
        sizes.append(sizes[-1] // 2)
    return sizes


def _at_worst_s(predicted: Performance) -> float:
    return predicted.step_time_s * (1 + (predicted.error_band or 0.0))


def _reason(winner: Candidate, others: Sequence[Candidate], min_ranks: int) -> str:
    text = f"{winner.layout}: {format_time(winner.predicted.step_time_s)} a step"
    if not others:
        return text + "; the only layout that was asked for or fits"
    best = min(others, key=lambda other: _at_worst_s(other.predicted))
    ratio = best.predicted.step_time_s / winner.predicted.step_time_s
    if ratio < 1:
        return text + (
            f"; {best.layout} would take {ratio:.2f} of that, but has fewer than min_ranks = "
            f"{counted(min_ranks, 'rank')}"
        )
    return text + f"; the next, {best.layout}, takes {ratio:.2f} times as long"
