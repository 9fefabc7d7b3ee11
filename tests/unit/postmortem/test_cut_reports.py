"""Torch's desync reports that were pasted without their beginning."""

import pytest

from .made import answer, judge, told

HEADING = " - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:"
NOT_JOINED = "   - [1] finished collective #14, but didn't join collective #15 (count from 1)"
SNAPSHOT = [
    " - Snapshot of ranks' latest states:",
    "   #14 finished ranks:",
    "     [1] finished ALLREDUCE",
    "   #15 started ranks:",
    "     [0, 2, 3] started ALLREDUCE",
]


@pytest.mark.parametrize("below", [[], SNAPSHOT])
@pytest.mark.parametrize("prefix", ["", "[rank2]:[E1120 10:20:00.1 ProcessGroupNCCL.cpp:1537] [Rank 2] "])
def test_the_rank_that_the_rest_of_a_report_names_is_behind(below, prefix, tmp_path):
    wanted = answer("absent", 1, 15)
    assert told(judge(tmp_path, [prefix + HEADING, NOT_JOINED, *below]), wanted) == wanted


def test_a_heading_without_ranks_below_names_nobody(tmp_path):
    assert judge(tmp_path, [HEADING, "[rank1]: step 4 loss 2.0"]).blamed == ()


def test_a_rest_that_names_all_ranks_that_are_heard_names_nobody(tmp_path):
    named = NOT_JOINED.replace("[1]", "[0, 1]")
    assert judge(tmp_path, ["[rank0]: step 4 loss 2.0", "[rank1]: step 4 loss 2.0", HEADING, named]).blamed == ()


AHEAD = [
    "[rank0]:[E1120 10:20:00.1 ProcessGroupNCCL.cpp:1537] Rank 0",
    "\t - [0] Timeout at collective: BROADCAST, #15",
    f"\t{HEADING}",
    f"\t  {NOT_JOINED}",
    "\t - Snapshot of ranks' latest states:",
    "\t   #14 finished ranks:",
    "\t     [1] finished ALLREDUCE",
    "\t   #19 started ranks:",
    "\t     [0, 2] started ALLREDUCE",
    "\t   #21 started ranks:",
    "\t     [3] started _ALLGATHER_BASE",
]


def test_the_others_wait_in_the_call_that_ran_out_of_time_and_not_in_what_they_started_after_it(tmp_path):
    verdict = judge(tmp_path, AHEAD)

    assert told(verdict, wanted := answer("absent", 1, 15)) == wanted
    assert verdict.collective == "broadcast"
    assert "the others wait in broadcast #15" in verdict.because
