"""The kernels and copies of a device, and who launched them.

A kernel communicates if its name says so, if it carries a collective, or if the host launched it for one (External id
of `record_param_comms` or `nccl:*`; where there is none, launched inside such a record and inside no operator in it).
"""

import re
from array import array
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..intervals import is_covered
from ..model import PHASES, RankTrace, TracedCall
from ..names import collective, communicates
from .collector import COPY, DEVICE, Process
from .events import Args
from .launched_kernels import Launched, Linked, collective_of_record
from .parts import (
    COMM,
    COMPUTE,
    Columns,
    Longs,
    RankFacts,
    Times,
    call_of,
    floats,
    host_timeline,
    lane_of_copy,
    longs,
    marks_of,
    of_columns,
    of_spans,
)

Flags = npt.NDArray[np.bool_]
_PEER = re.compile(r"PtoP|Peer|P2P", re.I)


def of_device(
    processes: Sequence[Process], device: int | None, table: list[str], facts: RankFacts, base_ns: int
) -> RankTrace:
    """Return the trace of the device events of some processes, of one device (None: of all that there are)."""
    starts, ends = (_times([getattr(p.device, key) for p in processes]) for key in ("starts", "ends"))
    names, streams, correlations = (
        _numbers([getattr(p.device, key) for p in processes]) for key in ("names", "threads", "links")
    )
    kinds, externals = (_numbers([getattr(p, key) for p in processes]) for key in ("kinds", "externals"))
    kept = np.ones(len(starts), dtype=bool)
    if device is not None:
        kept = _numbers([p.devices for p in processes]) == device
    told = _told(processes, kept)
    starts, ends = starts[kept], ends[kept]
    names, streams, correlations = names[kept], streams[kept], correlations[kept]
    kinds, externals = kinds[kept], externals[kept]
    launched = _launched(processes, correlations, externals, starts)
    linked = Linked([r for p in processes for r in p.records], [p.operators for p in processes])
    lanes = _lanes(names, kinds, table, told)
    lanes[linked.communicating(launched, lanes == COMPUTE)] = COMM
    zero = float(starts.min())
    facts.marks, facts.host = marks_of(processes, zero), host_timeline(processes, table, zero)
    facts.epoch_ns = base_ns + int(zero * 1000)
    columns = Columns(
        starts_s=(starts - zero) * 1e-6,
        ends_s=(ends - zero) * 1e-6,
        launched_s=(launched.times_us - zero) * 1e-6,
        lanes=lanes,
        main=_main(starts, ends, streams, (lanes == COMPUTE) & (kinds == DEVICE), launched.threads >= 0),
        names=names,
        phases=_phases(processes, (launched.times_us - zero) * 1e-6, zero),
        table=table,
    )
    return of_columns(columns, _calls(columns, launched, linked, told, streams), facts)


def _times(parts: "Sequence[array[float]]") -> Times:
    return np.concatenate([floats(part) for part in parts])


def _numbers(parts: "Sequence[array[int]]") -> Longs:
    return np.concatenate([longs(part) for part in parts])


def _told(processes: Sequence[Process], kept: npt.NDArray[np.bool_]) -> dict[int, Args]:
    """Return the collectives that device events carry, by their place among the kept ones."""
    found: dict[int, Args] = {}
    after, offset = np.cumsum(kept) - 1, 0
    for process in processes:
        found |= {int(after[offset + at]): args for at, args in process.told.items() if kept[offset + at]}
        offset += len(process.kinds)
    return found


def _launched(processes: Sequence[Process], correlations: Longs, externals: Longs, starts: Times) -> Launched:
    """Return when the host launched each device event; its own start where that is not in the trace."""
    keys, threads = (_numbers([getattr(p.launches, key) for p in processes]) for key in ("links", "threads"))
    times = _times([p.launches.starts for p in processes])
    if not len(keys):
        return Launched(externals, starts, np.full(len(starts), -1, dtype=np.int64))
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    at = np.minimum(np.searchsorted(keys, correlations), len(keys) - 1)
    known = (keys[at] == correlations) & (correlations >= 0)
    return Launched(
        externals, np.where(known, times[order][at], starts), np.where(known, threads[order][at], np.int64(-1))
    )


def _lanes(names: Longs, kinds: Longs, table: Sequence[str], told: dict[int, Args]) -> npt.NDArray[np.int8]:
    lanes = np.full(len(names), COMPUTE, dtype=np.int8)
    for kind, lane_of in ((DEVICE, _kernel_lane), (COPY, _copy_lane)):
        mine = kinds == kind
        for name in np.unique(names[mine]):
            lane = lane_of(table[name])
            if lane != COMPUTE:
                lanes[mine & (names == name)] = lane
    lanes[list(told)] = COMM
    return lanes


def _kernel_lane(name: str) -> int:
    return COMM if communicates(name) else COMPUTE


def _copy_lane(name: str) -> int:
    """Return the lane of a copy: one inside a device is work of the device."""
    return COMM if _PEER.search(name) else lane_of_copy(name)


def _main(starts: Times, ends: Times, streams: Longs, kernels: Flags, known: Flags) -> Flags:
    """Return the kernels of the stream that computes most; every event where none computes.

    Where launches are in the trace, a kernel without one was launched before it began: it says nothing of the steps.
    """
    found: Flags = kernels if kernels.any() else np.ones(len(starts), dtype=bool)
    if kernels.any():
        every, place = np.unique(streams, return_inverse=True)
        busy = np.bincount(place[kernels], weights=(ends - starts)[kernels], minlength=len(every))
        found = kernels & (place == int(np.argmax(busy)))
    return found & known if (found & known).any() else found


def _phases(processes: Sequence[Process], launched_s: Times, zero_us: float) -> npt.NDArray[np.int8]:
    """Return in which phase the host was when it launched each event."""
    if not any(p.operators.starts or p.optimizer.starts for p in processes):
        return np.full(len(launched_s), PHASES.index("kernels"), dtype=np.int8)
    phases = np.full(len(launched_s), PHASES.index("forward"), dtype=np.int8)
    phases[is_covered(of_spans([p.backward for p in processes], zero_us), launched_s)] = PHASES.index("backward")
    phases[is_covered(of_spans([p.optimizer for p in processes], zero_us), launched_s)] = PHASES.index("optimizer")
    return phases


def _calls(
    columns: Columns, launched: Launched, linked: Linked, told: dict[int, Args], streams: Longs
) -> list[TracedCall]:
    calls = []
    for place in np.flatnonzero((columns.lanes == COMM) & (columns.ends_s > columns.starts_s)):
        args, name = told.get(int(place)), ""
        if args is not None:
            name = str(args.collective)
        else:
            for record in linked.about(launched, int(place)):
                called, found = collective_of_record(record)
                name, args = name or called, args or found
        kernel = columns.table[columns.names[place]]
        known = name if name and collective(name) != "communication" else kernel
        when = tuple(float(column[place]) for column in (columns.starts_s, columns.ends_s, columns.launched_s))
        call = call_of(known, when[0], when[1], when[2], args)
        calls.append(call if call.group or call.ranks else replace(call, stream=int(streams[place])))
    return calls
