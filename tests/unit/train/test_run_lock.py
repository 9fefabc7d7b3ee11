"""A run folder belongs to one job: one of many gets it, a live owner keeps it, a dead one has one heir."""

import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time

import msgspec
import pytest

from meshwright.errors import InputError
from meshwright.layout import Layout
from meshwright.train.run import run_lock
from meshwright.train.run.run_lock import LOCK, Owner, owned, owner_of, this_process
from testkit.train_jobs import small_job, write_run

SILENCE_S = 0.6  # in tests; the heartbeat below is faster by as much as it really is


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(run_lock, "HEARTBEAT_S", 0.05)


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def leave_lock(folder, **changes):
    """Write the lock of an owner that is not this process."""
    owner = msgspec.structs.replace(this_process(), user="ada", nonce="another", **changes)
    folder.mkdir(exist_ok=True)
    (folder / LOCK).write_bytes(msgspec.json.encode(owner) + b"\n")
    return owner


def test_the_folder_is_locked_for_the_body_and_free_after_it(tmp_path):
    run = tmp_path / "run"
    with owned(run):
        assert owner_of(run) == Owner(**json.loads((run / LOCK).read_text()))
        assert owner_of(run).pid == os.getpid()
        (run / "config.toml").touch()

    assert owner_of(run) is None
    assert [path.name for path in run.iterdir()] == ["config.toml"]


def test_a_second_job_is_refused_and_told_who_has_it(tmp_path):
    with owned(tmp_path / "run"):
        owner = owner_of(tmp_path / "run")

        with pytest.raises(InputError, match="another job has this run folder") as refused, owned(tmp_path / "run"):
            pass

        assert f"{owner.user} on {owner.host} (pid {os.getpid()}" in str(refused.value)
        assert owner_of(tmp_path / "run") == owner


def test_what_is_refused_before_it_began_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), owned(tmp_path / "deep" / "er" / "run"):
        raise ZeroDivisionError

    assert not list(tmp_path.iterdir())


