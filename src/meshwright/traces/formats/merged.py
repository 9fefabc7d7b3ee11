"""Several ranks in one file, as people's own scripts merge them: which processes belong together, and their ranks.

A process is told by the first of these that says anything:

- its number, name or labels: "Rank 0 python", "[rank0]", "rank1-17"; "[TP00-DP01] 5" tells ranks apart, and leaves
  their order to the names;
- `rank` in the arguments of its events, or metadata `global_rank`;
- its collectives: `Rank` is its place in `Process Group Ranks`.

A device without a name belongs to the process that launched its kernels: correlations agree, and no kernel begins
before its launch. Where nothing names ranks that mark the same steps, they follow from a list `distributedInfo`, the
process ids (0, 1, … or an offset), `process_sort_index` or the order of devices, and the page says so; else the file is
refused.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...errors import InputError
from ...files import natural
from ...quantities import MOST_RANKS
from ...units import counted
from ..names import collective, number, synchronizes
from .collector import Process
from .events import Args, TraceHead
from .launchers import launchers

Pid = int | str
Unit = tuple[int | None, list[Process]]  # a rank, None where it is not told, and its processes
_RANK = re.compile(  # a rank in the job, or one among fewer
    r"(?<![a-z])(?P<whose>global|world|local|node|[tdpecs]p)?[\s_-]*rank[\s:=_#-]*(?P<number>\d{1,6})", re.IGNORECASE
)
_OF_ALL = frozenset({"global", "world"})
_TAG = re.compile(r"\[[^\]]*\d[^\]]*\]")
_LEAST_OFFSET = 1000  # between the process ids of two ranks
_ADVICE = "give each rank its own file, or name the processes 'rank 0', 'rank 1', …"


def lasts(process: Process) -> bool:
    """Return whether anything in a process takes time."""
    return bool(process.device.starts or process.operators.starts)


def named_rank(pid: Pid, process: Process) -> int | str | None:
    """Return the rank that the names of a process say, or a text that tells it from others."""
    for text in (str(pid), process.label):
        found = list(_RANK.finditer(text))
        ranks = {int(match["number"]) for match in found if (match["whose"] or "").lower() in _OF_ALL}
        ranks = ranks or {int(match["number"]) for match in found if not match["whose"]}
        if len(ranks) == 1:
            return ranks.pop()
        if found:
            return text[: found[-1].end()].strip().lower()
        if tag := _TAG.match(text):
            return tag[0]
    return None


def merged_units(where: str, processes: Mapping[Pid, Process], head: TraceHead) -> tuple[list[Unit], str]:
    """Return the processes of each of several ranks in a file, and what a reader must know; none if it has one rank.

    InputError where there are several ranks and nothing says which they are.
    """
    lasting = [pid for pid, process in processes.items() if lasts(process)]
    is_shared = _share_steps([process for process in processes.values() if process.marks])
    if not lasting or (len(lasting) < 2 and not is_shared):
        return [], ""
    told = _told(processes)
    if len({told[pid] for pid in lasting} - {None}) < 2 and not is_shared:
        return [], ""
    by_key: dict[int | str, list[Pid]] = {}
    untold: list[list[Pid]] = []
    for pids in _clusters(where, processes, told):
        keys = {key for pid in pids if (key := told[pid]) is not None}
        if len(keys) == 1:
            by_key.setdefault(keys.pop(), []).extend(pids)
        elif any(processes[pid].marks for pid in pids):
            untold.append(pids)
    by_key = {key: pids for key, pids in by_key.items() if any(lasts(processes[pid]) for pid in pids)}
    _distinct_steps(where, processes, by_key)
    texts = sorted((key for key in by_key if isinstance(key, str)), key=natural)
    if by_key and not untold and len(texts) in (0, len(by_key)):
        note = "the names of the processes tell ranks apart, which are numbered in the order of these names"
        ranked = [(key if isinstance(key, int) else texts.index(key), pids) for key, pids in by_key.items()]
        return _of_processes(processes, ranked), note if texts else ""
    if by_key:
        raise InputError(f"{where}: several ranks in one file, of which only some are named; {_ADVICE}")
    if len(untold) < 2:
        return [], ""
    numbers, how = _numbers(where, processes, head, untold)
    note = f"the processes of this file are taken as ranks {how}"
    return _of_processes(processes, list(zip(numbers, untold, strict=True))), note


def _of_processes(processes: Mapping[Pid, Process], ranked: Sequence[tuple[int, Sequence[Pid]]]) -> list[Unit]:
    return [(rank, [processes[pid] for pid in pids]) for rank, pids in sorted(ranked, key=lambda pair: pair[0])]


def _told(processes: Mapping[Pid, Process]) -> dict[Pid, int | str | None]:
    """Return the rank of each process as its names, else its events, else its collectives tell it.

    With one host there is one rank, whatever the devices say of it.
    """
    hosts = sum(bool(process.marks or process.launches.starts) for process in processes.values())
    told: dict[Pid, int | str | None] = {}
    for pid, process in processes.items():
        told[pid] = named_rank(pid, process)
        if hosts == 1:
            continue
        if told[pid] is None and len(process.ranks) == 1:
            told[pid] = next((rank for rank in process.ranks if 0 <= rank < MOST_RANKS), None)
        if told[pid] is None:
            every = [*process.told.values(), *(record.args for record in process.records if record.args is not None)]
            told[pid] = _rank_of_collectives(every)
    return told


def _rank_of_collectives(every: Iterable[Args]) -> int | None:
    """Return the one rank that all collectives of a process agree on.

    `Rank` of a send, a broadcast or a reduce is that of the other side or the root: only what waits for all is read.
    """
    said = {
        (str(args.rank_in_group), str(args.group_ranks))
        for args in every
        if args.rank_in_group is not None and args.collective and synchronizes(collective(str(args.collective)))
    }
    agreed: set[int] | None = None
    for place, members in said:
        if not place.isdecimal() or not re.fullmatch(r"\[\d{1,9}(?:, *\d{1,9})*\]", members):
            continue  # a long list is cut short by the profiler
        ranks, at = [int(one) for one in members.strip("[]").split(",")], int(place)
        possible = {ranks[at]} if at < len(ranks) else {at} & set(ranks)
        agreed = possible if agreed is None else agreed & possible
    return agreed.pop() if agreed and len(agreed) == 1 else None


def _clusters(where: str, processes: Mapping[Pid, Process], told: Mapping[Pid, int | str | None]) -> list[list[Pid]]:
    """Return the processes in groups: a host with the devices whose kernels it launched, others alone."""
    hosts = [pid for pid, process in processes.items() if process.launches.starts]
    devices = [pid for pid, process in processes.items() if process.device.starts and pid not in hosts]
    paired = {told[pid] for pid in hosts} & {told[pid] for pid in devices} - {None}
    free_hosts, free = ([pid for pid in pids if told[pid] not in paired] for pids in (hosts, devices))
    links = launchers({pid: processes[pid] for pid in free_hosts}, {pid: processes[pid] for pid in free})
    lone = [pid for pid in free_hosts if pid not in links.values() and not processes[pid].device.starts]
    if free and (marking := [pid for pid in lone if processes[pid].marks]):
        raise InputError(
            f"{where}: several ranks in one file, and nothing says which device ran what process {marking[0]} "
            f"launched; {_ADVICE}"
        )
    return [[pid, *(d for d in free if links.get(d) == pid)] for pid in processes if pid not in links]


def _share_steps(processes: Sequence[Process]) -> bool:
    """Return whether two processes mark the same step."""
    steps = [{mark[2] for mark in process.marks} for process in processes]
    return any(a & b for a, b in itertools.combinations(steps, 2))


def _distinct_steps(where: str, processes: Mapping[Pid, Process], by_key: Mapping[int | str, Sequence[Pid]]) -> None:
    for key, pids in by_key.items():
        marking = [processes[pid] for pid in pids if processes[pid].marks]
        if _share_steps(marking):
            name = f"rank {key}" if isinstance(key, int) else key
            raise InputError(
                f"{where}: {counted(len(marking), 'process')} that say they are {name} mark the same steps: several "
                f"ranks in one file; {_ADVICE}"
            )


def _numbers(
    where: str, processes: Mapping[Pid, Process], head: TraceHead, clusters: Sequence[Sequence[Pid]]
) -> tuple[list[int], str]:
    """Return ranks for clusters that mark the same steps, and how they were told; InputError where nothing tells."""
    members = [[processes[pid] for pid in pids] for pids in clusters]
    wanted = {*range(len(clusters))}
    listed, offsets = _listed(head.distributed), _offsets(clusters, processes)
    pids = [pid for found in clusters for pid in found if processes[pid].marks]
    indices = [process.sort_index for own in members for process in own if process.marks]
    devices = [{device for process in own for device in process.devices if device >= 0} for own in members]
    if len(listed) == len(clusters):
        return listed, "in the order of the file, as its distributedInfo lists them"
    if len(pids) == len(clusters) and wanted == set(pids):
        return [pid for pid in pids if isinstance(pid, int)], "by their process ids"
    if len(indices) == len(clusters) and wanted == set(indices):
        return [index for index in indices if index is not None], "by process_sort_index"
    if offsets:
        return offsets, "by the offsets of their process ids"
    if _is_one_each(devices):
        order = sorted(min(one) for one in devices)
        return [order.index(min(one)) for one in devices], "in the order of their devices"
    raise InputError(
        f"{where}: {counted(len(clusters), 'process')} with the same steps, and nothing says which rank each is: "
        f"several ranks in one file; {_ADVICE}"
    )


def _is_one_each(devices: Sequence[set[int]]) -> bool:
    return all(len(one) == 1 for one in devices) and len(set.union(set(), *devices)) == len(devices)


def _listed(distributed: Any) -> list[int]:
    """Return the ranks of a list of distributedInfo; none where it is no such list or they are not distinct."""
    if not isinstance(distributed, list):
        return []
    ranks = [one.get("rank") for one in distributed if isinstance(one, dict)]
    found = [int(rank) for rank in ranks if rank is not None and 0 <= number(rank) < MOST_RANKS]
    return found if len(set(found)) == len(distributed) else []


def _offsets(clusters: Sequence[Sequence[Pid]], processes: Mapping[Pid, Process]) -> list[int]:
    """Return the rank of each cluster where ids of processes of devices are the device and a multiple of one offset."""
    bases: list[int] = []
    for pids in clusters:
        found = {
            pid - device
            for pid in pids
            if isinstance(pid, int)
            for device in [*set(processes[pid].devices)]
            if device >= 0 and not processes[pid].launches.starts
        }
        if len(found) != 1:
            return []
        bases.append(found.pop())
    step = min((base for base in bases if base), default=0)
    if step < _LEAST_OFFSET or len(set(bases)) < len(bases) or any(base % step for base in bases):
        return []
    ranks = [base // step for base in bases]
    return [rank - 1 for rank in ranks] if min(ranks) == 1 else ranks  # counted from 1: there is no rank 0
