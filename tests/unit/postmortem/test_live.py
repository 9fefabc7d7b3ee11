import contextlib
import json
import os
import subprocess
import sys
import time

import pytest

from meshwright.cluster.discovery.processes import start_time
from meshwright.cluster.doctor.stacks import RankProcess, listen, ranks_with_stacks
from meshwright.errors import InputError
from meshwright.postmortem.flight_records.records import GroupRecord, RankFlight, RecordedCall
from meshwright.postmortem.live import explain, look_at, read_records


def record(rank, sequence, operation="all_reduce", size_bytes=4096, ended=False, arrivals=None, reason=""):
    """A record whose calls before the last one were all-reduces that ended."""
    group = calls(sequence, operation, size_bytes, ended, arrivals=arrivals)
    return RankFlight(rank=rank, reason=reason, written_s=100.0, groups=(group,))


def calls(sequence, operation="all_reduce", size_bytes=4096, ended=False, *, name="world", arrivals=None):
    before = tuple(RecordedCall(n, "all_reduce", 4096, ended=True) for n in range(max(1, sequence - 3), sequence))
    last = RecordedCall(sequence, operation, size_bytes, ended=ended, started_s=96.8)
    return GroupRecord(name=name, arrivals=arrivals or {}, flights=(*before, last))


def stuck(records):
    return {found.rank: found.why for found in explain(records).stuck}


def test_the_rank_that_has_not_arrived_is_named_with_collective_and_number():
    verdict = explain([record(0, 12), record(1, 11, ended=True), record(2, 12)])

    assert [(found.rank, found.why) for found in verdict.stuck] == [
        (1, "has not arrived at all_reduce #12 of 4 KiB: all_reduce #11 of 4 KiB has ended, the next has not begun")
    ]
    assert list(map(str, verdict.waiting)) == ["ranks 0, 2 wait in all_reduce #12 of 4 KiB for 3.2 s"]


def test_one_rank_waits_and_several_wait():
    late = record(1, 11, ended=True)

    assert "rank 0 waits in all_reduce #12 of 4 KiB" in str(explain([record(0, 12), late]))
    assert "ranks 0, 2 wait in all_reduce #12 of 4 KiB" in str(explain([record(0, 12), late, record(2, 12)]))


def test_a_rank_that_left_no_record_is_named_from_what_the_others_saw():
    arrivals = {0: 30, 1: 30, 2: 29}

    found = stuck([record(0, 12, arrivals=arrivals), record(1, 12, arrivals=arrivals)])

    assert list(found) == [2]
    assert "step 29 of 30" in found[2]


def test_a_rank_that_stays_in_an_older_collective_is_named():
    assert "still in all_reduce #11" in stuck([record(0, 12), record(1, 11)])[1]


def test_a_rank_that_calls_something_else_is_named():
    records = [record(0, 12), record(1, 12, operation="broadcast"), record(2, 12)]

    assert stuck(records) == {
        1: "is in broadcast #12 of 4 KiB, where the others are in all_reduce #12 of 4 KiB: "
        "the ranks do not make the same calls"
    }


def test_of_two_ranks_that_disagree_neither_is_named():
    verdict = explain([record(0, 12), record(1, 12, operation="broadcast")])

    assert verdict.stuck == ()
    assert str(verdict).startswith("which rank is stuck cannot be told: at #12 rank 0 calls all_reduce")


def test_a_rank_that_is_alone_in_a_call_that_the_others_have_left_is_named():
    waits_elsewhere = both(2, calls(4, name="dp"))
    left = both(0, calls(9, name="tp", ended=True), calls(3, name="dp", ended=True))

    assert list(stuck([both(1, calls(9, name="tp"), calls(3, name="dp", ended=True)), left, waits_elsewhere])) == [0, 1]


def test_a_rank_with_another_size_is_named():
    assert list(stuck([record(0, 12), record(1, 12), record(2, 12, size_bytes=8)])) == [2]


@pytest.mark.parametrize("late", [0, 1, 2, 3])
def test_whichever_rank_is_late_it_alone_is_named(late):
    records = [record(rank, 7 if rank == late else 8, ended=rank == late) for rank in range(4)]

    assert list(stuck(records)) == [late]


def test_nobody_is_stuck_when_all_wait_in_the_same_collective():
    arrivals = {0: 5, 1: 5}

    assert stuck([record(0, 5, arrivals=arrivals), record(1, 5, arrivals=arrivals)]) == {}


def test_nobody_is_stuck_when_all_calls_have_ended():
    assert stuck([record(0, 5, ended=True), record(1, 4, ended=True)]) == {}


def both(rank, *groups):
    return RankFlight(rank=rank, written_s=100.0, groups=groups)


def test_groups_are_examined_apart():
    records = [both(0, calls(12), calls(99, name="tp", ended=True)), record(1, 11, ended=True)]

    assert list(stuck(records)) == [1]


