"""Hostile files: no payload runs, nothing is read or written elsewhere, exit 2 in one line."""

import json

import pytest

from meshwright import cli
from meshwright.layout import Layout
from meshwright.train.run.run_folder import RunFolder
from testkit.train_jobs import small_job, write_run
from tests.faults.hostile.corpus import ALL, BOMB
from tests.faults.hostile.test_malformed import listing


def test_there_are_sixty():
    assert len(ALL) >= 60


@pytest.mark.timeout(20)
@pytest.mark.parametrize("hostile", ALL, ids=lambda hostile: hostile.name)
def test_no_payload_runs(hostile, tmp_path, capsys):
    folder, mark = tmp_path / "given", tmp_path / "mark"
    folder.mkdir()
    hostile.victim.make(folder)
    hostile.attack(folder, mark)
    before = listing(folder)

    code = hostile.victim.read(folder)

    errors = capsys.readouterr().err.splitlines()
    assert code == 2, errors
    assert not mark.exists()
    assert not any("root:" in line or "Traceback" in line for line in errors)
    assert len([line for line in errors if line.startswith("meshwright: ")]) == 1
    assert max(map(len, errors)) < 2000
    assert listing(folder) == before


@pytest.mark.timeout(400)
def test_a_compressed_trace_that_unpacks_without_end_is_refused(tmp_path, capsys):
    (tmp_path / "trace.json.gz").write_bytes(BOMB)

    assert cli.run_command(["report", str(tmp_path / "trace.json.gz")]) == 2
    assert "trace.json.gz" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)</script>",
        "</script><script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "{{ 7 * 7 }}{% for x in y %}",
        "=cmd|' /C calc'!A0",
        "javascript:alert(1)",
    ],
)
def test_names_that_the_report_shows_are_text_there(tmp_path, name):
    folder = write_run(tmp_path / "run", small_job("corpus"), Layout(dp=2, mbs=2))
    spans = [
        {"ph": "X", "name": name, "cat": "compute", "pid": rank, "tid": 0, "ts": 0, "dur": 10**6, "args": {"step": 0}}
        for rank in range(2)
    ]
    trace = {"traceEvents": spans, "displayTimeUnit": "ms", "otherData": {"source": "measured"}}
    (folder.path / "timeline.json").write_text(json.dumps(trace))

    page = tmp_path / "page.html"
    assert cli.run_command(["report", str(folder.path / "timeline.json"), "--output", str(page)]) == 0

    text = page.read_text()
    assert "<script>alert(1)" not in text
    assert "<img src=x" not in text
    assert "49" not in text or "{{ 7 * 7 }}" in text or name != "{{ 7 * 7 }}{% for x in y %}"
    assert RunFolder(folder.path).plan()
