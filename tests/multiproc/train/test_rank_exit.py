"""A launcher ends whatever becomes of ranks that have done their work."""

import functools
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest
import torch.distributed.elastic.multiprocessing as elastic
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from meshwright.bench.ranks.pool import start_fork_server
from meshwright.train.elastic import rank_exit
from meshwright.train.elastic.agent import AgentStart, first_failure, run_agent
from meshwright.train.elastic.rank_exit import Finished
from meshwright.train.run.events import EventLog, read_events

pytestmark = pytest.mark.timeout(400)


def does(what, place):
    """Be a rank: rank 1 does as it is told, the others nothing."""
    if os.environ["RANK"] != "1":
        if what == "is stopped":
            while not is_stopped(Path(place, "pid")):
                time.sleep(0.05)
            raise ValueError("no use")
        return
    if what == "does not leave":
        threading.Thread(target=time.sleep, args=(600,)).start()  # an interpreter waits for its threads
    elif what == "is late":
        time.sleep(1)
    elif what == "is stopped":
        signal.signal(signal.SIGTERM, lambda *_: (Path(place, "told").touch(), os._exit(0)))
        Path(place, "pid").write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(600)
    elif what == "never returns":
        time.sleep(600)
    elif what == "hears late":  # as it is forked a rank ignores what a terminal sends, until it sets a handler
        Path(place, "pid").write_text(str(os.getpid()))
        while not Path(place, "told").exists():
            time.sleep(0.05)
        signal.signal(signal.SIGTERM, lambda *_: (Path(place, "heard").touch(), os._exit(0)))
        time.sleep(600)
    elif what == "hears at once":
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(600)


def is_stopped(named):
    """Whether the process that a file names is stopped."""
    number = named.read_text() if named.exists() else ""
    return bool(number) and psutil.Process(int(number)).status() == psutil.STATUS_STOPPED


def run(tmp_path, monkeypatch, what, *, timeout_s):
    monkeypatch.setenv("TORCHELASTIC_SIGNALS_TO_HANDLE", "")
    start_fork_server("meshwright.train.worker")
    start = AgentStart(
        name="job", ranks=2, secret=b"secret", timeout_s=timeout_s, logs=str(tmp_path), is_complete=lambda: True
    )
    run_agent(start, does, (what, str(tmp_path)), EventLog(tmp_path / "events", None))


def wait_for(event):
    event.wait()


def said(tmp_path):
    return [event.message for event in read_events(tmp_path / "events")]


def test_a_rank_that_does_not_leave_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(rank_exit, "LEAVE_S", 2.0)

    with pytest.raises(ChildFailedError) as raised:
        run(tmp_path, monkeypatch, "does not leave", timeout_s=3.0)

    assert "rank 1 " in first_failure(raised.value.failures)
    assert "SIGKILL" in first_failure(raised.value.failures)
    (text,) = said(tmp_path)
    assert text.startswith("rank 1 has not left 2 s after all had ended")


def test_a_rank_that_never_returns_is_ended_once_the_others_have_waited_and_they_leave_at_once(tmp_path, monkeypatch):
    began_s = time.monotonic()

    with pytest.raises(ChildFailedError) as raised:
        run(tmp_path, monkeypatch, "never returns", timeout_s=3.0)

    assert "rank 1 " in first_failure(raised.value.failures)
    assert said(tmp_path) == ["rank 1 has not ended 3 s after the first that did; it is ended"]
    assert time.monotonic() - began_s < 30  # torch waits so long for a rank that does not heed SIGTERM


def test_a_rank_that_somebody_stopped_is_told_to_leave_as_the_others_are(tmp_path, monkeypatch):
    with pytest.raises(ChildFailedError) as raised:
        run(tmp_path, monkeypatch, "is stopped", timeout_s=60.0)

    assert "no use" in first_failure(raised.value.failures)
    assert (tmp_path / "told").exists()  # else the launcher has waited for 30 s and killed it


def test_a_rank_that_is_late_is_waited_for(tmp_path, monkeypatch):
    run(tmp_path, monkeypatch, "is late", timeout_s=60.0)

    assert not said(tmp_path)


def test_a_waiting_rank_is_released_though_another_waiting_rank_was_killed():
    start_fork_server("meshwright.train.worker")
    context, done = multiprocessing.get_context("forkserver"), threading.Event()
    finished = Finished(done.set)
    first, second = (context.Process(target=functools.partial(wait_for, finished)) for _ in range(2))
    first.start(), second.start()
    time.sleep(0.5)
    assert first.is_alive()
    assert second.is_alive()

    first.kill()
    first.join()
    setter = threading.Thread(target=finished.set, daemon=True)
    setter.start()

    setter.join(10)
    assert done.is_set()
    second.join(30)
    assert second.exitcode == 0


@pytest.fixture
def handlers():
    """Put back the handlers of the signals that torch's agent sets."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def start_ranks(tmp_path, what):
    """Start two ranks without a rendezvous; return torch's context of them."""
    start_fork_server("meshwright.train.worker")
    with rank_exit.ranks_that_end():
        return elastic.start_processes(
            name="job",
            entrypoint=does,
            args={rank: (what, str(tmp_path)) for rank in range(2)},
            envs={rank: {"RANK": str(rank)} for rank in range(2)},
            logs_specs=elastic.DefaultLogsSpecs(log_dir=str(tmp_path)),
            start_method="forkserver",
        )


def test_a_rank_that_is_told_to_leave_before_it_can_hear_leaves_when_it_can(tmp_path, monkeypatch, handlers):
    closing, telling = rank_exit.MultiprocessContext._close, os.kill

    def told(self, death_sig, timeout=30):
        for number in self.pids().values():
            telling(number, death_sig)
        (tmp_path / "told").touch()
        monkeypatch.setattr(os, "kill", lambda number, signum: telling(number, 0 if signum == death_sig else signum))
        closing(self, death_sig, timeout)

    monkeypatch.setattr(rank_exit.MultiprocessContext, "_close", told)
    monkeypatch.setattr(rank_exit, "AGAIN_S", 0.1)
    ranks = start_ranks(tmp_path, "hears late")
    while not (tmp_path / "pid").exists():
        time.sleep(0.05)
    ranks.close(signal.SIGTERM)

    assert (tmp_path / "heard").exists()


def test_a_signal_that_comes_while_ranks_are_started_is_heard_once_they_can_be_told(tmp_path, monkeypatch, handlers):
    starting = rank_exit.MultiprocessContext._start
    started = []

    def start(self):
        starting(self)
        started.extend(map(psutil.Process, self.pids().values()))

    def begin(*args, **settings):
        process = begun(*args, **settings)
        signal.raise_signal(signal.SIGTERM)
        return process

    begun = rank_exit.multiprocessing.process.BaseProcess.start
    monkeypatch.setattr(rank_exit.multiprocessing.process.BaseProcess, "start", begin)
    monkeypatch.setattr(rank_exit.MultiprocessContext, "_start", start)
    monkeypatch.setattr(rank_exit, "AGAIN_S", 0.1)
    with pytest.raises(SignalException):
        start_ranks(tmp_path, "hears at once")

    assert len(started) == 2
    assert not any(process.is_running() for process in started)
