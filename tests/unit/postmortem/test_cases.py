"""Artefacts of real and of staged hangs, each with the right answer in answers.json."""

import json
from pathlib import Path

import pytest

from meshwright.postmortem.inputs import examine_files

CASES = Path(__file__).parent / "cases"
ANSWERS = json.loads((CASES / "answers.json").read_text())


@pytest.mark.parametrize("name", ANSWERS)
def test_a_known_hang_is_judged_right(name):
    wanted = {"unknown": False, **ANSWERS[name]}

    verdict = examine_files([CASES / name])

    found = {key: getattr(verdict, key) for key in wanted}
    assert found | {"ranks": list(verdict.ranks) if "ranks" in wanted else None} == wanted | {
        "ranks": wanted.get("ranks")
    }


@pytest.mark.parametrize("name", [name for name in ANSWERS if ANSWERS[name]["kind"] != "none"])
def test_a_verdict_shows_the_lines_and_what_to_try(name):
    verdict = examine_files([CASES / name])

    assert verdict.evidence
    assert all(line.text for line in verdict.evidence)
    assert verdict.next
    assert verdict.because


PASTED = {
    "a quotation": "> {}",
    "an indent": "    {}",
    "journalctl": "Nov 20 10:20:30 node-a torchrun[4242]: {}",
    "a clock and a tab": "2026-11-20 10:20:30.123\t{}",
}


@pytest.mark.parametrize("form", PASTED)
@pytest.mark.parametrize(
    "name", [f"logs/{case}" for case in ("py_spy", "sizes_differ", "recovered", "host_oom", "torchrun_gloo_kill")]
)
def test_what_was_put_before_every_line_changes_nothing(name, form, tmp_path):
    for path in (CASES / name).rglob("*"):
        if path.is_file():
            lines = path.read_text(errors="replace").splitlines()
            (tmp_path / path.name).write_text("\n".join(PASTED[form].format(line) for line in lines))

    verdict = examine_files([tmp_path])

    assert (verdict.kind, verdict.rank) == (ANSWERS[name]["kind"], ANSWERS[name]["rank"])


@pytest.mark.parametrize("name", ANSWERS)
def test_who_is_blamed_does_not_depend_on_the_order_of_the_files(name):
    files = sorted(path for path in (CASES / name).rglob("*") if path.is_file())

    forward, backward = examine_files(files), examine_files(files[::-1])

    assert (forward.kind, forward.rank, forward.ranks) == (backward.kind, backward.rank, backward.ranks)
