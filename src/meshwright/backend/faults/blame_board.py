"""Blame across groups: each rank publishes which rank it blames, in every group that it belongs to.

A rank that times out may be waiting for one that times out itself, in this group or in a group unknown to the first.
So each rank publishes the rank that it blames on the board of every group of its process, and adopts the entry of the
rank that it waits for. A rank without an entry is the culprit.
"""

import math
import threading
import time
import weakref
from collections.abc import Callable
from typing import NamedTuple, Protocol

from .failures import DISAGREE, FaultyRank

WORD_S = 2.0  # for a rank to leave word itself: its patience began with its own last byte
LOOK_S = 0.02
CIRCLE_S = 0.5  # for ranks that wait in a circle and time out together: one may yet find a call that differs


def patience_s(limit_s: float) -> float:
    """Return how long a rank whose wait has reached its limit looks for a word of the rank that it waits for."""
    return min(WORD_S, limit_s)


class Word(NamedTuple):
    """The rank that a rank blames; `final`: it has given up, and does not look any further.

    One that only waits, with patience left, says so for a while: `until_s` of the machine's monotonic clock.
    """

    culprit: FaultyRank
    final: bool
    until_s: float = math.inf

    def line(self) -> str:
        """Return the word in one line, of which the end may be cut off."""
        rank, host, pid, what_happened = self.culprit
        return f"{self.final:d} {self.until_s} {rank} {pid} {host} {what_happened}"


def word_in(line: str) -> Word:
    """Return the word that a line holds."""
    final, until_s, rank, pid, host, what_happened = line.split(" ", 5)
    return Word(FaultyRank(int(rank), host, int(pid), what_happened), final == "1", float(until_s))


class BlameBoard(Protocol):
    """Where the ranks of one group leave word for each other."""

    def leave_word(self, word: Word) -> None:
        """Leave this rank's word, unless its final one is there: the first reason to give up is the reason.

        Several threads of the rank may call at once.
        """


class BlamePropagator:
    """The blame of one rank, in all its groups."""

    def __init__(self) -> None:
        self._boards: weakref.WeakSet[BlameBoard] = weakref.WeakSet()
        self._lock = threading.Lock()

    def join(self, board: BlameBoard) -> None:
        """Leave word on this board too, as long as it lives."""
        with self._lock:
            self._boards.add(board)

    def part(self, board: BlameBoard) -> None:
        """Leave no more words on a board."""
        with self._lock:
            self._boards.discard(board)

    def forget_boards(self) -> None:
        """Leave words nowhere any more: in a forked child, whose parent's they are, and perhaps the lock too."""
        self._boards, self._lock = weakref.WeakSet(), threading.Lock()

    @property
    def has_several_boards(self) -> bool:
        """True if this process belongs to another group besides the caller's."""
        return len(self._boards) > 1

    def say(self, culprit: FaultyRank, *, final: bool, until_s: float = math.inf) -> None:
        """Leave word of whom this rank blames, or only waits for until then."""
        with self._lock:
            boards = list(self._boards)
        for board in boards:
            board.leave_word(Word(culprit, final, until_s))

    def follow(
        self, suspect: FaultyRank, me: int, word_of_suspect: Callable[[], Word | None], within_s: float = WORD_S
    ) -> FaultyRank:
        """Return the culprit where `suspect` is late: the rank that it blames itself, if it publishes one `within_s`.

        Entries pass from rank to rank; one that comes back to rank `me` means that the ranks wait in a circle: the
        suspect is to blame, unless one of them soon finds that another calls something else.
        """
        blamed = suspect
        self.say(blamed, final=False)
        end = time.monotonic() + within_s
        is_circle = False
        while time.monotonic() < end:
            word = word_of_suspect()
            if word is not None:
                comes_back = word.culprit.rank == me and not word.culprit.what_happened.startswith(DISAGREE)
                if word.final:
                    return suspect if comes_back else word.culprit
                if comes_back and not is_circle:
                    blamed, is_circle, end = suspect, True, time.monotonic() + min(CIRCLE_S, within_s)
                elif not comes_back and not is_circle and word.culprit != blamed:
                    blamed, end = word.culprit, time.monotonic() + within_s
                    self.say(blamed, final=False)
            time.sleep(LOOK_S)
        return blamed


PROCESS_BLAME = BlamePropagator()  # of all groups of this process, unless a group is given one of its own
