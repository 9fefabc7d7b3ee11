"""The verdict: what kind of fault, whose, in which call; the lines that show it, what is missing, what to try next."""

from typing import Literal

import msgspec

from ...units import ranks_in_words, shortened
from .evidence import Evidence, most_telling

Kind = Literal[
    "absent",
    "desync",
    "sizes",
    "circle",
    "stuck",
    "data",
    "host",
    "slow",
    "device",
    "device_memory",
    "host_memory",
    "network",
    "exception",
    "killed",
    "not_finite",
    "none",
]
MEANINGS: dict[str, str] = {
    "absent": "never came to the call that the others wait in",
    "desync": "makes another call than the others",
    "sizes": "makes the same call with another size or type",
    "circle": "groups or streams wait for each other",
    "stuck": "all are in the call and none gets out",
    "data": "loads or prepares data while the others wait",
    "host": "is stuck in a call of the host",
    "slow": "is late, not stuck",
    "device": "met a fault at its GPU or other accelerator",
    "device_memory": "ran out of GPU memory",
    "host_memory": "ran out of host memory",
    "network": "a link, or the way to a host, failed",
    "exception": "ended with an exception",
    "killed": "its process was killed",
    "not_finite": "trains on with values that are no numbers",
    "none": "nothing shows a fault",
}
NOT_TOLD = "ranks wait; whether one has not come, and which, is not told"  # absent, of nobody
_SILENT = "no word of its own while the others wait: it never came to their call, or what it wrote is not here"
MOST_PRINTED = 12


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of the files on why a job hung. `rank` is None where nobody is to blame, or nobody can be named."""

    kind: Kind
    rank: int | None
    unknown: bool
    group: str | None = None
    collective: str | None = None
    seq: int | None = None
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()  # those to blame where they are several
    waiting: tuple[int, ...] = ()
    rule: str = ""
    because: str = ""
    read: int = 0  # files that said anything
    silent: bool = False  # who is to blame left no word; the others' waits alone name it

    @property
    def blamed(self) -> tuple[int, ...]:
        """The ranks to blame, one or several."""
        return self.ranks or (() if self.rank is None else (self.rank,))

    @property
    def faulty(self) -> bool:
        """Whether anything shows a fault."""
        return self.kind != "none"

    @property
    def meaning(self) -> str:
        """What the kind says of who is to blame, or of nobody."""
        if self.kind == "absent" and self.silent:
            return _SILENT
        return NOT_TOLD if self.kind == "absent" and self.unknown and not self.blamed else MEANINGS[self.kind]

    def headline(self) -> str:
        """Return the verdict in one sentence."""
        if not self.faulty:
            return "nothing in these files shows a fault; that is not a bill of health"
        if self.rank is not None:
            who = f"rank {self.rank}"
        elif self.ranks:
            who = f"ranks {shortened(self.ranks)}"
        elif self.unknown:
            who = "who is to blame cannot be told"
        else:
            who = "no rank is to blame"
        return f"{who}: {self.kind} ({self.meaning})"

    def __str__(self) -> str:
        """Print it for a person: who, in which call, why; the lines in order of time; what is missing; what next."""
        lines = [self.headline()]
        if self.because:
            lines.append(f"because: {self.because} [{self.rule}]")
        call = " ".join(
            part for part in (self.collective or "", f"#{self.seq}" if self.seq is not None else "") if part
        )
        if call:
            lines.append(f"in: {call}{f' of group {self.group}' if self.group else ''}")
        if self.waiting:
            lines.append(f"waiting: {ranks_in_words(self.waiting)}")
        shown = most_telling(self.evidence, self.blamed, MOST_PRINTED)
        lines += [f"  {line.place}: {line.text}" for line in shown]
        if len(shown) < len(self.evidence):
            lines.append(f"  ... {len(self.evidence) - len(shown)} more lines; --json has them")
        lines += [f"missing: {what}" for what in self.missing]
        lines += [f"try: {what}" for what in self.next]
        return "\n".join(lines)
