"""A node: the namespaces of one emulated machine, kept alive by a process that does nothing.

That process is number 1 of the node's process namespace. When it dies, and it dies with the supervisor, the kernel
kills every process of the node and takes its network, mounts and names away: clean-up needs nobody who is still alive.
"""

import contextlib
import errno
import os
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import MeshwrightError
from . import linux

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
    namespaces: Mapping[str, int]

    def kill(self) -> None:
        """Kill every process of the node at once, as a power cut does."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.init_pid, signal.SIGKILL)

    def close(self) -> None:
        """Let go of the namespaces."""
        for fd in self.namespaces.values():
            os.close(fd)


@contextlib.contextmanager
def in_network(node: Node, home_network_fd: int) -> Iterator[None]:
    """Run the block in the node's network: sockets opened there stay there."""
    with linux.inside(node.namespaces["net"], home_network_fd, linux.CLONE_NEWNET):
        yield


def create(name: str, *, etc: Mapping[str, Path], shm_bytes: int | None) -> Node:
    """Start a node; MeshwrightError says which step the kernel refused. The caller must have a single thread.

    `etc` says which files the node sees in place of the machine's own, by path.
    """
    ours, theirs = socket.socketpair()
    linux.unshare(linux.CLONE_NEWPID)
    pid = os.fork()
    if pid == 0:
        _become_init(theirs, name, etc, shm_bytes)
    _children_join("/proc/self/ns/pid")
    theirs.close()
    with ours:
        refusal = ours.recv(4096).decode()
    if refusal != "ready":
        os.waitpid(pid, 0)
        raise MeshwrightError(f"{name}: {refusal or 'ended before it was ready'}")
    return Node(name, pid, {kind: os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in _KINDS})


def spawn(
    node: Node, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, stdin: int, stdout: int, stderr: int
) -> int:
    """Start a command in a node, in a session of its own, and return its pid; OSError if it cannot be executed."""
    report, failed = os.pipe2(os.O_CLOEXEC)
    linux.setns(node.namespaces["pid"], linux.CLONE_NEWPID)
    try:
        pid = os.fork()
    finally:
        if pid != 0:
            _children_join("/proc/self/ns/pid")
    if pid == 0:
        try:
            _enter(node)
            for source, target in ((stdin, 0), (stdout, 1), (stderr, 2)):
                os.dup2(source, target)
            _default_signals()
            os.setsid()
            os.chdir(cwd)
            os.execvpe(argv[0], list(argv), dict(env))
        except OSError as error:
            os.write(failed, str(error.errno or errno.EIO).encode())
        except BaseException:
            os.write(failed, str(errno.EIO).encode())
        finally:
            os._exit(127)
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


def _enter(node: Node) -> None:
    linux.die_with_parent()
    for kind, flag in _KINDS.items():
        if kind != "pid":
            linux.setns(node.namespaces[kind], flag)


def _children_join(path: str) -> None:
    """Let later children of this process be born into the process namespace at `path`."""
    fd = os.open(path, os.O_RDONLY)
    try:
        linux.setns(fd, linux.CLONE_NEWPID)
    finally:
        os.close(fd)


def _become_init(channel: socket.socket, name: str, etc: Mapping[str, Path], shm_bytes: int | None) -> None:
    """Build the node's namespaces and wait in them to be killed; never returns."""
    try:
        linux.die_with_parent()
        _default_signals()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans of the node's programs end here: the kernel buries them
        os.dup2(channel.fileno(), 3)
        os.closerange(4, os.sysconf("SC_OPEN_MAX") if os.sysconf("SC_OPEN_MAX") < 65536 else 65536)
        channel.detach()
        linux.unshare(linux.CLONE_NEWNET | linux.CLONE_NEWNS | linux.CLONE_NEWUTS | linux.CLONE_NEWIPC)
        socket.sethostname(name)
        _mount_all(etc, shm_bytes)
        os.write(3, b"ready")
        os.close(3)
        while True:
            signal.pause()
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(3, str(error).encode()[:4000])
    finally:
        os._exit(1)


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
