"""The rank that comes last is told from its victims, whatever delayed it."""

import pytest

from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized
from tests.unit.traces.jobs import STEP_US, Job

LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def told_of(tmp_path, job):
    return summarized(read_traces(job.write(tmp_path)))


def made(folder):
    folder.mkdir()
    return folder


def run(job, late=None, steps=4, work_us=20_000.0, transfer_us=1000.0, told=True):
    """Let all ranks compute and reduce; `late(rank, step)` is called for each before it computes."""
    for number in range(steps):
        job.step(number)
        for rank in job.ranks:
            if late is not None:
                late(rank, number)
            rank.compute(work_us)
        job.meet(transfer_us=transfer_us, told=told)
    return job


REASONS = {
    "loader": (lambda rank: rank.host_is(LOADER, 5000), "its host is in the data loader 5 ms a step longer"),
    "allocator": (lambda rank: rank.host_is("cudaMalloc", 5000, "cuda_runtime"), "memory allocator 5 ms a step longer"),
    "garbage": (
        lambda rank: rank.host_is("gc.collect", 5000, "python_function"),
        "collects garbage 5 ms a step longer",
    ),
    "garbage of PyTorch 2.9": (
        lambda rank: rank.host_is("Python GC", 5000, "python_function"),
        "collects garbage 5 ms a step longer",
    ),
    "operators": (
        lambda rank: rank.host_is("aten::nonzero", 5000, "cpu_op"),
        "operators and launches 5 ms a step longer (aten::nonzero most of it)",
    ),
    "waiting": (lambda rank: rank.host_is("cudaStreamSynchronize", 5000, "cuda_runtime"), "waits for the device 5 ms"),
    "outside": (lambda rank: rank.idle(5000), "its host is in code outside any operator 5 ms a step longer"),
    "kernels": (lambda rank: rank.compute(5000, "slow"), "its kernels take 5 ms a step longer (slow most of it)"),
}


LOADERS = (
    ("python_function", "torch/utils/data/dataloader.py(733): __next__"),
    ("python_function", "/opt/venv/lib/python3.12/site-packages/nvidia/dali/plugin/pytorch.py(301): __next__"),
    ("user_annotation", "[pl][profile][_TrainingEpochLoop].train_dataloader_next"),
    ("user_annotation", "get_batch"),
)


@pytest.mark.parametrize(("cat", "what"), LOADERS)
def test_a_loader_is_known_by_the_frames_and_annotations_of_libraries(tmp_path, cat, what):
    def late(rank, step):
        if rank.number == 1:
            rank.host_is(what, 5000, cat)

    found = told_of(tmp_path, run(Job(3), late))

    assert found.culprit.rank == 1
    assert "is in the data loader 5 ms" in found.culprit.because
    assert found.ranks[1].data_s == pytest.approx(5e-3)


def test_a_trace_without_steps_is_told_as_a_whole(tmp_path):
    job = run(
        Job(3), lambda rank, step: rank.host_is("gc.collect", 5000, "python_function") if rank.number == 1 else None
    )
    for rank in job.ranks:
        rank.events = [event for event in rank.events if "Step" not in event["name"]]
    found = told_of(tmp_path, job)

    assert found.culprit.rank == 1
    assert "a step" not in found.culprit.because


@pytest.mark.parametrize("what", REASONS)
def test_what_kept_the_last_is_said(tmp_path, what):
    keep, because = REASONS[what]
    found = told_of(tmp_path, run(Job(4), lambda rank, step: keep(rank) if rank.number == 2 else None))

    assert found.culprit.rank == 2
    assert found.culprit.costs_s_per_step == pytest.approx(5e-3)
    assert because in found.culprit.because


