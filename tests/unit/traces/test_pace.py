"""The rank that holds up its pipeline is told from a stage that has more work."""

import pytest

from meshwright.report.pages.trace import verdict_of
from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized
from tests.unit.traces.jobs import Job

STAGES, MICROBATCHES, STEPS = 4, 6, 4
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def passed(rank, peer, kind, until_us):
    """Let a rank wait in a kernel of NCCL until what it sends or receives is there."""
    pair = str(sorted((rank.number, peer)))
    rank.launch(
        "ncclDevKernel_SendRecv()", rank.now_us, until_us - rank.now_us, 21,
        **{"Collective name": kind, "Group size": 2, "Process Group Name": pair, "Process Group Ranks": pair},
    )  # fmt: skip
    rank.now_us = until_us


def pipeline(work, chains=(range(STAGES),)):
    """Run microbatches through the stages of each chain; `work(rank, step)` is what a stage does with each."""
    job = Job(sum(map(len, chains)))
    for number in range(STEPS):
        job.step(number)
        for chain in chains:
            microbatches([job.ranks[rank] for rank in chain], lambda rank, step=number: work(rank, step))
        for replicas in zip(*chains, strict=True):
            if len(replicas) > 1:
                job.meet(replicas)
        job.meet()  # the norm of the gradients
        for rank in job.ranks:
            rank.compute(300, "adam")
    return job


def microbatches(stages, work):
    for _ in range(MICROBATCHES):
        ready_us = 0.0
        for place, rank in enumerate(stages):
            if place:
                passed(rank, stages[place - 1].number, "recv", max(rank.now_us, ready_us) + 20)
            work(rank)
            ready_us = rank.now_us
            if rank is not stages[-1]:
                passed(rank, stages[place + 1].number, "send", rank.now_us + 20)


def told_of(tmp_path, job):
    ranks = read_traces(job.write(tmp_path))
    summary = summarized(ranks)
    return summary, verdict_of(ranks, summary)


def layers(rank, count, length_us=900.0):
    for _ in range(count):
        rank.compute(length_us, "gemm")
        rank.compute(length_us / 3, "attention")


def test_a_stage_whose_kernels_last_longer_is_the_culprit(tmp_path):
    summary, verdict = told_of(
        tmp_path, pipeline(lambda rank, step: layers(rank, 6, 1200 if rank.number == 2 else 900))
    )

    assert summary.culprit.rank == 2
    assert summary.culprit.costs_s_per_step == pytest.approx(6 * MICROBATCHES * 400e-6)
    assert "rank 2 sets the pace of its pipeline and costs up to 14.4 ms a step, because its kernels take" in verdict


def test_a_stage_whose_host_loads_for_each_microbatch_is_the_culprit(tmp_path):
    def work(rank, step):
        if rank.number == 0:
            rank.host_is(LOADER, 2000)
        layers(rank, 2)

    summary, verdict = told_of(tmp_path, pipeline(work))

    assert summary.culprit.rank == 0
    assert "is in the data loader" in verdict


@pytest.mark.parametrize("head", ["gemm", "logits"])
def test_a_stage_with_more_work_is_named_but_no_rank_is_blamed(tmp_path, head):
    """The last stage has a layer more, or the projection to the vocabulary under a name of its own or the layers'."""

    def work(rank, step):
        layers(rank, 2)
        if rank.number == STAGES - 1:
            rank.compute(1500, head)

    summary, verdict = told_of(tmp_path, pipeline(work))

    assert summary.culprit is None
    assert "the stage of rank 3 works 9 ms a step longer" in verdict
    assert "it has more work" in verdict
    assert "nobody is late" not in verdict


def test_a_stage_whose_replicas_work_as_long_has_more_work(tmp_path):
    """The kernels of ranks 0 and 2 bear the names of the others' and last longer: their layers are wider."""
    job = pipeline(lambda rank, step: layers(rank, 6, 900 if rank.number % 2 else 1400), [(0, 1), (2, 3)])
    summary, verdict = told_of(tmp_path, job)

    assert summary.culprit is None
    assert "its replicas work as long" in verdict


def test_whether_a_stage_with_kernels_of_its_own_is_slower_is_not_told(tmp_path):
    _, verdict = told_of(
        tmp_path, pipeline(lambda rank, step: rank.compute(2000 + 900 * (rank.number == 1), f"k{rank.number}"))
    )

    assert "whether it has more work or is slower is not told" in verdict


def test_a_stage_that_idles_for_a_reason_that_is_not_traced_is_said_and_not_blamed(tmp_path):
    def work(rank, step):
        if rank.number == 2:
            rank.idle(2000)
        layers(rank, 2)

    summary, verdict = told_of(tmp_path, pipeline(work))

    assert summary.culprit is None
    assert "the device of rank 2 idles 12 ms a step longer than any other of its pipeline" in verdict


def test_stages_that_are_slow_in_turn_or_even_are_not_named(tmp_path):
    for name, late in (("even", lambda rank, step: 0), ("turns", lambda rank, step: step % STAGES == rank.number)):
        (tmp_path / name).mkdir()
        job = pipeline(lambda rank, step, late=late: layers(rank, 2, 1400 if late(rank, step) else 900))
        summary, verdict = told_of(tmp_path / name, job)

        assert summary.culprit is None
        assert "the stage of" not in verdict
        assert "pipeline" not in verdict


def there_and_back(stages):
    """Let even stages pass all microbatches on, and then back; each waits in its receive for what it needs."""
    for order in (stages, stages[::-1]):
        ready_us = {}
        for batch in range(MICROBATCHES):
            for place, rank in enumerate(order):
                if place:
                    before = order[place - 1].number
                    passed(rank, before, "recv", max(rank.now_us, ready_us[batch, before]) + 20)
                layers(rank, 8)
                ready_us[batch, rank.number] = rank.now_us
                if rank is not order[-1]:
                    passed(rank, order[place + 1].number, "send", rank.now_us + 20)


def test_even_stages_that_wait_in_receives_are_held_up_by_the_bubble_alone(tmp_path):
    job = Job(STAGES)
    for number in range(STEPS):
        job.step(number)
        there_and_back(job.ranks)
        job.meet()
    summary, verdict = told_of(tmp_path, job)

    assert summary.culprit is None
    assert "the bubble of a pipeline of 4 stages and 6 micro-batches is" in verdict
    assert verdict.endswith(": nobody holds it up")


def test_the_middle_of_a_pipeline_is_not_taken_for_the_whole_of_it(tmp_path):
    job = Job(STAGES)
    for number in range(STEPS):
        job.step(number)
        there_and_back(job.ranks)
        job.meet()
    ranks = read_traces(job.write(tmp_path)[1:3])

    assert "bubble" not in verdict_of(ranks, summarized(ranks))
