"""A run folder belongs to one job: the lock that says which, right on one machine and on disks that several share.

`lock.json` in the folder names the owner: user, host, process. A hard link makes it appear whole, and only one of
several processes can make that link. Its owner sets its modification time every `HEARTBEAT_S`. An owner is dead

- on the same kernel and in the same process namespace: if its process is gone
- elsewhere: if its lock does not change for `SILENCE_S` by the clock of the waiter, since the clocks of two machines
  need not agree.

A process takes over the lock of a dead owner in three steps, and may die after any of them. (1) It links
`.heir-DIGEST` to a lock of its own. DIGEST is that of the lock it takes over, so there is one heir; the owner of the
folder is the last of the chain of heirs. (2) It puts its lock in place of `lock.json`. (3) It removes the links. A
process that linked an heir of a lock that was no longer the last of the chain finds that out when it looks again.
"""

import contextlib
import errno
import getpass
import hashlib
import itertools
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import msgspec
import psutil

from ...backend.hosts.machine_names import boot, namespace
from ...errors import InputError, MeshwrightError
from ...quantities import Number, ProcessId

LOCK = "lock.json"
HEARTBEAT_S = 2.0
SILENCE_S = 30.0  # of a lock whose owner this process cannot see; NFS clients keep modification times for 3 s
RANKS_LEAVE_S = 25.0  # for the ranks of a job whose launcher has died to save and leave (worker.GRACE_S, and some)
LOOK_S = 0.1
MAX_BYTES = 4096
NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}  # of file systems without hard links


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of a run folder."""

    user: str
    host: str
    pid: ProcessId
    started: Number  # of the process, in clock ticks since its machine started
    boot: str  # of its machine
    processes: str  # the namespace in which `pid` counts
    since: str  # for people: its own wall clock
    nonce: str  # no two locks are equal

    def __str__(self) -> str:
        return f"{self.user} on {self.host} (pid {self.pid}, since {self.since})"

    def is_dead(self) -> bool | None:
        """Return whether its process has ended; None where this process cannot see it."""
        if not self.boot or not self.processes or (self.boot, self.processes) != (boot(), namespace("pid")):
            return None
        begun = started(self.pid)
        if begun is None:
            return None if _is_hidden(self.pid) else True
        return begun != self.started


def this_process() -> Owner:
    """Return the calling process as an owner."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = f"user {os.getuid()}"
    return Owner(
        user=user,
        host=socket.gethostname(),
        pid=os.getpid(),
        started=started(os.getpid()) or 0,
        boot=boot(),
        processes=namespace("pid"),
        since=datetime.now().isoformat(sep=" ", timespec="seconds"),
        nonce=secrets.token_hex(16),
    )


def started(pid: int) -> int | None:
    """Return when a process started, in clock ticks since the machine did; None where it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def _is_hidden(pid: int) -> bool:
    """Return whether there is a process of which /proc says nothing to this user."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return not os.path.exists(f"/proc/{pid}")


@contextlib.contextmanager
def owned(
    path: Path | None, *, silence_s: float = SILENCE_S, say: Callable[[str], None] = lambda text: None
) -> Iterator[Path]:
    """Own a run folder for the body of a `with`, and return it; None is a new one, runs/DATE-TIME.

    It is made where it is missing, and removed if it stays empty. Raises InputError that names its owner, or says why
    it cannot be locked. May wait for `silence_s` to know whether an owner that it cannot see is alive, and says so.
    """
    folder, made = (path, _make(path)) if path is not None else _new_run_folder(Path("runs"))
    lock = RunLock(folder, silence_s=silence_s, say=say)
    try:
        lock.take()
        try:
            yield folder
        finally:
            lock.release()
    finally:
        for path in made:  # a run that was refused before it began leaves nothing
            with contextlib.suppress(OSError):
                path.rmdir()


def owner_of(folder: Path) -> Owner | None:
    """Return the owner of a run folder, None where it has none, or one that is known to be dead."""
    last = _last_of_chain(folder)
    if last is None:
        return None
    owner = _owner(last[1])
    return None if owner is None or owner.is_dead() else owner


