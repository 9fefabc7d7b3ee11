"""The names that the kernel has for this machine since its start, and for the namespaces of this process.

Without torch, which takes a second to import: a command that is refused does not wait for it.
"""

import contextlib
import os
from pathlib import Path

HOST_VARIABLE = "MESHWRIGHT_HOST"  # pretends another host identity: tests of several hosts on one machine


def boot() -> str:
    """Return the name that the kernel gave itself when it started, "" where it cannot be read."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def namespace(kind: str) -> str:
    """Return the namespace of this process, such as "pid:[4026531836]", "" where it cannot be read."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/self/ns/{kind}")
    return ""
