"""Random calls of torch.distributed, by seed, with a model of what is right for each.

`python -m tests.multiproc.call_fuzz --calls N [--backend gloo] [--seed S]` runs N of them, each on a fresh group of two
ranks, and prints how many of each kind came out how. A case is one call; the ranks make it alike, or the second rank
makes it with one property changed. What is right:

- a valid call that both make alike: the results of a plain computation, on both;
- an invalid call that both make alike: an error on both, and the group goes on (an all-reduce is right afterwards);
- a call that the ranks make differently, or that one alone refuses: an error on both by the end of the all-reduce that
  follows, no result.
"""

import argparse
import os
import random
from collections import Counter
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

RANKS, LIMIT_S = 2, 5.0
SIZES = (1, 2, 3, 7, 64, 1000, 20_000, 300_000)
DTYPES = ("float32", "float64", "int32", "int64", "bfloat16", "uint8", "bool")
OPERATORS = ("SUM", "MAX", "MIN", "PRODUCT")
LAYOUTS = ("plain", "strided", "transposed", "expanded")
REDUCING = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_single")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
LISTED = ("all_gather", "gather", "scatter", "reduce_scatter", "all_to_all")
COLLECTIVES = (
    *("all_reduce", "broadcast", "reduce", "all_gather", "all_gather_single", "gather", "scatter"),
    *("reduce_scatter", "reduce_scatter_single", "all_to_all", "all_to_all_single", "barrier"),
)


@dataclass(frozen=True)
class Call:
    """One call of one rank; `splits` are rows from each rank to each, by sender."""

    collective: str
    count: int = 64
    dtype: str = "float32"
    operator: str = "SUM"
    root: int = 0
    layout: str = "plain"
    entries: int = RANKS  # of lists
    splits: tuple[tuple[int, ...], ...] = ((2, 2), (2, 2))
    is_async: bool = False

    @property
    def is_valid(self) -> bool:
        """Whether a group of two can make it."""
        if self.collective == "barrier":
            return True
        if self.layout == "expanded" and self.count > 1:
            return False
        if self.collective in ROOTED and not 0 <= self.root < RANKS:
            return False
        if self.collective in LISTED and self.entries != RANKS:
            return False
        if self.collective == "all_to_all_single":
            return all(rows >= 0 for row in self.splits for rows in row)
        return not (self.collective in REDUCING and self.dtype == "bool" and self.operator == "PRODUCT")


@dataclass(frozen=True)
class Case:
    """What each rank calls, and what is right: "result", "refused" or "disagree"."""

    calls: tuple[Call, ...]
    right: str
    kind: str


def case_of(seed: int) -> Case:
    """Return the case of a seed."""
    rng = random.Random(seed)
    call = Call(
        collective=rng.choice(COLLECTIVES),
        count=rng.choice(SIZES),
        dtype=rng.choice(DTYPES),
        operator=rng.choice(OPERATORS),
        root=rng.randrange(RANKS),
        layout=rng.choice(LAYOUTS[:3]),
        splits=tuple(tuple(rng.randrange(4) for _ in range(RANKS)) for _ in range(RANKS)),
        is_async=rng.random() < 0.3,
    )
    if not call.is_valid:
        call = replace(call, operator="SUM")
    what = rng.choice(("alike", "alike", "invalid", "differ", "differ"))
    if what == "invalid":
        bad = [name for name in ("root", "layout", "entries", "splits") if _matters(call, name)]
        if bad:
            name = rng.choice(bad)
            value = {"root": rng.choice((2, 7, -1)), "layout": "expanded", "entries": rng.choice((0, 1, 3))}
            odd = replace(call, count=max(call.count, 2), **{name: value.get(name, ((-4, 2), (2, -1)))})
            only_root = name == "entries" and call.collective in {"gather", "scatter"}  # the others give no list
            if rng.random() < 0.3 and not (only_root and call.root != RANKS - 1):
                return Case((replace(call, count=odd.count), odd), "disagree", f"one refuses {name}")
            return Case((odd, odd), "disagree" if only_root else "refused", f"invalid {name}")
    if what == "differ":
        name, other = _changed(rng, call)
        if name:
            return Case((call, other), "disagree", f"{name} differs")
    return Case((call, call), "result", "alike")


def _matters(call: Call, name: str) -> bool:
    collective = call.collective
    return {
        "root": collective in ROOTED,
        "layout": collective in {"all_reduce", "broadcast"},
        "entries": collective in LISTED,
        "splits": collective == "all_to_all_single",
        "operator": collective in REDUCING and call.count > 0,
        "count": collective not in {"barrier", "all_to_all_single"},
        "dtype": collective != "barrier",
        "collective": True,
    }[name]


