"""The search against brute force, and what it says about the winner."""

import re

import numpy as np
import pytest
from msgspec.structs import replace

from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from meshwright.layout import Layout, micro_batches
from meshwright.plan.analytic import Grid, Setting, price_layouts
from meshwright.plan.analytic.fits import DOUBTFUL, OVER, SURE
from meshwright.plan.analytic.price import states_too_large, verdicts_in
from meshwright.plan.clusters.machines import cluster_by_name
from meshwright.plan.layouts.legality import illegal
from meshwright.plan.layouts.space import in_every_order
from meshwright.plan.search.explore import explore, price_all, row_of, space_of
from meshwright.units import format_bytes, parse_time
from meshwright.workload.models import load_model


def setting(model="llama3-8b", cluster="dgx-a100-80g", gpus=16, global_batch=32, seq_len=2048, **changes):
    return Setting(
        architecture=load_model(model).architecture,
        cluster=cluster_by_name(load_catalogue(), cluster, gpus),
        gpus=gpus,
        global_batch=global_batch,
        seq_len=seq_len,
        **changes,
    )


SMALL = setting()
STUDY = explore(SMALL, model="llama3-8b")


@pytest.mark.parametrize(
    "case", [SMALL, setting("mixtral-8x7b", "dgx-h100"), setting(cluster="aws-p4d", gpus=24, global_batch=48)]
)
def test_the_rows_are_the_fastest_of_all_legal_layouts_in_every_axis_order(case):
    everything = in_every_order(space_of(case).grid)
    prices = price_layouts(case, everything)
    fits = verdicts_in(case, everything, prices) == SURE
    best: dict[tuple[float, ...], float] = {}
    splits = np.stack([getattr(everything, name) for name in ("tp", "pp", "dp", "cp", "ep")], axis=1)[fits]
    for split, seconds in zip(map(tuple, splits.tolist()), prices.step_time_s[fits].tolist(), strict=True):
        best[split] = min(seconds, best.get(split, np.inf))

    study = explore(case)

    sure = [row.predicted.step_time_s for row in study.rows if row.fits == "fits"]
    assert sure == pytest.approx(sorted(best.values())[: len(sure)])
    assert [row.note for row in study.rows[len(sure) :]] in ([], ["faster, but may not fit"])


def test_every_row_is_legal_and_uses_the_batch_that_was_asked_for():
    for row in (*STUDY.rows, *STUDY.pareto):
        assert illegal(row.layout, SMALL.architecture, global_batch=32, seq_len=2048, ranks=16) == []
    assert STUDY.global_batch == 32


def test_rows_split_the_ranks_in_different_ways():
    sure = [r for r in STUDY.rows if r.fits == "fits"]  # behind them stands the fastest that may not fit, of any split
    splits = [(r.layout.tp, r.layout.pp, r.layout.dp, r.layout.cp, r.layout.ep) for r in sure]

    assert len(set(splits)) == len(splits) > 3


def test_nothing_is_both_smaller_and_faster_than_a_row_of_the_front():
    priced = price_all(SMALL)
    for row in STUDY.pareto:
        smaller = priced.prices.reserved_bytes < row.terms["reserved_bytes"] * (1 - 1e-9)
        faster = priced.prices.step_time_s < row.terms["step_time_s"] * (1 - 1e-9)
        assert not (smaller & faster).any()
    assert STUDY.pareto[-1].predicted.step_time_s == STUDY.best.predicted.step_time_s


@pytest.mark.parametrize("stack", ["meshwright", "megatron", "torchtitan"])
def test_layouts_whose_states_alone_are_too_large_do_not_fit(stack):
    case = replace(setting("llama3-70b", "dgx-h100", gpus=32, global_batch=64), stack=stack)
    grid = space_of(case).grid

    large = states_too_large(case, grid)

    assert large.sum() > len(grid) / 10
    assert (verdicts_in(case, grid, price_layouts(case, grid))[large] == OVER).all()


def test_a_search_prices_layouts_as_they_are_priced_alone():
    priced = price_all(SMALL)

    alone = price_layouts(SMALL, priced.grid)

    for name in alone.terms(0):
        assert np.array_equal(getattr(priced.prices, name), getattr(alone, name)), name


def test_what_is_set_aside_is_counted():
    grid = space_of(SMALL).grid
    found = verdicts_in(SMALL, grid, price_layouts(SMALL, grid))

    have = "the 79.3 GiB of a GPU (the driver shows: driver-logs)"
    assert str(STUDY.rejections[0]) == f"{int((found == OVER).sum()):,} layouts need more than {have}"
    assert str(STUDY.rejections[1]) == f"{int((found == DOUBTFUL).sum()):,} layouts may not fit in {have}"
    assert STUDY.legal == len(grid)


def test_plain_data_parallelism_is_always_shown_and_says_why_it_cannot_be_had():
    large = explore(setting("llama3-70b", "dgx-h100", gpus=64, global_batch=32))

    assert STUDY.plain.layout == Layout(dp=16, mbs=STUDY.plain.layout.mbs, recompute=STUDY.plain.layout.recompute)
    assert STUDY.plain.fits != "fits"  # 8 B x 18 bytes
    assert large.plain.layout.dp == 64
    assert "32 sequences do not divide over 64 GPUs; priced with 64" in large.plain.note


def test_the_paragraph_tells_the_terms_of_the_prices():
    winner = STUDY.best
    seconds = parse_time(re.search(r"takes ([\d.]+ m?s) a step", STUDY.reason).group(1))
    rivals = re.findall(r"saves? ([\d.]+)%.*?\(((?:\w+=[\w-]+,?)+)\)", STUDY.reason)

    assert seconds == pytest.approx(winner.predicted.step_time_s, rel=0.01)
    assert len(rivals) >= 3
    for share, text in rivals:
        slower = price_layouts(SMALL, Grid.of([Layout.parse(text)])).step_time_s[0] / winner.predicted.step_time_s - 1
        assert 100 * slower == pytest.approx(float(share), abs=0.06)


