"""One block of memory that the ranks of a host share, without a name in any file system.

The lowest rank makes an anonymous file (memfd), seals its size and hands it to the others over an abstract Unix socket
whose random name goes through the store. Nothing is left behind however the ranks end, and only processes of the same
user get the file. Every rank reserves its own part at once, so that lack of memory is an error at start and not a bus
error in the middle of a step, and so that the pages lie on the memory node of the rank that writes them.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import secrets
import socket
import struct
import time
from collections.abc import Sequence
from pathlib import Path

from ..errors import InputError
from ..units import format_bytes
from .hosts import KeyValueStore

PAGE = mmap.PAGESIZE
SOCKET_KEY = "segment"
_REFUSED = "refused: "
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid as SO_PEERCRED returns them


class Segment:
    """A shared block, mapped into this process; `buffer` is all of it."""

    def __init__(self, descriptor: int, size_bytes: int) -> None:
        there_bytes = os.fstat(descriptor).st_size
        if there_bytes != size_bytes:
            os.close(descriptor)
            raise InputError(
                f"ranks of one host disagree on their shared memory: {there_bytes} and {size_bytes} bytes; "
                "set MESHWRIGHT_SLOT_BYTES to the same value on all of them"
            )
        self._descriptor = descriptor
        self.buffer = mmap.mmap(descriptor, size_bytes, mmap.MAP_SHARED)
        self.size_bytes = size_bytes

    def reserve(self, offset_bytes: int, size_bytes: int) -> None:
        """Make the kernel set the pages aside now; InputError if there is not enough memory."""
        try:
            os.posix_fallocate(self._descriptor, offset_bytes, size_bytes)
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.ENOMEM, errno.EFBIG}:
                raise
            raise too_little(size_bytes, str(error.strerror)) from None

    def close_descriptor(self) -> None:
        """Let go of the file; the mapping stays until it is collected."""
        os.close(self._descriptor)


def share_segment(
    store: KeyValueStore, *, rank: int, local_ranks: Sequence[int], size_bytes: int, timeout_s: float
) -> Segment:
    """Return the segment of this host's ranks, the same memory on each. Blocks; called by all ranks of the host."""
    leader = local_ranks[0]
    if rank != leader:
        return Segment(_fetch(store, leader, timeout_s), size_bytes)
    there_bytes = available_bytes()
    if size_bytes > there_bytes:  # asking the kernel would end in its killing processes for want of memory
        error = too_little(size_bytes, f"there are {format_bytes(there_bytes)}")
        store.set(f"{SOCKET_KEY}/{leader}", f"{_REFUSED}{error}")
        raise error
    return Segment(_serve(store, leader, len(local_ranks) - 1, size_bytes, timeout_s), size_bytes)


def available_bytes() -> int:
    """Return the memory that processes may still take: of the machine, or of the control group if that is less."""
    with open("/proc/meminfo") as file:
        free = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))
    folder = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, ValueError):  # "max", or no control group of the second version
        free = min(free, int((folder / "memory.max").read_text()) - int((folder / "memory.current").read_text()))
    return max(0, free)


def _serve(store: KeyValueStore, leader: int, readers: int, size_bytes: int, timeout_s: float) -> int:
    descriptor = os.memfd_create("meshwright", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, size_bytes)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        name = f"meshwright-{secrets.token_hex(16)}"
        end = time.monotonic() + timeout_s
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(f"\0{name}")
            listener.listen(max(1, readers))
            store.set(f"{SOCKET_KEY}/{leader}", name)
            while readers:
                listener.settimeout(max(0.001, end - time.monotonic()))
                connection, _ = listener.accept()
                with connection:
                    if _peer_user(connection) == os.getuid():
                        socket.send_fds(connection, [b"m"], [descriptor])
                        readers -= 1
    except TimeoutError:
        os.close(descriptor)
        raise TimeoutError(
            f"{readers} ranks of this host did not fetch the shared memory within {timeout_s} s"
        ) from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _fetch(store: KeyValueStore, leader: int, timeout_s: float) -> int:
    name = store.get(f"{SOCKET_KEY}/{leader}").decode()
    if name.startswith(_REFUSED):
        raise InputError(name.removeprefix(_REFUSED))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        connection.connect(f"\0{name}")
        if _peer_user(connection) != os.getuid():
            raise PermissionError("the shared memory is offered by a process of another user; refused")
        with contextlib.suppress(TimeoutError):
            _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
            if descriptors:
                return descriptors[0]
    raise TimeoutError(f"rank {leader} did not hand over the shared memory within {timeout_s} s")


def _peer_user(connection: socket.socket) -> int:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


def too_little(size_bytes: int, why: str) -> InputError:
    """Return the error that says how much memory was asked for, and what to do."""
    return InputError(
        f"cannot reserve {format_bytes(size_bytes)} of shared memory ({why}): "
        "raise the memory limit, use fewer ranks on this host, or set MESHWRIGHT_SLOT_BYTES lower"
    )
