"""A wall clock that is set while a job runs changes nothing of it: whatever waits, waits by clocks that nobody sets."""

import msgspec
import pytest

from meshwright.layout import Layout
from meshwright.train.job.config import DataParallelConfig
from meshwright.train.run.events import read_events
from testkit.fault_jobs import Job, steps_done
from testkit.skew import settable_clock
from testkit.train_jobs import small_job, write_corpus, write_run

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]


@pytest.mark.parametrize("mode", ["sync", "parameter_server"])
def test_a_clock_that_jumps_an_hour_forth_and_back_changes_nothing(tmp_path, mode):
    config = small_job(write_corpus(tmp_path), steps=120, checkpoint_every=20)
    launch = msgspec.structs.replace(config.launch, timeout_s=60.0, max_restarts=0)
    data_parallel = DataParallelConfig() if mode == "sync" else DataParallelConfig(mode=mode, silence_s=60.0)
    config = msgspec.structs.replace(config, launch=launch, data_parallel=data_parallel)
    folder = write_run(tmp_path / "run", config, Layout(dp=2, mbs=4))
    clock = settable_clock(tmp_path)
    job = Job(["--resume", str(folder.path)], clock | {"OMP_NUM_THREADS": "1"})
    try:
        for step, ahead_s in ((20, 3600), (50, -3600), (80, 7200)):
            job.wait_until(lambda step=step: steps_done(folder) >= step, timeout_s=300)
            (tmp_path / "skew").write_text(str(ahead_s))
        code, errors = job.end(timeout_s=300)
    finally:
        job.kill()

    rows = folder.metric_rows()
    assert code == 0, errors
    assert [row["step"] for row in rows] == list(range(120))
    assert all(0 < row["step_time_s"] < 60 for row in rows)
    assert not [event for event in read_events(folder.events) if event.kind in {"failure", "restart", "left"}]
