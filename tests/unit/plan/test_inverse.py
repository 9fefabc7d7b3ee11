"""The inverse solve against the forward search; what-if and scaling; the rule of thumb of tensor x pipeline."""

import io
from functools import partial

import pytest
from msgspec.structs import replace
from rich.console import Console

from meshwright.errors import InputError
from meshwright.layout import Layout
from meshwright.plan.search.explore import explore
from meshwright.plan.targets import inverse
from meshwright.plan.targets.alternatives import at_peak_s, beyond, fastest_layout, other_means
from meshwright.plan.targets.inverse import fewest_gpus, gpu_counts, solve, step_time_for_days, step_time_for_mfu
from meshwright.plan.targets.whatif import compare_clusters, scaling
from meshwright.report.planning import (
    _bars,
    computes_too_long,
    days_text,
    fewest_text,
    show_comparison_of_clusters,
    show_scaling,
    show_solution,
)
from meshwright.units import format_days, format_time
from tests.unit.plan.test_explore import setting

SLOW = setting(cluster="aws-p4d", gpus=16, global_batch=16)
SOLUTION = solve(SLOW, lambda case: 1.1 * explore(SLOW).best.predicted.step_time_s, target="10 % slower")


@pytest.mark.parametrize(("quantity", "field"), [("inter", "inter_bytes_per_s"), ("intra", "intra_bytes_per_s")])
def test_the_target_is_met_at_the_least_rate_and_missed_just_below(quantity, field):
    need = next(need for need in SOLUTION.needs if need.quantity == quantity)

    at = explore(replace(SLOW, **{field: need.value})).best
    below = explore(replace(SLOW, **{field: need.value * 0.99})).best

    assert at.predicted.step_time_s <= SOLUTION.target_step_time_s * (1 + 1e-9)
    assert below.predicted.step_time_s > SOLUTION.target_step_time_s
    assert at.predicted.step_time_s == pytest.approx(need.at(need.value), rel=0.02)


def test_the_target_is_met_at_the_largest_latency_and_missed_just_above():
    need = next(need for need in SOLUTION.needs if need.quantity == "latency")

    assert explore(replace(SLOW, latency_s=need.value)).best.predicted.step_time_s <= SOLUTION.target_step_time_s
    assert explore(replace(SLOW, latency_s=need.value * 1.01)).best.predicted.step_time_s > SOLUTION.target_step_time_s


def test_curves_never_rise_with_the_rate():
    for need in SOLUTION.needs:
        times = [point.step_time_s for point in need.curve]
        assert times == sorted(times, reverse=need.quantity != "latency")


def test_a_target_that_computing_alone_misses_has_no_answer():
    solution = solve(SLOW, lambda case: 0.1, target="0.1 s")

    assert not solution.met
    assert solution.fewest.gpus is None
    assert [(need.value, need.reachable) for need in solution.needs] == [(None, False)] * 3
    assert solution.least_compute_s is not None
    assert solution.least_compute_s > 0.1
    assert computes_too_long(solution).startswith("no network reaches it: of the layouts that fit, the one that")


def test_a_target_in_seconds_says_what_share_of_the_peak_it_takes_and_what_is_reached(printed):
    asked, reached = (SOLUTION.mfu_of(s) for s in (SOLUTION.target_step_time_s, SOLUTION.present_step_time_s))
    text = printed(partial(show_solution, marks={}), SOLUTION)

    assert 0 < asked < reached < 1
    assert f"MFU {asked:.1%}; the cluster as it is takes" in text
    assert f"MFU {reached:.1%}, with" in text
    assert "no network reaches it" not in text


def test_another_precision_is_held_against_the_peak_of_that_precision():
    slow = setting(cluster="dgx-h100", gpus=8, global_batch=8)
    faster = next(means for means in other_means(slow, lambda case: 1e-3) if means.precision == "fp8")

    assert faster.mfu == pytest.approx(faster.peak_step_time_s / faster.step_time_s)
    assert faster.peak_step_time_s == pytest.approx(at_peak_s(slow) * 989 / 1979, rel=0.01)


def test_a_target_that_any_network_meets_has_no_least_rate():
    solution = solve(SLOW, lambda case: 1e9, target="1e9 s")

    assert [(need.value, need.reachable) for need in solution.needs] == [(None, True)] * 3


