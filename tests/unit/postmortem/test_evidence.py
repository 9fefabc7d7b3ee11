"""The lines that show a verdict, where there are more than can be shown."""

from meshwright.postmortem.inputs import examine_files
from meshwright.postmortem.nouns.evidence import Evidence, most_telling

TIMED_OUT = (
    "[rank{0}]:[E1129 04:12:01.240891 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=52, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600082 "
    "milliseconds before timing out.\n"
)


def test_each_waiting_rank_shows_its_first_line_before_any_shows_a_second():
    lines = [Evidence(f"{rank}.log", number, "late", rank) for rank in range(4) for number in (1, 2)]

    shown = most_telling(lines, blamed=[3], most=6)

    assert [(line.rank, line.line) for line in shown] == [(0, 1), (0, 2), (1, 1), (2, 1), (3, 1), (3, 2)]


def test_every_rank_of_64_has_a_line_and_files_come_in_the_order_of_their_numbers(tmp_path):
    for rank in range(64):
        (tmp_path / f"rank{rank}.log").write_text("step 51\n" if rank == 37 else TIMED_OUT.format(rank))

    found = examine_files([tmp_path])

    ranks = [line.rank for line in found.evidence if line.rank != 37]
    assert found.blamed == (37,)
    assert ranks == [rank for rank in range(64) if rank != 37]
