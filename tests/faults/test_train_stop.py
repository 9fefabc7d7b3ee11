"""A run that is stopped or killed leaves whole checkpoints and no process, and goes on as if nothing had been."""

import json
import os
import re
import signal
import time

import msgspec
import psutil
import pytest

from meshwright.layout import Layout
from meshwright.postmortem.live import look_at
from meshwright.train.job.config import to_toml
from meshwright.train.run.run_folder import RunFolder
from testkit.caches import new_cache
from testkit.fault_jobs import Job, events, kill, pid_of, steps_done
from testkit.train_jobs import losses, small_job, write_corpus, write_run

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Return a cache folder that the module's jobs share, so that the machine is measured once."""
    return new_cache(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def temporary(tmp_path_factory):
    """Return an empty folder of temporary files, with a short path: sockets lie in it."""
    return tmp_path_factory.mktemp("t")


@pytest.fixture
def start(tmp_path, cache, temporary):
    """Return a function that starts a small job with arguments; all that is left is killed afterwards."""
    jobs = []
    (tmp_path / "job.toml").write_text(to_toml(small_job(write_corpus(tmp_path), steps=4000)))

    def run(*arguments: str) -> Job:
        jobs.append(Job(list(arguments), {"XDG_CACHE_HOME": cache, "TMPDIR": str(temporary)}))
        return jobs[-1]

    yield run
    for started in jobs:
        started.kill()


@pytest.fixture
def begin(tmp_path, start):
    """Return a function that starts a job of two ranks whose plan is made already."""
    corpus = str(tmp_path / "corpus")

    def run(name: str = "run", *, max_restarts: int = 0, **train: object) -> tuple[RunFolder, Job]:
        job = small_job(corpus, **({"steps": 4000, "checkpoint_every": 50} | train))
        launch = msgspec.structs.replace(job.launch, max_restarts=max_restarts)
        folder = write_run(tmp_path / name, msgspec.structs.replace(job, launch=launch), Layout(dp=2, mbs=2))
        return folder, start("--resume", str(folder.path))

    return run


def orderly(job, folder) -> None:
    """Assert that a job that was told to stop has saved its last step and left nothing behind."""
    code, errors = job.end()
    assert code == 130
    assert "--resume" in errors[-1]
    assert job.nobody_is_left()
    saved = [path.name for path in folder.checkpoints.iterdir()]
    assert f"step-{steps_done(folder):08d}" in saved
    assert not [name for name in saved if name.startswith(".")]
    assert not any("Traceback" in line for line in errors)
    assert [event.kind for event in events(folder)].count("stop") == 2  # one a rank


def test_ctrl_c_saves_the_step_and_leaves_no_process(begin):
    folder, job = begin()
    job.wait_until(lambda: steps_done(folder) > 20)

    os.killpg(job.process.pid, signal.SIGINT)  # as a terminal does

    orderly(job, folder)


@pytest.mark.parametrize(
    ("whom", "signum"),
    [
        ("every process", signal.SIGUSR1),
        pytest.param("launcher", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("every process", signal.SIGHUP, marks=pytest.mark.slow),  # as a terminal that is closed does
        pytest.param("one rank", signal.SIGUSR1, marks=pytest.mark.slow),
        pytest.param("one rank", signal.SIGTERM, marks=[pytest.mark.slow, pytest.mark.soak]),
        pytest.param("launcher", signal.SIGUSR1, marks=[pytest.mark.slow, pytest.mark.soak]),
        pytest.param("every process", signal.SIGTERM, marks=[pytest.mark.slow, pytest.mark.soak]),
    ],
)
def test_a_warning_of_the_scheduler_saves_the_step_and_leaves_no_process(begin, signum, whom):
    folder, job = begin(max_restarts=3)
    job.wait_until(lambda: steps_done(folder) > 20)

    if whom == "launcher":
        job.process.send_signal(signum)
    elif whom == "one rank":
        kill(folder, 1, signum)
    else:
        os.killpg(job.process.pid, signum)

    orderly(job, folder)
    assert not events(folder, "restart")


@pytest.mark.slow
def test_ctrl_c_twice_leaves_now_though_a_rank_is_stuck(begin):
    folder, job = begin()
    job.wait_until(lambda: steps_done(folder) > 20)
    stuck = psutil.Process(pid_of(folder, 1))
    stuck.suspend()  # the other rank waits for it, and so does the launcher

    os.killpg(job.process.pid, signal.SIGINT)
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        stuck.suspend()  # again, where the launcher has let it go on to hear that it is told to stop
        time.sleep(0.005)
    os.killpg(job.process.pid, signal.SIGINT)
    code, errors = job.end(timeout_s=15)

    assert code == 130
    assert not any("Traceback" in line for line in errors)
    assert job.nobody_is_left()


@pytest.mark.slow
def test_the_doctor_names_the_rank_that_the_others_wait_for_and_the_collective_long_before_the_timeout(begin):
    folder, job = begin()
    job.wait_until(lambda: steps_done(folder) > 20)
    stopped = pid_of(folder, 1)
    psutil.Process(stopped).suspend()
    time.sleep(1)  # the other has entered its next collective by then

    verdict = look_at(folder.path)

    (found,) = verdict.stuck
    assert found.rank == 1
    call = r"(all_reduce|reduce_scatter|all_gather|barrier) #\d+ of [\d.]+ [KM]?i?B"
    assert re.match(
        rf"has not arrived at {call} \(step \d+ of \d+\) and left no record: pid {stopped} is stopped", found.why
    )
    (waiting,) = verdict.waiting
    assert waiting.ranks == (0,)
    assert re.fullmatch(call, waiting.call)
    assert waiting.waited_s > 0.5
    assert [bool(process.stack) for process in verdict.processes] == [True, False]


@pytest.mark.slow
def test_the_doctor_finds_nothing_on_a_run_that_goes_on_and_does_it_no_harm(begin):
    folder, job = begin(steps=400)
    job.wait_until(lambda: steps_done(folder) > 20)

    verdict = look_at(folder.path)

    assert (verdict.stuck, sorted(verdict.moving)) == ((), [0, 1])
    assert str(verdict).startswith("no rank is stuck\nrank 0 goes on: ")
    assert job.end()[0] == 0
    assert len(losses(folder)) == 400


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_to_stop_while_measuring_writes_nothing(start, tmp_path, signum):
    job = start(str(tmp_path / "job.toml"), "--ranks", "2", "--recalibrate", "--run-dir", str(tmp_path / "run"))
    job.wait_until(lambda: len(job.members()) > 3)

    os.killpg(job.process.pid, signum)
    code, errors = job.end()

    assert (code, errors[-1]) == (130, "meshwright: interrupted")
    assert not any("Traceback" in line for line in errors)
    assert not (tmp_path / "run").exists()
    assert job.nobody_is_left()


@pytest.mark.slow
def test_ranks_do_not_outlive_a_killed_launcher_name_it_and_clean_up_after_it(begin, temporary):
    folder, job = begin()
    job.wait_until(lambda: steps_done(folder) > 5)

    job.process.kill()
    job.end()

    assert job.nobody_is_left()
    assert {event.message.partition(" (")[0] for event in events(folder, "failure")} == {"the launcher"}
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_a_rank_that_somebody_stopped_does_not_outlive_a_killed_launcher(begin, temporary):
    folder, job = begin()
    job.wait_until(lambda: steps_done(folder) > 5)

    kill(folder, 1, signal.SIGSTOP)
    job.process.kill()
    job.end()

    assert job.nobody_is_left()
    assert {event.rank for event in events(folder, "failure") if "the launcher" in event.message} == {0, 1}
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_a_rank_that_is_killed_once_too_often_is_named_in_one_line(begin):
    folder, job = begin()
    job.wait_until(lambda: steps_done(folder) > 5)

    kill(folder, 1)
    code, errors = job.end()

    assert code == 1
    # as its agent says it, or as the other rank does, whichever is heard first
    assert re.search(r"^meshwright: rank 1 \((host \S+, )?pid \d+\) (was ended by SIGKILL|died)", errors[-1])
    assert not any("Traceback" in line for line in errors)
    assert job.nobody_is_left()


@pytest.mark.slow
def test_a_resumed_run_has_the_losses_of_one_that_was_never_stopped(begin, start):
    whole, job = begin("whole", steps=120)
    assert job.end()[0] == 0

    cut, job = begin("cut", steps=120)
    job.wait_until(lambda: steps_done(cut) > 30)
    os.killpg(job.process.pid, signal.SIGINT)
    assert job.end()[0] == 130
    assert start("--resume", str(cut.path)).end()[0] == 0

    assert losses(cut) == losses(whole)
    assert len(losses(whole)) == 120
    assert json.loads((cut.path / "measured.json").read_text())["step_time_s"] > 0
