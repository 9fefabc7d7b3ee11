"""Who is to blame where ranks of several hosts wait for each other: what each has left word of in the store.

A rank that waits in vain may wait for one that waits in vain itself. So each writes down for whom it waits, and follows
what the others wrote: the one at the end, who wrote nothing, is to blame. The store may be beyond a cable that is out,
and a request to it may never come back, so every request has a thread of its own and an end, and none follows one that
is overdue.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable
from typing import Any

BLAME_KEY, WAITS_KEY = "blame", "waits"
ANSWER_S = 3.0  # for a request to the store, whose host may be busy
WORD_S = 2.0  # for a rank to write for whom it waits itself: its patience began with its own last byte
LOOK_S = 0.02


class Hearsay:
    """What the ranks of one group leave word of, as one of them reads it."""

    def __init__(self, store: Any, rank: int) -> None:
        self._store = store
        self._rank = rank
        self._overdue: threading.Thread | None = None  # with a request that has not come back in time

    def culprit(self, suspect: int, what: str, *, lost: bool) -> tuple[int, str]:
        """Return the rank that is to blame and what it did, where `suspect` is late, or its connection is `lost`."""
        blamed = self._within(self._blamed)
        if blamed is not None or lost:
            return blamed or (suspect, what)
        if self._within(lambda: self._store.set(f"{WAITS_KEY}/{self._rank}", str(suspect)) or True) is None:
            return suspect, what  # the store is out of reach
        return self._follow(suspect, what)

    def tell(self, rank: int, what: str) -> None:
        """Leave word of who is to blame, unless somebody has."""
        self._within(lambda: self._blamed() or self._store.set(BLAME_KEY, json.dumps([rank, what])))

    def _blamed(self) -> tuple[int, str] | None:
        if not self._store.check([BLAME_KEY]):
            return None
        rank, what = json.loads(self._store.get(BLAME_KEY))
        return int(rank), str(what)

    def _follow(self, suspect: int, what: str) -> tuple[int, str]:
        """Return the first rank of the chain of those who wait that does not wait itself; `suspect` in a circle."""
        seen, rank, end = {self._rank}, suspect, time.monotonic() + WORD_S
        while rank not in seen:
            following = self._within(lambda rank=rank: self._waits_for(rank))  # type: ignore[misc]
            if following is not None:
                seen.add(rank)
                rank, end = following, time.monotonic() + WORD_S
            elif time.monotonic() > end:
                break
            else:
                time.sleep(LOOK_S)
        return self._within(self._blamed) or (suspect if rank in seen else rank, what)

    def _waits_for(self, rank: int) -> int | None:
        key = f"{WAITS_KEY}/{rank}"
        return int(self._store.get(key)) if self._store.check([key]) else None

    def _within(self, request: Callable[[], Any]) -> Any:
        """Return what a request to the store returns, None where it fails, or where it or one before it is overdue."""
        if self._overdue is not None and self._overdue.is_alive():
            return None
        answers: list[Any] = []

        def ask() -> None:
            with contextlib.suppress(Exception):  # the store may have gone with the rank that held it
                answers.append(request())

        asking = threading.Thread(target=ask, name="hearsay", daemon=True)
        asking.start()
        asking.join(ANSWER_S)
        if asking.is_alive():
            self._overdue = asking
        return answers[0] if answers else None