def test_what_rounding_leaves_of_a_term_is_no_reason():
    study = explore(replace(setting("llama3-70b", "dgx-h100", gpus=64, global_batch=64), stack="titan"))
    seconds = [parse_time(text) for text in re.findall(r"([\d.e-]+ (?:ns|us|ms|s))\b", study.reason)]

    assert len(seconds) > 3
    assert min(seconds) > 1e-5 * study.best.predicted.step_time_s


def test_the_micro_batch_trade_keeps_the_batch_and_shows_what_a_larger_one_brings():
    own = [trade for trade in STUDY.micro_batches if trade.global_batch == 32]
    larger = [trade for trade in STUDY.micro_batches if trade.global_batch > 32]

    assert {trade.mbs for trade in own} >= {STUDY.best.layout.mbs}
    assert all(trade.micro_batches == 32 // STUDY.best.layout.dp // trade.mbs for trade in own)
    assert [trade.global_batch for trade in larger] == [64, 128]


def test_a_large_bubble_warns_of_the_batch_that_it_would_take():
    case = setting("gpt3-175b", gpus=1024, global_batch=64, cluster="aws-p4d")
    study = explore(case)
    share = study.best.predicted.bubble_s / study.best.predicted.step_time_s

    assert share > 0.1
    needed = int(re.search(r"global batch of ([\d,]+) sequences", study.warnings[0]).group(1).replace(",", ""))
    layout = study.best.layout
    at = price_layouts(replace(case, global_batch=needed), Grid.of([layout]))
    assert needed % (layout.dp * layout.mbs) == 0
    assert micro_batches(layout, needed) > micro_batches(layout, 64)
    assert at.bubble_s[0] / at.step_time_s[0] <= 0.05


def test_what_does_not_fit_names_the_smallest_layout():
    told = r"none of [\d,]+ legal layouts of [\d.]+ B parameters fits in the 79.3 GiB.*recompute=full, needs"
    with pytest.raises(InputError, match=told):
        explore(setting("gpt3-175b", gpus=8))


def test_a_smaller_batch_is_not_advised_where_the_states_alone_are_too_large():
    with pytest.raises(InputError) as large:
        explore(setting("gpt3-175b", gpus=8))  # 175 billion times 12 bytes over eight GPUs are 245 GiB
    with pytest.raises(InputError) as long:
        explore(setting(gpus=8, global_batch=8, seq_len=2**20, stack="bridge"))

    assert re.search(r"states are 24\d GiB of it at least, whatever the batch: use more GPUs$", str(large.value))
    assert str(long.value).endswith("use more GPUs or a smaller batch")
    each, every, gpus = re.search(
        r"needs .*; ([\d.]+) TiB of states in all fill (\d+) GPUs; .* states are (\d+) GiB", str(large.value)
    ).group(3, 1, 2)
    assert float(every) == pytest.approx(8 * int(each) / 1024, rel=0.01)
    assert int(gpus) == -(-8 * int(each) // 79.3)


def test_a_rival_that_takes_far_longer_is_said_to_by_a_factor_and_not_as_a_saving():
    reason = explore(setting("llama3-8b", "8xRTX4090", gpus=8, global_batch=128, seq_len=2048)).reason

    saved = [float(share) for share in re.findall(r"saves? ([\d.]+)%", reason)]
    factors = [float(times) for times in re.findall(r"(?:is|are) ([\d.]+) times as fast", reason)]
    assert max(saved) <= 50.0
    assert factors
    assert min(factors) >= 1.5


def test_where_no_layout_surely_fits_those_come_first_that_are_predicted_to():
    study = explore(setting(gpus=2, global_batch=4, stack="accelerate"))
    *chosen, tight = study.rows

    assert {row.fits for row in study.rows} == {"may not"}
    assert all(row.terms["allocated_bytes"] < row.capacity_bytes for row in chosen)
    assert tight.note == "faster, but may not fit"
    assert tight.terms["allocated_bytes"] > tight.capacity_bytes


def test_the_hosts_memory_is_offered_where_what_may_fit_is_predicted_to_need_more_than_there_is():
    study = explore(setting("qwen2.5-32b", gpus=7, global_batch=14, stack="deepspeed"))

    assert (study.best.fits, study.best.layout.offload) == ("fits", "optimizer")
    assert study.rows[-1].note == "faster, but may not fit"
    assert study.rows[-1].layout.offload == "none"
    assert any("their hosts'" in warning for warning in study.warnings)


def test_an_impossible_batch_names_the_rules():
    with pytest.raises(
        InputError, match=r"of 80 ways to factor the ranks, .*10 because dp does not divide the global batch"
    ):
        explore(setting("bloom-176b", gpus=251 * 8, global_batch=1, seq_len=2047))


def test_what_all_logits_at_once_need_is_told_where_a_stack_has_parts_of_them_today():
    given = setting(cluster="dgx-h100", gpus=8, global_batch=16, seq_len=8192, stack="torchtitan")
    grid = Grid.of([Layout(dp=8, mbs=2, zero=3, recompute="selective")])

    open_one, whole = (
        row_of(case, grid, price_layouts(case, grid), 0) for case in (given, replace(given, loss="whole"))
    )

    needs = format_bytes(whole.terms["card_bytes"])
    assert open_one.memory_otherwise == f"with all logits at once (--loss whole) {needs} on the card"
    assert whole.memory_otherwise == ""
