"""The few Linux calls that Python does not offer: namespaces, mounts, orphans, and room on a disk."""

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x4_0000

_FALLOC_FL_KEEP_SIZE = 1
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Move this process (for CLONE_NEWPID: its later children) into new namespaces of the kinds in `flags`."""
    _check(_libc.unshare(flags), f"unshare({flags:#x})")


def setns(fd: int, kind: int) -> None:
    """Move this process into the namespace behind `fd`, which must be of `kind`."""
    _check(_libc.setns(fd, kind), f"setns({kind:#x})")


def mount(source: str, target: str, *, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Attach a file system (or, with MS_BIND, a file) to the tree; OSError names the target."""
    arguments = (source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), data.encode() or None)
    _check(_libc.mount(*arguments), f"mount {kind or source} on {target}")


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends (a subreaper), so that they can be waited for here."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl(PR_SET_CHILD_SUBREAPER)")


def go_on_without_parent() -> None:
    """Have the kernel let this process go on (SIGCONT) when its parent ends: a stopped one could not leave then."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGCONT), 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


@contextmanager
def inside_namespace(fd: int, home_fd: int, kind: int) -> Iterator[None]:
    """Run the block in the namespace behind `fd`, then return to the one behind `home_fd`."""
    setns(fd, kind)
    try:
        yield
    finally:
        setns(home_fd, kind)


def reserve(descriptor: int, size_bytes: int) -> None:
    """Have blocks for the first bytes of an open file, whose size stays; OSError where the disk is full, or cannot."""
    sizes = ctypes.c_longlong(0), ctypes.c_longlong(size_bytes)
    _check(_libc.fallocate(descriptor, _FALLOC_FL_KEEP_SIZE, *sizes), "fallocate")


def _check(result: int, call: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{call}: {os.strerror(code)}")
