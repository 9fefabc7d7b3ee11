"""GPUs by their PCI addresses: tables of `nvidia-smi` and its kin with their numbers on a host, whose each is.

And which of them a program is given, and which one a rank says that it has.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from ..nouns.facts import Fact
from ..nouns.identities import BusyGpus, GpuPlace, LocalProcess, RankIdentity, VisibleGpus
from ..nouns.names import bus_number
from ..nouns.where import Where
from ..surroundings.placements import HOST
from ..text.lines import LogMessage

_ASKED = re.compile(  # by a command that goes there; at the prompt of a shell there
    r"\b(?:ssh +(?:-\S+ +)*(?:[\w.-]+@)?|kubectl (?:-\S+ +\S+ +)*exec +(?:-\S+ +)*(?:pod/)?)"
    r"(?P<host>[A-Za-z][\w.-]*) .*(?:(?:nvidia|rocm|hl)-smi|dcgmi)\b"
    r"|^\[?(?:[\w.-]+@(?P<prompt>[A-Za-z][\w.-]*)|(?P<bare>[A-Za-z][\w-]*\d[\w.-]*))[^#$]{0,80}[#$] +"
    r"(?:(?:nvidia|rocm|hl)-smi|dcgmi)\b"
)
BUS = r"(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)"
ROWS = (
    re.compile(rf"^\| +(?P<device>\d{{1,2}}) +\S.*\| +{BUS} +\S+ *\|"),  # nvidia-smi
    re.compile(rf"^GPU\[(?P<device>\d{{1,2}})\]\s*: PCI Bus: {BUS}\s*$"),  # rocm-smi --showbus
    re.compile(rf"^(?P<device>\d{{1,2}}), {BUS}(?:,|$)"),  # nvidia-smi --query-gpu=index,pci.bus_id --format=csv
)
PROCESSES = (  # that compute, of `nvidia-smi` with and without columns of instances, and of `nvidia-smi pmon`
    re.compile(r"^\| +(?P<device>\d{1,2}) +(?:N/A|\d{1,2}) +(?:N/A|\d{1,2}) +(?P<pid>\d{2,8}) +C(?:\+G)? "),
    re.compile(r"^\| +(?P<device>\d{1,2}) +(?P<pid>\d{2,8}) +C(?:\+G)? "),
    re.compile(r"^ *(?P<device>\d{1,2}) +(?P<pid>\d{2,8}) +C(?:\+G)? +(?:\d+|-) "),
)
_ONLY_BUS = re.compile(BUS)
_USED = re.compile(r"^\|.*MiB *\| +(?P<percent>\d{1,3})% +\S")
_BUSY = 95  # percent
_VISIBLE = re.compile(
    r"\b(?:(?:CUDA|HIP|ROCR|ASCEND(?:_RT)?)_VISIBLE_DEVICES|HABANA_VISIBLE_MODULES)[\"']?(?: is set to |[ =:]{1,3})"
    r"[\"'\[(]{0,2}(?P<devices>\d{1,2}(?:, ?\d{1,2})+)"
)
_LABEL = re.compile(rf"^(?:\[[a-z]\w*\] ?)?(?P<host>{HOST}): ")  # of a launcher
# what a rank prints of its own GPU
_ADDRESS = re.compile(
    r"\b(?:pci(?:e)?[ _-]?(?:bus|address)?(?:[ _-]?id)?|bus[ _-]?id|bdf)[\"']?[ =:]{1,3}[\"']?"
    r"(?P<bus>(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])(?!\w)",
    re.IGNORECASE,
)
_BEHIND_MODEL = re.compile(  # of a GPU, in front
    r"\b(?:NVIDIA|AMD|Instinct|GPU|HBM\d\w*|[HABL]\d{2,3}) (?:at|@) "
    r"(?P<bus>(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])(?!\w)"
)
_ON = re.compile(r"\b(?:host(?:name)?|node)[ =:]{1,3}(?P<host>" + HOST + r")(?![\w/])")
_OF_TORCH = re.compile(
    r"\bpci_bus_id=(?P<bus>\d{1,3}), pci_device_id=(?P<slot>\d{1,2}), pci_domain_id=(?P<domain>\d{1,5})"
)
_HAS_ADDRESS = re.compile(r"pci|bus|bdf|[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)  # a quick look
_OF_A_GPU = re.compile(
    r"\b(?:gpu|cuda|hip|xpu|rocm|hpu|device|NVIDIA|AMD|Instinct|Intel|Gaudi)|CudaDevice", re.IGNORECASE
)
_OF_OTHERS = re.compile(r"\b(?:peer|remote|nic|hca|mlx\d\w*|rdma\w*|nvswitch|kernel|amdgpu|NVRM)\b", re.IGNORECASE)


def read(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield the GPUs of the tables of one file, and of the ranks that speak there."""
    yield from _of_tables(messages)
    yield from _of_modules(messages)
    yield from _said_by_ranks(messages)


