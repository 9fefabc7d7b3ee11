"""Variables that SLURM sets for a script from its #SBATCH lines, and the tasks of a job array.

Source: sbatch(1), --array: indexes, ranges and steps, of which %N run at a time; each task is a run of the script.
"""

import re
from collections.abc import Mapping

SBATCH = {
    "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NODES"),
    "ntasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
    "ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "gpus-per-node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
    "gres": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
}
# what parts the components of a heterogeneous job; a script has the variables of the first
COMPONENT = re.compile(r"^#SBATCH[ \t]+(?:hetjob|packjob)\b", re.MULTILINE)
ARRAY = "job array"  # the name, which no variable can have, under which the tasks of an array stand among variables
ARRAY_OPTION = re.compile(r"(?<!\S)(?:--array|-a)(?:[= \t]+)([\d,:-]+)")
TASK = "SLURM_ARRAY_TASK_ID"
MOST_TASKS = 100_000
MOST_DIGITS = 9  # of a number of nodes or tasks
SHORT = {"-N": "nodes", "-n": "ntasks"}


def directives(text: str, before: Mapping[str, object] = {}) -> dict[str, str]:
    """Return the variables that SLURM sets from the #SBATCH lines of a script; those set `before` count first."""
    found: dict[str, str] = {}
    first = COMPONENT.split(text, maxsplit=1)[0]
    for line in re.findall(r"^#SBATCH[ \t]+(.+)$", first, re.MULTILINE):
        if array := ARRAY_OPTION.search(line):
            found |= array_variables(TASK, array[1])
        for key, value in re.findall(r"(--[\w-]+|-[Nn])(?:[= \t]+)([^\s#-][^\s#]*)", line):
            name = SHORT.get(key, key.removeprefix("--"))
            number = re.search(r"(\d+)$", value)
            if name in SBATCH and number and len(number[1]) <= MOST_DIGITS:
                found |= dict.fromkeys(SBATCH[name], number.group(1))
    nodes, per_node = (str((found | dict(before)).get(name, "")) for name in ("SLURM_NNODES", "SLURM_NTASKS_PER_NODE"))
    if nodes.isdecimal() and per_node.isdecimal() and "SLURM_NTASKS" not in found:
        found |= dict.fromkeys(SBATCH["ntasks"], str(int(nodes) * int(per_node)))
    return found


def array_variables(name: str, text: str) -> dict[str, str]:
    """Return the variable `name` of the first task of an array, and all of its tasks under ARRAY; {} for no array."""
    tasks = _tasks(text)
    if not tasks:
        return {}
    first = {name: str(tasks[0]), ARRAY: " ".join((name, *map(str, tasks)))}
    if name == TASK:
        first |= {
            "SLURM_ARRAY_TASK_MIN": str(min(tasks)),
            "SLURM_ARRAY_TASK_MAX": str(max(tasks)),
            "SLURM_ARRAY_TASK_COUNT": str(len(tasks)),
        }
    return first


def _tasks(text: str) -> list[int]:
    """Return the indexes that "0-6:2,9" means; none where it is no such list, or of more than MOST_TASKS."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7})(?::(\d{1,7}))?)?", part)
        if match is None or (match[3] and int(match[3]) == 0):
            return []
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if (last - first) // step > MOST_TASKS:
            return []
        found += range(first, last + 1, step)
    return found if len(found) <= MOST_TASKS else []