@pytest.mark.parametrize(
    ("cat", "what"), [("user_annotation", "write samples"), ("python_function", "text.py(88): tokenize")]
)
def test_a_frame_or_an_annotation_says_in_which_code_a_host_is(tmp_path, cat, what):
    """The loop of the training, which lasts for the whole step, says nothing."""

    def late(rank, step):
        rank.event("python_function", "train.py(10): main", rank.now_us, 60_000)
        if rank.number == 2:
            rank.event(cat, "a part of it", rank.now_us, 1500)
            rank.host_is(what, 5000, cat)

    found = told_of(tmp_path, run(Job(4), late))

    assert f"its host is in {what}, outside any operator, 5 ms a step longer" in found.culprit.because


def test_what_all_hosts_run_says_nothing_of_the_one_that_is_late(tmp_path):
    def late(rank, step):
        rank.host_is("write samples", 5000)
        rank.idle(4000 if rank.number == 2 else 0)

    found = told_of(tmp_path, run(Job(4), late))

    assert "its host is in code outside any operator 4 ms a step longer" in found.culprit.because


@pytest.mark.parametrize(
    "late",
    [
        lambda rank, step: rank.host_is(LOADER, 30_000),  # everyone's loader is slow
        lambda rank, step: rank.idle(5000) if rank.number == step % 4 else None,  # each in turn
        lambda rank, step: rank.idle(5000) if (rank.number, step) == (1, 2) else None,  # one once
        lambda rank, step: rank.idle(200 * rank.number),  # little
        lambda rank, step: rank.idle(2500 * ((rank.number * 7 + step * 5) % 4)),  # noise
    ],
)
def test_nobody_is_blamed_for_what_all_do_or_one_does_once(tmp_path, late):
    assert told_of(tmp_path, run(Job(4), late)).culprit is None


def test_nobody_is_blamed_for_a_slow_link(tmp_path):
    job = run(Job(4), lambda rank, step: rank.idle(2000) if rank.number == 1 else None, transfer_us=60_000)
    found = told_of(tmp_path, job)

    assert found.culprit is None
    assert found.finding.said == "nobody is late step after step: what collectives take is the transfer itself"


def test_a_rank_that_is_late_now_and_then_is_said_but_not_blamed(tmp_path):
    def late(rank, step):
        if rank.number == 2 and step in {1, 5}:
            rank.host_is("gc.collect", 40_000, "python_function")

    found = told_of(tmp_path, run(Job(4), late, steps=8))

    assert found.culprit is None
    assert "rank 2 is late in 2 of 8 steps and costs 40 ms in each of them" in found.finding.said
    assert "collects garbage 40 ms" in found.finding.said


def test_a_step_that_begins_late_is_explained_by_the_end_of_the_one_before(tmp_path):
    """Rank 1 saves a checkpoint when step 2 has met for the last time; the others wait for it in step 3."""
    job = Job(4)
    for number in range(6):
        start_us = max(100_000.0 * number, *(rank.now_us for rank in job.ranks if rank.number != 1))
        for rank in job.ranks:
            rank.now_us = max(start_us, rank.now_us)
            rank.event("user_annotation", f"ProfilerStep#{number}", rank.now_us, 25_000)
            rank.compute(20_000)
        job.meet()
        if number == 2:
            job.ranks[1].host_is("save_checkpoint", 300_000)
    found = told_of(tmp_path, job)

    assert found.culprit is None
    assert "rank 1 is late in step 3 alone" in found.finding.said
    assert "because its host is in save_checkpoint, outside any operator," in found.finding.said


def test_ranks_that_are_late_together_under_computation_cost_what_comes_out_behind_it(tmp_path):
    """Gradients are reduced in two buckets: the lag to the first hides under computation, and comes out later."""
    job = Job(6)
    for number in range(4):
        job.step(number)
        more_us = [8000 if rank.number in {2, 3} else 0 for rank in job.ranks]
        for rank, later_us in zip(job.ranks, more_us, strict=True):
            rank.compute(20_000 + later_us)
        first = job.meet_at("all_reduce", [rank.now_us for rank in job.ranks], 20_000, stream=20)
        for rank, sooner_us in zip(job.ranks, more_us, strict=True):
            rank.compute(12_000 - sooner_us)
        end = job.meet_at("all_reduce", [first] * len(job.ranks), 20_000, stream=20)
        for rank in job.ranks:
            rank.now_us = end
    found = told_of(tmp_path, job)

    assert found.culprit is None
    assert found.finding.said.startswith("ranks 2 and 3 come last together and cost 8 ms a step")


