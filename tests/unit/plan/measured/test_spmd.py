"""Predicted traffic of a split layout, from figures that can be added up by hand."""

import msgspec
import pytest

from meshwright.cluster.graph import CollectiveFit, Measurements, OperatorTime, Straggling, Timed, blocking, on_link
from meshwright.errors import InputError
from meshwright.layout import Layout
from meshwright.plan.measured.data_parallel import StepInputs
from meshwright.plan.measured.needs import ALL_REDUCE, needs
from meshwright.plan.measured.pipeline import predict_pipeline_step
from meshwright.plan.measured.spmd import predict_spmd_step
from meshwright.timeline import by_rank, step_parts
from meshwright.workload.transformer import ModelConfig, describe_workload

MODEL = ModelConfig(num_attention_heads=4, num_key_value_heads=4, num_hidden_layers=3)
ALPHA_S = 1e-3  # of an all-reduce, half of it of every other collective; bytes are free


def inputs(layout, global_batch=4, autocast=""):
    workload = describe_workload(MODEL, seq_len=128, micro_batch=layout.mbs, layout=layout, autocast=autocast)
    times = [
        OperatorTime(operator=op.key, ranks=layout.world_size, threads=1, forward_s=1e-3, backward_s=2e-3)
        for op in needs(layout, workload, global_batch).operators
    ]
    needed = needs(layout, workload, global_batch)
    alphas_s = {"all_reduce": ALPHA_S, blocking("all_reduce"): ALPHA_S, on_link("send_recv"): 0.0}
    fits = [
        CollectiveFit(
            collective=name, backend="gloo", ranks=ranks, alpha_s=alphas_s.get(name, ALPHA_S / 2), dtype=dtype,
            beta_s_per_byte=0.0, min_bytes=1, max_bytes=2**30, busy_share=0.0,
        )
        for ranks in needed.largest_bytes
        for name, dtype in (
            *beside_of(needed, ranks),
            (on_link("send_recv"), "float"),
            *((blocking(name), dtype) for name, dtype in needed.blocking.get(ranks, ())),
        )
    ]  # fmt: skip
    measured = Measurements(fingerprint="test", operators=tuple(times), collectives=tuple(fits))
    return StepInputs(
        workload=workload, global_batch=global_batch, measured=measured, backend="gloo", peak_flops_per_s=None
    )


def beside_of(needed, ranks):
    return sorted(needed.overlapped.get(ranks, {ALL_REDUCE}))


def parts(text, **batch):
    layout = Layout.parse(text)
    return step_parts(predict_spmd_step(layout, inputs(layout, **batch), 2**30).spans)


def exposed_s(text, **batch):
    return parts(text, **batch)["exposed_comm_s"]


def test_tensor_parallelism_waits_twice_a_layer_each_way_and_at_both_ends():
    layers, embedding, loss, output, norm_and_log = 3 * 4, 1, 3, 1, 2

    assert exposed_s("dp=1,tp=2,mbs=4") == pytest.approx((layers + embedding + loss + output + norm_and_log) * ALPHA_S)


@pytest.mark.parametrize("alpha_s", [10.0, 1e-6])  # much longer, and shorter, than what is computed before
def test_a_collective_hides_a_share_of_the_computation_before_it_and_of_itself_at_most(alpha_s):
    layout = Layout.parse("dp=1,tp=2,mbs=4")
    given = inputs(layout)

    def step(hides):
        fits = [
            msgspec.structs.replace(fit, alpha_s=alpha_s, hides=hides) if fit.collective.startswith("block") else fit
            for fit in given.measured.collectives
        ]
        measured = msgspec.structs.replace(given.measured, collectives=tuple(fits))
        return step_parts(predict_spmd_step(layout, msgspec.structs.replace(given, measured=measured), 2**30).spans)

    shown, hiding = step(0.0), step(0.25)

    embedding_s = 2e-3  # of backward, after which no call comes
    computed_s, calls = shown["forward_s"] + shown["backward_s"] - embedding_s, 3 * 4 + 1 + 3 + 1
    hidden_s = 0.25 * min(computed_s, calls * alpha_s)
    assert shown["exposed_comm_s"] - hiding["exposed_comm_s"] == pytest.approx(hidden_s)


