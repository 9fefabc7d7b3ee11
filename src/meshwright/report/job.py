"""The output of `plan --job`: what runs today, what was assumed, and what would be faster on the same engine."""

from collections.abc import Sequence

from rich.console import Console

from ..jobs.job import HELD, Job
from ..layout import micro_batches
from ..plan.analytic.by_stage import StageMemory
from ..plan.model_facts import ModelFacts, sentence
from ..plan.search.study import PricedLayout
from ..units import counted, format_bytes, format_time
from .layout_words import layout_in_words, layout_text
from .narrow_tables import show_table
from .planning import fits_text, host_text, rows_table, show_row, show_that_fit
from .stages import show_stages


def show_job(
    console: Console,
    job: Job,
    row: PricedLayout,
    faster: Sequence[PricedLayout],
    memory_bytes: float,
    stages: Sequence[StageMemory] = (),
    facts: ModelFacts | None = None,
    *,
    engine: str | None = None,
    today: PricedLayout | None = None,
    fitting: Sequence[PricedLayout] = (),
) -> None:
    """Print a job with its price and the memory of its stages, and the layouts that beat it on an engine, or its own.

    `today` is what the job runs, where `row` is another layout that was asked for; `fitting` are changes of the row
    that fit.
    """
    head = f"{job.where}: {job.engine}" + (f" ({job.engine_version})" if job.engine_version else "")
    model = job.architecture
    named = job.model_name or (model and model.name) or f"{counted(model.num_hidden_layers if model else 0, 'layer')}"
    size = f" of {model.parameters / 1e9:.3g} B parameters" if model else ""
    console.print(
        f"{head}, {named}{size} on {counted(job.world, 'GPU')}: {job.global_batch} x "
        f"{counted(job.seq_len, 'token')} a step, {', '.join([job.precision or '', *held_words(job)])}",
        highlight=False,
    )
    if facts:
        console.print(sentence(facts), highlight=False)
    for word, lines in (("assumed", job.assumed), ("ignored", job.ignored), ("note", job.notes)):
        for line in lines:
            console.print(f"{word}: {line}", highlight=False, markup=False)
    for text in job.unpriced():
        console.print(f"ignored: {text}: no price knows it", highlight=False)
    console.print(f"layout: {layout_text(row.layout)}", highlight=False)
    if job.global_batch is not None and not job.global_batch % (row.layout.dp * row.layout.mbs):
        steps = micro_batches(row.layout, job.global_batch)
        console.print(f"in words: {layout_in_words(row.layout, steps)}", highlight=False)
    show_row(console, "what runs today" if today is None else "the layout that is asked for", row)
    need = format_bytes(row.predicted.peak_memory_bytes_per_gpu)
    have = f"{format_bytes(memory_bytes)} on the fullest GPU{host_text(row)}"
    console.print(f"it {fits_text(row)}: {need} of {have}", highlight=False)
    show_stages(console, stages)
    if job.stages:
        text = "the file cuts the stages unevenly: of its own layout the longest sets the pace, the fullest the memory"
        console.print(f"note: {text}", highlight=False, soft_wrap=True)
    if today is not None:
        console.print(f"beside what runs today: {change_text(today, row)}", highlight=False)
    if faster or not fitting:
        _show_faster(console, row, faster, engine or job.engine)
    show_that_fit(console, row, fitting)


def better_than(row: PricedLayout, rows: Sequence[PricedLayout]) -> list[PricedLayout]:
    """Return the rows that are faster than one that fits; of one that may not, what fits or takes less memory."""
    if row.fits == "fits":
        return [other for other in rows if other.predicted.step_time_s < row.predicted.step_time_s]
    need = row.predicted.peak_memory_bytes_per_gpu
    return [other for other in rows if other.fits == "fits" or other.predicted.peak_memory_bytes_per_gpu < need]


def _show_faster(console: Console, row: PricedLayout, faster: Sequence[PricedLayout], engine: str) -> None:
    """Print the layouts that an engine can run and that are faster than a row, or fit where it does not."""
    if not faster:
        better = "to be faster" if row.fits == "fits" else "to fit"
        console.print(f"no layout that {engine} can run is predicted {better}", highlight=False)
        return
    if row.fits != "fits":
        show_table(console, rows_table(f"what {_surely(faster[0])}, on {engine}", faster))
        console.print(fits_instead_text(row, faster[0]), highlight=False)
        return
    show_table(console, rows_table(f"faster on {engine}", faster))
    console.print(change_text(row, faster[0]), highlight=False)


def held_words(job: Job) -> list[str]:
    """Return how a job holds weights, logits and moments, as far as files or options say it."""
    return [f"{name} {getattr(job, name)}" for name in HELD if getattr(job, name)]


def _changes(now: PricedLayout, best: PricedLayout) -> str:
    fields = [name for name in best.layout.__struct_fields__ if name != "etp"]
    pairs = [(name, getattr(now.layout, name), getattr(best.layout, name)) for name in fields]
    if now.layout.etp is not None or best.layout.etp is not None:  # else it is the tp of both
        pairs.append(("etp", now.layout.expert_tp, best.layout.expert_tp))
    return ", ".join(f"{name} {old} to {new}" for name, old, new in pairs if old != new)


def _surely(best: PricedLayout) -> str:
    """Return what is said of the fastest layout of a list: whether it fits for sure."""
    return "fits" if best.fits == "fits" else "may fit"


def fits_instead_text(now: PricedLayout, best: PricedLayout) -> str:
    """Return what changes to the fastest layout that fits, and what its step takes."""
    took = format_time(best.predicted.step_time_s)
    return f"the fastest that {_surely(best)} takes {took} a step ({_changes(now, best)}){_doubt(now, best)}"


def change_text(now: PricedLayout, other: PricedLayout) -> str:
    """Return by how much another layout is faster or slower, and whether the error band leaves a doubt."""
    now_s, other_s = now.predicted.step_time_s, other.predicted.step_time_s
    change = max(now_s, other_s) / min(now_s, other_s) - 1
    word = f"{change:.0%} faster" if other_s <= now_s else f"takes {change:.0%} longer"
    times = f"{format_time(now_s)} to {format_time(other_s)}"
    return f"{word}: {times} ({_changes(now, other) or 'the same layout'}){_doubt(now, other, change)}"


def _doubt(now: PricedLayout, other: PricedLayout, change: float | None = None) -> str:
    """Return how far off another layout's step may be, and why, where that leaves a doubt or is more than of `now`."""
    band, before = other.predicted.error_band, now.predicted.error_band
    if band is None:
        return ""
    wider = before is not None and band > before
    why = [each for each in other.predicted.not_modelled if wider and each not in now.predicted.not_modelled]
    reasons = f": {', '.join(why)}" if why else ""
    if change is not None and change <= band:
        return f"; within the error band of {band:.0%}, so measure before you change{reasons}"
    return f"; that step is held to lie within {band:.0%}{reasons}" if wider else ""