def test_ranks_that_are_slow_together_are_said_and_none_is_blamed(tmp_path):
    """The two ranks of the second host of three: without both, the others would not wait for the later one either."""
    job = run(
        Job(6), lambda rank, step: rank.compute(6000 + 20 * rank.number, "slow") if rank.number in {2, 3} else None
    )
    found = told_of(tmp_path, job)

    assert found.culprit is None
    assert found.finding.said.startswith(
        "ranks 2 and 3 come last together and cost 6.06 ms a step, none of them alone; of rank 2"
    )


@pytest.mark.parametrize("late", [{0, 1, 2, 3}, {0}])
def test_most_ranks_or_one_are_not_late_together(tmp_path, late):
    found = told_of(tmp_path, run(Job(6), lambda rank, step: rank.idle(6000) if rank.number in late else None))

    assert "together" not in found.finding.said


def test_ranks_that_are_late_now_and_then_in_turn_are_not_named(tmp_path):
    found = told_of(tmp_path, run(Job(4), lambda rank, step: rank.idle(40_000 * (step == 2 * rank.number)), steps=8))

    assert found.culprit is None
    assert "rank" not in found.finding.said


def test_what_a_host_does_is_not_told_where_nothing_of_it_is_traced(tmp_path):
    job = run(Job(3), lambda rank, step: rank.idle(5000) if rank.number == 1 else None)
    for rank in job.ranks:
        rank.events = [event for event in rank.events if event["cat"] != "cuda_runtime"]
    found = told_of(tmp_path, job)

    assert found.culprit.rank == 1
    assert found.culprit.because == "its device idles 5 ms a step longer, of its host there is nothing in the trace"


@pytest.mark.parametrize("told", [True, False], ids=["told", "by their order"])
def test_clocks_of_hosts_that_differ_hide_nobody(tmp_path, told):
    job = Job(4, hosts=("node0", "node1"), clocks=(0.0, 5e6))
    found = told_of(tmp_path, run(job, lambda rank, step: rank.idle(5000) if rank.number == 3 else None, told=told))

    assert found.culprit.rank == 3
    assert found.culprit.costs_s_per_step == pytest.approx(5e-3)


def test_a_wait_that_hides_under_computation_costs_nothing(tmp_path):
    job = Job(2)
    for number in range(4):
        job.step(number)
        job.ranks[1].idle(5000)
        for rank in job.ranks:
            rank.compute(20_000)
        job.ranks[0].launch("gemm", job.ranks[0].now_us, 6000, 7)  # goes on while its reduction waits
        job.meet()
    found = told_of(tmp_path, job)

    assert found.culprit is None


@pytest.mark.parametrize(("gap_us", "costs_s"), [(5, 5e-3), (3000, 3e-3)], ids=["one chain", "not ready before"])
def test_a_wait_that_hides_costs_what_comes_out_of_it_behind_the_computation(tmp_path, gap_us, costs_s):
    """Rank 1 is 5 ms late to the first of three reductions, under which rank 0 computes for another 6 ms.

    Where the second was not ready before, rank 0 goes on when it has computed and the first is done: 3 ms later.
    """
    job = Job(2)
    for number in range(4):
        job.step(number)
        job.ranks[1].idle(5000)
        for rank in job.ranks:
            rank.compute(20_000)
            rank.launch("gemm", rank.now_us, 6000, 7)
        for _ in range(3):
            job.meet(transfer_us=4000)
            for rank in job.ranks:
                rank.idle(gap_us)
    found = told_of(tmp_path, job).culprit

    assert found.rank == 1
    assert found.costs_s_per_step == pytest.approx(costs_s)


