"""Variables that SLURM sets for a script from its #SBATCH lines."""

import re
from collections.abc import Mapping

SBATCH = {
    "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NODES"),
    "ntasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
    "ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "gpus-per-node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
    "gres": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
}
MOST_DIGITS = 9  # of a number of nodes or tasks
SHORT = {"-N": "nodes", "-n": "ntasks"}


def directives(text: str, before: Mapping[str, object] = {}) -> dict[str, str]:
    """Return the variables that SLURM sets from the #SBATCH lines of a script; those set `before` count first."""
    found: dict[str, str] = {}
    for line in re.findall(r"^#SBATCH[ \t]+(.+)$", text, re.MULTILINE):
        for key, value in re.findall(r"(--[\w-]+|-[Nn])(?:[= \t]+)([^\s#-][^\s#]*)", line):
            name = SHORT.get(key, key.removeprefix("--"))
            number = re.search(r"(\d+)$", value)
            if name in SBATCH and number and len(number[1]) <= MOST_DIGITS:
                found |= dict.fromkeys(SBATCH[name], number.group(1))
    nodes, per_node = (str((found | dict(before)).get(name, "")) for name in ("SLURM_NNODES", "SLURM_NTASKS_PER_NODE"))
    if nodes.isdecimal() and per_node.isdecimal() and "SLURM_NTASKS" not in found:
        found |= dict.fromkeys(SBATCH["ntasks"], str(int(nodes) * int(per_node)))
    return found
