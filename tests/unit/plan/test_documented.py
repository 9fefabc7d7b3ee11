"""Figures of the search on docs/planning.md, held against what `plan` prints today."""

import re
from pathlib import Path

import pytest

from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, price_layouts
from meshwright.plan.analytic.price import performance
from meshwright.units import format_time
from tests.unit.plan.goldens.figures import setting

PAGE = Path(__file__).parents[3] / "docs" / "planning.md"
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
