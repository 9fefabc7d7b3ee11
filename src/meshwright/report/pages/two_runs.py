"""Two runs side by side: what differs in how they were split, what each part of the step cost, and how they learned."""

import msgspec

from ...errors import InputError
from ...machine_load import busy_words
from ...train.run.run_folder import RunFolder
from ...units import format_time
from ..compare import FigureRow, PartComparison, compare_parts, difference_words
from ..document import Cell, Page, Section, Table, section, table
from ..figures import parts_figure
from ..lanes import lanes_figure
from ..ranks import ranks_table, uses_of_run
from ..sections import comparison_table
from .run import curves


def two_runs_page(first: RunFolder, second: RunFolder) -> tuple[PartComparison, Page]:
    """Return the rows of both runs and their page; InputError if either has no end or both are one folder."""
    if first.path.resolve() == second.path.resolve():
        raise InputError(f"{second.path}: the same run twice; expected two run folders")
    names = _names(first, second)
    a, b = first.measured(), second.measured()
    compared = compare_parts(a, b)
    rows, largest = compared.rows, compared.culprit
    ratio = b.step_time_s / a.step_time_s
    loads = {name: busy_words(folder.loads()) for name, folder in zip(names, (first, second), strict=True)}
    beside = "".join(f"while {name} ran, {words}; " for name, words in loads.items() if words)
    verdict = (
        f"{names[1]} takes {format_time(b.step_time_s)} a step, {ratio:.2f} times the {format_time(a.step_time_s)} of "
        f"{names[0]}; {beside}{difference_words(b, a, largest)}"
    )
    comparison = PartComparison(tuple(map(_second_over_first, rows)), verdict, largest)
    measured = {names[0]: a, names[1]: b}
    timelines = {names[0]: first.timeline("measured"), names[1]: second.timeline("measured")}
    sections = (
        section("Side by side", comparison_table(comparison, (*names, "difference")), parts_figure(measured)),
        section("Layouts", _layouts(names, (first, second))),
        section("Timeline", lanes_figure(timelines)),
        section("Loss and throughput", *curves({names[0]: first.metric_rows(), names[1]: second.metric_rows()})),
        *(
            section(f"Ranks of {name}", ranks_table(uses_of_run(folder.rank_parts(), timelines[name])))
            for name, folder in zip(names, (first, second), strict=True)
        ),
    )
    kept: tuple[Section, ...] = tuple(part for part in sections if part is not None)
    return comparison, Page(title=f"{names[0]} and {names[1]}", verdict=verdict, sections=kept, kind="comparison")


def _second_over_first(row: FigureRow) -> FigureRow:
    """Return a row of the first run beside the second with the difference seen from the first."""
    return msgspec.structs.replace(row, error=row.measured / row.predicted - 1 if row.predicted else None)


def _names(first: RunFolder, second: RunFolder) -> tuple[str, str]:
    """Return the folders' names, with the folder above where they are alike."""
    a, b = first.path.resolve(), second.path.resolve()
    return (a.name, b.name) if a.name != b.name else (f"{a.parent.name}/{a.name}", f"{b.parent.name}/{b.name}")


def _layouts(names: tuple[str, str], folders: tuple[RunFolder, RunFolder]) -> Table:
    rows = []
    for name, folder in zip(names, folders, strict=True):
        plan, config, cluster = folder.plan(), folder.config(), folder.cluster()
        rows.append(
            [
                Cell(name),
                Cell(str(plan.layout)),
                Cell(str(plan.global_batch_sequences), plan.global_batch_sequences),
                Cell(str(plan.seq_len), plan.seq_len),
                Cell(config.launch.backend),
                Cell(", ".join(sorted(host.name for host in cluster.hosts)) or cluster.name),
            ]
        )
    return table(("run", "layout", "global batch", "sequence", "backend", "hosts"), rows)