def test_a_rank_that_waits_in_another_group_is_not_to_blame_for_being_late():
    late = both(1, calls(3, name="tp", ended=True))
    waits = both(0, calls(4, name="tp"), calls(6, name="dp", ended=True))  # for rank 1
    waits_in_turn = both(2, calls(7, name="dp"))  # for rank 0

    verdict = explain([waits, late, waits_in_turn])

    assert [(found.rank, found.group) for found in verdict.stuck] == [(1, "tp")]
    assert "has not arrived at all_reduce #4 of 4 KiB: " in verdict.stuck[0].why
    assert verdict.stuck[0].why.endswith("(group tp)")


def test_ranks_that_wait_for_each_other_in_two_groups_are_both_named():
    records = [
        both(0, calls(4, name="a"), calls(6, name="b", ended=True)),
        both(1, calls(3, name="a", ended=True), calls(7, name="b")),
    ]

    assert list(stuck(records)) == [1, 0]


def test_a_rank_that_makes_other_calls_when_it_is_asked_again_is_not_stuck():
    records = [record(0, 12), record(1, 11, ended=True)]
    before = {0: {"world": RecordedCall(9, "all_reduce", 4096, ended=False, started_s=90.0)}}

    verdict = explain(records, (), before)

    assert (verdict.stuck, verdict.waiting) == ((), ())
    assert str(verdict) == "no rank is stuck\nrank 0 goes on: all_reduce #12 of 4 KiB"


def test_a_group_that_has_ended_when_it_is_asked_for_again_is_not_stuck():
    before = {
        0: {
            "old": RecordedCall(9, "all_reduce", 4096, ended=False),
            "world": RecordedCall(11, "all_reduce", 4096, ended=True),
        }
    }

    assert explain([record(0, 12)], (), before).moving == {0: "all_reduce #12 of 4 KiB"}


def test_without_records_nothing_is_claimed():
    processes = [RankProcess(rank=0, pid=7, state="S", waits_in="", stack="somewhere")]

    assert str(explain([], processes)).startswith("no rank is known to be stuck: none recorded its collectives\n")


def test_records_are_read_from_the_run_folder_and_below(tmp_path):
    (tmp_path / "flight").mkdir()
    call = {"sequence": 5, "operation": "barrier", "size_bytes": 0, "started_s": 0.5, "ended": False}
    group = {"name": "0", "description": "default_pg", "arrivals": {"0": 4, "3": 5}, "flights": [call]}
    data = {"rank": 3, "pid": 4711, "reason": "rank 1 did not arrive", "written_s": 1.0, "groups": [group]}
    (tmp_path / "flight" / "flight-3.json").write_text(json.dumps(data))

    (found,) = read_records(tmp_path)

    assert (found.rank, found.reason, found.groups[0].arrivals) == (3, "rank 1 did not arrive", {0: 4, 3: 5})
    assert str(found.lasts()["0"]) == "barrier #5 of 0 B"


@pytest.mark.parametrize("text", ["{", "[]", '{"rank": "x"}'])
def test_a_broken_record_is_named(tmp_path, text):
    (tmp_path / "flight-0.json").write_text(text)

    with pytest.raises(InputError, match=r"flight-0\.json"):
        read_records(tmp_path)


