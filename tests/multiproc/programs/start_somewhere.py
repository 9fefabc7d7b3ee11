"""One rank of a group that starts under odd conditions, and says in a line of JSON how it went.

`DENY` lists system calls by number with the error that a seccomp filter answers them with: "434:1,319:38".
`DIES` is a rank that is killed before the second sum. With `CLONES` all machines look alike.
"""

import ctypes
import json
import os
import signal
import struct
import sys
import time

ALLOW, ERRNO, LOAD, JUMP_EQUAL, RETURN = 0x7FFF0000, 0x00050000, 0x20, 0x15, 0x06
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, MODE_FILTER = 22, 38, 2


def deny(calls: str) -> None:
    """Have the kernel answer these system calls of this process with an error."""
    rows = [struct.pack("HBBI", LOAD, 0, 0, 0)]
    for number, error in (map(int, call.split(":")) for call in calls.split(",")):
        rows += [struct.pack("HBBI", JUMP_EQUAL, 0, 1, number), struct.pack("HBBI", RETURN, 0, 0, ERRNO | error)]
    rows.append(struct.pack("HBBI", RETURN, 0, 0, ALLOW))
    program = ctypes.create_string_buffer(b"".join(rows))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rows), ctypes.addressof(program)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(PR_SET_SECCOMP, MODE_FILTER, header):
        raise OSError(ctypes.get_errno(), "seccomp")


if os.environ.get("DENY"):
    deny(os.environ["DENY"])

from datetime import timedelta  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import meshwright  # noqa: E402, F401  (registers the backend)
from meshwright.backend.hosts import placement  # noqa: E402

if os.environ.get("CLONES"):
    placement.boot = lambda: "boot"
    placement.namespace = lambda kind: kind

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
said: dict[str, object] = {"rank": rank}
start = time.monotonic()
try:
    dist.init_process_group(
        os.environ.get("BACKEND", "meshwright"),
        init_method=os.environ.get("INIT"),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=float(os.environ.get("TIMEOUT_S", "20"))),
    )
    engine = getattr(dist.group.WORLD, "_engine", None)
    said["engine"] = type(engine).__name__
    said["address"] = [c.getsockname()[0] for c in engine.connections.values()][:1] if engine is not None else None
    sums = []
    for count in (7, 300_000):
        if count > 7 and os.environ.get("DIES") == str(rank):
            os.kill(os.getpid(), signal.SIGKILL)
        start = time.monotonic()
        tensor = torch.full((count,), float(rank + 1))
        dist.all_reduce(tensor)
        sums.append(bool((tensor == ranks * (ranks + 1) / 2).all()))
    got = torch.zeros(70_000)
    sending = dist.isend(torch.full((70_000,), float(rank)), (rank + 1) % ranks)
    dist.recv(got, (rank - 1) % ranks)
    sending.wait()
    dist.barrier()
    said["right"] = all(sums) and bool((got == (rank - 1) % ranks).all())
    dist.destroy_process_group()
except Exception as error:
    said |= {"error": type(error).__name__, "text": str(error), "took_s": time.monotonic() - start}
sys.stdout.write(json.dumps(said) + "\n")
