"""The reason of the last rank: its work meanwhile, beside that of the others."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from ...units import format_time
from ..intervals import Array, clipped, intersection, length_s, union_of_sets, without
from ..model import RankTrace, Window
from ..usage import common_steps, parts_of, per_step, steps_of

# in this order: what is in two of them counts as the first
_ACTIVITIES: tuple[tuple[str, str], ...] = (
    ("garbage", "collects garbage"),
    ("allocator", "is in the memory allocator"),
    ("data", "is in the data loader"),
    ("waiting", "waits for the device"),
    ("operators", "runs operators and launches"),
)
_NAMED = ("operators", "outside")  # activities of which frames and annotations say more
_COPIES = {"copied": "to the device", "other": "to the host"}  # under which nothing else runs
LEAST_EXCESS = 0.05  # of what the rank costs: less is no reason for it
UNTOLD = "nothing in its trace tells why"
Step = tuple[RankTrace, Window]


def reason(
    ranks: Sequence[Sequence[RankTrace]], rank: int, costs_s: float, only: AbstractSet[int] | None = None
) -> str:
    """Return why a rank is late: what it spends more time on than the others do, of `costs_s` a noticeable part.

    It is why in the typical step, or in the typical one of `only`; where that explains less than half, they are taken
    with the step before each, at the end of which a rank may have begun to be late.
    """
    wanted = set(only or common_steps(ranks)) or {
        window.number for cycles in ranks for trace in cycles for window in trace.windows
    }
    steps = {cycles[0].rank: steps_of(cycles, wanted) for cycles in ranks}
    per, least_s = per_step(ranks), LEAST_EXCESS * costs_s
    if only is None:
        return _reason(steps, rank, least_s, per) or UNTOLD
    per = per if len(only) > 1 else ""
    before = {key: [_with_the_one_before(*step) for step in every] for key, every in steps.items()}
    return _reason(steps, rank, costs_s / 2, per) or _reason(before, rank, least_s, per) or UNTOLD


def _with_the_one_before(trace: RankTrace, window: Window) -> Step:
    begun = [one.start_s for one in trace.windows if one.number == window.number - 1]
    return trace, Window(window.number, min([window.start_s, *begun]), window.end_s)


def _reason(steps: Mapping[int | None, list[Step]], rank: int, least_s: float, per: str) -> str:
    """Return what a rank spends more time on than the others do in given steps, "" where it is `least_s` or less."""
    own, others = steps[rank], [found for key, found in steps.items() if key != rank]
    host = own[0][0].device == "host"
    mine, theirs = _typical(own), [_typical(found) for found in others]
    excess = {key: time_s - statistics.median(one.get(key, 0.0) for one in theirs) for key, time_s in mine.items()}
    largest = max(excess, key=excess.__getitem__)
    if excess[largest] <= least_s:
        return ""
    longer = f"{format_time(excess[largest])}{per} longer"
    if largest == "compute":
        name, more_s = _longest(own, others)
        most = f" ({_short(name)} most of it)" if 2 * more_s > excess[largest] else ""
        return f"its {'operators' if host else 'kernels'} take {longer}{most}"
    if largest in _COPIES:
        return f"it waits {longer} for copies {_COPIES[largest]}"
    if not any(trace.host.is_traced for trace, _ in own):
        return f"its device idles {longer}, of its host there is nothing in the trace"
    name = innermost(own, others, largest, excess[largest])
    if largest == "outside":
        said = f"is in {name}, outside any operator," if name else "is in code outside any operator"
    else:
        said, longer = dict(_ACTIVITIES)[largest], longer + (f" ({name} most of it)" if name else "")
    return f"its host {said} {longer}" + ("" if host else " while its device idles")


def _typical(steps: Sequence[Step]) -> dict[str, float]:
    """Return the seconds of everything that a rank may spend longer on, in its typical step."""
    found: dict[str, list[float]] = defaultdict(list)
    for trace, window in steps:
        found["compute"].append(length_s(clipped(trace.compute, window.start_s, window.end_s)))
        if trace.device == "device":
            parts = parts_of(trace, window)
            for key in _COPIES:
                found[key].append(length_s(getattr(parts, key)))
        for key, times in idle_by(trace, window).items():
            found[key].append(length_s(times))
    return {key: statistics.median(times) for key, times in found.items()}


def idle_by(trace: RankTrace, window: Window) -> dict[str, Array]:
    """Return when the rank neither computed nor communicated nor copied, by what its host did."""
    parts = parts_of(trace, window)
    left = without(union_of_sets([parts.idle, parts.data]), parts.copied)
    found: dict[str, Array] = {}
    for key, _ in _ACTIVITIES:
        now = intersection(left, clipped(getattr(trace.host, key), window.start_s, window.end_s))
        found[key], left = now, without(left, now)
    found["outside"] = without(left, parts.data)
    return found


def innermost(own: Sequence[Step], others: Sequence[Sequence[Step]], activity: str, excess_s: float) -> str:
    """Return the innermost frame, annotation or long operator that a host is in for most of some time; "" for none.

    Given what the host does in that time, while the device idles: an operator, or code outside any. What lasts much
    longer than that (a loop of training), or as long on the other ranks, tells nothing.
    """
    if activity not in _NAMED:
        return ""
    mine = _framed(own, {name for trace, _ in own for name in trace.host.frames}, activity)
    found = {name: times for name, times in mine.items() if 2 * times[0] > max(excess_s, times[1])}
    theirs = [_framed(steps, set(found), activity) for steps in others]
    more = [
        (whole_s, name)
        for name, (idle_s, whole_s) in found.items()
        if 2 * (idle_s - (statistics.median(one[name][0] for one in theirs) if theirs else 0.0)) > excess_s
    ]
    return _short(min(more)[1]) if more else ""


def _framed(steps: Sequence[Step], names: AbstractSet[str], activity: str) -> dict[str, tuple[float, float]]:
    """Return of each frame the seconds of a step that it lasts while the host does something and the device idles.

    And how long it lasts in all.
    """
    found = dict.fromkeys(names, (0.0, 0.0))
    for trace, window in steps if names else ():
        idle = idle_by(trace, window)[activity]
        for name in names & trace.host.frames.keys():
            inside = clipped(trace.host.frames[name], window.start_s, window.end_s)
            idle_s, whole_s = found[name]
            idle_s += length_s(intersection(inside, idle)) / len(steps)
            found[name] = idle_s, whole_s + length_s(inside) / len(steps)
    return found


def _longest(own: Sequence[Step], others: Sequence[Sequence[Step]]) -> tuple[str, float]:
    """Return what a rank computes longer than the others, and by how many seconds a step."""
    mine = _by_name(own)
    theirs = [_by_name(steps) for steps in others]
    more = {name: time_s - statistics.median(one.get(name, 0.0) for one in theirs) for name, time_s in mine.items()}
    name = max(more, key=more.__getitem__, default="")
    return name, more.get(name, 0.0)


def _by_name(steps: Sequence[Step]) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for trace, window in steps:
        computed = trace.computed
        starts, ends = np.maximum(computed.starts_s, window.start_s), np.minimum(computed.ends_s, window.end_s)
        lasting = ends > starts
        times = np.bincount(computed.names[lasting], weights=(ends - starts)[lasting], minlength=1)
        for name in np.flatnonzero(times):
            found[computed.table[name]] += float(times[name]) / len(steps)
    return dict(found)


def _short(name: str) -> str:
    return name if len(name) <= 60 else name[:59] + "…"