def test_the_fewest_gpus_meet_the_target_and_the_next_fewer_do_not():
    target = explore(replace(SLOW, gpus=12)).best.predicted.step_time_s * 1.0001
    fewest = solve(SLOW, lambda case: target, target="as 12").fewest

    smaller = [gpus for gpus in gpu_counts(SLOW) if gpus < fewest.gpus]
    assert fewest.step_time_s <= target
    for gpus in smaller:
        try:
            assert explore(replace(SLOW, gpus=gpus)).best.predicted.step_time_s > target
        except InputError:
            continue  # nothing fits


def test_a_target_that_the_cluster_misses_is_looked_for_beyond_it():
    few = setting("llama3-8b", "dgx-h100", gpus=8, global_batch=64)
    target = 0.45 * fastest_layout(few)[1]
    counts = [gpus for gpus, _, step_s, _ in beyond(few, lambda case: target) if step_s <= target]
    fewest = fewest_gpus(few, lambda case: target)

    assert fewest.gpus == counts[0] > few.gpus
    assert fewest.step_time_s <= target
    assert fastest_layout(replace(few, gpus=16))[1] > target  # half of the time takes more than twice the GPUs
    assert fewest_text(fewest).startswith(f"{fewest.gpus}, more than 8: ")


def test_numbers_between_the_first_that_meets_a_target_and_the_one_before_are_tried_too():
    few = setting("llama3-70b", "dgx-h200", gpus=256, global_batch=512, seq_len=8192, stack="bridge")
    target = 5.436  # 768 GPUs miss it, 1,024 meet it by far
    first = next(gpus for gpus, _, step_s, _ in beyond(few, lambda case: target) if step_s <= target)

    fewest = fewest_gpus(few, lambda case: target)

    assert fewest.gpus < first
    assert fewest.gpus % 8 == 0
    assert fastest_layout(replace(few, gpus=fewest.gpus)) == (fewest.layout, fewest.step_time_s)
    assert fewest.step_time_s <= target


def test_more_gpus_are_not_tried_where_they_come_no_nearer():
    case = setting("llama3-8b", "dgx-h100", gpus=8, global_batch=16)

    assert len(list(beyond(case, lambda larger: step_time_for_mfu(larger, 0.99)))) <= 3
    assert not list(beyond(case, lambda larger: 1e-7))  # beyond the peak of all GPUs


def test_what_else_would_reach_a_target_is_tried():
    case = setting("llama3-8b", "dgx-h100", gpus=8, global_batch=16)
    now = fastest_layout(case)[1]
    tried = {means.change: means for means in other_means(case, lambda other: 0.8 * now * other.global_batch / 16)}

    assert {"global batch 32", "global batch 64", "no recomputation"} <= set(tried)
    assert tried["precision fp8 (stack since-2024)"].meets
    quick = {change for change, means in tried.items() if means.step_time_s <= means.target_step_time_s}
    assert quick >= {change for change, means in tried.items() if means.meets}
    assert not any("mxfp8" in change or "nvfp4" in change for change in tried)  # H100 takes no scales of blocks
    fixed = other_means(case, lambda other: 0.8 * now)
    assert not any("batch" in means.change for means in fixed)


def test_a_curve_has_no_row_twice():
    need = SOLUTION.needs[0]
    table = _bars(need, SOLUTION.target_step_time_s, ())
    values = list(table.columns[0].cells)

    assert len(values) == len(set(values)) > 5


def test_targets_are_turned_into_step_times():
    best = explore(SLOW).best.predicted
    tokens_per_step = 16 * 2048

    assert step_time_for_mfu(SLOW, best.mfu) == pytest.approx(best.step_time_s)
    assert step_time_for_days(SLOW, 10, 1000 * tokens_per_step) == pytest.approx(864)


@pytest.mark.parametrize("mfu", [0, -1, 1.5])
def test_an_mfu_beyond_one_is_refused(mfu):
    with pytest.raises(InputError, match="--target-mfu"):
        step_time_for_mfu(SLOW, mfu)


