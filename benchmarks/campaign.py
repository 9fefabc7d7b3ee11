"""A campaign of overlapping faults with a score: two or three at a time on 2 nodes x 2 ranks, ours beside other loops.

Each seed is a scenario: kills, stops, a memory limit, cables, partitions, a full disk, a folder that is gone, a wrong
clock, a damaged checkpoint, launchers, a second job, strangers. What was done is written down, an operator starts again
what has ended, and the score says what came of it. Results accumulate by seed and system over runs of the command.

    python -m benchmarks campaign --seeds 1..200 --minutes 120
    python -m benchmarks campaign --seeds 1..40 --systems gloo
    python -m benchmarks campaign --seeds 1..40 --name mine --command "torchrun train.py --out {folder} --steps {steps}"

`--jobs N` plays N scenarios at a time, each on a cluster of its own; a row says how many, and the load that the
machine had, since they take longer beside each other.

`--command` is run once on each node, with torchrun's variables; it writes a line a step to {folder}/steps (number,
seconds, loss), checkpoints to {folder}/step-NUMBER every {every} steps, and goes on from there. Its group's timeout is
{timeout} seconds. `--again` plays seeds again that have a result; `--keep DIR` keeps the folders of those with a fault.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, get_args

import msgspec

from benchmarks.faults_acts import able
from benchmarks.faults_manifest import Kind, Scenario, draw
from benchmarks.faults_play import CACHE, WAS, Played, play
from benchmarks.faults_score import score
from benchmarks.faults_seeds import Row, known, seed_range, store
from benchmarks.faults_systems import EVERY, STEPS, Loop, Ours, System, gloo_command, torchft_command
from benchmarks.faults_truth import Truth
from benchmarks.result import RESULTS, Result, describe_machine
from meshwright.cluster.emulation import Emulation
from testkit.caches import new_cache
from testkit.train_jobs import write_corpus

SEEDS, KEYS = RESULTS / "campaign_seeds.jsonl", ("system", "seed")


class Peer(NamedTuple):
    """A system of others: its name in the results, the command that it is run by, and the package that it needs."""

    name: str
    command: Callable[[], str]
    package: str = "torch"


PEERS = {
    "gloo": Peer("Gloo + DCP under torchrun", gloo_command),
    "torchft": Peer("torchft + Gloo + DCP", torchft_command, "torchft"),
}
QUIET = Scenario(seed=0, at_step=0, min_nodes=2, on_storage_error="end", faults=())
TRIES = 5  # of the undisturbed run, where the machine stands still


def run(arguments: list[str]) -> Result:
    """Play the seeds that have no result yet, as far as the time goes; return the score of all that have one."""
    parser = argparse.ArgumentParser(prog="benchmarks campaign")
    parser.add_argument("--seeds", type=seed_range, default=range(1, 201), metavar="A..B")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--systems", default="meshwright", help=f"meshwright, {', '.join(PEERS)}; several by commas")
    parser.add_argument("--command", help="a loop of your own, beside them")
    parser.add_argument("--name", default="command", help="what it is called")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="scenarios at a time")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args(arguments)
    ends_s = time.monotonic() + 60 * options.minutes
    for name in [*options.systems.split(","), *([options.name] if options.command else [])]:
        with tempfile.TemporaryDirectory(prefix="c-") as place:
            _Campaign(name, options, Path(place)).run(options.seeds, ends_s)
    rows = known(SEEDS, KEYS)
    notes = [f"{STEPS} steps, a checkpoint every {EVERY}, 2 nodes x 2 ranks; a seed is the same scenario for all"]
    can = able()
    lacking = [kind for kind in get_args(Kind) if kind not in can]
    notes += [f"this machine cannot do: {', '.join(lacking)}"] if lacking else []
    return Result("Campaign", summary(rows), notes)


class _Campaign:
    """The seeds of one system."""

    def __init__(self, name: str, options: argparse.Namespace, place: Path) -> None:
        self._name, self._place, self._keep, self._again = name, place, options.keep, options.again
        self._jobs, self._commit = options.jobs, describe_machine()["commit"]
        self._storing, self._making = threading.Lock(), threading.Lock()
        self._truth: Truth | None = None
        self._corpus = write_corpus(place)
        new_cache(place / CACHE)
        self._links: Path | None = None
        self._command = options.command if name == options.name and options.command else None
        if self._command is None and name != "meshwright":
            if name not in PEERS:
                raise SystemExit(f"--systems: {name}: expected meshwright, {', '.join(PEERS)}")
            peer = PEERS[name]
            if find_spec(peer.package) is None:
                raise SystemExit(f"--systems: {name} is not installed; expected `pip install 'meshwright[clients]'`")
            self._name, self._command = peer.name, peer.command()

    def run(self, seeds: range, ends_s: float) -> None:
        """Play the undisturbed run, then each seed."""
        had = {row["seed"] for row in known(SEEDS, KEYS) if row["system"] == self._name}
        coming = [seed for seed in seeds if self._again or seed not in had]
        if not coming or time.monotonic() > ends_s:
            return
        right = self._undisturbed()
        kept, links = self._place / "0" / WAS / "links", self._place / "links"
        if kept.exists():  # all scenarios sum in the order of the undisturbed run
            shutil.copytree(kept, links)
            self._links = links
        if self._command is None:
            alone = msgspec.structs.replace(QUIET, min_nodes=1)
            self._truth = Truth(
                lambda cluster, disk: Ours(cluster, disk, self._corpus, alone, self._links, keep_last=0), self._place
            )
        can = able()

        def one(seed: int) -> None:
            if time.monotonic() < ends_s:
                self._seed(draw(seed, can), right)

        players = ThreadPoolExecutor(self._jobs)
        try:
            list(players.map(one, coming))
        finally:  # also where it is interrupted: those under way end, no other begins
            players.shutdown(cancel_futures=True)

    def _seed(self, scenario: Scenario, right: Played) -> None:
        """Play a scenario and store its score."""
        busy = os.getloadavg()[0]
        played = self._play(scenario)
        if played.was_frozen:
            sys.stdout.write(f"{self._name}: seed {scenario.seed}: this machine stood still meanwhile; not counted\n")
            return
        truth, told = None, ""
        if self._truth is not None:
            with self._making:
                truth, told = self._truth.losses(self._place / str(scenario.seed) / WAS)
        row = score(self._name, scenario, played, right, truth=truth, told=told)
        row |= {"commit": self._commit, "jobs": self._jobs, "load": round(busy, 1)}
        with self._storing:
            store(SEEDS, row, KEYS)
            sys.stdout.write(_line(row) + "\n")
            sys.stdout.flush()
        if self._keep and _is_bad(row):
            kept = self._keep / f"{self._name.split()[0]}-{scenario.seed}"
            shutil.copytree(self._place / str(scenario.seed) / WAS, kept, dirs_exist_ok=True)
        shutil.rmtree(self._place / str(scenario.seed))

    def _undisturbed(self) -> Played:
        for _ in range(TRIES):
            right = self._play(QUIET)
            if right.is_complete:
                return right
            if not right.was_frozen:
                break
        raise SystemExit(f"{self._name}: the undisturbed run failed: {right.codes}\n{right.texts}")

    def _play(self, scenario: Scenario) -> Played:
        place = self._place / str(scenario.seed)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        command = self._command

        def begin(cluster: Emulation, disk: Path) -> System:
            if command is None:
                return Ours(cluster, disk, self._corpus, scenario, self._links)
            return Loop(self._name, disk, command)

        return play(begin, scenario, place)


def summary(rows: list[Row]) -> list[Row]:
    """Return the score of each system over its seeds, and over the seeds of all where it has played more."""
    names = sorted({row["system"] for row in rows}, key=lambda name: (name != "meshwright", name))
    seeds = {name: {row["seed"] for row in rows if row["system"] == name} for name in names}
    common = set.intersection(*seeds.values()) if seeds else set()
    found = []
    for name in names:
        some = [row for row in rows if row["system"] == name]
        found.append(_score(name, some))
        if common and seeds[name] - common:
            shared = [row for row in some if row["seed"] in common]
            found.append(_score(f"{name}, seeds that all have played", shared))
    return found


def _score(name: str, some: list[Row]) -> Row:
    said, wrong = sum(row["named"] for row in some), sum(len(row["named wrongly"]) for row in some)
    due, missed = sum(row["due"] for row in some), sum(len(row["missed"]) for row in some)
    return {
        "system": name,
        "scenarios": len(some),
        "complete": sum(row["complete"] for row in some),
        "bit-identical": sum(row["bit-identical"] for row in some),
        "wrong losses": sum(row["losses wrong"] for row in some),
        "hangs": sum(row["hangs"] for row in some),
        "lost more than since the last whole checkpoint": sum(row["lost more than it had to"] for row in some),
        "named": said,
        "precision": round((said - wrong) / said, 3) if said else None,
        "due": due,
        "recall": round((due - missed) / due, 3) if due else None,
        "with orphans": sum(bool(row["orphans"]) for row in some),
        "with leftovers": sum(bool(row["leftovers"]) for row in some),
        "median time ratio": statistics.median(row["time ratio"] for row in some),
        "started again by hand": sum(row["starts"] - 1 for row in some),
    }


def _is_bad(row: Row) -> bool:
    good = row["complete"] and not row["hangs"] and not row["losses wrong"] and not row["lost more than it had to"]
    return not good or bool(row["named wrongly"] or row["missed"] or row["orphans"] or row["leftovers"])


def _line(row: Row) -> str:
    told = {
        key: row[key]
        for key in ("losses wrong", "named wrongly", "missed", "orphans", "leftovers", "second")
        if row[key]
    }
    figures = {key: row[key] for key in ("complete", "bit-identical", "losses off", "hangs", "starts", "time ratio")}
    return f"{row['system']}: {row['scenario']}\n  {row['truth']}\n  {figures} {told}"
