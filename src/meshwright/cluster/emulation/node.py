"""A node: the namespaces of one emulated machine, kept alive by a process that does nothing.

That process is number 1 of the node's process namespace. When it dies, and it dies with the supervisor, the kernel
kills every process of the node and takes its network, mounts and names away: clean-up needs nobody who is still alive.
"""

import contextlib
import errno
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError
from . import linux, rootless

_KINDS = {
    "net": linux.CLONE_NEWNET,
    "mnt": linux.CLONE_NEWNS,
    "uts": linux.CLONE_NEWUTS,
    "ipc": linux.CLONE_NEWIPC,
    "pid": linux.CLONE_NEWPID,
}


@dataclass(frozen=True, slots=True)
class Node:
    """One emulated machine: its first process and open handles of its namespaces, by kind."""

    name: str
    init_pid: int  # as the supervisor sees it
    lifeline: int  # the node lives while this is open
    namespaces: Mapping[str, int]

    def kill(self) -> None:
        """Kill every process of the node at once, as a power cut does; it cannot be started again."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.init_pid, signal.SIGKILL)

    def close(self) -> None:
        """Let go of the namespaces."""
        os.close(self.lifeline)
        for fd in self.namespaces.values():
            os.close(fd)


@contextlib.contextmanager
def in_network(node: Node, home_network_fd: int) -> Iterator[None]:
    """Run the block in the node's network: sockets opened there stay there."""
    with linux.inside_namespace(node.namespaces["net"], home_network_fd, linux.CLONE_NEWNET):
        yield


def start_node(name: str, *, etc: Mapping[str, Path], shm_bytes: int | None) -> Node:
    """Start a node; InputError says which step the kernel refused. The caller must have a single thread.

    `etc` says which files the node sees in place of the machine's own, by path. The first process reads from a pipe
    whose other end the caller holds: when that is closed, however the caller ended, it ends, and the node with it.
    """
    ours, theirs = socket.socketpair()
    held, lifeline = os.pipe2(os.O_CLOEXEC)
    try:
        pid = _born_in(
            lambda: linux.unshare(linux.CLONE_NEWPID), lambda: _become_init(theirs, held, name, etc, shm_bytes)
        )
    except OSError as error:
        os.close(lifeline)
        raise InputError(rootless.refusal(error.errno or errno.EIO, f"a new process namespace: {error}")) from None
    finally:
        os.close(held)
        theirs.close()
    try:
        with ours:
            answer = ours.recv(4096).decode()
        if answer != "ready":
            code, _, step = answer.partition(":")
            raise InputError(rootless.refusal(int(code or errno.EIO), step or f"{name} ended before it was ready"))
        spaces = {kind: os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in _KINDS}
    except BaseException:
        os.close(lifeline)
        os.kill(pid, signal.SIGKILL)  # has not been waited for, so the number is still its own
        os.waitpid(pid, 0)
        raise
    return Node(name, pid, lifeline, spaces)


def spawn(
    node: Node, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, stdin: int, stdout: int, stderr: int
) -> int:
    """Start a command in a node, in a session of its own, and return its pid; OSError if it cannot be executed."""
    report, failed = os.pipe2(os.O_CLOEXEC)

    def execute() -> None:
        try:
            for kind, flag in _KINDS.items():
                if kind != "pid":
                    linux.setns(node.namespaces[kind], flag)
            for source, target in ((stdin, 0), (stdout, 1), (stderr, 2)):
                os.dup2(source, target)
            _default_signals()
            os.setsid()
            os.chdir(cwd)
            os.execvpe(argv[0], list(argv), dict(env))
        except OSError as error:
            os.write(failed, str(error.errno or errno.EIO).encode())

    try:
        pid = _born_in(lambda: linux.setns(node.namespaces["pid"], linux.CLONE_NEWPID), execute)
    except OSError as error:
        os.close(report)
        if error.errno != errno.ENOMEM:  # which fork says in a namespace whose first process is gone
            raise
        raise InputError(f"{node.name}: has lost its power") from None
    finally:
        os.close(failed)
    with os.fdopen(report, "rb") as reader:
        code = reader.read()
    if code:
        os.waitpid(pid, 0)
        raise OSError(int(code), os.strerror(int(code)), argv[0])
    return pid


