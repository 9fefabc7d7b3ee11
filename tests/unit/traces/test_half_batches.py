"""Experts whose tokens travel while the other half of the batch is computed: what a rank with more of them costs."""

import pytest

from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized
from tests.unit.traces.jobs import Job

ATTENTION_US, EXPERTS_US, LAYERS, STEPS = 500, 800, 4, 4


class Halves:
    """A half batch that goes forward beside one that goes backward, on two ranks; experts take rank 1 longer."""

    def __init__(self, slow_us):
        self.job, self.slow_us = Job(2), slow_us
        self.main, self.travelled = [0.0, 0.0], 0.0

    def compute(self, ready_us, length_us, name):
        """Compute on each rank once its data are there and its stream is free; return when each ends."""
        for rank in self.job.ranks:
            start = max(self.main[rank.number], ready_us[rank.number])
            more_us = self.slow_us * rank.number * length_us / EXPERTS_US if name == "experts" else 0
            rank.launch(name, start, length_us + more_us, 7)
            self.main[rank.number] = start + length_us + more_us
        return list(self.main)

    def travel(self, ready_us, transfer_us):
        """Send tokens on a stream of their own; return when each rank has them."""
        starts = [max(self.travelled, one) for one in ready_us]
        self.travelled = self.job.meet_at("all_reduce", starts, transfer_us, stream=20)
        return [self.travelled] * 2

    def step(self, number, dispatch_us, combine_us):
        """Return how long a step takes."""
        self.job.step(number)
        begun = self.job.ranks[0].now_us
        self.main, self.travelled = [begun] * 2, begun
        forward = backward = [begun] * 2
        for _ in range(LAYERS):
            forward = self.compute(forward, ATTENTION_US, "attention")
            combined = self.travel(backward, combine_us)
            backward = self.compute(combined, 2 * EXPERTS_US, "experts")
            dispatched = self.travel(forward, dispatch_us)
            forward = self.compute(dispatched, EXPERTS_US, "experts")
            dispatched = self.travel(backward, dispatch_us)
            backward = self.compute(dispatched, 2 * ATTENTION_US, "attention")
            forward = self.travel(forward, combine_us)
        end = max(*self.main, *forward, *backward)
        for rank in self.job.ranks:
            rank.launch("adam", end, 300, 7)
            rank.now_us = end + 300
        return end + 300 - begun


@pytest.mark.parametrize(
    ("slow_us", "dispatch_us", "combine_us"), [(240, 400, 800), (400, 200, 1200), (400, 700, 300), (100, 1200, 1200)]
)
def test_a_rank_with_more_tokens_costs_what_the_step_is_longer(tmp_path, slow_us, dispatch_us, combine_us):
    slow, even = Halves(slow_us), Halves(0)
    for number in range(STEPS):
        longer_us = slow.step(number, dispatch_us, combine_us) - even.step(number, dispatch_us, combine_us)
    found = summarized(read_traces(slow.job.write(tmp_path)))

    assert found.finding.lateness[1][1] * 1e6 == pytest.approx(longer_us, rel=0.12, abs=50)


def test_a_wait_under_computation_counts_as_far_as_its_own_transfer_would_have_moved_there(tmp_path):
    """Rank 1 comes 5 ms late; 3 ms of that hide under the other half, which would have hidden the transfer."""
    job = Job(2)
    for number in range(STEPS):
        job.step(number)
        for rank in job.ranks:
            rank.compute(20_000 + 5000 * rank.number)
        starts = [rank.now_us for rank in job.ranks]
        end = job.meet_at("all_reduce", starts, 4000, stream=20)
        for rank in job.ranks:
            rank.compute(3000, "the other half")
            rank.now_us = end
    culprit = summarized(read_traces(job.write(tmp_path))).culprit

    assert culprit.rank == 1
    assert culprit.costs_s_per_step == pytest.approx(5e-3)
