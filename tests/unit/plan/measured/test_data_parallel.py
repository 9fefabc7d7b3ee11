"""The price of a step: sums of what was measured, and communication that overlaps, contends and waits."""

import msgspec
import numpy as np
import pytest

from meshwright.cluster.graph import CollectiveFit, Measurements, OperatorTime, Straggling
from meshwright.errors import InputError
from meshwright.layout import Layout
from meshwright.plan.measured.data_parallel import StepInputs, Times, collective_s, predict_step, straggling
from meshwright.timeline import step_parts
from meshwright.workload.graph import Operator
from meshwright.workload.stages import step_program
from meshwright.workload.transformer import ModelConfig, describe_workload

MODEL = ModelConfig()
FORWARD_S, BACKWARD_S = 1e-3, 2e-3  # of every operator
CHECKPOINTING = Operator(kind="recomputing", shape=(11, 0))


def measured(ranks, *, alpha_s=1e-3, beta_s_per_byte=1e-9, busy_share=0.0, delay_s=0.0, straggling=0.0):
    workload = describe_workload(MODEL, seq_len=128, micro_batch=2)
    operators = [*(op for layer in workload.layers for op in layer.operators), *workload.update, CHECKPOINTING]
    return Measurements(
        fingerprint="test",
        operators=tuple(
            OperatorTime(operator=key, ranks=ranks, threads=1, forward_s=FORWARD_S, backward_s=BACKWARD_S)
            for key in {op.key for op in operators}
        ),
        collectives=(
            CollectiveFit(
                collective="all_reduce", backend="gloo", ranks=ranks, alpha_s=alpha_s, min_bytes=1, max_bytes=2**30,
                beta_s_per_byte=beta_s_per_byte, busy_share=busy_share, delay_s=delay_s,
            ),
        ),
        straggling=(Straggling(ranks=ranks, share=straggling),),
    )  # fmt: skip


def parts(ranks, global_batch, *, bucket_bytes=2**30, recompute="none", **figures):
    inputs = StepInputs(
        workload=describe_workload(MODEL, seq_len=128, micro_batch=2),
        global_batch=global_batch,
        measured=measured(ranks, **figures),
        backend="gloo",
        peak_flops_per_s=1e11,
        data_s=1e-4,
    )
    timeline = predict_step(Layout(dp=ranks, mbs=2, recompute=recompute), inputs, bucket_bytes)
    return step_parts(timeline.spans)


def buckets(workload, bucket_bytes):
    gradients = step_program(workload, Layout(dp=2, mbs=2), 1, bucket_bytes=bucket_bytes).stages[0].gradients
    return [bucket.bytes for bucket in gradients]


OPERATORS = 1 + 4 * 11 + 3  # embedding, four layers, output


def test_one_rank_costs_the_sum_of_its_operators():
    step = parts(1, 2)

    assert step["forward_s"] == pytest.approx(OPERATORS * FORWARD_S)
    assert step["backward_s"] == pytest.approx(OPERATORS * BACKWARD_S)
    assert step["optimizer_s"] == pytest.approx(2 * FORWARD_S)
    assert step["exposed_comm_s"] == 0
    assert step["step_time_s"] == pytest.approx(OPERATORS * 3e-3 + 2e-3 + 1e-4)


def test_accumulation_repeats_forward_backward_and_data():
    once, thrice = parts(1, 2), parts(1, 6)

    for name in ("forward_s", "backward_s", "data_s"):
        assert thrice[name] == pytest.approx(3 * once[name])
    assert thrice["optimizer_s"] == pytest.approx(once["optimizer_s"])


def test_full_recomputation_runs_the_layers_forward_again_and_the_hosts_part_of_it():
    kept, again = parts(1, 2), parts(1, 2, recompute="full")

    assert again["forward_s"] - kept["forward_s"] == pytest.approx(4 * FORWARD_S)
    assert again["backward_s"] - kept["backward_s"] == pytest.approx(44 * FORWARD_S + 4 * BACKWARD_S)


def test_a_single_bucket_is_wholly_exposed_and_many_hide_all_but_the_last():
    gradient_bytes = describe_workload(MODEL, seq_len=128, micro_batch=2).parameters * 4
    one = parts(2, 4, beta_s_per_byte=1e-8)
    many = parts(2, 4, beta_s_per_byte=1e-8, bucket_bytes=2**19)

    loss_s = 1e-3 + 16e-8
    assert one["exposed_comm_s"] == pytest.approx(1e-3 + gradient_bytes * 1e-8 + loss_s)
    assert one["hidden_comm_s"] == 0
    assert many["exposed_comm_s"] < one["exposed_comm_s"]
    assert many["hidden_comm_s"] > 0