@pytest.mark.parametrize(("mfu", "hinted"), [(45, True), (5, True), (1.2, False)])
def test_a_percentage_is_told_from_a_share_just_above_one(mfu, hinted):
    with pytest.raises(InputError) as caught:
        step_time_for_mfu(SLOW, mfu)

    assert (f"did you mean {mfu / 100:g}?" in str(caught.value)) is hinted


TWO_SERVERS = {name: setting("megatron-22b", name, 16, 64) for name in ("dgx-a100-80g", "dgx-a800")}
HYBRID = Layout.parse("tp=8,pp=2,dp=1,mbs=4,sp=1,recompute=full")


def test_the_a800_pays_in_exposed_tensor_parallel_time():
    comparison = compare_clusters(TWO_SERVERS, HYBRID)
    a100, a800 = comparison.sides

    assert [change.figure for change in comparison.changes] == ["link rate"]
    assert comparison.changes[0].values == (300e9, 200e9)
    assert a800.same.terms["tensor_comm_s"] > 1.3 * a100.same.terms["tensor_comm_s"]
    extra = a800.same.predicted.step_time_s - a100.same.predicted.step_time_s
    assert a800.terms["communication inside the layers"] > 0.8 * extra > 0
    assert "communication inside the layers alone" in comparison.reason


def test_clusters_that_take_as_long_are_said_to_and_no_term_explains_it():
    case = setting("megatron-22b", "dgx-a100-80g", 16, 64)

    assert compare_clusters({"a": case, "b": case}, HYBRID).reason == f"With {HYBRID} b takes as long as a."


def test_a_comparison_ends_with_the_fastest_where_each_has_its_own_best_layout():
    comparison = compare_clusters(TWO_SERVERS, HYBRID)
    steps = {side.cluster: side.best.predicted.step_time_s for side in comparison.sides}

    assert "Each with its own best layout, dgx-a100-80g is the fastest: " in comparison.reason
    ratio = steps["dgx-a800"] / steps["dgx-a100-80g"]
    assert f"; dgx-a800 takes {ratio:.3g} times as long." in comparison.reason


def test_a_step_that_takes_more_than_twice_as_long_is_told_in_times():
    fast = setting("llama3-8b", "dgx-h100", 16, 16)
    sides = {"fast": fast, "slow": replace(fast, inter_bytes_per_s=5e9)}

    reason = compare_clusters(sides, Layout.parse("dp=16,mbs=1,zero=3")).reason

    assert " times); exposed gradient and parameter traffic alone" in reason
    assert "%" not in reason


def test_the_rule_of_thumb_says_1875_and_125_and_that_it_does_not_decide():
    a100, a800 = compare_clusters(TWO_SERVERS, HYBRID).sides

    assert "need 1.75 times its network; 300 / 160 GB/s (80% of 200) = 1.875: enough" in a100.rule
    assert "200 / 160 GB/s (80% of 200) = 1.25: bound by the links inside the node" in a800.rule
    assert "Spec by spec it is 1.5; the exposed time decides" in a100.rule  # under 1.75: the rule's own trap


def test_scaling_goes_to_the_whole_cluster_and_names_what_is_too_small():
    curve = scaling(replace(setting("llama3-8b", "aws-p4d", 64, 64), inter_bytes_per_s=1e9))

    assert curve.points[-1].gpus == 64
    assert {1, 2} <= set(curve.too_small)
    assert all(point.global_batch == 64 for point in curve.points)
    assert curve.points[0].speedup == curve.points[0].gpus
    assert curve.breaks_at is not None  # 8 Gb/s between nodes


def test_a_growing_batch_is_asked_for_and_shown():
    curve = scaling(setting("llama3-8b", "dgx-h100", 64, 128), grown=True)

    assert [point.global_batch / point.gpus for point in curve.points] == [2] * len(curve.points)


def test_fewer_gpus_are_no_longer_tried_where_two_numbers_miss_the_target_by_ever_more(monkeypatch):
    monkeypatch.setattr(inverse, "at_peak_s", lambda case: 0.0)
    monkeypatch.setattr(inverse, "fastest_layout", lambda case: (Layout(dp=case.gpus), 100.0 / case.gpus))
    monkeypatch.setattr(inverse, "beyond", lambda case, target_at: iter(()))
    fewest = fewest_gpus(replace(SLOW, gpus=64), lambda case: 1.0)

    assert (fewest.gpus, fewest.tried, fewest.least) == (None, 3, 32)  # 64, 48 and 32
    assert fewest_text(fewest) == "none of 3 numbers from 32 to 64 meets it; 64 come nearest, with 1.56 s"


