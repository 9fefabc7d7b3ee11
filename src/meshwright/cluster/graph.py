"""Cluster: devices and links as a graph, the hosts they sit in, and what was measured on them.

Rates are per direction and in bytes per second; None means that the source does not determine the figure.
"""

from typing import Literal

import msgspec

DeviceKind = Literal["gpu", "cpu", "nic", "switch"]


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One vertex: an accelerator, a CPU socket (one a NUMA node), a NIC or a switch."""

    id: str  # "GPU0", "CPU0", "NIC0"; in a cluster of several hosts "node1/GPU0"
    kind: DeviceKind
    model: str = ""
    node: str = ""  # the host it sits in; "" for a switch between hosts
    numa: int | None = None
    cpu_affinity: str | None = None  # "0-7,16-23": the cores next to it
    cores: int | None = None  # CPUs only: usable cores
    memory_bytes: int | None = None
    memory_bandwidth_bytes_per_s: float | None = None
    peak_flops_per_s: dict[str, float] = {}  # dense, by precision: {"bf16": 989e12}


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One edge between two devices, the same both ways."""

    a: str
    b: str
    kind: str  # "NV12", "PIX", "PHB", "SYS", "xGMI", "shm", "ib", "ethernet", ...
    bandwidth_bytes_per_s: float | None
    latency_s: float | None = None


class Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One machine, as its operating system describes it."""

    name: str
    cpu_model: str = ""
    cores: int  # usable by this process
    memory_bytes: int
    cache_bytes: dict[str, int] = {}  # {"L2": 524288, "L3": 33554432}: of one core's instance
    numa_nodes: int = 1
    software: dict[str, str] = {}  # versions that change measured times: kernel, python, torch


class CollectiveFit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Time of one collective over `ranks` ranks, fitted as alpha_s + beta_s_per_byte x bytes between `min` and `max`.

    `busy_share` is the share of that time during which the rank's own cores work on it, so that it cannot be hidden
    behind computation on the same cores.
    """

    collective: str
    backend: str
    ranks: int
    alpha_s: float
    beta_s_per_byte: float
    min_bytes: int
    max_bytes: int
    busy_share: float = 0.0
    residual: float = 0.0  # largest relative error of the fit at the measured sizes


class OperatorTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Median seconds of one operator with all `ranks` ranks of the host busy with it at once."""

    operator: str  # the operator's key, as workload.Operator prints it
    ranks: int
    threads: int  # of each rank
    forward_s: float
    backward_s: float


class Straggling(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much longer the slowest of `ranks` ranks takes for the same work than they do on average: 0.03 is 3 %."""

    ranks: int
    share: float


class Measurements(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `bench` measured on the machines of a cluster."""

    fingerprint: str  # machine and versions
    operators: tuple[OperatorTime, ...] = ()
    collectives: tuple[CollectiveFit, ...] = ()
    straggling: tuple[Straggling, ...] = ()
    memory_bandwidth_bytes_per_s: float | None = None


class Cluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The machines and links of a job."""

    name: str
    hosts: tuple[Host, ...] = ()
    devices: tuple[Device, ...] = ()
    links: tuple[Link, ...] = ()
    measured: Measurements | None = None
    warnings: tuple[str, ...] = ()
    schema: Literal["meshwright.cluster/1"] = "meshwright.cluster/1"

    def of_kind(self, kind: DeviceKind) -> tuple[Device, ...]:
        """Return the devices of one kind, in order."""
        return tuple(device for device in self.devices if device.kind == kind)
