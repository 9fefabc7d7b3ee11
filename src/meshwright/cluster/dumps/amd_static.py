"""`amd-smi static`: the GPUs of a host one by one: names, memory, NUMA nodes, buses, the most that PCIe carries.

It says nothing of pairs. Its MB are MiB (an MI300X with 192 GiB has 196592 MB).
"""

import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from ...hardware import Catalogue
from ..catalogue_devices import with_catalogue
from ..graph import Cluster, Device
from ..pcipath import pcie_bytes_per_s
from .pasted import plain_lines
from .rocm import MAX_GPUS

_GPU = re.compile(r"^\s*GPU: (\d{1,4})\s*$")
_FIELD = re.compile(r"^\s+([A-Z][A-Z_]+):\s+(\S.*?)\s*$")
_WHOLE = "SPX"  # the compute partition of a GPU that is one device


def looks_like_amd_static(text: str) -> bool:
    """Return whether a text has GPUs with the names or the buses that amd-smi static gives them."""
    head = text[:200_000]
    return re.search(r"^\s*GPU: \d", head, re.M) is not None and (
        re.search(r"^\s+(?:MARKET_NAME|MAX_PCIE_WIDTH): +\S", head, re.M) is not None
    )


def from_amd_static(text: str, where: str, catalogue: Catalogue, gpu: str | None = None) -> Cluster:
    """Return the GPUs; what joins them is not said."""
    return _cluster(_cards(text), where, catalogue, gpu)


def looks_like_amd_static_json(data: Any) -> bool:
    """Return whether JSON is of `amd-smi static --json`, alone or inside what newer versions put around it."""
    return any("asic" in entry or "bus" in entry for entry in _entries(data))


def from_amd_static_json(data: Any, where: str, catalogue: Catalogue, gpu: str | None = None) -> Cluster:
    """Return the GPUs of `amd-smi static --json`."""
    return _cluster({int(entry["gpu"]): _facts(entry) for entry in _entries(data)}, where, catalogue, gpu)


def _entries(data: Any) -> list[Mapping[str, Any]]:
    listed = data.get("gpu_data") if isinstance(data, Mapping) else data
    entries = [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []
    return [entry for entry in entries if isinstance(entry.get("gpu"), int) and 0 <= entry["gpu"] < MAX_GPUS]


def _facts(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of one GPU as its text has them; of those in several sections the first."""
    facts: dict[str, str] = {}
    for section, fields in entry.items():
        for key, value in fields.items() if isinstance(fields, Mapping) else ():
            if isinstance(value, Mapping):
                value = f"{value.get('value')} {value.get('unit', '')}"
            name = str(key).upper()
            facts.setdefault(f"{section.upper()} SIZE" if name == "SIZE" else name, str(value))
    return facts


def _cluster(cards: Mapping[int, Mapping[str, str]], where: str, catalogue: Catalogue, gpu: str | None) -> Cluster:
    devices, said = [], list[str]()
    for number, facts in cards.items():
        name = f"GPU{number}"
        devices.append(_device(name, facts, catalogue, gpu))
        if (part := facts.get("COMPUTE_PARTITION", _WHOLE)) not in (_WHOLE, "N/A"):
            said.append(f"{name} is split (compute partition {part}): its parts are devices of their own to a job")
    buses = [f"GPU{n} is {facts['BDF']}" for n, facts in cards.items() if "BDF" in facts]
    said += [", ".join(buses)] if buses else []
    said += _pcie(cards)
    said.append("what lies between the GPUs is not said: give the output of amd-smi topology as well")
    return Cluster(name=where, devices=tuple(devices), warnings=tuple(said))


def _cards(text: str) -> dict[int, dict[str, str]]:
    """Return the fields of each GPU; of repeated ones the first, which is the GPU's; SIZE with its section."""
    cards: dict[int, dict[str, str]] = {}
    facts: dict[str, str] = {}
    section = ""
    for line in (plain.text for plain in plain_lines(text)):
        if listed := _GPU.match(line):
            facts, section = cards.setdefault(int(listed.group(1)), {}), ""
        elif title := re.match(r"^\s+([A-Z][A-Z_ ]+):\s*$", line):
            section = title.group(1)
        elif field := _FIELD.match(line):
            facts.setdefault(field.group(1) if field.group(1) != "SIZE" else f"{section} SIZE", field.group(2))
    return cards


def _device(name: str, facts: Mapping[str, str], catalogue: Catalogue, gpu: str | None) -> Device:
    memory = re.fullmatch(r"(\d{1,9}) MB", facts.get("VRAM SIZE", ""))
    node = facts.get("NODE", "")
    device = Device(
        id=name,
        kind="gpu",
        model=facts.get("MARKET_NAME", ""),
        numa=int(node) if node.isdecimal() and len(node) < 5 else None,
        memory_bytes=int(memory.group(1)) * 2**20 if memory else None,
    )
    key = gpu or (catalogue.driver_key(device.model) if device.model else None)
    return with_catalogue(replace(device, model=""), key, catalogue) if key else device


def _pcie(cards: Mapping[int, Mapping[str, str]]) -> list[str]:
    """Return the most that the PCIe links of the GPUs carry, which is no state of them."""
    rates: dict[str, list[str]] = {}
    for number, facts in cards.items():
        speed, lanes = facts.get("MAX_PCIE_SPEED", ""), facts.get("MAX_PCIE_WIDTH", "")
        if rate := pcie_bytes_per_s(speed, lanes):
            rates.setdefault(f"{rate / 1e9:.3g} GB/s per direction ({speed} x{lanes})", []).append(f"GPU{number}")
    return [
        f"{' and '.join(gpus) if len(gpus) < 3 else f'{gpus[0]} to {gpus[-1]}'}: PCIe to the host carries at most "
        f"{rate}; amd-smi metric --pcie says at what it runs"
        for rate, gpus in rates.items()
    ]
