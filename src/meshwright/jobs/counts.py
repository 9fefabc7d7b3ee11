"""Counts of nodes, tasks and ranks that the flags of launchers give.

Sources: srun(1), mpirun(1) of Open MPI, aprun(1) of Cray's ALPS, flux-run(1), IBM's jsrun(1) of the Job Step Manager
(`--nrs` resource sets, each with `--tasks_per_rs` tasks and `--gpu_per_rs` GPUs, `--rs_per_host` of them on a host),
LLNL's lrun, TACC's ibrun.
"""

import re
from collections.abc import Sequence

from ..units import counted
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
    "tasks-per-node": "tasks_per_node",  # of flux
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
# of IBM's jsrun: sets of resources, and what each of them has
OF_SETS = {"nrs": "sets", "tasks-per-rs": "tasks_of_set", "gpu-per-rs": "gpus_of_set", "rs-per-host": "sets_of_host"}
ALL_COUNTS = COUNTS | OF_SETS
OF_MPI = frozenset({"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"})
_TASKS = {"-n": "ntasks", "-np": "np"}
_OF_MPI = {**_TASKS, "-N": "npernode", "-npernode": "npernode", "-ppn": "ppn", "-perhost": "perhost"}
# short options of each starter of tasks; those of a launcher of ranks, or of a starter that is not known, are SHORT
SHORT = {"-N": "nodes", **_TASKS}
SHORT_OF = {
    **dict.fromkeys(OF_MPI, _OF_MPI),
    "srun": {"-N": "nodes", "-n": "ntasks"},
    "aprun": {"-n": "ntasks", "-N": "npernode"},
    "jsrun": {"-n": "nrs", "-a": "tasks-per-rs", "-g": "gpu-per-rs", "-r": "rs-per-host", "-p": "np"},
    "lrun": {"-N": "nodes", "-n": "ntasks", "-T": "npernode"},
    "flux": {"-N": "nodes", "-n": "ntasks", "-g": "gpus-per-task"},
    "ibrun": _TASKS,
}
STARTS_TASKS = frozenset(SHORT_OF)  # whose tasks are what stands behind them
JOINED = STARTS_TASKS - OF_MPI  # whose short options may have their value in the same word: `-N2`
PER_NODE = re.compile(r"ppr:(\d{1,4}):node\b.*")  # behind Open MPI's --map-by


def flagged_counts(words: Sequence[str]) -> tuple[dict[str, Count], list[str]]:
    """Return the counts that a launcher's flags give, and the flags that depend on something unknown."""
    found: dict[str, Count] = {}
    doubts: list[str] = []
    starter = next((name for word in words if (name := word.rpartition("/")[2]) in SHORT_OF), "")
    short = SHORT_OF.get(starter, SHORT)
    for place, word in enumerate(words):
        key, equals, value = word.partition("=")
        if starter in JOINED and (joined := re.fullmatch(r"(-[A-Za-z])=?([^A-Za-z=\s-].*)", word)):
            (key, value), equals = joined.groups(), "="
        name = short.get(key, key.lstrip("-").replace("_", "-") if key.startswith("--") else "")
        if starter in OF_MPI and (each := PER_NODE.fullmatch(word)):
            found["tasks_per_node"] = (int(each[1]), word)
        if name not in ALL_COUNTS:
            continue
        if not equals:
            value = words[place + 1] if place + 1 < len(words) else ""
        number, counts = as_whole(value), ALL_COUNTS[name]
        if number is not None and number > 0:
            found[counts] = (number, f"{key.lstrip('-')} {number}")
        elif counts == "nodes" and ":" in value:  # of an elastic job
            doubts.append(f"{key.lstrip('-')} ({value})")
        elif reasons(value):
            doubts.append(f"{key.lstrip('-')} ({', '.join(reasons(value))})")
    if starter == "jsrun":
        _count_sets(found)
    return found, doubts


def _count_sets(found: dict[str, Count]) -> None:
    """Add the tasks, nodes and GPUs of a node that jsrun's sets of resources make."""
    own = {name: found.pop(name, None) for name in OF_SETS.values()}
    sets, of_host = own["sets"], own["sets_of_host"]
    each = own["tasks_of_set"] or (1, "")
    if sets and "tasks" not in found:
        told = f"{counted(sets[0], 'resource set')} of jsrun"
        found["tasks"] = (sets[0] * each[0], f"{told} x {counted(each[0], 'task')}" if each[1] else told)
    if of_host:
        found["tasks_per_node"] = (of_host[0] * each[0], f"{of_host[1]} x {counted(each[0], 'task')}")
        if own["gpus_of_set"]:
            found["gpus"] = (of_host[0] * own["gpus_of_set"][0], f"{of_host[1]} x {own['gpus_of_set'][1]}")
        if sets and sets[0] % of_host[0] == 0:
            found["nodes"] = (sets[0] // of_host[0], f"{counted(sets[0], 'resource set')} with {of_host[1]}")


def is_count(doubt: str, key: str) -> bool:
    """Whether a doubt is of the flag that gives a count."""
    return COUNTS.get(doubt.partition(" ")[0].replace("_", "-")) == key
