"""The sizing arithmetic of the field: each published figure that is right, and each that misleads."""

import pytest

from meshwright.cluster.builders import node_group
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from meshwright.plan.clusters.machines import cluster_by_name, node, with_rates
from meshwright.plan.gantt import bars, end_s, side_by_side
from meshwright.plan.targets.envelope import (
    Question,
    all_reduce_traffic_bytes,
    envelope,
    state_bytes,
    step_flops,
    training_days,
)
from meshwright.timeline import Span, Timeline, step_parts

CATALOGUE = load_catalogue()
A100 = node_group(CATALOGUE, "dgx-a100-80g")
TWO_B = {"parameters": 2e9, "seq_len": 2048, "global_batch": 16, "gpus": 8, "recompute": "full"}


def on(name, gpus, inter_gbps=None, **changes):
    inter = None if inter_gbps is None else inter_gbps * 1e9 / 8
    cluster = cluster_by_name(CATALOGUE, name, gpus, inter_bytes_per_s=inter)
    return envelope(Question(**TWO_B | {"gpus": gpus} | changes), node(cluster))


def test_flops_and_time_of_two_billion_parameters():
    result = on("dgx-a100-80g", 8)

    assert result.value("FLOPs of one GPU") == 65.536e12
    assert result.value("compute time") == pytest.approx(0.42, abs=0.0005)


def test_full_recomputation_is_four_passes_in_place_of_three():
    assert step_flops(1e9, 1, recompute=True) / step_flops(1e9, 1) == 4 / 3


def test_recomputed_flops_do_not_count_as_model_flops():
    assert 156 / 312 == 0.5
    assert any("as MFU it is 0.375" in warning for warning in on("dgx-a100-80g", 8).warnings)


def test_two_billion_parameters_take_36_gigabytes():
    assert state_bytes(2e9) == 36e9
    assert on("dgx-a100-80g", 8).value("memory") == 36e9


@pytest.mark.parametrize(("gbps", "seconds"), [(200, 12.8), (1600, 1.6)])
def test_eighty_billion_gradients_once_over_a_link(gbps, seconds):
    assert 4 * 80e9 == 320e9
    assert 4 * 80e9 / (gbps * 1e9 / 8) == seconds


@pytest.mark.parametrize(
    ("name", "rough", "exact"), [("dgx-a100-80g", 0.053, 0.047), ("dgx-h100", 0.035, 0.031)]
)  # fmt: skip
def test_gradients_of_two_billion_parameters_in_a_node(name, rough, exact):
    result = on(name, 8)
    rate = node_group(CATALOGUE, name).gpu_bandwidth_bytes_per_s

    assert result.value("gradients") == 8e9
    assert result.value("traffic in the node") == all_reduce_traffic_bytes(8e9, 8) == 14e9
    assert result.value("link time in the node") == pytest.approx(exact, abs=0.0005)
    assert 2 * 8e9 / rate == pytest.approx(rough, abs=0.0006)  # twice the bytes, the text's shorter rule
    assert "not a bottleneck" in result.verdict  # one text says that it is one


def test_the_duplex_rate_gives_the_figure_that_one_text_prints():
    assert 16e9 / CATALOGUE.interconnect("nvlink-3").duplex_bytes_per_s == pytest.approx(0.027, abs=0.0005)


@pytest.mark.parametrize(("gbps", "rough", "exact"), [(200, 0.64, 0.48), (400, 0.32, 0.24)])
def test_gradients_over_four_nodes(gbps, rough, exact):
    result = on("dgx-a100-80g", 32, gbps, global_batch=64)

    assert result.value("link time between nodes") == pytest.approx(exact)
    assert 2 * 8e9 / (gbps * 1e9 / 8) == pytest.approx(rough)


def test_four_nodes_over_200_gigabits_are_a_bottleneck_with_the_batch_grown_and_more_so_with_it_fixed():
    grown, fixed = on("dgx-a100-80g", 32, 200, global_batch=64), on("dgx-a100-80g", 32, 200)

    assert grown.value("compute time") == pytest.approx(0.42, abs=0.0005)
    assert fixed.value("compute time") == pytest.approx(0.105, abs=0.0005)
    assert "a bottleneck" in grown.verdict
    assert "not a bottleneck" not in grown.verdict
    assert any("grown 4-fold" in warning and "420 ms" in warning for warning in fixed.warnings)
    assert any("16 does not divide over 32 GPUs" in warning for warning in fixed.warnings)


def test_backward_with_recomputation_hides_less_than_a_text_says():
    backward_s = 3 / 4 * on("dgx-a100-80g", 8).value("compute time")

    assert backward_s == pytest.approx(0.315, abs=0.0005)
    assert backward_s < 2 * 8e9 / 50e9 == 0.32  # not wholly hidden


