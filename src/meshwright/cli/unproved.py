"""The note on a schedule of the user's own that is not proved, where it is priced, counted, drawn or simulated."""

from ..collectives.proof.verify import ScheduleError, verify
from ..collectives.schedules.schedule import Schedule
from .prose import say

UNPROVED = "note: not proved: {fault}; what is said of it is of its messages alone"


def note_unproved(schedule: Schedule) -> None:
    """Say on stderr that a schedule is not proved, and at what; nothing of one that is."""
    try:
        verify(schedule)
    except ScheduleError as error:
        say(UNPROVED.format(fault=error), err=True)
