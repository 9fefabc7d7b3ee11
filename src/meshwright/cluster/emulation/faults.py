"""Faults: short commands that break a running emulation on purpose, and mend it.

cut node1              pull the cable of a node (or of a leaf's uplink: "cut leaf0")
restore node1          plug it in again, at its first rate and without loss or delay
slow node1 100Mbps     another rate, both ways
pause rank3            stop a rank, or every process of a node; `resume` lets it go on
kill rank3             SIGKILL to a rank, or power off a node
"""

import contextlib
import os
import re
import signal
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import msgspec

from ...errors import InputError, nearest
from ...units import format_network_rate, parse_rate
from . import node
from .links import Fabric
from .program import Program

Kind = Literal["cut", "restore", "slow", "pause", "resume", "kill"]
_LINK_FAULTS = ("cut", "restore", "slow")
_SIGNALS = {"pause": signal.SIGSTOP, "resume": signal.SIGCONT, "kill": signal.SIGKILL}


class Fault(msgspec.Struct, frozen=True):
    """One thing that breaks, or is mended."""

    kind: Kind
    target: str  # "node1", "leaf0", "rank3"
    rate_bytes_per_s: float | None = None  # slow only

    def __str__(self) -> str:
        words = [self.kind, self.target]
        if self.rate_bytes_per_s is not None:
            words.append(f"{self.rate_bytes_per_s * 8:g}b/s")
        return " ".join(words)


def parse(text: str) -> Fault:
    """Return the fault that a text such as "slow node1 100Mbps" names; the inverse of str()."""
    words = text.split()
    if not words or words[0] not in get_args(Kind):
        raise InputError(f"fault {text!r}: {nearest(words[0] if words else '', get_args(Kind))}")
    kind = words[0]
    wanted = 3 if kind == "slow" else 2
    if len(words) != wanted:
        shape = "slow TARGET RATE" if kind == "slow" else f"{kind} TARGET"
        raise InputError(f"fault {text!r}: expected `{shape}`, for example `{shape.replace('TARGET', 'node1')}`")
    return Fault(kind, words[1], parse_rate(words[2]) if kind == "slow" else None)  # type: ignore[arg-type]


def apply(fault: Fault, fabric: Fabric, nodes: Mapping[str, node.Node], programs: Sequence[Program]) -> str:
    """Do it, and return one line that says what was done; InputError if there is no such target."""
    if fault.kind in _LINK_FAULTS:
        return _on_link(fault, fabric)
    number = _SIGNALS[fault.kind]
    rank = re.fullmatch(r"rank(\d+)", fault.target)
    if rank:
        return _on_rank(fault, int(rank[1]), number, programs)
    place = nodes.get(fault.target)
    if place is None:
        raise InputError(f"{fault.target}: no such node or rank (nodes: {', '.join(nodes)}; ranks: rank0, rank1, ...)")
    if fault.kind == "kill":
        place.kill()
        return f"{fault.target} lost its power"
    pids = node.processes(place)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    return f"{fault.kind}d {len(pids)} processes of {fault.target}"


def _on_link(fault: Fault, fabric: Fabric) -> str:
    match fault.kind:
        case "cut":
            fabric.cut(fault.target)
            return f"{fault.target} is cut off"
        case "restore":
            fabric.restore(fault.target)
            return f"{fault.target} is connected again"
    assert fault.rate_bytes_per_s is not None
    fabric.slow(fault.target, fault.rate_bytes_per_s)
    return f"{fault.target} now runs at {format_network_rate(fault.rate_bytes_per_s)}"


def _on_rank(fault: Fault, rank: int, number: int, programs: Sequence[Program]) -> str:
    found = [program for program in programs if program.rank == rank]
    if not found:
        raise InputError(f"{fault.target}: no such rank was started")
    if not found[-1].send(number):
        raise InputError(f"{fault.target}: has already ended with exit code {found[-1].exit_code}")
    return f"{fault.target} (pid {found[-1].pid}): {signal.Signals(number).name}"
