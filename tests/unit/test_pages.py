"""Tables of measurements in docs/ are those of benchmarks/results, not typed."""

import re
from pathlib import Path

import pytest

from benchmarks.pages import DOCS, PART, RESULTS, with_results
from benchmarks.result import GENERATED

WITH_PARTS = [page for page in sorted(DOCS.rglob("*.md")) if "<!-- measured:" in page.read_text()]


@pytest.mark.parametrize("page", WITH_PARTS, ids=lambda page: page.stem)
def test_a_page_shows_what_the_results_say(page: Path):
    text = page.read_text()

    assert with_results(text) == text
    assert len(PART.findall(text)) == len(re.findall("<!-- measured:", text))  # every part is closed


def test_every_part_has_results_and_a_changed_table_is_noticed():
    text = next(page for page in WITH_PARTS if page.stem == "simulator").read_text()
    shown = {name for name, _ in PART.findall(text)}

    assert shown <= {path.stem for path in RESULTS.iterdir()}
    assert with_results(text.replace("| yes |", "| no |")) == text


def test_a_part_whose_rows_were_not_measured_is_named():
    text = "<!-- measured: planner_choice nic=3Mbps -->\n<!-- end of planner_choice -->\n"

    with pytest.raises(SystemExit, match="planner_choice.json has no rows with nic=3Mbps"):
        with_results(text)


def test_pages_that_programs_write_say_so_and_lie_apart_from_written_ones():
    def is_generated(page: Path) -> bool:
        return page.read_text().partition("\n\n")[2].startswith("> Generated page: `")

    assert {page for page in DOCS.rglob("*.md") if is_generated(page)} == set(GENERATED.glob("*.md"))


def test_files_that_the_architecture_page_names_exist():
    root = DOCS.parent
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]*(?:\.[a-z]+)?)`", (root / "ARCHITECTURE.md").read_text()))

    assert len(named) > 30
    assert {name for name in named if not any((root / at / name).exists() for at in ("src/meshwright", "."))} == set()
