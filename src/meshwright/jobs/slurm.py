"""Variables that SLURM sets for a script from its #SBATCH lines, and the tasks of a job array.

Sources: sbatch(1), --array: indexes, ranges and steps, of which %N run at a time, each task a run of the script;
slurm.schedmd.com/heterogeneous_jobs.html: of a job in components each has its own nodes, tasks and GPUs, under names
that end in _HET_GROUP_N (once _PACK_GROUP_N), and a step of one component, `srun --het-group=N`, has them as its own.
"""

import re
from collections.abc import Mapping, Sequence

SBATCH = {
    "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NODES"),
    "ntasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
    "ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "gpus-per-node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
    "gres": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
    "gpus": ("SLURM_GPUS",),
    "gpus-per-task": ("SLURM_GPUS_PER_TASK",),
}
# what parts the components of a heterogeneous job; a script has the variables of the first
COMPONENT = re.compile(r"^#SBATCH[ \t]+(?:hetjob|packjob)\b.*", re.MULTILINE)
SUFFIXES = ("_HET_GROUP_", "_PACK_GROUP_")
# an option with its value: a short one may have it in the same word
OPTION = re.compile(r"(?<!\S)(?:(--[\w-]+)[= \t]+|(-[NnG])[= \t]*)([^\s#-][^\s#]*)")
GPUS_OF_GRES = re.compile(r"(?:^|,)(?:gres[:/])?gpu(?:[:=][A-Za-z][\w.-]*|[:=]\d+g\.[\w.]+)?(?:[:=](\d+))?(?=,|\(|$)")
ARRAY = "job array"  # the name, which no variable can have, under which the tasks of an array stand among variables
ARRAY_OPTION = re.compile(r"(?<!\S)(?:--array|-a)(?:[= \t]+)([\d,:-]+)")
TASK = "SLURM_ARRAY_TASK_ID"
MOST_TASKS = 100_000
MOST_DIGITS = 9  # of a number of nodes or tasks
SHORT = {"-N": "nodes", "-n": "ntasks", "-G": "gpus"}


def directives(text: str, before: Mapping[str, object] = {}) -> dict[str, str]:
    """Return the variables that SLURM sets from the #SBATCH lines of a script; those set `before` count first."""
    first, *others = COMPONENT.split(text)
    found = _of_component(first, before)
    for place, component in enumerate(others or [], start=1):
        own = _of_component(component, {})
        found |= {f"{name}{suffix}{place}": value for suffix in SUFFIXES for name, value in own.items()}
    if others:
        own = {name: value for name, value in found.items() if not any(suffix in name for suffix in SUFFIXES)}
        found |= {f"{name}{suffix}0": value for suffix in SUFFIXES for name, value in own.items() if name != ARRAY}
        found["SLURM_HET_SIZE"] = str(len(others) + 1)
    return found


def _of_component(text: str, before: Mapping[str, object]) -> dict[str, str]:
    """Return the variables of the options of one component of a job."""
    found: dict[str, str] = {}
    for line in re.findall(r"^#SBATCH[ \t]+(.+)$", text, re.MULTILINE):
        if array := ARRAY_OPTION.search(line):
            found |= array_variables(TASK, array[1])
        for long, short, value in OPTION.findall(line):
            name = SHORT.get(short, long.removeprefix("--"))
            number = _number(name, value) if name in SBATCH else ""
            if number and len(number) <= MOST_DIGITS:
                found |= dict.fromkeys(SBATCH[name], number)
    nodes, per_node = (str((found | dict(before)).get(name, "")) for name in ("SLURM_NNODES", "SLURM_NTASKS_PER_NODE"))
    if nodes.isdecimal() and per_node.isdecimal() and "SLURM_NTASKS" not in found:
        found |= dict.fromkeys(SBATCH["ntasks"], str(int(nodes) * int(per_node)))
    return found | _gpus_of_node(found)


def _gpus_of_node(found: Mapping[str, str]) -> dict[str, str]:
    """Return the GPUs of a node, where they follow from those of all nodes or of a task; else nothing."""
    if "SLURM_GPUS_PER_NODE" in found:
        return {}
    nodes, gpus = int(found.get("SLURM_NNODES", 0)), int(found.get("SLURM_GPUS", 0))
    tasks, of_task = int(found.get("SLURM_NTASKS_PER_NODE", 0)), int(found.get("SLURM_GPUS_PER_TASK", 0))
    each = gpus // nodes if nodes and gpus % nodes == 0 else 0
    each = each or tasks * of_task
    return dict.fromkeys(SBATCH["gres"], str(each)) if each else {}


def _number(name: str, value: str) -> str:
    """Return the number in the value of an option; "" where it leaves the number open, as `--nodes=2-4` does."""
    if name == "gres":
        gpus = GPUS_OF_GRES.search(value)
        return "" if gpus is None else gpus[1] or "1"
    least, dash, most = value.partition("-")
    if name == "nodes" and dash:
        return least if least == most else ""
    number = re.search(r"(\d+)$", value)
    return number[1] if number else ""


def of_component(name: str, group: str) -> str:
    """Return the name under which a variable of one component of a job stands."""
    return f"{name}{SUFFIXES[0]}{group}"


def step_variables(words: Sequence[str], variables: Mapping[str, object]) -> dict[str, str]:
    """Return the variables that a step of one component of a job has in place of the first one's."""
    text = " ".join(words)
    group = re.search(r"--(?:het|pack)-group[= ](\d+)(?!\S)", text) if "srun" in text else None
    if group is None:
        return {}
    end = of_component("", group[1])
    return {key.removesuffix(end): str(value) for key, value in variables.items() if key.endswith(end)}


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
