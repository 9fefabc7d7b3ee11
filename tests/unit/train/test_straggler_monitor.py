"""A rank's knowledge of its cores: whether it shares them, and how long it waited for one."""

import os
import subprocess
import sys
import time

import pytest

from meshwright.train.measure import straggler_monitor


@pytest.mark.parametrize(("local", "crowded"), [("2", False), ("3", True)])
def test_a_machine_with_more_ranks_than_cores_is_crowded(monkeypatch, local, crowded):
    monkeypatch.setattr(straggler_monitor, "usable_cores", lambda: 2)
    for name, value in {"RANK": "0", "WORLD_SIZE": "6", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": local}.items():
        monkeypatch.setenv(name, value)

    assert straggler_monitor.is_crowded(6) is crowded


def test_all_nodes_of_an_emulated_cluster_share_one_machine(monkeypatch):
    monkeypatch.setattr(straggler_monitor, "usable_cores", lambda: 2)
    monkeypatch.setattr(straggler_monitor, "surrounding_cluster", object)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")

    assert straggler_monitor.is_crowded(3)


def test_a_thread_whose_core_another_program_uses_waits_for_it():
    before = os.sched_getaffinity(0)
    core = {min(before)}
    os.sched_setaffinity(0, core)  # inherited by the other program
    try:
        with subprocess.Popen([sys.executable, "-c", "print('up', flush=True)\nwhile True: pass"], stdout=-1) as hog:
            assert hog.stdout is not None
            hog.stdout.readline()
            start_s, end = straggler_monitor.waited_for_a_core_s(), time.monotonic() + 0.4
            while time.monotonic() < end:
                pass
            waited_s = straggler_monitor.waited_for_a_core_s() - start_s
            hog.kill()
    finally:
        os.sched_setaffinity(0, before)

    assert waited_s > 0.04
