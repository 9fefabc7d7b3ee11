"""Allocation: the nodes, tasks and GPUs that a batch system gives a script, which what starts tasks takes from it.

Sources: srun(1); qsub(1B) of PBS Professional; IBM Spectrum LSF's bsub (`-n` slots, `-R "span[ptile=N]"` of them on a
host, `-gpu num=N` GPUs a host unless `/task` stands behind it) and, of the Job Step Manager, `-nnodes`; mpirun(1) of
Open MPI, which without -np starts a task on each slot of the allocation.
"""

import itertools
import re
from collections.abc import Mapping, Sequence

from .counts import OF_MPI, STARTS_TASKS, Count
from .keys import as_whole
from .slurm import array_variables, of_component

# what srun takes from the #SBATCH lines of a script
SLURM = (("SLURM_NNODES", "nodes"), ("SLURM_NTASKS_PER_NODE", "tasks_per_node"), ("SLURM_NTASKS", "tasks"))
TAKE_SLURMS = frozenset({"srun", "ibrun"})  # the latter is TACC's mpirun, which takes the tasks of its job
# slots of each batch system, on which mpirun starts a task each
SLOTS = (("SLURM_NTASKS", "#SBATCH"), ("PBS_NP", "#PBS"), ("LSB_DJOB_NUMPROC", "#BSUB"))
OF_HOSTS = frozenset({"-H", "-host", "--host", "-hosts", "--hosts", "-f", "-hostfile", "--hostfile", "-machinefile"})
HOSTS = re.compile(r"[\w.-]+:\d{1,4}(?:,[\w.-]+:\d{1,4})*")  # each with its slots
COUNT_SAID = re.compile(r"-{1,2}(?:np|n|N|ppn|npernode|perhost|map-by)(?:=.*)?")
# names that no variable can have, under which an allocation of LSF's stands among variables
# whole nodes as resources of Grid Engine, whose variable of them is NHOSTS (qsub(1)): those of AIST's ABCI and of the
# TSUBAMEs 3 and 4 (docs.abci.ai, job execution; the TSUBAME user's guides, resource types)
WHOLE_NODES = re.compile(r"(?:^|,)(?:rt_A?F|f_node|node_f)=(\d{1,6})(?=,|$)")
LSF_NODES, LSF_GPUS = "LSF nodes", "LSF GPUs"


def of_slurm(words: Sequence[str], variables: Mapping[str, str], where: str, group: str = "") -> dict[str, Count]:
    """Return the nodes and tasks that `srun` takes from the #SBATCH lines of its script; none without it.

    With `group`, those of that component of a job.
    """
    if not _starts(words, TAKE_SLURMS):
        return {}
    return {
        key: (value, f"#SBATCH {key.replace('_', ' ')} {value} ({where})")
        for name, key in SLURM
        if (value := as_whole(variables.get(of_component(name, group) if group else name))) is not None
    }


def of_batch(words: Sequence[str], variables: Mapping[str, str], where: str) -> dict[str, Count]:
    """Return what PBS or LSF gives a script where something on its nodes is started: chunks, of a node each, and GPUs.

    Tasks are those of an mpirun that says neither their number nor its hosts.
    """
    if not _starts(words, STARTS_TASKS):
        return {}
    found: dict[str, Count] = {}
    if chunks := as_whole(variables.get("PBS_NUM_NODES")):
        found["chunks"] = (chunks, f"#PBS select {chunks} ({where})")
    if nodes := as_whole(variables.get(LSF_NODES)):
        found["chunks"] = (nodes, f"#BSUB {nodes} nodes ({where})")
    if gpus := as_whole(variables.get(LSF_GPUS)):
        found["gpus"] = (gpus, f"#BSUB {gpus} GPUs a node ({where})")
    return found


def slots(words: Sequence[str], variables: Mapping[str, str], where: str) -> dict[str, Count]:
    """Return the tasks of an mpirun that says neither their number nor its hosts: one on each slot of the job."""
    if not _starts(words, OF_MPI) or _starts(words, {"srun"}):
        return {}
    said = [later for word, later in itertools.pairwise(words) if word in OF_HOSTS and HOSTS.fullmatch(later)]
    if said and not any(map(COUNT_SAID.fullmatch, words)):
        own = sum(int(part.partition(":")[2]) for part in said[-1].split(","))
        return {"tasks": (own, f"{own} slots of {said[-1]}")}
    if any(word in OF_HOSTS for word in words) or any(map(COUNT_SAID.fullmatch, words)):
        return {}
    for name, told in SLOTS:
        if count := as_whole(variables.get(name)):
            return {"tasks": (count, f"{count} slots of {told} ({where})")}
    return {}


def _starts(words: Sequence[str], starters: frozenset[str] | set[str]) -> bool:
    return any(word.rpartition("/")[2] in starters for word in words)


def batch_directives(text: str) -> dict[str, str]:
    """Return the variables that the #BSUB lines of LSF and the #$ lines of Grid Engine in a script make."""
    asked = re.findall(r"^#\$[ \t](?:.*[ \t])?-l[ \t]+(\S+)", text, re.MULTILINE)
    return {**sge_variables(asked), **lsf_directives(text)}


def sge_variables(asked: Sequence[str]) -> dict[str, str]:
    """Return the number of hosts that resources of Grid Engine make, where they are whole nodes of a site."""
    found = next(filter(None, map(WHOLE_NODES.search, asked)), None)
    return {} if found is None else {"NHOSTS": found[1]}


def lsf_directives(text: str) -> dict[str, str]:
    """Return the variables that the #BSUB lines of a script make."""
    found: dict[str, str] = {}
    asked = "\n".join(re.findall(r"^#BSUB[ \t]+(.+)$", text, re.MULTILINE))
    number = {key: match[1] for key, pattern in LSF_OPTIONS.items() if (match := pattern.search(asked))}
    if array := re.search(r"-J[ \t]*[\"']?[\w.-]*\[([\d,:-]+)\]", asked):
        found |= array_variables("LSB_JOBINDEX", array[1])
    if "slots" in number:
        found["LSB_DJOB_NUMPROC"] = number["slots"]
    slots, of_host = int(number.get("slots", 0)), int(number.get("of_host", 0))
    nodes = int(number.get("nodes", 0)) or (slots // of_host if of_host and slots % of_host == 0 else 0)
    if nodes:
        found[LSF_NODES] = str(nodes)
    gpus = int(number.get("gpus", 0)) * (of_host if "of_task" in number else 1)
    if gpus:
        found[LSF_GPUS] = str(gpus)
    return found


LSF_OPTIONS = {
    "nodes": re.compile(r"(?<!\S)-nnodes[ \t]+(\d{1,6})\b"),
    "slots": re.compile(r"(?<!\S)-n[ \t]*(\d{1,7})\b"),
    "of_host": re.compile(r"span\[ptile=(\d{1,4})\]"),
    "gpus": re.compile(r"-gpu[ \t]+[\"']?(?:[\w=/-]+:)*num=(\d{1,4})"),
    "of_task": re.compile(r"-gpu[ \t]+[\"']?(?:[\w=/-]+:)*num=(\d{1,4})/task"),
}
