"""Schedules: their text form, what cannot be held, and what is refused when it is parsed."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.collectives.algorithms.ring import ring_all_gather, ring_all_reduce
from meshwright.collectives.schedules.schedule import Schedule, Transfer
from meshwright.errors import InputError


@st.composite
def schedules(draw):
    ranks, chunks, scratch = draw(st.integers(1, 5)), draw(st.integers(0, 5)), draw(st.integers(0, 3))
    slots = st.lists(st.integers(0, chunks + scratch - 1), unique=True, max_size=4) if chunks + scratch else st.just([])
    rank = st.integers(0, ranks - 1)

    @st.composite
    def transfer(draw):
        chunks = draw(slots)
        to = draw(st.just([]) | slots.filter(lambda s: len(s) == len(chunks)))
        return Transfer(draw(rank), draw(rank), tuple(chunks), draw(st.booleans()), tuple(to))

    return Schedule(
        collective=draw(st.sampled_from(["all_reduce", "broadcast", "all_to_all"])),
        name="drawn",
        ranks=ranks,
        chunks=chunks,
        scratch=scratch,
        root=draw(rank),
        target=draw(rank),
        rounds=tuple(map(tuple, draw(st.lists(st.lists(transfer(), max_size=3), max_size=4)))),
    )


@given(schedules())
def test_text_and_json_parse_back(schedule):
    assert Schedule.parse(str(schedule)) == schedule
    assert msgspec.json.decode(msgspec.json.encode(schedule), type=Schedule) == schedule


def test_a_schedule_reads_like_its_drawing():
    assert (
        str(ring_all_reduce(3))
        == """\
all_reduce ring ranks=3 chunks=3
0: c2:0>+1 c0:1>+2 c1:2>+0
1: c1:0>+1 c2:1>+2 c0:2>+0
2: c0:0>1 c1:1>2 c2:2>0
3: c2:0>1 c0:1>2 c1:2>0
"""
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected a first line"),
        ("all_reduce ring ranks=3", "expected the keys"),
        ("all_reduce ring ranks=3 chunks=1 roof=1", "expected the keys"),
        ("all_sum ring ranks=3 chunks=1", "expected one of all_reduce"),
        ("all_reduce ring ranks=99999999999999 chunks=1", "expected a number"),
        ("all_reduce ring ranks=3 chunks=99999999", "chunks, scratch"),
        ("all_reduce ring ranks=2 chunks=1\n1: c0:0>1", r"schedule:2: expected '0: transfers'"),
        ("all_reduce ring ranks=2 chunks=1\n0: c0:0>", "schedule:2: .*expected a transfer"),
        ("all_reduce ring ranks=2 chunks=1\n0: c0:0>2", "no such rank"),
        ("all_reduce ring ranks=2 chunks=1\n0: c1:0>1", "no such slot"),
        ("all_reduce ring ranks=2 chunks=2\n0: c0-1->c0:0>1", "as many existing slots"),
        ("all_reduce ring ranks=2 chunks=2\n0: c0,0:0>1", "the same slot twice"),
        ("all_reduce ring ranks=2 chunks=2\n0: c1-0:0>1", "a run such as"),
        ("all_reduce ring ranks=2 chunks=2\n0: c0-999999999:0>1", "a run such as"),
    ],
)
def test_bad_text_is_refused_with_the_line(text, reason):
    with pytest.raises(InputError, match=reason):
        Schedule.parse(text)


def test_one_rank_needs_no_rounds():
    assert ring_all_reduce(1).rounds == ()
    assert ring_all_gather(1).rounds == ()
