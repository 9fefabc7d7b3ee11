"""Sums of compressed gradients: right up to what was asked for, and what is lost is made up for."""

import pytest
import torch
import torch.distributed as dist

import meshwright  # noqa: F401  (registers the backend)
from meshwright.parallel.compression import make_compressor
from meshwright.plan.search.asynchronous import INT8_BLOCK

RANKS = 4
SHAPES = [(64, 48), (7,), (33, 65), (3, 5, 4, 4)]
SIZES = [torch.Size(shape).numel() for shape in SHAPES]
COUNT = sum(SIZES)


def gradient(rank, step=0, low_rank=False):
    """Return a bucket's gradient on a rank; with `low_rank`, its matrices have two columns' worth of content."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    parts = []
    for number, shape in enumerate(SHAPES):
        part = torch.randn(shape, generator=generator)
        if low_rank and len(shape) > 1:
            rows, columns = part.flatten(1).shape
            common = torch.randn(2, columns, generator=torch.Generator().manual_seed(number))
            part = (torch.randn(rows, 2, generator=generator) @ common).view(shape)
        parts.append(part)
    return torch.cat([part.reshape(-1) for part in parts])


def views(bucket):
    return [part.view(shape) for part, shape in zip(bucket.split(SIZES), SHAPES, strict=True)]


def summed(rank, world_size, store, backend, kind, steps, changing, low_rank):
    """Return what each step's sum came to, and the bytes that were sent."""
    dist.init_process_group(backend, rank=rank, world_size=world_size, store=store)
    compressor = make_compressor(kind, None, powersgd_rank=2)
    results = []
    for step in range(steps):
        bucket = gradient(rank, step if changing else 0, low_rank)
        compressor.sum(0, views(bucket), bucket)
        results.append(bucket)
    return torch.stack(results).tolist(), compressor.sent_bytes


def run(rank_pool, kind, backend="meshwright", *, steps=1, changing=True, low_rank=False):
    answers = rank_pool(RANKS).run(summed, backend, kind, steps, changing, low_rank)
    assert all(answer == answers[0] for answer in answers), "ranks differ"
    true = torch.stack([sum(gradient(r, s if changing else 0, low_rank) for r in range(RANKS)) for s in range(steps)])
    return torch.tensor(answers[0][0]), true, answers[0][1]


def distance(a, b):
    return ((a - b).norm() / b.norm()).item()


@pytest.mark.parametrize("backend", ["gloo", "meshwright"])
@pytest.mark.parametrize(("kind", "error"), [("bf16", 0.005), ("int8", 0.02)])
def test_a_sum_is_as_near_as_its_bits_allow_and_the_same_on_all_ranks(kind, error, backend, rank_pool):
    got, true, _ = run(rank_pool, kind, backend)

    assert 0 < distance(got, true) < error


@pytest.mark.parametrize("backend", ["gloo", "meshwright"])
def test_powersgd_is_exact_where_the_sum_has_no_more_columns_than_it_sends(backend, rank_pool):
    got, true, _ = run(rank_pool, "powersgd", backend, low_rank=True)

    assert distance(got, true) < 1e-5


@pytest.mark.parametrize(("kind", "steps"), [("int8", 40), ("powersgd", 150)])
def test_what_one_step_loses_the_next_ones_make_up_for(kind, steps, rank_pool):
    got, true, _ = run(rank_pool, kind, steps=steps, changing=False)

    assert distance(got.mean(0), true[0]) < 0.15 * distance(got[0], true[0])


@pytest.mark.parametrize(
    ("kind", "sent_bytes"),
    [
        ("bf16", 2 * 3 / 4 * 2 * COUNT),
        ("int8", 2 * 3 * (2 * INT8_BLOCK + 2 * 4)),  # a part is two blocks, for 5,464 elements over 4 ranks
        ("powersgd", 2 * 3 / 4 * 4 * (2 * (64 + 48 + 33 + 65 + 3 + 80) + 7)),
    ],
)
def test_bytes_are_counted(kind, sent_bytes, rank_pool):
    assert run(rank_pool, kind)[2] == sent_bytes
