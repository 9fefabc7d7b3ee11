"""An event is on disk, in order, when `record` returns, and a hook hears of it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from meshwright.train.run import event_hook
from meshwright.train.run.event_hook import HOOK_VARIABLE
from meshwright.train.run.events import MAX_LINE_BYTES, Event, EventLog, read_events


def test_events_of_all_ranks_are_read_in_order_and_damaged_lines_left_out(tmp_path):
    first, second, launcher = EventLog(tmp_path / "e", 1), EventLog(tmp_path / "e", 0), EventLog(tmp_path / "e", None)
    first.record(Event(kind="failure", message="rank 2 died", culprit=2, step=5))
    launcher.record(Event(kind="restart", message="again"))
    second.record(Event(kind="resume", message="goes on", step=4))
    with first.path.open("ab") as file:
        file.write(b'{"kind": ' + b"[" * 50_000 + b"\n")
        file.write(b'{"kind": "fail')

    found = read_events(tmp_path / "e")

    assert [(event.rank, event.kind) for event in found] == [(1, "failure"), (None, "restart"), (0, "resume")]
    assert [str(event) for event in found] == [
        "rank 1 in step 5: rank 2 died",
        "launcher: again",
        "rank 0 in step 4: goes on",
    ]


@pytest.mark.parametrize("jump_s", [-3600.0, 3600.0])
def test_a_wall_clock_that_is_set_meanwhile_changes_neither_order_nor_distances(tmp_path, monkeypatch, jump_s):
    one, two, launcher = EventLog(tmp_path / "e", 0), EventLog(tmp_path / "e", 1), EventLog(tmp_path / "e", None)
    begun_s, wall = time.time(), time.time
    one.record(Event(kind="resume", message="first"))
    two.record(Event(kind="slow_rank", message="second"))

    monkeypatch.setattr(time, "time", lambda: wall() + jump_s)
    two.record(Event(kind="slow_rank", message="third"))
    one.record(Event(kind="failure", message="fourth"))
    launcher.record(Event(kind="restart", message="fifth"))

    found = read_events(tmp_path / "e")
    assert [event.message for event in found] == ["first", "second", "third", "fourth", "fifth"]
    assert all(begun_s - 1 < event.time_s < begun_s + 60 for event in found)


def test_events_of_two_machines_keep_the_clock_of_each_and_old_files_their_own(tmp_path):
    (tmp_path / "e").mkdir()
    rows = [
        {"kind": "stop", "message": "here", "time_s": 1000.0, "uptime_s": 50.0, "machine": "a x"},
        {"kind": "stop", "message": "set back", "time_s": 400.0, "uptime_s": 52.0, "machine": "a x"},
        {"kind": "stop", "message": "there", "time_s": 1001.0, "uptime_s": 9.0, "machine": "b y"},
        {"kind": "stop", "message": "before", "time_s": 999.0},
    ]
    (tmp_path / "e" / "0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    found = read_events(tmp_path / "e")

    assert [(event.message, event.time_s) for event in found] == [
        ("before", 999.0),
        ("here", 1000.0),
        ("there", 1001.0),
        ("set back", 1002.0),
    ]


def test_a_folder_that_cannot_be_written_does_not_stop_the_run(tmp_path):
    (tmp_path / "e").touch()

    EventLog(tmp_path / "e", 0).record(Event(kind="stop", message="told to stop"))


def test_a_command_gets_each_event_on_its_standard_input(tmp_path, monkeypatch):
    monkeypatch.setenv(HOOK_VARIABLE, f"cat >> {tmp_path}/heard")

    EventLog(tmp_path / "e", 3).record(Event(kind="slow_rank", message="$(touch x) `y`", evidence={"ratio": 2.0}))

    for _ in range(10000):
        if (tmp_path / "heard").exists() and (tmp_path / "heard").read_text().endswith("\n"):
            break
        time.sleep(0.01)
    heard = json.loads((tmp_path / "heard").read_text())
    assert (heard["rank"], heard["message"], heard["evidence"]) == (3, "$(touch x) `y`", {"ratio": 2.0})


def hook_log(folder, count, word=""):
    """Return the lines of hook.log that have a word, once there are as many."""
    path, end, found = folder / "hook.log", time.monotonic() + 100, []
    while len(found) < count:
        assert time.monotonic() < end
        time.sleep(0.01)
        found = [line for line in path.read_text().splitlines() if word in line] if path.exists() else []
    return found


@pytest.mark.parametrize("command", [":", "exit 3", "exec 0<&-; true", "kill -9 $$", "no-such-command", "sleep 0.1"])
def test_a_command_that_does_not_read_or_fails_never_reaches_the_job(tmp_path, monkeypatch, command):
    monkeypatch.setenv(HOOK_VARIABLE, command)
    log = EventLog(tmp_path / "e", 0)

    for step in range(30):
        log.record(Event(kind="slow_rank", message="x" * 2 * MAX_LINE_BYTES, step=step))

    assert len((tmp_path / "e" / "0.jsonl").read_text().splitlines()) == 30
    if command in ("exit 3", "no-such-command", "kill -9 $$"):
        assert hook_log(tmp_path / "e", 1, "--on-event")


@pytest.mark.alone
def test_a_command_that_hangs_is_ended_and_no_more_than_some_run_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv(HOOK_VARIABLE, f"echo $$ >> {tmp_path}/pids; sleep 60 & sleep 60")
    monkeypatch.setattr(event_hook, "HOOK_S", 1.0)
    monkeypatch.setattr(event_hook, "_running", threading.BoundedSemaphore(2))
    log, start = EventLog(tmp_path / "e", 0), time.monotonic()

    for step in range(5):
        log.record(Event(kind="slow_rank", message="slow", step=step))
    assert time.monotonic() - start < 1.0

    lines = hook_log(tmp_path / "e", 5)
    assert sum("not called: " in line for line in lines) == 3
    assert sum("was ended after 1 s" in line for line in lines) == 2
    for pid in (tmp_path / "pids").read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_a_daemon_that_a_command_starts_holds_no_pipe_of_the_job(tmp_path):
    """A reader of what the job prints gets its end when the job has ended."""
    program = (
        "import sys; from meshwright.train.run.events import Event, EventLog; "
        "EventLog(__import__('pathlib').Path(sys.argv[1]), 0).record(Event(kind='stop', message='told to stop'))"
    )
    command = f"setsid sh -c 'echo $$ > {tmp_path}/daemon; exec sleep 60' & echo heard; echo trouble >&2"
    job = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "e")],
        env=os.environ | {HOOK_VARIABLE: command},
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    try:
        assert (job.stdout, job.stderr) == ("", "")
        assert hook_log(tmp_path / "e", 2) == ["heard", "trouble"]
    finally:
        while not (tmp_path / "daemon").exists() or not (tmp_path / "daemon").read_text().strip():
            time.sleep(0.01)
        os.kill(int((tmp_path / "daemon").read_text()), signal.SIGKILL)


def test_what_a_command_prints_is_kept_up_to_a_bound(tmp_path, monkeypatch):
    monkeypatch.setenv(HOOK_VARIABLE, f"echo more; touch {tmp_path}/done")
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "hook.log").write_bytes(b"x" * event_hook.MOST_LOG_BYTES)

    EventLog(tmp_path / "e", 0).record(Event(kind="slow_rank", message="slow"))

    end = time.monotonic() + 100
    while not (tmp_path / "done").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    assert (tmp_path / "e" / "hook.log").stat().st_size == event_hook.MOST_LOG_BYTES


def test_a_command_that_cannot_be_started_is_no_reason_to_stop(tmp_path, monkeypatch):
    def no_process(*_, **__):
        raise OSError(24, "Too many open files")

    monkeypatch.setenv(HOOK_VARIABLE, "true")
    monkeypatch.setattr(event_hook.subprocess, "Popen", no_process)
    for _ in range(2 * event_hook.MOST_AT_ONCE):
        EventLog(tmp_path / "e", 0).record(Event(kind="slow_rank", message="slow"))

    assert len(hook_log(tmp_path / "e", 32)) == 32


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_on_a_full_disk_it_is_still_told_what_happened(tmp_path):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "small", str(tmp_path)], check=True)
    try:
        log, other = EventLog(tmp_path / "events", 0), EventLog(tmp_path / "events", 1)
        log.keep_room()
        with contextlib.suppress(OSError), (tmp_path / "ballast").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        for event in (log, other):
            event.record(Event(kind="failure", message="rank 2 died " + "x" * 3000, culprit=2))
            event.record(Event(kind="storage", message="no space"))

        assert [event.rank for event in read_events(tmp_path / "events")] == [0, 0]
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_room_that_is_kept_makes_no_events(tmp_path):
    log = EventLog(tmp_path / "events", None)
    log.keep_room()

    assert read_events(tmp_path / "events") == []
    assert log.path.stat().st_size == 0


def test_an_event_after_a_line_that_was_cut_off_is_not_lost_with_it(tmp_path):
    log = EventLog(tmp_path / "e", 0)
    log.record(Event(kind="resume", message="goes on"))
    with log.path.open("ab") as file:
        file.write(b'{"kind": "fail')

    EventLog(tmp_path / "e", 0).record(Event(kind="failure", message="rank 1 died", culprit=1))

    assert [event.kind for event in read_events(tmp_path / "e")] == ["resume", "failure"]


def test_what_is_no_file_among_the_events_is_neither_read_nor_waited_for(tmp_path):
    EventLog(tmp_path, 0).record(Event(kind="resume", message="goes on"))
    os.mkfifo(tmp_path / "1.jsonl")
    (tmp_path / "2.jsonl").mkdir()
    (tmp_path / "3.jsonl").symlink_to("/dev/zero")

    assert [event.kind for event in read_events(tmp_path)] == ["resume"]


def test_an_event_that_names_a_file_whose_name_is_no_utf8_is_written(tmp_path):
    EventLog(tmp_path, 0).record(Event(kind="storage", message=os.fsdecode(b"caf\xe9: disk full")))

    assert [event.message for event in read_events(tmp_path)] == ["caf\\udce9: disk full"]
