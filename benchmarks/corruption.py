"""Silent data corruption: bits flipped in running jobs, false alarms of healthy ones, and what the check costs.

`--seeds A..B`: a job a seed in which one bit flips (weight, moment, gradient, or a sum on its way; any bit; any rank;
two and three copies); `--healthy N` checks of a job that nothing happens to; `--rounds N` blocks of steps with and
without the check, in turns. Flips and healthy checks accumulate over runs of the command; `--minutes` ends one early.
A flip of a gradient is replayed (`train.replay`) and lasts from its step on, as of a unit that is broken: one in a step
that is not replayed leaves nothing to compare. Every checkpoint is held against that of a run in which nothing flips: a
low bit may be lost in the rounding of the next update, and then there is nothing to find.
"""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
import torch.distributed as dist
import xxhash

from benchmarks.faults_seeds import known, seed_range, store
from benchmarks.result import RESULTS, Result, alternating_medians, known_rows
from meshwright.bench.ranks.pool import RankPool
from meshwright.layout import Layout
from meshwright.train.checkpoint.folder import checkpoints
from meshwright.train.checkpoint.manifest import read_manifest
from meshwright.train.checkpoint.pieces import read_whole
from meshwright.train.data.corpus import load_corpus
from meshwright.train.job.config import JobConfig
from meshwright.train.loop import Trainer
from meshwright.train.measure.recorder import clock
from meshwright.train.run.events import read_events
from meshwright.train.run.run_folder import RunFolder
from testkit.train_jobs import run_flipped, run_rank, small_job, write_corpus, write_run

STEPS, EVERY, CHECKED = 24, 8, 5
PLACES = ("weight", "exp_avg", "exp_avg_sq", "gradient", "received")
LAYOUTS = ("dp=2,mbs=4", "dp=3,mbs=4")
BATCHES = {"dp=2,mbs=4": 8, "dp=3,mbs=4": 12}
BLOCK = 20  # steps between two readings of the clock
PATIENCE_S = 900.0
SEEDS, KEYS = RESULTS / "corruption_seeds.jsonl", ("seed",)
HEALTHY, COST = "healthy checks", "step with a check every 10 steps over one without"


class Flipped(NamedTuple):
    """What became of a job in which a bit flipped."""

    where: str
    found: bool
    steps_late: int
    right: bool  # the rank that was named is the one
    clean: bool  # every checkpoint has the bits of a run in which nothing flipped
    gone: bool  # so has the run's end: the bit was lost in rounding


def run(arguments: list[str]) -> Result:
    """Flip, run healthily, and measure; return a row for each."""
    parser = argparse.ArgumentParser(prog="benchmarks corruption")
    parser.add_argument("--seeds", type=seed_range, default=range(1, 201), metavar="A..B")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--healthy", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args(arguments)
    ends_s = time.monotonic() + 60 * options.minutes
    had = {row["seed"] for row in known(SEEDS, KEYS)}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        corpus = write_corpus(place)
        pools = {layout: RankPool(Layout.parse(layout).world_size) for layout in LAYOUTS}
        try:
            right = {layout: _undisturbed(pools[layout], place, corpus, layout) for layout in LAYOUTS}
            for seed in (seed for seed in options.seeds if seed not in had):
                if time.monotonic() > ends_s:
                    break
                store(SEEDS, {"seed": seed, **_flipped(pools, place, corpus, seed, right)._asdict()}, KEYS)
            before = {row["what"]: row for row in known_rows("corruption")}
            if options.healthy:
                before[HEALTHY] = _with(
                    before.get(HEALTHY), _healthy(pools[LAYOUTS[0]], place, corpus, options.healthy)
                )
            if options.rounds:
                before[COST] = _cost(pools[LAYOUTS[0]], place, corpus, options.rounds)
        finally:
            for pool in pools.values():
                pool.close()
    done = [Flipped(**{key: row[key] for key in Flipped._fields}) for row in known(SEEDS, KEYS)]
    rows = [_row(where, [one for one in done if one.where == where]) for where in PLACES]
    rows += [before[what] for what in (HEALTHY, COST) if what in before]
    return Result("Silent data corruption", rows, [f"checks every {CHECKED} steps, a checkpoint every {EVERY}"])


def _with(before: dict[str, Any] | None, now: dict[str, Any]) -> dict[str, Any]:
    """Return healthy checks with those of earlier runs."""
    if before is None:
        return now
    added = {key: before[key] + now[key] for key in ("times", "alarms")}
    return now | added | {"ended normally": before["ended normally"] and now["ended normally"]}


def _job(corpus: str, layout: str, **train: Any) -> JobConfig:
    settings: dict[str, Any] = {"steps": STEPS, "checkpoint_every": EVERY, "check_replicas": CHECKED, "record": False}
    return small_job(corpus, **settings, global_batch=BATCHES[layout], **train)


def _undisturbed(pool: RankPool, place: Path, corpus: str, layout: str) -> dict[int, str]:
    """Return the state of each checkpoint of a run in which nothing flips."""
    folder = write_run(place / f"undisturbed-{layout}", _job(corpus, layout), Layout.parse(layout))
    pool.run(run_rank, str(folder.path), timeout_s=PATIENCE_S)
    return _states(folder)


