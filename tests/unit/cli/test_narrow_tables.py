"""Tables of every command at 200, 80 and 60 columns: no figure is cut or lost, headers stay, no line is too long."""

import io
import re

import pytest
from rich.console import Console
from rich.table import Table

from docsite.box import ROOT
from meshwright import cli
from meshwright.cli import validate
from meshwright.report import consoles, planning
from meshwright.report.narrow_tables import show_table
from testkit.runs import fake_run

MODEL = "plan --model llama3-8b --cluster dgx-h100 --gpus 16 --global-batch 64"
COMMANDS = [
    MODEL,
    f"{MODEL} --layout tp=8",
    f"{MODEL} --target-mfu 0.5",
    f"{MODEL} --modes",
    f"{MODEL} --scaling fixed",
    "plan --params 70e9 --gpus 512 --cluster dgx-h100 --global-batch 1024 --seq-len 4096",
    "validate runs.csv",
    "topo --catalogue",
    "topo --catalogue --compare h100 b200",
    "report first",
    "report first second",
]
NUMBER = re.compile(r"\d[\d.,]*\d|\d")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with two runs and a table of measured runs."""
    path = tmp_path_factory.mktemp("narrow")
    fake_run(path / "first")
    fake_run(path / "second", seed=1)
    published = (ROOT / "tests/external/published/training_runs.csv").read_text().splitlines(keepends=True)
    (path / "runs.csv").write_text("".join(published[:6]))
    return path


@pytest.mark.parametrize("words", COMMANDS)
def test_no_figure_is_cut_where_the_terminal_is_narrow(words, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(planning, "WIDE", 0)  # which leaves columns out below that
    shown = {}
    for width in (200, 80, 60):
        monkeypatch.setattr(consoles, "FILE_WIDTH", width)
        monkeypatch.setattr(validate, "Console", lambda width=width, **options: Console(width=width, **options))
        assert cli.run_command(words.split()) == 0
        shown[width] = capsys.readouterr().out
    tables = {width: tables_of(text) for width, text in shown.items()}

    for width in (80, 60):
        assert "…" not in shown[width]
        assert set(NUMBER.findall(shown[200])) == set(NUMBER.findall(shown[width]))
        assert max(map(len, tables[width].splitlines()), default=0) <= width


def tables_of(text):
    """Return the lines of tables, which begin with a blank, or a rule."""
    return "\n".join(line for line in text.splitlines() if line[:1] in {" ", "│", "┃", "┡", "├", "└", "┏"})


def shown_at(width, table):
    console = Console(width=width, record=True, file=io.StringIO())
    show_table(console, table)
    return console.export_text()


def test_prices_of_collectives_fit_80_columns(capsys):
    words = "collectives price --ranks 8 --bytes 1K,64M --rate 300GB/s --alpha 5us"
    assert cli.run_command(words.split()) == 0
    lines = capsys.readouterr().out.splitlines()

    assert max(map(len, lines)) <= 80
    assert len({line.index(" B ") for line in lines}) == 1  # sizes end in one column


def layouts():
    table = Table(title="plan")
    table.add_column("layout", overflow="fold")
    for name in ("step time", "exposed communication", "peak memory"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_row("tp=8, pp=4, dp=16, vpp=2, mbs=1, schedule=interleaved", "123.4 ms", "12.34 ms", "67.89 GiB")
    return table


@pytest.mark.parametrize("width", [100, 80, 60, 40, 20])
def test_headers_and_figures_are_whole_at_any_width(width):
    words = shown_at(width, layouts()).split()

    assert {"123.4", "12.34", "67.89", "communication", "exposed"} <= set(words)
    assert "…" not in words


def test_a_layout_wraps_between_its_keys_before_rows_become_lines():
    text = shown_at(70, layouts())

    assert len(text.splitlines()) > 5
    assert "schedule=interleaved" in text
    assert max(map(len, text.splitlines())) <= 70
    assert "peak memory 67.89 GiB" in shown_at(40, layouts())


def test_what_a_row_of_lines_begins_with_goes_on_below_its_text():
    head, more, *_ = shown_at(40, layouts()).splitlines()[1:]

    assert head.startswith("layout tp=8")
    assert more.startswith("  ")
    assert not head.endswith(" ")
