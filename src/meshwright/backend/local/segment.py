"""One block of memory that the ranks of a host share, without a name in any file system.

The lowest rank makes an anonymous file (memfd), seals its size and hands it to the others over the connections with
which they have found each other, with everybody's sign of life. Nothing is left behind however the ranks end, and only
processes of the same user get the file. The kernel allocates a page when it is first written, on the memory node of
the rank that writes it, so a group takes memory for its largest call so far and not for the largest possible one.

Every rank says whether it has got the memory. Where one has not, on whichever host, all hear of it at once: its host
falls apart into hosts of one rank, which talk over TCP.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from ...errors import InputError
from ...native import warn_once
from ...units import format_bytes
from ..group.meeting import Meeting
from ..hosts.placement import GroupMember, hosts_of
from .memory import SegmentLayout
from .reach import GREETING, RankSocket, user_of
from .waiting import sign_of_life

HANDED = 200  # descriptors in one message; the kernel takes 253
LOOK_S = 0.2  # between two looks at whether a rank that is waited for has failed
STRANGER_S = 5.0  # for a peer that has connected to identify itself
ZEROS_BYTES = 2**20
OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")


class Segment:
    """The memory of the ranks of one host, mapped into this process; `buffer` is all of it.

    `lives` are the signs of life of the other ranks, by their place on the host; the taker owns them.
    """

    def __init__(self, memory: SegmentLayout, buffer: mmap.mmap, lives: Mapping[int, int]) -> None:
        self.memory = memory
        self.buffer = buffer
        self.lives = lives

    def close(self) -> None:
        """Let go of it, where it serves nobody after all."""
        for life in self.lives.values():
            os.close(life)
        self.buffer.close()


class _Word(msgspec.Struct, frozen=True, kw_only=True):
    """How it went on one rank."""

    has_memory: bool = True
    problem: str = ""  # for which there is another way
    refusal: str = ""  # that ends the group


def share_memory(
    meeting: Meeting, door: RankSocket, members: Sequence[GroupMember], slot_bytes: Sequence[int], timeout_s: float
) -> tuple[tuple[GroupMember, ...], Segment]:
    """Return the members on the hosts that do share memory, and this rank's. Blocks; all ranks.

    `slot_bytes` are those of each rank, alike on a host. InputError, on all ranks, where one has too little memory.
    """
    rank, turn, segment = meeting.rank, 0, None
    while True:
        hosts = hosts_of(members)
        mine = next(host for host in hosts if rank in host)
        word = _Word()
        if segment is None:
            memory = SegmentLayout(len(mine), slot_bytes[rank])
            segment, word = _attempt(meeting, door, mine, memory, f"memory{turn}", time.monotonic() + timeout_s)
        told = meeting.gather(f"memory{turn}", msgspec.json.encode(word).decode())
        words = [msgspec.json.decode(text, type=_Word) for text in told]
        broken = [host for host in hosts if not all(words[peer].has_memory for peer in host)]
        refused = any(each.refusal for each in words)
        if segment is not None and not broken and not refused:
            return tuple(members), segment
        if segment is not None and (mine in broken or refused):
            segment.close()
            segment = None
        meeting.refuse([each.refusal for each in words])
        if mine in broken and rank == mine[0]:
            why = "; ".join(words[peer].problem for peer in mine if words[peer].problem)
            warn_once(f"ranks of this host share no memory and talk over TCP: {why or 'a connection was closed'}")
        members = [
            replace(member, identity=f"{member.identity}|{member.rank}")
            if any(member.rank in host for host in broken)
            else member
            for member in members
        ]
        turn += 1


def _attempt(
    meeting: Meeting, door: RankSocket, host: Sequence[int], memory: SegmentLayout, key: str, end: float
) -> tuple[Segment | None, _Word]:
    """Return this rank's memory, or None; and what to tell the others."""
    try:
        if len(host) == 1:
            return _private(memory), _Word()
        if meeting.rank == host[0]:
            return _lead(meeting, door, host, memory, key, end), _Word()
        return _fetch(door, host.index(meeting.rank), memory, end), _Word()
    except InputError as error:
        return None, _Word(has_memory=False, refusal=str(error))
    except ConnectionError:  # at the other end there is more to say
        return None, _Word(has_memory=False)
    except OSError as error:
        if len(host) == 1:
            return None, _Word(has_memory=False, refusal=str(too_little(memory.total_bytes, str(error.strerror))))
        who = "" if meeting.rank == host[0] else f"rank {meeting.rank} of the group: "
        return None, _Word(has_memory=False, problem=f"{who}{error.strerror or error}")
    finally:
        door.close()  # so that nobody waits for this rank


