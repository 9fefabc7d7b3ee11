"""The cut into stages is the best there is: brute force over every cut says so."""

import itertools
import random

import pytest

from meshwright.errors import InputError
from meshwright.pipelines import (
    ChainUnit,
    Cut,
    StageTarget,
    best_cut,
    cost_of,
    equal_cut,
    links_of_cuts,
    schedule,
    stage_times,
    timed,
)


def chain(seconds, **fields):
    return [ChainUnit(str(i), s / 3, 2 * s / 3, **fields) for i, s in enumerate(seconds)]


def every_cut(count, stages):
    return [(0, *inner, count) for inner in itertools.combinations(range(1, count), stages - 1)]


@pytest.mark.parametrize("seed", range(40))
def test_no_cut_is_faster_on_uneven_devices_links_and_memory(seed):
    rng = random.Random(seed)
    units = [
        ChainUnit(
            str(i), rng.random(), 2 * rng.random(),
            state_bytes=rng.randint(1, 9), held_bytes=rng.randint(0, 3), output_bytes=rng.choice([0, 1, 5, 40]),
        )
        for i in range(rng.randint(4, 10))
    ]  # fmt: skip
    virtual = rng.choice([1, 2])
    ranks = rng.randint(2, 2 if virtual == 2 else min(4, len(units)))
    grid = schedule("interleaved" if virtual == 2 else "1f1b", ranks, virtual, 2 * ranks)
    total = sum(u.state_bytes + ranks * u.held_bytes for u in units)
    target = StageTarget.of(
        grid,
        speeds=[rng.choice([0.5, 1.0, 2.0]) for _ in range(ranks)],
        links=[(rng.random() / 10, rng.random() / 20) for _ in range(ranks)],
        memory_bytes=[rng.uniform(0.5, 1.5) * total for _ in range(ranks)],
    )
    fastest = min(cost_of(units, target, bounds) for bounds in every_cut(len(units), grid.stages))

    if fastest == float("inf"):
        with pytest.raises(InputError, match="fits into memory"):
            best_cut(units, target)
    else:
        cut = best_cut(units, target)
        assert cut.slowest_s == pytest.approx(fastest)
        assert cost_of(units, target, cut.bounds) == pytest.approx(fastest)


def test_of_equally_fast_cuts_the_one_that_sends_least_is_taken():
    units = [ChainUnit(str(i), 0.0, 1.0 if i in (0, 3) else 0.0, output_bytes=b) for i, b in enumerate([9, 1, 5, 0])]

    assert best_cut(units, StageTarget.of(schedule("1f1b", 2, 1, 2), links=[(0, 0.01)] * 2)).bounds == (0, 2, 4)


@pytest.mark.parametrize(("layers", "ranks", "virtual", "output"), [(48, 4, 3, 1.3), (64, 4, 4, 2.4), (30, 2, 5, 0.7)])
def test_ranks_with_several_stages_share_equal_layers_as_evenly_as_the_slowest_stage_allows(
    layers, ranks, virtual, output
):
    units = chain([0.0, *[1] * layers, output])
    grid = schedule("interleaved", ranks, virtual, 2 * ranks)
    cut = best_cut(units, StageTarget.of(grid))
    stages = ranks * virtual

    counts = [bound - 1 for bound in (1, *cut.bounds[1:-1], layers + 1)]
    of_stage = [b - a for a, b in itertools.pairwise(counts)]
    of_rank = [sum(of_stage[rank::ranks]) for rank in range(ranks)]
    step_s, even_s = (
        timed(grid, stage_times(units, StageTarget.of(grid), bounds)).step_s
        for bounds in (cut.bounds, [0, *(1 + layers * s // stages for s in range(1, stages)), layers + 2])
    )

    assert max(of_stage[:-1]) - min(of_stage[:-1]) <= 1
    assert max(of_rank[:-1]) - min(of_rank[:-1]) <= 1
    assert step_s <= even_s


def test_a_layer_five_times_heavier_gets_fewer_neighbours():
    units = chain([1, 1, 5, 1, 1, 1, 1, 1])
    grid = schedule("1f1b", 2, 1, 8)
    target = StageTarget.of(grid)

    cut = best_cut(units, target)

    assert cut == Cut((0, 3, 8), 7.0)
    assert equal_cut(8, 2).bounds == (0, 4, 8)
    automatic, equal = (timed(grid, stage_times(units, target, c.bounds)).step_s for c in (cut, equal_cut(8, 2)))
    assert equal / automatic > 1.1


def test_embedding_and_output_weigh_what_they_weigh():
    units = chain([0.1, *[1] * 8, 4])

    assert best_cut(units, StageTarget.of(schedule("1f1b", 3, 1, 6))).bounds == (0, 5, 9, 10)


def test_a_slow_link_moves_the_cut_to_where_little_crosses():
    units = [ChainUnit(str(i), 1.0, 2.0, output_bytes=100 if i != 1 else 1) for i in range(6)]

    fast = best_cut(units, StageTarget.of(schedule("1f1b", 2, 1, 2), links=[(0, 0.01)] * 2))
    slow = best_cut(units, StageTarget.of(schedule("1f1b", 2, 1, 2), links=[(0, 1.0)] * 2))

    assert fast.bounds == (0, 3, 6)
    assert slow.bounds == (0, 2, 6)


def test_the_first_stage_holds_more_micro_batches_and_so_gets_fewer_units():
    units = [ChainUnit(str(i), 1.0, 2.0, held_bytes=1.0) for i in range(8)]
    grid = schedule("1f1b", 2, 1, 8)

    assert best_cut(units, StageTarget.of(grid, memory_bytes=[6, 8])).bounds == (0, 3, 8)


def test_more_stages_than_units_are_refused():
    with pytest.raises(InputError, match="4 stages are more than the 3 units"):
        best_cut(chain([1, 1, 1]), StageTarget.of(schedule("1f1b", 4, 1, 4)))


def test_a_device_twice_as_fast_gets_twice_the_units():
    assert best_cut(chain([1] * 9), StageTarget.of(schedule("1f1b", 2, 1, 2), speeds=[2.0, 1.0])).bounds == (0, 6, 9)


def test_slack_trades_a_little_balance_for_fewer_bytes():
    units = [ChainUnit(str(i), 1.0, 2.0, output_bytes=b) for i, b in enumerate([9, 9, 9, 9, 1, 9, 9, 9, 9, 9])]
    target = StageTarget.of(schedule("1f1b", 2, 1, 2))

    assert best_cut(units, target).bounds == (0, 5, 10)
    assert best_cut(units[1:], target).bounds == (0, 4, 9)
    assert best_cut(units[2:], target).bounds == (0, 4, 8)
    assert best_cut(units[2:], target, slack=0.3).bounds == (0, 3, 8)


@pytest.mark.parametrize(
    ("sizes", "links"),
    [
        (("1f1b", 4, 1, 4), (0, 1, 2)),
        (("interleaved", 4, 2, 4), (0, 1, 2, 3, 0, 1, 2)),  # the last rank is joined to the first
        (("interleaved", 2, 2, 4), (0, 0, 0)),  # both ways over the same
    ],
    ids=str,
)
def test_every_cut_of_interleaved_stages_has_the_link_of_its_ranks(sizes, links):
    assert links_of_cuts(schedule(*sizes)) == links
