"""Programs that had the processors: counters read twice, and the sentence about them."""

import os
import time

import pytest
from msgspec.structs import replace

from meshwright.machine_load import Load, LoadCounters, busy_words, crowd_words, others_share

QUIET = Load(host="a", wall_s=10.0, processors=2, own_s=9.0, all_s=18.2, stolen_s=0.0, waited_s=0.1)


def test_what_two_processes_of_a_host_use_themselves_is_not_others():
    assert others_share([QUIET, QUIET]) == pytest.approx(0.01)
    assert busy_words([QUIET, QUIET]) == ""


def test_other_programs_are_said_where_they_take_processors_and_make_a_process_wait():
    busy = replace(QUIET, own_s=3.0, all_s=20.0, waited_s=6.0)

    assert others_share([busy, busy]) == pytest.approx(0.7)
    assert busy_words([busy, busy]) == "other programs took 70% of the processors"
    assert busy_words([replace(load, waited_s=0.0) for load in (busy, busy)]) == ""  # in nobody's way


def test_of_several_hosts_the_busy_one_is_named():
    busy = Load(host="b", wall_s=10.0, processors=2, own_s=4.0, all_s=12.0, stolen_s=0.0, waited_s=5.0)

    assert busy_words([QUIET, QUIET, busy]) == "other programs took 40% of the processors of b"
    assert busy_words([busy, replace(busy, host="c")]) == "other programs took 40% of the processors of b and c"


def test_time_that_a_hypervisor_gave_to_other_machines_is_said():
    stolen = Load(host="a", wall_s=10.0, processors=2, own_s=15.0, all_s=15.0, stolen_s=5.0, waited_s=0.0)

    assert busy_words([stolen]) == "other programs took 25% of the processors, 25% other virtual machines"


def test_a_process_that_computes_finds_its_own_time_in_the_counters_of_the_machine():
    begun, end = LoadCounters(), time.monotonic() + 0.3
    while time.monotonic() < end:
        pass
    load = begun.until_now()

    assert load is not None
    assert load.wall_s >= 0.3
    assert 0 < load.own_s <= load.wall_s + 0.1
    assert load.all_s >= load.own_s - 0.1  # counted in ticks of 10 ms
    assert load.processors == len(os.sched_getaffinity(0))


def test_a_crowded_machine_is_told_with_what_to_do_and_a_quiet_one_is_not(monkeypatch):
    processors = len(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "getloadavg", lambda: (5.0 * processors, 0.0, 0.0))
    assert f"{5 * processors} threads want the " in crowd_words()
    assert "top shows them" in crowd_words()

    monkeypatch.setattr(os, "getloadavg", lambda: (1.0 * processors, 90.0, 90.0))
    assert crowd_words() == ""
