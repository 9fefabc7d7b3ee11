"""Errors of collectives: what a later call on the broken group raises, and copies of them."""

import pickle

import pytest

from meshwright.backend.faults.failures import (
    ArgumentError,
    CollectiveError,
    CollectiveMismatch,
    FaultyRank,
    RankFailure,
    WaitTimeout,
)
from meshwright.errors import MeshwrightError

CULPRIT = FaultyRank(3, "a", 4711, "died")


def failure():
    return RankFailure(CULPRIT, operation="all_reduce", sequence=17, size_bytes=400)


def test_a_later_call_on_a_broken_group_raises_the_same_kind_with_the_same_facts():
    later = failure().of_later_call("broadcast")

    assert type(later) is RankFailure
    assert (later.rank, later.host, later.operation, later.sequence, later.size_bytes) == (
        3,
        "a",
        "all_reduce",
        17,
        400,
    )
    assert str(later) == "broadcast: this group is broken: rank 3 (host a, pid 4711) died, in all_reduce #17 of 400 B"


@pytest.mark.parametrize("error", [failure(), CollectiveMismatch("they disagree", CULPRIT), CollectiveError("no more")])
def test_errors_of_collectives_are_pickled_with_what_they_tell(error):
    again = pickle.loads(pickle.dumps(error))

    assert (type(again), str(again), again.__dict__) == (type(error), str(error), error.__dict__)


def refused():
    raise ArgumentError("reduction avg of torch.bool: has no meaning")


def timed_out():
    raise WaitTimeout("recv from rank 3 is not done after 0.3 s")


@pytest.mark.parametrize(
    ("call", "kinds"),
    [
        (refused, [ValueError, RuntimeError, MeshwrightError]),
        (timed_out, [TimeoutError, RuntimeError, MeshwrightError]),
    ],
)
def test_a_program_that_goes_on_at_the_errors_of_torchs_backends_goes_on_at_ours(call, kinds):
    for kind in kinds:
        with pytest.raises(kind):
            call()
