"""Environment variables of a launcher: torchrun's standard ones, and SLURM's turned into them."""

import re
from collections.abc import Mapping, MutableMapping

import msgspec
import torch.distributed as dist

from ...device import native_backend, of_ranks
from ...errors import InputError

FIRST_SLURM_PORT, SLURM_PORTS = 20_000, 10_000  # the rendezvous port follows from the job's number


class Place(msgspec.Struct, frozen=True):
    """Where this process stands among the ranks."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int


def place(environment: Mapping[str, str]) -> Place:
    """Return this process's place; InputError where a variable is missing or senseless."""
    values = {}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        default = {"LOCAL_RANK": environment.get("RANK"), "LOCAL_WORLD_SIZE": environment.get("WORLD_SIZE")}.get(name)
        text = environment.get(name, default)
        if text is None:
            raise InputError(
                f"{name} is not set: start with torchrun or srun, or use `meshwright train` on one machine"
            )
        if not text.isdecimal():
            raise InputError(f"{name}={text}: expected a whole number")
        values[name] = int(text)
    if values["RANK"] >= values["WORLD_SIZE"]:
        raise InputError(f"RANK={values['RANK']} is not below WORLD_SIZE={values['WORLD_SIZE']}")
    return Place(*values.values())


def ranks_on_this_host(environment: Mapping[str, str], ranks: int) -> int:
    """Return how many of a job's ranks run here: the ones that a launcher started on this machine, or all."""
    return place(environment).local_world_size if "RANK" in environment else ranks


def choose_backend(asked: str, ranks_on_host: int) -> str:
    """Return the backend of a job: what was asked for, or NCCL where each rank has a GPU, and our own on CPUs.

    Raises InputError where it cannot be had.
    """
    gpus, native = of_ranks(ranks_on_host), native_backend()
    if asked == "auto":
        return native if native and gpus >= ranks_on_host else "meshwright"
    if asked == (native or "nccl") and gpus < ranks_on_host:
        raise InputError(
            f"--backend {asked}: {ranks_on_host} ranks need as many GPUs, found {gpus}; try --backend gloo"
        )
    if asked not in dist.Backend.backend_list:
        raise InputError(f"--backend {asked}: not in this build of PyTorch ({', '.join(dist.Backend.backend_list)})")
    return asked


def adopt_slurm(environment: MutableMapping[str, str]) -> None:
    """Set torchrun's variables from SLURM's where srun started this process and no other launcher did."""
    if "RANK" in environment or "SLURM_PROCID" not in environment:
        return
    try:
        ranks, rank = environment["SLURM_NTASKS"], environment["SLURM_PROCID"]
        local_rank, job = environment["SLURM_LOCALID"], int(environment["SLURM_JOB_ID"])
        hosts = environment.get("SLURM_STEP_NODELIST") or environment["SLURM_NODELIST"]
        per_node = environment.get("SLURM_STEP_TASKS_PER_NODE") or environment["SLURM_TASKS_PER_NODE"]
        node = int(environment.get("SLURM_NODEID", "0"))
    except (KeyError, ValueError) as error:
        raise InputError(f"started by srun, but {error} is missing or senseless") from None
    environment.update(
        RANK=rank,
        WORLD_SIZE=ranks,
        LOCAL_RANK=local_rank,
        LOCAL_WORLD_SIZE=str(tasks_per_node(per_node)[node]),
        MASTER_ADDR=environment.get("MASTER_ADDR") or first_host(hosts),
        MASTER_PORT=environment.get("MASTER_PORT") or str(FIRST_SLURM_PORT + job % SLURM_PORTS),
    )


def first_host(hosts: str) -> str:
    """Return the first host of SLURM's list form: "node[07-09,12],login" is "node07"."""
    match = re.match(r"([^,\[]+)(?:\[([0-9]+)[^\]]*\]([^,\[]*))?", hosts)
    if match is None:
        raise InputError(f"SLURM_NODELIST={hosts!r}: expected a list such as node[01-04]")
    prefix, number, suffix = match.groups()
    return prefix + (number or "") + (suffix or "")


def tasks_per_node(text: str) -> list[int]:
    """Return the tasks of each node from SLURM's form: "2(x3),1" is [2, 2, 2, 1]."""
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if match is None:
            raise InputError(f"SLURM_TASKS_PER_NODE={text!r}: expected a form such as 2(x3),1")
        counts += [int(match.group(1))] * int(match.group(2) or 1)
    return counts
