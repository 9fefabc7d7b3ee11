"""`nvidia-smi --query-gpu=... --format=csv`: a row of facts for each GPU, of the columns that were asked for."""

import re
from collections.abc import Iterable, Iterator

Facts = dict[tuple[str, ...], str]

_COLUMN = re.compile(r"([a-z_0-9]+(?:\.[a-z_0-9]+)*)(?: \[([A-Za-z/%]+)\])?")
# the columns that are read, and where `nvidia-smi -q` says the same
_AS_IN_Q = {
    "name": ("Product Name",),
    "gpu_name": ("Product Name",),
    "memory.total": ("FB Memory Usage", "Total"),
    "mig.mode.current": ("MIG Mode", "Current"),
    "pcie.link.width.max": ("Link Width", "Max"),
    "pcie.link.width.current": ("Link Width", "Current"),
    "pcie.link.gen.max": ("PCIe Generation", "Max"),
    "pcie.link.gen.gpumax": ("PCIe Generation", "Device Max"),
    "pcie.link.gen.current": ("PCIe Generation", "Current"),
    "pcie.link.gen.gpucurrent": ("PCIe Generation", "Current"),
    "pstate": ("Performance State",),
}
_NUMBERS = ("index", "pci.bus_id", "gpu_bus_id", "uuid", "gpu_uuid")  # that tell a heading with the columns above


def facts_by_gpu(lines: Iterable[str]) -> Iterator[tuple[int, Facts]]:
    """Yield the number of each GPU below such a heading, with its facts as `nvidia-smi -q` would name them."""
    columns: list[tuple[str, str]] = []
    count = 0
    for line in lines:
        cells = [cell.strip() for cell in line.split(",")]
        if heading := _heading(cells):
            columns, count = heading, 0
        elif columns and len(cells) == len(columns):
            values = dict(zip((name for name, _ in columns), cells, strict=True))
            number = values.get("index", str(count))
            if re.fullmatch(r"\d{1,3}", number):
                yield int(number), _facts(columns, values)
                count += 1
        elif line.strip():
            columns = []


def _heading(cells: list[str]) -> list[tuple[str, str]]:
    """Return the columns of a heading with their units, [] for another line."""
    found = [_COLUMN.fullmatch(cell) for cell in cells]
    names = [match[1] for match in found if match]
    if len(names) < len(cells) or not set(names) & {*_AS_IN_Q} or len(names) < 2:
        return []
    if not set(names) & {*_NUMBERS} and not any("." in name for name in names):
        return []
    return [(match[1], match[2] or "") for match in found if match]


def _facts(columns: list[tuple[str, str]], values: dict[str, str]) -> Facts:
    facts: Facts = {}
    for name, unit in columns:
        value = values[name]
        if name.startswith("pcie.link.width"):
            value = f"{value}x"
        elif unit and re.fullmatch(r"\d+", value):  # --format=csv,nounits
            value = f"{value} {unit}"
        if name in _AS_IN_Q and value:
            facts[_AS_IN_Q[name]] = value
    return facts
