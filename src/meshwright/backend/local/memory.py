"""Where everything lies in the memory that the ranks of a host share: plain arithmetic, the same on every rank.

counters   one line a rank: its step, its state, ...
mail       two lines for each ordered pair of ranks: messages written, messages read
texts      one a rank: why it gave up
calls      of each rank: its last collectives, and what it sends to each in an all-to-all, by the long slots, and
           where that lies in its own memory
slots      of each rank: `SLOTS` long ones of `slot_bytes`, `SHORT_SLOTS` of `SHORT_BYTES`, then `MAIL_SLOTS` of
           `mail_bytes` for each message line into that rank
"""

import mmap
import os
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError

PAGE = mmap.PAGESIZE
SLOTS = 2
SHORT_SLOTS, SHORT_BYTES = 16, 64 * 1024  # for a small broadcast, whose root need not wait for others; as in helper.h
LINE = 16  # counters of 8 bytes in a line: two cache lines, so that a neighbour is not fetched along
CALL = 7  # place in a line: what its last collective is, in the same line of the cache as its step
TEXT_BYTES = 512
CALLS, WORDS_OF_CALL = 32, 3  # the last collectives of a rank, and what says which each is; more than there are slots
ENTRY = 1 + WORDS_OF_CALL
MAIL_SLOTS = 4
MAIL_BUDGET_BYTES = 8 * 2**20  # for the messages of a whole group
MAIL_MAX_BYTES = 256 * 1024
SLOT_VARIABLE = "MESHWRIGHT_SLOT_BYTES"


@dataclass(frozen=True, slots=True)
class SegmentLayout:
    """The layout for `ranks` ranks with slots of `slot_bytes`."""

    ranks: int
    slot_bytes: int

    @property
    def counters_bytes(self) -> int:
        """Size of all counters, which start at offset 0."""
        return up(self.ranks * LINE * 8 + 2 * self.ranks**2 * LINE * 8)

    def mail_index(self, source: int, target: int) -> int:
        """Return the index of the counter of messages written on a line; that of messages read is one LINE further."""
        return (self.ranks + 2 * (source * self.ranks + target)) * LINE

    def text_at(self, rank: int) -> int:
        """Return the offset of a rank's text."""
        return self.counters_bytes + rank * TEXT_BYTES

    @property
    def common_bytes(self) -> int:
        """Size of what no rank in particular owns, at the start."""
        return self.calls_at + up(self.ranks * self.calls_words * 8)

    @property
    def calls_at(self) -> int:
        """Return the offset of what the ranks call."""
        return self.counters_bytes + up(self.ranks * TEXT_BYTES)

    @property
    def calls_words(self) -> int:
        """The number of 8-byte words in which a rank says what it calls: whole lines."""
        return -(-(CALLS * ENTRY + 2 * SLOTS * self.ranks) // LINE) * LINE

    @property
    def mail_bytes(self) -> int:
        """Size of one slot of a message line."""
        lines = max(1, self.ranks * (self.ranks - 1))
        return min(max(MAIL_BUDGET_BYTES // lines // MAIL_SLOTS // PAGE * PAGE, PAGE), MAIL_MAX_BYTES, self.slot_bytes)

    @property
    def own_bytes(self) -> int:
        """Size of the part that one rank owns: its slots, and its mailbox."""
        return up(self._slots_bytes + (self.ranks - 1) * MAIL_SLOTS * self.mail_bytes)

    @property
    def _slots_bytes(self) -> int:
        return SLOTS * self.slot_bytes + SHORT_SLOTS * SHORT_BYTES

    def own_at(self, rank: int) -> int:
        """Return the offset of the part that `rank` owns."""
        return self.common_bytes + rank * self.own_bytes

    def slot_at(self, rank: int, turn: int) -> int:
        """Return the offset of a slot; the short ones come after the long ones."""
        shorts = max(0, turn - SLOTS)
        return self.own_at(rank) + (turn - shorts) * self.slot_bytes + shorts * SHORT_BYTES

    def mail_at(self, source: int, target: int, turn: int) -> int:
        """Return the offset of a slot of the message line from `source` to `target`."""
        box = self.own_at(target) + self._slots_bytes
        return box + ((source - (source > target)) * MAIL_SLOTS + turn) * self.mail_bytes

    @property
    def total_bytes(self) -> int:
        """Size of everything."""
        return self.own_at(self.ranks)


def up(size_bytes: int) -> int:
    """Round up to whole pages."""
    return -(-size_bytes // PAGE) * PAGE


def asked_slot_bytes() -> int | None:
    """Return the bytes of a slot that `MESHWRIGHT_SLOT_BYTES` asks for, None where it is not set."""
    asked = os.environ.get(SLOT_VARIABLE)
    if asked is None:
        return None
    if not asked.isdecimal() or int(asked) < PAGE or int(asked) % PAGE:
        raise InputError(f"{SLOT_VARIABLE}={asked}: expected a multiple of {PAGE} bytes")
    return int(asked)


def default_slot_bytes() -> int:
    """Return the bytes of a slot where nobody asks for another size: those of the second-level cache.

    A rank touches its slot, its tensor and its peers' slots in turn. From half to twice the cache there is little
    difference; a quarter costs up to 20 % in waits, and four times up to 40 % in misses.
    """
    return min(max(second_level_cache_bytes(), 256 * 1024), 1024 * 1024)


def second_level_cache_bytes() -> int:
    """Return the size of this processor's second-level cache, or 512 KiB where the system does not tell."""
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text().strip()
        size, unit = int(text.rstrip("KM")), text[-1:]
    except (OSError, ValueError):
        return 512 * 1024
    return size * (2**20 if unit == "M" else 1024)
