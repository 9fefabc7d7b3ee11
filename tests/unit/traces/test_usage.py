"""Copies to the device and waits for the data loader are told apart."""

import pytest

from meshwright.report.pages.trace import verdict_of
from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized
from tests.unit.traces.jobs import Job

COPY_STREAM = 19


def job(copied_us, loaded_us):
    """Let each step wait for its loader, then for weights that come from the host's memory layer by layer."""
    made = Job(2)
    for number in range(4):
        made.step(number)
        for rank in made.ranks:
            rank.host_is("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", loaded_us)
            for _ in range(4):
                where = {"stream": COPY_STREAM, "device": 0, "bytes": 2**28}
                rank.event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", rank.now_us, copied_us, COPY_STREAM, **where)
                rank.now_us += copied_us
                rank.compute(5000)
        made.meet()
    return made


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
