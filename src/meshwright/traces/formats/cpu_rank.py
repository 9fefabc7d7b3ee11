"""A rank without a device: the operators of its host, and collectives as their library marked them.

A collective is no computation, whatever its category: older profilers write "gloo:all_reduce" as an operator.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ...errors import InputError
from ..intervals import EMPTY, Array, is_covered, union, union_of_sets, without
from ..model import Computed, RankTrace, TracedCall
from ..names import MARKED, communicates_on_host, launches_on_host
from ..steps import windows
from .collector import HostRecord, Process, Spans
from .parts import Longs, RankFacts, Times, call_of, floats, host_timeline, longs, marks_of, of_spans


def of_host(processes: Sequence[Process], table: list[str], facts: RankFacts, base_ns: int) -> RankTrace:
    """Return the trace of a host; InputError where it did nothing that lasts."""
    begins = [float(floats(p.operators.starts).min()) for p in processes if p.operators.starts]
    if not begins:
        raise InputError(f"{facts.source}: no operator and no kernel in it; expected a trace of torch.profiler")
    zero = min(begins)
    facts.marks, facts.host = marks_of(processes, zero), host_timeline(processes, table, zero)
    facts.epoch_ns = base_ns + int(zero * 1000)
    launches = _chosen(processes, _by_name(table, launches_on_host), zero)
    no_compute = union_of_sets([launches, facts.host.data])
    working = _chosen(processes, ~_by_name(table, communicates_on_host), zero)
    optimizer = without(of_spans([p.optimizer for p in processes], zero), no_compute)
    backward = without(of_spans([p.backward for p in processes], zero), union_of_sets([no_compute, optimizer]))
    forward = without(working, union_of_sets([no_compute, backward, optimizer]))
    phases = {"forward": forward, "backward": backward, "optimizer": optimizer}
    records = [record for p in processes for record in p.records if MARKED.match(record.name)]
    calls = [_call(record, zero) for record in records if record.end > record.start]
    comm = union([call.start_s for call in calls], [call.end_s for call in calls]) if records else launches
    return _trace(facts, phases, comm, calls, _outermost(processes, table, no_compute, zero))


def _trace(
    facts: RankFacts, phases: dict[str, Array], comm: Array, calls: list[TracedCall], computed: Computed
) -> RankTrace:
    compute = union_of_sets(list(phases.values()))
    busy = union_of_sets([compute, comm, facts.host.data])
    if not len(busy):
        raise InputError(f"{facts.source}: nothing in it lasts: every operator has a length of 0")
    found = windows(facts.marks, busy[:, 0], busy[:, 1], busy[:, 0], np.zeros(len(busy), dtype=bool))
    if not found:
        raise InputError(f"{facts.source}: nothing ran in any of the {len(facts.marks)} steps that it marks")
    return RankTrace(
        source=facts.source,
        name=facts.name,
        rank=facts.rank,
        host_name=facts.host_name,
        device="host",
        label=facts.label,
        epoch_ns=facts.epoch_ns,
        compute=compute,
        phases={name: times for name, times in phases.items() if len(times)},
        comm=comm,
        copies=facts.host.data,
        other=EMPTY,
        computed=computed,
        calls=calls,
        host=facts.host,
        windows=found,
        marked=bool(facts.marks),
        notes=facts.notes,
    )


def _by_name(table: Sequence[str], wanted: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
    """Return of each name of a table whether it is wanted."""
    return np.asarray([wanted(name) for name in table], dtype=np.bool_)


def _chosen(processes: Sequence[Process], wanted: npt.NDArray[np.bool_], zero: float) -> Array:
    """Return when operators ran whose names are wanted."""
    found = []
    for process in processes:
        spans = process.operators
        if spans.starts:
            mine = wanted[longs(spans.names)]
            found.append(union((floats(spans.starts)[mine] - zero) * 1e-6, (floats(spans.ends)[mine] - zero) * 1e-6))
    return union_of_sets(found)


def _call(record: HostRecord, zero: float) -> TracedCall:
    start_s, end_s = (record.start - zero) * 1e-6, (record.end - zero) * 1e-6
    return call_of(record.name.partition(":")[2], start_s, end_s, start_s, record.args)


def _outermost(processes: Sequence[Process], table: list[str], no_compute: Array, zero: float) -> Computed:
    """Return the operators that lie in no other of their thread, without collectives and what `no_compute` covers."""
    starts: list[Times] = []
    ends: list[Times] = []
    names: list[Longs] = []
    for process in processes:
        kept = _outer(process.operators)
        starts.append((floats(process.operators.starts)[kept] - zero) * 1e-6)
        ends.append((floats(process.operators.ends)[kept] - zero) * 1e-6)
        names.append(longs(process.operators.names)[kept])
    begins, finish, name = np.concatenate(starts), np.concatenate(ends), np.concatenate(names)
    mine = ~is_covered(no_compute, begins) & ~_by_name(table, communicates_on_host)[name]
    return Computed(begins[mine], finish[mine], name[mine].astype(np.int32), table)


def _outer(spans: Spans) -> Longs:
    if not spans.starts:
        return np.zeros(0, dtype=np.int64)
    starts, ends, threads = floats(spans.starts), floats(spans.ends), longs(spans.threads)
    order = np.lexsort((-ends, starts, threads))
    kept, reach, thread = [], -np.inf, -1
    for place in order.tolist():
        if threads[place] != thread:
            thread, reach = threads[place], -np.inf
        if ends[place] > reach:
            kept.append(place)
            reach = ends[place]
    return np.asarray(kept, dtype=np.int64)
