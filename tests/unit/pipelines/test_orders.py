"""The schedules: golden grids, published bubbles and memory, and PyTorch's own pipeline tools as judge."""

import itertools

import pytest
from torch.distributed.pipelining import schedules as torch_schedules

from meshwright.errors import InputError
from meshwright.pipelines import (
    Action,
    StageTimes,
    bubble_share,
    in_flight,
    parse_grid,
    peak_in_flight,
    picture,
    schedule,
    timed,
    timed_sharing,
)

SIZES = [
    *(("gpipe", p, 1, m) for p in (1, 2, 4, 7) for m in (1, 3, 8)),
    *(("1f1b", p, 1, m) for p in (1, 2, 4, 7) for m in (1, 3, 8, 33)),
    *(("interleaved", p, v, p * k) for p in (2, 4, 5) for v in (1, 2, 4) for k in (1, 2, 3)),
    *(("zb", p, 1, p + k) for p in (1, 2, 4, 7) for k in (0, 1, 9)),
    *(("zb", p, 2, 2 * p - 1 + k) for p in (2, 4, 7) for k in (0, 1, 9)),
]


def test_gpipe_runs_all_forwards_first():
    assert picture(schedule("gpipe", 3, 1, 3)) == (
        "rank 0  0F0 0F1 0F2 .   .   .   .   .   .   0B0 -   0B1 -   0B2 -\n"
        "rank 1  .   1F0 1F1 1F2 .   .   .   1B0 -   1B1 -   1B2 -   .   .\n"
        "rank 2  .   .   2F0 2F1 2F2 2B0 -   2B1 -   2B2 -   .   .   .   .\n"
        "idle 40.0% of the step"
    )


def test_one_f_one_b_alternates_once_the_pipeline_is_full():
    assert schedule("1f1b", 4, 1, 4) == parse_grid("""
        0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3
        1F0 1F1 1F2 1B0 1F3 1B1 1B2 1B3
        2F0 2F1 2B0 2F2 2B1 2F3 2B2 2B3
        3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3
    """)


def test_interleaved_sends_rounds_of_micro_batches_through_each_chunk():
    assert schedule("interleaved", 2, 2, 4) == parse_grid("""
        0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3
        1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3
    """)


def test_zb_h1_fills_the_gaps_with_weight_gradients():
    assert picture(schedule("zb", 4, 1, 6)) == (
        "rank 0  0F0 0F1 0F2 0F3 .   .   .   0I0 0W0 0F4 0I1 0W1 0F5 0I2 0W2 0I3 0W3 0I4 0W4 0I5 0W5\n"
        "rank 1  .   1F0 1F1 1F2 .   .   1I0 1F3 1I1 1W0 1F4 1I2 1W1 1F5 1I3 1W2 1I4 1W3 1I5 1W4 1W5\n"
        "rank 2  .   .   2F0 2F1 .   2I0 2F2 2I1 2F3 2I2 2W0 2F4 2I3 2W1 2F5 2I4 2W2 2I5 2W3 2W4 2W5\n"
        "rank 3  .   .   .   3F0 3I0 3F1 3I1 3F2 3I2 3F3 3I3 3W0 3F4 3I4 3W1 3F5 3I5 3W2 3W3 3W4 3W5\n"
        "idle 14.3% of the step"
    )


def test_zb_v_puts_the_first_and_the_last_stage_on_the_first_rank():
    grid = schedule("zb", 3, 2, 5)

    assert grid.rank_of_stage == (0, 1, 2, 2, 1, 0)
    assert grid.stages_of(0) == (0, 5)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_bubble_is_the_published_one(sizes):
    grid = schedule(*sizes)

    measured = timed(grid, StageTimes.even(grid.stages)).bubble_share

    assert measured == pytest.approx(bubble_share(*sizes))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_ranks_hold_as_many_micro_batches_as_published(sizes):
    grid = schedule(*sizes)

    assert peak_in_flight(grid) == tuple(in_flight(*sizes, rank) for rank in range(grid.ranks))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_pytorch_finds_the_grid_complete_and_free_of_deadlock(sizes):
    grid = schedule(*sizes)
    orders = {
        rank: [torch_schedules._Action.from_str(str(action)) for action in row] for rank, row in grid.by_rank.items()
    }

    stage_to_rank = torch_schedules._validate_schedule(orders, grid.ranks, grid.stages, grid.micro_batches)
    with_transfers = torch_schedules._add_send_recv(
        {rank: list(order) for rank, order in orders.items()}, stage_to_rank.__getitem__, grid.stages
    )
    played = torch_schedules._simulate_comms_compute(with_transfers, stage_to_rank.__getitem__, grid.stages)

    assert tuple(stage_to_rank[stage] for stage in range(grid.stages)) == grid.rank_of_stage
    computed = {rank: [str(a) for a in row if a is not None and a.is_compute_op] for rank, row in played.items()}
    assert computed == {rank: [str(a) for a in row] for rank, row in grid.by_rank.items()}


