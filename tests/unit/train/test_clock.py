"""Machines of a job whose clocks do not agree stay in it, and are told of it."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from torch.distributed.elastic.rendezvous import dynamic_rendezvous
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

from meshwright.train.elastic import clock as module
from meshwright.train.elastic.agent import SealedBackend
from meshwright.train.elastic.clock import AGAIN_S, JobClock, heartbeats_by, skew
from meshwright.train.elastic.meeting import host_store
from meshwright.train.elastic.store_server import CLOCKS


class Host:
    """A machine where all meet, with clocks of its own; `way_s` is how long an answer takes."""

    def __init__(self, monotonic_ahead_s=0.0, wall_ahead_s=0.0, way_s=0.0):
        self.monotonic_ahead_s, self.wall_ahead_s, self.way_s = monotonic_ahead_s, wall_ahead_s, way_s
        self.asked = 0

    def __call__(self):
        self.asked += 1
        time.sleep(self.way_s)
        return CLOCKS.pack(time.time() + self.wall_ahead_s, time.monotonic() + self.monotonic_ahead_s)


@pytest.mark.parametrize("ahead_s", [-1e6, 0.0, 12345.5])
def test_a_machine_reads_the_clock_of_the_host(ahead_s):
    clock = JobClock(Host(monotonic_ahead_s=ahead_s))

    assert clock.now_s() == pytest.approx(time.monotonic() + ahead_s, abs=0.5)


@pytest.mark.parametrize("theirs_s", [3600.0, 10.0, -10.0, -86400.0])
def test_wall_clocks_are_compared_and_a_skew_is_said(theirs_s):
    ahead_s = JobClock(Host(wall_ahead_s=theirs_s)).wall_ahead_s

    assert ahead_s == pytest.approx(-theirs_s, abs=0.5)
    said = skew(ahead_s, "node1", "10.0.0.1")
    assert said.startswith("the clock of node1 is ")
    assert ("behind" if theirs_s > 0 else "ahead of") in said


def test_a_skew_that_the_way_explains_is_none():
    assert JobClock(Host(wall_ahead_s=0.05, way_s=0.2)).wall_ahead_s == pytest.approx(0.0, abs=0.1)
    assert skew(1.9, "node1", "10.0.0.1") == ""


def test_the_host_is_asked_again_after_a_while_since_clocks_drift(monkeypatch):
    host = Host()
    clock = JobClock(host)
    asked = host.asked
    clock.keep()
    assert host.asked == asked

    host.monotonic_ahead_s = 3.0
    now_s = time.monotonic()
    monkeypatch.setattr(module.time, "monotonic", lambda: now_s + AGAIN_S + 1)
    clock.keep()

    assert host.asked > asked
    assert clock.now_s() == pytest.approx(now_s + AGAIN_S + 1 + 3.0, abs=0.5)


def test_a_heartbeat_does_not_depend_on_the_wall_clock_of_its_reader():
    """Two handlers meet under one clock; under their own wall clocks the one that is behind would be dead at once."""
    store = host_store("127.0.0.1", 0, 10.0, b"secret")
    backend = SealedBackend(store, "job", b"secret")
    handler = DynamicRendezvousHandler.from_backend("job", store, backend, 1, 1, local_addr="127.0.0.1")
    behind = datetime.now(UTC) - timedelta(hours=1)
    with heartbeats_by(backend.clock()):
        handler.next_rendezvous()
        state = handler._state_holder.state
        (heartbeat,) = state.last_heartbeats.values()

    assert heartbeat.timestamp() == pytest.approx(time.monotonic(), abs=30)
    assert heartbeat < behind
    assert dynamic_rendezvous.datetime is datetime
    handler.shutdown()
    store.close()
