"""`meshwright validate`: the planner against a table of measured runs, published or your own."""

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from ..errors import InputError
from ..files import to_json
from ..hardware import load_catalogue
from ..plan.analytic import book
from ..plan.analytic.calibration import calibrations
from ..plan.tables.columns import INPUTS, MEASURED
from ..plan.tables.reading import not_read
from ..plan.tables.runs import RunRow, read_rows
from ..plan.validate import FamilyErrors, RowOutcome, Unpriced, as_json, known_models, predict, summarise, warnings
from ..report.narrow_tables import show_table
from ..units import counted, format_bytes
from .amounts import SECONDS
from .calibration import calibration_of, save_calibration
from .help_format import Brief
from .job import validate_job
from .named_cluster import with_machine_meant
from .options import JobQuestion
from .prose import say
from .stacks import stack_option

EPILOG = """\b
Example:
  meshwright validate runs.csv          errors by family, and the worst rows
  meshwright validate runs.csv --json   one object a row; summary on stderr

\b
A line a run: gpu, num_gpus, config or model_name or layers, hidden, heads,
...; seq_len, micro_batch, global_batch_sequences, tp, pp, dp, cp, ep, vpp,
zero_stage_fsdp, recompute, precision, family; --columns lists all.
Measured columns (step_time_s) may be empty: they never enter a prediction.
"""
WORST_SHOWN, UNMEASURED_SHOWN = 10, 20


@click.command(
    "validate",
    cls=Brief,
    often=("job", "measured", "calibrate", "save", "columns", "as_objects"),
    epilog=EPILOG,
    short_help="The planner against a table of measured runs.",
)
@click.argument("runs", required=False, type=click.Path(path_type=Path))
@click.option("--job", multiple=True, metavar="FILE", help="An engine's own configuration in place of a table.")
@click.option("--measured", metavar="SECONDS", type=SECONDS, help="Of one of its steps.")
@click.option("--cluster", metavar="NAME", help="It ran on: a node type of the catalogue, or a cluster file.")
@click.option("--gpus", metavar="N", type=click.IntRange(min=1), help="Where its files do not say them.")
@click.option("--model", metavar="NAME", help="The model, if its files lack it.")
@click.option("--global-batch", metavar="N", type=click.IntRange(min=1), help="Sequences a step, if they lack it.")
@click.option("--seq-len", metavar="N", type=click.IntRange(min=1), help="Tokens a sequence, if they lack it.")
@click.option(
    "--calibrate", metavar="RUNS.csv", is_eager=True, help="Measured steps of your own: they narrow what is predicted."
)
@click.option("--save", metavar="FILE", type=click.Path(path_type=Path), help="For --stack and --cluster.")
@stack_option("Of rows that name none, or what --save wrote.")
@click.option("--columns", is_flag=True, help="List the columns of a table and what they mean.")
@click.option("--json", "as_objects", is_flag=True, is_eager=True, help="One JSON object a row.")
@click.option("--hardware", multiple=True, type=click.Path(), help="TOML file with hardware of your own.")
def command(
    runs: Path | None, as_objects: bool, columns: bool, hardware: tuple[str, ...], job: tuple[str, ...],
    measured: float | None, calibrate: str | None, save: Path | None, stack: str | None, **of_job: Any,
) -> int:  # fmt: skip
    """Predict the step time of every run of a table, and say how far off the predictions are."""
    catalogue, known = load_catalogue(*hardware), book()
    if columns:
        for name, meaning in {**INPUTS, **MEASURED}.items():
            say(f"{name:<26}{meaning}", indent=26)
        return 0
    console = Console(stderr=as_objects)
    own = calibration_of(calibrate, save, stack, catalogue, console)
    if job:
        if measured is None:
            raise InputError("--job: expected --measured SECONDS with it")
        question = JobQuestion(
            files=(*job, *([str(runs)] if runs is not None else [])),
            stack=stack if own is None else own.stack,
            save=save,
            own=own,
            **of_job,
        )
        question = with_machine_meant(question, catalogue)
        return validate_job(question, measured, catalogue, as_json=as_objects)
    of_a_job = measured is not None or any(of_job.values())
    if runs is None and own is not None and not of_a_job:
        save_calibration(save, own)
        return 0
    if runs is not None and of_a_job:
        given = ["measured"] * (measured is not None) + [name for name, value in of_job.items() if value]
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise InputError(f"{options}: goes with --job FILE; each row of a table says it (--columns lists how)")
    if runs is None:
        raise InputError("expected a table of runs, or --job FILE --measured SECONDS")
    save_calibration(save, own)
    found = own or calibrations(stack, None)[0]
    default = stack if found is None else found.family or found.stack
    rows = read_rows(runs, catalogue, known, known_models(), default=default)
    outcomes = predict(rows, catalogue, known, found)
    summaries = summarise(outcomes, known)
    if as_objects:
        for outcome in outcomes:
            click.echo(to_json(as_json(outcome)))
    show_table(console, _table(summaries))
    for text in not_read(runs):
        say(text, err=True)
    for text, count in sorted(warnings(outcomes).items(), key=lambda item: -item[1]):
        say(f"{counted(count, 'row')}: {text}", err=True)
    _doubt_measured(runs, rows, outcomes)
    if not as_objects:
        _say_rows(outcomes)
    return int(bool(outcomes) and all(isinstance(outcome, Unpriced) for outcome in outcomes))


