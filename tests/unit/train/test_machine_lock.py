"""A machine has one launcher of a job."""

import subprocess
import sys

import pytest

from meshwright.errors import InputError
from meshwright.train.run.machine_lock import alone_here

HOLD = """
import pathlib, sys
from meshwright.train.run.machine_lock import alone_here
with alone_here(pathlib.Path(sys.argv[1])):
    print("here", flush=True)
    sys.stdin.read()
"""


def test_a_second_launcher_of_a_job_is_told_of_the_first_and_others_are_not(tmp_path):
    with alone_here(tmp_path / "run"), alone_here(tmp_path / "other"):
        refused = pytest.raises(InputError, match=r"run: this job has another launcher on this machine \(\S+\)")
        with refused, alone_here(tmp_path / "run"):
            pass
    with alone_here(tmp_path / "run"):
        pass


def test_pretended_machines_have_one_each(tmp_path, monkeypatch):
    monkeypatch.setenv("MESHWRIGHT_HOST", "host0")
    with alone_here(tmp_path):
        monkeypatch.setenv("MESHWRIGHT_HOST", "host1")
        with alone_here(tmp_path):
            pass


def test_a_launcher_that_was_killed_keeps_nobody_out(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    first = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout.readline() == "here\n"
    with pytest.raises(InputError), alone_here(tmp_path):
        pass

    first.kill()
    first.communicate()

    with alone_here(tmp_path):
        pass
