"""Facts: what one node is like, read from its operating system and its environment variables. No judgement."""

import importlib.metadata
import os
import platform
import resource
import socket
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec
import psutil

from ...machine_load import Load
from ...native import HELPER_VARIABLE, c_compiler
from ..discovery.local import parse_cores

_PACKAGES = ("meshwright", "torch", "numpy", "nvidia-nccl-cu12", "nvidia-nccl-cu13")
_PREFIXES = ("NCCL_", "GLOO_", "TP_SOCKET", "OMP_", "MKL_NUM", "MASTER_", "MESHWRIGHT_", "TORCH_")
_NAMES = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "NNODES",
    "NODE_RANK",
)


class NetworkInterface(msgspec.Struct, frozen=True, kw_only=True):
    """One network interface."""

    name: str
    up: bool  # switched on, with a carrier
    mtu: int
    addresses: tuple[str, ...]  # IPv4 and IPv6, without zone

    @property
    def loopback(self) -> bool:
        """Whether it leads nowhere but back."""
        return any(address == "::1" or address.startswith("127.") for address in self.addresses)


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One node of a job."""

    node: int  # its number in the job
    nodes: int  # how many there are
    host: str
    environment: dict[str, str] = {}  # what concerns distributed training
    interfaces: tuple[NetworkInterface, ...] = ()
    host_addresses: tuple[str, ...] = ()  # what its own name resolves to; empty: nothing
    master_addresses: tuple[str, ...] = ()  # what MASTER_ADDR resolves to here
    route_address: str = ""  # own address on the way to the master (or, without one, out of the machine); "": no route
    shm_bytes: int = 0
    shm_free_bytes: int = 0
    memlock_bytes: int | None = None  # None: unlimited
    infiniband: tuple[str, ...] = ()
    cores: tuple[int, ...] = ()  # that this process may use
    quota_cores: float | None = None  # a container's limit
    numa: dict[int, tuple[int, ...]] = {}  # cores of each NUMA node, all of them
    governors: dict[str, int] = {}  # CPU frequency governors, and how many cores have each
    versions: dict[str, str] = {}
    lacks_compiler: bool = False  # of C, which the helpers of the backend would be built with
    load: Load | None = None  # who had the processors for a moment in which doctor waited; None: not watched
    clock_s: float | None = None  # of its wall clock when it told its facts; None: not told
    clock_ahead_s: float | None = None  # of node 0's, as far as node 0 can tell; None: not compared

    @property
    def ranks(self) -> int:
        """Ranks on this node."""
        return int(self.environment.get("LOCAL_WORLD_SIZE", "1"))

    def interface_of(self, address: str) -> NetworkInterface | None:
        """Return the interface that has an address."""
        return next((i for i in self.interfaces if address in i.addresses), None)

    @property
    def route_interface(self) -> NetworkInterface | None:
        """The interface on the way to the other nodes."""
        return self.interface_of(self.route_address)


def gather_facts(
    *, node: int = 0, nodes: int = 1, environ: Mapping[str, str] | None = None, root: Path = Path("/")
) -> NodeFacts:
    """Read the facts of this node; `root` is where `sys` and `proc` are found. Does not block on the network."""
    environ = os.environ if environ is None else environ
    chosen = {name: value for name, value in environ.items() if name.startswith(_PREFIXES) or name in _NAMES}
    shm = os.statvfs("/dev/shm")
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    master = environ.get("MASTER_ADDR", "")
    master_addresses = _resolve(master) if master else ()
    return NodeFacts(
        node=node,
        nodes=nodes,
        host=socket.gethostname(),
        environment=chosen,
        interfaces=_interfaces(),
        host_addresses=_resolve(socket.gethostname()),
        master_addresses=master_addresses,
        route_address=_route_to(master_addresses[0] if master_addresses else "192.0.2.1"),  # TEST-NET: the way out
        shm_bytes=shm.f_frsize * shm.f_blocks,
        shm_free_bytes=shm.f_frsize * shm.f_bavail,
        memlock_bytes=None if soft == resource.RLIM_INFINITY else soft,
        infiniband=_names(root / "sys/class/infiniband"),
        cores=tuple(sorted(os.sched_getaffinity(0))),
        quota_cores=_quota(root / "sys/fs/cgroup"),
        numa=_numa(root / "sys/devices/system/node"),
        governors=_governors(root / "sys/devices/system/cpu"),
        versions=_versions(),
        lacks_compiler=environ.get(HELPER_VARIABLE) != "0" and c_compiler() is None,
    )


def _interfaces() -> tuple[NetworkInterface, ...]:
    stats = psutil.net_if_stats()
    found = []
    for name, addresses in sorted(psutil.net_if_addrs().items()):
        internet = [a.address.partition("%")[0] for a in addresses if a.family in (socket.AF_INET, socket.AF_INET6)]
        state = stats.get(name)
        up = state is not None and state.isup
        found.append(NetworkInterface(name=name, up=up, mtu=state.mtu if state else 0, addresses=tuple(internet)))
    return tuple(found)


def _resolve(name: str) -> tuple[str, ...]:
    try:
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(dict.fromkeys(str(answer[4][0]).partition("%")[0] for answer in answers))


def _route_to(address: str) -> str:
    """Return the own address that packets to `address` would carry; no packet is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def _quota(cgroup: Path) -> float | None:
    """Return how many cores' worth of time a container may use: cgroup v2, then v1."""
    text = _read(cgroup / "cpu.max").split()
    if len(text) == 2 and text[0] != "max":
        return int(text[0]) / int(text[1])
    quota, period = _read(cgroup / "cpu/cpu.cfs_quota_us"), _read(cgroup / "cpu/cpu.cfs_period_us")
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() else None


def _numa(folder: Path) -> dict[int, tuple[int, ...]]:
    found = {int(path.name.removeprefix("node")): path for path in folder.glob("node[0-9]*")}
    return {number: tuple(parse_cores(_read(path / "cpulist"))) for number, path in sorted(found.items())}


def _governors(folder: Path) -> dict[str, int]:
    return dict(Counter(_read(path) for path in folder.glob("cpu[0-9]*/cpufreq/scaling_governor") if _fixed(path)))


def _fixed(governor: Path) -> bool:
    """Return whether the driver takes "powersave" literally; the modern ones mean "as fast as is needed" by it."""
    return _read(governor.with_name("scaling_driver")) not in ("intel_pstate", "amd-pstate-epp")


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _names(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.name for path in folder.iterdir())) if folder.is_dir() else ()


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
