"""Masks of dropout follow from seed, step, sample and place, and a part of a sequence takes its part of them."""

import pytest
import torch
from torch import nn

from meshwright.errors import InputError
from meshwright.parallel.layers.dropout import Dropout, MaskMoment, at, evaluating, prepare_dropout

ONES = torch.ones(4, 8, 32)


def masked(part, moment, x=ONES):
    with at(moment):
        return part(x)


def test_a_sample_has_the_same_mask_wherever_it_is_trained():
    part = Dropout(0.25)
    whole = masked(part, MaskMoment(0, 3, 8, 4))
    split = [masked(part, MaskMoment(0, 3, 8 + 2 * i, 2), ONES[:2]) for i in range(2)]

    assert torch.equal(whole, torch.cat(split))
    assert set(whole.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert 0.2 < (whole == 0).float().mean() < 0.3


@pytest.mark.parametrize("other", [MaskMoment(1, 3, 8, 4), MaskMoment(0, 4, 8, 4), MaskMoment(0, 3, 9, 4)])
def test_another_seed_step_or_sample_has_another_mask(other):
    part = Dropout(0.25)

    assert not torch.equal(masked(part, MaskMoment(0, 3, 8, 4)), masked(part, other))


def test_places_differ_and_torchs_own_dropouts_are_replaced():
    model = nn.Sequential(nn.Dropout(0.5), nn.Identity(), nn.Dropout(0.5))
    prepare_dropout(model)
    first, second = masked(model[0], MaskMoment(0, 0, 0, 4)), masked(model[2], MaskMoment(0, 0, 0, 4))

    assert [type(part) for part in model] == [Dropout, nn.Identity, Dropout]
    assert not torch.equal(first, second)


def test_held_positions_get_their_part_of_the_mask():
    part, held = Dropout(0.5), torch.tensor([0, 1, 6, 7])
    whole = masked(part, MaskMoment(0, 0, 0, 4))
    prepare_dropout(part, held, length=8)

    assert torch.equal(masked(part, MaskMoment(0, 0, 0, 4), ONES[:, :4]), whole[:, held])


def test_rows_of_flattened_samples_are_masked_as_the_samples_are():
    part = Dropout(0.5)

    flat = masked(part, MaskMoment(0, 0, 0, 4), ONES.flatten(0, 1))
    assert torch.equal(flat.view_as(ONES), masked(part, MaskMoment(0, 0, 0, 4)))
    with pytest.raises(InputError, match="4 samples do not divide an input of 6 rows"):
        masked(part, MaskMoment(0, 0, 0, 4), torch.ones(6, 3))


def test_nothing_is_dropped_in_evaluation():
    model = nn.Sequential(Dropout(0.9))
    with evaluating(model):
        kept = masked(model, MaskMoment(0, 0, 0, 4))

    assert torch.equal(kept, ONES)
    assert model.training
