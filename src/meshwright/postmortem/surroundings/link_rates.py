"""Rates of InfiniBand ports by `ibstat`, `ibstatus`, `ibv_devinfo` or a line a port, and the GPU nearest to each."""

import re
from collections.abc import Iterator, Sequence

from ..nouns.identities import NearPort, PortRate
from ..text.lines import LogMessage
from .placements import HOST
from .port_states import asked_host

_HEADER = re.compile(
    r"^[-=*#>][-=*#> ]{0,40}(?:(?:host|node)[ :]{1,2})?(?P<host>" + HOST + r")(?: \([^()]{1,80}\))?[ :=*#-]{0,40}$"
)  # of a script
_FRAMES = ("-", "=", "*", "#", ">")
_DEVICE = re.compile(r"\b(?:CA|[Dd]evice|hca_id:?)\s+'?(?P<device>(?:mlx[45]|ibp|bnxt_re|irdma|hns|qedr)_?\w*\d)'?")
_RATE = re.compile(r"\b[Rr]ate:\s+(?P<rate>\d{1,4})(?![\d.])")
_DOWN = re.compile(r"\b(?:[Ss]tate|port_state):\s+(?:\d: +|PORT_)?(?:DOWN|Down|INIT\w*)")
_ASKED = re.compile(r"\bibv_devinfo\b.*? -d (?P<device>[a-z]\w+)")  # of one port
_WIDTH = re.compile(r"\bactive_width:\s+(?P<lanes>\d{1,2})X\b")
_SPEED = re.compile(r"\bactive_speed:\s+(?P<gb_s>\d{1,4}(?:\.\d+)?) Gbps\b")  # of a lane
_COLUMNS = re.compile(r"^\s*GPU0\b.*\bNIC0\b")  # of nvidia-smi topo -m
_LEGEND = re.compile(r"^\s*(?P<nic>NIC\d{1,2}): (?P<device>\w+)$")
_NEAREST = ("PIX", "PXB")


def read(messages: Sequence[LogMessage]) -> Iterator[PortRate | NearPort]:
    """Yield the rates of the ports in the tables of one file, and which GPU is nearest to which."""
    yield from _rates(messages)
    yield from _near(messages)


def _rates(messages: Sequence[LogMessage]) -> Iterator[PortRate]:
    asked, device, is_down, lanes = "", "", False, 1
    for message in messages:
        text = message.text
        if "ibv_devinfo" in text and (command := _ASKED.search(text)):
            asked, device, is_down = asked_host(text) or asked, command["device"], False
        if text[:1] in _FRAMES and (header := _HEADER.match(text)):
            asked, device = header["host"], ""
        if "'" in text and (named := _DEVICE.search(text)):
            device, is_down = named["device"], False
        if "tate:" in text and _DOWN.search(text):
            is_down = True
        if "active_width" in text and (width := _WIDTH.search(text)):
            lanes = int(width["lanes"])
        gb_s = 0.0
        if device and "ate:" in text and (rate := _RATE.search(text)):
            gb_s = float(rate["rate"])
        elif device and "active_speed" in text and (speed := _SPEED.search(text)):
            gb_s = lanes * float(speed["gb_s"])
        if gb_s and not is_down:
            host = message.host or message.where.host or asked
            yield PortRate(host=host, device=device, rate_gb_s=round(gb_s), where=message.where)
            device = ""


def _near(messages: Sequence[LogMessage]) -> Iterator[NearPort]:
    columns: list[str] = []
    near: dict[str, tuple[int, LogMessage]] = {}  # of each port, its number in the table
    names: dict[str, str] = {}
    for message in messages:
        text = message.text
        if "NIC" not in text and not (columns and text.startswith("GPU")):
            continue
        cells = text.split()
        if _COLUMNS.match(text):
            columns = cells
        elif columns and cells[0].startswith("GPU") and cells[0] in columns:
            row = dict(zip(columns, cells[1:], strict=False))
            for kind in _NEAREST:
                ports = [name for name, way in row.items() if name.startswith("NIC") and way == kind]
                if len(ports) == 1:
                    near[ports[0]] = int(cells[0].removeprefix("GPU")), message
                    break
        elif legend := _LEGEND.match(text):
            names[legend["nic"]] = legend["device"]
    gpus = sum(name.startswith("GPU") and name[3:].isdecimal() for name in columns)
    for nic, (gpu, message) in near.items():
        if nic in names:
            yield NearPort(device=names[nic], gpu=gpu, gpus=gpus, where=message.where)
