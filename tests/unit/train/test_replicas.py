"""Copies that differ are found whatever bit it is, and who is outvoted."""

import math
from typing import NamedTuple

import pytest
import torch

from meshwright.errors import InputError
from meshwright.train.elastic.agent import worth_a_restart
from meshwright.train.integrity.checksums import BITS, checksum
from meshwright.train.integrity.corruption import CorruptionError, CorruptionRestart, corruption, excluded_rank
from meshwright.train.integrity.flips import Flip, Flips, parse_flip
from meshwright.train.integrity.guard import HALF, leaning_of
from meshwright.train.integrity.replicas import ReplicaDifference, units_of
from meshwright.train.job.config import JobConfig, TrainConfig, with_overrides


class Ended(NamedTuple):
    """What the launcher reads of a rank that ended."""

    message: str
    exitcode: int = 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_checksum_sees_every_single_bit(dtype):
    tensor = torch.linspace(-1, 1, 7, dtype=dtype)
    right = checksum([tensor])
    words = tensor.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])

    for place in range(len(words)):
        for bit in range(8 * words.element_size()):
            words[place] ^= torch.tensor(1, dtype=words.dtype) << bit
            assert checksum([tensor]) != right
            words[place] ^= torch.tensor(1, dtype=words.dtype) << bit
    assert checksum([tensor]) == right


def test_a_checksum_survives_a_sum_in_float64():
    found = [checksum([torch.full((3,), float(i))]) for i in range(100)]

    assert max(found) < 2**BITS
    assert [int(float(value) + 0.0) for value in found] == found


def test_a_view_that_does_not_lie_in_one_piece_has_the_checksum_of_its_values():
    tensor = torch.arange(12.0).view(3, 4)

    assert checksum([tensor.t()]) == checksum([tensor.t().contiguous()])


@pytest.mark.parametrize(
    ("said", "outvoted"),
    [
        ((5, 5, 6), (3,)),
        ((6, 5, 5), (1,)),
        ((5, 6), ()),
        ((5, 5, 6, 6), ()),
        ((5, 6, 7), ()),
        ((5, 5, 5, 6, 7), (3, 4)),
    ],
)
def test_more_than_half_outvote_the_others(said, outvoted):
    members = (1, 2, 3) if len(said) == 3 else tuple(range(len(said)))

    assert ReplicaDifference(members, said).outvoted == outvoted


def test_the_launcher_starts_again_only_where_it_was_told_to_and_knows_who_is_left_out():
    end, again, without = (corruption("x", how, 3) for how in ("end", "restart", "exclude"))

    assert not worth_a_restart({0: Ended(f"{type(end).__name__}: {end}")})
    assert worth_a_restart({0: Ended(f"{type(again).__name__}: {again}")})
    assert excluded_rank(f"{CorruptionRestart.__name__}: {without}") == 3
    assert excluded_rank(f"{CorruptionRestart.__name__}: {again}") is None
    assert type(end) is CorruptionError


def test_a_rank_that_is_not_known_is_not_left_out():
    assert excluded_rank(f"{CorruptionRestart.__name__}: {corruption('x', 'exclude', None)}") is None


def test_a_flip_changes_one_bit_once():
    flips = Flips([parse_flip("1:4:gradient:30")])
    gradient = torch.tensor([0.5, 2.0, 1.0])

    flips.begin(3, [])
    flips.sent([("w", gradient)])
    assert gradient.tolist() == [0.5, 2.0, 1.0]
    flips.begin(4, [])
    flips.sent([("w", gradient)])
    flips.sent([("w", gradient)])

    assert gradient.tolist() == [0.5, 0.0, 1.0]  # 2.0 has no bit set but the highest of the exponent


@pytest.mark.parametrize("text", ["1:2", "a:1:weight:3", "1:2:nothing:3", "1:2:weight:32", "1:2:weight:x"])
def test_a_flip_of_another_form_is_refused(text):
    with pytest.raises(InputError, match="MESHWRIGHT_FLIP="):
        parse_flip(text)


def test_a_flip_may_be_there_from_a_step_on():
    assert [parse_flip("0:5+:received:0").is_due(step) for step in (4, 5, 9)] == [False, True, True]
    assert [Flip(0, 5, "weight", 1).is_due(step) for step in (4, 5, 9)] == [False, True, False]


def test_replay_is_refused_where_one_sum_leaves_something_for_the_next():
    with pytest.raises(InputError, match="train.replay"):
        with_overrides(JobConfig(), {}, {"train.replay": 5, "data_parallel.compression": "int8"}, where="config")


def test_both_checks_count_steps():
    assert TrainConfig().check_replicas == 10
    with pytest.raises(ValueError, match="check_replicas"):
        TrainConfig(check_replicas=-1)


def test_no_shards_are_no_units():
    assert units_of([]) == []


@pytest.mark.parametrize("brought_about", [0.0, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("wrong", [0, 1])
def test_a_copy_is_known_as_wrong_though_its_error_went_into_the_gradients_of_all(wrong, brought_about):
    random = torch.Generator().manual_seed(1)
    right, error, of_all = (torch.randn(4000, generator=random, dtype=torch.float64) for _ in range(3))
    copies = [right + brought_about * of_all, right + brought_about * of_all]
    copies[wrong] = copies[wrong] + error

    assert leaning_of(copies, right) == pytest.approx(-1.0 if wrong else 1.0, abs=HALF)


def test_of_two_copies_that_are_as_far_from_what_the_steps_give_none_is_wrong():
    random = torch.Generator().manual_seed(2)
    right, one, other = (torch.randn(4000, generator=random, dtype=torch.float64) for _ in range(3))

    assert abs(leaning_of([right + one, right + other], right)) < HALF
    assert leaning_of([right + one, right + other, right], right) == 0
    assert leaning_of([right, right * math.nan], right) == 0
