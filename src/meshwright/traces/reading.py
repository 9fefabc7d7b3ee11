"""From files to ranks: which file is which rank, and which files are cycles of one."""

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ..errors import InputError
from ..files import natural
from ..timeline import parse_chrome_trace
from ..units import counted
from .formats import ascend, chakra, databases, rocprof
from .formats.collector import Collector
from .formats.events import EventStream, TraceHead
from .formats.from_timeline import ranks_of_timeline
from .formats.kineto import ranks_of
from .formats.opening import ZIP, BesideTrace, NoTrace, Source, head_of, pieces, trace_sources
from .formats.parts import RankFacts
from .formats.sqlite_tables import MAGIC
from .model import RankTrace, TracedCall

MOST_NAMES = 3  # of files that are set aside
HEAD_BYTES = 4096  # of a file, by which its format is told
_WORKER = re.compile(r"(.*)\.\d{10,}\.pt\.trace\.json(?:\.gz)?$")  # what the handler of TensorBoard calls a file
_OURS = ("measured", "predicted", "simulated")
_NAMED = re.compile(r"(?<![a-z])(?:rank|worker)[-_. ]?(\d{1,6})(?!\d)", re.IGNORECASE)


def read_traces(paths: Sequence[Path]) -> list[list[RankTrace]]:
    """Return what each rank did, in the order of the ranks: one trace, or one for each profiled cycle.

    InputError if a file is no trace, or two files are one rank and the same steps. A whole file that is no trace and
    was only found in a folder or an archive is set aside, as is a graph without times, and the page says so.
    """
    found: list[RankTrace] = []
    aside: list[NoTrace] = []
    names: list[str] = []
    for source in trace_sources(paths):
        try:
            found += read_source(source)
        except NoTrace as error:
            if source.is_named and not isinstance(error, BesideTrace):
                raise
            aside.append(error)
            names.append(source.name)
    if not found:
        raise aside[0]
    ranks = in_ranks(found)
    if aside:
        ranks[0][0].notes += (_set_aside(names),)
    return ranks


def _set_aside(names: Sequence[str]) -> str:
    """Return what a reader must know of files that are no traces."""
    first = ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if names[MOST_NAMES:] else "")
    return f"{counted(len(names), 'file')} beside the traces {'is' if len(names) == 1 else 'are'} set aside: {first}"


def read_source(source: Source) -> list[RankTrace]:
    """Return the ranks of one file, whatever its format."""
    if not source.is_named and ascend.is_beside_trace(source.path):
        raise NoTrace(f"{source}: belongs to a trace_view.json; expected that one")
    head = head_of(source.path, HEAD_BYTES) if not source.member else b""
    if head.startswith(ZIP):
        raise NoTrace(f"{source}: no .json in this archive; expected traces")
    if head.startswith(MAGIC):
        return _of_export(source, *databases.collected(source))
    facts = RankFacts(str(source), source.name, None)
    if source.name.endswith((".et", ".et.gz")) or (
        head[:1] not in b"{[\x1f\xef\xfe\xff \r\n\t" and chakra.is_messages(head)
    ):
        return [chakra.of_messages(source, facts)]
    begins = next(pieces(source), b"")[:HEAD_BYTES]
    if chakra.SCHEMA.search(begins):
        return [chakra.of_json(source, facts)]
    if rocprof.SCHEMA.match(begins):
        return _of_export(source, *rocprof.collected(source))
    return _of_events(source)


def _of_export(source: Source, collected: Collector, beside: TraceHead, note: str) -> list[RankTrace]:
    found = ranks_of(source, collected, beside)
    for trace in found:
        trace.notes += (note,) if note else ()
    return found


def _of_events(source: Source) -> list[RankTrace]:
    stream, collected = EventStream(source), Collector()
    for batch in stream.batches():
        collected.take(batch)
    if isinstance(stream.head.other, dict) and stream.head.other.get("source") in _OURS:
        return [trace for cycles in _timeline_of(source) for trace in cycles]
    found = ranks_of(source, collected, stream.head)
    for trace in found:
        trace.world_size = stream.head.world_size
    if len(found) == 1:
        groups = stream.head.groups
        found[0].calls = [_in_group(call, groups) for call in found[0].calls]
    if len(found) == 1 and found[0].rank is None and not source.member:
        found[0].rank = ascend.rank_beside(source.path)
    return found


