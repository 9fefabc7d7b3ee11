"""A job goes on where nobody hears it, stops in order when it is told to, and has the files that it opens."""

import os
import resource
import signal
import subprocess
import sys

import pytest

from meshwright.errors import InputError
from meshwright.train.elastic.surroundings import have_descriptors, stop_signals, surroundings_of_a_job

SPEAKER = """
import sys
from rich.console import Console
import click
from meshwright.train.elastic.surroundings import surroundings_of_a_job
with surroundings_of_a_job():
    for number in range(2000):
        sys.stderr.write("x" * 100 + "\\n")
        click.echo("caf\\udce9", err=True)
        Console(file=sys.stderr).print("rich")
print("went on")
"""


@pytest.mark.parametrize("place", ["a reader that has left", "a full disk"])
def test_what_nobody_can_hear_is_no_reason_to_end(place):
    if place == "a full disk":
        writer = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, writer = os.pipe()
        os.close(reader)
    with os.fdopen(writer, "wb") as file:
        done = subprocess.run([sys.executable, "-c", SPEAKER], stdout=subprocess.PIPE, stderr=file, text=True)

    assert (done.returncode, done.stdout) == (0, "went on\n")


def test_what_is_heard_comes_whole_and_in_order():
    done = subprocess.run([sys.executable, "-c", SPEAKER], capture_output=True, text=True, check=True)

    assert done.stderr == ("x" * 100 + "\ncaf\\udce9\nrich\n") * 2000


@pytest.fixture
def own_hang_ups():
    """Let SIGHUP end the process, which `nohup` had ignored before the tests began."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("own_hang_ups")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT])
def test_a_signal_to_stop_is_an_interrupt_while_a_job_prepares_and_is_as_before_afterwards(signum):
    before = signal.getsignal(signum)
    with pytest.raises(KeyboardInterrupt), surroundings_of_a_job():
        signal.raise_signal(signum)

    assert signal.getsignal(signum) is before


@pytest.mark.usefixtures("own_hang_ups")
def test_a_hang_up_that_is_ignored_stays_so():
    assert signal.SIGHUP in stop_signals()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    assert signal.SIGHUP not in stop_signals()
    with surroundings_of_a_job():
        signal.raise_signal(signal.SIGHUP)


def test_a_folder_that_is_gone_is_said_to_be(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    with pytest.raises(InputError, match="the current folder is gone"), surroundings_of_a_job():
        pass


def test_a_limit_of_open_files_is_raised_as_far_as_a_job_needs_it_or_named(monkeypatch):
    limits, wanted = [32, 64], []
    monkeypatch.setattr(resource, "getrlimit", lambda what: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda what, both: wanted.append(both))

    have_descriptors(1)
    have_descriptors(2)

    assert wanted == [(40, 64)]
    with pytest.raises(InputError, match=r"ulimit -n 64: the launcher of 100 ranks needs 824 open files"):
        have_descriptors(100)
