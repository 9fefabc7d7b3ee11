"""Where the largest error of a prediction sits: the collective and its hosts, or the rank that computes longest."""

from collections.abc import Mapping

from ..timeline import Performance, Timeline
from ..units import format_time
from .compare import PARTS, culprit_of
from .ranks import exposed_by_name, rank_uses

APART = 0.02  # ranks whose times differ by less are alike


def blame(
    predicted: Performance,
    measured: Performance,
    predicted_timeline: Timeline,
    measured_timeline: Timeline,
    hosts: Mapping[int, str],
) -> str:
    """Return what the verdict adds to the culprit, "" where the timelines say no more."""
    culprit = culprit_of(predicted, measured)
    if culprit == "exposed communication":
        return _collective(predicted_timeline, measured_timeline, hosts)
    return _rank(PARTS[culprit].removesuffix("_s"), measured_timeline)


def _collective(predicted: Timeline, measured: Timeline, hosts: Mapping[int, str]) -> str:
    before, after = exposed_by_name(predicted), exposed_by_name(measured)
    names = sorted(before.keys() | after.keys())
    if not names:
        return ""
    name = max(names, key=lambda n: abs(after.get(n, 0.0) - before.get(n, 0.0)))
    ranks = sorted({span.rank for span in measured.spans if span.name == name})
    spanned = sorted({hosts[rank] for rank in ranks if rank in hosts})
    if len(spanned) > 1:
        return f"{name} over {spanned[0]}-{spanned[-1]}"
    return f"{name} over {len(ranks)} ranks" + (f" of {spanned[0]}" if spanned else "")


def _rank(part: str, measured: Timeline) -> str:
    times = {use.rank: use.parts_s[part] for use in rank_uses(measured) if part in use.parts_s}
    if len(times) < 2:
        return ""
    slowest, fastest = max(times, key=times.__getitem__), min(times, key=times.__getitem__)
    if times[slowest] < times[fastest] * (1 + APART):
        return "alike on all ranks"
    return (
        f"rank {slowest} longest with {format_time(times[slowest])}, rank {fastest} shortest with "
        f"{format_time(times[fastest])}"
    )
