"""How the ranks of a group meet in a store that may hold what an earlier try left there.

Each says who it is, with a word that it has just thought of, and then what it has heard from all. Once all have heard
the same, each knows that every other is in this very try: the answer of an earlier one cannot hold its new word. From
there on they use keys of this try alone. Nobody waits for a rank that has failed: it says so, and all raise the same.
"""

import contextlib
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from ..errors import InputError

PART_S = 3.0  # for the others to hear of a refusal
LOOK_S = 5e-3  # between two looks at what the others have heard, where somebody heard an earlier try


class TryStore(dist.PrefixStore):
    """The part of a store that belongs to one try to make a group."""

    def __init__(self, prefix: str, store: Any) -> None:
        super().__init__(prefix, store)
        self._own: list[str] = []

    def set(self, key: str, value: str) -> None:
        """Write a value."""
        self._own.append(key)
        super().set(key, value)

    def forget(self) -> None:
        """Delete what this rank has written up to now; all others have read it."""
        for key in self._own:
            self.delete_key(key)
        self._own.clear()


class Meeting:
    """The ranks of a group in one try to make it. `store` is theirs alone, and what `said` each came with."""

    def __init__(self, store: TryStore, rank: int, said: list[str]) -> None:
        self.store = store
        self.rank = rank
        self.said = said

    def gather(self, key: str, value: str) -> list[str]:
        """Return what every rank says under a key that is used once. Blocks; all ranks."""
        self.store.set(f"{key}/{self.rank}", value)
        return texts(self.store.multi_get([f"{key}/{rank}" for rank in range(len(self.said))]))

    def has_said(self, key: str, rank: int) -> bool:
        """Return whether a rank has said something under a key."""
        return bool(self.store.check([f"{key}/{rank}"]))

    def refuse(self, refusals: Sequence[str]) -> None:
        """Raise the first refusal that is not empty, with its rank; all ranks call it with the same.

        The store may end with the rank that holds it, so the first of the group, or of the job, leaves last.
        """
        found = next(((rank, text) for rank, text in enumerate(refusals) if text), None)
        if found is None:
            return
        self.store.set(f"refused/{self.rank}", "")
        if self.rank == 0 or (dist.is_initialized() and dist.get_rank() == 0):
            with contextlib.suppress(Exception):  # it was worth a try
                others = [f"refused/{rank}" for rank in range(len(self.said))]
                self.store.wait(others, timedelta(seconds=PART_S))
        raise InputError(f"rank {found[0]} of the group: {found[1]}")


def meet(store: Any, rank: int, size: int, say: Callable[[], str]) -> Meeting:
    """Return the meeting of all ranks, each of which brings what `say` returns. Blocks; all ranks.

    InputError on all ranks where it is raised by `say` on one, with the rank in the message; TimeoutError, or torch's
    DistStoreError, where a rank does not come within the store's timeout.
    """
    told = {"word": secrets.token_hex(16)}
    try:
        told["said"] = say()
    except InputError as error:
        told["refusal"] = str(error)
    store.set(f"member/{rank}", json.dumps(told))
    heard = _hear_the_same(store, rank, size)
    meeting = Meeting(TryStore(_digest(heard), store), rank, heard)
    meeting.gather("met", "")  # all have heard the same, and look at what follows no more
    for key in ("member", "heard"):
        store.delete_key(f"{key}/{rank}")
    found = [json.loads(text) for text in heard]
    meeting.refuse([words.get("refusal", "") for words in found])
    meeting.said = [words["said"] for words in found]
    return meeting


def _hear_the_same(store: Any, rank: int, size: int) -> list[str]:
    """Return what all ranks say, once all have heard the same."""
    members, answers = ([f"{key}/{peer}" for peer in range(size)] for key in ("member", "heard"))
    timeout_s, start, told = store.timeout.total_seconds(), time.monotonic(), ""
    while True:
        heard = texts(store.multi_get(members))
        digest = _digest(heard)
        if digest != told:
            store.set(f"heard/{rank}", digest)
            told = digest
        found = texts(store.multi_get(answers))
        if all(answer == digest for answer in found):
            return heard
        if time.monotonic() - start > timeout_s:
            others = ", ".join(str(peer) for peer in range(size) if found[peer] != digest)
            raise TimeoutError(f"ranks {others} of the group did not come within {timeout_s:g} s: an earlier try did")
        time.sleep(LOOK_S)


def texts(values: list[bytes]) -> list[str]:
    """Return what a store holds as text."""
    return [value.decode() for value in values]


def _digest(heard: list[str]) -> str:
    return hashlib.sha256("\n".join(heard).encode()).hexdigest()[:32]
