"""Actions and grids: their text form, and what makes a grid invalid."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.pipelines import Action, parse_grid, schedule

ACTIONS = st.builds(Action, st.integers(0, 999), st.sampled_from("FBIW"), st.integers(0, 999))


@given(ACTIONS)
def test_an_action_parses_back(action):
    assert Action.parse(str(action)) == action


@pytest.mark.parametrize("text", ["", "F0", "2F", "2X0", "2F-1", "2F0 ", "-1F0"])
def test_other_text_is_no_action(text):
    with pytest.raises(InputError, match="expected STAGE"):
        Action.parse(text)


@pytest.mark.parametrize("sizes", [("gpipe", 3, 1, 4), ("1f1b", 4, 1, 2), ("interleaved", 2, 3, 4), ("zb", 3, 2, 7)])
def test_a_grid_parses_back(sizes):
    grid = schedule(*sizes)

    assert parse_grid(str(grid)) == grid


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0F0 0B0\n1F0", "rank 1: stage 1, micro-batch 0: expected F and B, or F, I and W; got F"),
        ("0F0 0B0\n1F0 1I0", "got F I"),
        ("0F0 0F0 0B0", "rank 0 does 0F0 twice"),
        ("0F0 0B0 1F0\n1B0", "stage 1 is on rank 0 and on rank 1"),
        ("0F0 0B0\n2F0 2B0", r"stages must be 0 to 1, got \[0, 2\]"),
        ("0F1 0B1", "micro-batch 0: .*; got nothing"),
        ("0B0 0F0", "deadlock: rank 0 waits in 0B0 for 0F0"),
        ("0F0 0W0 0I0", "deadlock: rank 0 waits in 0W0 for 0I0"),
        ("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1", "deadlock: rank 0 waits in 0B0 for 1B0"),
        ("", "one rank or more"),
    ],
)
def test_an_invalid_grid_cannot_be_made(text, problem):
    with pytest.raises(InputError, match=problem):
        parse_grid(text)


def test_needs_names_what_crosses_ranks():
    grid = schedule("zb", 2, 1, 2)

    assert grid.needs(Action(0, "I", 1)) == (Action(0, "F", 1), Action(1, "I", 1))
    assert grid.needs(Action(1, "F", 0)) == (Action(0, "F", 0),)
    assert grid.needs(Action(0, "W", 1)) == (Action(0, "I", 1),)
