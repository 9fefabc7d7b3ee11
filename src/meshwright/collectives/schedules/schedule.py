"""Schedule: a collective algorithm as data, and its text form.

A rank holds numbered slots. Slots 0 to chunks-1 are the chunks of the payload, the same number meaning the same chunk
on every rank; `scratch` more slots follow, empty at first. A round is a set of transfers that happen at once: every
transfer reads what its source held before the round, and all of them have landed when the round is over. Reductions
into one slot may meet in a round (they are applied in the order in which they are listed); a copy may meet nothing.
A transfer whose source is its destination is a local copy or reduction; one without chunks is a signal.
"""

import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, get_args

import msgspec

from ...errors import InputError

Collective = Literal[
    "all_reduce", "reduce", "broadcast", "scatter", "gather", "all_gather", "reduce_scatter", "all_to_all",
    "barrier", "send", "copy", "signal",
]  # fmt: skip
COLLECTIVES: tuple[str, ...] = get_args(Collective)
ROOTED = frozenset({"reduce", "broadcast", "scatter", "gather", "send", "copy", "signal"})
MAX_RANKS = 2**17
MAX_SLOTS = 2**24

_TRANSFER = re.compile(r"(?:c([\d,-]+)(?:->c([\d,-]+))?|sig):(\d+)>(\+?)(\d+)")
_HEAD = re.compile(r"(\w+) ([\w.+/:-]+)((?: (?!counts=)\w+=\d+)*)(?: counts=(\d+(?:[,/]\d+)*))?")


def schedule_name(text: str) -> str:
    """Return a text as a name that the first line of a schedule can hold."""
    return "".join(c if c.isalnum() or c in "_.+/:-" else "_" for c in text)


