"""Counts of nodes, tasks and ranks that the flags of launchers give."""

import re
from collections.abc import Sequence

from .keys import as_whole
from .shell.marks import reasons

Count = tuple[int, str]
# flags of a launcher (underscores as dashes) and what they count
COUNTS = {
    "nnodes": "nodes",
    "nodes": "nodes",
    "num-nodes": "nodes",
    "num-machines": "nodes",
    "nproc-per-node": "per_node",
    "nproc": "per_node",
    "world-size": "world",
    "num-gpus": "per_node",
    "num-processes": "world",
    "ntasks-per-node": "tasks_per_node",
    "gpus-per-node": "per_node",
    "gpus-per-task": "gpus_per_task",
    "ntasks": "tasks",
    "np": "tasks",
    "npernode": "tasks_per_node",  # of mpirun and mpiexec, by Open MPI, Intel, MPICH and HPE
    "ppn": "tasks_per_node",
    "perhost": "tasks_per_node",
    "worker-num": "world",  # of MindSpore's msrun
    "local-worker-num": "per_node",
}
SHORT = {"-N": "nodes", "-n": "ntasks", "-np": "np"}
OF_MPI = frozenset({"mpirun", "mpiexec"})
SHORT_OF_MPI = {"-N": "npernode", "-npernode": "npernode", "-ppn": "ppn", "-perhost": "perhost"}
PER_NODE = re.compile(r"ppr:(\d{1,4}):node\b.*")  # behind Open MPI's --map-by


def flagged_counts(words: Sequence[str]) -> tuple[dict[str, Count], list[str]]:
    """Return the counts that a launcher's flags give, and the flags that depend on something unknown."""
    found: dict[str, Count] = {}
    doubts: list[str] = []
    of_mpi = any(word.rpartition("/")[2] in OF_MPI for word in words)
    short = SHORT | SHORT_OF_MPI if of_mpi else SHORT
    for place, word in enumerate(words):
        key, equals, value = word.partition("=")
        name = short.get(key, key.lstrip("-").replace("_", "-") if key.startswith("--") else "")
        if of_mpi and (each := PER_NODE.fullmatch(word)):
            found["tasks_per_node"] = (int(each[1]), word)
        if name not in COUNTS:
            continue
        if not equals:
            value = words[place + 1] if place + 1 < len(words) else ""
        number = as_whole(value)
        if number is not None and number > 0:
            found[COUNTS[name]] = (number, f"{key.lstrip('-')} {number}")
        elif COUNTS[name] == "nodes" and ":" in value:  # of an elastic job
            doubts.append(f"{key.lstrip('-')} ({value})")
        elif reasons(value):
            doubts.append(f"{key.lstrip('-')} ({', '.join(reasons(value))})")
    return found, doubts


def is_count(doubt: str, key: str) -> bool:
    """Whether a doubt is of the flag that gives a count."""
    return COUNTS.get(doubt.partition(" ")[0].replace("_", "-")) == key
