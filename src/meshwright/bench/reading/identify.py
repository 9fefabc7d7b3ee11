"""The collective of a table and its number of ranks, from names, commands, devices, counts and bandwidths.

Only an all-reduce has a bus bandwidth above its algorithm bandwidth: 2(n-1)/n. Gathers, scatters and all-to-alls have
(n-1)/n, and count the share of one rank; broadcast, reduce and send/receive have 1. What stays open stays unknown.
"""

import math
import re
from collections.abc import Sequence

import msgspec

from ...collectives.pricing.figures import bus_factor
from ...errors import InputError
from .columns import Parsed, half_digit

NAMES = {
    "all_reduce": "all_reduce", "allreduce": "all_reduce", "all_gather": "all_gather", "allgather": "all_gather",
    "reduce_scatter": "reduce_scatter", "reducescatter": "reduce_scatter", "alltoall": "all_to_all",
    "all_to_all": "all_to_all", "alltoallv": "all_to_all_v", "broadcast": "broadcast", "bcast": "broadcast",
    "reduce": "reduce", "gather": "gather", "scatter": "scatter", "sendrecv": "sendrecv", "hypercube": "hypercube",
    "all_reduce_bias": "all_reduce",
}  # fmt: skip
WHOLE = ("all_reduce", "broadcast", "reduce", "sendrecv")  # each rank counts the whole payload
SHARED = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")  # each rank counts its share
MOST_RANKS = 131072
_WORDS = "|".join(sorted(NAMES, key=len, reverse=True))
_JOINED = {name.replace("_", ""): collective for name, collective in NAMES.items()}
_MARKS = (*_JOINED, "teststarting:", "collective:")  # without one of them a line names nothing
_STARTING = re.compile(r"test starting:\s*(\w+?)_perf|collective:\s*(\w+)", re.I)
_PERF = re.compile(rf"(?<![a-z])({_WORDS})_perf(?:_mpi)?(?![a-z])", re.I)
# of prose and headings, which write All-Reduce and all to all as well
_PLAIN = re.compile(rf"(?<![\w/])({_WORDS.replace('_', '[ _-]?')})(?![\w/])", re.I)
_BETWEEN = str.maketrans("", "", " _-")


class Named(msgspec.Struct, frozen=True):
    """A collective that a line names, and whether a program or a header says so or only a word of prose."""

    collective: str
    sure: bool


def named_in(line: str) -> Named | None:
    """Return the collective that a line names."""
    small = line.lower().translate(_BETWEEN)
    if not any(word in small for word in _MARKS):  # the patterns take a second for a line of a megabyte
        return None
    for pattern in (_STARTING, _PERF):
        for match in pattern.finditer(line):
            word = next(group for group in match.groups() if group).lower().removesuffix("_mpi")
            return Named(NAMES.get(word, word), sure=True)
    words = {_JOINED[word.lower().translate(_BETWEEN)] for word in _PLAIN.findall(line)}
    return Named(words.pop(), sure=False) if len(words) == 1 else None


def ranks_of_command(line: str) -> int | None:
    """Return the ranks that a command line of a *_perf program starts, None where it does not say."""
    head, found, tail = line.partition("_perf")
    if not found:
        return None
    processes = processes_of(head)
    if processes is None:
        return None
    ranks = processes * (_option(tail, r"-g|--ngpus") or 1) * (_option(tail, r"-t|--nthreads") or 1)
    return ranks if 1 <= ranks <= MOST_RANKS else None


def processes_of(head: str) -> int | None:
    """Return the processes that mpirun or srun is told to start, None where a line does not say."""
    processes = _option(head, r"-np|--np|-n|--ntasks|--n")
    nodes = _option(head, r"-N|--nodes") if re.search(r"\bsrun\b", head) else None
    each = _option(head, r"--ntasks-per-node")
    if nodes is not None and each is not None:
        return nodes * each
    return processes