def gathers_and_reduces(slow_us, gather_us, reduce_us, layers=6, steps=4):
    """Let two ranks train sharded: each layer's weights are gathered ahead on one stream, gradients reduced on another.

    Rank 1 takes `slow_us` longer for each layer. Returns the job and how long its typical step takes.
    """
    job, length_us = Job(2), []
    for number in range(steps):
        job.step(number)
        begun_us = job.ranks[0].now_us
        done = [begun_us + gather_us] * 2  # of the layer before
        reduced_us = begun_us
        job.meet_at("all_gather", [begun_us] * 2, gather_us, stream=22)
        for layer in range(layers):
            gathered_us = max(done)
            if layer + 1 < layers:  # called as the layer begins
                gathered_us = job.meet_at("all_gather", done, gather_us, stream=22)
            for rank, start_us in zip(job.ranks, done, strict=True):
                rank.launch("gemm", start_us, 1400 + slow_us * rank.number, 7)
            computed = [start_us + 1400 + slow_us * rank.number for rank, start_us in zip(job.ranks, done, strict=True)]
            reduced_us = job.meet_at("reduce_scatter", [max(end, reduced_us) for end in computed], reduce_us, stream=24)
            done = [max(end, gathered_us) for end in computed]
        for rank in job.ranks:
            rank.launch("adam", reduced_us, 200, 7)
            rank.now_us = reduced_us + 200
        length_us.append(reduced_us + 200 - begun_us)
    return job, length_us[0]


@pytest.mark.parametrize(("gather_us", "reduce_us"), [(200, 2500), (600, 3000), (200, 300), (1000, 2600)])
def test_what_a_straggler_costs_beside_transfers_that_last_longer_is_what_the_step_is_longer(
    tmp_path, gather_us, reduce_us
):
    """Gradients that move without a gap end the step: most of what the gathers wait for rank 1 costs nothing."""
    job, length_us = gathers_and_reduces(840, gather_us, reduce_us)
    costs_us = length_us - gathers_and_reduces(0, gather_us, reduce_us)[1]
    found = told_of(tmp_path, job)

    late = found.finding.lateness[1][1]
    assert late * 1e6 == pytest.approx(costs_us, rel=0.25, abs=60)


def test_who_waited_for_another_is_not_blamed_for_coming_late(tmp_path):
    """Rank 0 is late to the pair of 0 and 1; so rank 1 comes late to the pair of 1 and 3."""
    job = Job(4)
    for number in range(4):
        job.step(number)
        job.ranks[0].idle(8000)
        for rank in job.ranks:
            rank.compute(20_000)
        for pair in ((0, 1), (2, 3), (0, 2), (1, 3)):
            job.meet(pair)
    found = told_of(tmp_path, job)

    assert found.culprit.rank == 0


def buckets_beside_two_late_ranks(slow_us, layers=8, steps=4):
    """Let four ranks reduce gradients in buckets under the next layer; the loader of rank 1 is slow by 4 ms.

    Rank 2 takes `slow_us` longer for each layer. Returns the job and how long its typical step takes.
    """
    job, length_us = Job(4), []
    for number in range(steps):
        job.step(number)
        begun_us = job.ranks[0].now_us
        job.ranks[1].host_is(LOADER, 4000)
        reduced_us = begun_us
        for _ in range(layers):
            for rank in job.ranks:
                rank.compute(6000 + (slow_us if rank.number == 2 else 0))
            starts = [max(rank.now_us, reduced_us) for rank in job.ranks]
            reduced_us = job.meet_at("all_reduce", starts, 900, stream=20)
        for rank in job.ranks:
            rank.now_us = reduced_us
        length_us.append(reduced_us - begun_us)
    return job, length_us[0]