def _states(folder: RunFolder) -> dict[int, str]:
    """Return a checksum over all tensors of each checkpoint, by step."""
    found = {}
    for path in checkpoints(folder.checkpoints):
        manifest, hashed = read_manifest(path), xxhash.xxh3_128()
        names = sorted(name for name in manifest.tensors if not name.startswith("rng/"))
        for name, tensor in read_whole(path, manifest, names):
            hashed.update(name.encode() + tensor.numpy().tobytes())
        found[manifest.facts.step] = hashed.hexdigest()
    return found


def _flipped(
    pools: dict[str, RankPool],
    place: Path,
    corpus: str,
    number: int,
    right: dict[str, dict[int, str]],
) -> Flipped:
    rng = random.Random(f"flip {number}")
    layout, where = LAYOUTS[number % len(LAYOUTS)], PLACES[number % len(PLACES)]
    rank, at, bit = rng.randrange(Layout.parse(layout).world_size), rng.randrange(2, STEPS - 1), rng.randrange(32)
    on = "+" if where == "gradient" else ""
    job = _job(corpus, layout, replay=CHECKED if on else 0)
    folder = write_run(place / f"flip-{number}", job, Layout.parse(layout))
    pools[layout].run(run_flipped, str(folder.path), f"{rank}:{at}{on}:{where}:{bit}", timeout_s=PATIENCE_S)
    found = [event for event in read_events(folder.events) if event.kind == "corruption"]
    step = found[0].step if found else None
    states = _states(folder)
    return Flipped(
        where,
        found=step is not None,
        steps_late=step - at if step is not None else STEPS,
        right=bool(found) and found[0].culprit == rank,
        clean=all(state == right[layout][saved] for saved, state in states.items()),
        gone=not found and states.get(STEPS) == right[layout][STEPS],
    )


def _row(where: str, done: list[Flipped]) -> dict[str, Any]:
    return {
        "what": f"a bit flips: {where}",
        "times": len(done),
        "lost in rounding": sum(one.gone for one in done),
        "found": sum(one.found for one in done),
        f"within {CHECKED} steps": sum(one.steps_late < CHECKED for one in done),
        "rank right": sum(one.right for one in done),
        "no checkpoint with it": sum(one.clean for one in done),
    }


def _healthy(pool: RankPool, place: Path, corpus: str, checks: int) -> dict[str, Any]:
    """Check and replay in every step of a job that nothing happens to."""
    settings: dict[str, Any] = {"steps": checks, "checkpoint_every": 0, "check_replicas": 1, "record": False}
    folder = write_run(place / "healthy", small_job(corpus, **settings), Layout.parse(LAYOUTS[0]))
    said = pool.run(run_rank, str(folder.path), timeout_s=PATIENCE_S + checks)
    alarms = [event for event in read_events(folder.events) if event.kind == "corruption"]
    return {"what": HEALTHY, "times": checks, "alarms": len(alarms), "ended normally": not any(said)}


def _cost(pool: RankPool, place: Path, corpus: str, rounds: int) -> dict[str, Any]:
    """Compare blocks of steps with the check every 10 steps and without, in turns, at 1,024 tokens a rank and step."""
    base = small_job(corpus, steps=10**6, checkpoint_every=0, record=False, global_batch=16)
    model = msgspec.structs.replace(base.model, hidden_size=128, intermediate_size=384, num_hidden_layers=4)
    data = msgspec.structs.replace(base.data, seq_len=128)
    job = msgspec.structs.replace(base, model=model, data=data)
    folder = write_run(place / "cost", job, Layout.parse("dp=2,mbs=8"))
    found = pool.run(rank_of_cost, str(folder.path), rounds, timeout_s=600.0)[0]
    ratio, share = (statistics.median(column) for column in zip(*found, strict=True))
    return {"what": COST, "times": len(found) * BLOCK, "ratio": round(ratio, 4), "in the check": round(share, 5)}


def rank_of_cost(rank: int, world_size: int, store: dist.Store, path: str, rounds: int) -> list[tuple[float, float]]:
    """Return of each pair of blocks the ratio, with the check over without, and the share of time in the check."""
    dist.init_process_group("meshwright", rank=rank, world_size=world_size, store=store)
    folder = RunFolder(Path(path))
    config, plan = folder.config(), folder.plan()
    corpus = load_corpus(config.data, folder.path / "tokens")
    trainer = Trainer(config, plan, corpus, folder, rank=rank, device=torch.device("cpu"))
    step, spent_s = 0, 0.0

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            nonlocal spent_s
            start = clock()
            try:
                return function(*arguments)
            finally:
                spent_s += clock() - start

        return call

    trainer.guard.share, trainer.guard.look = timed(trainer.guard.share), timed(trainer.guard.look)
    shares: list[float] = []

    def block(every: int) -> float:
        nonlocal step, spent_s
        spent_s = 0.0
        trainer.guard.every = every
        start = clock()
        for _ in range(BLOCK):
            trainer.step(step)
            step += 1
        took_s = clock() - start
        if every:
            shares.append(spent_s / took_s)
        return took_s

    block(10)
    shares.clear()
    _, samples = alternating_medians({"on": lambda: block(10), "off": lambda: block(0)}, rounds)
    dist.destroy_process_group()
    return [(on / off, share) for on, off, share in zip(samples["on"], samples["off"], shares, strict=True)]
