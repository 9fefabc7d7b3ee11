"""`dcgmi nvlink -s`: the state of each NVLink of each GPU and each NVSwitch, by letters, without rates and far ends.

DCGM's key: U is up, D is down, X is disabled, _ is not supported.
"""

import re
from collections.abc import Iterator

from msgspec.structs import replace

from ...hardware import Catalogue
from ..catalogue_devices import with_catalogue
from ..graph import Cluster, Device
from .pasted import plain_lines

_GPU = re.compile(r"^\s*gpuId (\d{1,4}):\s*$")
_SWITCH = re.compile(r"^\s*physicalId (\d{1,6}):\s*$")
_STATES = re.compile(r"^\s*[UDX_](?: [UDX_])*\s*$")


def looks_like_dcgmi_nvlink(text: str) -> bool:
    """Return whether a text has the states of a GPU's links."""
    return re.search(r"^\s*gpuId \d{1,4}:\s*\n\s*[UDX_](?: [UDX_])*\s*$", text, re.M) is not None


def from_dcgmi_nvlink(text: str, where: str, catalogue: Catalogue, gpu: str | None = None) -> Cluster:
    """Return the GPUs; links that are down or disabled are named by their numbers."""
    devices, said = [], []
    up: dict[int, list[str]] = {}
    for kind, number, states in _states(text):
        name = f"GPU{number}" if kind == "gpu" else f"NVSwitch {number}"
        built = [state for state in states if state != "_"]
        if kind == "gpu":
            device = Device(id=name, kind="gpu")
            devices.append(with_catalogue(device, gpu, catalogue) if gpu else replace(device, own_links=len(built)))
            up.setdefault(built.count("U"), []).append(name)
        for letter, word in (("D", "down"), ("X", "disabled")):
            numbers = [str(i) for i, state in enumerate(states) if state == letter]
            if numbers and (kind == "gpu" or letter == "D"):  # a switch's unused ports are disabled
                which = f"link{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"
                said.append(f"{name} has {len(numbers)} of {len(built)} NVLinks {word} ({which})")
    said += [f"{count} NVLinks are up on {_few(names)}" for count, names in sorted(up.items(), reverse=True)]
    said.append("rates and what lies between the GPUs are not said: give the output of nvidia-smi topo -m as well")
    return Cluster(name=where, devices=tuple(devices), warnings=tuple(said))


def _few(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{len(names)} GPUs"


def _states(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each GPU and switch with the letters below it."""
    kind, number = "", ""
    for line in (plain.text for plain in plain_lines(text)):
        if gpu := _GPU.match(line):
            kind, number = "gpu", gpu.group(1)
        elif switch := _SWITCH.match(line):
            kind, number = "switch", switch.group(1)
        elif kind and _STATES.match(line):
            yield kind, number, line.split()
            kind = ""