def test_a_rank_costs_what_the_step_is_longer_than_with_the_next_late_rank_alone(tmp_path):
    job, length_us = buckets_beside_two_late_ranks(1200)
    costs_us = length_us - buckets_beside_two_late_ranks(0)[1]
    found = told_of(tmp_path, job)

    assert found.culprit.rank == 2
    assert found.culprit.costs_s_per_step * 1e6 == pytest.approx(costs_us, rel=0.1)


def tensor_groups_in_data_groups(slow_us, late=(5,), layers=8, steps=4):
    """Let four pairs split each layer, and reduce its gradients across the pairs while they compute the next layer.

    Ranks that are `late` take `slow_us` longer for each layer. Returns the job and how long its typical step takes.
    """
    job, length_us = Job(8), []
    groups = [(0, 2, 4, 6), (1, 3, 5, 7)]
    for number in range(steps):
        job.step(number)
        begun_us = job.ranks[0].now_us
        reduced_us = [begun_us, begun_us]
        for layer in range(layers):
            for rank in job.ranks:
                rank.compute(6000 + 40 * ((rank.number + layer) % 3) + (slow_us if rank.number in late else 0))
            ready = [rank.now_us for rank in job.ranks]
            for pair in range(4):
                job.meet((2 * pair, 2 * pair + 1), transfer_us=190)
            for place, group in enumerate(groups):
                starts = [max(ready[rank], reduced_us[place]) for rank in group]
                reduced_us[place] = job.meet_at("all_reduce", starts, 700, stream=41, members=group)
        for rank in job.ranks:
            rank.now_us = max(rank.now_us, reduced_us[rank.number % 2])
            rank.compute(300, "adam")
        length_us.append(max(rank.now_us for rank in job.ranks) - begun_us)
    return job, length_us[0]


def test_who_waits_in_its_tensor_group_is_not_blamed_for_gradients_that_are_late_by_it(tmp_path):
    """Both groups have all-reduces, those of the gradients hidden under the next layer and its all-reduces."""
    job, length_us = tensor_groups_in_data_groups(1500)
    costs_us = length_us - tensor_groups_in_data_groups(0)[1]
    found = told_of(tmp_path, job)

    assert found.culprit.rank == 5
    assert found.culprit.costs_s_per_step * 1e6 == pytest.approx(costs_us, rel=0.15)


def test_a_replica_that_is_late_as_a_whole_is_said_though_its_ranks_meet_the_others_one_by_one(tmp_path):
    job, _ = tensor_groups_in_data_groups(1500, late=(4, 5))
    found = told_of(tmp_path, job)

    assert found.culprit is None
    assert found.finding.said.startswith("ranks 4 and 5 come last together and cost ")
    assert "its kernels take 12" in found.finding.said


def test_a_host_of_sharded_replicas_that_is_late_is_said(tmp_path):
    """Each host shards among its four ranks; each rank reduces with the one of the same shard on the other host."""
    job = Job(8, hosts=("node0", "node0", "node0", "node0", "node1", "node1", "node1", "node1"))
    for number in range(4):
        job.step(number)
        for rank in job.ranks:
            rank.compute(20_000 + (7000 if rank.number >= 4 else 10 * rank.number))
        for shard in ((0, 1, 2, 3), (4, 5, 6, 7)):
            job.meet(shard, name="reduce_scatter")
        for rank in range(4):
            job.meet((rank, rank + 4))
    found = told_of(tmp_path, job)

    assert found.culprit is None
    assert found.finding.said.startswith("ranks 4, 5, 6 and 7 come last together and cost 6.97 ms a step, ")


