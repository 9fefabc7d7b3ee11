"""Ctrl-C at any instant of the start, and a reader that leaves: one line or none, never a traceback."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from testkit.fault_jobs import hear_signals

PLAN = ("plan", "--model", "gpt2", "--cluster", "dgx-h100", "--gpus", "8", "--global-batch", "32")


def started(*words):
    return subprocess.Popen(
        [sys.executable, "-m", "meshwright", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hear_signals,
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("words", [PLAN, pytest.param(("train", "--steps", "3"), marks=pytest.mark.soak)])
def test_ctrl_c_at_any_instant_of_the_start_leaves_no_traceback_of_ours(words, tmp_path):
    rng = random.Random(43)
    for _ in range(30):
        process = started(*words, *(("--run-dir", str(tmp_path / "run")) if words[0] == "train" else ()))
        time.sleep(rng.uniform(0.05, 1.5))
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=200)

        assert "meshwright/" not in err  # a frame of ours; what is before our first line is Python's own start
        assert process.returncode in {0, 130, -signal.SIGINT} or "<frozen" in err


@pytest.mark.parametrize("words", [("collectives", "list"), ("topo", "--catalogue"), PLAN])
def test_a_reader_that_leaves_is_no_error(words):
    with started(*words) as process:
        process.stdout.readline()
        process.stdout.close()

        assert process.stderr.read() == ""
        assert process.wait(timeout=200) == 0
