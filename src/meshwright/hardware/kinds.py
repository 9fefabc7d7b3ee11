"""The kinds of hardware in the catalogue: one struct each. All rates are per direction."""

from typing import Literal

import msgspec

from .figures import SourcedFigure


class Interconnect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the devices of one node reach each other, or the host: the links of one device."""

    title: str
    kind: Literal["pcie", "nvlink", "xgmi", "ethernet-mesh", "ici", "neuronlink"]
    rate: SourcedFigure  # over all links of one device at once
    links: SourcedFigure  # of one device
    link_rate: SourcedFigure | None = None
    lanes: SourcedFigure | None = None  # of one link
    lane_rate: SourcedFigure | None = None
    peer_rate: SourcedFigure | None = None  # to any one peer, where the links form a mesh
    attainable: SourcedFigure | None = None  # share of the rate that a large collective reaches
    through_host: SourcedFigure | None = None  # share of that for devices that reach no peer but by the host's memory
    latency: SourcedFigure | None = None
    found_in: tuple[str, ...] = ()
    traps: tuple[str, ...] = ()

    @property
    def rate_bytes_per_s(self) -> float:
        """Rate of one device over all its links, per direction."""
        return self.rate.number

    @property
    def duplex_bytes_per_s(self) -> float:
        """Both directions added up: what vendors print."""
        return 2 * self.rate.number

    @property
    def link_bytes_per_s(self) -> float:
        """Rate of one link, per direction."""
        return self.link_rate.number if self.link_rate else self.rate.number / self.links.number

    def peer_bytes_per_s(self, peers: int, *, switched: bool) -> float:
        """Return what reaches one of `peers` peers: everything behind a switch, a share of it in a mesh."""
        if switched or peers < 1:
            return self.rate.number
        return self.peer_rate.number if self.peer_rate else self.rate.number / peers


class Switch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A switch between the accelerators of a node: any pair at full rate."""

    title: str
    rate: SourcedFigure  # of one accelerator
    max_gpus: SourcedFigure
    per_node: SourcedFigure | None = None
    outward_rate: SourcedFigure | None = None  # of one node, towards other nodes
    reduction_share: SourcedFigure | None = None  # all-reduce done in the switch: algorithm bandwidth over the rate
    traps: tuple[str, ...] = ()


class NetworkPort(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One NIC or port between nodes."""

    title: str
    family: Literal["infiniband", "efa", "roce", "tcpx", "slingshot", "omni-path", "tcp", "ici"]
    rate: SourcedFigure
    lanes: SourcedFigure | None = None
    lane_rate: SourcedFigure | None = None
    latency: SourcedFigure | None = None  # of the hardware, port to port
    hop_latency: SourcedFigure | None = None  # of one hop of a collective, software included
    attainable: SourcedFigure | None = None
    traps: tuple[str, ...] = ()

    @property
    def rate_bytes_per_s(self) -> float:
        """Rate of one port, per direction."""
        return self.rate.number


class Accelerator(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One accelerator: dense peaks by precision, memory, and the links it has."""

    title: str
    vendor: str
    architecture: str = ""  # what NCCL's and ROCm's dumps call it: "sm80", "gfx90a"
    link: str | None = None  # an interconnect, to its peers
    bridged: bool = False  # `link` is there only where a bridge was plugged, and never behind a switch
    host_link: str  # an interconnect: PCIe, to the host and to NICs
    peer_access: bool = True  # over PCIe; where the driver gives none what goes to a peer passes the host's memory
    cpu_link: str | None = None  # an interconnect, to the CPU where that is not PCIe (NVLink-C2C)
    memory: SourcedFigure  # as sold
    memory_shown: SourcedFigure | None = None  # total that the driver shows
    memory_rate: SourcedFigure
    flops: dict[str, SourcedFigure]
    aliases: tuple[str, ...] = ()  # names that drivers report
    shown_as: str | None = None  # the entry of one die, where drivers list each as a device of its own
    cores: SourcedFigure | None = None  # of which a framework may count each as a device, as torch-neuronx does
    pci_ids: tuple[str, ...] = ()  # "10de:2330", where the id means this variant alone
    traps: tuple[str, ...] = ()

    @property
    def memory_bytes(self) -> int:
        """Memory that the driver shows; as sold where that is not known."""
        return round(self.capacity.number)

    @property
    def capacity(self) -> SourcedFigure:
        """The figure behind `memory_bytes`, with its source."""
        return self.memory_shown or self.memory

    @property
    def peak_flops_per_s(self) -> dict[str, float]:
        """Dense peaks by precision."""
        return {precision: figure.number for precision, figure in self.flops.items()}


class NodeType(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One machine: its accelerators, the switch between them, the NICs of the compute fabric."""

    title: str
    accelerator: str
    gpus: SourcedFigure
    network: str | None = None
    nics: SourcedFigure | None = None
    no_network: str = ""  # why `network` and `nics` are missing: one such machine alone
    switch: str | None = None
    link: str | None = None  # an interconnect, where its accelerators have more links here than elsewhere
    peer_links: SourcedFigure | None = None  # most links to one peer, where the mesh is not all to all
    mesh: tuple[tuple[int, int, int], ...] = ()  # that mesh: (GPU, GPU, links)
    numa_nodes: SourcedFigure
    host_memory: SourcedFigure | None = None  # of its processors, together
    host_memory_rate: SourcedFigure | None = None
    part: bool = False  # a share of a machine, as clouds rent it: tells nothing of other machines with its accelerator
    aliases: tuple[str, ...] = ()  # what the cloud that rents it calls it
    fabric: str = "flat"  # of the catalogue, where nobody asks for another: chips of a TPU slice are a torus
    built_as: str = ""  # the fabric that joins these nodes where they stand, if it is known and not the one above
    most_nodes: SourcedFigure | None = None  # that such a fabric joins
    slice_rate: SourcedFigure | None = None  # of one such node towards other slices, over the network of its host
    slice_names: tuple[str, ...] = ()  # what comes before the number in the cloud's names of slices: "v5p-256"
    slice_name_counts: SourcedFigure | None = None  # what that number counts of one node: its cores, or 1
    scale_up_nodes: SourcedFigure | None = None  # nodes that one domain of the accelerators' own links spans
    traps: tuple[str, ...] = ()

    @property
    def ports(self) -> int:
        """NICs of one such machine; 0 where they are not documented."""
        return round(self.nics.number) if self.nics else 0


class FabricType(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How nodes are joined; the numbers are defaults that a user overrides."""

    title: str
    kind: Literal["flat", "fat-tree", "rail-optimised", "dragonfly", "torus"]
    source: str
    nodes_per_leaf: int = 1
    leaves_per_group: int = 1
    oversubscription: float = 1.0
    dimensions: int = 1


class Trap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A published statement that misleads, and what is right."""

    name: str
    claim: str
    truth: str