def processes(node: Node) -> list[int]:
    """Return the pids, as the supervisor sees them, of all processes of a node but its first."""
    space = os.fstat(node.namespaces["pid"]).st_ino
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != node.init_pid:
            with contextlib.suppress(OSError):  # it ended while we looked
                if os.stat(f"/proc/{entry}/ns/pid").st_ino == space:
                    found.append(int(entry))
    return found


def _born_in(enter: Callable[[], None], live: Callable[[], None]) -> int:
    """Fork a process into the process namespace that `enter` chooses, where it runs `live`; return its pid.

    A process can choose such a namespace for its children only once, so a short-lived child does both and leaves us,
    its subreaper, as the parent.
    """
    pids, told = os.pipe2(os.O_CLOEXEC)
    middle = os.fork()
    if middle == 0:
        try:
            enter()
            pid = os.fork()
            if pid == 0:
                live()
            else:
                os.write(told, str(pid).encode())
        except OSError as error:
            os.write(told, f"{-(error.errno or errno.EIO)}".encode())
        finally:
            os._exit(127)
    os.close(told)
    with os.fdopen(pids, "r") as reader:
        answer = reader.read(4096)
    os.waitpid(middle, 0)
    number = int(answer or -errno.EIO)
    if number < 0:
        raise OSError(-number, os.strerror(-number))
    return number


def _become_init(channel: socket.socket, held: int, name: str, etc: Mapping[str, Path], shm_bytes: int | None) -> None:
    """Build the node's namespaces and wait for the end of the supervisor."""
    try:
        _default_signals()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans of the node's programs end here: the kernel buries them
        _close_all_but(channel.fileno(), held)
        linux.unshare(linux.CLONE_NEWNET | linux.CLONE_NEWNS | linux.CLONE_NEWUTS | linux.CLONE_NEWIPC)
        socket.sethostname(name)
        _mount_all(etc, shm_bytes)
        channel.send(b"ready")
        channel.close()
        os.read(held, 1)
    except OSError as error:
        channel.send(f"{error.errno or errno.EIO}:{error.strerror}".encode()[:4000])


def _close_all_but(*kept: int) -> None:
    """Close every handle above standard error that is not in `kept`."""
    low, high = sorted(kept)
    for first, last in ((3, low), (low + 1, high), (high + 1, min(os.sysconf("SC_OPEN_MAX"), 2**16))):
        os.closerange(first, last)


def _mount_all(etc: Mapping[str, Path], shm_bytes: int | None) -> None:
    """Give the node its own processes, interfaces, shared memory and host names; the rest of the disk is shared."""
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    safe = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
    linux.mount("proc", "/proc", kind="proc", flags=safe)
    cgroups = os.open("/sys/fs/cgroup", os.O_PATH) if os.path.isdir("/sys/fs/cgroup") else None
    linux.mount("sysfs", "/sys", kind="sysfs", flags=safe)
    if cgroups is not None:  # the limits that this process runs under stay readable
        linux.mount(f"/proc/self/fd/{cgroups}", "/sys/fs/cgroup", flags=linux.MS_BIND | linux.MS_REC)
        os.close(cgroups)
    size = "mode=1777" if shm_bytes is None else f"mode=1777,size={shm_bytes}"
    linux.mount("shm", "/dev/shm", kind="tmpfs", flags=linux.MS_NOSUID | linux.MS_NODEV, data=size)
    for path, own in etc.items():
        linux.mount(str(own), path, flags=linux.MS_BIND)


def _default_signals() -> None:
    """Undo what Python and the supervisor set: a program starts with every signal at its default and none blocked."""
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
