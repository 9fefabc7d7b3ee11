"""How the ranks of a group meet in a store that may hold what an earlier try left there.

Each rank publishes its identity with a fresh random word, then everything that it has read from the others, with its
answer. Once all have read the same, each knows that every other rank is in this very attempt: an earlier attempt cannot
have read its new word. From there on they use keys of this attempt alone. No rank waits for one that has failed: a
failure is published, and all ranks raise the same error.
"""

import contextlib
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from ...errors import InputError

PART_S = 3.0  # for the others to hear of a refusal
MEMBER, HEARD = "member", "heard"  # keys of the ranks that meet
LOOK_S = 5e-3  # between two looks at what the others have heard, where somebody heard an earlier try


class TryStore(dist.PrefixStore):
    """The part of a store that belongs to one try to make a group."""

    def __init__(self, prefix: str, store: Any) -> None:
        super().__init__(prefix, store)
        self._own: list[str] | None = []  # the keys of this rank, None once they are forgotten

    def set(self, key: str, value: str) -> None:
        """Write a value."""
        if self._own is not None:
            self._own.append(key)
        super().set(key, value)

    def forget(self) -> None:
        """Delete what this rank has written up to now, which all others have read; what follows stays."""
        for key in self._own or ():
            self.delete_key(key)
        self._own = None


class Meeting:
    """The ranks of a group in one try to make it. `store` is theirs alone.

    `said` is what each came with, and `answers` what each answered to what all said.
    """

    def __init__(self, store: Any, rank: int, heard: "_Heard") -> None:
        self.store = TryStore(heard.digest, store)
        self.rank = rank
        self.said = heard.said
        self.answers = heard.answers
        self._meeting_place: Any = store  # with the keys that are no longer looked at once all have met

    def gather(self, key: str, value: str) -> list[str]:
        """Return what every rank says under a key that is used once. Blocks; all ranks."""
        self.store.set(f"{key}/{self.rank}", value)
        found = _texts(self.store.multi_get([f"{key}/{rank}" for rank in range(len(self.said))]))
        if self._meeting_place is not None:
            for word in (MEMBER, HEARD):
                self._meeting_place.delete_key(f"{word}/{self.rank}")
            self._meeting_place = None
        return found

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


@dataclass(frozen=True, slots=True)
class _Heard:
    """The words of all ranks, with a digest of them."""

    digest: str
    said: list[str]
    refusals: list[str]
    answers: list[str]


def meet_ranks(store: Any, rank: int, size: int, say: Callable[[], str], answer: Callable[[list[str]], str]) -> Meeting:
    """Return the meeting of all ranks. Blocks; all ranks, which `gather` something before they meet here again.

    Each says what `say` returns, and answers to what all say with `answer`, which may be called more than once.
    InputError on all ranks where it is raised by `say` on one, with the rank in the message; TimeoutError, or torch's
    DistStoreError, where a rank does not come within the store's timeout, with that rank.
    """
    told = {"word": secrets.token_hex(16), "said": "", "refusal": ""}
    try:
        told["said"] = say()
    except InputError as error:
        told["refusal"] = str(error)
    store.set(f"{MEMBER}/{rank}", json.dumps(told))
    heard = _hear_the_same(store, rank, size, answer)
    meeting = Meeting(store, rank, heard)
    meeting.refuse(heard.refusals)
    return meeting


def _hear_the_same(store: Any, rank: int, size: int, answer: Callable[[list[str]], str]) -> _Heard:
    """Return what all ranks say and answer, once all have heard the same."""
    members, hearers = ([f"{key}/{peer}" for peer in range(size)] for key in (MEMBER, HEARD))
    timeout_s, start, told = store.timeout.total_seconds(), time.monotonic(), ""
    while True:
        texts = _texts(_all_of(store, members, timeout_s))
        digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:32]
        words = [json.loads(text) for text in texts]
        said, refusals = ([word[key] for word in words] for key in ("said", "refusal"))
        if digest != told:
            told = digest
            store.set(f"{HEARD}/{rank}", json.dumps([digest, "" if any(refusals) else answer(said)]))
        found = [json.loads(text) for text in _texts(_all_of(store, hearers, timeout_s))]
        if all(theirs == digest for theirs, _ in found):
            return _Heard(digest, said, refusals, [their_answer for _, their_answer in found])
        if time.monotonic() - start > timeout_s:
            others = ", ".join(str(peer) for peer in range(size) if found[peer][0] != digest)
            raise TimeoutError(f"ranks {others} of the group did not come within {timeout_s:g} s: an earlier try did")
        time.sleep(LOOK_S)


def _all_of(store: Any, keys: Sequence[str], timeout_s: float) -> list[bytes]:
    """Return what all ranks have set under their keys; DistStoreError that names the late ranks."""
    try:
        return list(store.multi_get(keys))
    except RuntimeError as error:  # a store of files raises no other
        late: list[str] = []
        with contextlib.suppress(RuntimeError):  # the store may be gone: that is the error then
            late = [str(rank) for rank, key in enumerate(keys) if not store.check([key])]
        if not late:
            raise
        who = f"rank{'s' * (len(late) > 1)} {', '.join(late)} of {len(keys)}"
        raise dist.DistStoreError(f"{who} did not join this group within {timeout_s:g} s") from error


def _texts(values: list[bytes]) -> list[str]:
    """Return what a store holds as text."""
    return [value.decode() for value in values]
