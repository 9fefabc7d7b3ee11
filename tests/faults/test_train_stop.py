"""A run that is stopped or killed leaves whole checkpoints and no process, and goes on as if nothing had been."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from meshwright.train.config import to_toml
from meshwright.train.run_folder import RunFolder
from tests.faults.jobs import Job, steps_done
from tests.multiproc.train.jobs import losses, small_job, write_corpus

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Return a cache folder that the module's jobs share, so that the machine is measured once."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def start(tmp_path, cache):
    """Return a function that starts a small job with arguments; all that is left is killed afterwards."""
    jobs = []
    job = small_job(write_corpus(tmp_path), steps=4000, checkpoint_every=50)
    (tmp_path / "job.toml").write_text(to_toml(job))

    def run(*arguments: str) -> Job:
        jobs.append(Job(list(arguments), {"XDG_CACHE_HOME": cache}))
        return jobs[-1]

    yield run
    for started in jobs:
        for process in started.members():
            process.kill()
        started.process.communicate()


def test_ctrl_c_saves_the_step_and_leaves_no_process(start, tmp_path):
    folder = RunFolder(tmp_path / "run")
    job = start(str(tmp_path / "job.toml"), "--ranks", "2", "--run-dir", str(folder.path))
    job.wait_until(lambda: steps_done(folder) > 20)

    os.killpg(job.process.pid, signal.SIGINT)  # as a terminal does
    code, errors = job.end()

    assert code == 130
    assert "--resume" in errors[-1]
    assert job.nobody_is_left()
    saved = [path.name for path in folder.checkpoints.iterdir()]
    assert f"step-{steps_done(folder):08d}" in saved
    assert not [name for name in saved if name.startswith(".")]
    assert not any("Traceback" in line for line in errors)


def test_ctrl_c_while_measuring_writes_nothing(start, tmp_path):
    job = start(str(tmp_path / "job.toml"), "--ranks", "2", "--recalibrate", "--run-dir", str(tmp_path / "run"))
    job.wait_until(lambda: len(job.members()) > 3)

    os.killpg(job.process.pid, signal.SIGINT)
    code, errors = job.end()

    assert (code, errors[-1]) == (130, "meshwright: interrupted")
    assert not any("Traceback" in line for line in errors)
    assert not (tmp_path / "run").exists()
    assert job.nobody_is_left()


def test_ranks_do_not_outlive_a_killed_launcher(start, tmp_path):
    folder = RunFolder(tmp_path / "run")
    job = start(str(tmp_path / "job.toml"), "--ranks", "2", "--run-dir", str(folder.path))
    job.wait_until(lambda: steps_done(folder) > 5)

    job.process.kill()
    job.end()

    assert job.nobody_is_left()


def test_a_killed_rank_is_named_in_one_line(start, tmp_path):
    folder = RunFolder(tmp_path / "run")
    job = start(str(tmp_path / "job.toml"), "--ranks", "2", "--run-dir", str(folder.path))
    job.wait_until(lambda: steps_done(folder) > 5)

    os.kill(json.loads((folder.ranks / "1.json").read_text())["pid"], signal.SIGKILL)
    code, errors = job.end()

    assert code == 1
    assert "rank" in errors[-1]
    assert not any("Traceback" in line for line in errors)
    assert job.nobody_is_left()


def test_a_resumed_run_has_the_losses_of_one_that_was_never_stopped(start, tmp_path):
    whole, cut = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "cut")
    settings = ["--ranks", "2", "--layout", "dp=2,mbs=2", "--steps", "120"]
    assert start(str(tmp_path / "job.toml"), *settings, "--run-dir", str(whole.path)).end()[0] == 0

    job = start(str(tmp_path / "job.toml"), *settings, "--run-dir", str(cut.path))
    job.wait_until(lambda: steps_done(cut) > 30)
    os.killpg(job.process.pid, signal.SIGINT)
    assert job.end()[0] == 130
    assert start("--resume", str(cut.path)).end()[0] == 0

    assert losses(cut) == losses(whole)
    assert len(losses(whole)) == 120
    assert json.loads((cut.path / "measured.json").read_text())["step_time_s"] > 0
