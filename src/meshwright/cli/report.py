"""`meshwright report`: the page of a run, of two runs, or of a trace."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import InputError
from ..files import to_json
from ..units import counted

if TYPE_CHECKING:
    from ..traces.model import RankTrace


@click.command("report", epilog="Example: meshwright report runs/20260101-120000 --open")
@click.argument("what", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--output", "--html", type=click.Path(path_type=Path), help="The HTML file; its data go beside it as .json."
)
@click.option(
    "--chakra",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the traces as Chakra's too, RANK.et of each.",
)
@click.option("--open", "show", is_flag=True, help="Open the page in the browser.")
@click.option("--json", "as_json", is_flag=True, help="Print the data of the page.")
def command(what: tuple[Path, ...], output: Path | None, chakra: Path | None, show: bool, as_json: bool) -> int:
    """Write the page of WHAT and print its table.

    WHAT is the folder of a run, the folders of two runs (to compare them), or traces: what torch.profiler exported
    (files or folders; .json, .gz, .zip; one rank a file, or several), or a timeline.json of Meshwright.
    """
    from ..report.consoles import console
    from ..report.page import write_page
    from ..report.terminal import show_comparison, show_shares
    from ..train.run.run_folder import RunFolder

    missing = [path for path in what if not path.exists()]
    if missing:
        raise InputError(f"{missing[0]}: no such file or folder; expected a run's folder or a trace")
    for path in what:
        _refuse_folder_of_runs(path)
    runs = [RunFolder(path) for path in what if (path / "plan.json").exists()]
    if runs and chakra:
        raise InputError("--chakra: is for traces; give it the timeline.json of a run")
    if runs and (len(runs) < len(what) or len(runs) > 2):
        raise InputError(f"{' '.join(map(str, what))}: expected one run, two runs, or traces alone")
    shown = console(stderr=as_json)
    if runs:
        from ..report.pages.run import run_page
        from ..report.pages.two_runs import two_runs_page

        comparison, page = run_page(runs[0]) if len(runs) == 1 else two_runs_page(runs[0], runs[1])
        default = runs[0].report if len(runs) == 1 else runs[0].path / f"against-{runs[1].path.resolve().name}.html"
        show_comparison(shown, comparison, page.title if len(runs) == 2 else "")
    else:
        from ..report.pages.trace import trace_page
        from ..traces.formats.opening import OWN_PAGES, NoTrace
        from ..traces.reading import read_traces
        from ..traces.summary import summarized

        try:
            ranks = read_traces(what)
        except InputError as error:
            is_none = isinstance(error, NoTrace) or all(path.is_file() for path in what)
            raise InputError(f"{error}{_other_reader(what) if is_none else ''}") from None
        first = next((path for path in what if not path.name.endswith(OWN_PAGES)), what[0]).resolve()
        summary = summarized(ranks)
        page = trace_page(ranks, summary, first.name)
        default = first.with_name(f"{first.name.split('.')[0]}-report.html")
        show_shares(shown, summary, page.verdict)
        if chakra:
            _write_chakra(chakra, ranks)
    path = output or default
    try:
        data_path = write_page(path, page)
    except InputError as error:
        raise InputError(f"{error}; --output FILE writes the page elsewhere") from None
    if as_json:
        sys.stdout.write(to_json(page) + "\n")
    click.echo(f"{path} (its data: {data_path})", err=as_json)
    if show:
        click.launch(str(path))
    return 0


def _refuse_folder_of_runs(path: Path) -> None:
    """Raise InputError for a folder in which runs lie, at any depth: they are no ranks of one job."""
    if (path / "plan.json").exists():
        return
    inside = sorted(path.rglob("plan.json"), key=lambda plan: plan.stat().st_mtime)
    if inside:
        raise InputError(f"{path}: {counted(len(inside), 'run')} in it; expected one of them: {inside[-1].parent}")


def _other_reader(what: Sequence[Path]) -> str:
    """Return the command that reads logs and flight records, where these may be some; "" where they are none."""
    from ..postmortem.inputs import may_be_read

    paths = " ".join(str(path) for path in what[:3]) + (" ..." if len(what) > 3 else "")
    return f"; of logs, `meshwright doctor --logs {paths}` says why a job hung" if may_be_read(what) else ""


def _write_chakra(folder: Path, ranks: "Sequence[Sequence[RankTrace]]") -> None:
    from ..traces.formats.chakra_write import write_chakra

    try:
        written = write_chakra(folder, ranks)
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror or error}") from None
    click.echo(f"{folder}: {counted(len(written), 'Chakra execution trace')}", err=True)
