"""Proofs: every algorithm is proved, and damage is judged as a plain replay judges it."""

import itertools
import random
from collections import Counter

import pytest

from meshwright.collectives.algorithms.rings import ring_orders
from meshwright.collectives.catalogue import FLAT, HIERARCHICAL, algorithm_names, build_schedule, hierarchical_of
from meshwright.collectives.proof.verify import ScheduleError, verify
from meshwright.collectives.schedules.programs import check_rendezvous, programs
from meshwright.collectives.schedules.schedule import COLLECTIVES, ROOTED, Schedule
from tests.unit.collectives import brute_force, mutants

ALL = [(collective, name) for collective in COLLECTIVES for name in algorithm_names(collective)]


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter"])
def test_a_ring_on_each_rank_of_a_node_is_proved_and_every_rank_sends_to_another_node_once(collective):
    for nodes, places in ((1, 4), (2, 2), (3, 4), (4, 3)):
        schedule = build_schedule(collective, f"rings:{places}", nodes * places)

        verify(schedule)
        across = [[t.src for t in turn if t.src // places != t.dst // places] for turn in schedule.rounds]
        assert all(sorted(senders) == list(range(nodes * places)) for senders in across if nodes > 1)


@pytest.mark.parametrize("places", [2, 4, 6, 8, 16, 72])
def test_rings_through_several_nodes_go_from_no_rank_of_a_node_to_another_one_twice(places):
    orders = ring_orders(2 * places, places)
    steps = [step for order in orders for step in itertools.pairwise(order)]
    inside = [(a, b) for a, b in steps if a // places == b // places]

    assert len(inside) == len(set(inside)) == 2 * places * (places - 1)  # every pair of each node, both ways


@pytest.mark.parametrize(("collective", "name"), ALL)
def test_every_algorithm_is_proved_for_1_to_64_ranks(collective, name):
    for ranks in [*range(1, 18), 31, 32, 33, 63, 64]:
        roots = {0, 1 % ranks, ranks // 2, ranks - 1} if collective in ROOTED else {0}
        for root in roots:
            verify(build_schedule(collective, name, ranks, root=root))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("collective", "name"),
    [pytest.param(*one, marks=pytest.mark.soak) if at % 4 else one for at, one in enumerate(ALL)],
)
def test_every_algorithm_is_proved_for_every_root_and_1_to_64_ranks(collective, name):
    for ranks in range(1, 65):
        for root in range(ranks) if collective in ROOTED else (0,):
            verify(build_schedule(collective, name, ranks, root=root))


@pytest.mark.parametrize("collective", HIERARCHICAL)
def test_hierarchical_takes_any_pair_of_inner_and_outer_algorithm(collective):
    for inner in FLAT[collective]:
        for outer in FLAT[collective]:
            for nodes, per_node in ((1, 3), (2, 2), (2, 3), (3, 2), (3, 4), (5, 1)):
                verify(hierarchical_of(collective, nodes * per_node, per_node, inner=inner, outer=outer))


@pytest.mark.parametrize(("collective", "name"), ALL)
def test_the_plain_replay_accepts_every_algorithm_too(collective, name):
    for ranks in range(1, 6):
        assert brute_force.is_right(build_schedule(collective, name, ranks, root=ranks - 1))


def judge(rng, count):
    """Judge `count` mutants; return how many were right, and fail at the first on which the two judges differ."""
    right, judged = 0, 0
    while judged < count:
        mutant = mutants.random_schedule(rng)
        for _ in range(rng.choice([1, 1, 2])):
            mutant = mutant and mutants.mutated(rng, mutant)
        if mutant is None:
            continue
        judged += 1
        expected = brute_force.is_right(mutant)
        right += expected
        try:
            verify(mutant)
            refused = None
        except ScheduleError as error:
            refused = str(error)
        assert (refused is None) == expected, f"{refused or 'accepted'}\n{mutant}"
    return right


def test_10000_mutants_are_judged_as_the_plain_replay_judges_them():
    right = judge(random.Random(20), 10_000)

    assert 400 < right < 6_000  # some damage does no harm, most does


@pytest.mark.slow
@pytest.mark.soak
def test_50000_more_mutants_are_judged_as_the_plain_replay_judges_them():
    judge(random.Random(21), 50_000)


def test_damaged_programs_are_judged_as_an_exhaustive_search_judges_them():
    rng, fine = random.Random(22), 0
    for _ in range(600):
        damaged = mutants.mutated_programs(rng, programs(mutants.random_schedule(rng, max_ranks=4)))
        expected = brute_force.programs_end(damaged)
        fine += expected
        fault = check_rendezvous(damaged)
        assert (fault is None) == expected, (fault, damaged)

    assert 20 < fine < 550


def test_sends_in_a_circle_that_wait_for_each_other_are_a_deadlock():
    schedule = Schedule.parse("all_gather x ranks=2 chunks=2\n0: c0:0>1\n1: c1:1>0\n")
    first, second = programs(schedule)

    assert check_rendezvous((first, second)) is None
    assert "deadlock: rank 0 waits in its stage 0 for rank 1 to receive" in str(check_rendezvous((first, second[::-1])))


def test_the_program_of_one_rank_is_its_part_of_all_rounds():
    for collective, name in ALL:
        schedule = build_schedule(collective, name, 6, root=2)
        for rank, stages in enumerate(programs(schedule)):
            rounds = [[t for t in transfers if rank in (t.src, t.dst)] for transfers in schedule.rounds]
            mine = [Counter(transfers) for transfers in rounds if transfers]
            assert [Counter((*stage.sends, *stage.receives, *stage.locals)) for stage in stages] == mine


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("all_reduce x ranks=2 chunks=1\n0: c0:0>+1\n", "rank 0 ends with chunk 0 without the contribution of rank 1"),
        ("all_reduce x ranks=2 chunks=1\n0: c0:0>+1\n1: c0:0>+1\n2: c0:1>0", "a contribution twice in slot 0"),
        ("broadcast x ranks=3 chunks=1\n0: c0:0>1 c0:0>1\n1: c0:1>2", "two writes of slot 0 of rank 1 are unordered"),
        ("broadcast x ranks=3 chunks=1\n0: c0:0>1 c0:1>2\n", "a write and a read of slot 0 of rank 1 are unordered"),
        ("broadcast x ranks=3 chunks=1\n0: c0:0>1 c0:2>+1\n", "a write and a reduction of slot 0 of rank 1"),
        ("broadcast x ranks=3 chunks=1\n0: c0:0>1\n", "rank 2 ends with nothing in slot 0"),
        ("broadcast x ranks=2 chunks=2\n0: c0-1->c1,0:0>1\n", "rank 1 ends with chunk 1 in slot 0"),
        ("all_gather x ranks=2 chunks=3\n", "expected a positive multiple of 2 chunks, got 3"),
        ("all_to_all x ranks=2 chunks=2\n", "expected a positive multiple of 4 chunks, got 2"),
        ("barrier x ranks=3 chunks=0\n0: sig:0>1 sig:1>2\n", "rank 0 leaves before ranks 1, 2 entered"),
        ("barrier x ranks=2 chunks=1\n", "expected no chunks"),
        ("reduce x ranks=2 chunks=2 root=1\n0: c0->c1:0>+1\n1: c0:0>+1\n", "a mixture of different chunks"),
        ("all_reduce x ranks=2 chunks=1\n0:\n", "without the contribution"),
    ],
)
def test_a_wrong_schedule_is_refused_with_the_reason(text, reason):
    with pytest.raises(ScheduleError, match=reason) as caught:
        verify(Schedule.parse(text))

    assert "\n" not in str(caught.value)