def test_sequence_parallelism_gathers_and_scatters_what_tensor_parallelism_sums_and_sums_the_gradients_of_norms():
    layers, embedding, loss, output, norm_and_log = 3 * 8 / 2, 2 / 2, 3, 2 / 2, 2  # either takes half an all-reduce

    calls = layers + embedding + loss + output + 1 + norm_and_log
    assert exposed_s("dp=1,tp=2,mbs=4,sp=1") == pytest.approx(calls * ALPHA_S)


def test_zero_1_waits_for_its_bucket_as_long_as_scattering_beside_computation_was_measured_to_take():
    layout = Layout.parse("dp=2,mbs=2,zero=1")
    given = inputs(layout)
    fits = tuple(
        msgspec.structs.replace(fit, alpha_s=7 * ALPHA_S) if fit.collective == "reduce_scatter" else fit
        for fit in given.measured.collectives
    )
    slower = msgspec.structs.replace(given, measured=msgspec.structs.replace(given.measured, collectives=fits))

    before, after = (step_parts(predict_spmd_step(layout, each, 2**30).spans) for each in (given, slower))

    gather, norm_and_log = 1 / 2, 2
    assert before["exposed_comm_s"] == pytest.approx((1 / 2 + gather + norm_and_log) * ALPHA_S)
    assert after["exposed_comm_s"] == pytest.approx((7 + gather + norm_and_log) * ALPHA_S)


def test_context_parallelism_gathers_and_scatters_keys_and_values_in_each_layer():
    # half an all-reduce each; gradients are summed in one bucket at the end
    assert exposed_s("dp=1,cp=2,mbs=4") == pytest.approx((3 * 2 * 0.5 + 1 + 2) * ALPHA_S)


def test_zero_3_gathers_the_weights_of_a_layer_twice_the_others_once_and_scatters_the_gradients_of_all():
    gathered, first_gathered, scattered = 3 * 2 + 1, 1 + 1, 3 + 1  # of the root and the first layer nothing is ahead

    found = parts("dp=2,mbs=2,zero=3")

    assert found["exposed_comm_s"] == pytest.approx(((first_gathered + scattered) * 0.5 + 2) * ALPHA_S)
    assert found["hidden_comm_s"] == pytest.approx((gathered - first_gathered) * 0.5 * ALPHA_S)


def test_zero_2_gathers_weights_once_a_step_and_scatters_gradients_after_each_micro_batch():
    gathered, first_gathered, scattered, micro_batches = 3 + 1, 1 + 1, 3 + 1, 2

    found = parts("dp=2,mbs=1,zero=2")

    assert found["exposed_comm_s"] == pytest.approx(((first_gathered + scattered * micro_batches) * 0.5 + 2) * ALPHA_S)
    assert found["hidden_comm_s"] == pytest.approx((gathered - first_gathered) * 0.5 * ALPHA_S)


def test_weights_that_travel_longer_than_the_layer_before_computes_are_waited_for():
    layout = Layout.parse("dp=2,mbs=2,zero=3")
    given = inputs(layout)
    gather_s = 0.1  # nothing of a layer takes as long
    slow = [
        msgspec.structs.replace(fit, alpha_s=gather_s) if fit.collective == blocking("all_gather") else fit
        for fit in given.measured.collectives
    ]
    slowly = msgspec.structs.replace(given, measured=msgspec.structs.replace(given.measured, collectives=tuple(slow)))

    quick, late = (step_parts(predict_spmd_step(layout, each, 2**30).spans) for each in (given, slowly))

    ahead = 2 + 3  # layers whose weights are asked for ahead, in forward and in backward; those of two are not
    assert late["hidden_comm_s"] < ahead * gather_s / 2
    waited_s = (2 + ahead) * gather_s - late["hidden_comm_s"]
    assert late["step_time_s"] - quick["step_time_s"] == pytest.approx(waited_s - 2 * ALPHA_S / 2)


