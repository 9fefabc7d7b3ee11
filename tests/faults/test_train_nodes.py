"""Machines and cables that fail under a job of several machines: named, and the job ends or goes on as configured."""

import time

import pytest

from meshwright.train.checkpoint.folder import checkpoints
from testkit.fault_jobs import events, steps_done
from testkit.fault_nodes import start_on_nodes
from testkit.train_jobs import write_corpus

NODES, STEPS, EVERY, TIMEOUT_S = 3, 40, 5, 10.0
REJOIN_S = 10.0  # for machines that are too few to wait for another
PATIENCE_S = 400.0  # three machines and their planner share the cores of one
pytestmark = [pytest.mark.netns, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def begin(emulated, tmp_path):
    """Return a function that starts a job on every node of a cluster and returns the cluster, its run and the job."""

    def run(min_nodes):
        cluster = emulated(nodes=NODES, nic_bytes_per_s=125e6)
        folder, started = start_on_nodes(
            cluster,
            tmp_path / "run",
            write_corpus(tmp_path),
            launch={"min_nodes": min_nodes, "timeout_s": TIMEOUT_S, "rejoin_s": REJOIN_S},
            steps=STEPS,
            checkpoint_every=EVERY,
            record=False,
        )
        assert until(lambda: steps_done(folder) > 2 * EVERY or set(started.codes()) != {None})
        assert started.codes() == (None,) * NODES, [started.stderr(node) for node in range(NODES)]
        return cluster, folder, started

    return run


def until(condition):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def blamed(folder, rank):
    """Return whom a rank named in the first life of the job."""
    return [event.culprit for event in events(folder, "failure") if (event.rank, event.attempt) == (rank, 0)]


def said(started, node):
    """Return what meshwright said last on a node; a traceback there is a failure."""
    lines = started.stderr(node).splitlines()
    assert not any("Traceback" in line for line in lines), lines
    return [line for line in lines if line.startswith("meshwright: ")]


def test_a_node_that_dies_is_named_and_the_others_go_on_without_it(begin):
    cluster, folder, started = begin(min_nodes=2)

    cluster.fault("kill node2")

    assert until(lambda: None not in started.codes())
    assert started.codes()[:2] == (0, 0), [started.stderr(node) for node in range(2)]
    assert (blamed(folder, 0), blamed(folder, 1)) == ([2], [2])
    assert len(events(folder, "replan")) == 1
    assert steps_done(folder) == STEPS


def test_a_node_that_is_cut_off_is_named_and_where_all_are_needed_everybody_ends(begin):
    cluster, folder, started = begin(min_nodes=NODES)

    cluster.fault("cut node2")

    assert until(lambda: None not in started.codes()), [started.stderr(node) for node in range(NODES)]
    assert 0 not in started.codes()
    assert (blamed(folder, 0), blamed(folder, 1)) == ([2], [2])
    for node in range(NODES):
        assert len(said(started, node)) == 1
    assert "launch.min_nodes" in said(started, 0)[0]


@pytest.mark.soak
def test_without_the_node_where_all_meet_the_others_name_it_and_end_with_what_is_lost(begin):
    cluster, folder, started = begin(min_nodes=2)

    cluster.fault("kill node0")

    assert until(lambda: None not in started.codes()), [started.stderr(node) for node in range(NODES)]
    assert 0 not in started.codes()
    assert (blamed(folder, 1), blamed(folder, 2)) == ([0], [0])
    for node in (1, 2):
        (line,) = said(started, node)
        assert "lost the machine where all meet" in line
    assert checkpoints(folder.checkpoints)


@pytest.mark.soak
def test_a_cable_that_is_out_for_less_than_the_timeout_changes_nothing(begin):
    cluster, folder, started = begin(min_nodes=NODES)

    cluster.fault("cut node1")
    time.sleep(5)
    cluster.fault("restore node1")

    assert until(lambda: None not in started.codes())
    assert started.codes() == (0,) * NODES, [started.stderr(node) for node in range(NODES)]
    assert events(folder, "failure") == []
    assert events(folder, "restart") == []
    assert steps_done(folder) == STEPS


@pytest.mark.parametrize("ahead_s", [-10, 3600])
def test_a_node_whose_clock_is_wrong_stays_in_the_job_and_is_told_of_it(emulated, tmp_path, ahead_s):
    cluster = emulated(nodes=2, nic_bytes_per_s=125e6)
    launch = {"timeout_s": 30.0, "rejoin_s": REJOIN_S}
    folder, started = start_on_nodes(
        cluster, tmp_path / "run", write_corpus(tmp_path), launch=launch, clocks={1: ahead_s}, steps=10, record=False
    )

    assert until(lambda: None not in started.codes()), [started.stderr(node) for node in range(2)]
    assert started.codes() == (0, 0), [started.stderr(node) for node in range(2)]
    assert steps_done(folder) == 10
    assert events(folder, "restart") == []
    (told,) = events(folder, "clock")
    assert "the clock of node1 is" in told.message
    assert ("behind" if ahead_s < 0 else "ahead of") in told.message
