"""The search: what is legal, what fits, what is worth measuring, what wins."""

import msgspec
import pytest

from meshwright.cluster.graph import OperatorTime, blocking
from meshwright.errors import InputError
from meshwright.layout import Layout
from meshwright.plan.layouts.legality import illegal
from meshwright.plan.measured.spmd import update_operators
from meshwright.plan.search.measured_search import (
    SearchProblem,
    bucket_sizes,
    candidate_layouts,
    choose_layout,
    fits,
    is_worth_splitting,
    needed_bytes,
    shortlist,
    splits,
    too_large,
)
from meshwright.workload.transformer import ModelConfig, describe_workload
from tests.unit.plan.measured.test_data_parallel import measured

MODEL = ModelConfig()


def problem(**changes):
    fields = {
        "describe": lambda layout: describe_workload(MODEL, seq_len=128, micro_batch=layout.mbs, layout=layout),
        "global_batch": 4, "seq_len": 128, "backend": "gloo", "memory_bytes": 2**34, "runtime_bytes": 2**28,
        "data_s_per_sequence": 0.0,
    }  # fmt: skip
    return SearchProblem(**(fields | changes))


def test_every_micro_batch_that_divides_is_a_candidate():
    assert {(c.dp, c.mbs) for c in candidate_layouts([1, 2, 3], 4)} == {(1, 1), (1, 2), (1, 4), (2, 1), (2, 2)}


def test_recomputation_is_taken_only_where_nothing_else_fits():
    layouts = candidate_layouts([1], 64)
    roomy = shortlist(layouts, problem(global_batch=64))
    tight = shortlist(layouts, problem(global_batch=64, memory_bytes=2**28 + 22 * 2**20, runtime_bytes=2**28))

    assert {layout.recompute for layout in roomy} == {"none"}
    assert tight
    assert all(layout.mbs < 64 for layout in tight)


def test_what_cannot_fit_says_what_is_needed():
    tight = problem(memory_bytes=2**20)

    assert shortlist(candidate_layouts([1], 4), tight) == splits([1, 2], MODEL, tight) == []
    assert str(too_large(candidate_layouts([1], 4), tight)).startswith(
        "not enough memory: the smallest layout (dp=1,mbs=1,recompute=full) needs "
    )


WIDE = ModelConfig(num_attention_heads=4, num_key_value_heads=2, hidden_size=256, intermediate_size=768)


def wide(**changes):
    def describe_wide(layout):
        return describe_workload(WIDE, seq_len=128, micro_batch=layout.mbs, layout=layout)

    return problem(**({"describe": describe_wide, "global_batch": 8} | changes))


def test_every_way_to_split_the_ranks_is_there_once_with_each_zero_stage():
    found = splits([2], WIDE, wide())

    assert {str(layout) for layout in found} == {
        *(f"dp=2,mbs=4,zero={zero}" for zero in (1, 2, 3)),
        "dp=1,cp=2,mbs=8", *(f"dp=1,cp=2,mbs=8,zero={zero}" for zero in (1, 2, 3)),
        "tp=2,dp=1,mbs=8,sp=1", "pp=2,dp=1,mbs=1",
    }  # fmt: skip


def test_every_split_is_legal_fits_and_keeps_the_batch():
    tight = wide(memory_bytes=needed_bytes(Layout(dp=4, mbs=1, recompute="full"), wide()))
    for layout in splits([4], WIDE, tight):
        assert not illegal(layout, WIDE, global_batch=8, seq_len=128, ranks=4)
        assert fits(layout, tight)


def test_where_the_whole_model_fits_nowhere_a_sharded_one_is_found():
    plain = candidate_layouts([4], 8)
    tight = wide(memory_bytes=min(needed_bytes(layout, wide()) for layout in plain) - 1)

    assert shortlist(plain, tight) == []
    assert any(layout.zero == 3 for layout in splits([4], WIDE, tight))


@pytest.mark.parametrize(("alpha_s", "worth"), [(1e-6, False), (10.0, True)])
def test_other_splits_are_worth_measuring_where_gradients_take_most_of_the_step(alpha_s, worth):
    plan, _ = choose_layout(
        [Layout(dp=2, mbs=2)], problem(), measured(2, alpha_s=alpha_s), peak_flops_per_s={}, min_ranks=1
    )

    assert is_worth_splitting(plan) is worth


def test_a_split_has_to_win_by_more_than_the_error_of_its_price():
    figures = measured(2)
    sharded = Layout(dp=2, mbs=2, zero=1)
    update = update_operators(problem().describe(sharded), sharded)
    times = tuple(OperatorTime(operator=op.key, ranks=2, threads=1, forward_s=0, backward_s=0) for op in update)
    (summed,) = figures.collectives
    half = msgspec.structs.replace(summed, alpha_s=summed.alpha_s / 2, beta_s_per_byte=summed.beta_s_per_byte / 2)
    gathered = msgspec.structs.replace(half, alpha_s=0.0)  # bucket by bucket
    named = {"reduce_scatter": half, blocking("all_reduce"): summed, blocking("all_gather"): gathered}
    fits = tuple(msgspec.structs.replace(fit, collective=name) for name, fit in named.items())
    figures = msgspec.structs.replace(figures, operators=figures.operators + times, collectives=(summed, *fits))
    plan, _ = choose_layout([sharded, Layout(dp=2, mbs=2)], problem(), figures, peak_flops_per_s={}, min_ranks=1)

    (other,) = plan.alternatives
    assert plan.layout.is_plain
    assert other.predicted.step_time_s < plan.predicted.step_time_s < other.predicted.step_time_s * 1.3


def test_too_many_ranks_for_the_batch_are_refused():
    with pytest.raises(InputError, match="do not divide over 3 ranks"):
        candidate_layouts([3], 4)


def test_the_fastest_layout_with_enough_ranks_wins_and_the_others_are_shown():
    layouts = [Layout(dp=1, mbs=2), Layout(dp=2, mbs=2)]
    both = measured(1)
    both = type(both)(
        fingerprint="test",
        operators=both.operators + measured(2).operators,
        collectives=measured(2, alpha_s=10.0).collectives,
    )
    free, _ = choose_layout(layouts, problem(), both, peak_flops_per_s={}, min_ranks=1)
    forced, _ = choose_layout(layouts, problem(), both, peak_flops_per_s={}, min_ranks=2)

    assert free.layout.dp == 1
    assert forced.layout.dp == 2
    assert "min_ranks" in forced.reason
    assert [c.layout.dp for c in forced.alternatives] == [1]


def test_each_micro_batch_is_drawn_for_itself():
    drawn = problem(data_s_per_draw=1e-3, data_s_per_sequence=1e-5, global_batch=8)
    plan, _ = choose_layout([Layout(mbs=2)], drawn, measured(1), peak_flops_per_s={}, min_ranks=1)

    assert plan.predicted.data_s == pytest.approx(4 * 1e-3 + 8 * 1e-5)


def test_buckets_are_tried_from_all_gradients_down_to_a_mebibyte():
    assert bucket_sizes(10 * 2**20, 2) == [10 * 2**20, 5 * 2**20, 5 * 2**19, 5 * 2**18]
    assert bucket_sizes(10 * 2**20, 1) == [10 * 2**20]