def _changed(rng: random.Random, call: Call) -> tuple[str, Call]:
    """Return a property that differs on the second rank, and its call; "" if nothing that matters was found."""
    name = rng.choice([n for n in ("root", "splits", "operator", "count", "dtype", "collective") if _matters(call, n)])
    if name == "root":
        return name, replace(call, root=1 - call.root)
    if name == "splits":  # what the first rank sends to the second is more than that expects
        (own, sent), second = call.splits
        return name, replace(call, splits=((own, sent + 1), second))
    if name == "collective":
        other = rng.choice([c for c in COLLECTIVES if c != call.collective and _plain(c) != _plain(call.collective)])
        return name, replace(call, collective=other)
    choices = {"operator": OPERATORS, "count": SIZES, "dtype": DTYPES}[name]
    other = replace(call, **{name: rng.choice([v for v in choices if v != getattr(call, name)])})
    return (name, other) if other.is_valid else ("", call)


def _plain(collective: str) -> str:
    return collective.removesuffix("_single")


# ---- one rank


def tensor_of(call: Call, rank: int, count: int | None = None, offset: int = 0) -> torch.Tensor:
    """Return what a rank gives: numbers that tell ranks and places apart, small enough for every type."""
    count = call.count if count is None else count
    numbers = (torch.arange(count) * 3 + rank * 5 + offset) % 7 + 1
    tensor = (numbers % 2).bool() if call.dtype == "bool" else numbers.to(getattr(torch, call.dtype))
    if call.layout == "strided":
        wide = torch.zeros(2 * count, dtype=tensor.dtype)
        wide[::2] = tensor
        return wide[::2]
    if call.layout == "transposed" and count % 2 == 0:
        return tensor.view(2, -1).t().contiguous().t()
    if call.layout == "expanded":
        return tensor[:1].expand(count)
    return tensor


def made(call: Call, rank: int) -> tuple[Any, list[torch.Tensor], list[torch.Tensor]]:
    """Return how to make a call, the tensors that hold its result, and what they must hold (by a plain computation)."""
    x, ranks, mine = tensor_of(call, rank), range(RANKS), rank == call.root
    everyone = [tensor_of(call, r) for r in ranks]
    operator = getattr(dist.ReduceOp, call.operator)
    options = {"async_op": call.is_async}
    flat = replace(call, layout="plain")
    empty = [torch.zeros_like(tensor_of(flat, 0)) for _ in range(call.entries)]
    blocks = [tensor_of(flat, rank, offset=i) for i in range(call.entries)]
    name = call.collective
    if name == "all_reduce":
        return lambda: dist.all_reduce(x, operator, **options), [x], [_reduced(everyone, call)]
    if name == "broadcast":
        right = everyone[call.root] if call.is_valid else x
        return lambda: dist.broadcast(x, group_src=call.root, **options), [x], [right]
    if name == "reduce":
        return (
            lambda: dist.reduce(x, group_dst=call.root, op=operator, **options),
            [x] * mine,
            [_reduced(everyone, call)] * mine,
        )
    if name == "all_gather":
        return lambda: dist.all_gather(empty, x.contiguous(), **options), empty, everyone
    if name == "all_gather_single":
        whole = torch.cat(empty) if empty else x
        return (
            lambda: _single("all_gather")(whole, x.flatten(), **options),
            [whole],
            [torch.cat([each.flatten() for each in everyone])],
        )
    if name == "gather":
        into = empty if mine else None
        return lambda: dist.gather(x.contiguous(), into, group_dst=call.root, **options), empty * mine, everyone * mine
    if name == "scatter":
        target, given = torch.zeros_like(tensor_of(flat, 0)), blocks if mine else None
        right = tensor_of(flat, call.root, offset=rank) if call.is_valid else target
        return lambda: dist.scatter(target, given, group_src=call.root, **options), [target], [right]
    if name == "reduce_scatter":
        target = torch.zeros_like(tensor_of(flat, 0))
        right = _reduced([tensor_of(flat, r, offset=rank) for r in ranks], call)
        return lambda: dist.reduce_scatter(target, blocks, operator, **options), [target], [right]
    if name == "reduce_scatter_single":
        target = torch.zeros_like(tensor_of(flat, 0))
        right = _reduced([tensor_of(flat, r, offset=rank) for r in ranks], call)
        return lambda: _single("reduce_scatter")(target, torch.cat(blocks), operator, **options), [target], [right]
    if name == "all_to_all":
        right = [tensor_of(flat, r, offset=rank) for r in ranks]
        return lambda: dist.all_to_all(empty, blocks, **options), empty, right
    if name == "all_to_all_single":
        return _all_to_all_single(call, rank, options)
    return lambda: dist.barrier(**options), [], []


