"""Facts on the steps of a job: what they are spent on, how long they take, whether their losses are numbers."""

import msgspec

from .where import Where


class DataShare(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a step that is a wait for data, 0 to 1: of one rank (None where not known), or the least of `ranks`.

    `steady` says that hardly a step, or no rank, waits less than half of the time.
    """

    rank: int | None = None
    ranks: int = 1
    share: float
    steady: bool
    where: Where


class DataLate(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that wait for their data in steps in which the others wait for them; () where they are others each time."""

    ranks: tuple[int, ...]
    what: str
    where: Where


class Stepped(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one log that has a clock: when each was printed, and the line of the last."""

    times_s: tuple[float, ...]
    where: Where
    looked: Where | None = None  # the output of `date`, where the last step was then no older than steps are apart


class Paced(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one log of one form, all of about one length; `step` in the log's own unit, `work` as lines say."""

    rank: int | None
    step: float
    form: int
    work: tuple[tuple[str, str], ...]
    where: Where


class SaidPause(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's word on how long it paused in a step: to collect garbage (`is_own`), or to wait for others."""

    rank: int
    step: int
    lasts_s: float
    is_own: bool
    where: Where


class FellBack(msgspec.Struct, frozen=True, kw_only=True):
    """A program's word that it goes on with something slower than it wanted."""

    where: Where


class RanksAlike(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the times of several ranks, of which none is longer than the others'."""

    ranks: int
    where: Where


class SlowedJob(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a whole job last `ratio` times longer from the line `where` to the end of its log than `before`."""

    ratio: float
    before: Where
    where: Where


Pace = DataShare | DataLate | Paced | SaidPause | FellBack | RanksAlike | SlowedJob


class LostNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """The loss or the gradient norm that was no number in `lines` lines of steps in a row, to the end of one log."""

    what: str
    lines: int
    rank: int | None
    first: Where
    last_good: tuple[Where, ...]  # the lines right before it; none where it never was a number
    near: str  # the step, as a progress bar or a line has it, "" where none tells
    where: Where


class OutlivedWait(msgspec.Struct, frozen=True, kw_only=True):
    """A time-out after which the job made steps again, most often from a checkpoint: no fault of its end."""

    what: str  # who waited in which call
    where: Where
