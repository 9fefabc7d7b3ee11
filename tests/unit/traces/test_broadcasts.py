"""A broadcast holds up all ranks where its root is late, and nobody else where a receiver is."""

import pytest

from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized
from tests.unit.traces.jobs import Job

LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def told_of(tmp_path, late, reduces, hosts=("node0",), clocks=(0.0,)):
    """Rank 0 sends its batch to all, as tensor parallel training does; `late` loads 20 ms longer."""
    job = Job(4, hosts, clocks)
    for number in range(4):
        job.step(number)
        job.ranks[late].host_is(LOADER, 20_000)
        job.broadcast()
        for rank in job.ranks:
            rank.compute(30_000)
        if reduces:
            job.meet()
    return summarized(read_traces(job.write(tmp_path)))


@pytest.mark.parametrize("reduces", [True, False], ids=["reduces behind it", "meets nowhere else"])
def test_a_root_that_loads_longer_is_the_culprit(tmp_path, reduces):
    culprit = told_of(tmp_path, 0, reduces).culprit

    assert culprit.rank == 0
    assert culprit.costs_s_per_step == pytest.approx(20e-3, rel=0.02)
    assert "is in the data loader 20 ms a step longer" in culprit.because


def test_a_receiver_that_comes_late_holds_up_the_others_where_they_wait_for_all(tmp_path):
    found = told_of(tmp_path, 2, reduces=True)

    assert found.culprit.rank == 2
    assert found.culprit.costs_s_per_step == pytest.approx(20e-3, rel=0.02)
    assert {meeting.name for meeting in found.meetings.found} == {"all_reduce"}


def test_clocks_are_aligned_by_what_ends_on_all_at_once(tmp_path):
    found = told_of(tmp_path, 2, reduces=True, hosts=("node0", "node1"), clocks=(0.0, 5e6))

    assert found.culprit.rank == 2
    assert found.culprit.costs_s_per_step == pytest.approx(20e-3, rel=0.02)
