"""Stacks of running ranks: each rank opens a file and writes its stacks there when it gets SIGUSR2.

The one who asks finds the ranks by looking for processes that hold those files open: no pid is written down, so none
can have been reused, and it works from outside a container too. faulthandler writes without the interpreter's help, so
that a rank that is stuck in a library answers as well.
"""

import contextlib
import faulthandler
import os
import re
import signal
import time
from pathlib import Path

import msgspec

FOLDER = "stacks"
SIGNAL = signal.SIGUSR2
_FILE = re.compile(r"rank-(\d+)\.txt")


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
    file = open(folder / f"rank-{rank}.txt", "w")  # noqa: SIM115 - stays open as long as the rank lives
    signal.signal(SIGNAL, lambda *_: None)  # so that a wakeup descriptor hears of it too; without one nothing happens
    faulthandler.register(SIGNAL, file=file, all_threads=True, chain=True)
    _open_files.append(file)


def ask(run_folder: Path, wait_s: float = 2.0) -> list[RankProcess]:
    """Return the ranks of a run that live on this machine, with their stacks if they answer within `wait_s`."""
    holders = _holders(run_folder / FOLDER)
    sizes = {path: path.stat().st_size for path in holders}
    for pid in holders.values():
        if _catches(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, SIGNAL)
    end = time.monotonic() + wait_s
    texts, before = dict.fromkeys(holders, ""), None
    while time.monotonic() < end and (texts != before or not all(texts.values())):
        time.sleep(0.05)  # nobody tells when the last line is written: read until nothing is added
        before = texts
        texts = {path: path.read_bytes()[size:].decode(errors="replace") for path, size in sizes.items()}
    return [_process(path, pid, texts[path]) for path, pid in sorted(holders.items(), key=lambda item: _rank(item[0]))]


_open_files: list[object] = []  # faulthandler writes to the handle and does not keep the file


def _holders(folder: Path) -> dict[Path, int]:
    """Return which process has which rank's file open."""
    wanted = {str(path.resolve()): path for path in folder.glob("rank-*.txt") if _FILE.fullmatch(path.name)}
    found: dict[Path, int] = {}
    for entry in os.listdir("/proc") if wanted else ():
        if not entry.isdigit():
            continue
        for target in _open_paths(f"/proc/{entry}/fd"):
            if target in wanted:
                found.setdefault(wanted[target], int(entry))
    return found


def _open_paths(folder: str) -> set[str]:
    """Return what the handles of a process lead to; nothing if it has ended or is not ours."""
    found = set()
    with contextlib.suppress(OSError):
        for handle in os.listdir(folder):
            with contextlib.suppress(OSError):  # closed while we looked
                found.add(os.readlink(f"{folder}/{handle}"))
    return found


def _catches(pid: int) -> bool:
    """Return whether a process has a handler for the signal, which would end it otherwise."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (SIGNAL - 1) & 1)
    return False


def _process(path: Path, pid: int, stack: str) -> RankProcess:
    state = waits_in = ""
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        waits_in = Path(f"/proc/{pid}/wchan").read_text().strip("0\n")
    return RankProcess(rank=_rank(path), pid=pid, state=state, waits_in=waits_in, stack=stack)


def _rank(path: Path) -> int:
    match = _FILE.fullmatch(path.name)
    assert match is not None
    return int(match[1])
