"""A run folder belongs to one job: starts at once get folders of their own, and a live run is not resumed."""

import json
import os
import signal
import subprocess
import sys

import pytest

from meshwright.layout import Layout
from meshwright.train.job.config import to_toml
from meshwright.train.run.run_lock import LOCK, owner_of
from testkit.caches import new_cache
from testkit.fault_jobs import Job, steps_done
from testkit.train_jobs import losses, small_job, write_corpus, write_run

pytestmark = pytest.mark.timeout(450)
STEPS = 150  # with a checkpoint at every fifth: several times as long as another job takes to start


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path)


@pytest.fixture
def begin(tmp_path):
    """Return a function from arguments of `train` to the job."""
    jobs = []

    def run(*arguments: str) -> Job:
        environment = {"XDG_CACHE_HOME": new_cache(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
        jobs.append(Job(list(arguments), environment))
        return jobs[-1]

    yield run
    for started in jobs:
        started.kill()


def test_a_run_that_is_trained_is_not_resumed_and_goes_on_undisturbed(tmp_path, corpus, begin):
    folder = write_run(tmp_path / "run", small_job(corpus, steps=STEPS, checkpoint_every=5), Layout(dp=2, mbs=2))
    first = begin("--resume", str(folder.path))
    first.wait_until(lambda: steps_done(folder) > 5, timeout_s=200)
    owner = owner_of(folder.path)

    code, errors = begin("--resume", str(folder.path)).end(timeout_s=200)

    assert code == 2
    assert f"another job has this run folder: {owner}" in errors[-1]
    assert f"(pid {first.process.pid}, since " in errors[-1]
    code, errors = first.end(timeout_s=200)
    assert code == 0, errors
    assert len(losses(folder)) == STEPS
    assert not (folder.path / LOCK).exists()


def test_a_run_whose_launcher_was_killed_is_resumed_once_its_ranks_have_left(tmp_path, corpus, begin):
    folder = write_run(tmp_path / "run", small_job(corpus, steps=STEPS, checkpoint_every=5), Layout(dp=2, mbs=2))
    first = begin("--resume", str(folder.path))
    first.wait_until(lambda: steps_done(folder) > 5, timeout_s=200)
    first.process.send_signal(signal.SIGKILL)

    code, errors = begin("--resume", str(folder.path)).end(timeout_s=200)

    assert code == 0, errors
    assert any("has died without giving the run folder back; taken over" in line for line in errors)
    assert len(losses(folder)) == STEPS
    assert first.nobody_is_left()


@pytest.mark.slow
def test_four_jobs_that_start_in_one_second_are_four_runs(tmp_path, corpus):
    (tmp_path / "job.toml").write_text(to_toml(small_job(corpus)))
    command = [sys.executable, "-m", "meshwright", "train", str(tmp_path / "job.toml"), "--json", "--ranks", "1"]
    environment = os.environ | {"XDG_CACHE_HOME": new_cache(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}

    started = [
        subprocess.Popen(
            [*command, "--set", f"train.seed={seed}"],
            cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for seed in (11, 12, 13, 14)
    ]  # fmt: skip
    answers = [process.communicate(timeout=400) for process in started]

    assert [process.returncode for process in started] == [0] * 4, answers
    found = [json.loads(out) for out, _ in answers]
    assert len({answer["run"] for answer in found}) == 4
    assert len({answer["validation_loss"] for answer in found}) == 4
    for seed, answer in zip((11, 12, 13, 14), found, strict=True):
        run = tmp_path / answer["run"]
        assert f"seed = {seed}\n" in (run / "config.toml").read_text()
        assert len((run / "metrics.jsonl").read_text().splitlines()) == 20
