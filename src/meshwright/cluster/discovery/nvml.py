"""NVIDIA's management library: names, bus ids, memory and NVLinks of the GPUs, through ctypes."""

import ctypes
from dataclasses import dataclass, field
from typing import Any

MAX_LINKS = 18
LIBRARY = "libnvidia-ml.so.1"
_SM_CLOCK, _DIE = 1, 0  # NVML_CLOCK_SM, NVML_TEMPERATURE_GPU of nvml.h


@dataclass(frozen=True, slots=True)
class NvidiaGpu:
    """One GPU as the driver knows it."""

    bus_id: str  # as sysfs writes it, "0000:3b:00.0"
    name: str
    memory_bytes: int
    to_gpus: dict[str, int] = field(default_factory=dict)  # bus id of the peer: links
    to_switches: int = 0  # links


@dataclass(frozen=True, slots=True)
class GpuState:
    """The state of a GPU at this moment; None where its driver does not tell."""

    clock_hz: float | None  # of its multiprocessors
    max_clock_hz: float | None
    temperature_c: int | None
    power_w: float | None
    power_limit_w: float | None


class _PciInfo(ctypes.Structure):
    _fields_ = [
        ("busIdLegacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pciDeviceId", ctypes.c_uint),
        ("pciSubSystemId", ctypes.c_uint),
        ("busId", ctypes.c_char * 32),
    ]


class _Memory(ctypes.Structure):
    _fields_ = [
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


class NvmlError(Exception):
    """A call of the library failed; the message names it."""


def nvidia_gpus(library: Any = None) -> list[NvidiaGpu]:
    """Return the GPUs in the driver's order; [] where the library is not installed. NvmlError if it fails."""
    if library is None:
        try:
            library = ctypes.CDLL(LIBRARY)
        except OSError:
            return []
    _call(library, "nvmlInit_v2")
    try:
        count = ctypes.c_uint()
        _call(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
        return [_gpu(library, index) for index in range(count.value)]
    finally:
        library.nvmlShutdown()


def gpu_state(bus_id: str, library: Any = None) -> GpuState | None:
    """Return the state of the GPU at a PCI address; None where the driver's library does not know it."""
    if library is None:
        try:
            library = ctypes.CDLL(LIBRARY)
        except OSError:
            return None
    if library.nvmlInit_v2():  # the library without its driver
        return None
    try:
        handle = ctypes.c_void_p()
        if library.nvmlDeviceGetHandleByPciBusId_v2(bus_id.encode(), ctypes.byref(handle)):
            return None
        clock, most = (
            _asked(library, f"nvmlDeviceGet{name}", handle, _SM_CLOCK) for name in ("ClockInfo", "MaxClockInfo")
        )
        power, limit = (
            _asked(library, f"nvmlDeviceGet{name}", handle) for name in ("PowerUsage", "EnforcedPowerLimit")
        )
        return GpuState(
            clock_hz=None if clock is None else clock * 1e6,
            max_clock_hz=None if most is None else most * 1e6,
            temperature_c=_asked(library, "nvmlDeviceGetTemperature", handle, _DIE),
            power_w=None if power is None else power / 1e3,
            power_limit_w=None if limit is None else limit / 1e3,
        )
    finally:
        library.nvmlShutdown()


def _asked(library: Any, name: str, handle: ctypes.c_void_p, *which: int) -> int | None:
    """Return a whole number that the library tells of a GPU; None where it refuses."""
    found = ctypes.c_uint()
    arguments = [ctypes.c_uint(each) for each in which]
    return None if getattr(library, name)(handle, *arguments, ctypes.byref(found)) else int(found.value)


def _gpu(library: Any, index: int) -> NvidiaGpu:
    handle = ctypes.c_void_p()
    _call(library, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
    name = ctypes.create_string_buffer(96)
    _call(library, "nvmlDeviceGetName", handle, name, ctypes.c_uint(len(name)))
    pci, memory = _PciInfo(), _Memory()
    _call(library, "nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(pci))
    _call(library, "nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
    peers: dict[str, int] = {}
    switches = 0
    for link in range(MAX_LINKS):
        active = ctypes.c_uint()
        if library.nvmlDeviceGetNvLinkState(handle, ctypes.c_uint(link), ctypes.byref(active)) or not active.value:
            continue
        remote = _PciInfo()
        if library.nvmlDeviceGetNvLinkRemotePciInfo_v2(handle, ctypes.c_uint(link), ctypes.byref(remote)):
            continue
        if remote.pciDeviceId >> 16 and _is_gpu(library, remote):
            peers[_bus_id(remote)] = peers.get(_bus_id(remote), 0) + 1
        else:
            switches += 1
    return NvidiaGpu(_bus_id(pci), name.value.decode(errors="replace"), int(memory.total), peers, switches)


def _is_gpu(library: Any, remote: _PciInfo) -> bool:
    """Return whether the far end of a link is a GPU that this driver serves; a switch is not."""
    handle = ctypes.c_void_p()
    return not library.nvmlDeviceGetHandleByPciBusId_v2(remote.busId, ctypes.byref(handle))


def _bus_id(pci: _PciInfo) -> str:
    return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"


def _call(library: Any, name: str, *arguments: object) -> None:
    code = getattr(library, name)(*arguments)
    if code:
        raise NvmlError(f"{name} failed with code {code}")
