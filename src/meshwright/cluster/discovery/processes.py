"""Processes as the kernel tells of them in /proc: which is which, whose it is, and what it does with a signal."""

import contextlib
import os
from pathlib import Path


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot, or None if there is none: tells a reused pid apart."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def process_status(pid: int) -> dict[str, str]:
    """Return the lines of a process's status by name; none if it has ended."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {}


def has_open(pid: int, file: os.stat_result, name: str) -> bool:
    """Return whether a process has a file with this last part of its path open, by device and inode."""
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):  # it has ended, or is not ours
        for handle in os.listdir(folder):
            with contextlib.suppress(OSError):  # closed while we looked
                if os.path.basename(os.readlink(f"{folder}/{handle}")) != name:
                    continue  # another file system may take for ever to tell of its files
                found = os.stat(f"{folder}/{handle}")
                if (found.st_dev, found.st_ino) == (file.st_dev, file.st_ino):
                    return True
    return False
