"""Surroundings of one job on one machine: who hears it, what its folder is called, what lies in it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from meshwright.layout import Layout
from meshwright.train.checkpoint.folder import latest_checkpoint
from testkit.caches import new_cache
from testkit.fault_jobs import Job, steps_done
from testkit.train_jobs import small_job, write_corpus, write_run

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]


@pytest.fixture
def environment(tmp_path):
    return {"XDG_CACHE_HOME": new_cache(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}


def make(path, corpus_in, **train):
    return write_run(path, small_job(write_corpus(corpus_in), **train), Layout(dp=2, mbs=2))


def test_a_job_that_nobody_hears_any_more_in_a_folder_with_an_odd_name_trains_to_its_end(tmp_path, environment):
    folder = make(Path(os.fsdecode(os.fsencode(tmp_path) + b"/a run\nof caf\xe9")), tmp_path, checkpoint_every=5)
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as unheard:
        job = subprocess.Popen(
            [sys.executable, "-m", "meshwright", "train", "--resume", str(folder.path), "--json"],
            env=os.environ | environment, stdout=subprocess.PIPE, stderr=unheard,
        )  # fmt: skip
    os.read(reader, 1)
    os.close(reader)
    answer, _ = job.communicate(timeout=600)

    assert job.returncode == 0
    assert steps_done(folder) == 20
    assert latest_checkpoint(folder.checkpoints).name == "step-00000020"
    assert json.loads(answer)["run"].endswith("a run\nof caf\\udce9")
    assert "caf\\udce9" in (folder.path / "report.html").read_text()


def test_a_job_that_was_started_without_standard_streams_keeps_its_files_whole(tmp_path, environment):
    folder = make(tmp_path / "run", tmp_path)

    command = ["sh", "-c", 'exec "$0" -m meshwright train --resume "$1" <&- >&- 2>&-', sys.executable, folder.path]
    done = subprocess.run(command, env=os.environ | environment, timeout=600)

    assert done.returncode == 0
    assert [row["step"] for row in folder.metric_rows()] == list(range(20))


def test_a_job_under_nohup_hears_no_hang_up_and_another_saves(tmp_path, environment):
    folder = make(tmp_path / "run", tmp_path, steps=150)
    job = Job(["--resume", str(folder.path)], environment, prefix=("nohup",))
    try:
        job.wait_until(lambda: steps_done(folder) > 5, timeout_s=300)
        os.killpg(job.process.pid, signal.SIGHUP)
        code, errors = job.end(timeout_s=300)
    finally:
        job.kill()

    assert code == 0, errors
    assert steps_done(folder) == 150


def test_a_finished_run_without_its_metrics_says_that_the_loss_is_unknown(tmp_path, environment):
    folder = make(tmp_path / "run", tmp_path)
    job = [sys.executable, "-m", "meshwright", "train", "--resume", str(folder.path)]
    subprocess.run(job, env=os.environ | environment, timeout=600, check=True, capture_output=True)
    folder.metrics.unlink()

    again = subprocess.run(job, env=os.environ | environment, timeout=600, check=True, capture_output=True, text=True)
    told = subprocess.run([*job, "--json"], env=os.environ | environment, timeout=600, check=True, capture_output=True)

    assert f"validation loss unknown: {folder.metrics} has no row of it" in again.stdout
    assert f"warning: {folder.metrics}: 20 of the 20 earlier steps have no row" in again.stderr
    assert json.loads(told.stdout)["validation_loss"] is None


@pytest.mark.parametrize("name", ["ranks", "stacks", "tensorboard"])
def test_a_file_where_a_folder_of_the_run_should_be_is_named(tmp_path, environment, name):
    folder = make(tmp_path / "run", tmp_path)
    if (folder.path / name).exists():
        (folder.path / name).rmdir()
    (folder.path / name).touch()
    job = Job(["--resume", str(folder.path)], environment)
    try:
        code, errors = job.end(timeout_s=300)
    finally:
        job.kill()

    assert code == 2, errors
    assert errors[-1].startswith(f"meshwright: {folder.path / name}")
    assert not any("Traceback" in line for line in errors)