class Transfer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Some chunks go from one rank to another: stored there, or reduced into what is there.

    `to` names the slots that they land in, where these are not the slots that they come from.
    """

    src: int
    dst: int
    chunks: tuple[int, ...] = ()
    reduce: bool = False
    to: tuple[int, ...] = ()

    @property
    def targets(self) -> tuple[int, ...]:
        """The slots written at the destination, one for each chunk."""
        return self.to or self.chunks

    @property
    def is_local(self) -> bool:
        """Whether no link is crossed."""
        return self.src == self.dst

    def __str__(self) -> str:
        """Return "c0-2:3>4" (copied), "c0:3>+4" (reduced), "c0->c5:3>4" (into another slot) or "sig:3>4"."""
        slots = f"c{format_slots(self.chunks)}" if self.chunks else "sig"
        if self.to:
            slots += f"->c{format_slots(self.to)}"
        return f"{slots}:{self.src}>{'+' if self.reduce else ''}{self.dst}"

    @classmethod
    def parse(cls, text: str) -> "Transfer":
        """Return the transfer that prints as `text`; InputError otherwise."""
        match = _TRANSFER.fullmatch(text)
        if match is None:
            raise InputError(f"{text!r}: expected a transfer such as c0:0>1, c2-3:0>+1, c0->c4:0>1 or sig:0>1")
        chunks, to, src, reduce, dst = match.groups()
        return cls(_integer(src, "rank"), _integer(dst, "rank"), _slots(chunks, text), bool(reduce), _slots(to, text))


Round = tuple[Transfer, ...]
Counts = tuple[tuple[int, ...], ...]  # of an uneven all-to-all: chunks from each rank to each


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """One collective over `ranks` ranks, as rounds of transfers.

    `root` is the root of a rooted collective and the sender of a send or signal, whose receiver is `target`. What the
    chunks are is fixed by the collective: see `goals`. `counts` are the chunks from rank i to rank j of an all-to-all
    in which they differ, () where they do not.
    """

    collective: Collective
    name: str
    ranks: int
    chunks: int
    rounds: tuple[Round, ...]
    root: int = 0
    target: int = 0
    scratch: int = 0
    counts: Counts = ()
    schema: Literal["meshwright.schedule/1"] = "meshwright.schedule/1"

    def __post_init__(self) -> None:
        if self.collective not in COLLECTIVES:
            raise ValueError(f"collective: expected one of {', '.join(COLLECTIVES)}, got {self.collective!r}")
        if not 1 <= self.ranks <= MAX_RANKS:
            raise ValueError(f"ranks: expected 1 to {MAX_RANKS}, got {self.ranks}")
        if self.chunks < 0 or self.scratch < 0 or self.slots > MAX_SLOTS:
            raise ValueError(f"chunks, scratch: expected 0 to {MAX_SLOTS} in all, got {self.chunks} and {self.scratch}")
        if not (0 <= self.root < self.ranks and 0 <= self.target < self.ranks):
            raise ValueError(f"root, target: expected below {self.ranks}, got {self.root} and {self.target}")
        if self.counts:
            self._check_counts()
        ranks, slots = self.ranks, self.slots
        for number, transfers in enumerate(self.rounds):
            for t in transfers:
                if not (0 <= t.src < ranks and 0 <= t.dst < ranks):
                    raise ValueError(f"round {number}: {t}: no such rank (ranks: 0 to {ranks - 1})")
                if t.chunks and (min(t.chunks) < 0 or max(t.chunks) >= slots):
                    raise ValueError(f"round {number}: {t}: no such slot (slots: 0 to {slots - 1})")
                if t.to and (len(t.to) != len(t.chunks) or min(t.to) < 0 or max(t.to) >= slots):
                    raise ValueError(f"round {number}: {t}: expected as many existing slots as chunks after ->")
                if len(t.chunks) > 1 and len(set(t.targets)) != len(t.chunks):
                    raise ValueError(f"round {number}: {t}: the same slot twice")

    def _check_counts(self) -> None:
        if self.collective != "all_to_all":
            raise ValueError(f"counts: are for an all_to_all, got {self.collective}")
        if len(self.counts) != self.ranks or any(len(row) != self.ranks for row in self.counts):
            raise ValueError(f"counts: expected {self.ranks} rows of {self.ranks}")
        if min(map(min, self.counts)) < 0 or sum(map(sum, self.counts)) != self.chunks:
            raise ValueError(f"counts: expected counts of 0 or more that add up to {self.chunks} chunks")

    @property
    def slots(self) -> int:
        """Slots of each rank: chunks and scratch."""
        return self.chunks + self.scratch

    def __str__(self) -> str:
        """Return one line that says what it is and one line a round; `Schedule.parse` is the inverse."""
        keys = [f"{key}={getattr(self, key)}" for key in ("root", "target", "scratch") if getattr(self, key)]
        if self.counts:
            keys.append(f"counts={'/'.join(','.join(map(str, row)) for row in self.counts)}")
        head = " ".join([f"{self.collective} {self.name} ranks={self.ranks} chunks={self.chunks}", *keys])
        body = (f"{number}: {' '.join(map(str, transfers))}".rstrip() for number, transfers in enumerate(self.rounds))
        return "\n".join([head, *body]) + "\n"

    @classmethod
    def parse(cls, text: str, *, where: str = "schedule") -> "Schedule":
        """Return the schedule that prints as `text`; blank lines and lines that start with # are skipped."""
        stripped = ((n, line.strip()) for n, line in enumerate(io.StringIO(text), start=1))
        lines = [(n, line) for n, line in stripped if line and not line.startswith("#")]
        head = _HEAD.fullmatch(lines[0][1]) if lines else None
        if head is None:
            raise InputError(f"{where}: expected a first line such as 'all_reduce ring ranks=4 chunks=4'")
        collective, name, pairs, matrix = head.groups()
        values: dict[str, int] = {}
        for key, _, value in (pair.partition("=") for pair in pairs.split()):
            values[key] = _integer(value, where)
        rounds: list[Round] = []
        for number, line in lines[1:]:
            index, colon, rest = line.partition(":")
            if not colon or not index.isdecimal() or len(index) > 9 or int(index) != len(rounds):
                raise InputError(f"{where}:{number}: expected '{len(rounds)}: transfers', got {line[:40]!r}")
            try:
                rounds.append(tuple(Transfer.parse(word) for word in rest.split()))
            except InputError as error:
                raise InputError(f"{where}:{number}: {error}") from None
        known = {"ranks", "chunks", "root", "target", "scratch"}
        if not {"ranks", "chunks"} <= set(values) <= known:
            raise InputError(f"{where}: expected the keys ranks and chunks, and perhaps root, target and scratch")
        rows = matrix.split("/") if matrix else []
        counts = tuple(tuple(_integer(count, where) for count in row.split(",")) for row in rows)
        try:
            return cls(collective=collective, name=name, rounds=tuple(rounds), counts=counts, **values)  # type: ignore[arg-type]
        except ValueError as error:
            raise InputError(f"{where}: {error}") from None


