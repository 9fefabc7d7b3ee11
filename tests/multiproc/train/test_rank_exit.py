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
