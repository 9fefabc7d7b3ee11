"""`ethtool` and `mlxlink`: the rate of ports of a host, one section a port.

The name of a port is what ethtool prints, or the device of the command above mlxlink's section.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...hardware.arithmetic import infiniband_bytes_per_s
from ..graph import Cluster, Device
from .ibstat import PORTS_ALONE
from .pasted import plain_lines

_SETTINGS = re.compile(r"^\s*Settings for (\S{1,64}):\s*$", re.M)
_OPERATIONAL = re.compile(r"^\s*Operational Info\s*$", re.M)
_COMMAND = re.compile(r"\bmlxlink\b.*?\s(?:-d|--device)[ =](\S+)")
_FIELD = re.compile(r"^\s*([A-Z][\w .()/\[\]-]*?)\s*:\s*(.*?)\s*$")
_ETHTOOL_SPEED = re.compile(r"(\d{1,7})Mb/s$")
_INFINIBAND = re.compile(r"IB-([A-Z]{3}\d*)$")
_ETHERNET = re.compile(r"(\d{1,4}(?:\.\d)?)G(?:bE)?(?:_\d+X)?$")
# what Oracle's check of a BM.GPU.H100.8 lets pass (EXPECTED_EFFECTIVE_PHYSICAL_BER), others 1e-14 and less
MOST_BIT_ERRORS = 1e-12
_MODE = re.compile(r"(\d{1,7})base\S+", re.I)  # of ethtool: megabits per second of a link mode
_SOUND = re.compile(r"No issues? (?:was|were)? ?(?:observed|found)", re.I)


def looks_like_port_speeds(text: str) -> bool:
    """Return whether a text holds a section of ethtool, or of mlxlink, with a speed."""
    titled = _SETTINGS.search(text) or _OPERATIONAL.search(text)
    return bool(titled and re.search(r"^\s*Speed\s*: *\S", text, re.M))


def looks_like_port_speeds_json(data: object) -> bool:
    """Return whether a JSON is of `mlxlink --json`."""
    return isinstance(_operational(data), dict)


def from_port_speeds(text: str, where: str) -> Cluster:
    """Return the ports of a host with their rates; what is said against them are warnings."""
    return _cluster(dict(_sections(text, where)), where)


def from_port_speeds_json(data: Any, where: str) -> Cluster:
    """Return the port of `mlxlink --json`."""
    output = data["result"]["output"]
    parts = [part for part in output.values() if isinstance(part, dict)]
    facts = {str(key): value for part in reversed(parts) for key, value in part.items() if isinstance(value, str)}
    return _cluster({Path(where).stem: facts}, where)


def _operational(data: object) -> object:
    for key in ("result", "output", "Operational Info"):
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _sections(text: str, where: str) -> Iterator[tuple[str, dict[str, str]]]:
    name, command, key = "", "", ""
    facts: dict[str, str] = {}
    for line in (plain.text for plain in plain_lines(text)):
        settings, said = _SETTINGS.match(line), _COMMAND.search(line)
        if settings or _OPERATIONAL.match(line):
            if facts:
                yield name, facts
            name, command, facts = settings[1] if settings else command or Path(where).stem, "", {"": ""}
        elif said:
            command = said[1].rpartition("/")[2]
        elif facts and (field := _FIELD.match(line)):
            key = field[1] if field[1] not in facts else ""
            facts.setdefault(field[1], field[2])
        elif facts and key and _MODE.match(line.strip()):  # modes go on, a line each
            facts[key] += f" {line.strip()}"
    if facts:
        yield name, facts


def _cluster(ports: Mapping[str, Mapping[str, str]], where: str) -> Cluster:
    devices, said = [], []
    for name, facts in ports.items():
        speed = facts.get("Speed", "")
        state = facts.get("Physical state") or facts.get("Link detected", "")
        is_up = state in ("", "LinkUp", "yes") or state.startswith("LinkUp")
        rate = rate_bytes_per_s(speed, facts.get("Width", "")) if is_up else None
        devices.append(Device(id=name, kind="nic", network_bandwidth_bytes_per_s=rate))
        if not is_up:
            what = "Link detected: no" if "Link detected" in facts else f"Physical state: {state}"
            said.append(f"{name} carries nothing ({what})")
        elif rate is None:
            said.append(f"{name}: its speed is {speed or 'not said'}, of which the rate is not known")
        if rate is not None and (slower := _below_its_modes(facts, rate)):
            said.append(f"{name}: {slower}")
        advice = facts.get("Recommendation", "")
        if advice not in ("", "N/A") and not _SOUND.match(advice):
            said.append(f"{name}: mlxlink says {advice[:120]}")
        said += [f"{name}: {words}" for words in _errors(facts)]
    return Cluster(name=where, devices=tuple(devices), warnings=(*said, PORTS_ALONE))


def _below_its_modes(facts: Mapping[str, str], rate_bytes_per_s: float) -> str:
    """Return that a port of ethtool runs below its highest mode and which side keeps it there, "" where it does not."""
    now = round(rate_bytes_per_s * 8e-6)  # Mb/s, as the modes are named
    able, offered, partner = (
        max((int(megabits) for megabits in _MODE.findall(facts.get(f"{whose} link modes", ""))), default=0)
        for whose in ("Supported", "Advertised", "Link partner advertised")
    )
    if not now < able:
        return ""
    if 0 < offered <= now:
        why = f"it advertises no more than {offered / 1e3:g} itself (ethtool -s: speed, advertise)"
    elif partner and partner <= now < offered:
        why = f"its link partner advertises no more than {partner / 1e3:g}: the switch's port or its breakout"
    elif partner > now:
        why = f"its link partner advertises {partner / 1e3:g} too: the cable, a lane or a fixed speed"
    else:
        why = "its link partner's modes are not said: the partner, the cable or a fixed speed"
    return f"runs at {now / 1e3:g} of the {able / 1e3:g} Gb/s that it supports: {why}"


def _errors(facts: Mapping[str, str]) -> Iterator[str]:
    """Yield what mlxlink -c counts against a port: wrong bits behind the correction, and losses of the link."""
    rate = facts.get("Effective Physical BER", "")
    if re.fullmatch(r"\d{1,4}(?:\.\d{1,6})?E-\d{1,3}", rate, re.I) and float(rate) > MOST_BIT_ERRORS:
        yield f"bit errors of {rate} behind error correction: packets are sent again; a bad cable or transceiver"
    downs = facts.get("Link Down Counter", "")
    if re.fullmatch(r"[1-9]\d{0,9}", downs):
        since = facts.get("Time Since Last Clear [Min]", "")
        yield f"the link was down {downs} times" + (
            f" in {since} minutes" if re.fullmatch(r"[\d.]{1,12}", since) else ""
        )


def rate_bytes_per_s(speed: str, width: str) -> float | None:
    """Return the rate of a port: ethtool's Mb/s, the lanes of InfiniBand times theirs, Ethernet's for all lanes."""
    lanes = width.lower().removesuffix("x")
    if megabits := _ETHTOOL_SPEED.match(speed):
        return int(megabits[1]) * 1e6 / 8 or None
    if (infiniband := _INFINIBAND.match(speed)) and lanes.isdecimal() and len(lanes) < 3:
        return infiniband_bytes_per_s(infiniband[1], int(lanes))
    return float(ethernet[1]) * 1e9 / 8 if (ethernet := _ETHERNET.match(speed)) else None
