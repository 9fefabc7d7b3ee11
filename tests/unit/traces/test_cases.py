"""Traces of the kinds that people have, each with what is in it: milliseconds of the typical step, and who is late."""

import pathlib

import pytest

from meshwright.errors import InputError
from meshwright.report.pages.trace import trace_page
from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized

DATA = pathlib.Path(__file__).parent / "data"
# file or folder: step, compute, exposed communication, hidden communication, idle, data
STEPS_MS = {
    "t01_deepep.json": (10, 6, 3.6, 4, 0.4, 0),
    "t03_launch_bound.json.gz": (10, 3, 0, 0, 7, 0),
    "t05_host_ahead.json": (30, 30, 0, 0, 0, 0),
    "t06_data_loader.json": (50, 18, 0, 0, 1, 31),
    "t07_culprit": (20, 5, 9.7, 0, 5, 0),
    "t08_old_categories.json": (1, 0.7, 0, 0, 0.2, 0.1),
    "t11_merged.json": (10, 5, 0, 0, 5, 0),
    "t12_names": (10, 4, 5, 0, 1, 0),
    "t15_list.json": (1, 0.9, 0, 0, 0.1, 0),
    "t16_tb": (1, 0.7, 0, 0, 0.3, 0),
    "t18_ascend.json": (1.9, 1.2, 0.6, 0, 0.1, 0),
    "t19_xpu.json": (1, 0.6, 0.3, 0, 0.1, 0),
    "t20_no_steps.json": (9.5, 5, 0, 0, 4.5, 0),
    "t21_all_to_all.json": (2, 0.9, 0.9, 0, 0.2, 0),
    "t24_odd_events.json": (1, 0.9, 0, 0, 0.1, 0),
    "t26_uneven": (1, 0.9, 0, 0, 0.1, 0),
    "t28_bytes.json": (1, 0.9, 0, 0, 0.1, 0),
    "t29_rank_str.json": (1, 0.9, 0, 0, 0.1, 0),
    "t30_gpu_only.json": (2.9, 1.8, 0.9, 0, 0.2, 0),
    "steps/dataloader_stall.json": (200, 77, 0, 0, 2, 121),
    "steps/gap_between_steps.json": (200, 100, 0, 0, 100, 0),
    "steps/host_ahead_prefetch.json": (100, 100, 0, 0, 0, 0),
    "steps/hidden_copies.json": (100, 99, 0, 0, 1, 0),
    "steps/deepep.json": (100, 40, 60, 0, 0, 0),
}
PARTS = ("step_s", "compute_s", "exposed_comm_s", "hidden_comm_s", "idle_s", "data_s")


def report(*names):
    ranks = read_traces([DATA / name for name in names])
    summary = summarized(ranks)
    return summary, trace_page(ranks, summary, "trace")


@pytest.mark.parametrize("name", STEPS_MS)
def test_where_the_step_of_a_trace_went(name):
    median = report(name)[0].median

    found = [getattr(median, part) * 1e3 for part in PARTS]
    assert found == pytest.approx(STEPS_MS[name], abs=0.005 * STEPS_MS[name][0])
    in_all = median.compute_s + median.exposed_comm_s + median.idle_s + median.data_s + median.other_s
    assert in_all == pytest.approx(median.step_s, rel=0.02)


@pytest.mark.parametrize(
    ("names", "rank", "costs_ms", "because"),
    [
        (["t07_culprit"], 3, 8.4, "code outside any operator"),
        (["t12_names"], 2, 4.0, "its kernels take 4 ms a step longer (sm90_xmma_gemm_bf16 most of it)"),
        (["real_runs/compute"], 1, 115.4, "MmBackward0"),
        (["real_runs/host"], 3, 72, "code outside any operator"),
        (
            [f"steps/straggler{rank}.json" for rank in range(4)],
            1,
            30,
            "its kernels take 30 ms a step longer (nvjet_tst",
        ),
    ],
)
def test_who_comes_last_is_named_with_what_it_did(names, rank, costs_ms, because):
    summary, page = report(*names)

    assert summary.culprit is not None
    assert summary.culprit.rank == rank
    assert summary.culprit.costs_s_per_step * 1e3 == pytest.approx(costs_ms, rel=0.02)
    assert because in summary.culprit.because
    assert f"rank {rank} is last in {len(summary.meetings.found)} of" in page.verdict


@pytest.mark.parametrize("names", [["real_runs/none"], ["steps/clock0.json", "steps/clock1.json"]])
def test_nobody_is_blamed_for_the_noise_of_a_scheduler_or_for_a_clock(names):
    summary, page = report(*names)

    assert summary.meetings.found
    assert summary.culprit is None
    assert "nobody is late" in page.verdict


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("t09_no_length.json", "nothing in it lasts"),
        ("t14_truncated.json", "byte 1129: the trace is cut off; export it again"),
        ("t27_same_rank", "rank0.json and .*rank1.json: both are rank 0, with the same step 0"),
    ],
)
def test_what_would_give_a_wrong_answer_is_refused(name, message):
    with pytest.raises(InputError, match=message):
        read_traces([DATA / name])


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("t03_launch_bound.json.gz", "idle time (70%, gaps of less than 200 us between kernels: the host launches too"),
        ("t06_data_loader.json", "the largest loss is waiting for data (62%)"),
        ("t20_no_steps.json", "no ProfilerStep in the trace: the whole trace, 9.5 ms, on 1 rank"),
        ("steps/hidden_copies.json", "no loss to speak of"),
        ("t01_deepep.json", "exposed communication (36%, most of it all_to_all)"),
    ],
)
def test_the_verdict_says_what_is_lost_and_to_what(name, verdict):
    assert verdict in report(name)[1].verdict


def test_steps_that_all_ranks_traced_are_compared_and_the_reader_is_told():
    summary, page = report("t26_uneven")

    assert summary.steps == 2
    assert "steps traced: rank 0 5, rank 1 2" in str(page.sections)


def test_a_collective_is_named_by_what_the_host_recorded_of_it():
    ((trace,),) = read_traces([DATA / "t21_all_to_all.json"])

    (call,) = trace.calls
    assert (call.name, call.bytes, call.group_size, call.group_text) == ("all_to_all", 2 * 2**20, 8, "ep")


def test_kernels_without_a_host_belong_to_no_phase():
    page = report("t30_gpu_only.json")[1]

    assert "kernels" in str(page.sections)
    assert "forward" not in str(page.sections)


@pytest.mark.parametrize(
    ("name", "ranks"), [("t29_rank_str.json", [1]), ("t11_merged.json", [0, 1]), ("t16_tb", [0, 1])]
)
def test_ranks_are_what_the_files_say(name, ranks):
    assert [own.rank for own in report(name)[0].ranks] == ranks