def _in_group(call: TracedCall, groups: Mapping[str, str]) -> TracedCall:
    """Return a call with the ranks of its group, where only the list of groups beside the events has them."""
    ranks = groups.get(call.group, "") if call.group and not call.ranks else ""
    return dataclasses.replace(call, ranks=ranks) if ranks else call


def _timeline_of(source: Source) -> list[list[RankTrace]]:
    """Return the ranks of a timeline.json."""
    try:
        return ranks_of_timeline(parse_chrome_trace(msgspec.json.decode(b"".join(pieces(source)))), str(source))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: {error}") from None


def in_ranks(found: Sequence[RankTrace]) -> list[list[RankTrace]]:
    """Return the traces rank by rank: as the files say, then as their names say, then in the order of their names."""
    told = {trace.rank for trace in found if trace.rank is not None}
    untold = [trace for trace in found if trace.rank is None]
    by_name = [] if any(trace.label for trace in untold) else _by_name([trace.name for trace in untold])
    if by_name and not told & set(by_name):
        for trace, rank in zip(untold, by_name, strict=True):
            trace.rank = rank
    else:
        _by_order(untold, told)
    ranks = sorted({trace.rank for trace in found if trace.rank is not None})
    return [_cycles([trace for trace in found if trace.rank == rank]) for rank in ranks]


def _by_name(names: Sequence[str]) -> list[int]:
    """Return the ranks by which files are called, or (if all differ) their folders; none if not all are."""
    files = [_NAMED.findall(name.rpartition("/")[2]) for name in names]
    if all(files):
        return [int(found[-1]) for found in files]
    paths = [_NAMED.findall(name) for name in names]
    ranks = [int(found[-1]) for found in paths if found]
    return ranks if len(set(ranks)) == len(names) else []


def file_of(trace: RankTrace) -> str:
    """Return which file a rank is, where neither its name nor a note says so; "" where one does."""
    if trace.rank in _by_name([trace.name]) or any(note.startswith(f"rank {trace.rank} is ") for note in trace.notes):
        return ""
    return f"rank {trace.rank} is {f'{trace.label} of ' if trace.label else ''}{trace.name}"


def _by_order(untold: Sequence[RankTrace], taken: set[int]) -> None:
    """Give a rank to each worker whose files say none, in the order of their names."""
    workers: dict[tuple[str, str], int] = {}
    for trace in sorted(untold, key=lambda trace: (natural(trace.name), natural(trace.label))):
        match = _WORKER.match(trace.name)
        worker = (match[1] if match else trace.name), trace.label
        if worker not in workers:
            workers[worker] = next(rank for rank in itertools.count() if rank not in taken)
            taken = {*taken, workers[worker]}
        trace.rank = workers[worker]
        if not trace.label and len(untold) > 1:
            trace.notes += (f"rank {trace.rank} is {trace.source}, by the order of the names: no file says its rank",)


def _cycles(traces: list[RankTrace]) -> list[RankTrace]:
    """Return the traces of one rank in the order of their steps; InputError where two have a step in common."""
    empty = next((trace for trace in traces if not trace.windows), None)
    if empty is not None:
        raise InputError(f"{empty.source}: expected events that take time, found none")
    ordered = sorted(traces, key=lambda trace: trace.windows[0].number)
    for a, b in itertools.pairwise(ordered):
        both = {w.number for w in a.windows} & {w.number for w in b.windows}
        if both or not (a.marked and b.marked):
            what = f"the same step {min(both)}" if a.marked and b.marked else "no steps that tell them apart"
            raise InputError(f"{a.source} and {b.source}: both are rank {a.rank}, with {what}; give one file a rank")
    return ordered