@pytest.mark.parametrize(
    ("text", "forward", "backward"),
    [
        ("dp=2,mbs=2,zero=1", 0, 0),
        ("dp=2,mbs=1,zero=3", 2 * 1.0, 2 * 3.0),  # two micro-batches, either of which gathers
        ("dp=2,mbs=1,zero=2", 1.0 + 0.25, 2 * 0.5),  # the second finds the weights
    ],
)
def test_what_sharding_does_on_the_host_counts_for_each_layer_and_the_rest_as_computation(text, forward, backward):
    layout = Layout.parse(text)
    free = inputs(layout)
    added = {"sharding[5x2]": (0.25, 0.5), "sharding[5x3]": (1.0, 3.0)}  # seconds of forward and backward
    busy = tuple(
        msgspec.structs.replace(item, forward_s=1e-3 + pair[0], backward_s=2e-3 + pair[1])
        for item in free.measured.operators
        for pair in [added.get(item.operator, (0.0, 0.0))]
    )
    slow = msgspec.structs.replace(free, measured=msgspec.structs.replace(free.measured, operators=busy))

    before, after = (step_parts(predict_spmd_step(layout, each, 2**30).spans) for each in (free, slow))

    groups = 3 + 1
    assert after["forward_s"] - before["forward_s"] == pytest.approx(groups * forward)
    assert after["backward_s"] - before["backward_s"] == pytest.approx(groups * backward)


@pytest.mark.parametrize(("mode", "again"), [("full", 11), ("selective", 6)])  # of a layer's 11 operators
@pytest.mark.parametrize("rest", ["dp=1,tp=2,mbs=2", "dp=1,cp=2,mbs=2,zero=1", "dp=1,pp=2,mbs=2"])
def test_recomputation_runs_operators_again_and_costs_the_host(rest, mode, again):
    def compute(text):
        layout = Layout.parse(text)
        given = inputs(layout)
        predict = predict_pipeline_step if layout.pp > 1 else predict_spmd_step
        each = map(step_parts, by_rank(predict(layout, given, 2**30).spans))
        return [sum(found) for found in zip(*((part["forward_s"], part["backward_s"]) for part in each), strict=True)]

    before, after = compute(rest), compute(f"{rest},recompute={mode}")
    micro_batches, layers, forward_s, backward_s = 2, 3, 1e-3, 2e-3

    assert after[0] - before[0] == pytest.approx(micro_batches * layers * forward_s)
    assert after[1] - before[1] == pytest.approx(micro_batches * layers * (again * forward_s + backward_s))


