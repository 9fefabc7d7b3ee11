"""Asynchronous modes as jobs: real processes under the supervisor."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from meshwright.errors import MeshwrightError
from meshwright.layout import Layout
from meshwright.train.asynchronous.meeting import Address, announce, forget_servers
from meshwright.train.asynchronous.processes import work_for_run
from meshwright.train.asynchronous.supervisor import supervise
from meshwright.train.checkpoint.folder import latest_checkpoint
from meshwright.train.job.config import DataParallelConfig
from meshwright.train.run.events import read_events
from meshwright.train.run.run_folder import RunFolder
from testkit.train_jobs import losses, run_rank, small_job, write_corpus, write_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]  # processes that load torch: five a run
PATIENT = {"silence_s": 60.0}  # the machine may be busy: a late heartbeat is not what these tests are about


def job(tmp_path, *, steps=20, mbs=2, **settings):
    """Write the run folder of a small job over four ranks."""
    corpus = tmp_path / "corpus"
    path = str(corpus) if corpus.exists() else write_corpus(tmp_path)
    config = small_job(path, steps=steps)
    config = type(config)(
        **{name: getattr(config, name) for name in config.__struct_fields__ if name != "data_parallel"},
        data_parallel=DataParallelConfig(**PATIENT | settings),
    )
    name = "-".join(map(str, settings.values())) or "sync"
    return write_run(tmp_path / name, config, Layout(dp=4, mbs=mbs))


def when(condition, action):
    """Do something on a thread as soon as something is so."""

    def watch():
        while not condition():
            time.sleep(0.02)
        action()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def steps_of(folder):
    return len(folder.metric_rows())


def kill_rank(folder, rank):
    os.kill(json.loads((folder.ranks / f"{rank}.json").read_text())["pid"], signal.SIGKILL)


@pytest.mark.parametrize(("servers", "mbs"), [(1, 2), (3, 1)])
def test_staleness_zero_is_synchronous_training_bit_by_bit(servers, mbs, tmp_path, rank_pool):
    """AdamW, clipping, warm-up, several micro-batches: against DDP on the backend meshwright."""
    together = job(tmp_path, mbs=mbs)
    served = job(tmp_path, mbs=mbs, mode="parameter_server", staleness=0, servers=servers)

    rank_pool(4).run(run_rank, str(together.path))
    assert supervise(str(served.path)) == ""

    assert losses(served) == losses(together)
    validation = [row["validation_loss"] for row in served.metric_rows() if "validation_loss" in row]
    assert validation == pytest.approx([together.metric_rows()[-1]["validation_loss"]], rel=1e-12)
    assert served.measured().step_time_s > 0


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "parameter_server", "staleness": "unbounded", "wire": "bf16"},
        {"mode": "local_sgd", "sync_every": 5, "stream": False},
        {"mode": "diloco", "sync_every": 4, "fragments": 2, "wire": "int8", "servers": 2, "island": 2},
    ],
)
def test_every_mode_trains_and_leaves_what_a_run_leaves(settings, tmp_path):
    folder = job(tmp_path, **settings)

    assert supervise(str(folder.path)) == ""

    rows = folder.metric_rows()
    assert [row["step"] for row in rows] == list(range(20))
    assert rows[-1]["loss"] < rows[0]["loss"] - 0.5
    assert rows[-1]["validation_loss"] < rows[0]["loss"]
    assert latest_checkpoint(folder.checkpoints).name == "step-00000020"
    assert len(folder.timeline("measured").spans) > 0
    assert sum(row["moved_bytes"] for row in rows) > 0


def test_a_killed_worker_is_started_again_and_the_run_goes_on_without_it(tmp_path):
    folder = job(tmp_path, mode="parameter_server", staleness=2, steps=1500)
    when(lambda: steps_of(folder) > 20, lambda: kill_rank(folder, 2))

    assert supervise(str(folder.path)) == ""

    events = [(event.kind, event.culprit) for event in read_events(folder.events)]
    assert ("left", 2) in events
    assert ("restart", 2) in events
    assert events.count(("joined", 2)) == 2
    assert len(folder.metric_rows()) == 1500
    assert any(2 not in json.loads(line)["ranks"] for line in folder.metrics.read_text().splitlines())


def test_a_stopped_run_saves_and_goes_on_from_there(tmp_path):
    folder = job(tmp_path, mode="diloco", sync_every=2, steps=200)
    when(lambda: steps_of(folder) > 10, lambda: os.kill(os.getpid(), signal.SIGTERM))

    assert "stopped after step" in supervise(str(folder.path))
    saved = int(latest_checkpoint(folder.checkpoints).name.removeprefix("step-"))
    when(lambda: steps_of(folder) > saved + 10, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    assert "stopped after step" in supervise(str(folder.path))

    rows = folder.metric_rows()
    assert [row["step"] for row in rows] == list(range(len(rows)))
    assert rows[saved]["loss"] < rows[0]["loss"]


def work_where_others_read(rank, world_size, store, path, content):
    """Say what a worker is told where the first server has read text with this checksum."""
    folder = RunFolder(Path(path))
    forget_servers(folder.servers)
    announce(folder.servers, 0, Address("127.0.0.1:9", "word", content))
    try:
        work_for_run(folder, rank, "")
    except MeshwrightError as error:
        return str(error)
    return ""


def test_a_worker_that_has_read_other_text_than_the_server_trains_nothing(tmp_path, rank_pool):
    folder = job(tmp_path, mode="parameter_server")

    (told,) = rank_pool(1).run(work_where_others_read, str(folder.path), "aa")

    assert told.startswith("data.paths: rank 0 has read other text than server 0: its files were written while the job")


def test_a_worker_that_always_dies_is_given_up_with_its_reason(tmp_path):
    folder = job(tmp_path, mode="parameter_server", steps=10)
    for path in (tmp_path / "corpus").glob("*"):
        path.unlink()

    with pytest.raises(MeshwrightError, match=r"data.paths: no file matches"):
        supervise(str(folder.path))
