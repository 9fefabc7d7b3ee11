"""Equal bits on every rank after an all-reduce: replicas of a model that do not get them drift apart.

Sums in floating point depend on their order. A schedule is replayed with expressions in place of numbers: a + b is
b + a, but (a + b) + c is not a + (b + c), and what crosses a link in a narrower type is rounded.
"""

from ..schedules.goals import before
from ..schedules.schedule import Schedule


def leaves_equal_bits(schedule: Schedule, *, rounded: bool = False, keeps_rounded: bool = False) -> bool:
    """Return whether all ranks end with the same expression for each chunk of an all-reduce.

    `rounded`: messages travel in a narrower type than they are summed in; what is copied is then rounded at its source
    too, and with `keeps_rounded` so is what is sent to be reduced.
    """
    known: dict[tuple[object, ...], int] = {}
    exact: set[int] = set()  # values that the narrower type has: rounding changes them no more

    def number(*parts: object) -> int:
        return known.setdefault(parts, len(known))

    held = [[-1] * schedule.slots for _ in range(schedule.ranks)]
    for rank, slot, chunk, _ in before(schedule):
        held[rank][slot] = number("own", rank, chunk)
    for transfers in schedule.rounds:
        taken = [[held[t.src][slot] for slot in t.chunks] for t in transfers]
        if rounded:
            sent = {value for values in taken for value in values}
            narrow = {value: value if value in exact else number("rounded", value) for value in sent}
            exact.update(narrow.values())
            for t, values in zip(transfers, taken, strict=True):
                if t.is_local:
                    continue
                values[:] = [narrow[value] for value in values]
                if keeps_rounded or not t.reduce:
                    for slot, value in zip(t.chunks, values, strict=True):
                        held[t.src][slot] = value
        for t, values in zip(transfers, taken, strict=True):
            for slot, value in zip(t.targets, values, strict=True):
                one, other = sorted((held[t.dst][slot], value))
                held[t.dst][slot] = number("sum", one, other) if t.reduce else value
    return all(row[: schedule.chunks] == held[0][: schedule.chunks] for row in held)
