"""Damaged files of other tools: each ends in one line, or is read as far as it is sound; found by `tests.fuzz`."""

import json
import time
from pathlib import Path

import pytest

from meshwright.cluster.dumps import load_dump
from meshwright.errors import MOST_CHARACTERS, InputError, one_line
from meshwright.hardware import load_catalogue
from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job
from meshwright.plan.analytic.calibration import read_calibration
from meshwright.postmortem.inputs import examine_files
from meshwright.traces.formats.events import EventStream
from meshwright.traces.reading import read_traces
from meshwright.train.run.events import read_events
from meshwright.workload.models import load_model
from tests.fuzz.kept import calibrations

UNIT = Path(__file__).parent


@pytest.mark.parametrize("name", ["smi_3090_named.txt", "nccl_topo_file_cloud_a.xml"])
def test_a_number_of_thousands_of_digits_in_a_dump_is_refused_with_its_line(name, tmp_path):
    (good,) = (UNIT / "cluster" / "data").rglob(name)
    text = good.read_text()
    digit = next(place for place, letter in enumerate(text) if letter.isdigit())
    (tmp_path / name).write_text(text[:digit] + "9" * 5000 + text[digit:])

    with pytest.raises(InputError, match=rf"{name}:\d+: a number of \d+ digits"):
        load_dump(tmp_path / name, load_catalogue())


@pytest.mark.parametrize("share", ["inf", "-inf", "nan", "-1", "0", "many"])
def test_a_batch_of_maxtext_that_is_no_number_is_refused(share, tmp_path):
    good = (UNIT / "jobs" / "cases" / "maxtext_llama3_8b.yaml").read_text()
    lines = [line for line in good.splitlines() if not line.startswith("per_device_batch_size")]
    (tmp_path / "job.yaml").write_text("\n".join([*lines, f"per_device_batch_size: '{share}'"]))

    with pytest.raises(InputError, match="per_device_batch_size: expected a number, more than 0"):
        read_job([str(tmp_path / "job.yaml")], JobOptions(gpus=64))


@pytest.mark.parametrize("kind", [{"value": "x"}, ["x"], 7, None])
def test_a_model_inside_another_whose_type_is_no_word_is_refused(kind, tmp_path):
    config = json.loads((UNIT / "workload" / "configs" / "cases" / "qwen3-vl-8b.json").read_text())
    config["text_config"]["model_type"] = kind
    (tmp_path / "config.json").write_text(json.dumps(config))

    with pytest.raises(InputError, match="model_type"):
        load_model(str(tmp_path / "config.json"))


def test_a_damaged_line_of_events_is_left_out(tmp_path):
    good = b'{"kind": "slow_link", "message": "slow", "rank": 0}'
    damaged = [good.replace(b'"slow"', b'"sl\xed"'), good[:20] + b"\xff", good[:-1] + b"9" * 40 + b"}"]
    (tmp_path / "0.jsonl").write_bytes(b"\n".join([good, *damaged]) + b"\n")

    assert [event.kind for event in read_events(tmp_path)] == ["slow_link"]


@pytest.mark.parametrize("digits", [20, 99, 290])
def test_a_number_that_no_job_has_is_no_rank_to_blame(digits, tmp_path):
    number = "9" * digits
    (tmp_path / "rank0.log").write_text(
        f"[rank0]: Rank {number} failed to pass monitoredBarrier in {number} ms\n"
        f"[rank0]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, "
        f"NumelIn=1, NumelOut=1, Timeout(ms)={number}) ran for {number} milliseconds before timing out.\n"
        f"[rank{number}]: RuntimeError: gone\nRank 1, 2, {number} failed to pass monitoredBarrier in 9 ms\n"
    )
    begun = time.process_time()

    verdict = examine_files([tmp_path])

    assert all(rank < 2**17 for rank in verdict.blamed)
    assert time.process_time() - begun < 2


def test_a_message_about_a_file_full_of_words_is_cut(tmp_path):
    said = one_line(f"plan.json: unknown key {'GPU0 ' * 100_000}; known: layout")

    assert len(said) <= MOST_CHARACTERS
    assert said.startswith("plan.json: unknown key GPU0")
    assert said.endswith("known: layout")


def test_a_trace_with_one_endless_event_is_looked_through_a_few_times_only(tmp_path, monkeypatch):
    (tmp_path / "trace.json").write_bytes(b'{"traceEvents": [' + b'{"ph": "X", "args": {"a": ' + b"1" * 2**24)
    looked: list[int] = []
    monkeypatch.setattr(EventStream, "_last_boundary", lambda stream: looked.append(len(stream._buffer)))

    with pytest.raises(InputError):
        read_traces([tmp_path / "trace.json"])

    assert len(looked) < 8


def test_a_calibration_of_fewer_than_one_gpu_is_refused(tmp_path):
    ((name, data),) = calibrations(UNIT.parent / "external" / "published" / "training_runs.csv")()
    good = json.loads(data)
    good["runs"][0]["gpus"] = -1
    (tmp_path / name).write_text(json.dumps(good))

    with pytest.raises(InputError, match=r"runs\[0\].gpus: expected a whole number, 1 or more"):
        read_calibration(str(tmp_path / name))
