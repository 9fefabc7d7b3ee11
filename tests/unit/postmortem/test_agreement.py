"""Calls of one number that ranks do not make alike."""

import pytest

from meshwright.postmortem.nouns.calls import Call, Group, RankGroup
from meshwright.postmortem.nouns.where import GroupName, Where
from meshwright.postmortem.positions.agreement import disagreement

from .made import DONE, entry, judge, records, timed_out


def group(*sizes):
    """Three ranks of which nobody tells which collective they are in, only how many elements they bring."""
    calls = [Call(rank=rank, seq=5, operation="", numel_in=n, where=Where(file="a", line=1, text="")) for rank, n in
             enumerate(sizes)]  # fmt: skip
    ranks = {call.rank: RankGroup(rank=call.rank, calls={5: call}) for call in calls}
    return Group(name=GroupName("default"), ranks=ranks, members=tuple(ranks), whole=True)


def test_sizes_that_differ_are_told_where_nobody_says_which_collective_it_is():
    found = disagreement(group(8, 16, 8))

    assert (found.kind, found.blamed, found.certain) == ("sizes", (1,), True)


def exchanges(sizes):
    """Records of ranks that all stand in one all-to-all, each with what it sends and what it expects."""
    return records({rank: [*DONE, entry(4, 5, "all_to_all", *own, "started")] for rank, own in enumerate(sizes) if own})


UNEVEN = [(40, 36), (20, 30), (10, 14), (30, 20)]


@pytest.mark.parametrize(
    "files",
    [
        exchanges([*UNEVEN[:3], (30, 27)]),
        ["world_size=4", *(timed_out(r, 5, "ALLTOALL_BASE", *own) for r, own in enumerate([*UNEVEN[:3], (30, 27)]))],
    ],
    ids=["records", "time-outs"],
)
def test_an_all_to_all_in_which_more_is_expected_than_sent_has_wrong_sizes_of_nobody_in_particular(files, tmp_path):
    verdict = judge(tmp_path, files)

    assert (verdict.kind, verdict.blamed, verdict.seq, verdict.unknown) == ("sizes", (), 5, True)
    assert "send 100 elements in all_to_all and expect 107" in verdict.because


@pytest.mark.parametrize(
    ("sizes", "kind"),
    [(UNEVEN, "stuck"), ([*UNEVEN[:3], None], "absent")],
    ids=["the sums are one", "who is not there may have sent the rest"],
)
def test_an_all_to_all_of_uneven_parts_is_no_fault_by_itself(sizes, kind, tmp_path):
    assert judge(tmp_path, exchanges(sizes)).kind == kind
