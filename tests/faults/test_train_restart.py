"""A rank that dies is named at once and the job goes on by itself, as if nothing had happened."""

import json
import os
import random
import signal
import statistics

import msgspec
import pytest

from meshwright.layout import Layout
from meshwright.train.run.run_folder import RunFolder
from testkit.caches import new_cache
from testkit.fault_jobs import Job, events, final_weights, kill, steps_done
from testkit.train_jobs import losses, small_job, write_corpus, write_run

pytestmark = pytest.mark.timeout(800)
STEPS, EVERY = 300, 25


@pytest.fixture(scope="module")
def begin(tmp_path_factory):
    """Return a function from a name and settings to a run folder with a plan, and the job that trains it."""
    base = tmp_path_factory.mktemp("restart")
    corpus = write_corpus(base)
    jobs = []

    def run(
        name: str, layout: str = "dp=4,mbs=2", timeout_s: float = 30.0, **settings: object
    ) -> tuple[RunFolder, Job]:
        train = {"steps": STEPS, "checkpoint_every": EVERY, "validate_every": 10**6, "record": False}
        job = small_job(corpus, **(train | settings))
        launch = msgspec.structs.replace(job.launch, timeout_s=timeout_s)
        folder = write_run(base / name, msgspec.structs.replace(job, launch=launch), Layout.parse(layout))
        (base / "t" / name).mkdir(parents=True)
        temporary = {"TMPDIR": str(base / "t" / name)}
        environment = {"XDG_CACHE_HOME": new_cache(base / "cache"), "OMP_NUM_THREADS": "1"} | temporary
        jobs.append(Job(["--resume", str(folder.path)], environment))
        return folder, jobs[-1]

    yield run
    for started in jobs:
        started.kill()


@pytest.fixture(scope="module")
def undisturbed(begin):
    """Return the losses and the final weights of a run that nothing happened to."""
    folder, job = begin("undisturbed")
    code, errors = job.end()
    assert code == 0, errors
    return losses(folder), final_weights(folder)


def killed_at(folder, job, step, rank):
    """Kill a rank once a step is done; return how long each survivor took to name it."""
    job.wait_until(lambda: steps_done(folder) > step)
    killed_s = kill(folder, rank)
    job.wait_until(lambda: len(events(folder, "restart")) == 1)
    named = {event.rank: event for event in events(folder, "failure")}
    assert set(named) == {0, 1, 2, 3} - {rank}
    for event in named.values():
        assert event.culprit == rank
        assert f"rank {rank} (host " in event.message
        assert event.host == os.uname().nodename
        assert event.step is not None
        assert event.step >= step
    assert f"rank {rank} " in events(folder, "restart")[0].message
    return [event.time_s - killed_s for event in named.values()]


def left_behind(folder):
    """Return what a job has left in its folder for temporary files."""
    return sorted(path.name for path in (folder.path.parent / "t" / folder.path.name).iterdir())


def flight_records(folder):
    """Return the ranks that wrote down their last collectives."""
    records = [json.loads(path.read_text()) for path in folder.flight.glob("flight-*.json")]
    return {record["rank"] for record in records if any(group["flights"] for group in record["groups"])}


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 8))])
def test_a_killed_rank_is_named_by_all_and_the_losses_are_those_of_an_undisturbed_run(begin, undisturbed, number):
    rng = random.Random(number)
    folder, job = begin(f"killed-{number}")
    step, rank = rng.randrange(5, STEPS - 50), rng.randrange(4)

    took_s = killed_at(folder, job, step, rank)
    code, errors = job.end()

    assert code == 0, errors
    assert (losses(folder), final_weights(folder)) == undisturbed
    assert statistics.median(took_s) < 1
    assert max(took_s) < 5
    [resumed] = events(folder, "resume")
    assert step - EVERY - 25 < resumed.step
    assert job.nobody_is_left()


def test_a_killed_rank_is_named_and_the_job_goes_on_by_itself(begin, undisturbed):
    folder, job = begin("killed")

    killed_at(folder, job, 60, 2)
    code, errors = job.end()

    assert code == 0, errors
    assert flight_records(folder) == {0, 1, 3}
    assert (losses(folder), final_weights(folder)) == undisturbed
    assert job.nobody_is_left()
    assert left_behind(folder) == []


@pytest.mark.slow
def test_a_rank_that_is_stopped_for_longer_than_the_timeout_is_named_and_the_job_goes_on(begin, undisturbed):
    folder, job = begin("stopped", timeout_s=15.0)
    job.wait_until(lambda: steps_done(folder) > 60)

    kill(folder, 1, signal.SIGSTOP)
    code, errors = job.end()

    assert code == 0, errors
    assert {event.rank: event.culprit for event in events(folder, "failure")} == {0: 1, 2: 1, 3: 1}
    assert (losses(folder), final_weights(folder)) == undisturbed
    assert job.nobody_is_left()
