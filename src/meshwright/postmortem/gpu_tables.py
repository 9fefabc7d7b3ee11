"""Tables of GPUs that `nvidia-smi` and `rocm-smi` print: which number on its host a PCI address has, whose each is.

And which of them a program is given.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from .facts import Fact
from .identities import GpuPlace, LocalProcess, VisibleGpus
from .lines import LogMessage
from .names import bus_number

ASKED = re.compile(r"\bssh +(?:-\S+ +)*(?:[\w.-]+@)?(?P<host>[A-Za-z][\w.-]*) .*(?:nvidia|rocm)-smi\b")
_BUS = r"(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)"
_ROWS = (
    re.compile(rf"^\| +(?P<device>\d{{1,2}}) +\S.*\| +{_BUS} +\S+ *\|"),  # nvidia-smi
    re.compile(rf"^GPU\[(?P<device>\d{{1,2}})\]\s*: PCI Bus: {_BUS}\s*$"),  # rocm-smi --showbus
    re.compile(rf"^(?P<device>\d{{1,2}}), {_BUS}(?:,|$)"),  # nvidia-smi --query-gpu=index,pci.bus_id --format=csv
)
_PROCESSES = (  # that compute, of `nvidia-smi` with and without columns of instances, and of `nvidia-smi pmon`
    re.compile(r"^\| +(?P<device>\d{1,2}) +(?:N/A|\d{1,2}) +(?:N/A|\d{1,2}) +(?P<pid>\d{2,8}) +C(?:\+G)? "),
    re.compile(r"^\| +(?P<device>\d{1,2}) +(?P<pid>\d{2,8}) +C(?:\+G)? "),
    re.compile(r"^ *(?P<device>\d{1,2}) +(?P<pid>\d{2,8}) +C(?:\+G)? +(?:\d+|-) "),
)
_VISIBLE = re.compile(
    r"\b(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES[\"']?(?: is set to |[ =:]{1,3})"
    r"[\"'\[(]{0,2}(?P<devices>\d{1,2}(?:, ?\d{1,2})+)"
)


def read(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield the GPUs of the tables of one file."""
    asked = ""
    users: dict[str, list[LocalProcess]] = defaultdict(list)
    for message in messages:
        if "VISIBLE_DEVICES" in message.text and (given := _VISIBLE.search(message.text)):
            yield VisibleGpus(devices=tuple(map(int, given["devices"].split(","))), where=message.where)
        if "-smi" in message.text:
            asked = on["host"] if (on := ASKED.search(message.text)) else ""
        if ":" in message.text and (row := _first(_ROWS, message.text)):
            host = message.host or asked or (message.where.host)
            device, bus = int(row["device"]), bus_number(row["bus"])
            yield GpuPlace(device=device, bus_id=bus, host=host, where=message.where)
        elif " C" in message.text and (
            user := next((u for form in _PROCESSES if (u := form.match(message.text))), None)
        ):
            host, device, pid = message.host or asked or message.where.host, int(user["device"]), int(user["pid"])
            users[host].append(LocalProcess(pid=pid, number=device, host=host, is_gpu=True, where=message.where))
    for own in users.values():
        if len({user.pid for user in own}) == len({user.number for user in own}) == len(own):
            yield from own


def _first(forms: Sequence[re.Pattern[str]], text: str) -> re.Match[str] | None:
    """Return the match of the first of several forms that a line has, None for none."""
    return next((found for form in forms if (found := form.match(text))), None)
