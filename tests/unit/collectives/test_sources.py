"""A user's own algorithm: a file and a function in it; mistakes are named where they are."""

import sys

import pytest

from meshwright.collectives.proof.verify import ScheduleError, verify
from meshwright.collectives.sources import named_schedule
from meshwright.errors import InputError

FILE = """
from meshwright.collectives.schedules.schedule import Transfer, make

def rings(n, lose=None, copy=None):
    reduced = [[Transfer(r, (r + 1) % n, ((r - k) % n,), True) for r in range(n)] for k in range(n - 1)]
    if lose is not None:
        reduced[lose].pop(2)
    if copy is not None:
        t = reduced[copy][0]
        reduced[copy][0] = Transfer(t.src, t.dst, t.chunks)
    gathered = [[Transfer(r, (r + 1) % n, ((r + 1 - k) % n,)) for r in range(n)] for k in range(n - 1)]
    return make("all_reduce", "mine", n, [*reduced, *gathered], chunks=n)

def good(n): return rings(n)
def lost(n): return rings(n, lose=1)
def overwritten(n): return rings(n, copy=n - 2)
def four(n): return rings(4)
def picky(n): raise ValueError("only for powers of two")
def floats(n): return make("all_reduce", "x", n, [[Transfer(0, 1, (0.0,), True)]], chunks=n)
def bare(n): return make("all_reduce", "x", n, [[Transfer(0, 1, 0, True)]], chunks=n)
def flat(n): return make("all_reduce", "x", n, [Transfer(0, 1, (0,), True)], chunks=n)
def words(n): return make("all_reduce", "x", n, [["c0:0>1"]], chunks=n)
def nothing(n): pass
number = 3
"""


@pytest.fixture
def path(tmp_path):
    (tmp_path / "own.py").write_text(FILE)
    return tmp_path / "own.py"


def test_a_function_of_a_file_is_a_schedule(path):
    assert verify(named_schedule(f"{path}:good", 6)).ranks == 6


def test_a_file_may_import_its_neighbour(path):
    (path.parent / "other.py").write_text("from own import rings\n\ndef twin(n): return rings(n)\n")
    before = list(sys.path)

    assert named_schedule(f"{path.parent / 'other.py'}:twin", 5).ranks == 5
    assert sys.path == before


def test_a_file_without_a_function_is_asked_for_one(path):
    with pytest.raises(InputError, match=r"own.py: which function of it\? expected .*own.py:FUNCTION"):
        named_schedule(str(path), 6)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("four", "returned a schedule of 4 ranks, --ranks says 6"),
        ("picky", "own.py:picky: only for powers of two"),
        ("floats", r"round 0: Transfer\(0, 1\): chunks: expected a tuple of slot numbers .*, got \(0.0,\)"),
        ("bare", r"round 0: Transfer\(0, 1\): chunks: expected a tuple of slot numbers .*, got 0"),
        ("flat", "round 0: expected a list of Transfers for each round, .*: is the list flat"),
        ("words", "round 0: expected a Transfer, got 'c0:0>1'"),
        ("nothing", "it returned NoneType"),
        ("number", "number: expected the name of a function"),
        ("absent", "absent: expected the name of a function"),
        ("goood", r"goood: expected the name of a function in it \(did you mean good\?\)"),
    ],
)
def test_what_is_wrong_with_a_function_is_said(path, function, words):
    with pytest.raises(InputError, match=words) as caught:
        named_schedule(f"{path}:{function}", 6)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            "lost",
            r"of ranks 1, 2 \(that of rank 1 is last passed on in round 0, c1:1>\+2; it is overwritten",
        ),
        ("overwritten", r"that of rank 1 is never passed on; it is overwritten at rank 1 in round 4, c2:0>1\)"),
    ],
)
def test_a_lost_contribution_is_traced_to_where_it_got_lost(path, function, words):
    with pytest.raises(ScheduleError, match=words):
        verify(named_schedule(f"{path}:{function}", 6))
