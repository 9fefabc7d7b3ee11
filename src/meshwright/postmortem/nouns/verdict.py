"""The verdict: what kind of fault, whose, in which call; the lines that show it, what is missing, what to try next."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from .evidence import Evidence, most_telling
from .names import NO_FABRIC, NO_PROGRESS, OF_PROGRAM

Kind = Literal[
    "absent",
    "desync",
    "sizes",
    "circle",
    "stuck",
    "data",
    "host",
    "slow",
    "device",
    "device_memory",
    "host_memory",
    "network",
    "exception",
    "killed",
    "none",
]
MEANINGS: dict[str, str] = {
    "absent": "never came to the call that the others wait in",
    "desync": "makes another call than the others",
    "sizes": "makes the same call with another size or type",
    "circle": "groups or streams wait for each other",
    "stuck": "all are in the call and none gets out",
    "data": "loads or prepares data while the others wait",
    "host": "is stuck in a call of the host",
    "slow": "is late, not stuck",
    "device": "met a fault at its GPU or other accelerator",
    "device_memory": "ran out of GPU memory",
    "host_memory": "ran out of host memory",
    "network": "a link failed",
    "exception": "ended with an exception",
    "killed": "its process was killed",
    "none": "nothing shows a fault",
}
NOT_TOLD = "ranks wait; whether one has not come, and which, is not told"  # absent, of nobody
_SILENT = "no word of its own while the others wait: it never came to their call, or what it wrote is not here"
NEXT: dict[str, tuple[str, ...]] = {
    "absent": (
        "look at what the blamed rank did on its host: its own log, `py-spy dump --pid` of it, a"
        " checkpoint, an evaluation"
        " that only it runs",
        "look for a branch on the rank, or a loader that gives it fewer batches (DDP: Join; else drop_last)",
    ),
    "desync": (
        "compare the two lines of code: a branch on the rank, on its data or on a caught error leads there",
        "set TORCH_DISTRIBUTED_DEBUG=DETAIL for one run: it checks each call before it is made",
    ),
    "sizes": (
        "print the shapes that each rank brings to this call; pad them to one size, or gather the sizes first",
        "set TORCH_DISTRIBUTED_DEBUG=DETAIL for one run: it names the rank and both sizes",
    ),
    "circle": (
        "make every rank enter the groups in the same order, or wait for one call before the next of another stream",
        "set CUDA_DEVICE_MAX_CONNECTIONS=1, or leave the prefetch of the next layer out, to see whether it goes away",
    ),
    "stuck": (
        "look at the links and GPUs: NCCL_DEBUG=INFO, the kernel log (Xid), ECC counters, `ibstat`, `meshwright bench`",
        "leave nodes out one by one; run the same job on half of the nodes",
    ),
    "data": (
        "prepare the data before init_process_group, or on one rank first, behind a barrier with a longer timeout",
        "look at the loader: num_workers, a slow or dead file system, `py-spy dump --pid` of its workers",
    ),
    "host": (
        "look at the stack of the blamed rank: a lock, a file system, a socket, a subprocess; `py-spy dump --native`",
        "take the call out of the step, or give it a timeout of its own",
    ),
    "slow": ("look at the clock, the temperature and the neighbours of that GPU; `meshwright report` of its traces",),
    "device": (
        "drain the node and run its vendor's diagnostics (NVIDIA: `dcgmi diag -r 3`, AMD: `rvs`); reset or replace the"
        " device",
        "restart from the last checkpoint on another node",
    ),
    "device_memory": (
        "lower the batch or the sequence of that rank, recompute activations, or shard more;"
        " `meshwright plan` prices it",
        "end the process on out of memory: a rank that catches it and goes on leaves the others waiting",
    ),
    "host_memory": (
        "raise the memory limit of the job, lower num_workers and what they cache; watch the resident size over epochs",
        "give /dev/shm more room if it was shared memory",
    ),
    "network": (
        "test the link and both of its ends: `ib_write_bw`, `ibdiagnet`, `meshwright bench p2p`; cable, port, switch",
        "check NCCL_IB_GID_INDEX, NCCL_IB_HCA and the time-out (NCCL_IB_TIMEOUT)",
    ),
    "exception": ("mend what the exception says; the time-outs of the other ranks are its consequence",),
    "killed": (
        "ask who killed it: kernel log of that host (out of memory?), SLURM's or Kubernetes' events, a time limit",
    ),
    "none": (
        "collect the logs of all ranks and, with TORCH_FR_BUFFER_SIZE=2000 and"
        " TORCH_NCCL_DUMP_ON_TIMEOUT=1, their flight"
        " records",
        "while it hangs: `py-spy dump --pid` of every rank",
    ),
}
_NEXT_OF_NOBODY: dict[str, tuple[str, ...]] = {  # the same where nobody is blamed
    "absent": (
        "collect the log of every rank and, while it hangs, `py-spy dump --pid` of every process: who stands elsewhere"
        " keeps the others",
        NEXT["absent"][1].replace("on the rank", "on one rank"),
    ),
    "host": (
        "take the stack of every rank: a lock, a file system, a socket, a subprocess; `py-spy dump --native`",
        NEXT["host"][1],
    ),
    "slow": ("look at the clocks, the temperatures and the neighbours of all GPUs; `meshwright report` of the traces",),
    "device_memory": (NEXT["device_memory"][0].replace(" of that rank", ""), NEXT["device_memory"][1]),
    "killed": (NEXT["killed"][0].replace("that host", "its host"),),
}
_NEXT_OF_TRANSFERS = (  # of a circle
    "let every other rank of the ring receive before it sends, or post both at once (batch_isend_irecv)",
    "look at what each rank does before this call: who must send first has taken the other branch",
)
_BY_KERNEL = (  # of a GPU's fault that a program's kernels bring about
    "look at the program's kernels first (custom ones, an index or a pointer out of range): one step under"
    " CUDA_LAUNCH_BLOCKING=1 and `compute-sanitizer`, or AMD_SERIALIZE_KERNEL=3 and `rocgdb`",
    "if it comes back on this GPU alone, whatever runs there: drain the node and run its vendor's diagnostics (NVIDIA:"
    " `dcgmi diag -r 3`, AMD: `rvs`)",
)
_OF_KERNELS = (OF_PROGRAM, "Memory access fault by GPU", "retry page fault")
_NO_FABRIC = (
    "on its host: `systemctl status nvidia-fabricmanager` (it must run, in the version of the driver), `nvidia-smi -q`"
    " (Fabric: State)",
    "then restart from the last checkpoint",
)
_AT_LIMIT = (
    "ask for more time, or end and save before the limit: the scheduler can send a signal first (SLURM: `--signal`)",
    "if no step was done for long before it: see who was waited for, by the logs and stacks of that time",
)
_BY_MONITOR = (
    "its monitor ended it, and who waits makes no progress either: take `py-spy dump --pid` of every rank before the"
    " limit, or flight records (TORCH_FR_BUFFER_SIZE=2000)",
    "if the step or the save was only long: raise the monitor's limit (`rank_heartbeat_timeout`)",
)
_OVER_SOCKETS = (  # of a connection that was not made or broke, which no InfiniBand carried
    "let NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME name the interface on which the hosts reach each other: not lo,"
    " and not a bridge of one host (docker0, virbr0)",
    "try that address and port from the other host (`nc -zv HOST PORT`); a firewall must pass all ports between hosts",
)
_BY_SOCKETS = ("connecting to ", "a socket broke", " cannot be reached: ")
_OF_A_PORT = " Gb/s, those of its name on other hosts"
_LIMITS = ("time limit", "walltime", "RUNLIMIT")
MOST_PRINTED = 12


def next_steps(kind: Kind, operation: str, because: str, *, blames: bool) -> tuple[str, ...]:
    """Return what to try next: of transfers, ports, sockets, monitors and limits of time, or by the kind.

    With `blames` the verdict names a rank, at which somebody can look.
    """
    if kind == "circle" and operation in {"send", "recv"}:
        return _NEXT_OF_TRANSFERS
    if kind == "slow" and _OF_A_PORT in because:
        return NEXT["network"][:1]
    if kind == "network" and any(words in because for words in _BY_SOCKETS):
        return _OVER_SOCKETS
    if kind == "killed" and NO_PROGRESS in because:
        return _BY_MONITOR
    if kind == "killed" and any(limit in because for limit in _LIMITS):
        return _AT_LIMIT
    if kind == "device" and NO_FABRIC in because:
        return _NO_FABRIC
    if kind == "device" and any(words in because for words in _OF_KERNELS):
        return _BY_KERNEL
    return NEXT[kind] if blames else _NEXT_OF_NOBODY.get(kind, NEXT[kind])


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of the files on why a job hung. `rank` is None where nobody is to blame, or nobody can be named."""

    kind: Kind
    rank: int | None
    unknown: bool
    group: str | None = None
    collective: str | None = None
    seq: int | None = None
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()  # those to blame where they are several
    waiting: tuple[int, ...] = ()
    rule: str = ""
    because: str = ""
    read: int = 0  # files that said anything
    silent: bool = False  # who is to blame left no word; the others' waits alone name it

    @property
    def blamed(self) -> tuple[int, ...]:
        """The ranks to blame, one or several."""
        return self.ranks or (() if self.rank is None else (self.rank,))

    @property
    def faulty(self) -> bool:
        """Whether anything shows a fault."""
        return self.kind != "none"

    @property
    def meaning(self) -> str:
        """What the kind says of who is to blame, or of nobody."""
        if self.kind == "absent" and self.silent:
            return _SILENT
        return NOT_TOLD if self.kind == "absent" and self.unknown and not self.blamed else MEANINGS[self.kind]

    def headline(self) -> str:
        """Return the verdict in one sentence."""
        if not self.faulty:
            return "nothing in these files shows a fault; that is not a bill of health"
        if self.rank is not None:
            who = f"rank {self.rank}"
        elif self.ranks:
            who = f"ranks {shortened(self.ranks)}"
        elif self.unknown:
            who = "who is to blame cannot be told"
        else:
            who = "no rank is to blame"
        return f"{who}: {self.kind} ({self.meaning})"

    def __str__(self) -> str:
        """Print it for a person: who, in which call, why; the lines in order of time; what is missing; what next."""
        lines = [self.headline()]
        if self.because:
            lines.append(f"because: {self.because} [{self.rule}]")
        call = " ".join(
            part for part in (self.collective or "", f"#{self.seq}" if self.seq is not None else "") if part
        )
        if call:
            lines.append(f"in: {call}{f' of group {self.group}' if self.group else ''}")
        if self.waiting:
            lines.append(f"waiting: rank{'s' * (len(self.waiting) > 1)} {shortened(self.waiting)}")
        shown = most_telling(self.evidence, self.blamed, MOST_PRINTED)
        lines += [f"  {line.place}: {line.text}" for line in shown]
        if len(shown) < len(self.evidence):
            lines.append(f"  ... {len(self.evidence) - len(shown)} more lines; --json has them")
        lines += [f"missing: {what}" for what in self.missing]
        lines += [f"try: {what}" for what in self.next]
        return "\n".join(lines)


def shortened(ranks: Sequence[int]) -> str:
    """Return ranks as text, runs as 3-7."""
    found: list[list[int]] = []
    for rank in sorted(ranks):
        if found and rank == found[-1][-1] + 1:
            found[-1].append(rank)
        else:
            found.append([rank])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in found)