@pytest.mark.parametrize(
    ("sizes", "rule"),
    [
        (("interleaved", 4, 2, 6), "not a multiple of pp=4"),
        (("interleaved", 4, 2, 2), "not a multiple of pp=4"),
        (("zb", 4, 1, 3), "needs pp = 4 micro-batches or more, got 3"),
        (("zb", 4, 2, 6), "needs 2 pp - 1 = 7 micro-batches or more, got 6"),
        (("zb", 4, 3, 16), "not vpp=3"),
        (("1f1b", 4, 2, 8), "vpp=2 needs schedule=interleaved or zb"),
        (("1f1b", 4, 1, 0), "1 or more"),
        (("1f2b", 4, 1, 4), "did you mean 1f1b"),
    ],
)
def test_sizes_that_a_schedule_cannot_take_are_refused_with_the_rule(sizes, rule):
    with pytest.raises(InputError, match=rule):
        schedule(*sizes)


def test_no_other_order_of_a_small_pipeline_is_faster_than_one_f_one_b():
    """Brute force over every order of the first of two ranks; the second follows as things arrive."""
    last = schedule("1f1b", 2, 1, 3).rows[1]
    steps = []
    for order in set(itertools.permutations("FFFBBB")):
        count = {"F": iter(range(3)), "B": iter(range(3))}
        row = [Action(0, kind, next(count[kind])) for kind in order]
        try:
            grid = parse_grid(" ".join(map(str, row)) + "\n" + " ".join(map(str, last)))
        except InputError:
            continue
        steps.append(timed(grid, StageTimes.even(2)).step_s)

    assert min(steps) == timed(schedule("1f1b", 2, 1, 3), StageTimes.even(2)).step_s


def test_transfers_uneven_stages_and_slow_ranks_lengthen_the_step():
    grid = schedule("1f1b", 2, 1, 2)
    times = StageTimes(forward_s=(1, 2), backward_s=(2, 4), weight_s=(1, 2), transfer_s=(0.5,))

    timing = timed(grid, times)

    # forward of 0, transfer, then the slow stage without a pause, transfer, backward of 1
    assert timing.step_s == pytest.approx(1 + 0.5 + 2 * (2 + 4) + 0.5 + 2)
    assert timing.busy_s == (6, 12)
    assert timing.bubble_s == pytest.approx(16 - 9)


def test_bytes_in_flight_weigh_each_stage():
    assert peak_in_flight(schedule("1f1b", 2, 1, 4), [10, 3]) == (20, 3)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_ranks_with_processors_of_their_own_run_the_grid_as_if_nothing_was_shared(sizes):
    grid = schedule(*sizes)
    times = StageTimes.even(grid.stages)

    alone, shared = timed(grid, times).intervals, timed_sharing(grid, times, 1.0).intervals

    assert {action: pytest.approx(interval) for action, interval in alone.items()} == shared


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_one_processor_for_all_ranks_is_never_idle(sizes):
    grid = schedule(*sizes)
    times = StageTimes.even(grid.stages)

    work_s = sum(times.of(action) for row in grid.rows for action in row) / grid.ranks  # times are with all at work
    assert timed_sharing(grid, times, grid.ranks).step_s == pytest.approx(work_s)


def test_messages_over_a_cut_follow_each_other():
    grid = schedule("gpipe", 2, 1, 2)
    times = StageTimes(forward_s=(1, 1), backward_s=(1, 1), weight_s=(0, 0), transfer_s=(3,))

    forwards = [timed_sharing(grid, times, 1.0).intervals[Action(1, "F", i)] for i in range(2)]

    assert forwards == [(1 + 3, 5), (1 + 3 + 3, 8)]