@pytest.mark.parametrize(("gbps", "seconds"), [(200, 0.8), (400, 0.4)])
def test_at_80_percent_of_the_link(gbps, seconds):
    result = on("dgx-a100-80g", 32, gbps)

    assert 16e9 / (0.8 * gbps * 1e9 / 8) == pytest.approx(seconds)
    assert result.value("at 80% of the rate between nodes") == pytest.approx(0.75 * seconds)  # exact: 2 x 3/4


def test_nvlink_is_twelve_times_a_200_gigabit_network():
    assert A100.gpu_bandwidth_bytes_per_s / 25e9 == 12


def test_a_layer_of_1800_billion_parameters_does_not_fit():
    result = envelope(Question(parameters=1.8e12, seq_len=1, global_batch=1, gpus=1, layers=120), A100)

    assert result.value("one layer") == 60e9
    assert "must be cut" in next(line.formula for line in result.lines if line.name == "one layer")


def test_a_token_budget_of_13_trillion_on_one_gpu():
    question = Question(parameters=1.8e12, seq_len=1, global_batch=1, gpus=1, peak_share=1.0, tokens=13e12)
    result = envelope(question, A100)
    years = result.value("training") / 365.25

    assert result.value("time of a token") == pytest.approx(34.6e-3, abs=0.05e-3)
    assert years == pytest.approx(14_260, rel=0.001)
    assert next(line.text for line in result.lines if line.name == "training") == "14,260 years"


def test_gpu_hours_are_those_of_all_gpus_through_all_days():
    result = on("dgx-a100-80g", 8, tokens=1e12)

    assert result.value("GPU-hours") == pytest.approx(8 * 24 * result.value("training"))


def test_the_well_known_412_years_and_30_seconds_a_token_do_not_hold_together():
    assert training_days(13e12, 1, 30) / 365.25 == pytest.approx(12.4e6, rel=0.005)
    assert training_days(13e12, 1, 1e-3) / 365.25 == pytest.approx(412, rel=0.001)


def test_the_overlapped_step_hides_what_fits_behind_backward():
    result = on("dgx-a100-80g", 8)
    alone, together = step_parts(result.in_sequence.spans), step_parts(result.overlapped.spans)

    assert alone["exposed_comm_s"] == pytest.approx(14e9 / 300e9)
    assert together["exposed_comm_s"] == pytest.approx(0)
    assert together["step_time_s"] == pytest.approx(result.value("compute time"))
    assert alone["step_time_s"] == pytest.approx(together["step_time_s"] + 14e9 / 300e9 + alone["data_s"])


def test_one_gpu_exchanges_nothing():
    result = on("dgx-a100-80g", 1, global_batch=2)

    assert "nothing to exchange" in result.verdict
    assert not any(line.name.startswith("link time") for line in result.lines)


def test_an_overridden_rate_scales_every_link_of_the_node():
    fast = node(with_rates(cluster_by_name(CATALOGUE, "mi300x-8", 8), intra_bytes_per_s=896e9))

    assert (fast.gpu_bandwidth_bytes_per_s, fast.peer_bandwidth_bytes_per_s) == (896e9, 128e9)


def test_a_cluster_without_node_groups_is_refused(tmp_path):
    path = tmp_path / "cluster.json"
    path.write_text('{"name": "x"}')

    with pytest.raises(InputError, match="has no GPUs to plan for"):
        cluster_by_name(CATALOGUE, str(path), 8)


def test_a_timeline_is_drawn_to_scale():
    timeline = Timeline(
        spans=(Span(0, "compute", "forward", 0, 1), Span(0, "compute", "backward", 1, 3), Span(0, "comm", "x", 2, 4)),
        source="predicted",
    )

    assert end_s(timeline) == 4
    assert bars(timeline, scale_s=4, width=8) == ["compute       |FFBBBB  | 3 s", "communication |    cccc| 2 s"]
    assert side_by_side({"one": timeline}, width=8)[0] == "one: 4 s"


@pytest.mark.parametrize(
    ("parameters", "multiplied", "sharers", "copies"),
    [(100e9, None, 22, 11), (100e9, 5e9, 22, 11), (20e9, None, 5, 32)],
)  # fmt: skip
def test_gradients_of_a_state_that_no_gpu_holds_are_summed_over_its_copies_with_experts_or_without(
    parameters, multiplied, sharers, copies
):
    result = on("dgx-a100-80g", 256, parameters=parameters, multiplied=multiplied, recompute="none")

    of_a_node = 4 * parameters * min(1, 8 / sharers)
    assert result.value("GPUs for the state") == sharers
    assert result.value("gradients") == pytest.approx(4 * parameters / sharers)
    assert result.value("traffic between nodes") == pytest.approx(2 * (copies - 1) / copies * of_a_node)
    assert any("share one state send one another is not counted" in warning for warning in result.warnings)


