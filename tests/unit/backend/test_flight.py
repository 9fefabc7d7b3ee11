"""The flight record is written where it can be, and nobody fails for it where it cannot."""

import sys
import threading

import pytest

from meshwright.backend.faults import flight
from meshwright.backend.faults.flight import (
    FLIGHT_VARIABLE,
    FlightRecord,
    forget_group,
    has_given_up,
    remember,
    write_flights,
)


class OneGroup:
    """A group of which a record is kept."""

    def __init__(self):
        self.flight = FlightRecord(0)

    def arrivals(self):
        return {0: 1}

    def given_up(self):
        return set()


@pytest.fixture
def group():
    made = OneGroup()
    remember(made)
    yield made
    forget_group(made)


def test_a_disk_that_refuses_the_record_keeps_nobody_from_telling_what_happened(tmp_path, monkeypatch, group):
    monkeypatch.setenv(FLIGHT_VARIABLE, str(tmp_path / "flights"))
    assert write_flights("rank 1 died") == tmp_path / "flights" / "flight-0.json"

    def full(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(flight, "write_atomic", full)
    assert write_flights("rank 1 died") is None

    (tmp_path / "file").touch()
    monkeypatch.setenv(FLIGHT_VARIABLE, str(tmp_path / "file"))
    assert write_flights("rank 1 died") is None


def test_a_thread_may_make_groups_while_another_asks_who_has_given_up():
    groups = [OneGroup() for _ in range(200)]
    interval_s = sys.getswitchinterval()

    def make():
        for _ in range(300):
            for group in groups:
                remember(group)
            for group in groups:
                forget_group(group)

    making = threading.Thread(target=make)
    sys.setswitchinterval(1e-6)
    try:
        making.start()
        while making.is_alive():
            assert not has_given_up(0)
    finally:
        sys.setswitchinterval(interval_s)
        making.join()
