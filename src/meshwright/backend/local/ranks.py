"""The ranks of one host and the memory that they share: slots, counters, and the rule that keeps them apart.

Order: every collective is a row of steps, the same on all ranks. In a step a rank (1) takes the next slot in turn,
(2) fills it, (3) raises its counter to the step's number, (4) waits for the counters of those it reads, (5) reads their
slots. So a counter of q means: "my slot of step q is filled, and I have read all that I shall read of steps before q".
A slot last read in step q is free for its owner when every counter has reached q + 1; a rank that itself reads nothing
in a step still raises its counter when it enters. The rule holds across collectives of every kind.

A rank writes sooner to what it has just read than to what others have read. So what one rank leaves for one other goes
into its own slot and into the other's by turns (`shared_slot_of`), and sums go into the slots that they were made from.
"""

import ctypes
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..faults.blame_board import PROCESS_BLAME, BlamePropagator, Word, patience_s, word_in
from ..faults.failures import CollectiveError, CollectiveMismatch, FaultyRank, failure_of
from ..faults.flight import FlightRecord, forget_group, remember, write_flights
from ..hosts.placement import GroupMember
from .calls import LocalCalls
from .helper import FILLING_BYTES, MAX_RANKS, GroupState, Native, claim_bytes, load_helper
from .memory import CALL, LINE, SHORT_SLOTS, SLOTS, TEXT_BYTES
from .reductions import Block, Reduction
from .segment import Segment
from .waiting import CHECK_NS, LivenessWatch, Patience, make_fence
from .weak import weakly

STATE, STEPS = 1, 2  # places in a line; at 0 is the step, at STEPS and after the steps needed, one for each slot
HERE = STEPS + SLOTS  # the step that the next collective begins with, once this rank has come to it
WORDS = HERE + 1  # how often this rank began or ended to leave word; odd while it writes
PLACE = WORDS + 1  # one more than the processor that this rank runs on, in a crowded group; 0 where it does not say
READS = CALL + 1  # 1 where this rank may read the memory of all others
WHOLE_BYTES = {2: 64 * 1024}  # by ranks; up to here every rank reads all that the others have to be reduced
WHOLE_BYTES_OTHERWISE = 128 * 1024
CHUNKS = 16  # of an all-reduce that is neither short nor long
BLOCK_BYTES = 512 * 1024  # of a slot at most, for all readers; two of them and what is moved fit into a cache
STREAM_BYTES = 4 * 2**20  # results from here on leave the caches to others
LINE_BYTES = 64  # of a cache
UNREAD_S = 0.5  # how long to try again if a rank's memory can no longer be read: the rank may be ending
HINT_AFTER_S, HINT_S = 0.5, 1.5  # after which wait a rank publishes whom it waits for, and how long that holds
ACTIVE, LEFT, BROKEN = 1, 2, 3  # values of STATE
SEQUENCE, SEEN, _, LONGS, SHORTS, LAPS = range(6)  # places in the state of the steps, the first of struct Group
FREE = LAPS + SLOTS
FIRST = FREE + SLOTS + SHORT_SLOTS


