"""EventProgram: what the event engine runs. Activities take work through resources; gates say what waits for what.

The work of a transfer is its bytes, on the links of its route; that of a computation is seconds, on a core that offers
one second a second. A gate opens when every activity that signals it has ended; an activity is released
when all gates that it waits for are open, goes through its delay (latency), and then takes its share of its resources
until its work is done.

A resource with a burst is a token bucket: what begins on it has as much work done at once as there are tokens, and
unused capacity fills the bucket again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ..errors import InputError
from .arrays import Floats, Ints, Lists, ints, lists


@dataclass(frozen=True, eq=False)
class EventProgram:
    """Activities 0 to n-1 over resources 0 to m-1 and gates 0 to g-1."""

    work: Floats  # (n,) bytes, or seconds of a core
    delay_s: Floats  # (n,) from release to the first byte
    uses: Lists  # of each activity, the resources
    weight: Floats | None  # (uses,) how often the activity counts on the resource; None: once on each
    capacity: Floats  # (m,) work per second
    releases: Lists  # of each gate, the activities that wait for it
    signals: Lists  # of each activity, the gates that it is needed for
    ready_s: Floats | None = None  # (n,) not released before
    burst: Floats | None = None  # (m,) work that passes at once after a pause, as a token bucket lets it

    @property
    def activities(self) -> int:
        """Number of activities."""
        return len(self.work)

    @property
    def gates(self) -> int:
        """Number of gates."""
        return len(self.releases.start) - 1

    def weights(self, uses: Ints) -> Floats:
        """Return the weight of some uses."""
        return np.ones(len(uses)) if self.weight is None else self.weight[uses]


@dataclass(frozen=True, eq=False)
class ActivityTimes:
    """When each activity was released and when it ended."""

    start_s: Floats
    end_s: Floats

    @property
    def time_s(self) -> float:
        """When the last activity ended."""
        return float(self.end_s.max(initial=0.0))


class Builder:
    """Collect activities and gates one by one, for programs that are not made of arrays."""

    def __init__(self) -> None:
        self._capacity: list[float] = []
        self._burst: list[float] = []
        self._work: list[float] = []
        self._delay: list[float] = []
        self._uses: list[tuple[int, int, float]] = []
        self._releases: list[tuple[int, int]] = []
        self._signals: list[tuple[int, int]] = []
        self._gates = 0

    def resource(self, capacity: float, burst: float = 0.0) -> int:
        """Add a resource that offers `capacity` of work per second, and `burst` at once; return its number."""
        self._capacity.append(capacity)
        self._burst.append(burst)
        return len(self._capacity) - 1

    def activity(
        self, work: float, uses: Mapping[int, float] | None = None, *, after: Iterable[int] = (), delay_s: float = 0.0,
    ) -> int:  # fmt: skip
        """Add an activity that starts when those of `after` have ended; return its number.

        `uses`: resource to how much of it one unit of the activity's rate takes.
        """
        number = len(self._work)
        self._work.append(work)
        self._delay.append(delay_s)
        self._uses += [(number, resource, weight) for resource, weight in (uses or {}).items()]
        others = set(after)
        if others:
            self._releases.append((self._gates, number))
            self._signals += [(other, self._gates) for other in others]
            self._gates += 1
        return number

    def build(self) -> EventProgram:
        """Return the program."""
        n = len(self._work)
        user, used = (ints([use[i] for use in self._uses]) for i in (0, 1))
        gate, waiting = (ints([pair[i] for pair in self._releases]) for i in (0, 1))
        signaller, signalled = (ints([pair[i] for pair in self._signals]) for i in (0, 1))
        return EventProgram(
            work=np.array(self._work, dtype=np.float64),
            delay_s=np.array(self._delay, dtype=np.float64),
            uses=lists(user, used, n),
            weight=np.array([use[2] for use in self._uses], dtype=np.float64),
            capacity=np.array(self._capacity, dtype=np.float64),
            releases=lists(gate, waiting, self._gates),
            signals=lists(signaller, signalled, n),
            burst=np.array(self._burst, dtype=np.float64) if any(self._burst) else None,
        )


def check_reached(program: EventProgram, end_s: Floats) -> None:
    """Raise InputError for activities that never ended: a link without capacity, or a circle of waits."""
    never = ~np.isfinite(end_s)
    if never.any():
        raise InputError(
            f"simulation: {never.sum()} of {program.activities} activities never end: they need a cut link, or wait for"
            " each other"
        )