def test_the_default_folders_of_one_second_are_different(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = []
    with owned(None) as first, owned(None) as second, owned(None) as third:
        folders = [first, second, third]
        assert all(owner_of(folder) for folder in folders)

    assert len(set(folders)) == 3
    assert not list(tmp_path.iterdir())


def test_a_dead_owner_is_succeeded_to_at_once(tmp_path):
    leave_lock(tmp_path / "run", pid=dead_process())
    said = []

    start = time.monotonic()
    with owned(tmp_path / "run", say=said.append):
        assert owner_of(tmp_path / "run").pid == os.getpid()
        assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [LOCK]

    assert time.monotonic() - start < SILENCE_S
    assert "has died without giving the run folder back" in said[0]


def test_a_process_that_was_given_the_number_of_a_dead_owner_is_not_taken_for_it(tmp_path):
    leave_lock(tmp_path / "run", started=1)

    with owned(tmp_path / "run"):
        assert owner_of(tmp_path / "run").started > 1


def test_an_owner_that_was_killed_is_succeeded_to(tmp_path):
    code = f"""
import time
from pathlib import Path
from meshwright.train.run.run_lock import owned
with owned(Path({str(tmp_path / "run")!r})):
    print("mine", flush=True)
    time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"mine\n"
    with pytest.raises(InputError, match=f"pid {process.pid}"), owned(tmp_path / "run"):
        pass

    process.kill()
    process.communicate()

    with owned(tmp_path / "run"):
        assert owner_of(tmp_path / "run").pid == os.getpid()


@pytest.mark.usefixtures("quick")
def test_an_owner_on_another_machine_lives_as_long_as_its_lock_changes(tmp_path):
    """The times that it writes may be of any clock: an hour behind here."""
    run = tmp_path / "run"
    leave_lock(run, host="elsewhere", boot="of another machine", pid=1)
    end, beats = threading.Event(), [time.time_ns() - 3600 * 10**9]

    def beat():
        while not end.wait(0.05):
            beats[0] += 1000
            os.utime(run / LOCK, ns=(beats[0], beats[0]))

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        with pytest.raises(InputError, match="ada on elsewhere"), owned(run, silence_s=SILENCE_S):
            pass
    finally:
        end.set()
        thread.join()
    said = []
    with owned(run, silence_s=SILENCE_S, say=said.append):
        assert owner_of(run).pid == os.getpid()
    assert "waiting 0.6 s" in said[0]


@pytest.mark.parametrize("text", ["", "{", "null", '{"user": 1}', "[" * 3000])
@pytest.mark.usefixtures("quick")
def test_a_damaged_lock_is_succeeded_to_once_it_is_known_to_be_nobodys(tmp_path, text):
    (tmp_path / LOCK).write_text(text)

    with owned(tmp_path, silence_s=SILENCE_S):
        assert owner_of(tmp_path).pid == os.getpid()

    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("quick")
def test_a_lock_is_kept_alive(tmp_path):
    with owned(tmp_path):
        before = (tmp_path / LOCK).stat().st_mtime_ns
        time.sleep(0.3)
        assert (tmp_path / LOCK).stat().st_mtime_ns > before


def test_an_heir_that_died_between_its_steps_is_succeeded_to(tmp_path):
    """It had linked its own lock to that of the dead owner, and neither put it in place nor removed anything."""
    leave_lock(tmp_path, pid=dead_process())
    heir = msgspec.structs.replace(this_process(), user="eve", pid=dead_process())
    run_lock._heir(tmp_path, (tmp_path / LOCK).read_bytes()).write_bytes(msgspec.json.encode(heir) + b"\n")

    with owned(tmp_path):
        assert owner_of(tmp_path).pid == os.getpid()
        assert [path.name for path in tmp_path.iterdir()] == [LOCK]


def test_an_heir_that_lives_has_the_folder(tmp_path):
    leave_lock(tmp_path, pid=dead_process())
    heir = msgspec.structs.replace(this_process(), user="eve")
    run_lock._heir(tmp_path, (tmp_path / LOCK).read_bytes()).write_bytes(msgspec.json.encode(heir) + b"\n")

    with pytest.raises(InputError, match="eve on "), owned(tmp_path):
        pass


def try_to_own(folder, start, wins, out):
    start.wait()
    try:
        with owned(folder):
            wins.put(os.getpid())
            out.wait()
    except InputError:
        wins.put(None)


@pytest.mark.parametrize("dead", [False, True], ids=["a free folder", "the folder of a dead owner"])
def test_of_many_that_begin_at_once_one_gets_it(tmp_path, dead):
    context = multiprocessing.get_context("fork")
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        if dead:
            leave_lock(folder, pid=dead_process())
        start, out, wins = context.Event(), context.Event(), context.SimpleQueue()
        processes = [context.Process(target=try_to_own, args=(folder, start, wins, out)) for _ in range(8)]
        for process in processes:
            process.start()
        start.set()
        winners = [pid for pid in (wins.get() for _ in processes) if pid]
        assert len(winners) == 1
        assert owner_of(folder).pid == winners[0]
        out.set()
        for process in processes:
            process.join(10)
            assert process.exitcode == 0
        assert [path.name for path in folder.iterdir()] == []


def test_an_owner_whose_folder_was_taken_leaves_at_once_without_another_write(tmp_path):
    code = f"""
import subprocess, time
from pathlib import Path
from meshwright.train.run import run_lock
run_lock.HEARTBEAT_S = 0.05
with run_lock.owned(Path({str(tmp_path / "run")!r})):
    child = subprocess.Popen(["sleep", "60"])
    print(child.pid, flush=True)
    time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    child = int(process.stdout.readline())
    leave_lock(tmp_path / "run")

    _, errors = process.communicate(timeout=200)

    assert process.returncode == 1
    assert "ada on " in errors
    assert "has taken over the run folder" in errors
    end = time.monotonic() + 100
    while run_lock.started(child) is not None:  # on a busy machine a signal takes a moment
        assert time.monotonic() < end
        time.sleep(0.01)
    assert owner_of(tmp_path / "run").user == "ada"


def test_the_ranks_of_a_dead_launcher_are_waited_for(tmp_path):
    rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    owner = leave_lock(tmp_path, pid=dead_process())
    (tmp_path / "ranks").mkdir()
    (tmp_path / "ranks" / "0.json").write_text(json.dumps({"rank": 0, "host": owner.host, "pid": rank.pid}))
    left = []

    def end():
        time.sleep(0.5)
        left.append(time.monotonic())
        rank.kill()
        rank.wait()

    thread = threading.Thread(target=end)
    thread.start()
    with owned(tmp_path):
        assert left
    thread.join()


def test_a_resume_that_is_refused_has_not_imported_torch(tmp_path):
    folder = write_run(tmp_path / "run", small_job(str(tmp_path)), Layout(dp=1))
    program = (
        "import sys; from meshwright import cli; code = cli.run_command(sys.argv[1:]); "
        "print(code, 'torch' in sys.modules)"
    )
    with owned(folder.path):
        done = subprocess.run(
            [sys.executable, "-c", program, "train", "--resume", str(folder.path)],
            capture_output=True,
            text=True,
            timeout=200,
            check=True,
        )

    assert done.stdout.split() == ["2", "False"]
    assert "another job has this run folder" in done.stderr


@pytest.mark.parametrize("pid", [2**40, 0, -1])
def test_a_lock_of_a_process_that_no_machine_has_is_damaged_and_taken_over_when_it_is_silent(tmp_path, pid):
    damaged = msgspec.to_builtins(this_process()) | {"pid": pid}
    (tmp_path / LOCK).write_text(json.dumps(damaged))

    with owned(tmp_path, silence_s=0.3):
        assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()