def test_the_stages_of_a_pipeline_are_no_stragglers(tmp_path):
    job = Job(4)
    for number in range(4):
        job.step(number)
        for first, second in ((0, 2), (1, 3)):
            job.ranks[first].compute(20_000)
            job.ranks[second].now_us = job.ranks[first].now_us
            for rank in (first, second):
                pair = str([first, second])
                job.ranks[rank].launch(
                    "ncclDevKernel_SendRecv()", job.ranks[rank].now_us, 100, 21,
                    **{"Collective name": "send" if rank == first else "recv", "Group size": 2,
                       "Process Group Name": pair, "Process Group Ranks": pair},
                )  # fmt: skip
                job.ranks[rank].now_us += 100
            job.ranks[second].compute(20_000)
        job.meet((0, 1))
        job.meet((2, 3))
        job.meet()  # the norm of the gradients: the last stage comes last, by its place
    found = told_of(tmp_path, job)

    assert found.culprit is None
    assert "stages of a pipeline" in str(found.notes)


def test_calls_without_a_group_that_cannot_be_one_collective_blame_nobody(tmp_path):
    """Two pairs, of which no trace says who is in which; the one pair is done before the other begins."""
    job = Job(4)
    for number in range(4):
        job.step(number)
        for pair, work_us in (((0, 1), 10_000), ((2, 3), 40_000)):
            for member in pair:
                job.ranks[member].compute(work_us)
            job.meet(pair, told=False)
    found = told_of(tmp_path, job)

    assert found.culprit is None
    assert "who comes last is not known" in str(found.notes)


def test_a_profiler_that_begins_late_blames_nobody_and_hides_nobody(tmp_path):
    """Rank 0's trace begins 60 ms after rank 1's; rank 1 is late by 5 ms in each step."""
    job = Job(2)
    for number in range(3):
        job.step(number)
        if number == 0:
            mark = job.ranks[0].events[-1]
            mark["ts"], mark["dur"] = mark["ts"] + 60_000, mark["dur"] - 60_000
            job.ranks[0].now_us += 60_000
        job.ranks[1].idle(5000)
        for rank in job.ranks:
            rank.compute(10_000)
        job.meet()
    found = told_of(tmp_path, job)

    assert found.culprit.rank == 1
    assert found.culprit.costs_s_per_step == pytest.approx(5e-3)


def test_several_groups_of_one_name_are_not_joined(tmp_path):
    job = Job(4)
    for number in range(4):
        job.step(number)
        for pair in ((0, 1), (2, 3)):
            for member in pair:
                job.ranks[member].compute(10_000)
            job.meet(pair)
    for rank in job.ranks:
        for event in rank.events:
            event["args"] = {key: value for key, value in event["args"].items() if "Process Group" not in key}
    found = told_of(tmp_path, job)

    assert not found.meetings.found


def test_sequence_numbers_join_what_the_order_would_not(tmp_path):
    """Rank 1's profiler began one collective later, and its steps are not marked."""
    job = run(Job(2), lambda rank, step: rank.idle(5000) if rank.number == 0 else None, steps=5)
    for rank in job.ranks:
        reductions = [event for event in rank.events if "Collective name" in event["args"]]
        for seq, event in enumerate(reductions):
            event["args"]["Seq"] = seq
    job.ranks[1].events = [e for e in job.ranks[1].events if e["ts"] >= 1e6 + STEP_US and "Step" not in e["name"]]
    found = told_of(tmp_path, job)

    assert found.culprit.rank == 0
    assert len(found.meetings.found) == 4
    assert {meeting.last.rank for meeting in found.meetings.found} == {0}


def test_a_reader_is_told_that_not_all_ranks_are_there(tmp_path):
    job = run(Job(2), lambda rank, step: rank.idle(5000) if rank.number == 0 else None)
    for rank in job.ranks:
        for event in rank.events:
            if "Group size" in event["args"]:
                event["args"]["Group size"] = 8
    found = told_of(tmp_path, job)

    assert found.culprit.rank == 0
    assert "up to 6 ranks of a group are not among the traces" in str(found.notes)
    assert "up to 6 ranks" in found.finding.said  # the last of them may come later still