def _say_rows(outcomes: list[RowOutcome | Unpriced]) -> None:
    """Print the rows that are furthest off, those without a figure to hold them against, and those without a price."""
    priced = [outcome for outcome in outcomes if not isinstance(outcome, Unpriced)]
    with_times = [outcome for outcome in priced if outcome.error is not None]
    for outcome in sorted(with_times, key=lambda o: -abs(o.error or 0.0))[:WORST_SHOWN]:
        say(
            f"{outcome.id}: predicted {outcome.step_time_s:.4g} s, measured {outcome.measured_step_time_s:.4g} s, "
            f"{100 * (outcome.error or 0.0):+.1f} %{_held_against(outcome)}; {outcome.layout}{_memory(outcome)}"
        )
    others = [outcome for outcome in priced if outcome.error is None]
    for outcome in others[:UNMEASURED_SHOWN]:
        why = "it ran out of memory" if outcome.ran_out else "nothing was measured"
        why = "what was measured is not counted" if outcome.not_counted else why
        say(
            f"{outcome.id}: predicted {outcome.step_time_s:.4g} s{_steps_within(outcome)}; {why}; "
            f"{outcome.layout}{_memory(outcome)}"
        )
    if len(others) > UNMEASURED_SHOWN:
        more = len(others) - UNMEASURED_SHOWN
        say(f"{counted(more, 'row')} more without an error; --json prints all")
    for unpriced in (o for o in outcomes if isinstance(o, Unpriced)):
        say(f"{unpriced.id}: not priced: {unpriced.reason}")


def _doubt_measured(runs: Path, rows: list[RunRow], outcomes: list[RowOutcome | Unpriced]) -> None:
    """Say on stderr which measured cells are no figures, or figures that cannot be."""
    for row in rows:
        for text in row.unreadable:
            say(f"warning: {runs}: {row.id}: {text}", err=True)
    for outcome in outcomes:
        if not isinstance(outcome, Unpriced) and outcome.not_counted:
            measured = outcome.measured_step_time_s
            figure = "" if measured is None else f"measured {measured:.4g} s, but "
            say(
                f"warning: {runs}: {outcome.id}: not counted in the errors: {figure}{outcome.not_counted}"
                f"{_perhaps(outcome)}",
                err=True,
            )


def _held_against(outcome: RowOutcome) -> str:
    """Return what the band of a row says of its error."""
    if outcome.error_band is None:
        return ""
    band = f"its band of {100 * outcome.error_band:.1f} %"
    if outcome.is_inside:
        return f", within {band}"
    odd = "; so far off, a figure is wrong, or the run has what its row does not say" if outcome.is_far_outside else ""
    return f", outside of {band}{odd}{_perhaps(outcome)}"


def _memory(outcome: RowOutcome) -> str:
    """Return the peak of a row's fullest GPU, predicted and measured, and whether it is held to fit."""
    held = outcome.measured_peak_memory_bytes_per_gpu
    measured = "" if held is None else f", measured {format_bytes(held)}"
    measured += f" ({outcome.memory_perhaps})" if outcome.memory_perhaps else ""
    of = f" of {format_bytes(outcome.memory_bytes_per_gpu)}" if outcome.memory_bytes_per_gpu else ""
    odd = ", though it ran out: it held more than its row says" if outcome.ran_out and outcome.fits == "fits" else ""
    return f"; memory {format_bytes(outcome.peak_memory_bytes_per_gpu)}{measured}{of}: {outcome.fits}{odd}"


def _steps_within(outcome: RowOutcome) -> str:
    """Return which steps would be within the band of a row."""
    band, step_s = outcome.error_band, outcome.step_time_s
    if band is None:
        return ""
    most = f"{step_s / (1.0 - band):.4g} s" if band < 1.0 else "any length"
    return f"; its band of {100 * band:.1f} % holds steps of {step_s / (1.0 + band):.4g} s to {most}"


def _perhaps(outcome: RowOutcome) -> str:
    return f"; {outcome.perhaps}" if outcome.perhaps else ""


def _table(summaries: list[FamilyErrors]) -> Table:
    table = Table(title="error of the predicted step time, in %", title_justify="left")
    for name in ("family", "rows", "priced", "measured", "inside", "mean", "median", "worst", "band"):
        table.add_column(name, justify="left" if name == "family" else "right")
    for row in summaries:
        shares = (row.mean, row.median, row.worst, row.band)
        cells = ["-" if share is None else f"{100 * share:.1f}" for share in shares]
        table.add_row(
            row.family or "(none)", str(row.rows), str(row.priced), str(row.measured), str(row.inside), *cells
        )
    return table
