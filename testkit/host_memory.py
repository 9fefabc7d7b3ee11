"""Memory of the host in the place of device memory, with marks that a wait must not come too early for."""

import mmap
import os
from contextlib import ExitStack

import torch

from meshwright.backend.wire.transport_device import DeviceTransport


class Mark:
    """A count in shared memory of how often a mark was left."""

    def __init__(self, place, seen):
        self.place = place
        self.count = place.view(torch.int64)
        self.seen = seen


class HostMemory:
    """Buffers and marks that peers open through /proc; work is done at once, so that only the order can be wrong.

    On a device a wait knows only of marks left before it: one for a mark that has not been left anew is an error.
    """

    def __init__(self):
        self.files = ExitStack()
        self.handles = {}

    def allocate(self, size_bytes):
        file = os.memfd_create("buffer")
        self.files.callback(os.close, file)
        os.ftruncate(file, size_bytes)
        buffer = torch.frombuffer(mmap.mmap(file, size_bytes), dtype=torch.uint8)
        self.handles[buffer.data_ptr()] = f"{os.getpid()} {file}".encode()
        return buffer

    def share(self, buffer):
        return self.handles[buffer.data_ptr()]

    def open(self, handle):
        pid, number = map(int, handle.split())
        with open(f"/proc/{pid}/fd/{number}", "r+b") as file:
            return torch.frombuffer(mmap.mmap(file.fileno(), 0), dtype=torch.uint8)

    def mark(self):
        mark = Mark(self.allocate(8), seen=0)
        self.leave(mark)
        return mark

    def share_mark(self, mark):
        return self.share(mark.place)

    def open_mark(self, handle):
        return Mark(self.open(handle), seen=1)

    def leave(self, mark):
        mark.count += 1

    def wait(self, mark):
        assert mark.count.item() > mark.seen, "a wait came before its mark"
        mark.seen = mark.count.item()


class HostMemoryTransport(DeviceTransport):
    """The transport through device memory, through memory of the host."""

    def __init__(self, store, rank, ranks, **options):
        self.memory = HostMemory()
        super().__init__(self.memory, store, rank, ranks, **options)

    def close(self):
        super().close()
        self.memory.files.close()
