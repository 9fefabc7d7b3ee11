"""Tables of GPUs that `nvidia-smi` and `rocm-smi` print: which number on its host a PCI address has."""

import re
from collections.abc import Iterator, Sequence

from .facts import Fact
from .identities import GpuPlace
from .lines import LogMessage
from .names import bus_number

ASKED = re.compile(r"\bssh +(?:-\S+ +)*(?:[\w.-]+@)?(?P<host>[A-Za-z][\w.-]*) .*(?:nvidia|rocm)-smi\b")
_BUS = r"(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)"
_ROWS = (
    re.compile(rf"^\| +(?P<device>\d{{1,2}}) +\S.*\| +{_BUS} +\S+ *\|"),  # nvidia-smi
    re.compile(rf"^GPU\[(?P<device>\d{{1,2}})\]\s*: PCI Bus: {_BUS}\s*$"),  # rocm-smi --showbus
    re.compile(rf"^(?P<device>\d{{1,2}}), {_BUS}(?:,|$)"),  # nvidia-smi --query-gpu=index,pci.bus_id --format=csv
)


def read(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield the GPUs of the tables of one file."""
    asked = ""
    for message in messages:
        if "-smi" in message.text:
            asked = on["host"] if (on := ASKED.search(message.text)) else ""
        if ":" in message.text and (row := next((row for form in _ROWS if (row := form.match(message.text))), None)):
            host = message.host or asked or (message.where.host)
            device, bus = int(row["device"]), bus_number(row["bus"])
            yield GpuPlace(device=device, bus_id=bus, host=host, where=message.where)