def test_what_collectives_take_is_not_told_where_ranks_of_the_job_are_missing(tmp_path):
    """Rank 3, whose trace was not kept, is late; no call says how large its group is."""
    job = run(Job(4), lambda rank, step: rank.idle(9000) if rank.number == 3 else None, told=False)
    folder = made(tmp_path / "kept")
    for path in job.write(tmp_path)[:3]:
        path.rename(folder / path.name)
    found = summarized(read_traces([folder]))

    assert found.culprit is None
    assert found.finding.said.startswith("none of the ranks traced is late")
    assert "; rank 3 is not among the traces" in found.finding.said


@pytest.mark.parametrize("ranks", [2, 4])
def test_sends_and_receives_that_nothing_tells_apart_are_an_all_to_all_of_more_than_two(tmp_path, ranks):
    """Two ranks may be the stages of a pipeline, of which the one is always later."""
    job = Job(ranks)
    for number in range(4):
        job.step(number)
        job.ranks[1].idle(9000)
        for rank in job.ranks:
            rank.compute(20_000)
        job.meet(name="SendRecv", told=False)
        job.meet(told=False)
    found = told_of(tmp_path, job)

    assert (found.culprit.rank if found.culprit else None) == (1 if ranks > 2 else None)


def test_calls_that_were_coalesced_share_a_number_and_are_joined_by_their_order(tmp_path):
    job = run(Job(2), lambda rank, step: rank.idle(5000) if rank.number == 0 else None)
    for rank in job.ranks:
        for event in rank.events:
            if "Group size" in event["args"]:
                event["args"]["Seq"] = 1

    assert told_of(tmp_path, job).culprit.rank == 0


def test_ranks_whose_work_differs_by_design_hide_nobody(tmp_path):
    """Each rank holds other embeddings; the largest come last in every step, by less than the others are apart."""
    times_us = (0, 1000, 2500, 4000, 9000, 15_000, 18_000, 24_000)
    found = told_of(tmp_path, run(Job(8), lambda rank, step: rank.compute(times_us[rank.number] + 1, "embedding")))

    assert found.culprit.rank == 7
    assert found.culprit.costs_s_per_step == pytest.approx(6e-3, rel=0.01)
    assert "embedding most of it" in found.culprit.because


def test_a_slow_loader_and_a_slow_link_are_both_said(tmp_path):
    def late(length_us):
        return lambda rank, step: rank.host_is(LOADER, length_us) if rank.number == 2 else None

    larger = told_of(made(tmp_path / "a"), run(Job(4), late(10_000), transfer_us=30_000.0))
    little = told_of(made(tmp_path / "b"), run(Job(4), late(4_000), transfer_us=60_000.0))

    assert larger.culprit.rank == 2
    assert "the transfers themselves take 30 ms a step, more than that" in larger.finding.said
    assert little.culprit is None
    assert "what collectives take is the transfer itself; rank 2 costs 4 ms a step beside it" in little.finding.said


@pytest.mark.parametrize("named", [True, False], ids=["host names", "no host names"])
def test_clocks_are_aligned_over_hosts_that_meet_only_through_others(tmp_path, named):
    hosts = [f"node{n}" if named else "" for n in range(6)]
    job = Job(6, hosts=hosts, clocks=[n * (-1) ** n * 1.7e6 for n in range(6)])
    for step in range(4):
        job.step(step)
        for rank in job.ranks:
            rank.compute(20_000.0 + (9_000.0 if rank.number == 3 else 0.0))
        for first in (0, 2, 4, 1, 3):  # neighbours alone
            job.meet([first, first + 1], transfer_us=500.0)
    found = summarized(read_traces(job.write(tmp_path))).meetings.found
    ends = [[arrival.end_s for arrival in meeting.arrivals] for meeting in found]
    assert len(ends) == 20
    assert max(max(one) - min(one) for one in ends) < 1e-6