def _all_to_all_single(call: Call, rank: int, options: dict[str, Any]) -> Any:
    sent, received = list(call.splits[rank]), [call.splits[r][rank] for r in range(RANKS)]
    if not call.is_valid:
        sent, received = list(call.splits[0]), list(call.splits[0])
    given = tensor_of(replace(call, layout="plain"), rank, max(0, sum(sent)))
    output = torch.zeros(max(0, sum(received)), dtype=given.dtype)
    right = []
    for r in range(RANKS):
        theirs = tensor_of(replace(call, layout="plain"), r, max(0, sum(call.splits[r])))
        start = sum(call.splits[r][:rank])
        right.append(theirs[max(0, start) : max(0, start + call.splits[r][rank])])
    return lambda: dist.all_to_all_single(output, given, received, sent, **options), [output], [torch.cat(right)]


def _single(name: str) -> Any:
    old = {"all_gather": "all_gather_into_tensor", "reduce_scatter": "reduce_scatter_tensor"}[name]
    return getattr(dist, f"{name}_single", None) or getattr(dist, old)


def _reduced(tensors: list[torch.Tensor], call: Call) -> torch.Tensor:
    first, second = tensors
    if call.dtype == "bool":
        return first | second if call.operator in {"SUM", "MAX"} else first & second
    function = {"SUM": torch.add, "MAX": torch.maximum, "MIN": torch.minimum, "PRODUCT": torch.mul}[call.operator]
    return function(first, second)


def outcome(rank: int, world_size: int, store: Any, backend: str, seed: int, hosts: int) -> str:
    """Make the call of a rank, then an all-reduce; return how it came out: right, or a fault in words."""
    if hosts > 1:
        os.environ["MESHWRIGHT_HOST"] = f"host{rank}"
    case = case_of(seed)
    dist.init_process_group(backend, rank=rank, world_size=world_size, store=store, timeout=timedelta(seconds=LIMIT_S))
    heard = ""
    try:
        call, results, right = made(case.calls[rank], rank)
        work = call()
        if case.calls[rank].is_async and work is not None:
            work.wait()
    except Exception as error:
        heard = f"{type(error).__name__}: {error}"
    follows = torch.full((3,), rank + 1.0)
    try:
        dist.all_reduce(follows)
        after = "" if follows.tolist() == [3.0] * 3 else f"wrong sum {follows.tolist()}"
    except Exception as error:
        after = f"{type(error).__name__}: {error}"
    os.environ.pop("MESHWRIGHT_HOST", None)
    if case.right == "result":
        if heard or after:
            return f"valid, but {heard or after}"
        same = all(torch.equal(got.flatten(), wanted.flatten()) for got, wanted in zip(results, right, strict=True))
        return "right" if same else "wrong result"
    if case.right == "refused":
        return "right" if heard and not after else f"invalid: {heard or 'no error'}, afterwards {after or 'right'}"
    return "right" if heard or after else "the ranks differ: no error"


# ---- all of it


def run_cases(pool: Any, seeds: range, backend: str = "meshwright", hosts: int = 1) -> Counter[tuple[str, str]]:
    """Return how often each kind of case came out how, "right" if on both ranks; `pool` is called for a RankPool."""
    found: Counter[tuple[str, str]] = Counter()
    for seed in seeds:
        case, ranks = case_of(seed), pool()
        try:
            answers = ranks.run(outcome, backend, seed, hosts, timeout_s=4 * LIMIT_S + 10)
        except Exception as error:
            ranks.close()  # a rank may still be about to end, which is no fault of the next call
            lines = str(error).strip().splitlines() or [type(error).__name__]  # a pipe that ends says nothing more
            answers = [f"crash or hang: {lines[-1][:80]}"]
        word = next((answer for answer in answers if answer != "right"), "right")
        found[case.kind, word if word == "right" else f"{word[:150]} (seed {seed}, {case.calls})"] += 1
    return found


def main() -> None:
    """Run the calls and print the table."""
    from meshwright.bench.ranks.pool import RankPool

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hosts", type=int, default=1, choices=(1, 2))
    parser.add_argument("--backend", default="meshwright")
    asked = parser.parse_args()
    pools: list[RankPool] = []

    def pool() -> RankPool:
        if not pools or not pools[-1].alive:
            pools.append(RankPool(RANKS))
        return pools[-1]

    found = run_cases(pool, range(asked.seed, asked.seed + asked.calls), asked.backend, asked.hosts)
    pools[-1].close()
    for (kind, word), count in sorted(found.items()):
        print(f"{count:6d}  {kind:22s} {word}")  # noqa: T201


if __name__ == "__main__":
    main()
