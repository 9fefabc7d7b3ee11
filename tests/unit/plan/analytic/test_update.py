"""Moments of a step of plain PyTorch: gradients where there are any, and what the update of AdamW makes."""

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from meshwright.hardware import load_catalogue
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, Setting, price_layouts
from meshwright.plan.analytic.fits import SEEN, SURE, fit_verdicts
from meshwright.plan.analytic.price import states_too_large
from meshwright.plan.clusters.machines import cluster_by_name
from meshwright.workload.conventions import STACKS
from meshwright.workload.held import Counts, moments_at_peaks, states, update
from meshwright.workload.models import load_model
from meshwright.workload.program import Moment

LLAMA = load_model("llama3-8b").architecture
WIDTH, DEPTH = 64, 5
SHORT = Setting(
    architecture=LLAMA, cluster=cluster_by_name(load_catalogue(), "lambda-8x-a100-80gb-sxm4", 1), gpus=1,
    global_batch=1, seq_len=512, stack="trl", weights="bf16", loss="whole",
)  # fmt: skip
LONG = replace(SHORT, seq_len=16384)
AGAIN = Layout(recompute="full")


def held(setting, layout=AGAIN):
    terms = price_layouts(setting, Grid.of([layout])).terms(0)
    return {name.removesuffix("_bytes"): value for name, value in terms.items() if name.endswith("_bytes")}


class LiveBytes(TorchDispatchMode):
    """Adds up the bytes of all storages that operators have returned and that are still there."""

    def __init__(self, *tensors):
        super().__init__()
        self.seen, self.peak = {}, 0
        self.note(tensors)

    def note(self, tensors):
        for tensor in (leaf for leaf in tree_leaves(tensors) if isinstance(leaf, torch.Tensor)):
            storage = tensor.untyped_storage()
            self.seen[storage.data_ptr()] = (StorageWeakRef(storage), storage.nbytes())
        self.peak = max(self.peak, self.now)

    @property
    def now(self):
        return sum(size for storage, size in self.seen.values() if not storage.expired())

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        self.note(found)
        return found