def test_a_state_that_needs_more_gpus_than_there_are_does_not_fit():
    result = on("dgx-a100-80g", 8, parameters=100e9)

    assert "one copy of the state: nothing to exchange" in result.verdict
    assert "the state needs 22 GPUs, and there are 8: it does not fit" in result.warnings


@pytest.mark.parametrize(
    ("name", "gpus", "share", "tokens", "batch", "parameters", "days"),
    [
        ("dgx-h100", 16384, 0.404, 15.6e12, 2048, 405.85e9, 67.2),  # the run took 78: it did not go on without a stop
        ("dgx-h100", 8192, 0.4, 15e12, 2048, 70.55e9, 22.7),
    ],
)
def test_days_by_an_mfu_are_those_of_its_definition_and_the_links_are_a_bound_beside_them(
    name, gpus, share, tokens, batch, parameters, days
):
    shape = {"parameters": parameters, "seq_len": 8192, "global_batch": batch, "recompute": "none", "tokens": tokens}
    given = on(name, gpus, peak_share=share, whole_step=True, **shape)
    slow = on(name, gpus, 100, peak_share=share, whole_step=True, **shape)

    assert given.value("training") == slow.value("training") == pytest.approx(days, rel=0.002)
    assert given.value("training") == pytest.approx(6 * parameters * tokens / (gpus * share * 989e12) / 86400, rel=1e-3)
    assert given.value("training, by the links alone") < given.value("training")
    assert slow.value("training, by the links alone") > slow.value("training")
    assert "by the MFU given" in slow.verdict
    assert "out of reach" in slow.verdict


def test_days_by_a_share_that_nobody_gave_wait_for_what_the_links_do_not_hide():
    shape = {"recompute": "none", "tokens": 1e12}
    assumed, given = (on("dgx-a100-80g", 32, 200, whole_step=whole, **shape) for whole in (False, True))

    assert assumed.value("training") > given.value("training")


def test_an_optimizer_with_smaller_moments_needs_fewer_gpus_for_its_state():
    adam, small = (on("dgx-a100-80g", 16, parameters=20e9, moment_bytes=held) for held in (8.0, 2.0))

    assert (adam.value("memory"), small.value("memory")) == (20e9 * 18, 20e9 * 12)
    assert (adam.value("GPUs for the state"), small.value("GPUs for the state")) == (5, 3)


def test_the_gpus_for_some_days_are_those_at_which_the_days_of_the_budget_are_met():
    asked = {"parameters": 70e9, "global_batch": 1024, "seq_len": 4096, "recompute": "none", "whole_step": True}
    found = on("dgx-h100", 1024, **asked, peak_share=0.4, tokens=2e12, days=30.0)

    fewest = found.value("GPUs for these days")

    flops = 6 * 70e9 * 2e12
    assert fewest * 0.4 * 989e12 * 30 * 86400 >= flops > (fewest - 1) * 0.4 * 989e12 * 30 * 86400
    assert found.value("training") == pytest.approx(30 * fewest / 1024, rel=2e-3)


def test_by_an_mfu_the_days_of_all_tokens_need_no_batch():
    asked = {"parameters": 70e9, "gpus": 512, "peak_share": 0.4, "whole_step": True, "tokens": 15e12}
    nodes = node(cluster_by_name(CATALOGUE, "dgx-h100", 512))
    bare = envelope(Question(**asked, seq_len=None, global_batch=None), nodes)
    whole = envelope(Question(**asked, seq_len=4096, global_batch=1024), nodes)

    assert bare.value("FLOPs of all tokens") == 6 * 70e9 * 15e12
    assert bare.value("training") == pytest.approx(360, rel=0.001) == whole.value("training")
    assert bare.value("GPU-hours") == pytest.approx(whole.value("GPU-hours"))
    assert not bare.overlapped.spans
    assert "without --global-batch and --seq-len" in bare.verdict


@pytest.mark.parametrize("lacking", [{"whole_step": False}, {"tokens": None}], ids=["no MFU", "no tokens"])
def test_without_an_mfu_or_tokens_a_batch_is_needed(lacking):
    asked = {"parameters": 70e9, "gpus": 8, "whole_step": True, "tokens": 1e12, "seq_len": None, "global_batch": None}

    with pytest.raises(ValueError, match="expected both"):
        Question(**asked | lacking)


def test_a_percentage_without_its_sign_is_asked_about():
    with pytest.raises(ValueError, match=r"mfu: expected more than 0 and at most 1, got 45; did you mean 0\.45\?"):
        Question(parameters=7e9, seq_len=2048, global_batch=16, gpus=8, peak_share=45.0)
