"""Where running emulations are written down: one folder each, named by its owner's pid and start time.

The folder holds `control.sock` (for `meshwright emulate fault` from another terminal), `spec.json`, `cluster.json` and
one hosts file a node. It is all that an emulation leaves on disk; what a dead owner left is swept by the next start.
"""

import os
import shutil
import stat
import tempfile
from pathlib import Path

import msgspec

from ...errors import InputError
from ..discovery.processes import start_time


class RunningEmulation(msgspec.Struct, frozen=True, order=True):
    """One emulation that is running: the pid of its supervisor is its name."""

    owner_pid: int
    folder: str


def root() -> Path:
    """Return the folder of this user's emulations, made if missing; InputError if somebody else owns it."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base is None:
        base = "/run" if os.geteuid() == 0 and os.access("/run", os.W_OK) else tempfile.gettempdir()
    path = Path(base) / f"meshwright-{os.geteuid()}"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        raise InputError(f"{path}: belongs to somebody else; set XDG_RUNTIME_DIR to a folder of your own")
    return path


def create_folder(base: Path) -> Path:
    """Make the folder of the calling process's emulation."""
    pid = os.getpid()
    folder = base / f"emulation-{pid}-{start_time(pid)}"
    folder.mkdir(mode=0o700)
    return folder


def running(base: Path) -> list[RunningEmulation]:
    """Return the emulations whose owner lives, oldest pid first."""
    return sorted(RunningEmulation(_owner(folder)[0], str(folder)) for folder in _folders(base) if _lives(folder))


def sweep_dead(base: Path) -> list[str]:
    """Remove what dead owners left; return the names of the folders removed."""
    dead = [folder for folder in _folders(base) if not _lives(folder)]
    for folder in dead:
        remove(folder)
    return [folder.name for folder in dead]


def remove(folder: Path) -> None:
    """Remove an emulation's folder, which another start may be sweeping at the same time."""
    shutil.rmtree(folder, ignore_errors=True)


def find_emulation(base: Path, owner_pid: int | None) -> RunningEmulation:
    """Return the emulation of `owner_pid`, or the only one that runs; InputError otherwise."""
    entries = running(base)
    if not entries:
        raise InputError("no emulation is running; start one with `meshwright emulate ... -- COMMAND`")
    ids = ", ".join(str(entry.owner_pid) for entry in entries)
    if owner_pid is None and len(entries) > 1:
        raise InputError(f"several emulations are running; choose one with --id (running: {ids})")
    for entry in entries:
        if owner_pid in (None, entry.owner_pid):
            return entry
    raise InputError(f"--id {owner_pid}: no such emulation (running: {ids})")


def _folders(base: Path) -> list[Path]:
    return [path for path in base.glob("emulation-*-*") if path.is_dir()]


def _owner(folder: Path) -> tuple[int, int]:
    _, pid, started = folder.name.split("-")
    return int(pid), int(started)


def _lives(folder: Path) -> bool:
    pid, started = _owner(folder)
    return start_time(pid) == started
