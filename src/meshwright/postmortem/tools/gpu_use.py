"""How busy the GPUs of a host are by repeated tables of `nvidia-smi` and `rocm-smi`, and the rank whose GPU is idle.

A collective of NCCL is a kernel that waits: it keeps its GPU busy at little power. A GPU that runs nothing in one table
after the other while those of all other ranks do that is that of a rank that has not launched the call.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import msgspec
from msgspec.structs import replace

from ...units import shortened
from ..nouns.facts import Fact, Succeeded, TrainingEnded, of
from ..nouns.identities import GpuUse, LocalProcess, VisibleGpus
from ..nouns.paces import Stepped
from ..nouns.position import HangPosition
from ..nouns.where import Where
from ..nouns.world import identities_of, ranks_of_job, short_host, world_of
from ..ranks.devices import NamedDevice, rank_of_device
from ..text.lines import LogMessage
from .gpu_tables import PROCESSES, ROWS, first_of, host_of_smi

_USED = re.compile(r"^\|.*MiB *\| +(?P<percent>\d{1,3})% +\S")  # the second line of a GPU
_POWER = re.compile(r"(?P<watts>\d+)W */ *(?P<cap>\d+)W")
_OF_ROCM = re.compile(r"^GPU\[(?P<device>\d{1,2})\]\s*: GPU use \(%\): (?P<percent>\d{1,3})\s*$")
_QUERIED = re.compile(r"^(?:[\w.]+(?: \[[%\w]+\])?, ){1,40}[\w.]+(?: \[[%\w]+\])?$")  # the head of a query's table
_UNITS = re.compile(r" \[[%\w]+\]")
_NUMBER = re.compile(r"(?P<number>\d{1,6}(?:\.\d+)?)(?: (?:%|W))?")
_IDLE, _BUSY = 5, 95  # percent
_WAITING = 0.5  # of the power that a GPU may draw: one that computes draws more
_TABLES = 2  # that show it
_OTHERS = 2  # ranks that wait


class _Table(msgspec.Struct):
    """The GPUs of one table of a host while its lines are read: the line of each and its use, and their processes."""

    uses: dict[int, GpuUse] = {}
    pids: dict[int, set[int]] = {}


def read(messages: Sequence[LogMessage]) -> Iterator[GpuUse]:
    """Yield the use of the GPUs in all tables of one file."""
    tables: dict[str, list[_Table]] = defaultdict(list)
    asked, device, columns = "", None, list[str]()
    for message in messages:
        text = message.text
        if "-smi" in text:
            asked, columns = host_of_smi(text), []
        if "utilization.gpu" in text and _QUERIED.match(text):
            columns = _UNITS.sub("", text).split(", ")
            continue
        host = message.host or asked or message.where.host
        if columns and text.count(", ") == len(columns) - 1:
            _add(tables[host], _of_query(dict(zip(columns, text.split(", "), strict=True)), host, message.where))
        elif "%" in text and (use := _USED.match(text)) and device is not None:
            power = _POWER.search(text)
            both = {**use.groupdict(), **(power.groupdict() if power else {})}
            _add(tables[host], _use(device, both, host, message.where))
            device = None
        elif "GPU use" in text and (use := _OF_ROCM.match(text)):
            _add(tables[host], _use(int(use["device"]), use.groupdict(), host, message.where))
        elif ":" in text and (row := first_of(ROWS, text)):
            device = int(row["device"])
        elif " C" in text and tables[host] and (user := first_of(PROCESSES, text)):
            tables[host][-1].pids.setdefault(int(user["device"]), set()).add(int(user["pid"]))
    for table in chain.from_iterable(tables.values()):
        for at, one in table.uses.items():
            yield replace(one, pids=tuple(sorted(table.pids.get(at, ()))))


def _add(tables: list[_Table], use: GpuUse | None) -> None:
    """Add the use of a GPU to the last table, or to a new one where that has the GPU already."""
    if use is None:
        return
    if not tables or use.device in tables[-1].uses:
        tables.append(_Table(uses={}, pids={}))
    tables[-1].uses[use.device] = use


def _use(device: int, told: Mapping[str, str | None], host: str, where: Where) -> GpuUse:
    percent, watts, cap = int(told["percent"] or 0), told.get("watts"), told.get("cap")
    return GpuUse(
        device=device,
        percent=percent,
        watts=float(watts) if watts else None,
        power_share=float(watts) / float(cap) if watts and cap and float(cap) else None,
        host=host,
        where=where,
    )


def _of_query(row: Mapping[str, str], host: str, where: Where) -> GpuUse | None:
    """Return the use that a row of `nvidia-smi --query-gpu=index,utilization.gpu,... --format=csv` tells."""
    keys = {"device": "index", "percent": "utilization.gpu", "watts": "power.draw", "cap": "power.limit"}
    cells = {key: _NUMBER.fullmatch(row.get(name, "").strip()) for key, name in keys.items()}
    told = {key: cell["number"] if cell else None for key, cell in cells.items()}
    device, percent = told["device"], told["percent"]
    if device is None or percent is None or not device.isdecimal() or not percent.isdecimal():
        return None
    return _use(int(device), told, host, where)


def by_idle_gpus(facts: list[Fact]) -> HangPosition | None:
    """Return the few ranks whose GPU is idle in all tables while those of the others are busy waiting; None for none.

    Every rank's GPU that is here must be one of the two. Nobody is named where ranks of the job have none here.
    """
    uses = _by_gpu(facts)
    own = {rank: told for told in uses if (rank := _rank_of(told, uses, facts)) is not None}
    idle = sorted(rank for rank, told in own.items() if all(one.percent <= _IDLE for one in told))
    waits = sorted(rank for rank, told in own.items() if all(map(_is_waiting, told)))
    if not idle or len(idle) >= len(waits) or len(waits) < _OTHERS or len(idle) + len(waits) < len(own):
        return None
    if any(isinstance(fact, TrainingEnded | Succeeded) for fact in facts) or _steps_on(
        facts, [one for told in uses for one in told]
    ):
        return None
    certain = set(own) >= set(range(ranks_of_job(facts)))
    told = "; ".join(f"the GPU of rank {rank} runs nothing ({_told(own[rank][-1])})" for rank in idle)
    tables = min(len(own[rank]) for rank in idle)
    return HangPosition(
        kind="absent",
        blamed=tuple(idle) if certain else (),
        waiting=tuple(waits),
        why=f"{told} in {tables} tables one after the other; those of ranks {shortened(waits)} are busy, as a"
        " collective that waits keeps them",
        certain=certain,
        evidence=tuple(_shown(one, rank) for rank in sorted(own) for one in own[rank][0 if rank in idle else -1 :]),
        missing=() if certain else ("tables of the GPUs of all other hosts, taken twice",),
    )


def _by_gpu(facts: list[Fact]) -> list[list[GpuUse]]:
    """Return the uses of each GPU of which there are several tables; files that name no host are told apart."""
    uses: dict[object, list[GpuUse]] = defaultdict(list)
    for one in of(facts, GpuUse):
        uses[short_host(one.host), one.device, one.pids or (one.host or one.where.file)].append(one)
    return [told for told in uses.values() if len(told) >= _TABLES]


def _is_waiting(use: GpuUse) -> bool:
    return use.percent >= _BUSY and (use.power_share is None or use.power_share <= _WAITING)


def _told(use: GpuUse) -> str:
    return f"{use.percent}%{f', {use.watts:.0f} W' if use.watts is not None else ''}"


def _shown(use: GpuUse, rank: int) -> Where:
    process = f" (process {use.pids[0]})" if len(use.pids) == 1 else ""
    return replace(use.where.by(rank), text=f"GPU {use.device} of rank {rank}{process}: {_told(use)}")


def _rank_of(told: Sequence[GpuUse], uses: Sequence[Sequence[GpuUse]], facts: list[Fact]) -> int | None:
    """Return the one rank of a GPU: by the processes on it, else by its number among the GPUs that the job is given.

    That the processes of a table are ranks at all is told by something else.
    """
    one, world = told[0], world_of(facts)
    if one.pids:
        rows = {row.where for row in of(facts, LocalProcess) if row.is_gpu and world is None}
        own = [i for i in identities_of(facts) if i.pid in one.pids and i.where not in rows]
        ranks = {i.rank for i in own if not i.host or not one.host or short_host(i.host) == short_host(one.host)}
        return ranks.pop() if len(ranks) == 1 else None
    given = {visible.devices for visible in of(facts, VisibleGpus)}
    devices = given.pop() if len(given) == 1 else tuple(range(len(uses)))
    if one.device not in devices:
        return None
    number = devices.index(one.device)
    is_one_host = len(devices) == world and {(use[0].host, use[0].device) for use in uses} >= {
        (one.host, device) for device in devices
    }
    device = NamedDevice(host=one.host, number=number, is_given=True, where=one.where)
    return number if is_one_host else rank_of_device(device, facts)


def _steps_on(facts: list[Fact], uses: Sequence[GpuUse]) -> bool:
    """Whether a log has steps after the first table, by its clock."""
    taken_s = [at_s for one in uses if (at_s := one.where.above_s) is not None]
    return bool(taken_s) and any(log.times_s[-1] > min(taken_s) for log in of(facts, Stepped))
