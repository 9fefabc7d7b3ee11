"""Numbers of damaged lines that no job has are no facts."""

import pytest

from meshwright.postmortem.nouns.facts import Absentees, CommunicatorCall, DesyncReport, Stalled, Timeout
from meshwright.postmortem.nouns.identities import Spoke
from meshwright.postmortem.nouns.where import Where
from meshwright.postmortem.nouns.world import of_real_ranks

from .made import judge

HERE = Where(file="f.log", line=1, text="")
HUGE = 10**30


def changed(fact, **what):
    """Return whether a fact is the same but for these fields."""
    real = of_real_ranks(fact)
    return {name: getattr(real, name) for name in fact.__struct_fields__ if getattr(real, name) != getattr(fact, name)}


@pytest.mark.parametrize(
    ("fact", "instead"),
    [
        (DesyncReport(where=HERE, rank=0, never=(HUGE, 3)), {"never": (3,)}),
        (DesyncReport(where=HERE, rank=0, not_joined=((5, (1, 2**20)),)), {"not_joined": ((5, (1,)),)}),
        (DesyncReport(where=HERE, rank=HUGE, started=((HUGE, "x", (1,)),)), {"rank": None, "started": ()}),
        (Stalled(tensor="t", where=HERE, missing=(-1,), ready=(2, HUGE)), {"missing": (), "ready": (2,)}),
        (Timeout(rank=HUGE, where=HERE, seq=HUGE), {"rank": None, "seq": None}),
        (Timeout(rank=3, where=HERE, seq=2**62), {}),
    ],
)  # fmt: skip
def test_what_is_real_of_a_fact_is_kept(fact, instead):
    assert changed(fact) == instead


@pytest.mark.parametrize(
    "fact",
    [
        Absentees(ranks=(HUGE,), where=HERE),
        Spoke(rank=2**17, where=HERE),
        CommunicatorCall(
            operation="AllReduce",
            pid=HUGE,
            device=0,
            seq=1,
            count=1,
            datatype=0,
            communicator="c",
            host="h",
            where=HERE,
        ),
    ],
)
def test_a_fact_of_which_nothing_is_left_is_none(fact):
    assert of_real_ranks(fact) is None


def test_a_line_is_nobodys_where_its_label_has_more_digits_than_any_rank(tmp_path):
    verdict = judge(tmp_path, [f"[1,{'9' * 30}]<stderr>:HorovodInternalError: Horovod has been shut down."])

    assert verdict.evidence[0].rank is None