def _private(memory: SegmentLayout) -> Segment:
    """Return memory of this rank alone."""
    _check_available(memory.total_bytes)
    return Segment(memory, mmap.mmap(-1, memory.total_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), {})


def _lead(
    meeting: Meeting, door: RankSocket, host: Sequence[int], memory: SegmentLayout, key: str, end: float
) -> Segment:
    """Make the memory, let the other ranks of the host in and hand it to them."""
    _check_available(memory.total_bytes)
    with contextlib.ExitStack() as opened:
        file = _make_file(memory.total_bytes)
        opened.callback(os.close, file)
        own_life = sign_of_life()
        opened.callback(os.close, own_life)
        with contextlib.ExitStack() as kept:
            connections: dict[int, socket.socket] = {}
            lives = {host[0]: own_life}
            for rank, connection, life in _arriving_ranks(meeting, door, host[1:], key, end):
                connections[rank] = opened.enter_context(connection)
                lives[rank] = life
                kept.callback(os.close, life)
            for rank, connection in connections.items():
                _hand(connection, [file, *(lives[other] for other in host if other != rank)], end)
            buffer = mmap.mmap(file, memory.total_bytes)
            kept.pop_all()
    return Segment(memory, buffer, {place: lives[rank] for place, rank in enumerate(host) if place})


def _arriving_ranks(
    meeting: Meeting, door: RankSocket, ranks: Sequence[int], key: str, end: float
) -> Iterator[tuple[int, socket.socket, int]]:
    """Yield each of these ranks with its connection and its sign of life, as they come; strangers are turned away."""
    missing = set(ranks)
    while missing:
        if time.monotonic() > end:
            raise TimeoutError(f"ranks {sorted(missing)} of the group did not come for the shared memory")
        try:
            connection = door.accept(LOOK_S)
        except TimeoutError:
            if any(meeting.has_said(key, rank) for rank in missing):
                raise ConnectionResetError("a rank of this host has failed") from None
            continue
        greeting: bytes = b""
        lives: list[int] = []
        if user_of(connection) == os.geteuid():
            connection.settimeout(STRANGER_S)
            with contextlib.suppress(OSError):
                greeting, lives, _, _ = socket.recv_fds(connection, GREETING.size, 1, socket.MSG_CMSG_CLOEXEC)
        rank = GREETING.unpack(greeting)[0] if len(greeting) == GREETING.size and lives else None
        if rank in missing:
            missing.discard(rank)
            yield rank, connection, lives[0]
        else:
            connection.close()
            for life in lives:
                os.close(life)


def _hand(connection: socket.socket, descriptors: Sequence[int], end: float) -> None:
    """Send descriptors, and wait until they have come: the kernel bounds how many are under way."""
    connection.settimeout(max(0.001, end - time.monotonic()))
    for first in range(0, len(descriptors), HANDED):
        socket.send_fds(connection, [b"m"], descriptors[first : first + HANDED])
        if not connection.recv(1):
            raise ConnectionResetError("the rank that was handed the shared memory has failed")


