"""The kind of a PCI function: an accelerator, a network card, or neither. One table for all readers."""

import functools
import tomllib
from importlib import resources
from typing import Any, Literal

WHAT_IS_SOUGHT = (
    "PCI functions of class 0x0300, 0x0302, 0x0380 or 0x1200 of NVIDIA, AMD, Intel (discrete) and Habana, "
    "TPUs of Google and Neuron devices of Amazon"
)


def pci_kind(pci_class: str, vendor: str, device: str) -> Literal["gpu", "nic"] | None:
    """Return what a function is, by its class and ids in hexadecimal ("0x030200" or "0302", "10de", "2330").

    Consoles of servers and virtual machines and graphics inside a CPU are neither.
    """
    kind, vendor, device = _digits(pci_class)[:4], _digits(vendor), _digits(device).rjust(4, "0")
    entry = _table()["vendors"].get(vendor)
    if entry is not None and _is_accelerator(entry, kind, device):
        return "gpu"
    return "nic" if kind.startswith("02") else None


def is_graphics(pci_class: str) -> bool:
    """Return whether a class is one that accelerators have, where ids are not given."""
    return _digits(pci_class)[:4] in _table()["classes"]


def vendor_name(vendor: str) -> str:
    """Return who made an accelerator, "" for a vendor that makes none."""
    entry = _table()["vendors"].get(_digits(vendor))
    return entry["name"] if entry else ""


def _is_accelerator(entry: dict[str, Any], kind: str, device: str) -> bool:
    if "only" in entry:
        return device.startswith(tuple(entry["only"]))
    return kind in _table()["classes"] and not device.startswith(tuple(entry.get("never", ())))


def _digits(text: str) -> str:
    return text.strip().lower().removeprefix("0x")


@functools.cache
def _table() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("data", "pci.toml").read_text("utf-8")
    return tomllib.loads(text)