def test_hidden_communication_on_the_same_cores_makes_backward_longer():
    free = parts(2, 4, beta_s_per_byte=1e-8, bucket_bytes=2**19)
    shared = parts(2, 4, beta_s_per_byte=1e-8, bucket_bytes=2**19, busy_share=0.5)

    assert shared["backward_s"] - free["backward_s"] == pytest.approx(0.5 * shared["hidden_comm_s"], rel=0.35)
    assert shared["step_time_s"] > free["step_time_s"]


def test_a_bucket_that_computation_goes_on_beside_is_late_and_the_last_one_is_not():
    delay_s = 5e-4
    count = len(buckets(describe_workload(MODEL, seq_len=128, micro_batch=2), 2**19))

    assert parts(2, 4, delay_s=delay_s) == parts(2, 4)
    quick, late = (parts(2, 4, beta_s_per_byte=0.0, bucket_bytes=2**19, delay_s=s) for s in (0.0, delay_s))
    assert late["step_time_s"] == pytest.approx(quick["step_time_s"])
    assert late["hidden_comm_s"] - quick["hidden_comm_s"] == pytest.approx((count - 1) * delay_s)


def test_the_slowest_rank_is_waited_for():
    even, uneven = parts(2, 4), parts(2, 4, straggling=0.05)

    assert uneven["exposed_comm_s"] - even["exposed_comm_s"] == pytest.approx(0.05 * OPERATORS * 3e-3, rel=0.01)


@pytest.mark.parametrize(("ranks", "together"), [(8, 2), (8, 4), (64, 8), (16, 16)])
def test_groups_that_go_at_their_mean_pace_lag_as_much_as_draws_of_ranks_say(ranks, together):
    paces_s = np.random.default_rng(0).normal(1.0, 0.1, (20_000, ranks))
    groups_s = paces_s.reshape(len(paces_s), -1, together).mean(axis=2)
    alone, of_groups = (each.max(axis=1).mean() - 1 for each in (paces_s, groups_s))

    assert straggling(measured(ranks, straggling=alone), ranks) == alone
    assert straggling(measured(ranks, straggling=alone), ranks, together=together) == pytest.approx(of_groups, abs=1e-3)


@pytest.mark.parametrize(("busy", "ranks"), [(8, 2), (8, 4), (64, 8), (4, 1)])
def test_of_ranks_that_work_beside_others_the_slowest_lags_as_draws_of_them_say(busy, ranks):
    paces_s = np.random.default_rng(0).normal(1.0, 0.1, (20_000, busy))
    of_all, of_some = (paces_s[:, :count].max(axis=1).mean() - 1 for count in (busy, ranks))

    assert straggling(measured(busy, straggling=of_all), ranks, busy=busy) == pytest.approx(of_some, abs=3e-3)


def test_buckets_hold_all_gradients_in_backwards_order():
    workload = describe_workload(MODEL, seq_len=128, micro_batch=2)

    assert sum(buckets(workload, 2**19)) == workload.parameters * 4
    assert buckets(workload, 2**40) == [workload.parameters * 4]
    assert all(size >= 2**19 for size in buckets(workload, 2**19)[:-1])


def test_what_was_not_measured_is_said():
    with pytest.raises(InputError, match="not measured on 4 ranks"):
        Times(measured(2), 4).of(describe_workload(MODEL, seq_len=128, micro_batch=2).layers[0].operators[0])
    with pytest.raises(InputError, match="all_reduce of nccl over 2 ranks"):
        collective_s(measured(2), "all_reduce", "nccl", 2, 100)


def test_the_fit_whose_sizes_are_nearest_is_used():
    small = measured(2).collectives[0]
    both = msgspec.structs.replace(
        measured(2),
        collectives=(
            msgspec.structs.replace(small, max_bytes=1000, alpha_s=1.0),
            msgspec.structs.replace(small, min_bytes=1000, alpha_s=2.0),
        ),
    )

    assert collective_s(both, "all_reduce", "gloo", 2, 10) == pytest.approx(1.0)
    assert collective_s(both, "all_reduce", "gloo", 2, 5000) == pytest.approx(2.0, rel=1e-4)