def _fetch(door: RankSocket, place: int, memory: SegmentLayout, end: float) -> Segment:
    """Fetch the memory, and the signs of life of the others, from the rank that leads this host."""
    connection = door.greet(end)
    with contextlib.ExitStack() as opened:
        found: list[int] = []
        while len(found) < memory.ranks:  # one for each other rank, and the memory
            data, more, flags, _ = socket.recv_fds(connection, 1, HANDED, socket.MSG_CMSG_CLOEXEC)
            for descriptor in more:
                opened.callback(os.close, descriptor)
            found += more
            if flags & socket.MSG_CTRUNC:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            if not data:
                raise ConnectionResetError("the rank that hands out the shared memory has failed")
            connection.send(b"k")
        buffer = mmap.mmap(found[0], memory.total_bytes)
        opened.pop_all()
    os.close(found[0])
    others = [other for other in range(memory.ranks) if other != place]
    return Segment(memory, buffer, dict(zip(others, found[1:], strict=True)))


# ---- the memory


def _make_file(size_bytes: int) -> int:
    """Return an anonymous file of this size, which nobody can shrink."""
    try:
        descriptor = os.memfd_create("meshwright", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except (OSError, AttributeError) as error:
        return _unlinked_file(size_bytes, str(error))
    try:
        os.ftruncate(descriptor, size_bytes)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        if _is_strict():
            _reserve(descriptor, size_bytes)
    except OSError as error:
        os.close(descriptor)
        raise OSError(error.errno, f"{format_bytes(size_bytes)} from memfd_create: {error.strerror}") from None
    return descriptor


def _unlinked_file(size_bytes: int, why: str) -> int:
    """Return a file without a name on /dev/shm, all of it set aside: what can be had there has a limit."""
    try:
        descriptor = os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise OSError(error.errno, f"no memory to share: memfd_create: {why}; /dev/shm: {error.strerror}") from None
    try:
        os.ftruncate(descriptor, size_bytes)
        _reserve(descriptor, size_bytes)
    except OSError as error:
        os.close(descriptor)
        raise OSError(error.errno, f"no memory to share: memfd_create: {why}; /dev/shm: {error.strerror}") from None
    warn_once(f"shared memory lies on /dev/shm, since memfd_create is not to be had: {why}")
    return descriptor


def _is_strict() -> bool:
    """Return whether the kernel promises memory only where it has it: then a first write may be refused, by SIGBUS."""
    with contextlib.suppress(OSError):
        return OVERCOMMIT.read_text().strip() == "2"
    return False


def _reserve(descriptor: int, size_bytes: int) -> None:
    """Have the pages of a file set aside now; OSError if there is not enough memory."""
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP}:
            raise
        zeros = bytes(ZEROS_BYTES)
        for start in range(0, size_bytes, ZEROS_BYTES):
            os.pwrite(descriptor, zeros[: size_bytes - start], start)


def _check_available(size_bytes: int) -> None:
    """Raise InputError where there is not as much memory: asking for it would end in the kernel's killing processes."""
    there_bytes = available_bytes()
    if there_bytes is not None and size_bytes > there_bytes:
        raise too_little(size_bytes, f"there are {format_bytes(there_bytes)}")


def available_bytes() -> int | None:
    """Return the memory that processes may still take: of the machine, or of the control group if that is less.

    None where the system does not tell.
    """
    free = None
    with contextlib.suppress(OSError, StopIteration), open("/proc/meminfo") as file:
        free = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))
    folder = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, ValueError):  # "max", or no control group of the second version
        left = int((folder / "memory.max").read_text()) - int((folder / "memory.current").read_text())
        free = left if free is None else min(free, left)
    return None if free is None else max(0, free)


def too_little(size_bytes: int, why: str) -> InputError:
    """Return the error that says how much memory was asked for, and what to do."""
    return InputError(
        f"cannot reserve {format_bytes(size_bytes)} of shared memory ({why}): "
        "raise the memory limit, use fewer ranks on this host, or set MESHWRIGHT_SLOT_BYTES lower"
    )
