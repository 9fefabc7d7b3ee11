"""Stacks of running ranks: each rank opens a file and writes its stacks there when it gets SIGUSR2.

The first line of the file says which process that is. The asker may be looking at somebody else's folder: it follows
no link, and sends the signal only to a process that is of the file's owner, has this very file open, and has the pid
and the start time that the file tells; in a container, the pid that it has there. faulthandler writes without the
interpreter's help, so that a rank that is stuck in a library answers as well.
"""

import contextlib
import errno
import faulthandler
import os
import re
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ...errors import InputError
from ..discovery.processes import has_open, process_status, start_time

FOLDER = "stacks"
SIGNAL = signal.SIGUSR2
MAX_STACK_BYTES = 4 * 2**20  # that are read of what a rank answers
MAX_HEAD_BYTES = 256
_FILE = re.compile(r"rank-(\d{1,9})\.txt")


class StackHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line of a rank's file: the process, by its own pid and its start in clock ticks since boot."""

    pid: int
    started: int


class RankProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One live rank of a run, as this machine sees it."""

    rank: int
    pid: int
    state: str  # the kernel's letter: R running, S waiting, D waiting for a device, T stopped
    waits_in: str  # kernel function that it waits in, or ""
    stack: str = ""  # of its Python threads; "" if it did not answer


def listen(run_folder: Path, rank: int) -> None:
    """Answer with stacks from now on; every rank calls it once, at its start, on its main thread."""
    folder = run_folder / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rank-{rank}.txt"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
    file = open(descriptor, "wb", buffering=0)  # noqa: SIM115 - stays open as long as the rank lives
    file.write(msgspec.json.encode(StackHead(os.getpid(), start_time(os.getpid()) or 0)) + b"\n")
    signal.signal(SIGNAL, lambda *_: None)  # so that a wakeup descriptor hears of it too; without one nothing happens
    faulthandler.register(SIGNAL, file=file, all_threads=True, chain=True)
    _open_files.append(file)


def ranks_with_stacks(run_folder: Path, wait_s: float = 2.0) -> list[RankProcess]:
    """Return the ranks of a run that live on this machine, with their stacks if they answer within `wait_s`.

    InputError where a link or anything but a file stands in the place of a rank's file.
    """
    with contextlib.ExitStack() as opened:
        asked = []
        for rank, file in _files(run_folder / FOLDER):
            opened.callback(os.close, file)
            pid = _holder(file, f"rank-{rank}.txt")
            if pid is not None:
                asked.append(_Asked(rank, pid, file))
        for each in asked:
            each.send()
        end = time.monotonic() + wait_s
        while time.monotonic() < end and not all(each.has_answered() for each in asked):
            time.sleep(0.05)  # nobody tells when the last line is written: read until nothing is added
        return [_process(each.rank, each.pid, each.text) for each in sorted(asked, key=lambda each: each.rank)]


_open_files: list[object] = []  # faulthandler writes to the handle and does not keep the file


class _Asked:
    """One rank that is asked, and its file, read from where it ended before."""

    def __init__(self, rank: int, pid: int, file: int) -> None:
        self.rank, self.pid, self._file = rank, pid, file
        self._from = os.fstat(file).st_size
        self.text = ""

    def send(self) -> None:
        """Send the signal, to the very process that was looked at where the kernel offers that."""
        with contextlib.ExitStack() as opened, contextlib.suppress(OSError):
            process = None
            with contextlib.suppress(OSError):  # some containers deny it
                process = os.pidfd_open(self.pid)
                opened.callback(os.close, process)
            if _holder(self._file, f"rank-{self.rank}.txt", self.pid) is None or not _catches(self.pid):
                return
            if process is None:
                os.kill(self.pid, SIGNAL)
            else:
                signal.pidfd_send_signal(process, SIGNAL)

    def has_answered(self) -> bool:
        """Read what has come; return whether there is an answer to which nothing was added since the last look."""
        before = self.text
        self.text = os.pread(self._file, MAX_STACK_BYTES, self._from).decode(errors="replace")
        return bool(self.text) and self.text == before


def _files(folder: Path) -> Iterator[tuple[int, int]]:
    """Yield each rank with its file, opened."""
    try:
        parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"{folder}: {_refusal(error)}, expected the folder that the ranks of a run make") from None
    try:
        for name in sorted(os.listdir(parent)):
            match = _FILE.fullmatch(name)
            if match is not None:
                yield int(match[1]), _opened(parent, name, folder / name)
    finally:
        os.close(parent)


def _opened(parent: int, name: str, path: Path) -> int:
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    except OSError as error:
        raise InputError(f"{path}: {_refusal(error)}, expected the file that a rank writes") from None
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(file)
        what = "has another name elsewhere" if stat.S_ISREG(found.st_mode) else "is no file"
        raise InputError(f"{path}: {what}, expected the file that a rank writes")
    return file


def _refusal(error: OSError) -> str:
    return "is a link" if error.errno in _LINK else str(error.strerror or error)


_LINK = {errno.ELOOP, errno.ENOTDIR}  # of a file and of a folder, where O_NOFOLLOW meets a link


def _holder(file: int, name: str, only: int | None = None) -> int | None:
    """Return the process that a rank's file tells of, where it lives, is of the file's owner, and has the file open."""
    try:
        line, end, _ = os.pread(file, MAX_HEAD_BYTES, 0).partition(b"\n")
        head = msgspec.json.decode(line, type=StackHead)
    except (ValueError, RecursionError, OSError):  # of msgspec, or not UTF-8
        return None
    found = os.fstat(file)
    pids = [only] if only is not None else [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    for pid in pids:
        facts = process_status(pid)
        own_pids, users = facts.get("NSpid", str(pid)).split(), facts.get("Uid", "").split()
        is_named = bool(end) and own_pids[-1] == str(head.pid) and set(users) == {str(found.st_uid)}
        if is_named and start_time(pid) == head.started and has_open(pid, found, name):
            return pid
    return None


def _catches(pid: int) -> bool:
    """Return whether a process has a handler for the signal, which would end it otherwise."""
    return bool(int(process_status(pid).get("SigCgt", "0"), 16) >> (SIGNAL - 1) & 1)


def _process(rank: int, pid: int, stack: str) -> RankProcess:
    state = waits_in = ""
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        waits_in = Path(f"/proc/{pid}/wchan").read_text().strip("0\n")
    return RankProcess(rank=rank, pid=pid, state=state, waits_in=waits_in, stack=stack)
