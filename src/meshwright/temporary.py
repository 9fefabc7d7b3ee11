"""Temporary folders of processes that may be killed: what a dead one has left goes when the next one is made.

Each has a file `.meshwright-owner`, locked by the process that made it for as long as that lives, in whatever process
namespace.
"""

import contextlib
import fcntl
import multiprocessing.process
import os
import shutil
import stat
import tempfile
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

LONGEST = 107 - len("/meshwright-12345678/listener-12345678")  # of a place in which a Unix socket can have a name
PREFIX, OWNER = "meshwright-", ".meshwright-owner"


def process_folder() -> Path:
    """Return the folder of this process, made if need be; it goes when the process ends.

    What `multiprocessing` keeps in files lies there too: the socket of its fork server.
    """
    if (known := _known()) is not None:
        return known
    sweep_temporary()
    folder, lock = _make()
    _settings()["tempdir"] = str(folder)
    Finalize(None, _remove, args=(folder, lock), exitpriority=-100)  # as multiprocessing does: after all that use it
    return folder


def sweep_temporary() -> None:
    """Remove the folders of this user whose owner has died."""
    for folder in _place().glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # it lives, or has no lock, or another removes it
            found = folder.lstat()
            if found.st_mode != stat.S_IFDIR | 0o700 or found.st_uid != os.geteuid():
                continue
            lock = os.open(folder / OWNER, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def remove_inherited_at_end() -> None:
    """Let the folder of the process that has started this one, and has died since, go when this one ends."""
    Finalize(None, remove_inherited, exitpriority=-100)


def remove_inherited() -> None:
    """Remove the folder of the process that has started this one."""
    if (folder := _known()) is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _known() -> Path | None:
    found = _settings().get("tempdir")
    return Path(found) if found is not None and Path(found).name.startswith(PREFIX) else None


def _place() -> Path:
    """Return the folder of temporary files; /tmp where the path of that one is too long for a socket in it."""
    place = tempfile.gettempdir()
    return Path(place if len(os.fsencode(place)) <= LONGEST else "/tmp")


def _make() -> tuple[Path, int]:
    """Return a new folder and the lock on it; one that another sweeps before it is locked is made again."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_place()))
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(folder / OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if (folder / OWNER).exists():
                    return folder, lock
            os.close(lock)


def _settings() -> dict[str, Any]:
    """Return what multiprocessing passes on to the processes that this one starts."""
    found: dict[str, Any] = multiprocessing.process.current_process()._config  # type: ignore[attr-defined]
    return found


def _remove(folder: Path, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)
