"""Cluster: devices and links as a graph, the hosts they sit in, and what was measured on them.

Rates are per direction and in bytes per second; None means that the source does not determine the figure.
"""

import itertools
import math
from typing import Literal, NamedTuple

import msgspec

from ..errors import InputError
from ..quantities import (
    MOST_RANKS,
    Bytes,
    BytesPerSecond,
    BytesPerSecondOrNone,
    Count,
    CountOrNone,
    Factor,
    FlopsPerSecond,
    Number,
    Oversubscription,
    PositiveSeconds,
    Rank,
    Seconds,
    SecondsPerByte,
    Share,
)
from ..units import counted
from .curve import Curve

DeviceKind = Literal["gpu", "cpu", "nic", "switch", "memory"]


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One vertex: an accelerator, a CPU socket (one a NUMA node), a NIC, a switch, or a NUMA node of memory alone."""

    id: str  # "GPU0", "CPU0", "NIC0"; in a cluster of several hosts "node1/GPU0"
    kind: DeviceKind
    model: str = ""
    node: str = ""  # the host it sits in; "" for a switch between hosts
    numa: Number | None = None
    cpu_affinity: str | None = None  # "0-7,16-23": the cores next to it
    cores: Number | None = None  # CPUs only: usable cores
    threads: Number | None = None  # CPUs only: the hardware threads of those cores, where the source tells them apart
    memory_bytes: Bytes | None = None
    memory_bandwidth_bytes_per_s: BytesPerSecond | None = None
    peak_flops_per_s: dict[str, FlopsPerSecond] = {}  # dense, by precision: {"bf16": 989e12}
    network_bandwidth_bytes_per_s: BytesPerSecond | None = None  # NICs only: what its ports carry, per direction
    own_links: CountOrNone | None = (
        None  # GPUs only: NVLink or xGMI links that the device was built with, 0: none; None: not known
    )
    bridged: bool = False  # GPUs only: those links are there only where somebody plugged a bridge, and never a switch
    domain: str = ""  # GPUs only: the NVLink domain that they registered with, ClusterUUID and CliqueId
    memory_numa: Number | None = None  # GPUs only: the NUMA node that their own memory is to the system
    card: str = ""  # NICs only: the PCI bus and device, whose link to the host all ports of one card share


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One edge between two devices, the same both ways."""

    a: str
    b: str
    kind: str  # "NV12", "PIX", "PHB", "SYS", "xGMI", "shm", "ib", "ethernet", ...
    bandwidth_bytes_per_s: BytesPerSecondOrNone | None
    latency_s: Seconds | None = None
    switched: bool = False  # of two GPUs: both reach a switch at this rate, where the kind counts no links that tell it


class Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One machine, as its operating system describes it."""

    name: str
    cpu_model: str = ""
    cores: Number  # usable by this process
    memory_bytes: Bytes
    cache_bytes: dict[str, Bytes] = {}  # {"L2": 524288, "L3": 33554432}: of one core's instance
    numa_nodes: Number = 1
    software: dict[str, str] = {}  # versions that change measured times: kernel, python, torch


class NodeGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`count` identical nodes: the compact form of a large cluster; `expand.expanded` makes devices and links of it.

    Nodes are named "node0" and on, through all groups of a cluster; the GPUs of one are "node3/GPU0" and on.
    """

    type: str  # a node type of the catalogue, or "" for one that was described by hand
    count: Count
    gpus: Count  # of one node
    gpu: Device  # what each of them is; its id is "GPU"
    gpu_link: str  # "NV18", "xGMI", "PCIe"
    gpu_bandwidth_bytes_per_s: BytesPerSecond  # of one GPU towards all its peers in the node together
    peer_bandwidth_bytes_per_s: BytesPerSecond  # towards one peer: the same behind a switch, a share in a mesh
    gpu_latency_s: Seconds | None = None
    switched: bool = False
    reduction_bandwidth_bytes_per_s: BytesPerSecond | None = (
        None  # all-reduce done in the switch: bytes of payload per second
    )
    host_bandwidth_bytes_per_s: BytesPerSecond | None = None  # of one GPU to its CPU
    host_memory_bytes: Bytes | None = None  # of one node's processors
    host_memory_bandwidth_bytes_per_s: BytesPerSecond | None = None  # the same
    nics: CountOrNone = 0
    nic_kind: str = ""  # "infiniband", "roce", "tcp", ...
    nic_bandwidth_bytes_per_s: BytesPerSecondOrNone = 0.0  # of one NIC
    nic_latency_s: Seconds | None = None
    numa_nodes: Count = 1
    mesh: tuple[tuple[Rank, Rank, BytesPerSecond], ...] = ()  # (GPU, GPU, bytes/s) where the links are not all to all
    scale_up_nodes: Count = 1  # nodes that one domain of GPU links spans: 18 trays of an NVL72

    def __post_init__(self) -> None:
        if min(self.count, self.gpus, self.scale_up_nodes, self.numa_nodes) < 1 or self.nics < 0:
            raise ValueError("count, gpus, numa_nodes and scale_up_nodes must be 1 or more, nics 0 or more")
        for a, b, _ in self.mesh:
            if not (0 <= a < self.gpus and 0 <= b < self.gpus and a != b):
                raise ValueError(
                    f"mesh: a link from GPU {a} to GPU {b}: expected two of the {self.gpus} GPUs of a node"
                )

    @property
    def node_bandwidth_bytes_per_s(self) -> float:
        """Rate of all NICs of one node together."""
        return self.nics * self.nic_bandwidth_bytes_per_s

    @property
    def nic_ports(self) -> int:
        """Ways of its GPUs to the network: NICs that serve one GPU are one, as libraries stripe messages over them."""
        return min(self.nics, self.gpus)

    @property
    def port_bandwidth_bytes_per_s(self) -> float:
        """Rate of one of its ways to the network."""
        return self.node_bandwidth_bytes_per_s / max(1, self.nic_ports)

    def port_name(self, port: int) -> str:
        """Return "NIC2", or "NIC8-11" of NICs that are one way."""
        first, after = (at * self.nics // self.nic_ports for at in (port, port + 1))
        return f"NIC{first}" if after - first == 1 else f"NIC{first}-{after - 1}"

    @property
    def nic_path_bytes_per_s(self) -> float | None:
        """Rate of one GPU towards its NICs: of its PCIe link, or of all ports where they are on the chip itself."""
        return self.node_bandwidth_bytes_per_s if self.nic_kind == "ici" else self.host_bandwidth_bytes_per_s

    @property
    def meets_through_host(self) -> bool:
        """Whether GPUs of a node that no link joins reach each other over their PCIe links."""
        return self.nic_kind != "ici" and self.host_bandwidth_bytes_per_s is not None

    @property
    def peer_share(self) -> float:
        """Share of a GPU's links that leads to one peer: 1 behind a switch, and for cards that have one link to all."""
        one, every = self.peer_bandwidth_bytes_per_s, self.gpu_bandwidth_bytes_per_s
        return min(1.0, one / every) if one and every else 1.0

    def group_rates(self, gpus: int) -> tuple[float, float]:
        """Return the rate of a GPU among the first `gpus` of a node, and its share to one peer.

        Where bridges join only some of them (a mesh in islands), what goes to the others sets the pace: PCIe.
        """
        first = min(gpus, self.gpus)
        island, left = {0}, [(a, b) for a, b, _ in self.mesh if max(a, b) < first]
        while found := [pair for pair in left if island & {*pair}]:
            island |= {end for pair in found for end in pair}
            left = [pair for pair in left if pair not in found]
        if self.mesh and len(island) < first and self.host_bandwidth_bytes_per_s and self.meets_through_host:
            return self.host_bandwidth_bytes_per_s, 1.0
        return self.gpu_bandwidth_bytes_per_s, self.peer_share

    @property
    def shares_links(self) -> bool:
        """Whether a GPU's peers could together take more than all its links carry: cards with one PCIe link each."""
        if self.switched or self.mesh:
            return False
        return (self.gpus - 1) * self.peer_bandwidth_bytes_per_s > 1.01 * self.gpu_bandwidth_bytes_per_s

    @property
    def scale_up_gpus(self) -> int:
        """GPUs that reach each other over their own links."""
        return self.gpus * min(self.scale_up_nodes, self.count)


class Fabric(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the nodes of the groups are joined, in the order of their numbers."""

    kind: Literal["flat", "fat-tree", "rail-optimised", "dragonfly", "torus"] = "flat"
    nodes_per_leaf: Count = 1  # on one leaf switch (fat-tree), in one scalable unit (rail), on one router (dragonfly)
    leaves_per_group: Count = 1  # dragonfly: routers of a group
    oversubscription: Oversubscription = 1.0  # capacity below a leaf over capacity above it
    sides: tuple[Count, ...] = ()  # torus: nodes along each dimension, of one slice where there are several
    slices: Count = 1  # tori of these sides, of neighbouring nodes each, which meet over another network
    slice_bytes_per_s: BytesPerSecond | None = None  # of one node on that network
    hop_latency_s: Seconds = 0.0

    def __post_init__(self) -> None:
        counts = (self.nodes_per_leaf, self.leaves_per_group, self.slices, *self.sides)
        if min(counts) < 1 or not self.oversubscription >= 1:
            raise ValueError("nodes_per_leaf, leaves_per_group, slices, sides and oversubscription must be 1 or more")
        if self.slices > 1 and (self.kind != "torus" or self.slice_bytes_per_s is None):
            raise ValueError("slices are tori that meet at a known slice_bytes_per_s")

    @property
    def between_slices(self) -> str:
        """What is said where a fabric of several slices is asked for link by link; "" of one slice."""
        if self.slices == 1:
            return ""
        return f"{self.slices} slices, which meet over the network of their hosts: no links of that are known"


class Placement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a node hangs: the switches above it, the leaf first."""

    node: str
    switches: tuple[str, ...]
    block: str = ""  # the rack or NVLink domain that the scheduler counts it to
    ports_bytes_per_s: tuple[BytesPerSecond, ...] = ()  # of its ports on these switches, where the source says them


def blocking(collective: str) -> str:
    """Return the name of a collective's fit where a rank waits for it at once, in place of computing beside it."""
    return f"blocking {collective}"


def on_link(collective: str) -> str:
    """Return the name of the fit of how long messages occupy their link, whatever work the ranks have with them."""
    return f"link {collective}"


class Timed(NamedTuple):
    """A collective, and the type of what it carries as nccl-tests name it: adding up takes longer in some."""

    collective: str
    dtype: str = "float"


class CollectiveFit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Time of one collective over `ranks` ranks, fitted as alpha_s + beta_s_per_byte x bytes between `min` and `max`.

    `busy_share` is the share of that time during which the rank's own cores work on it, so that it cannot be hidden
    behind computation on the same cores. `hides` is the share of the computation before a blocking call that goes on
    while the link is busy with it for other groups, and so hides as much of it. `delay_s` is by how much a call beside
    computation is done later than one that ranks wait for.
    """

    collective: str
    backend: str
    ranks: Count
    alpha_s: Seconds
    beta_s_per_byte: SecondsPerByte
    min_bytes: Bytes
    max_bytes: Bytes
    busy_share: Share = 0.0
    hides: Share = 0.0
    delay_s: Seconds = 0.0
    residual: Factor = 0.0  # largest relative error of the fit at the measured sizes
    dtype: str = "float"  # of what was carried, as nccl-tests name it
    algorithm: str = ""  # "" where the backend chose
    cut: Number | None = None  # of messages between stages: those of this stage and the next; None: of any two
    at_once: Count = 1  # messages that were under way on one link, each way, in the time that is given for it
    alpha_band_s: tuple[Seconds, Seconds] | None = None  # 90 % confidence
    beta_band_s_per_byte: tuple[SecondsPerByte, SecondsPerByte] | None = None
    crossover_bytes: Bytes | None = None  # where the bytes begin to cost more than the start
    curve: Curve | None = None  # closer than the straight line, where enough sizes were measured
    curve_residual: Factor = 0.0
    points: tuple[
        tuple[Bytes, Seconds], ...
    ] = ()  # bytes and seconds as measured, ascending, where no curve comes close

    def time_s(self, size_bytes: float) -> float:
        """Return the predicted seconds: between neighbours of `points`, else by the curve, else alpha + beta x bytes.

        Between two points time is taken to be a power of the bytes.
        """
        for (low, low_s), (high, high_s) in itertools.pairwise(self.points):
            if low <= size_bytes <= high:
                power = math.log(high_s / low_s) / math.log(high / low)
                return low_s * math.pow(size_bytes / low, power)
        return self.curve.time_s(size_bytes) if self.curve else self.alpha_s + self.beta_s_per_byte * size_bytes


class OperatorTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Median seconds of one operator with all `ranks` ranks of the host busy with it at once."""

    operator: str  # the operator's key, as workload.Operator prints it
    ranks: Count
    threads: Count  # of each rank
    forward_s: Seconds
    backward_s: Seconds
    slowdown: Factor = msgspec.field(default=1.0, name="stretch")  # against a processor of its own


class Straggling(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much longer the slowest of `ranks` ranks takes for the same work than they do on average: 0.03 is 3 %."""

    ranks: Count
    share: Factor


class Pace(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How long two fixed pieces of work take on all cores of a machine, with relative standard errors."""

    product_s: PositiveSeconds  # of two matrices
    product_error: Factor
    copy_s: PositiveSeconds  # in memory
    copy_error: Factor


class Conditions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When measurements with `ranks` ranks were made, and how busy and how fast the machine was."""

    ranks: Count
    made: str  # date and time in UTC
    others_share: Share  # of the processors, that other programs took
    pace: Pace | None = None  # None: on accelerators
    no_fp8: str = ""  # why no product in fp8 was timed; "": it was, or nobody looked

    def __str__(self) -> str:
        return f"measured {self.made}, other programs took {self.others_share:.0%} of the processors"


class Measurements(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Measurements of `bench` on the machines of a cluster."""

    fingerprint: str  # machine and versions
    operators: tuple[OperatorTime, ...] = ()
    collectives: tuple[CollectiveFit, ...] = ()
    straggling: tuple[Straggling, ...] = ()
    memory_bandwidth_bytes_per_s: BytesPerSecond | None = None
    conditions: tuple[Conditions, ...] = ()  # one for each number of ranks


class Cluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The machines and links of a job."""

    name: str
    hosts: tuple[Host, ...] = ()
    devices: tuple[Device, ...] = ()
    links: tuple[Link, ...] = ()
    groups: tuple[NodeGroup, ...] = ()  # beside or in place of devices and links
    fabric: Fabric | None = None  # between the nodes of the groups
    placements: tuple[Placement, ...] = ()
    scale_up_nodes: Count | None = None  # nodes of one domain of GPU links, where somebody said; None: what links show
    measured: Measurements | None = None
    warnings: tuple[str, ...] = ()
    schema: Literal["meshwright.cluster/1"] = "meshwright.cluster/1"

    def __post_init__(self) -> None:
        if self.num_gpus > MOST_RANKS:
            raise ValueError(f"groups: {self.num_gpus:,} GPUs in all; expected at most {MOST_RANKS:,}")

    def of_kind(self, kind: DeviceKind) -> tuple[Device, ...]:
        """Return the devices of one kind, in order."""
        return tuple(device for device in self.devices if device.kind == kind)

    @property
    def num_nodes(self) -> int:
        """Nodes of the groups, or the hosts of the devices."""
        grouped = sum(group.count for group in self.groups)
        return grouped or len({device.node for device in self.devices if device.kind != "switch"}) or len(self.hosts)

    @property
    def num_gpus(self) -> int:
        """Accelerators in all."""
        return sum(group.count * group.gpus for group in self.groups) + len(self.of_kind("gpu"))


def check_devices(cluster: Cluster, devices: int, ranks: int) -> None:
    """Raise InputError where a cluster has fewer devices than there are ranks: its nodes count as they stand."""
    if ranks > devices:
        raise InputError(
            f"cluster {cluster.name}: has {counted(devices, 'device')} for ranks, {ranks} are asked for; nodes of a "
            "file count as they stand (plan --gpus alone repeats them), a node type of the catalogue as often as needed"
        )


def consistent(cluster: Cluster) -> Cluster:
    """Return a cluster unchanged; ValueError where two devices have one id, or a link leads to none or to itself."""
    known: set[str] = set()
    for device in cluster.devices:
        if device.id in known:
            raise ValueError(f"devices: two have the id {device.id!r}")
        known.add(device.id)
    for number, link in enumerate(cluster.links):
        missing = next((end for end in (link.a, link.b) if end not in known), None)
        if missing is not None:
            raise ValueError(f"links[{number}]: {link.a!r} to {link.b!r}: no device has the id {missing!r}")
        if link.a == link.b:
            raise ValueError(f"links[{number}]: from {link.a!r} to itself; expected two devices")
    return cluster
