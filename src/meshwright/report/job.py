"""The output of `plan --job`: what runs today, what was assumed, and what would be faster on the same engine."""

import itertools
from collections.abc import Sequence

from rich.console import Console

from ..jobs.job import HELD, Job
from ..plan.analytic.by_stage import StageMemory
from ..plan.model_facts import ModelFacts, sentence
from ..plan.study import PricedLayout
from ..units import counted, format_bytes, format_time
from .layout_words import layout_text
from .narrow_tables import show_table
from .planning import fits_text, rows_table, show_row


def show_job(
    console: Console,
    job: Job,
    row: PricedLayout,
    faster: Sequence[PricedLayout],
    memory_bytes: float,
    stages: Sequence[StageMemory] = (),
    facts: ModelFacts | None = None,
) -> None:
    """Print a job with its price and the memory of its stages, and the layouts of the same engine that beat it."""
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
    show_row(console, "what runs today", row)
    need = format_bytes(row.predicted.peak_memory_bytes_per_gpu)
    console.print(f"it {fits_text(row)}: {need} of {format_bytes(memory_bytes)} on the fullest GPU", highlight=False)
    if len(stages) > 1:
        console.print(f"allocated on each stage: {stages_text(stages)}", highlight=False, soft_wrap=True)
    if job.stages:
        text = "the file cuts the stages unevenly: of its own layout the longest sets the pace, the fullest the memory"
        console.print(f"note: {text}", highlight=False, soft_wrap=True)
    if not faster:
        better = "to fit" if row.fits == "does not fit" else "to be faster"
        console.print(f"no layout that {job.engine} can run is predicted {better}", highlight=False)
        return
    if row.fits == "does not fit":
        show_table(console, rows_table(f"what fits, on {job.engine}", faster))
        console.print(fits_instead_text(row, faster[0]), highlight=False)
        return
    show_table(console, rows_table(f"faster on {job.engine}", faster))
    console.print(gain_text(row, faster[0]), highlight=False)


def held_words(job: Job) -> list[str]:
    """Return how a job holds weights, logits and moments, as far as files or options say it."""
    return [f"{name} {getattr(job, name)}" for name in HELD if getattr(job, name)]


def stages_text(stages: Sequence[StageMemory]) -> str:
    """Return the memory and layers of each stage in one line, equal neighbours together."""
    parts = []
    for (text, layers), group in itertools.groupby(
        stages, lambda stage: (format_bytes(stage.allocated_bytes), stage.layers)
    ):
        same = [stage.stage for stage in group]
        places = f"{same[0]}" if len(same) == 1 else f"{same[0]}-{same[-1]}"
        parts.append(f"{places}: {text} ({layers:g} layers)")
    return ", ".join(parts)


def _changes(now: PricedLayout, best: PricedLayout) -> str:
    pairs = ((name, getattr(now.layout, name), getattr(best.layout, name)) for name in best.layout.__struct_fields__)
    return ", ".join(f"{name} {old} to {new}" for name, old, new in pairs if old != new)


def fits_instead_text(now: PricedLayout, best: PricedLayout) -> str:
    """Return what changes to the fastest layout that fits, and what its step takes."""
    return f"the fastest that fits takes {format_time(best.predicted.step_time_s)} a step ({_changes(now, best)})"


def gain_text(now: PricedLayout, best: PricedLayout) -> str:
    """Return by how much the best layout is faster, and whether the error band leaves a doubt."""
    gain = now.predicted.step_time_s / best.predicted.step_time_s - 1
    band = best.predicted.error_band
    doubt = (
        "" if band is None or gain > band else f"; within the error band of {band:.0%}, so measure before you change"
    )
    return (
        f"{gain:.0%} faster: {format_time(now.predicted.step_time_s)} to {format_time(best.predicted.step_time_s)} "
        f"({_changes(now, best)}){doubt}"
    )
