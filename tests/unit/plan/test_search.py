"""The search: what is legal, what fits, what is worth measuring, what wins."""

import pytest

from meshwright.errors import InputError
from meshwright.layout import Layout
from meshwright.plan.search import Problem, bucket_sizes, candidates, choose, shortlist
from meshwright.workload.transformer import ModelConfig, describe
from tests.unit.plan.test_step import measured

MODEL = ModelConfig()


def problem(**changes):
    fields = {
        "describe": lambda layout: describe(MODEL, seq_len=128, micro_batch=layout.mbs, layout=layout),
        "global_batch": 4, "seq_len": 128, "backend": "gloo", "memory_bytes": 2**34, "runtime_bytes": 2**28,
        "data_s_per_sequence": 0.0,
    }  # fmt: skip
    return Problem(**(fields | changes))


def test_every_micro_batch_that_divides_is_a_candidate():
    assert {(c.dp, c.mbs) for c in candidates([1, 2, 3], 4)} == {(1, 1), (1, 2), (1, 4), (2, 1), (2, 2)}


def test_recomputation_is_taken_only_where_nothing_else_fits():
    layouts = candidates([1], 64)
    roomy = shortlist(layouts, problem(global_batch=64))
    tight = shortlist(layouts, problem(global_batch=64, memory_bytes=2**28 + 22 * 2**20, runtime_bytes=2**28))

    assert {layout.recompute for layout in roomy} == {"none"}
    assert tight
    assert all(layout.mbs < 64 for layout in tight)


def test_what_cannot_fit_says_what_is_needed():
    with pytest.raises(InputError, match="not enough memory: the smallest layout"):
        shortlist(candidates([1], 4), problem(memory_bytes=2**20))


def test_too_many_ranks_for_the_batch_are_refused():
    with pytest.raises(InputError, match="do not divide over 3 ranks"):
        candidates([3], 4)


def test_the_fastest_layout_with_enough_ranks_wins_and_the_others_are_shown():
    layouts = [Layout(dp=1, mbs=2), Layout(dp=2, mbs=2)]
    both = measured(1)
    both = type(both)(
        fingerprint="test",
        operators=both.operators + measured(2).operators,
        collectives=measured(2, alpha_s=10.0).collectives,
    )
    free, _ = choose(layouts, problem(), both, peak_flops_per_s={}, min_ranks=1)
    forced, _ = choose(layouts, problem(), both, peak_flops_per_s={}, min_ranks=2)

    assert free.layout.dp == 1
    assert forced.layout.dp == 2
    assert "min_ranks" in forced.reason
    assert [c.layout.dp for c in forced.alternatives] == [1]


def test_buckets_are_tried_from_all_gradients_down_to_a_mebibyte():
    assert bucket_sizes(10 * 2**20, 2) == [10 * 2**20, 5 * 2**20, 5 * 2**19, 5 * 2**18]
    assert bucket_sizes(10 * 2**20, 1) == [10 * 2**20]
