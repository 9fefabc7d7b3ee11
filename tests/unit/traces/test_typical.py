"""The typical step of steps, ranks, devices and windows that are unlike, and what a reader must know of them."""

import json

import pytest

from meshwright.report.pages.trace import figures_of, trace_page, verdict_of
from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized
from tests.unit.traces.jobs import Job

LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def every_second_batch_comes_late():
    """Let rank 1 wait for its loader in every second step, and the others for rank 1."""
    job = Job(4)
    for number in range(6):
        job.step(number)
        if number % 2:
            job.ranks[1].host_is(LOADER, 50_000)
        for rank in job.ranks:
            rank.compute(20_000)
        job.meet()
        for rank in job.ranks:
            rank.idle(100_000 * (number + 1) - 30_000 * (1 - number % 2) - rank.now_us)
    return job


def test_where_medians_do_not_make_up_a_step_means_are_told_as_such(tmp_path):
    ranks = read_traces(every_second_batch_comes_late().write(tmp_path))
    summary = summarized(ranks)
    step = summary.typical

    assert step == summary.mean
    assert figures_of(summary).startswith("means over steps and ranks")
    parts = step.compute_s + step.exposed_comm_s + step.data_s + step.idle_s + step.other_s
    assert parts == pytest.approx(step.step_s)
    page = trace_page(ranks, summary, "job")
    assert (page.mean, page.median) == (step, summary.median)


def test_missing_ranks_of_a_job_are_named(tmp_path):
    job = Job(6)
    for number in range(3):
        job.step(number)
        for rank in job.ranks:
            rank.compute(1000)
        job.meet()
    paths = job.write(tmp_path)
    summary = summarized(read_traces([paths[0], paths[4]]))

    assert "ranks 1-3, 5 are not among the traces" in str(summary.notes)


def test_the_windows_of_a_profiler_that_came_again_are_told_apart(tmp_path):
    paths = []
    for window, length_us in enumerate((40_000, 70_000)):
        job = Job(2)
        for number in (0, 1):
            job.step(100 * window + number)
            for rank in job.ranks:
                rank.compute(length_us)
            job.meet()
        folder = tmp_path / str(window)
        folder.mkdir()
        paths += job.write(folder)
    note = next(note for note in summarized(read_traces(paths)).notes if "windows" in note)

    assert note.startswith("the figures are over 2 windows of the profiler: steps 0 to 1, ")
    assert "; steps 100 to 101, " in note


def test_the_devices_of_one_process_are_not_told_as_ranks_of_a_job(tmp_path):
    events = [
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 7, "tid": 7, "ts": 1000 * step + 500 * device,
         "dur": 450, "args": {"stream": 7, "device": device}}
        for step in range(3) for device in (0, 1)
    ]  # fmt: skip
    path = tmp_path / "model.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    ranks = read_traces([path])
    summary = summarized(ranks)

    assert " on 2 devices of one process:" in verdict_of(ranks, summary)
    assert "one process used 2 devices, each of which is shown as a rank of its own" in str(summary.notes)


def test_exposed_communication_is_said_to_be_a_wait_where_a_rank_costs_most_of_it(tmp_path):
    job = Job(4)
    for number in range(4):
        job.step(number)
        for rank in job.ranks:
            rank.compute(95_000 if rank.number == 1 else 20_000)
        job.meet()
    ranks = read_traces(job.write(tmp_path))

    assert "exposed communication (76%, most of it a wait for rank 1)" in verdict_of(ranks, summarized(ranks))


def test_kernels_that_do_not_say_which_collective_they_are_are_told_as_such(tmp_path):
    job = Job(1)
    for number in range(3):
        job.step(number)
        job.ranks[0].compute(40_000)
        job.ranks[0].launch("ncclDevKernel_Generic_4()", job.ranks[0].now_us, 50_000, 20)
        job.ranks[0].now_us += 50_000
    ranks = read_traces(job.write(tmp_path))

    assert "of which kind its kernels do not say" in verdict_of(ranks, summarized(ranks))
