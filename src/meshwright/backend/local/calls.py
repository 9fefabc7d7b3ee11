"""The ranks of a host tell each other what they call: a word beside the counter of each, compared where it is read.

Every collective is a row of steps, the same on all ranks (see ranks.py). Before its first step a rank writes what the
collective is into a ring of `CALLS` entries, by the number of the step, and one word of the entry beside its counter:
a number made of all that it has called so far, and the step. A rank that sees another at the first step reads
the word in the same line of the cache. If it is another than its own, the rank may be further already, and its ring
tells; if that differs too, the ranks disagree. A rank is at most as many steps ahead as there are slots, fewer than the
ring has entries. helper.c does the same.

A rank that gives up takes back what it is in: both words change, so that one that comes late, and needs to wait for
nobody, does not take what the other left for a sum that the other reports as failed. The ring still tells what it was.
"""

from collections.abc import Sequence
from typing import Any

from ..group.signature import Signature, mix
from ..hosts.placement import GroupMember
from .memory import CALL, CALLS, ENTRY, LINE, WORDS_OF_CALL

STEP_BITS = 16
WITHDRAWN = 2**64 - 2**STEP_BITS  # the bits to flip in the word of a withdrawn collective: all but the step
UNIFORM_MOST, NEEDED_BITS = (
    2**39 - 2,
    24,
)  # of what a rank says in an all-to-all: its steps; above them its equal blocks


class LocalCalls:
    """The calls of the ranks of a host, seen from one of them; `state` holds `first`, `chain` and `asked`."""

    def __init__(
        self, counters: Any, rings: Any, words: int, state: Any, rank: int, members: Sequence[GroupMember]
    ) -> None:
        """`rings` are the numbers of all ranks, `words` to each; `counters` their lines."""
        self._counters, self._rings, self._words = counters, rings, words
        self._state = state
        self._rank = rank
        self._members = members

    def ask(self, call: Signature) -> None:
        """Say what this rank calls next."""
        self._state.asked[:] = call

    def begin(self, first: int) -> None:
        """Begin the collective that was asked for, with step `first`."""
        chain = self._state.chain
        at = self._at(self._rank, first)
        for i, word in enumerate(self._state.asked):
            chain = mix(chain, word)
            self._rings[at + 1 + i] = word
        self._state.chain, self._state.first = chain, first
        word = self._rings[at] = chain >> STEP_BITS << STEP_BITS | first % 2**STEP_BITS
        self._counters[self._rank * LINE + CALL] = word

    def withdraw(self) -> None:
        """Take back the collective that this rank is in, after it has published that it gives up."""
        at = self._at(self._rank, self._state.first)
        self._counters[self._rank * LINE + CALL] = self._rings[at] = self._rings[at] ^ WITHDRAWN

    def _has_withdrawn(self, peer: int) -> bool:
        """Return whether a rank was in this collective and has taken it back."""
        first = self._state.first
        return bool(self._rings[self._at(peer, first)] == self._rings[self._at(self._rank, first)] ^ WITHDRAWN)

    def agrees(self, peer: int) -> bool:
        """Return whether a rank that has come to the first step of this collective is in the same one."""
        first = self._state.first
        mine = self._rings[self._at(self._rank, first)]
        return bool(self._counters[peer * LINE + CALL] == mine or self._rings[self._at(peer, first)] == mine)

    def disagreement(self) -> tuple[int, str] | None:
        """Return a rank whose call differs, and both calls in words; None if all ranks that have come call the same.

        Ranks that have taken back the same call are left out.
        """
        first, peers = self._state.first, [r for r in range(len(self._members)) if r != self._rank]
        come = [r for r in peers if self._counters[r * LINE] >= first]
        # in this order, and looked at once, since a rank may take back its call meanwhile
        others = [r for r in come if not self.agrees(r) and not self._has_withdrawn(r)]
        if not others:
            return None
        there = sorted([self._rank, *others, *(r for r in come if r not in others and not self._has_withdrawn(r))])
        step = next((step for step in range(max(1, first - CALLS + 1), first) if self._differs_at(step)), first)
        calls: dict[str, list[int]] = {}
        for peer in there:
            calls.setdefault(self._call_of(peer, step), []).append(peer)
        if len(calls) == 1:
            calls = {"something else before": others}
        usual = max(calls.values(), key=len)
        odd = next(peer for peers in calls.values() if peers is not usual or len(calls) == 1 for peer in peers)
        said = "; ".join(f"{self._names(peers)} in {call}" for call, peers in calls.items())
        return odd, f"the ranks disagree: {said}"

    def _differs_at(self, step: int) -> bool:
        """Return whether another rank has begun something else than this one at an earlier step."""
        if not self._is_of(self._rank, step):
            return False
        mine = self._call_of(self._rank, step)
        return any(self._is_of(r, step) and self._call_of(r, step) != mine for r in range(len(self._members)))

    def _is_of(self, peer: int, step: int) -> bool:
        return bool(self._rings[self._at(peer, step)] % 2**STEP_BITS == step % 2**STEP_BITS)

    def _call_of(self, peer: int, step: int) -> str:
        at = self._at(peer, step)
        if not self._is_of(peer, step):
            return "the middle of another collective"
        return str(Signature(*self._rings[at + 1 : at + 1 + WORDS_OF_CALL]))

    def _names(self, ranks: Sequence[int]) -> str:
        names = [str(self._members[rank]) for rank in ranks[:2]]
        return ", ".join(names) + (f" and {len(ranks) - 2} more" if len(ranks) > 2 else "")

    def _at(self, rank: int, step: int) -> int:
        return rank * self._words + step % CALLS * ENTRY

    # ---- the sizes of an all-to-all, which differ between ranks

    def say_sent(self, turn: int, needed: int, sent_bytes: Sequence[int]) -> int:
        """Say what this rank sends to each in the slots of `turn`; return what stands beside the steps it needs."""
        first = sent_bytes[0]
        if first <= UNIFORM_MOST and all(size == first for size in sent_bytes):
            return first + 1 << NEEDED_BITS | needed
        at = self._sent_at(self._rank, turn)
        for i, size in enumerate(sent_bytes):
            self._rings[at + i] = size
        return needed

    def sent_by(self, peer: int, turn: int, said: int) -> tuple[int, int]:
        """Return how many steps a rank needs, and how many bytes it sends to this one."""
        uniform = (said >> NEEDED_BITS) - 1
        sent = uniform if uniform >= 0 else self._rings[self._sent_at(peer, turn) + self._rank]
        return said % 2**NEEDED_BITS, sent

    def other_size(self, peer: int, sent_bytes: int, expected_bytes: int) -> str:
        """Return what is wrong where a rank sends something else than this one expects."""
        return (
            f"the ranks disagree: {self._members[peer]} sends {sent_bytes} B to {self._members[self._rank]}, "
            f"which expects {expected_bytes} B, in {self._call_of(self._rank, self._state.first)}"
        )

    def _sent_at(self, rank: int, turn: int) -> int:
        return rank * self._words + CALLS * ENTRY + turn * len(self._members)
