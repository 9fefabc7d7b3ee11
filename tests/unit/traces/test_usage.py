"""Copies between host and device: apart from waits for the data loader, and as the reason of a late rank."""

import json

import pytest

from meshwright.report.pages.trace import verdict_of
from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized
from tests.unit.traces.jobs import Job

COPY_STREAM = 19
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def job(copied_us, loaded_us):
    """Let each step wait for its loader, then for weights that come from the host's memory layer by layer."""
    made = Job(2)
    for number in range(4):
        made.step(number)
        for rank in made.ranks:
            rank.host_is(LOADER, loaded_us)
            for _ in range(4):
                copies(rank, "Memcpy HtoD (Pinned -> Device)", copied_us)
                rank.now_us += copied_us
                rank.compute(5000)
        made.meet()
    return made


def copies(rank, name, length_us):
    where = {"stream": COPY_STREAM, "device": 0, "bytes": 2**28}
    rank.event("gpu_memcpy", name, rank.now_us, length_us, COPY_STREAM, **where)


@pytest.mark.parametrize(
    ("name", "where"),
    [("Memcpy HtoD (Pinned -> Device)", "to the device"), ("Memcpy DtoH (Device -> Pageable)", "to the host")],
)
def test_a_rank_that_copies_longer_is_late_by_the_copies_it_waits_for_alone(tmp_path, name, where):
    """Rank 1 stands still for a copy, for which its host waits; rank 2 computes longer, and copies more meanwhile."""
    (tmp_path / "stands").mkdir()
    (tmp_path / "hides").mkdir()
    stands, hides = Job(4), Job(4)
    for number in range(4):
        for made in (stands, hides):
            made.step(number)
        copies(stands.ranks[1], name, 9000)
        stands.ranks[1].host_is("cudaStreamSynchronize", 9000, "cuda_runtime")
        copies(hides.ranks[2], name, 20_000)
        hides.ranks[2].compute(9000)
        for made in (stands, hides):
            for rank in made.ranks:
                rank.compute(20_000)
            made.meet()
    late, busy = (
        summarized(read_traces(made.write(tmp_path / folder))).culprit
        for made, folder in ((stands, "stands"), (hides, "hides"))
    )

    assert (late.rank, late.because) == (1, f"it waits 9 ms a step longer for copies {where}")
    assert busy.rank == 2
    assert busy.because.startswith("its kernels take 9 ms a step longer")


@pytest.mark.parametrize(
    ("copied_us", "loaded_us", "loss"),
    [(12_000, 2000, "the largest loss is copies to the device (48%)"), (200, 48_000, "waiting for data (48%)")],
)
def test_copies_of_weights_from_the_host_are_not_called_waiting_for_data(tmp_path, copied_us, loaded_us, loss):
    ranks = read_traces(job(copied_us, loaded_us).write(tmp_path))
    found = summarized(ranks)

    assert loss in verdict_of(ranks, found)
    assert found.median.copied_s == pytest.approx(4 * copied_us * 1e-6)
    assert found.median.loading_s == pytest.approx(loaded_us * 1e-6)
    assert found.median.data_s == pytest.approx(4 * copied_us * 1e-6 + loaded_us * 1e-6)


def test_the_loader_of_a_rank_without_a_device_copies_nothing_and_is_why_the_rank_is_late(tmp_path):
    """Rank 2 loads for 40 ms; the others wait for it in the all-reduce."""
    for rank in range(3):
        loaded_us, events = 40_000 if rank == 2 else 1000, []
        for number, start_us in enumerate(range(0, 400_000, 100_000)):
            begun_us = start_us + loaded_us
            events += [
                on_host("user_annotation", f"ProfilerStep#{number}", start_us, 100_000),
                on_host("user_annotation", LOADER, start_us, loaded_us),
                on_host("cpu_op", "aten::addmm", begun_us, 30_000),
                on_host(
                    "user_annotation", "gloo:all_reduce", begun_us + 30_000, 85_000 - begun_us + start_us - 30_000, 2
                ),
                on_host("cpu_op", "aten::_foreach_add_", start_us + 86_000, 13_000),
            ]
        record = {"distributedInfo": {"rank": rank, "world_size": 3, "backend": "gloo"}, "traceEvents": events}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(record))
    ranks = read_traces([tmp_path])
    found = summarized(ranks)

    assert (found.culprit.rank, found.culprit.because) == (2, "its host is in the data loader 39 ms a step longer")
    assert [shares.copied_s for shares in found.ranks] == [0.0] * 3
    assert found.ranks[-1].loading_s == pytest.approx(40e-3)
    assert "copies to the device" not in verdict_of(ranks, found)


def on_host(cat, name, start_us, length_us, thread=1):
    return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": thread, "ts": start_us, "dur": length_us, "args": {}}
