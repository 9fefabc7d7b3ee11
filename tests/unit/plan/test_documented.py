"""Figures on docs/planning.md and docs/simulator.md, held against what the commands print today."""

import re
import shlex
from pathlib import Path

import pytest

from meshwright import cli
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, price_layouts
from meshwright.plan.analytic.price import performance
from meshwright.units import format_time
from tests.unit.plan.goldens.figures import setting

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "planning.md"
EXAMPLE = re.compile(r"^( *)\$ meshwright ((?:.*\\\n)*.*[^\\\n])\n((?:\1\S.*\n| {4}.*\n|\n(?= {4}))+)", re.MULTILINE)
PRICED = re.compile(r"^ {4}((?:\w+=\S+ )+) *([\d.]+ m?s) +([\d.]+)%$", re.MULTILINE)


def documented(after: str) -> list[tuple[str, ...]]:
    """Return layout, step time and MFU of the lines that follow a text, to the next paragraph."""
    return PRICED.findall(PAGE.read_text().partition(after)[2].lstrip().partition("\n\n")[0])


@pytest.mark.parametrize(
    ("after", "stack", "rows"),
    [
        (
            "$ meshwright plan --model llama3-405b --cluster dgx-h100 --gpus 16384 --global-batch 2048\n",
            "meshwright",
            2,
        ),
        ("pass round a ring, the same search finds\n", "titan", 1),
    ],
)
def test_the_headline_of_the_page_is_what_plan_prints(after, stack, rows):
    found = documented(after)

    assert len(found) == rows
    for text, step, mfu in found:
        layout = Layout.parse(text.strip().replace(" ", ""), world_size=16384)
        given = setting(stack)
        priced = performance(given, price_layouts(given, Grid.of([layout])), 0, layout)
        assert (format_time(priced.step_time_s), f"{priced.mfu:.1%}") == (step, f"{mfu}%")


def squeezed(text: str) -> str:
    return " ".join(text.split())


def examples() -> list[tuple[str, str]]:
    """Return the commands of both pages, and what stands below each; a search for a target takes too long."""
    pages = (EXAMPLE.findall((DOCS / name).read_text()) for name in ("planning.md", "simulator.md"))
    return [
        (command.replace("\\\n", " "), printed)
        for page in pages
        for _, command, printed in page
        if "--target" not in command
    ]


@pytest.mark.parametrize(("command", "printed"), examples(), ids=[command[:60] for command, _ in examples()])
def test_an_example_of_a_page_is_part_of_what_its_command_prints(command, printed, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "2000")  # so that nothing is broken into lines
    cli.run_command(shlex.split(command))
    output = squeezed("".join(capsys.readouterr()))

    parts = [squeezed(part) for line in printed.splitlines() for part in line.strip("`").split("...")]
    assert [part for part in parts if part not in output] == []