def _of_modules(messages: Sequence[LogMessage]) -> Iterator[GpuPlace]:
    """Yield the module of each Gaudi by `hl-smi -Q index,module_id`: programs count modules, and the kernel indices."""
    columns: list[str] = []
    host = ""
    for message in messages:
        host = host_of_smi(message.text) or host if "hl-smi" in message.text else host
        cells = [cell.strip() for cell in message.text.split(",")]
        if "module_id" in cells:
            columns = cells
        elif columns and len(cells) == len(columns):
            row = dict(zip(columns, cells, strict=True))
            names = [f"accel{row['index']}"] if "index" in row else []
            names += [bus_number(bus[0])] if (bus := _ONLY_BUS.fullmatch(row.get("bus_id", ""))) else []
            for name in names if row["module_id"].isdecimal() else ():
                yield GpuPlace(
                    device=int(row["module_id"]), bus_id=name, host=message.host or host, where=message.where
                )
        else:
            columns = []


def host_of_smi(text: str) -> str:
    """Return the host or pod on which a command asked for its GPUs, "" where a line tells none."""
    asked = _ASKED.search(text)
    return next(filter(None, asked.groups())) if asked else ""


def _of_tables(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    asked, of_gaudis = "", False
    users: dict[str, dict[tuple[int, int], LocalProcess]] = defaultdict(dict)
    used: dict[str, list[tuple[int, Where]]] = defaultdict(list)  # percent of the time, in the last table
    for message in messages:
        if "_VISIBLE_" in message.text and (given := _VISIBLE.search(message.text)):
            label = _LABEL.match(message.where.text)
            host = message.host or (label["host"] if label else "")
            devices = tuple(map(int, given["devices"].split(",")))
            yield VisibleGpus(devices=devices, host=host, where=message.where)
        if "%" in message.text and (use := _USED.search(message.text)):
            used[message.host or asked or message.where.host].append((int(use["percent"]), message.where))
        if "NVIDIA-SMI" in message.text:
            used.pop(message.host or asked or message.where.host, None)
        if "-smi" in message.text or "module_id" in message.text:
            asked = host_of_smi(message.text) or (asked if "module_id" in message.text else "")
            of_gaudis = "hl-smi" in message.text or "module_id" in message.text  # programs do not count its indices
        if ":" in message.text and not of_gaudis and (row := first_of(ROWS, message.text)):
            host = message.host or asked or (message.where.host)
            device, bus = int(row["device"]), bus_number(row["bus"])
            yield GpuPlace(device=device, bus_id=bus, host=host, where=message.where)
        elif " C" in message.text and (user := first_of(PROCESSES, message.text)):
            host, device, pid = message.host or asked or message.where.host, int(user["device"]), int(user["pid"])
            own = LocalProcess(pid=pid, number=device, host=host, is_gpu=True, counts="all", where=message.where)
            users[host].setdefault((pid, device), own)  # of the first of several tables
    for host, told in used.items():
        busy = sum(percent >= _BUSY for percent, _ in told)
        yield BusyGpus(busy=busy, gpus=len(told), host=host, where=told[-1][1])
    for table in users.values():
        if len({pid for pid, _ in table}) == len({number for _, number in table}) == len(table):
            yield from table.values()


def first_of(forms: Sequence[re.Pattern[str]], text: str) -> re.Match[str] | None:
    """Return the match of the first of several forms that a line has, None for none."""
    return next((found for form in forms if (found := form.match(text))), None)


def _said_by_ranks(messages: Sequence[LogMessage]) -> Iterator[RankIdentity]:
    """Yield the GPU of each rank that says one alone: a process that sees all of its host may list them."""
    told: dict[int, dict[str, LogMessage]] = defaultdict(dict)
    for message in messages:
        if message.rank is None or not _HAS_ADDRESS.search(message.text) or _OF_OTHERS.search(message.text):
            continue
        for bus in _addresses(message.text) if _OF_A_GPU.search(message.text) else ():
            told[message.rank].setdefault(bus, message)
    for rank, buses in told.items():
        if len(buses) == 1:
            ((bus, message),) = buses.items()
            on = _ON.search(message.text)
            host = message.host or (on["host"] if on else "")
            yield RankIdentity(rank=rank, host=host, bus_id=bus, where=message.where.by(rank))


def _addresses(text: str) -> set[str]:
    """Return the PCI addresses that a line names, as NCCL prints them; torch prints them in decimal numbers."""
    own = {bus_number(found["bus"]) for form in (_ADDRESS, _BEHIND_MODEL) for found in form.finditer(text)}
    of_torch = _OF_TORCH.finditer(text)
    return own | {f"{int(t['domain']) << 20 | int(t['bus']) << 12 | int(t['slot']) << 4:x}" for t in of_torch}