def _option(text: str, names: str) -> int | None:
    glued = "|".join(name for name in names.split("|") if re.fullmatch(r"-\w", name)) or names
    match = re.search(rf"(?:^|\s)(?:(?:{names})(?:\s+|=)|(?:{glued}))(\d{{1,6}})\b", text)  # -N 2, -N2
    return int(match[1]) if match else None


class TableIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The known facts of a table."""

    collective: str | None = None
    ranks: int | None = None
    ranks_range: tuple[int, int] | None = None
    candidates: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def identify(
    rows: Sequence[Parsed], named: Named | None, listed: int | None, commanded: int | None, where: str
) -> TableIdentity:
    """Return collective and ranks; InputError, naming the line, where names and numbers contradict each other."""
    ratio = None if _counts_what_is_received(rows) else _ratio(rows)
    shares = {row.shares for row in rows if row.shares is not None and row.bytes}
    counted = shares.pop() if len(shares) == 1 else None
    counted = counted if counted and 1 < counted <= MOST_RANKS else None
    if listed and counted and listed < counted:
        listed = None  # the list is cut short
    known = listed or counted
    collective = None
    candidates = _candidates(rows, ratio, known or commanded) or _candidates(rows, ratio, None)
    if named is not None and (named.sure or named.collective in candidates or not candidates):
        collective = named.collective
    elif len(candidates) == 1:
        collective = candidates[0]
    ranks, allowed, notes = _ranks(collective, ratio, listed, counted, commanded)
    if collective is not None and ratio is not None and ranks is not None and collective in (*WHOLE, *SHARED):
        _check(rows, collective, ranks, where)
    return TableIdentity(
        collective=collective,
        ranks=ranks,
        ranks_range=allowed,
        candidates=() if collective else candidates,
        notes=notes,
    )


def _counts_what_is_received(rows: Sequence[Parsed]) -> bool:
    """Return whether algbw counts (n-1)/n of the size, as gathers and scatters did until 2020; busbw is the same."""
    said = [
        (float(row.algbw), row.bytes / row.time_s / 1e9, row.shares)
        for row in rows
        if row.algbw and row.shares and row.shares > 1 and float(row.algbw) > 20 * half_digit(row.algbw)
    ]
    return bool(said) and all(abs(algbw / (full * (1 - 1 / n)) - 1) < abs(algbw / full - 1) for algbw, full, n in said)


def _ratio(rows: Sequence[Parsed], slack: float = 0.0) -> tuple[float, float] | None:
    """Return the bounds of busbw over algbw that all rows allow; None where none says enough."""
    low, high = 0.0, math.inf
    for row in rows:
        bounds = _row_ratio(row, slack)
        if bounds is not None:
            low, high = max(low, bounds[0]), min(high, bounds[1])
    if high is math.inf:
        return None
    return (low, high) if low <= high else _ratio([max(rows, key=lambda r: float(r.algbw or 0))], 1e-3)


def _row_ratio(row: Parsed, slack: float) -> tuple[float, float] | None:
    if row.algbw is None or row.busbw is None or not row.bytes or not _is_number(row.algbw, row.busbw):
        return None
    algbw, busbw = float(row.algbw), float(row.busbw)
    if algbw < 20 * half_digit(row.algbw):
        return None
    low = (busbw - half_digit(row.busbw)) / (algbw + half_digit(row.algbw))
    high = (busbw + half_digit(row.busbw)) / (algbw - half_digit(row.algbw))
    return low * (1 - slack), high * (1 + slack)


def _is_number(*words: str) -> bool:
    return all(re.fullmatch(r"\d+\.?\d*(e[+-]?\d+)?", word, re.I) for word in words)


def _candidates(rows: Sequence[Parsed], ratio: tuple[float, float] | None, ranks: int | None) -> tuple[str, ...]:
    """Return the collectives that operator, root, counts and bandwidths allow; () where nothing speaks of them."""
    if not rows:
        return ()
    row = rows[-1]
    has_root = row.root is not None and row.root >= 0
    shared = any(each.shares and each.shares > 1 for each in rows)
    reduces = row.redop != "none"
    if shared:
        found = ["reduce_scatter"] if reduces else ["gather", "scatter"] if has_root else ["all_gather", "all_to_all"]
        found += [] if reduces or has_root else ["hypercube"]
    else:
        found = ["reduce" if reduces else "broadcast"] if has_root else ["all_reduce", "sendrecv"] if reduces else []
        found = found or (["sendrecv", "broadcast", "all_gather", "all_to_all"] if ratio is not None else [])
        # neither send/receive nor its check exists in place: a checked column in place rules it out
        if row.in_place_checked and "sendrecv" in found:
            found.remove("sendrecv")
    if ratio is None:
        return tuple(found)
    return tuple(c for c in found if _fits(c, ratio, ranks))


def _fits(collective: str, ratio: tuple[float, float], ranks: int | None) -> bool:
    low, high = ratio[0] * 0.998, ratio[1] * 1.002
    if collective == "hypercube":  # counts what is received, and no more crosses a link
        return low <= 1 <= high
    if ranks is not None:
        return low <= bus_factor(collective, ranks) <= high
    return low <= bus_factor(collective, MOST_RANKS) and bus_factor(collective, 2) <= high


def _ranks(
    collective: str | None,
    ratio: tuple[float, float] | None,
    listed: int | None,
    counted: int | None,
    commanded: int | None,
) -> tuple[int | None, tuple[int, int] | None, tuple[str, ...]]:
    """Return ranks, or the range that the ratio allows, and what is odd about it."""
    by_ratio = None if ratio is None or collective is None else ranks_of_ratio(collective, ratio)
    for said, source in ((listed, "the list of devices"), (counted, "the counts"), (commanded, "the command")):
        if said is None:
            continue
        if collective is None or ratio is None or collective not in (*WHOLE, *SHARED) or _fits(collective, ratio, said):
            return said, None, ()
        if source == "the counts" or by_ratio is None or by_ratio[0] <= said:
            return said, None, ()
        note = (f"{source} shows {said} ranks, the bandwidths {_span(by_ratio)}: it is cut short",)
        return (by_ratio[0], None, note) if by_ratio[0] == by_ratio[1] else (None, by_ratio, note)
    if by_ratio is None:
        return None, None, ()
    return (by_ratio[0], None, ()) if by_ratio[0] == by_ratio[1] else (None, by_ratio, ())


def _span(bounds: tuple[int, int]) -> str:
    return str(bounds[0]) if bounds[0] == bounds[1] else f"{bounds[0]} to {bounds[1]}"


def ranks_of_ratio(collective: str, ratio: tuple[float, float]) -> tuple[int, int] | None:
    """Return the smallest and largest rank count whose busbw over algbw lies in the bounds, None where none does."""
    top = bus_factor(collective, 2) * 2  # factor = top x (1 - 1/n)
    if bus_factor(collective, 2) == bus_factor(collective, 3):
        return None
    for slack in (0.0, 1e-3):
        low, high = ratio[0] * (1 - slack), ratio[1] * (1 + slack)
        if low >= top:
            continue
        first = math.ceil(1 / (1 - low / top) - 1e-9)
        last = MOST_RANKS if high >= top else math.floor(1 / (1 - high / top) + 1e-9)
        if 2 <= max(first, 2) <= last:
            return max(first, 2), last
    return None


def _check(rows: Sequence[Parsed], collective: str, ranks: int, where: str) -> None:
    expected = bus_factor(collective, ranks)
    for row in rows:
        bounds = _row_ratio(row, 0.01)
        if bounds is not None and not bounds[0] <= expected <= bounds[1]:
            raise InputError(
                f"{where}:{row.line}: busbw {row.busbw} over algbw {row.algbw} is not the {expected:.4g} of "
                f"{collective} of {ranks} ranks"
            )