class LocalGroup:
    """The shared memory of the ranks of one host in one group, seen from one of them.

    `rank` and `size` count within the host; `members` are in that order. `propagator` is the blame of this rank in all
    its groups.
    """

    def __init__(
        self,
        segment: Segment,
        members: Sequence[GroupMember],
        me: GroupMember,
        timeout_s: float,
        propagator: BlamePropagator = PROCESS_BLAME,
    ) -> None:
        self.members = tuple(members)
        self.size = len(members)
        self.rank = self.members.index(me)
        memory = self.memory = segment.memory
        self.slot_bytes = memory.slot_bytes
        readers = max(1, self.size - 1)
        self.part_bytes = self.slot_bytes // readers // LINE_BYTES * LINE_BYTES
        self.block_bytes = min(self.part_bytes, BLOCK_BYTES // readers // LINE_BYTES * LINE_BYTES)
        self.least_chunk_bytes = self.slot_bytes // (2 if self.size == 2 else 4)  # of an all-reduce
        self.whole_bytes = min(WHOLE_BYTES.get(self.size, WHOLE_BYTES_OTHERWISE), self.slot_bytes // 4)
        self.stream_bytes = STREAM_BYTES
        self.flight = FlightRecord(me.world_rank)
        self.timeout_s = timeout_s
        self.buffer = segment.buffer
        self.counters = memoryview(self.buffer)[: memory.counters_bytes].cast("Q")
        self.base = np.frombuffer(self.buffer, np.uint8).ctypes.data
        self.slot_offset = [[memory.slot_at(r, turn) for turn in range(SLOTS + SHORT_SLOTS)] for r in range(self.size)]
        self.slot_address = [[self.base + offset for offset in offsets] for offsets in self.slot_offset]
        self.mine = self.rank * LINE
        self.peers = [(self.rank + i) % self.size for i in range(1, self.size)]
        self.peer_indices = [peer * LINE for peer in self.peers]
        storage = bytearray(ctypes.sizeof(GroupState))
        state = GroupState.from_buffer(storage)
        self.steps = memoryview(storage)[: GroupState.given.offset].cast("Q")  # the C helper works on them too
        self.free = self.steps[FREE:FIRST]  # what every counter must reach before the slot may be filled again
        rings = memoryview(self.buffer)[memory.calls_at : memory.common_bytes].cast("Q")
        self.calls = LocalCalls(self.counters, rings, memory.calls_words, state, self.rank, self.members)
        self.ask = self.calls.ask
        self._state = state
        self.plans: dict[tuple[int, Reduction], Any] = {}
        self.broken: CollectiveError | None = None
        self._next_hint_s = 0.0
        self.before_blame: Callable[[], object] = lambda: None  # called by a rank that has waited too long
        cores = len({core for member in members for core in member.cores})
        self.crowded = self.size >= cores
        helper = load_helper()
        self.fence: Callable[[], object] | None = make_fence()
        self.patience = Patience(self.counters, self.base, crowded=self.size > cores, helper=helper)
        self.native = None if helper is None or self.size > MAX_RANKS else self._with_helper(helper, me, cores)
        self._lives = LivenessWatch(segment.lives)
        self._typed: dict[Reduction, list[list[Block]]] = {}
        self._writing = threading.Lock()
        self.counters[self.mine + STATE] = ACTIVE
        self._propagator = propagator
        remember(self)
        self._propagator.join(self)

    def _with_helper(self, helper: ctypes.CDLL, me: GroupMember, cores: int) -> Native:
        """Tell the C helper where everything is, and find out what this rank may read of the others."""
        state, memory, readers = self._state, self.memory, max(1, self.size - 1)
        state.counters, state.slots = self.base, self.base + memory.common_bytes
        state.calls, state.calls_words = self.base + memory.calls_at, memory.calls_words
        state.slot_bytes, state.own_bytes = self.slot_bytes, memory.own_bytes
        state.part_bytes, state.block_bytes = self.part_bytes, self.block_bytes
        state.least_chunk_bytes, state.whole_bytes = self.least_chunk_bytes, self.whole_bytes
        state.stream_bytes, state.lend_bytes = self.stream_bytes, FILLING_BYTES
        state.claim_bytes, state.steps = claim_bytes(helper, readers), STEPS
        state.rank, state.size = self.rank, self.size
        state.spins, state.yield_ns = self.patience.helper_spins, self.patience.helper_yield_ns
        state.patience_ns = CHECK_NS
        state.place = PLACE if self.size > cores else 0
        state.pids = (ctypes.c_int64 * self.size)(*(member.pid for member in self.members))
        self.counters[self.mine + READS] = all(
            me.shares_pids_with(member) and helper.mw_may_read(member.pid) for member in self.members
        )
        return Native(helper, state, weakly(self.check), weakly(self._all_may_read))

    def _all_may_read(self) -> bool:
        """Return whether each rank may read the memory of the others, once all have come to a collective."""
        return all(self.counters[rank * LINE + READS] for rank in range(self.size))

    def chunk_bytes(self, payload_bytes: int) -> int:
        """Return how much of a payload, in all its pieces, the ranks reduce between two steps.

        At each step ranks wait for the slowest, and ranks that share a processor take turns on it, so large payloads
        have large chunks: 128 MiB on 4 ranks and 2 processors take a seventh less time than with the smallest chunks.
        """
        share = payload_bytes // CHUNKS // LINE_BYTES * LINE_BYTES
        return min(max(share, self.least_chunk_bytes), self.slot_bytes)

    # ---- the steps

    @property
    def sequence(self) -> int:
        """The last step that this rank entered."""
        return self.steps[SEQUENCE]

    @property
    def seen(self) -> int:
        """The least value that every counter is known to have."""
        return self.steps[SEEN]

    @seen.setter
    def seen(self, number: int) -> None:
        self.steps[SEEN] = number

    def begin(self) -> None:
        """Begin the collective that was asked for; before its first step."""
        self.calls.begin(self.sequence + 1)

    def free_slots(self, *, short: bool = False) -> int:
        """Return which slots the next step takes, short ones or long ones, once they may be filled."""
        turn = self.next_slots(short=short)
        if self.seen < self.free[turn]:
            self.wait_all(self.free[turn])
        return turn

    def next_slots(self, *, short: bool = False) -> int:
        """Return which slots the next step takes, for a rank that fills none."""
        return SLOTS + self.steps[SHORTS] % SHORT_SLOTS if short else self.steps[LONGS] % SLOTS

    def pass_slots(self, turn: int) -> None:
        """Leave the slots to the next step, once all have left this step."""
        self.free[turn] = self.sequence + 1
        self.steps[LONGS if turn < SLOTS else SHORTS] += 1

    def flip_parity(self, turn: int) -> None:
        """Leave a chunk that has gone through long slots, of which each rank has finished with what others wrote.

        The next chunk may go into the same slots: the ranks fill what they have read themselves.
        """
        self.steps[LAPS + turn] += 1

    def shared_slot_of(self, writer: int, reader: int, turn: int) -> tuple[int, int]:
        """Return where `writer` leaves what `reader` alone reads: whose slot it is, and the offset in it.

        It is the reader's part of the writer's slot and, the next time, the writer's part of the reader's.
        """
        owner, other = (reader, writer) if self.steps[LAPS + turn] & 1 else (writer, reader)
        return owner, (other - (other > owner)) * self.part_bytes

    def broadcast_slot_owner(self, writer: int, turn: int) -> int:
        """Return in whose slot `writer` leaves what all others read: its own, or of two ranks by turns."""
        return self.shared_slot_of(writer, 1 - writer, turn)[0] if self.size == 2 else writer

    def address_between(self, writer: int, reader: int, turn: int) -> int:
        """Return the address of `shared_slot_of`."""
        owner, offset = self.shared_slot_of(writer, reader, turn)
        return self.slot_address[owner][turn] + offset

    def post(self) -> int:
        """Enter the next step, with the slot filled, and return its number."""
        if self.fence is not None:
            self.fence()
        number = self.steps[SEQUENCE] = self.steps[SEQUENCE] + 1
        self.counters[self.mine] = number
        return number

    def wait_all(self, number: int) -> None:
        """Return when every rank has entered step `number`."""
        counters = self.counters
        for index in self.peer_indices:
            if counters[index] < number:
                self.patience.wait(index, number, self.check)
        if number == self.steps[FIRST] and not all(map(self.calls.agrees, self.peers)):
            raise self._mismatch()
        self.seen = number

    def wait(self, rank: int, number: int) -> None:
        """Return when `rank` has entered step `number`."""
        if self.counters[rank * LINE] < number:
            self.patience.wait(rank * LINE, number, self.check)
        if number == self.steps[FIRST] and not self.calls.agrees(rank):
            raise self._mismatch()

    def wait_to_come(self, ranks: Sequence[int]) -> None:
        """Return when these ranks have come to the collective that this one is in, of which it wants nothing else.

        What it has left for them would do for a while. But a rank that refuses the call and goes on with another is
        then heard of here, and not at some later call.
        """
        for rank in ranks:
            self.wait(rank, self.steps[FIRST])

    def needed_by(self, peer: int, turn: int, expected_bytes: int) -> int:
        """Return how many steps of an all-to-all a rank needs that has come; `expected_bytes` is what it is to send."""
        needed, sent_bytes = self.calls.sent_by(peer, turn, self.counters[peer * LINE + STEPS + turn])
        if sent_bytes != expected_bytes:
            raise self._refused(peer, self.calls.other_size(peer, sent_bytes, expected_bytes))
        return needed

    def announce_and_poll(self, seconds: float) -> bool:
        """Say that this rank has come to its next collective; return whether all have, after `seconds` at most.

        A rank that did not say so has come all the same when it is in the collective's first step.
        """
        counters, number = self.counters, self.sequence + 1
        counters[self.mine + HERE] = number
        start = time.monotonic()
        for index in self.peer_indices:
            while counters[index + HERE] < number and counters[index] < number:
                waited_s = time.monotonic() - start
                if waited_s > seconds:
                    return False
                self.patience.glance(index + HERE, number, waited_s)
        return True

    def typed(self, kind: Reduction) -> list[list[Block]]:
        """Return the long slots as blocks of one element type: [rank][slot]."""
        blocks = self._typed.get(kind)
        if blocks is None:
            count = self.slot_bytes // kind.item_bytes
            blocks = [
                [kind.view(self.buffer, offset, count) for offset in offsets[:SLOTS]] for offsets in self.slot_offset
            ]
            self._typed[kind] = blocks
        return blocks

    # ---- trouble

    def check(self, index: int, target: int, waited_s: float) -> None:
        """Raise if counter `index` cannot reach `target` any more. Called every few milliseconds of a long wait."""
        counters = self.counters
        if (found := self.calls.disagreement()) is not None:
            raise self._refused(*found)
        if self._state.odd_rank:
            peer, sent_bytes = self._state.odd_rank - 1, self._state.odd_bytes
            raise self._refused(peer, self.calls.other_size(peer, sent_bytes, self._state.received[peer]))
        late = [peer for peer in self.peers if counters[peer * LINE] < target]
        if late and waited_s > HINT_AFTER_S and self._propagator.has_several_boards:
            self.wait_for(self.members[late[0]], self.flight.current())
        limit_s = self.flight.time_limit_s(self.timeout_s)
        error = self.diagnose_wait(
            late, waited_s, limit_s, self.flight.current(), lambda peer: counters[peer * LINE] >= target
        )
        if error is None and self._state.unread_rank and waited_s > UNREAD_S:
            unread = self.members[self._state.unread_rank - 1]
            error = self.failure(FaultyRank.of(unread, "let nobody read its memory any more"), self.flight.current())
        if error is not None:
            self._withdraw()
            raise error

    def _withdraw(self) -> None:
        """Take back the call that this rank is in, once it has said that it gives up: who comes late then hears of it.

        A rank that had left the group before does not say so, and takes nothing back.
        """
        if self.counters[self.mine + STATE] == BROKEN:
            if self.fence is not None:
                self.fence()
            self.calls.withdraw()

    def wait_for(self, awaited: GroupMember, call: tuple[str, int, int]) -> None:
        """Publish from time to time, for ranks that wait for this one, that in `call` it waits for `awaited`."""
        now = time.monotonic()
        if now < self._next_hint_s:
            return
        self._next_hint_s = now + HINT_S / 3
        name, sequence, _ = call
        culprit = FaultyRank.of(awaited, f"did not come to {name} #{sequence}")
        word = self._word_of(self.members.index(awaited)) if awaited in self.members else None
        if word is not None and word.culprit.rank != self.flight.rank:
            culprit = word.culprit
        self._propagator.say(culprit, final=False, until_s=now + HINT_S)

    def diagnose_wait(
        self,
        late: Sequence[int],
        waited_s: float,
        limit_s: float,
        call: tuple[str, int, int],
        arrived: Callable[[int], bool],
        *,
        may_wait: bool = False,
    ) -> CollectiveError | None:
        """Return the error if the ranks in `late` can no longer arrive (and give up), else None.

        `call` is the name, number and bytes of what waits; `arrived(peer)` looks once more at what a rank that has
        ended left behind; `may_wait`: the late ones may wait for others of this group, as they never do in one
        collective.
        """
        counters = self.counters
        if (culprit := self.own_fault()) is not None:
            return self.failure(culprit, call)
        for peer in self.peers:
            if counters[peer * LINE + STATE] == BROKEN:
                return self.failure(self.blamed(peer, "gave up"), call)
        for peer in late:
            if self._lives.ended(peer) and not arrived(peer):
                return self.failure(self.blamed(peer, "died"), call)
            if self.has_left(peer) and not arrived(peer):
                return self.failure(self.blamed(peer, "has left the group"), call)
        if waited_s > limit_s and late:
            last = min(late, key=lambda peer: counters[peer * LINE])
            culprit = FaultyRank.of(self.members[last], f"did not arrive within {limit_s:g} s")
            self.before_blame()
            if may_wait or self._propagator.has_several_boards or self._word_of(last):
                within_s = patience_s(limit_s)
                culprit = self._propagator.follow(culprit, self.flight.rank, lambda: self._word_of(last), within_s)
            return self.failure(culprit, call)
        return None

    def diagnose_p2p_wait(
        self, late: Sequence[int], waited_s: float, call: tuple[str, int, int], arrived: Callable[[int], bool]
    ) -> CollectiveError | None:
        """Return the same for a send or receive, in which the late rank may wait for a third one's message."""
        if len(late) == 1 and waited_s > HINT_AFTER_S:
            self.wait_for(self.members[late[0]], call)
        return self.diagnose_wait(late, waited_s, self.timeout_s, call, arrived, may_wait=True)

    def own_fault(self) -> FaultyRank | None:
        """Return the culprit where another thread of this rank has given up, or has ended the group; else None."""
        if self.broken is None:
            return None
        return self.blamed(self.rank, "has left the group" if self.has_left(self.rank) else "gave up")

    def has_left(self, peer: int) -> bool:
        """Return whether a rank has left the group."""
        return bool(self.counters[peer * LINE + STATE] == LEFT)

    def failure(self, culprit: FaultyRank, call: tuple[str, int, int]) -> CollectiveError:
        """Give up and return the error: the culprit, and the name, number and bytes of the call that failed."""
        name, sequence, size_bytes = call
        error = failure_of(culprit, operation=name, sequence=sequence, size_bytes=size_bytes)
        self.give_up(error, culprit)
        return error

    def _mismatch(self) -> CollectiveError:
        """Give up because a rank that has come is in another collective, or has given up in this one."""
        if (found := self.calls.disagreement()) is not None:
            return self._refused(*found)
        gone = next(peer for peer in self.peers if self.counters[peer * LINE + STATE] == BROKEN)
        return self.failure(self.blamed(gone, "gave up"), self.flight.current())

    def _refused(self, peer: int, message: str) -> CollectiveError:
        """Give up because `peer` calls something else, and return the error."""
        culprit = FaultyRank.of(self.members[peer], message)
        error = CollectiveMismatch(message, culprit)
        self.give_up(error, culprit)
        return error

    def give_up(self, error: CollectiveError, culprit: FaultyRank) -> None:
        """Mark this group as broken, here and for the ranks that wait for this one; leave word in all others."""
        self.broken = error
        if self.counters[self.mine + STATE] == ACTIVE:
            self.leave_word(Word(culprit, final=True))
            self.counters[self.mine + STATE] = BROKEN
        self._propagator.say(culprit, final=True)
        self.flight.reason = str(error)
        write_flights()

    def arrivals(self) -> dict[int, int]:
        """Return the last step that each rank of this host has entered."""
        return {member.world_rank: int(self.counters[i * LINE]) for i, member in enumerate(self.members)}

    def given_up(self) -> set[int]:
        """Return the ranks of this host that have given up, in this group or another."""
        words = {member.world_rank: self._word_of(i) for i, member in enumerate(self.members)}
        return {rank for rank, word in words.items() if word is not None and word.final}

    def leave_word(self, word: Word) -> None:
        """Leave this rank's word for the others of the group, unless its final one is there."""
        with self._writing:
            before = self._word_of(self.rank)
            if before is not None and before.final:
                return
            start, line = self.memory.text_at(self.rank), word.line().encode()[:TEXT_BYTES]
            self._count_words()
            self.buffer[start : start + TEXT_BYTES] = line.ljust(TEXT_BYTES, b"\0")
            self._count_words()

    def _count_words(self) -> None:
        """Say that this rank begins or ends to leave word: after all that it wrote before, before all that follows."""
        if self.fence is not None:
            self.fence()
        self.counters[self.mine + WORDS] += 1
        if self.fence is not None:
            self.fence()

    def _word_of(self, peer: int) -> Word | None:
        """Return the word that a rank has left, None where there is none, or it is just being written."""
        at, start = peer * LINE + WORDS, self.memory.text_at(peer)
        times = self.counters[at]
        line = bytes(self.buffer[start : start + TEXT_BYTES])
        if not times or times % 2 or self.counters[at] != times:
            return None
        word = word_in(line.rstrip(b"\0").decode(errors="replace"))
        return word if word.until_s > time.monotonic() else None

    def blamed(self, peer: int, what_happened: str) -> FaultyRank:
        """Return the culprit behind a rank that takes part no longer: the one that it blames, or else itself.

        That it waited for another a moment ago is no reason to have gone.
        """
        word = self._word_of(peer)
        if word is None or word.until_s < math.inf:
            return FaultyRank.of(self.members[peer], what_happened)
        return word.culprit

    def leave(self) -> None:
        """Tell the others that this rank takes part no longer; the memory goes when the last of them has left."""
        if self.counters[self.mine + STATE] == ACTIVE:
            self.counters[self.mine + STATE] = LEFT
        self._lives.close()
        forget_group(self)
        self._propagator.part(self)