def make(
    collective: Collective, name: str, ranks: int, rounds: Iterable[Iterable[Transfer]], *, chunks: int, root: int = 0,
    target: int = 0, scratch: int = 0, counts: Counts = (),
) -> Schedule:  # fmt: skip
    """Return the schedule of what a generator yields, round by round; rounds in which nothing happens are left out."""
    kept = tuple(transfers for transfers in map(_round, itertools.count(), rounds) if transfers)
    return Schedule(
        collective=collective, name=name, ranks=ranks, chunks=chunks, rounds=kept, root=root, target=target,
        scratch=scratch, counts=counts,
    )  # fmt: skip


def _round(number: int, transfers: Iterable[Transfer]) -> Round:
    """Return one round; ValueError, saying what was expected, for what is none."""
    if isinstance(transfers, Transfer) or not isinstance(transfers, Iterable):
        raise ValueError(
            f"round {number}: expected a list of Transfers for each round, got {transfers!r}: is the list flat?"
        )
    found = tuple(transfers)
    for t in found:
        if not isinstance(t, Transfer):
            raise ValueError(f"round {number}: expected a Transfer, got {t!r}")
        for key, slots in (("chunks", t.chunks), ("to", t.to)):
            if type(slots) is not tuple or any(type(slot) is not int for slot in slots):
                raise ValueError(
                    f"round {number}: Transfer({t.src}, {t.dst}): {key}: expected a tuple of slot numbers such as (0,) "
                    f"or (2, 3), got {slots!r}"
                )
    return found


def parallel(*parts: Sequence[Sequence[Transfer]]) -> Iterator[Round]:
    """Merge lists of rounds that run side by side: round k of the result holds round k of each of them."""
    for transfers in itertools.zip_longest(*parts, fillvalue=()):
        yield tuple(itertools.chain.from_iterable(transfers))


def format_slots(slots: Sequence[int]) -> str:
    """Print slot numbers in their order, runs shortened: (0, 1, 2, 7) is "0-2,7"."""
    runs: list[list[int]] = []
    for slot in slots:
        if runs and slot == runs[-1][1] + 1:
            runs[-1][1] = slot
        else:
            runs.append([slot, slot])
    return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in runs)


def _slots(text: str | None, where: str) -> tuple[int, ...]:
    slots: list[int] = []
    for part in text.split(",") if text else ():
        ends = [_integer(end, where) for end in part.split("-")]
        if len(ends) > 2 or ends[0] > ends[-1] or ends[-1] >= MAX_SLOTS or len(slots) > MAX_SLOTS:
            raise InputError(f"{where!r}: {part!r}: expected a slot such as 3 or a run such as 2-5")
        slots.extend(range(ends[0], ends[-1] + 1))
    return tuple(slots)


def _integer(text: str, where: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise InputError(f"{where}: {text[:20]!r}: expected a number")
    return int(text)
