"""Where the largest error of a prediction sits: the collective and its hosts, or the rank that computes longest."""

from collections.abc import Sequence

from ..timeline import Performance, Timeline
from ..units import format_time
from .compare import BETWEEN, PARTS, culprit_of
from .paths import Paths
from .ranks import RankUse, exposed_by_name

APART = 0.02  # ranks whose times differ by less are alike


def blame(
    predicted: Performance,
    measured: Performance,
    predicted_timeline: Timeline,
    measured_timeline: Timeline,
    paths: Paths,
    uses: Sequence[RankUse],
) -> str:
    """Return what the verdict adds to the culprit, "" where timelines and ranks say no more."""
    culprit = culprit_of(predicted, measured)
    if culprit == "exposed communication":
        return _collective(predicted_timeline, measured_timeline, paths)
    if culprit == BETWEEN:
        return ""
    return _rank(PARTS[culprit].removesuffix("_s"), uses)


def _collective(predicted: Timeline, measured: Timeline, paths: Paths) -> str:
    before, after = exposed_by_name(predicted), exposed_by_name(measured)
    names = sorted(before.keys() | after.keys())
    if not names:
        return ""
    name = max(names, key=lambda n: abs(after.get(n, 0.0) - before.get(n, 0.0)))
    spans = [span for span in measured.spans if span.name == name]
    crossing = sorted({hosts for span in spans if len(hosts := paths.hosts(span)) > 1})
    if crossing:
        return f"{name} over {crossing[0][0]}-{crossing[0][-1]}"
    inside = sorted({host for span in spans for host in paths.hosts(span)})
    where = f" inside each of {len(inside)} hosts" if inside[1:] else "".join(f" inside {host}" for host in inside)
    return f"{name} over {len({span.rank for span in spans})} ranks{where}"


def _rank(part: str, uses: Sequence[RankUse]) -> str:
    times = {use.rank: use.parts_s[part] for use in uses if part in use.parts_s}
    if len(times) < 2:
        return ""
    slowest, fastest = max(times, key=times.__getitem__), min(times, key=times.__getitem__)
    if times[slowest] < times[fastest] * (1 + APART):
        return "alike on all ranks"
    return (
        f"rank {slowest} longest with {format_time(times[slowest])}, rank {fastest} shortest with "
        f"{format_time(times[fastest])}"
    )
