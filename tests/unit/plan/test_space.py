import itertools

import pytest

from meshwright.layout import OFFLOADS, ORDERS, Layout
from meshwright.plan.layouts.legality import illegal, unrunnable
from meshwright.plan.layouts.space import CP, DP, PP, TP, factorisations, in_every_order, legal_layouts, runnable
from meshwright.workload.architecture import Architecture
from meshwright.workload.models import load_model

SMALL = Architecture(
    vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=6, num_attention_heads=4,
    num_key_value_heads=2, head_dim=4, experts=4, experts_per_token=2, expert_size=8,
)  # fmt: skip


def brute_force(model, ranks, global_batch, seq_len):
    """Every layout in the default order that no rule forbids, tried one by one; names of one run count once."""
    found = set()
    small = range(1, ranks + 1)
    for tp, pp, cp, vpp, ep in itertools.product(small, small, small, range(1, 7), range(1, 5)):
        dp, rest = divmod(ranks, tp * pp * cp)
        if rest or not dp or (dp * cp) % ep:
            continue
        for mbs, zero, sp, schedule, recompute in itertools.product(
            range(1, global_batch + 1), range(4), (0, 1), ("gpipe", "1f1b", "interleaved", "zb"), ("none", "full")
        ):
            twice = (
                (pp == 1 and schedule != "1f1b")
                or (schedule == "interleaved" and vpp == 1)
                or (zero and dp * cp == 1)
                or (sp and tp == 1)
                or (vpp > 1 and (pp == 1 or schedule not in {"interleaved", "zb"}))
            )
            if twice:
                continue
            layout = Layout(
                tp=tp, pp=pp, dp=dp, cp=cp, ep=ep, vpp=vpp, mbs=mbs, zero=zero, sp=sp, schedule=schedule,
                recompute=recompute,
            )  # fmt: skip
            if not illegal(layout, model, global_batch=global_batch, seq_len=seq_len):
                found.add(str(layout))
    return found


@pytest.mark.parametrize(("ranks", "global_batch", "seq_len"), [(4, 8, 12), (6, 12, 16), (8, 8, 32)])
def test_the_arrays_hold_exactly_the_layouts_that_no_rule_forbids(ranks, global_batch, seq_len):
    grid = legal_layouts(SMALL, ranks=ranks, global_batch=global_batch, seq_len=seq_len).grid
    texts = [str(grid.layout(index)) for index in range(len(grid))]

    assert len(texts) == len(set(texts))
    assert {text for text in texts if "selective" not in text} == brute_force(SMALL, ranks, global_batch, seq_len)


def test_every_factorisation_is_legal_or_refused_by_a_rule():
    space = legal_layouts(load_model("llama3-8b").architecture, ranks=96, global_batch=32, seq_len=96)
    degrees = {
        tuple(int(getattr(space.grid, name)[i]) for name in ("tp", "pp", "dp", "cp")) for i in range(len(space.grid))
    }

    assert set(space.refused) == {TP, PP, CP, DP}
    assert len(degrees) + sum(space.refused.values()) == space.factorisations == len(list(factorisations(96)))


def test_orders_are_tried_once_for_each_permutation_of_the_axes_in_use():
    grid = legal_layouts(SMALL, ranks=4, global_batch=8, seq_len=12).grid
    plain = [i for i in range(len(grid)) if grid.dp[i] == 4][:1]
    two = [i for i in range(len(grid)) if grid.tp[i] == 2 and grid.dp[i] == 2][:1]

    orders = {str(i): [ORDERS[o] for o in in_every_order(grid.take([i])).order] for i in (*plain, *two)}

    assert orders[str(plain[0])] == ["tp-cp-dp-pp"]
    assert len(orders[str(two[0])]) == 2
    assert "tp-cp-dp-pp" in orders[str(two[0])]


def test_no_legal_layout_gives_an_empty_grid():
    assert len(legal_layouts(SMALL, ranks=7, global_batch=8, seq_len=12).grid) == 0


def test_zero_3_also_shards_inside_a_node_and_replicates_across_nodes():
    grid = legal_layouts(SMALL, ranks=16, global_batch=16, seq_len=32, node=8).grid
    copies = {
        (int(grid.tp[i]), int(grid.dp[i] * grid.cp[i]), int(grid.zero[i])): int(grid.replicas[i])
        for i in range(len(grid))
        if grid.replicas[i] > 1
    }

    assert copies == {(1, 16, 3): 2, (2, 8, 3): 2}


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_what_our_own_engine_runs_is_the_same_rule_for_one_layout_and_for_all(precision):
    grid = legal_layouts(SMALL, ranks=8, global_batch=16, seq_len=16, offloads=range(len(OFFLOADS))).grid

    found = runnable(grid, precision)

    assert found.tolist() == [not unrunnable(grid.layout(index), precision) for index in range(len(grid))]
    assert 0 < found.sum() < len(grid)
