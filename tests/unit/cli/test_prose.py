"""Sentences on a terminal of 60 columns: what goes on is indented below its line, and nothing else changes."""

import json
import re
import subprocess
import sys

import pytest

from docsite.box import ROOT
from meshwright.report.prose import hanging
from tests.unit.cli.test_terminal import in_terminal

WIDTH = 60
STYLE = re.compile(r"\x1b\[[\d;]*m")
STEP = "--model llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 8"
LISTS = ["plan --stack help", "doctor --list", "validate --columns", "collectives list"]
SENTENCES = [
    f"plan {STEP}",
    f"plan {STEP} --layout tp=8",
    f"simulate {STEP} --layout tp=8",
]


def shown_at_60(command: str) -> list[str]:
    text = STYLE.sub("", in_terminal(command.split(), COLUMNS=str(WIDTH)))
    return [line.rstrip() for line in text.splitlines()]


def in_a_file(command: str) -> list[str]:
    words = [sys.executable, "-m", "meshwright", *command.split()]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()


def goes_on_below(line: str, shown: list[str]) -> bool:
    """Return whether a line is shown with all of its words, what goes on further in than its beginning."""
    begin = len(line) - len(line.lstrip())
    for place, first in enumerate(shown):
        if first and line.startswith(first) and len(first) < len(line):
            rest = shown[place + 1 :]
            ends = next((n for n, other in enumerate(rest) if len(other) - len(other.lstrip()) <= begin), len(rest))
            return line.split() == " ".join((first, *rest[:ends])).split()
    return False


@pytest.mark.parametrize("command", LISTS)
def test_a_list_is_the_same_on_a_terminal_but_for_its_line_ends(command):
    shown, filed = shown_at_60(command), in_a_file(command)

    assert " ".join(shown).split() == " ".join(filed).split()
    assert [line for line in filed if len(line) > WIDTH and not goes_on_below(line, shown)] == []
    assert max(map(len, shown)) <= WIDTH


@pytest.mark.parametrize("command", SENTENCES)
def test_sentences_go_on_below_their_text(command):
    shown, filed = shown_at_60(command), in_a_file(command)
    sentences = [line for line in shown if line and not line.startswith("   ")]  # tables are set in

    assert any(goes_on_below(line, shown) for line in filed)
    assert max(map(len, sentences)) <= WIDTH


@pytest.mark.parametrize(
    ("text", "indent", "wrapped"),
    [
        ("short", None, "short"),
        ("one two three four", None, "one two\n  three\n  four"),
        ("  one two three", None, "  one two\n    three"),
        ("a: one two three", 3, "a: one two\n   three"),
        ("name:     one two three", 10, "name:\n  one two\n  three"),  # no room beside a column as wide as that
        ("one /a/path/that/is/long two", None, "one\n  /a/path/that/is/long\n  two"),
        ("one two three\nfour", None, "one two\n  three\nfour"),
        ("    meshwright plan --model x", None, "    meshwright plan --model x"),
    ],
)
def test_a_line_goes_on_below_its_text(text, indent, wrapped):
    assert hanging(text, 10, indent) == wrapped


def test_json_is_not_wrapped_on_a_terminal():
    shown = in_terminal(["doctor", "--list", "--json"], COLUMNS=str(WIDTH))

    assert set(json.loads(shown)) > {"gloo-interface"}


def test_an_error_goes_on_below_its_text():
    code = "import sys; from meshwright import cli; cli.prose.width_of = lambda stream: 30; "
    code += "sys.exit(cli.run_command(['plan', '--job', 'nothing.sh', '--cluster', 'dgx-h100']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)

    first, *rest = done.stderr.splitlines()
    assert first.startswith("meshwright: nothing.sh")
    assert rest
    assert all(line.startswith("  ") for line in rest)


def test_a_step_without_idle_time_has_no_bubble_of_rounding():
    found = json.loads(in_a_file(f"simulate {STEP} --layout tp=8 --json")[0])

    assert [row["bubble_s"] for row in found["ranks"]] == [0.0] * len(found["ranks"])
