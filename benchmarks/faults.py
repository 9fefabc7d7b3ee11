"""Faults: what becomes of a job, a checkpoint or a reader, beside plain Gloo and DCP on the same faults.

Each row is one kind of fault, how often it was done, and what came of it. `python -m benchmarks faults` does all parts
(more than an hour on two cores); `--only kills,junk` does some and keeps the other rows of the results. Other
options: --seed N, and of each part how often, such as `--kills 8`.
"""

import argparse
import importlib
import random
import tempfile
from pathlib import Path

from benchmarks.faults_rig import RANKS, Row
from benchmarks.result import Result, describe_machine, known_rows

PARTS = {  # the function, its module, and how often
    "kills": ("kills", "faults_kills", 50),
    "writer": ("writer_kills", "faults_files", 200),
    "damage": ("damage", "faults_files", 500),
    "pauses": ("pauses", "faults_kills", 3),
    "layouts": ("layouts", "faults_layouts", 90),
    "outage": ("outage", "faults_nodes", 1),
    "nodes": ("nodes", "faults_nodes", 1),
    "healthy": ("healthy", "faults_nodes", 1000),
    "storage": ("storage", "faults_files", 1),
    "hostile": ("hostile", "faults_files", 1),
    "junk": ("junk", "faults_runs", 1000),
    "strangers": ("strangers", "faults_strangers", 100_000),
    "soak": ("soak", "faults_soak", 5000),
}
KEYS = ("fault", "system", "times")


def run(arguments: list[str]) -> Result:
    """Do the parts that are asked for, one after the other, and return the rows of all."""
    parser = argparse.ArgumentParser(prog="benchmarks faults")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--seed", type=int, default=1)
    for name, (_, _, count) in PARTS.items():
        parser.add_argument(f"--{name}", type=int, default=count)
    options = parser.parse_args(arguments)
    fresh: dict[str, list[Row]] = {}
    for name in options.only.split(","):
        function, module, _ = PARTS[name]
        with tempfile.TemporaryDirectory() as place:
            part = getattr(importlib.import_module(f"benchmarks.{module}"), function)
            found = part(Path(place), random.Random(options.seed), getattr(options, name))
        commit = describe_machine()["commit"]
        fresh[name] = [{"part": name} | _told(row) | {"seed": options.seed, "commit": commit} for row in found]
    rows = [row for row in known_rows("faults") if row["part"] not in fresh]  # read late: others measure too
    rows += [row for some in fresh.values() for row in some]
    rows.sort(key=lambda row: list(PARTS).index(row["part"]))
    return Result("Faults", rows, [f"{RANKS} ranks on one machine unless said otherwise; a row says when it was made"])


def _told(row: Row) -> Row:
    """Return a row with what came of it in one column: each fault has figures of its own."""
    told = ", ".join(f"{name} {value}" for name, value in row.items() if name not in KEYS)
    return {name: row[name] for name in KEYS} | {"what came of it": told}