class RunLock:
    """The lock of one run folder, with the thread that keeps it alive."""

    def __init__(self, folder: Path, *, silence_s: float = SILENCE_S, say: Callable[[str], None]) -> None:
        self._folder, self._silence_s, self._say = folder, silence_s, say
        self._owner = this_process()
        self._bytes = msgspec.json.encode(self._owner) + b"\n"
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="run lock", daemon=True)

    def take(self) -> None:
        """Take the lock; InputError where another has it or the folder cannot be written."""
        try:
            while not self._taken():
                pass
        except OSError as error:
            raise InputError(f"{self._folder}: cannot lock the run folder: {error.strerror or error}") from None
        self._thread.start()

    def release(self) -> None:
        """Give the folder back."""
        self._end.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            if _read(self._folder / LOCK) == self._bytes:
                (self._folder / LOCK).unlink()

    def _taken(self) -> bool:
        """Try once; False where another was faster and has to be looked at again."""
        last = _last_of_chain(self._folder)
        if last is None:
            return self._link(self._folder / LOCK)
        links, found = last
        self._refuse_if_alive(found, links[-1])
        heir = _heir(self._folder, found)
        if not self._link(heir):
            return False
        now = _last_of_chain(self._folder)
        if now is None or now[1] != self._bytes:  # the chain had been cut meanwhile
            heir.unlink(missing_ok=True)
            return False
        self._put()
        for path in (*links[1:], heir):
            path.unlink(missing_ok=True)
        return True

    def _refuse_if_alive(self, found: bytes, path: Path) -> None:
        owner = _owner(found)
        dead = owner.is_dead() if owner else None
        if dead is None:
            if owner is not None and owner.host != self._owner.host:
                self._say(f"{self._folder}: locked by {owner}; waiting {self._silence_s:g} s to see if it is alive")
            dead = self._is_silent(path)
        if not dead:
            raise InputError(
                f"{self._folder}: another job has this run folder: {owner or 'its lock is damaged'}; "
                "wait for its end or stop it, or name another folder"
            )
        if owner is not None:
            self._say(f"{self._folder}: {owner} has died without giving the run folder back; taken over")
            _wait_for_ranks(self._folder, owner)

    def _is_silent(self, path: Path) -> bool:
        """Return whether a lock is left as it is for so long that its owner must be dead."""
        before = _changed_ns(path)
        end_s = time.monotonic() + self._silence_s
        while time.monotonic() < end_s:
            time.sleep(LOOK_S)
            if _changed_ns(path) != before:
                return False
        return True

    def _link(self, path: Path) -> bool:
        """Make `path` this process's lock, whole at once; False where it is there already."""
        with self._written() as fresh:
            try:
                os.link(fresh, path)
            except FileExistsError:
                return os.stat(fresh).st_nlink == 2  # an answer of NFS that was lost: it was linked all the same
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                return self._create(path)
        return True

    def _create(self, path: Path) -> bool:
        """Make the lock where the file system has no hard links."""
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "wb") as file:
            file.write(self._bytes)
        return True

    def _put(self) -> None:
        """Put this process's lock in place of the one of a dead owner."""
        with self._written() as fresh:
            os.replace(fresh, self._folder / LOCK)

    @contextlib.contextmanager
    def _written(self) -> Iterator[str]:
        descriptor, path = tempfile.mkstemp(dir=self._folder, prefix=".lock-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(self._bytes)
            os.chmod(path, 0o644)  # others may read the owner's name
            yield path
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def _beat(self) -> None:
        path = self._folder / LOCK
        while not self._end.wait(HEARTBEAT_S):
            with contextlib.suppress(OSError):  # a disk that is gone for a while
                if _read(path) != self._bytes:
                    self._lost()
                os.utime(path)

    def _lost(self) -> None:
        """End this job: it was held up for so long that another has taken the folder, and must not write there."""
        other = _owner(_read(self._folder / LOCK) or b"")
        if other is None:  # removed by a person, or unreadable for now: nobody else has it
            return
        sys.stderr.write(f"meshwright: {self._folder}: {other} has taken over the run folder; leaving at once\n")
        sys.stderr.flush()
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.send_signal(signal.SIGKILL)
        os._exit(MeshwrightError.exit_code)


def _new_run_folder(parent: Path) -> tuple[Path, list[Path]]:
    """Make a folder in `parent`, named after date and time, that no other job has been given.

    Returns it, and the folders that were made for it, the innermost first.
    """
    made = _make(parent)
    name = datetime.now().strftime("%Y%m%d-%H%M%S")
    for number in itertools.count(1):
        path = parent / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise InputError(f"{path}: cannot make the run folder: {error.strerror or error}") from None
        return path, [path, *made]
    raise AssertionError("numbers do not end")


def _make(folder: Path) -> list[Path]:
    """Make a folder and those above it; return which are new, the innermost first."""
    made = []
    path = folder
    while not path.exists() and path != path.parent:
        made.append(path)
        path = path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "a link to nothing has its name" if folder.is_symlink() else error.strerror or error
        raise InputError(f"{folder}: cannot make the run folder: {why}") from None
    return made


def _last_of_chain(folder: Path) -> tuple[list[Path], bytes] | None:
    """Return the lock and its heirs, and what the last of them holds; None where there is no lock."""
    paths = [folder / LOCK]
    found = _read(paths[0])
    if found is None:
        return None
    while True:
        heir = _heir(folder, found)
        more = _read(heir)
        if more is None or heir in paths:
            return paths, found
        paths.append(heir)
        found = more


def _heir(folder: Path, lock: bytes) -> Path:
    return folder / f".heir-{hashlib.sha256(lock).hexdigest()[:16]}"


def _read(path: Path) -> bytes | None:
    """Return the bytes of a lock; opening it makes a shared disk look at it again."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(MAX_BYTES)


def _changed_ns(path: Path) -> int | None:
    """Return when a lock was changed last, by the writer's clock; None where it is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return os.fstat(descriptor).st_mtime_ns
    finally:
        os.close(descriptor)


def _owner(lock: bytes) -> Owner | None:
    try:
        return msgspec.json.decode(lock, type=Owner)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _wait_for_ranks(folder: Path, owner: Owner) -> None:
    """Wait until the ranks of a launcher that has died are gone from this machine: they save, and leave."""
    if owner.is_dead() is None:
        return
    end_s = time.monotonic() + RANKS_LEAVE_S
    for path in folder.glob("ranks/*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            place = msgspec.json.decode(path.read_bytes())
            while place["host"] == owner.host and time.monotonic() < end_s:
                begun = started(int(place["pid"]))
                if begun is None or begun < owner.started:  # it has left; a process that is older is another one's
                    break
                time.sleep(LOOK_S)
