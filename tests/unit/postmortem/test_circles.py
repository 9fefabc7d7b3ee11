"""Circles of ranks: the verdict says who waits for whom in the order of the ring, and what helps there."""

import pytest

from .made import DONE, WORLD, entry, failed_at, groups, judge, records, timed_out

PIPE = {"group": ("5", "pipe"), "pg_id": 5}
PIPES = groups(g5=range(5))


def receives(rank, source):
    return [*DONE, entry(4, 0, f"recv {rank}<-{source}", 10, 10, "started", **PIPE)]


def within(name):
    return [*DONE, entry(4, 1, "all_reduce", 5, 5, "started", group=(str(name), "sub"), pg_id=name)]


@pytest.mark.parametrize(
    ("sources", "ring"),
    [
        ({0: 2, 1: 0, 2: 1}, ["rank 0 waits for rank 2", "rank 2 waits for rank 1", "rank 1 waits for rank 0"]),
        # ranks 0 and 3 only wait behind the two
        ({0: 1, 1: 2, 2: 1, 3: 0}, ["rank 1 waits for rank 2", "rank 2 waits for rank 1", "rank 0 waits for rank 1"]),
    ],
)
def test_a_ring_of_receives_is_told_in_its_order_with_a_mend_for_transfers(sources, ring, tmp_path):
    verdict = judge(tmp_path, records({r: receives(r, source) for r, source in sources.items()}, PIPES))
    places = [verdict.because.index(one) for one in ring]

    assert (verdict.kind, verdict.blamed, verdict.waiting) == ("circle", (), tuple(sources))
    assert places == sorted(places)
    assert any("batch_isend_irecv" in what for what in verdict.next)


def test_groups_in_a_circle_are_told_in_its_order_with_a_mend_for_streams(tmp_path):
    mesh = groups(g1=(0, 1), g2=(1, 3), g3=(2, 3), g4=(0, 2))
    verdict = judge(tmp_path, records({0: within(1), 1: within(2), 3: within(3), 2: within(4)}, mesh))
    ring = ["rank 0 waits for rank 1", "rank 1 waits for rank 3", "rank 3 waits for rank 2", "rank 2 waits for rank 0"]
    places = [verdict.because.index(one) for one in ring]

    assert verdict.kind == "circle"
    assert places == sorted(places)
    assert any("same order" in what for what in verdict.next)


def test_receives_of_two_ranks_are_no_circle_while_ranks_below_them_are_not_heard(tmp_path):
    pair = WORLD.replace("0(default_pg)", "5(pipe)").replace("PG ID 0", "PG ID 2")
    lines = [
        line
        for place, rank in enumerate((1, 3))
        for line in (timed_out(rank, 8, "RECV", place=place), failed_at(rank, pair, 8, 8, 7, place=place))
    ]

    verdict = judge(tmp_path, lines)

    assert (verdict.blamed, verdict.unknown) == ((), True)
    assert "rank 0, 2 may be the other end" in verdict.because
