"""Modules that torch.export captures are cut and trained as one process trains them, whatever crosses the cuts."""

import itertools

import pytest
import torch
from torch import nn

from meshwright.errors import InputError
from meshwright.layout import Layout
from meshwright.parallel.pipeline.capture import capture, crossing
from meshwright.pipelines import StageTarget, best_cut, schedule
from tests.multiproc.parallel.captured import Skips, batch, train


def check(name, text, rank_pool):
    losses, weights = rank_pool(1).run(train, name, "dp=1,mbs=8", timeout_s=240)[0]

    found = rank_pool(Layout.parse(text).world_size).run(train, name, text, timeout_s=240)

    assert found[0][0] == pytest.approx(losses, rel=1e-12)
    split = {key: value for _, owned in found for key, value in owned.items()}
    assert split.keys() == weights.keys()
    for key, value in weights.items():
        assert float((split[key] - value).abs().max() / value.abs().max()) < 1e-10, key


@pytest.mark.parametrize("text", ["dp=1,pp=2,mbs=2", "dp=1,pp=2,mbs=2,vpp=2,schedule=interleaved"])
def test_a_captured_module_trains_as_in_one_process(text, rank_pool):
    check("skips", text, rank_pool)


@pytest.mark.slow
@pytest.mark.timeout(500)  # each rank imports transformers
@pytest.mark.parametrize("name", ["llama", "gpt2", "resnet"])
@pytest.mark.parametrize(
    "text", [pytest.param("dp=1,pp=3,mbs=2", marks=pytest.mark.soak), "dp=2,pp=2,mbs=1,schedule=zb"]
)
def test_models_of_transformers_train_as_in_one_process(name, text, rank_pool):
    check(name, text, rank_pool)


def test_pieces_behind_each_other_give_the_loss_of_the_whole():
    model = Skips()
    inputs, targets = batch("skips", 0)
    captured = capture(model, (inputs, targets), measure=False)
    last = len(captured.units)

    for cut in range(1, last):
        before = captured.part(range(cut))(inputs, targets)
        assert captured.part(range(cut, last))(inputs, targets, *before).item() == model(inputs, targets).item()


def test_what_depends_on_no_parameter_crosses_no_cut_and_nothing_is_changed_behind_one():
    captured = capture(Skips(), batch("skips", 0), measure=False)

    for position in captured.cuts[1:-1]:
        sent = crossing(captured.chain, position)
        assert sent
        assert all(node.meta["val"].is_floating_point() for node in sent)
        changed = {n.all_input_nodes[0] for n in captured.chain[position:] if "add_" in str(n.target)}
        assert not set(sent) & changed


def test_a_tied_parameter_has_one_name_and_is_the_modules_own():
    model = Skips()
    captured = capture(model, batch("skips", 0), measure=False)

    assert set(dict(captured.named_parameters())) == set(dict(model.named_parameters()))
    assert captured.get_parameter("embedding.weight") is model.embedding.weight


def test_counted_costs_balance_the_cut():
    captured = capture(Skips(), batch("skips", 0), measure=False)
    units = captured.unit_costs(8, 6)

    bounds = best_cut(units, StageTarget.of(schedule("1f1b", 2, 1, 2))).bounds

    halves = [sum(u.forward_s for u in units[a:b]) for a, b in itertools.pairwise(bounds)]
    assert max(halves) < 0.75 * sum(halves)
    assert sum(u.state_bytes for u in units) == 16 * sum(p.numel() for p in Skips().parameters())


def test_another_shape_is_refused_with_the_one_that_was_captured():
    captured = capture(Skips(), batch("skips", 0), measure=False)
    inputs, targets = batch("skips", 0)

    with pytest.raises(InputError, match=r"captured for micro-batches of shapes \[8, 6\] and \[8, 6\], got \[4, 6\]"):
        captured.part(range(len(captured.units)))(inputs[:4], targets[:4])


def test_a_module_that_cannot_be_captured_says_why():
    class Branches(nn.Module):
        def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return inputs.sum() if inputs.sum() > 0 else targets.sum()

    with pytest.raises(InputError, match="Branches cannot be captured by torch.export"):
        capture(Branches(), (torch.ones(2), torch.ones(2)))
