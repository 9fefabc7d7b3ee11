"""From files to ranks: which file is which rank, and which files are cycles of one."""

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..errors import InputError
from ..timeline import parse_chrome_trace
from . import chakra, nsys
from .collector import Collector
from .events import EventStream
from .kineto import ranks_of
from .model import RankTrace
from .opening import Source, head_of, natural, pieces, sources_of
from .ours import ranks_of_timeline
from .parts import Facts

HEAD_BYTES = 4096  # of a file, by which its format is told
_OURS = ("measured", "predicted", "simulated")
_NAMED = re.compile(r"(?<![a-z])(?:rank|worker)[-_. ]?(\d{1,6})(?!\d)", re.IGNORECASE)


def read_traces(paths: Sequence[Path]) -> list[list[RankTrace]]:
    """Return what each rank did, in the order of the ranks: one trace, or one for each profiled cycle.

    InputError if a file is no trace, or two files are one rank and the same steps.
    """
    found = [trace for source in sources_of(paths) for trace in read_source(source)]
    return in_ranks(found)


def read_source(source: Source) -> list[RankTrace]:
    """Return the ranks of one file, whatever its format."""
    head = head_of(source.path, HEAD_BYTES) if not source.member else b""
    if head.startswith(nsys.MAGIC):
        collected, beside, note = nsys.collected(source)
        found = ranks_of(source, collected, beside)
        for trace in found:
            trace.notes += (note,) if note else ()
        return found
    facts = Facts(str(source), source.name, None)
    if source.name.endswith((".et", ".et.gz")) or (
        head[:1] not in b"{[\x1f\xef\xfe\xff \r\n\t" and chakra.is_messages(head)
    ):
        return [chakra.of_messages(source, facts)]
    if chakra.SCHEMA.search(next(pieces(source), b"")[:HEAD_BYTES]):
        return [chakra.of_json(source, facts)]
    return _of_events(source)


def _of_events(source: Source) -> list[RankTrace]:
    stream, collected = EventStream(source), Collector()
    for batch in stream.batches():
        collected.take(batch)
    if isinstance(stream.head.other, dict) and stream.head.other.get("source") in _OURS:
        return [trace for cycles in _timeline_of(source) for trace in cycles]
    return ranks_of(source, collected, stream.head)


def _timeline_of(source: Source) -> list[list[RankTrace]]:
    """Return the ranks of a timeline.json."""
    try:
        return ranks_of_timeline(parse_chrome_trace(msgspec.json.decode(b"".join(pieces(source)))), str(source))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: {error}") from None


def in_ranks(found: Sequence[RankTrace]) -> list[list[RankTrace]]:
    """Return the traces rank by rank: as the files say, then as their names say, then in the order of their names."""
    if len(found) == 1 and found[0].rank is None:
        named = _NAMED.findall(found[0].name)
        found[0].rank = int(named[-1]) if named else 0
    told = [trace for trace in found if trace.rank is not None]
    untold = [trace for trace in found if trace.rank is None]
    by_name = {id(trace): int(match[-1]) for trace in untold if (match := _NAMED.findall(trace.name))}
    distinct = len(by_name) == len(untold) and len({*by_name.values()}) == len(untold)
    taken = {trace.rank for trace in told}
    if untold and distinct and not taken & set(by_name.values()):
        for trace in untold:
            trace.rank = by_name[id(trace)]
    else:
        free = (rank for rank in range(len(found) + max(0, *[r or 0 for r in taken], 0)) if rank not in taken)
        for trace in sorted(untold, key=lambda trace: (natural(trace.name), natural(trace.label))):
            trace.rank = next(free)
            if not trace.label:
                trace.notes += (
                    f"rank {trace.rank} is {trace.source}, by the order of the names: no file says its rank",
                )
    ranks = sorted({trace.rank for trace in found if trace.rank is not None})
    return [_cycles([trace for trace in found if trace.rank == rank]) for rank in ranks]


def _cycles(traces: list[RankTrace]) -> list[RankTrace]:
    """Return the traces of one rank in the order of their steps; InputError where two have a step in common."""
    ordered = sorted(traces, key=lambda trace: trace.windows[0].number)
    for a, b in itertools.pairwise(ordered):
        both = {w.number for w in a.windows} & {w.number for w in b.windows}
        if both or not (a.marked and b.marked):
            what = f"the same step {min(both)}" if a.marked and b.marked else "no steps that tell them apart"
            raise InputError(f"{a.source} and {b.source}: both are rank {a.rank}, with {what}; give one file a rank")
    return ordered