def test_the_fewest_gpus_are_the_same_with_the_present_layout_known():
    best = explore(SLOW).best
    target = 1.5 * best.predicted.step_time_s
    known = fewest_gpus(SLOW, lambda case: target, (best.layout, best.predicted.step_time_s))

    assert known == fewest_gpus(SLOW, lambda case: target)


LARGE = {
    name: setting("llama3-70b", name, gpus=8, global_batch=16, seq_len=4096, stack="torchtitan")
    for name in ("mi300x-8", "dgx-h100")
}


def test_clusters_side_by_side_say_where_the_layout_of_all_has_no_room(printed):
    comparison = compare_clusters(LARGE)
    text = printed(show_comparison_of_clusters, comparison)

    assert [side.same.fits for side in comparison.sides] == ["fits", "does not fit"]
    assert "It does not fit on dgx-h100: these times are of no step that runs." in comparison.reason
    assert "GiB, does not fit" in text


def test_clusters_are_not_compared_by_steps_that_do_not_run():
    reason = compare_clusters(LARGE).reason

    assert reason.startswith("All are set beside each other with ")
    assert " less than " not in reason
    assert " more than " not in reason


def test_a_best_layout_that_needs_its_hosts_memory_is_not_compared_in_silence():
    comparison = compare_clusters(LARGE)
    ratio = comparison.sides[1].best.predicted.step_time_s / comparison.sides[0].best.predicted.step_time_s

    assert comparison.sides[1].best.layout.offload != "none"
    assert f"dgx-h100 takes {ratio:.3g} times as long, with " in comparison.reason
    assert comparison.reason.endswith(" in its hosts' memory.")


def test_a_point_of_the_scaling_curve_that_may_not_fit_says_so(printed):
    curve = scaling(setting("llama3-8b", "dgx-a100-80g", gpus=4, global_batch=16, seq_len=4096, stack="deepspeed"))
    doubtful = [point.row for point in curve.points if point.row.fits != "fits"]

    assert printed(show_scaling, curve).count("(may not fit)") == len(doubtful) > 0


def test_a_scaling_curve_says_what_it_is_measured_by_and_why_it_is_more_than_linear(printed):
    curve = scaling(setting("llama3-8b", "aws-p5", gpus=16, global_batch=32))
    text = " ".join(printed(show_scaling, curve).split())

    assert curve.too_small == (1,)
    assert "speedup and linear count from 2 GPUs, the fewest here" in text
    assert max(point.efficiency for point in curve.points) > 1.05
    assert "more than linear: what fits on 2 GPUs is slower a GPU (" in text


@pytest.fixture
def printed():
    def _printed(show, answer):
        console = Console(width=300, record=True, file=io.StringIO())
        show(console, answer)
        return console.export_text()

    return _printed


def test_a_target_in_days_says_how_many_days_each_way_takes():
    case = setting("llama3-8b", "dgx-a100-80g", 8, 128)
    target_s = step_time_for_days(case, 15.0, 60e9)

    found = solve(case, lambda asked: step_time_for_days(asked, 15.0, 60e9), target="60B tokens in 15 days", days=15.0)

    present = found.days_of(found.present_step_time_s)
    assert present == pytest.approx(15.0 * found.present_step_time_s / target_s)
    assert present > 15.0
    assert days_text(found, found.present_step_time_s) == f" ({format_days(present)})"
    days, gpus = found.days_of(found.fewest.step_time_s), found.fewest.gpus
    assert gpus == 16
    said = days_text(found, found.fewest.step_time_s, gpus)
    assert said == f" ({format_days(days)}, {days * 24 * 16:,.0f} GPU-hours)"
    assert f"takes {format_time(found.fewest.step_time_s)}{said}; " in fewest_text(found.fewest, said)
    assert days_text(replace(found, target_days=None), 1.0, 16) == ""
