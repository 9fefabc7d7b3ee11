"""The layout of shared memory: parts lie apart, counters on lines of their own, slots on pages."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.backend.local.memory import (
    LINE,
    MAIL_SLOTS,
    PAGE,
    SHORT_BYTES,
    SHORT_SLOTS,
    SLOTS,
    SegmentLayout,
    asked_slot_bytes,
)
from meshwright.errors import InputError


@given(ranks=st.integers(1, 40), pages=st.integers(1, 300))
def test_no_two_parts_overlap(ranks, pages):
    memory = SegmentLayout(ranks, pages * PAGE)
    parts = [(0, memory.counters_bytes), (memory.text_at(0), memory.text_at(ranks))]
    for rank in range(ranks):
        parts += [(memory.slot_at(rank, t), memory.slot_at(rank, t) + memory.slot_bytes) for t in range(SLOTS)]
        shorts = [memory.slot_at(rank, SLOTS + t) for t in range(SHORT_SLOTS)]
        parts += [(place, place + SHORT_BYTES) for place in shorts]
        for source in range(ranks):
            if source != rank:
                places = [memory.mail_at(source, rank, turn) for turn in range(MAIL_SLOTS)]
                parts += [(place, place + memory.mail_bytes) for place in places]
    parts.sort()

    assert all(end <= start for (_, end), (start, _) in pairwise(parts))
    assert parts[-1][1] <= memory.total_bytes
    assert memory.common_bytes % PAGE == memory.own_bytes % PAGE == 0


@given(ranks=st.integers(1, 40))
def test_every_counter_has_a_line_of_its_own(ranks):
    memory = SegmentLayout(ranks, PAGE)
    places = [rank * LINE for rank in range(ranks)]
    for source in range(ranks):
        for target in range(ranks):
            places += [memory.mail_index(source, target), memory.mail_index(source, target) + LINE]

    assert len(set(places)) == len(places)
    assert all(place % LINE == 0 for place in places)
    assert max(places) * 8 < memory.counters_bytes


@pytest.mark.parametrize("text", ["", "1M", "-4096", "4097", "0"])
def test_a_bad_slot_size_is_named(monkeypatch, text):
    monkeypatch.setenv("MESHWRIGHT_SLOT_BYTES", text)

    with pytest.raises(InputError, match="MESHWRIGHT_SLOT_BYTES=.*expected a multiple"):
        asked_slot_bytes()
