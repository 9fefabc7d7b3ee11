"""Faults: short commands that break a running emulation on purpose, and mend it.

cut node1              pull the cable of a node (or of a leaf's uplink: "cut leaf0")
restore node1          plug it in again, at its first rate and without loss or delay
slow node1 100Mbps     another rate, both ways
lose node1 5%          drop packets at random, both ways
delay node1 2ms        hold packets back, both ways (where the kernel has netem)
pause rank3            stop a rank, or every process of a node; `resume` lets it go on
kill rank3             SIGKILL to a rank, or power off a node
"""

import contextlib
import os
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec

from ...errors import InputError, nearest
from ...units import counted, format_network_rate, format_time, parse_latency, parse_rate
from . import node
from .links import EmulatedFabric
from .program import EmulatedProgram

Kind = Literal["cut", "restore", "slow", "lose", "delay", "pause", "resume", "kill"]
_VALUES = {"slow": "100Mbps", "lose": "5%", "delay": "2ms"}  # which faults take a value, and what it looks like
_LINK_FAULTS = ("cut", "restore", *_VALUES)
_SIGNALS = {"pause": signal.SIGSTOP, "resume": signal.SIGCONT, "kill": signal.SIGKILL}


class Fault(msgspec.Struct, frozen=True):
    """One thing that breaks, or is mended."""

    kind: Kind
    target: str  # "node1", "leaf0", "rank3"
    rate_bytes_per_s: float | None = None  # slow only
    share: float | None = None  # lose only
    delay_s: float | None = None  # delay only

    def __str__(self) -> str:
        words = [self.kind, self.target]
        if self.rate_bytes_per_s is not None:
            words.append(f"{self.rate_bytes_per_s!r}B/s")
        if self.share is not None:
            words.append(repr(self.share))
        if self.delay_s is not None:
            words.append(f"{self.delay_s!r}s")
        return " ".join(words)


def parse_fault(text: str) -> Fault:
    """Return the fault that a text such as "slow node1 100Mbps" names; the inverse of str()."""
    words = text.split()
    if not words or words[0] not in get_args(Kind):
        raise InputError(f"fault {text!r}: {nearest(words[0] if words else '', get_args(Kind))}")
    kind: Kind = words[0]  # type: ignore[assignment]
    example = " ".join([kind, "node1", *([_VALUES[kind]] if kind in _VALUES else [])])
    if len(words) != len(example.split()):
        raise InputError(f"fault {text!r}: expected a target{' and a value' * (kind in _VALUES)}, such as `{example}`")
    match kind:
        case "slow":
            return Fault(kind, words[1], rate_bytes_per_s=parse_rate(words[2]))
        case "lose":
            return Fault(kind, words[1], share=_share(words[2]))
        case "delay":
            return Fault(kind, words[1], delay_s=parse_latency(words[2]))
    return Fault(kind, words[1])


def apply_fault(
    fault: Fault, fabric: EmulatedFabric, nodes: Mapping[str, node.Node], programs: Sequence[EmulatedProgram]
) -> str:
    """Do it, and return one line that says what was done; InputError if there is no such target."""
    if fault.kind in _LINK_FAULTS:
        return _on_link(fault, fabric)
    number = _SIGNALS[fault.kind]
    rank = re.fullmatch(r"rank(\d+)", fault.target)
    if rank:
        return _on_rank(fault, int(rank[1]), number, nodes, programs)
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
    return f"{fault.kind}d {counted(len(pids), 'process')} of {fault.target}"


def _on_link(fault: Fault, fabric: EmulatedFabric) -> str:
    match fault.kind:
        case "cut":
            fabric.cut(fault.target)
            return f"{fault.target} is cut off"
        case "restore":
            fabric.restore(fault.target)
            return f"{fault.target} is connected again"
        case "lose":
            assert fault.share is not None
            fabric.lose(fault.target, fault.share)
            return f"{fault.target} now loses {fault.share:.3g} of its packets"
        case "delay":
            assert fault.delay_s is not None
            fabric.delay(fault.target, fault.delay_s)
            return f"{fault.target} now holds packets back for {format_time(fault.delay_s)}"
    assert fault.rate_bytes_per_s is not None
    fabric.slow(fault.target, fault.rate_bytes_per_s)
    return f"{fault.target} now runs at {format_network_rate(fault.rate_bytes_per_s)}"


def _share(text: str) -> float:
    """Return the share that "5%" or "0.05" names."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise InputError(f"{text!r}: expected a share of packets such as 5% or 0.05")
    return share


def _on_rank(
    fault: Fault, rank: int, number: int, nodes: Mapping[str, node.Node], programs: Sequence[EmulatedProgram]
) -> str:
    """Signal the process of a rank: one that was started as such, or that torchrun started in a node's command."""
    pids = [p.pid for p in programs if p.rank == rank and p.exit_code is None]
    pids = pids or [pid for place in nodes.values() for pid in _of_rank(rank, node.processes(place))]
    if not pids:
        raise InputError(f"{fault.target}: no such rank is running")
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    return f"{fault.target} (pid {', '.join(map(str, pids))}): {signal.Signals(number).name}"


def _of_rank(rank: int, pids: Sequence[int]) -> list[int]:
    """Return those processes whose variables make them this rank, leaving out what they started themselves."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):  # it ended while we looked
            if f"RANK={rank}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return [pid for pid, parent in found.items() if parent not in found]
