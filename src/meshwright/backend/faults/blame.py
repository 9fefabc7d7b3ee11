"""Blame across hosts, where ranks wait for each other: read from the notes that each left in the group's store.

The store may be beyond a cable that is out, and a request to it may never come back, so every request has a thread of
its own and an end, and none follows one that is overdue, whichever group asks.
"""

import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..hosts.placement import GroupMember
from .blame_board import LOOK_S, PROCESS_BLAME, WORD_S, BlamePropagator, Word, patience_s, word_in
from .failures import DISAGREE, FaultyRank

BLAME_KEY, WORD_KEY, CALLS_KEY = "blame", "word", "calls"
CALLS_S = 2 * WORD_S  # for a rank that calls something else to hear of the mismatch and publish its calls
ANSWER_S = 3.0  # for a request to the store, whose host may be busy


class Requests:
    """The requests of one process to its store, each on a thread of its own."""

    def __init__(self) -> None:
        self._overdue: threading.Thread | None = None  # with a request that has not come back in time

    @property
    def are_overdue(self) -> bool:
        """Whether a request has not come back yet: the rank that holds the store is frozen, or beyond a cable."""
        return self._overdue is not None and self._overdue.is_alive()

    def within(self, request: Callable[[], Any]) -> Any:
        """Return the answer to a request; None if it fails, or if it or an earlier request is overdue."""
        if self.are_overdue:
            return None
        answers: list[Any] = []

        def ask() -> None:
            with contextlib.suppress(Exception):  # the store may have gone with the rank that held it
                answers.append(request())

        asking = threading.Thread(target=ask, name="blame", daemon=True)
        asking.start()
        asking.join(ANSWER_S)
        if asking.is_alive():
            self._overdue = asking
        return answers[0] if answers else None


_REQUESTS = Requests()


class StoreBlameBoard:
    """The notes of the ranks of one group, as one of them reads them, and the board for its own."""

    def __init__(
        self, store: Any, me: GroupMember, propagator: BlamePropagator = PROCESS_BLAME, requests: Requests = _REQUESTS
    ) -> None:
        self._store = store
        self._me = me
        self._propagator = propagator
        self._requests = requests
        self._is_final = False
        self._writing = threading.Lock()
        propagator.join(self)

    def culprit(
        self,
        rank: int,
        suspect: FaultyRank,
        *,
        lost: bool,
        limit_s: float = WORD_S,
        differs: Callable[[Mapping[int, str]], str] = lambda calls: "",
    ) -> FaultyRank:
        """Return the culprit where `suspect`, `rank` of this group, did not come within its limit, or is `lost`.

        `differs` is given its last calls and says in what they are others than this rank's, "" where they are not.
        """

        def word() -> Word | None:
            found = self._word_of(rank)
            if lost or not (said := differs(self._calls_of(rank))):  # which it leaves before its word
                return found
            return Word(suspect._replace(what_happened=DISAGREE + said), final=True)

        if not lost:
            return self._propagator.follow(suspect, self._me.world_rank, word, patience_s(limit_s))
        found = word()
        return found.culprit if found is not None else suspect

    @property
    def is_out_of_reach(self) -> bool:
        """Whether the store does not answer: what others left there is not known."""
        return self._requests.are_overdue

    def tell(self, culprit: FaultyRank) -> None:
        """Publish the culprit to the whole group, unless another rank has already."""
        line = Word(culprit, final=True).line()
        self._requests.within(lambda: self._store.check([BLAME_KEY]) or self._store.set(BLAME_KEY, line))

    def leave_word(self, word: Word) -> None:
        """Leave this rank's word, unless its final one is there, or it is one that soon is old news."""
        if word.until_s < math.inf:
            return
        with self._writing:
            if not self._is_final:
                self._is_final = word.final
                self._requests.within(lambda: self._store.set(f"{WORD_KEY}/{self._me.rank}", word.line()))

    def leave_calls(self, calls: Mapping[int, str]) -> None:
        """Leave word of this rank's last calls, by their numbers, for one that finds that it calls something else."""
        text = json.dumps(list(calls.items()))
        self._requests.within(lambda: self._store.set(f"{CALLS_KEY}/{self._me.rank}", text))

    def calls_of(self, rank: int) -> dict[int, str]:
        """Return another rank's last calls, by their numbers; none if it does not leave word of them soon."""
        end = time.monotonic() + CALLS_S
        while time.monotonic() < end:
            if calls := self._calls_of(rank):
                return calls
            time.sleep(LOOK_S)
        return {}

    def _calls_of(self, rank: int) -> dict[int, str]:
        """Return another rank's last calls, by their numbers; none if it has not left word of them."""
        key = f"{CALLS_KEY}/{rank}"
        text: bytes | None = self._requests.within(lambda: self._store.get(key) if self._store.check([key]) else None)
        return dict(json.loads(text)) if text else {}

    def close(self) -> None:
        """Leave no more words."""
        self._propagator.part(self)

    def _word_of(self, rank: int) -> Word | None:
        """Return the word of the whole group, or else that of a rank."""

        def read() -> Word | None:
            key = next((key for key in (BLAME_KEY, f"{WORD_KEY}/{rank}") if self._store.check([key])), None)
            return word_in(self._store.get(key).decode()) if key is not None else None

        found: Word | None = self._requests.within(read)
        return found
