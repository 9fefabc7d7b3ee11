"""How a rank's process is set up, the same in calibration and in training, so that the one predicts the other."""

import ctypes

import torch

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # <malloc.h> of glibc


def prepare_process(threads: int) -> None:
    """Set the thread count and keep freed memory in the process.

    By default glibc gives large freed blocks back to the kernel and faults them in again at the next allocation:
    elementwise operators on activations then take up to ten times as long. Where the C library is another one,
    nothing changes but that.
    """
    torch.set_num_threads(threads)
    library = ctypes.CDLL(None)
    if hasattr(library, "gnu_get_libc_version"):
        library.mallopt(_M_MMAP_MAX, 0)
        library.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
        library.mallopt(_M_TOP_PAD, 64 * 2**20)