def test_copies_of_a_sharded_model_sum_their_gradients_once_a_step():
    for global_batch in (4, 12):
        alone = exposed_s("dp=2,mbs=1,zero=3", global_batch=global_batch // 2)

        assert exposed_s("dp=4,mbs=1,zero=3,replicas=2", global_batch=global_batch) == pytest.approx(
            alone + 4 * ALPHA_S
        )


def test_a_rank_of_tensor_parallelism_computes_its_share():
    whole = describe_workload(MODEL, seq_len=128, micro_batch=1)
    half = describe_workload(MODEL, seq_len=128, micro_batch=1, layout=Layout(tp=2))

    assert half.model_flops * 2 == whole.model_flops
    assert half.parameters == pytest.approx(whole.parameters / 2, rel=0.01)


def test_a_split_without_buckets_waits_for_the_slowest_rank_as_long_as_it_is_behind():
    layout = Layout.parse("dp=1,tp=2,mbs=4")
    even = inputs(layout)
    uneven = msgspec.structs.replace(
        even, measured=msgspec.structs.replace(even.measured, straggling=(Straggling(ranks=2, share=0.1),))
    )

    step_s, later_s = (step_parts(predict_spmd_step(layout, i, 2**30).spans)["step_time_s"] for i in (even, uneven))

    assert later_s == pytest.approx(1.1 * step_s, rel=0.01)


def test_buckets_of_some_ranks_wait_for_the_slowest_of_all():
    layout = Layout.parse("dp=2,tp=2,mbs=2")
    even = inputs(layout)
    uneven = msgspec.structs.replace(
        even, measured=msgspec.structs.replace(even.measured, straggling=(Straggling(ranks=4, share=0.1),))
    )

    step, later = (predict_spmd_step(layout, i, 2**30).spans for i in (even, uneven))

    computed_s = max(span.end_s for span in step if span.name == "backward")
    assert step_parts(later)["step_time_s"] - step_parts(step)["step_time_s"] == pytest.approx(0.1 * computed_s)


def test_what_zero_3_gathers_and_scatters_is_copied():
    layout = Layout.parse("dp=2,mbs=2,zero=3")
    free = inputs(layout)
    bandwidth = 1e9  # of both ranks together
    slow = msgspec.structs.replace(
        free, measured=msgspec.structs.replace(free.measured, memory_bandwidth_bytes_per_s=bandwidth)
    )
    layers, root = (4 * n for n in (free.workload.layers[1].parameters * 3, 256 * 128 + 128))

    copied_s = [step_parts(predict_spmd_step(layout, i, 2**30).spans) for i in (free, slow)]

    more_s = sum(copied_s[1][name] - copied_s[0][name] for name in ("forward_s", "backward_s"))
    assert more_s == pytest.approx(2 * (3 * layers + 2 * root) * 2 / bandwidth)


def test_under_bf16_what_products_return_is_summed_and_timed_in_bf16():
    layout = Layout.parse("dp=1,tp=2,mbs=4")
    given = {name: inputs(layout, autocast=name) for name in ("", "bf16")}
    summed = {name: needs(layout, each.workload, 4).blocking[2] for name, each in given.items()}
    fits = [
        msgspec.structs.replace(fit, alpha_s=3 * ALPHA_S) if fit.dtype == "bfloat16" else fit
        for fit in given["bf16"].measured.collectives
    ]
    slower = msgspec.structs.replace(given["bf16"].measured, collectives=tuple(fits))
    narrow = msgspec.structs.replace(given["bf16"], measured=slower)
    single, half = (predict_spmd_step(layout, each, 2**30) for each in (given[""], narrow))

    assert summed == {
        "": {Timed("all_reduce")},
        "bf16": {Timed("all_reduce"), Timed("all_reduce", "bfloat16")},  # gradients are those of residuals in float32
    }
    forward_sums, sent = 3 * 2, 4 * 128 * MODEL.hidden_size
    added_s = step_parts(half.spans)["exposed_comm_s"] - step_parts(single.spans)["exposed_comm_s"]
    assert added_s == pytest.approx(forward_sums * 2 * ALPHA_S)
    assert sum(span.bytes == 2 * sent for span in half.spans) == forward_sums
    assert (
        sum(span.bytes == 4 * sent for span in half.spans) == sum(span.bytes == 4 * sent for span in single.spans) - 6
    )


def test_a_sum_in_a_type_that_was_not_measured_is_not_priced_by_another():
    layout = Layout.parse("dp=1,tp=2,mbs=4")
    single, half = inputs(layout), inputs(layout, autocast="bf16")
    known = msgspec.structs.replace(half.measured, collectives=single.measured.collectives)

    with pytest.raises(InputError, match="blocking all_reduce in bfloat16 of gloo over 2 ranks was not measured"):
        predict_spmd_step(layout, msgspec.structs.replace(half, measured=known), 2**30)
