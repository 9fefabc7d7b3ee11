"""Several machines: a slow NIC is named, a short cut changes nothing, a machine that dies is left behind."""

import json
import sys
import time

import msgspec
import pytest

from meshwright.layout import Layout
from tests.emulated import MEGABIT
from tests.faults.jobs import events, steps_done
from tests.multiproc.train.jobs import losses, small_job, write_corpus, write_run

pytestmark = [pytest.mark.netns, pytest.mark.slow, pytest.mark.timeout(400)]
PORT = 29_400


@pytest.fixture
def begin(tmp_path, emulated):
    """Return a function that starts a job of two machines with one rank each in an emulated cluster."""
    corpus = write_corpus(tmp_path)

    def run(name: str = "run", *, min_nodes: int = 0, timeout_s: float = 60.0, nic: float = 100, **train: object):
        cluster = emulated(nodes=2, nic_bytes_per_s=nic * MEGABIT)
        settings = {"steps": 150, "checkpoint_every": 20, "validate_every": 10**6}
        job = small_job(corpus, **(settings | train))
        launch = msgspec.structs.replace(
            job.launch,
            nodes=2, ranks=1, min_nodes=min_nodes, timeout_s=timeout_s, rendezvous=f"{cluster.address(0)}:{PORT}",
        )  # fmt: skip
        folder = write_run(tmp_path / name, msgspec.structs.replace(job, launch=launch), Layout(dp=2, mbs=4))
        settings = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "meshwright", "train", "--resume", str(folder.path)]
        return cluster, folder, [cluster.start_on(node, command, env=settings) for node in range(2)]

    return run


def until(condition, jobs, timeout_s=150):
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, [job.stderr(0) for job in jobs]
        time.sleep(0.05)


def test_a_nic_at_a_tenth_is_named_within_twenty_steps(begin):
    cluster, folder, jobs = begin()
    until(lambda: steps_done(folder) > 50, jobs)
    slowed_at = steps_done(folder)

    cluster.fault("slow node1 10Mbps")
    until(lambda: events(folder, "slow_link"), jobs)

    first = events(folder, "slow_link")[0]
    assert first.step - slowed_at <= 20
    assert f"from rank {first.rank} to rank {first.culprit}" in first.message
    assert first.evidence["bytes_per_s"] < 0.35 * first.evidence["before_bytes_per_s"]
    assert [job.wait(timeout_s=200) for job in jobs] == [(0,), (0,)]


def test_a_cut_of_five_seconds_changes_nothing(begin):
    cluster, folder, jobs = begin()
    until(lambda: steps_done(folder) > 30, jobs)

    cluster.fault("cut node1")
    time.sleep(5)
    cluster.fault("restore node1")

    assert [job.wait(timeout_s=200) for job in jobs] == [(0,), (0,)]
    assert not events(folder, "failure")
    assert len(losses(folder)) == 150


def test_a_machine_that_dies_is_named_and_the_others_go_on_without_it(begin):
    cluster, folder, jobs = begin(min_nodes=1)
    until(lambda: steps_done(folder) > 50, jobs)
    before = losses(folder)[:40]

    cluster.fault("kill node1")
    assert jobs[0].wait(timeout_s=300) == (0,), jobs[0].stderr(0)

    assert {event.culprit for event in events(folder, "failure")} == {1}
    assert events(folder, "replan")[0].message.startswith("1 ranks in place of 2")
    assert json.loads((folder.path / "plan.json").read_text())["layout"]["dp"] == 1
    assert losses(folder)[:40] == before
    assert len(losses(folder)) == 150
