"""The memory of a host: the same on all its ranks, or each hears at once why not."""

import os
import time

import pytest

from meshwright.backend.group.meeting import meet_ranks
from meshwright.backend.hosts.placement import GroupMember, hosts_of
from meshwright.backend.local import segment
from meshwright.backend.local.memory import PAGE
from meshwright.backend.local.reach import ProcessPlace, RankSocket
from meshwright.backend.local.segment import share_memory
from meshwright.errors import InputError
from tests.unit.backend.meetings import new_store, on_ranks

TIMEOUT_S = 60.0


def shared(hosts, slot_bytes=PAGE):
    """Return for each rank its members and segment, or the error; `hosts` is the host of each."""
    store, ranks = new_store(TIMEOUT_S), len(hosts)

    def come(rank):
        with RankSocket(rank, ranks) as door:
            meeting = meet_ranks(store, rank, ranks, lambda: door.name, lambda said: "")
            door.look([ProcessPlace(door=name, pretended=hosts[r], machine="m") for r, name in enumerate(meeting.said)])
            members = [GroupMember(r, r, host, host, 1, (0,)) for r, host in enumerate(hosts)]
            return share_memory(meeting, door, members, [slot_bytes] * ranks, TIMEOUT_S)

    return on_ranks(ranks, come)


def close(found):
    for _, each in found:
        each.close()


def open_files():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("hosts", ["a", "aaa", "abab", "abc"])
def test_what_one_rank_of_a_host_writes_the_others_read_and_nobody_else(hosts):
    before = open_files()
    found = shared(hosts)
    for rank, (_, each) in enumerate(found):
        each.buffer[rank] = rank + 1

    for rank, (members, each) in enumerate(found):
        want = [peer + 1 if hosts[peer] == hosts[rank] else 0 for peer in range(len(hosts))]
        assert list(each.buffer[: len(hosts)]) == want
        assert sorted(map(sorted, hosts_of(members))) == sorted(
            [r for r, host in enumerate(hosts) if host == name] for name in set(hosts)
        )
        assert len(each.lives) == hosts.count(hosts[rank]) - 1
    close(found)
    assert open_files() == before


def refuse(*arguments):
    raise OSError(27, "File too large")


@pytest.mark.parametrize("failing", ["_make_file", "_hand", "_fetch"])
def test_a_host_without_common_memory_falls_apart_at_once_with_one_line(monkeypatch, caplog, failing):
    before, start = open_files(), time.monotonic()
    segment.warn_once.cache_clear()
    monkeypatch.setattr(segment, failing, refuse)
    for _ in range(2):
        found = shared("aab")
        assert [hosts_of(members) for members, _ in found] == [[(0,), (1,), (2,)]] * 3
        close(found)

    assert time.monotonic() - start < 4
    (line,) = [record.getMessage() for record in caplog.records]
    assert "ranks of this host share no memory and talk over TCP: " in line
    assert line.endswith("File too large")
    assert open_files() == before


def test_a_host_that_shares_memory_keeps_it_where_another_falls_apart(monkeypatch):
    real = segment._lead

    def lead(meeting, *rest):
        return refuse() if meeting.rank == 0 else real(meeting, *rest)

    monkeypatch.setattr(segment, "_lead", lead)
    found = shared("aabb")

    assert [sorted(hosts_of(members)) for members, _ in found] == [[(0,), (1,), (2, 3)]] * 4
    found[2][1].buffer[5] = 7
    assert [each.buffer[5] for _, each in found] == [0, 0, 7, 7]
    close(found)


def test_too_little_memory_on_one_host_is_an_error_on_all(monkeypatch):
    monkeypatch.setattr(segment, "available_bytes", lambda: 1000)
    start = time.monotonic()

    for error in shared("aab"):
        assert isinstance(error, InputError)
        assert "cannot reserve" in str(error)
        assert "MESHWRIGHT_SLOT_BYTES" in str(error)
    assert time.monotonic() - start < 10


def test_memory_is_taken_when_it_is_first_written():
    file = segment._make_file(64 * 2**20)
    try:
        assert os.fstat(file).st_blocks == 0
        os.pwrite(file, b"x", 40 * 2**20)
        assert os.fstat(file).st_blocks * 512 == PAGE
        with pytest.raises(PermissionError):
            os.ftruncate(file, PAGE)
    finally:
        os.close(file)


def test_where_the_kernel_promises_only_what_it_has_memory_is_taken_at_once(tmp_path, monkeypatch):
    (tmp_path / "strict").write_text("2\n")
    monkeypatch.setattr(segment, "OVERCOMMIT", tmp_path / "strict")
    file = segment._make_file(2**20)
    assert os.fstat(file).st_blocks * 512 == 2**20
    os.close(file)


def test_where_memory_cannot_be_asked_for_at_once_it_is_written(monkeypatch):
    def denied(*arguments):
        raise PermissionError(1, "Operation not permitted")

    file = segment._make_file(3 * 2**20 + PAGE)
    monkeypatch.setattr(os, "posix_fallocate", denied)
    segment._reserve(file, 3 * 2**20 + PAGE)
    assert os.fstat(file).st_blocks * 512 == 3 * 2**20 + PAGE
    os.close(file)


@pytest.mark.parametrize("error", [PermissionError(1, "Operation not permitted"), AttributeError("memfd_create")])
def test_without_memfd_the_memory_lies_on_dev_shm_without_a_name(monkeypatch, error):
    def denied(*arguments):
        raise error

    monkeypatch.setattr(os, "memfd_create", denied)
    file = segment._make_file(2**20)
    made = os.fstat(file)
    os.close(file)
    assert made.st_blocks * 512 == 2**20
    assert made.st_dev == os.stat("/dev/shm").st_dev
    assert made.st_nlink == 0
