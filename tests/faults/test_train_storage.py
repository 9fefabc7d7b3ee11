"""A disk that is full, read-only or gone: the run ends with a clear error or goes on with a warning, as configured."""

import shutil
import signal
import subprocess
import sys
import time

import pytest

from meshwright.layout import Layout
from meshwright.train.checkpoint.folder import checkpoints
from meshwright.train.checkpoint.manifest import read_manifest
from meshwright.train.checkpoint.stored import verify_pieces
from testkit.caches import new_cache
from testkit.fault_jobs import Job, events, steps_done
from testkit.train_jobs import small_job, write_corpus, write_run

pytestmark = pytest.mark.timeout(400)


def can_mount() -> bool:
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"]
    return shutil.which("unshare") is not None and subprocess.run(command, capture_output=True).returncode == 0


needs_mounts = pytest.mark.skipif(not can_mount(), reason="needs mount namespaces")


@pytest.fixture
def begin(tmp_path):
    """Return a function that starts a job whose checkpoints go to a small disk of their own, or to a plain folder."""
    corpus = write_corpus(tmp_path)
    jobs = []

    def run(on_storage_error: str, mount: str = "", **train: object):
        settings = {"steps": 400, "checkpoint_every": 20, "on_storage_error": on_storage_error, "record": False}
        folder = write_run(tmp_path / "run", small_job(corpus, **(settings | train)), Layout(dp=2, mbs=2))
        prefix = ("unshare", "-rm", "sh", "-c", f'{mount}; exec "$@"', "sh") if mount else ()
        jobs.append(Job(["--resume", str(folder.path)], {"XDG_CACHE_HOME": new_cache(tmp_path / "cache")}, prefix))
        return folder, jobs[-1]

    yield run
    for started in jobs:
        started.kill()


def the_last_good_one_stays(folder) -> None:
    left = checkpoints(folder.checkpoints)
    assert left
    for path in left:
        verify_pieces(path, read_manifest(path))


@needs_mounts
@pytest.mark.slow
@pytest.mark.parametrize("choice", ["warn", pytest.param("end", marks=pytest.mark.soak)])
def test_a_full_disk(begin, choice, tmp_path):
    disk = tmp_path / "run" / "checkpoints"
    check = f"{sys.executable} -m meshwright checkpoint verify {disk} > {tmp_path}/verified"
    mount = f"mount -t tmpfs -o size=1m none {disk}; trap '{check}' EXIT"
    folder, job = begin(choice, f'{mount}; "$@"; code=$?; exit $code', keep_last=0)

    code, errors = job.end()

    assert code == (0 if choice == "warn" else 2), errors
    assert any("No space left on device" in line for line in errors)
    assert not any("Traceback" in line for line in errors)
    assert steps_done(folder) == 400 if choice == "warn" else steps_done(folder) < 400
    assert {event.kind for event in events(folder, "storage")} == {"storage"}
    assert ": whole (" in (tmp_path / "verified").read_text()  # earlier ones are whole


@needs_mounts
@pytest.mark.slow
def test_a_read_only_folder(begin, tmp_path):
    disk = tmp_path / "run" / "checkpoints"
    _, job = begin("end", f"mount -t tmpfs -o ro none {disk}")

    code, errors = job.end()

    assert code == 2, errors
    assert "Read-only file system" in errors[-1]
    assert "--resume" in errors[-1]


@pytest.mark.slow
@pytest.mark.parametrize("choice", ["warn", pytest.param("end", marks=pytest.mark.soak)])
def test_a_folder_that_is_removed_during_the_run(begin, choice):
    folder, job = begin(choice)
    job.wait_until(lambda: len(checkpoints(folder.checkpoints)) > 0)

    while folder.checkpoints.exists():  # the job may drop an old checkpoint in between
        shutil.rmtree(folder.checkpoints, ignore_errors=True)
    code, errors = job.end()

    assert code == (0 if choice == "warn" else 2), errors
    assert any("the folder has been removed" in line for line in errors)
    assert not any("Traceback" in line for line in errors)
    assert events(folder, "storage")


@pytest.mark.slow
def test_a_stopped_rank_that_goes_on_in_time_changes_nothing_and_one_that_does_not_is_named(begin, tmp_path):
    from testkit.fault_jobs import kill

    folder, job = begin("end", steps=300)
    job.wait_until(lambda: steps_done(folder) > 30)

    kill(folder, 1, signal.SIGSTOP)
    time.sleep(5)
    kill(folder, 1, signal.SIGCONT)
    code, errors = job.end()

    assert code == 0, errors
    assert not events(folder, "failure")
    the_last_good_one_stays(folder)
