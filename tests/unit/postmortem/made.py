"""Lines and flight records of jobs that hung, made for the tests: what c10d, torchrun, NCCL and others print."""

from pathlib import Path

from meshwright.postmortem.inputs import examine_files
from meshwright.postmortem.nouns.verdict import Verdict
from testkit.hanging_jobs import ALL_OF_FOUR, entry, record

WORLD = "PG ID 0 PG GUID 0(default_pg)"
LINE = "-" * 60


def timed_out(rank, seq, operation="ALLREDUCE", numel=10, out=None, *, place=None, prefix=True):
    """What a rank's watchdog prints; `place` is its rank inside the group."""
    head = f"[rank{rank}]:" if prefix else ""
    return (
        f"{head}[E1120 10:20:00.100000000 ProcessGroupNCCL.cpp:632] [Rank {rank if place is None else place}] Watchdog"
        f" caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={operation}, NumelIn={numel},"
        f" NumelOut={numel if out is None else out}, Timeout(ms)=600000) ran for 600040 milliseconds before timing out."
    )


def failed_at(rank, group, seq, enqueued, completed, *, place=None, prefix=True):
    """What a rank's watchdog prints of the group's counts."""
    head = f"[rank{rank}]:" if prefix else ""
    return (
        f"{head}[E1120 10:20:00.200000000 ProcessGroupNCCL.cpp:2271] [{group} Rank {rank if place is None else place}] "
        f" failure detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {enqueued},"
        f" last completed work: {completed}"
    )


def signalled(rank, group, enqueued, completed, *, by=1):
    """What a rank prints when another one's time-out asks it for its record."""
    return (
        f"[rank{rank}]:[E1120 10:20:00.500000000 ProcessGroupNCCL.cpp:1746] [{group} Rank {rank}]"
        f" Received a dump signal"
        f" due to a collective timeout from  rank {by} and we will try our best to dump the debug info. Last enqueued"
        f" NCCL work: {enqueued}, last completed NCCL work: {completed}."
    )


def stood_still(rank, place=None):
    """What the heartbeat monitor prints of a watchdog that stands still."""
    group = f"[PG 0 Rank {rank if place is None else place}]"
    return (
        f"[rank{rank}]:[F1120 10:28:00.1 ProcessGroupNCCL.cpp:1224] {group} {group} ProcessGroupNCCL's watchdog got"
        " stuck for 600 seconds without making progress in monitoring enqueued collectives."
    )


def out_of_memory(rank, wanted="336.00 MiB"):
    """What torch raises on a full GPU."""
    return (
        f"[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {wanted}. GPU {rank} has a total"
        " capacity of 79.15 GiB of which 141.25 MiB is free."
    )


def raised(rank, error):
    """A traceback of one rank that ends in an error."""
    lines = ["Traceback (most recent call last):", '  File "train.py", line 4, in <module>', "    step()", error]
    return [f"[rank{rank}]: {line}" for line in lines]


def summary(rank, code, told="Signal received"):
    """The summary that torchrun prints, with this rank's failure the first."""
    return [
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "=" * 60,
        "train.py FAILED",
        LINE,
        "Failures:",
        "  <NO_OTHER_FAILURES>",
        LINE,
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2026-11-20_10:20:58",
        "  host      : node-a",
        f"  rank      : {rank} (local_rank: {rank})",
        f"  exitcode  : {code} (pid: {5000 + rank})",
        "  error_file: <N/A>",
        f"  traceback : {told}",
        "=" * 60,
    ]


def joined(rank, ranks, bus="44000", host="node-a", pid=None):
    """NCCL's line when a rank has joined a communicator."""
    return (
        f"{host}:{pid or 5000 + rank}:60 [{rank}] NCCL INFO comm 0x5{rank} rank {rank} nranks {ranks} cudaDev {rank}"
        f" nvmlDev {rank} busId {bus} commId 0x5a - Init COMPLETE"
    )


def called(rank, count, operation="AllReduce", numel=5, datatype=7):
    """NCCL's line of one call, with NCCL_DEBUG_SUBSYS=COLL; the count is hexadecimal."""
    return (
        f"host-a:{45006 + rank}:{45006 + rank} [{rank}] NCCL INFO {operation}: opCount {count} sendbuff 0x7f5dd32b2100"
        f" recvbuff 0x7f5dd32b2100 count {numel} datatype {datatype} op 0 root 0"
        f" comm 0x55bef0{rank}01370 [nranks=4] stream 0x55"
    )


DONE = [entry(i, i + 1, "all_reduce", 1000, 1000, "completed") for i in range(4)]


def groups(**members):
    """The pg_config of a record: name of each group and its ranks."""
    told = {
        name.removeprefix("g"): {"name": name.removeprefix("g"), "desc": "sub", "ranks": str(list(ranks))}
        for name, ranks in members.items()
    }
    return {**ALL_OF_FOUR, **told}


def records(entries_of_rank, config=None):
    """The files of several ranks' records."""
    return {f"nccl_trace_rank_{rank}": record(entries, config) for rank, entries in entries_of_rank.items()}


def judge(folder: Path, files) -> Verdict:
    """Write files (a list of lines is train.log) and return the verdict on their folder."""
    if isinstance(files, list):
        files = {"train.log": files}
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, list):
            content = "".join(f"{line}\n" for line in content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return examine_files([folder])


def answer(kind, rank=None, seq=None, *, unknown=False, ranks=()):
    """What a verdict must say; `seq` None where the files do not show it."""
    return {"kind": kind, "rank": rank, "seq": seq, "unknown": unknown, "ranks": tuple(ranks)}


def told(verdict: Verdict, wanted):
    """The parts of a verdict that an answer has."""
    return {key: getattr(verdict, key) for key in wanted}