def trained(**given):
    """Return a model in half precision, its AdamW after a first step, and the bytes of its weights."""
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(DEPTH))).bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), **given)
    model(torch.ones(1, WIDTH, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer, 2 * WIDTH * WIDTH * DEPTH


@pytest.mark.parametrize(("given", "moments"), [({"foreach": True}, 1), ({"fused": True}, 0)])
def test_an_update_on_lists_makes_as_much_as_one_moment_and_a_fused_one_nothing(given, moments):
    model, optimizer, weights = trained(**given)
    model(torch.ones(1, WIDTH, dtype=torch.bfloat16)).sum().backward()
    every = [p.grad for p in model.parameters()], [*model.parameters()], [*optimizer.state.values()]

    with LiveBytes(*every) as live:
        optimizer.step()

    assert live.peak == pytest.approx((4 + moments) * weights, rel=0.01)  # weights, gradients and two moments


def test_a_step_has_no_gradients_before_its_backward_and_all_of_them_after_it():
    model, optimizer, weights = trained(foreach=True)

    with LiveBytes([*model.parameters()], [*optimizer.state.values()]) as live:
        loss = model(torch.ones(1, WIDTH, dtype=torch.bfloat16)).sum()
        before = live.now
        loss.backward()

    assert before == pytest.approx(3 * weights, rel=0.05)
    assert live.now == pytest.approx(4 * weights, rel=0.05)


def test_the_moments_of_a_step_are_the_loss_the_last_layer_the_first_and_the_update():
    c, layout = replace(STACKS["trl"], shares_single=0, master_bytes=0, optimizer_bytes=4, held_gradient_bytes=2), AGAIN
    counts = Counts(held=1000, own=1000, layer=100, ends=200)
    s = states(counts, layout, c, sharded=False, offload=0, single=False)
    made = update(s, counts, layout, c, output=100, single=True, offload=0)

    once, several = (moments_at_peaks(Moment(50, 0, 7), 5, 30, s, made, once=one) for one in (True, False))

    assert once.states[:3] == (2000, 0, 4000)
    assert once.moments == (
        Moment(50, 30, 0), Moment(50, 0, 7, gradients=200), Moment(5, 0, 7, gradients=2000),
        Moment(0, 0, 0, update=2000, gradients=2000),
    )  # fmt: skip
    assert several.states[:3] == (2000, 2000, 4000)
    assert several.moments == (Moment(50, 30, 0), Moment(50, 0, 7), Moment(0, 0, 0, update=2000))


def test_at_the_loss_of_a_step_of_one_micro_batch_there_are_no_gradients():
    once, several = held(LONG), held(replace(LONG, global_batch=2))

    assert once["gradients"] == 0
    assert several["gradients"] == pytest.approx(2 * LLAMA.parameters, rel=1e-3)
    assert several["allocated"] - once["allocated"] == pytest.approx(2 * LLAMA.parameters, rel=1e-3)


def test_ranks_that_reduce_gradients_keep_their_buckets_from_step_to_step():
    spread = replace(LONG, gpus=2, global_batch=2, cluster=cluster_by_name(load_catalogue(), "dgx-h100", 8))

    assert held(spread, Layout(dp=2, recompute="full"))["gradients"] == pytest.approx(2 * LLAMA.parameters, rel=1e-3)


def test_a_short_step_holds_most_in_its_update():
    listed, fused = held(SHORT), held(replace(SHORT, optimizer="adamw-fused"))

    assert listed["allocated"] == pytest.approx(10 * LLAMA.parameters, rel=1e-3)  # weights, gradients, three moments
    assert listed["update"] == pytest.approx(2 * LLAMA.parameters, rel=1e-3)
    assert listed["activations"] == listed["logits"] == listed["working"] == 0
    assert fused["update"] == 0
    assert 8 * LLAMA.parameters < fused["allocated"] < 8.3 * LLAMA.parameters


@pytest.mark.parametrize("name", ["adam8bit", "lion", "adamw-fp32", "paged-adamw", "adamw-in-backward"])
def test_other_updates_make_nothing_beside_gradients_and_moments(name):
    assert held(replace(SHORT, optimizer=name))["update"] == 0


@pytest.mark.parametrize("stack", ["torchtune", "torchtitan", "deepspeed", "megatron", "bridge"])
def test_stacks_whose_update_is_fused_make_nothing_in_it(stack):
    assert held(replace(SHORT, stack=stack))["update"] == 0


def test_gradients_used_up_in_backward_save_little_where_a_step_has_one_micro_batch():
    """torchtune's README, Llama 3.2 3B of 2 x 4,096 tokens, recomputed: 24.9 GiB, and 23.1 with optimizer_in_bwd.

    The gradients are 6 GiB of these.
    """
    known = {"stack": "torchtune", "weights": "", "loss": "", "global_batch": 2, "seq_len": 4096}
    given = replace(SHORT, architecture=load_model("llama3.2-3b").architecture, **known)
    layout = Layout(mbs=2, recompute="full")

    whole, early = (
        held(replace(given, optimizer=name), layout)["allocated"] for name in ("adamw", "adamw-in-backward")
    )

    assert whole / 2**30 == pytest.approx(24.9, rel=0.05)
    assert early / 2**30 == pytest.approx(23.1, rel=0.1)


def test_a_full_tuning_on_one_card_is_priced_as_it_was_measured():
    """ms-swift's benchmark of Qwen 7B, all parameters, 2,048 tokens on an A100: 74.3 GiB."""
    model = replace(LLAMA, vocab_size=151936, num_key_value_heads=32, intermediate_size=11008, tied=False)
    given = replace(SHORT, architecture=model, stack="ms-swift", weights="", loss="", seq_len=2048, global_batch=16)

    assert held(given)["reserved"] / 2**30 == pytest.approx(74.3, rel=0.03)


def test_does_not_fit_is_not_said_of_what_a_fused_update_would_fit():
    prices = price_layouts(SHORT, Grid.of([AGAIN]))
    capacity = 9 * LLAMA.parameters

    assert prices.allocated_bytes[0] * (1 - SEEN.below) > capacity
    assert fit_verdicts(prices, capacity, SEEN)[0] != SURE
    assert fit_verdicts(prices, capacity, SEEN)[0] == 1


def test_no_layout_is_left_out_whose_gradients_come_after_its_peak():
    layouts = [AGAIN, Layout(), Layout(recompute="full", zero=1)]
    grid = Grid.of(layouts)

    together = price_layouts(LONG, grid).allocated_bytes
    assert list(together) == [price_layouts(LONG, Grid.of([one])).allocated_bytes[0] for one in layouts]
    assert not np.any(states_too_large(LONG, grid))
