"""How late a rank comes to a collective by its own fault: what it worked longer, not what it waited for a third."""

from collections.abc import Mapping, Sequence

from ..intervals import Array, clipped, intersection, is_covered, length_s, trimmed, union, without
from ..model import RankTrace
from .absorbed import OtherTransfers
from .meetings import RankArrival, TracedMeeting


class OwnLateness:
    """The lateness of ranks in given meetings; `waits` is the exposed communication of each trace, by its id."""

    def __init__(self, found: Sequence[TracedMeeting], waits: Mapping[int, Array], transfers: OtherTransfers) -> None:
        self._waits = waits
        self._level = _level(found, transfers)
        self._begins_s = {key: trace.begins_s for key, trace in _traces(found).items()}

    def behind(self, meeting: TracedMeeting, place: int = -1) -> Array:
        """Return when the arrival of a place held up the one before it by its own fault, on the common clock.

        What was before the first event of a trace is not known: a profiler takes long to start, on one rank longer than
        on another, and again in each of its cycles.
        """
        before, own = meeting.arrivals[place - 1], meeting.arrivals[place]
        waits = self._waits[id(own.trace)]
        lag = union([max(before.start_s - own.moved_s, self._begins_s[id(own.trace)])], [own.start_s - own.moved_s])
        inherited_s = self._inherited_s(meeting, before, own)
        waited = trimmed(intersection(lag, waits), max(0.0, -inherited_s))
        return trimmed(without(lag, waited), max(0.0, inherited_s)) + own.moved_s

    def _inherited_s(self, meeting: TracedMeeting, before: RankArrival, own: RankArrival) -> float:
        """Return how much longer than the one before it a rank has waited since they were level, until that one came.

        Less than 0: the other has. What it came later beyond that is its own work. Where they were not level since
        their traces began, what the one began later than the other is no work either, if there are other steps to judge
        it by.
        """
        pair = (before, own)
        since_s = self._level.get(id(meeting))
        began_s = [self._begins_s[id(arrival.trace)] + arrival.moved_s for arrival in pair]
        later_s = 0.0
        if since_s is None or since_s < max(began_s):
            since_s = max(arrival.trace.windows[0].start_s + arrival.moved_s for arrival in pair)
            later_s = began_s[1] - began_s[0] if len(own.trace.windows) > 1 else 0.0
        until_s = max(since_s, before.start_s)
        waited = [
            length_s(clipped(self._waits[id(arrival.trace)], since_s - arrival.moved_s, until_s - arrival.moved_s))
            for arrival in pair
        ]
        return waited[1] - waited[0] + max(0.0, later_s)


def _traces(found: Sequence[TracedMeeting]) -> dict[int, RankTrace]:
    return {id(arrival.trace): arrival.trace for meeting in found for arrival in meeting.arrivals}


def _level(found: Sequence[TracedMeeting], transfers: OtherTransfers) -> dict[int, float]:
    """Return by the id of each meeting when its ranks were last level, on the common clock; not there: never before.

    They are where all of them go on with the end of a collective. One that is hidden, under computation or under
    collectives of other groups, leaves ranks as far apart as they were.
    """
    latest: dict[tuple[int, ...], float] = {}
    level: dict[int, float] = {}
    for meeting in sorted(found, key=lambda meeting: meeting.last.start_s):
        kind = meeting.kind
        _, members = kind
        if members in latest:
            level[id(meeting)] = latest[members]
        ends_s = meeting.last.start_s + meeting.transfer_s
        middle_s = ends_s - meeting.transfer_s / 2
        busy = (is_covered(transfers.busy(each.trace, kind), [middle_s - each.moved_s])[0] for each in meeting.arrivals)
        if not any(busy):
            latest[members] = ends_s
    return level