def test_a_folder_without_records_or_ranks_says_what_was_expected(tmp_path):
    with pytest.raises(InputError, match="no flight record and no live rank"):
        look_at(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        look_at(tmp_path / "absent")


RANK = """
import sys, threading
from pathlib import Path
from meshwright.cluster.doctor import stacks
def waits_for_ever():
    print("up", flush=True)
    threading.Event().wait()
stacks.listen(Path(sys.argv[1]), int(sys.argv[2]))
waits_for_ever()
"""


def test_live_ranks_answer_with_their_stacks_and_a_stopped_one_is_named(tmp_path):
    ranks = [
        subprocess.Popen([sys.executable, "-c", RANK, str(tmp_path), str(rank)], stdout=subprocess.PIPE)
        for rank in range(3)
    ]
    try:
        for rank in ranks:
            assert rank.stdout.readline() == b"up\n"
        found = ranks_with_stacks(tmp_path)
        ranks[2].send_signal(19)  # SIGSTOP
        verdict = look_at(tmp_path)
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()

    assert [(process.rank, process.pid) for process in found] == [(i, rank.pid) for i, rank in enumerate(ranks)]
    assert all("waits_for_ever" in process.stack for process in found)
    assert [(rank.rank, rank.why) for rank in verdict.stuck] == [
        (2, f"pid {ranks[2].pid} is stopped (SIGSTOP, or a debugger)")
    ]
    assert "waits_for_ever" in str(verdict)


DAEMON = """
import signal, sys, threading
signal.signal(signal.SIGUSR2, lambda *_: print("was signalled", flush=True))
files = [open(path, mode) for path, mode in zip(sys.argv[1::2], sys.argv[2::2])]
print("up", flush=True)
threading.Event().wait(20)
"""


@contextlib.contextmanager
def a_daemon(*paths_and_modes):
    """Start a process of this user that has files open and catches the signal, and is no rank."""
    with subprocess.Popen(
        [sys.executable, "-c", DAEMON, *map(str, paths_and_modes)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "up\n"
            yield process
        finally:
            process.kill()


def said(process):
    """End a process and return what it has printed."""
    time.sleep(0.2)
    process.kill()
    return process.communicate()[0]


def head_of(process, **changed):
    return json.dumps({"pid": process.pid, "started": start_time(process.pid)} | changed) + "\n"


def test_a_link_in_the_place_of_a_ranks_file_is_refused_and_nobody_is_signalled(tmp_path):
    (tmp_path / "stacks").mkdir()
    log = tmp_path / "daemon.log"
    log.write_text("secret\n")
    with a_daemon(log, "r+") as daemon:
        (tmp_path / "stacks" / "rank-0.txt").symlink_to(log)
        with pytest.raises(InputError, match=r"rank-0\.txt: is a link"):
            look_at(tmp_path)
        (tmp_path / "stacks" / "rank-0.txt").unlink()
        (tmp_path / "stacks" / "rank-0.txt").hardlink_to(log)
        with pytest.raises(InputError, match=r"rank-0\.txt: has another name"):
            look_at(tmp_path)
        assert said(daemon) == ""


@pytest.mark.parametrize("target", ["/dev/urandom", "/dev/zero", "/nowhere", "rank-0.txt"])
def test_links_to_devices_and_to_nowhere_are_refused(tmp_path, target):
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "rank-0.txt").symlink_to(target)

    with pytest.raises(InputError, match=r"rank-0\.txt: is a link"):
        ranks_with_stacks(tmp_path)


def test_a_pipe_or_a_folder_in_the_place_of_a_ranks_file_is_refused(tmp_path):
    (tmp_path / "stacks").mkdir()
    os.mkfifo(tmp_path / "stacks" / "rank-0.txt")
    with pytest.raises(InputError, match=r"rank-0\.txt: is no file"):
        ranks_with_stacks(tmp_path)
    (tmp_path / "stacks" / "rank-0.txt").unlink()
    (tmp_path / "stacks" / "rank-0.txt").mkdir()
    with pytest.raises(InputError, match=r"rank-0\.txt: is no file"):
        ranks_with_stacks(tmp_path)


@pytest.mark.parametrize("name", ["stacks", "flight"])
def test_a_link_in_the_place_of_a_folder_of_a_run_is_refused(tmp_path, name):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(InputError, match=f"{name}: is a link"):
        look_at(tmp_path / "run")


def test_a_flight_record_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "flight-0.json").symlink_to("/etc/hostname")

    with pytest.raises(InputError, match=r"flight-0\.json: is a link"):
        read_records(tmp_path)


@pytest.mark.parametrize("changed", [{"pid": 1}, {"started": 1}, {"pid": os.getpid()}, {"more": 1}])
def test_a_process_that_the_file_does_not_tell_of_is_not_signalled(tmp_path, changed):
    path = tmp_path / "stacks" / "rank-0.txt"
    path.parent.mkdir()
    path.touch()
    with a_daemon(path, "r+") as daemon:
        path.write_text(head_of(daemon, **changed))
        assert ranks_with_stacks(tmp_path, wait_s=0.1) == []
        assert said(daemon) == ""


def test_a_process_that_has_the_file_of_a_rank_not_open_is_not_signalled(tmp_path):
    path = tmp_path / "stacks" / "rank-0.txt"
    path.parent.mkdir()
    (tmp_path / "rank-0.txt").touch()
    with a_daemon(tmp_path / "rank-0.txt", "r+") as daemon:
        path.write_text(head_of(daemon))
        assert ranks_with_stacks(tmp_path, wait_s=0.1) == []
        assert said(daemon) == ""


@pytest.mark.parametrize("text", ["", "no line", "[" * 10_000, '{"pid": 1e99, "started": 1}\n', '{"pid": "x"}\n'])
def test_a_file_that_tells_of_nobody_names_nobody(tmp_path, text):
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "rank-0.txt").write_text(text)

    assert ranks_with_stacks(tmp_path, wait_s=0.1) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_process_of_another_user_than_the_files_owner_is_not_signalled(tmp_path):
    path = tmp_path / "stacks" / "rank-0.txt"
    path.parent.mkdir()
    path.touch()
    with a_daemon(path, "r+") as daemon:
        path.write_text(head_of(daemon))
        os.chown(path, 12345, -1)
        assert ranks_with_stacks(tmp_path, wait_s=0.1) == []
        assert said(daemon) == ""


def test_a_rank_writes_into_no_file_that_somebody_else_has_put_there(tmp_path):
    (tmp_path / "stacks").mkdir()
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "stacks" / "rank-0.txt").symlink_to(tmp_path / "mine")

    with pytest.raises(InputError, match=r"rank-0\.txt: cannot be written"):
        listen(tmp_path, 0)

    assert (tmp_path / "mine").read_text() == "precious"
