"""EmulationSpec: what cluster to put into the box; addresses, names and the wiring that follow from it."""

from typing import Literal

import msgspec

from ...errors import InputError
from ..graph import Cluster, Device, Host, Link

Topology = Literal["star", "fat-tree"]

INTERFACE = "eth0"  # of every node
SWITCH = "switch"  # the one switch of a star
SPINE = "spine"
MASTER_PORT = 29500  # always free: each node has its own ports
MAX_NODES = 200
MAX_RATE_BYTES_PER_S = 2**32 - 1  # tbf's counter has 32 bits


class EmulationSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Nodes, ranks and rates (per direction). `None` for a rate leaves that link as fast as the machine is."""

    nodes: int
    ranks_per_node: int = 1
    nic_bytes_per_s: float | None = None
    intra_bytes_per_s: float | None = None  # inside a node: its loopback, all of its ranks together
    topology: Topology = "star"
    nodes_per_leaf: int = 2  # fat-tree only
    oversubscription: float = 1.0  # fat-tree only: what a leaf's nodes can send over what its uplink carries
    mtu: int = 9000
    shm_bytes: int | None = None  # size of a node's /dev/shm; None: the kernel's default, half the memory

    def __post_init__(self) -> None:
        """Refuse what cannot be built, naming the field."""
        if not 1 <= self.nodes <= MAX_NODES:
            raise InputError(f"nodes: {self.nodes}; expected 1 to {MAX_NODES}")
        if not 1 <= self.ranks_per_node <= 1024:
            raise InputError(f"ranks_per_node: {self.ranks_per_node}; expected 1 to 1024")
        for name in ("nic_bytes_per_s", "intra_bytes_per_s"):
            rate = getattr(self, name)
            if rate is not None and not 1000 <= rate <= MAX_RATE_BYTES_PER_S:
                raise InputError(
                    f"{name}: {rate:g}; expected 8 kb/s to 34 Gb/s, or no rate at all for an unshaped link"
                )
        if self.topology == "star" and (self.oversubscription != 1.0):
            raise InputError("oversubscription: a star has no uplinks; expected topology fat-tree")
        if not 1.0 <= self.oversubscription <= 64:
            raise InputError(f"oversubscription: {self.oversubscription:g}; expected 1 to 64")
        if self.nodes_per_leaf < 1:
            raise InputError(f"nodes_per_leaf: {self.nodes_per_leaf}; expected at least 1")
        if not 1280 <= self.mtu <= 65000:
            raise InputError(f"mtu: {self.mtu}; expected 1280 to 65000")
        if self.oversubscription > 1 and self.nic_bytes_per_s is None:
            raise InputError("oversubscription: needs a rate of the NICs to divide")

    @property
    def world_size(self) -> int:
        """Number of ranks of the whole cluster."""
        return self.nodes * self.ranks_per_node


class Cable(msgspec.Struct, frozen=True, kw_only=True):
    """One cable with a rate each way: from a node, or from a switch, up to a switch."""

    name: str  # what a fault calls it: "node3", or "leaf1" for that leaf's uplink
    node: int | None  # the node whose eth0 is the lower end; None for an uplink
    lower_switch: str | None  # for an uplink: the leaf
    upper_switch: str
    rate_bytes_per_s: float | None


def node_name(node: int) -> str:
    """Return the host name of a node."""
    return f"node{node}"


def wires(spec: EmulationSpec) -> tuple[Cable, ...]:
    """Return every cable of the cluster: one a node, and in a fat-tree one uplink a leaf.

    The uplink stands for all parallel cables of a leaf: nodes_per_leaf x NIC rate / oversubscription.
    """
    rate = spec.nic_bytes_per_s
    if spec.topology == "star":
        return tuple(_cable(node, SWITCH, rate) for node in range(spec.nodes))
    down = tuple(_cable(node, f"leaf{node // spec.nodes_per_leaf}", rate) for node in range(spec.nodes))
    uplink = None if rate is None else rate * spec.nodes_per_leaf / spec.oversubscription
    leaves = dict.fromkeys(wire.upper_switch for wire in down)
    up = (
        Cable(name=leaf, node=None, lower_switch=leaf, upper_switch=SPINE, rate_bytes_per_s=uplink) for leaf in leaves
    )
    return (*down, *up)


def switches(spec: EmulationSpec) -> tuple[str, ...]:
    """Return the names of the switches that the wires need."""
    found = {name: None for wire in wires(spec) for name in (wire.lower_switch, wire.upper_switch) if name}
    return tuple(found)


def _switches_above(spec: EmulationSpec, node: int) -> tuple[str, ...]:
    """Return the switches above a node, the highest first."""
    above = {wire.node if wire.node is not None else wire.lower_switch: wire.upper_switch for wire in wires(spec)}
    chain = [above[node]]
    while chain[-1] in above:
        chain.append(above[chain[-1]])
    return tuple(reversed(chain))


def subnet(owner_pid: int) -> str:
    """Return the first three bytes of an emulation's addresses, other ones for other owners (10.64.0 to 10.191.255)."""
    return f"10.{64 + (owner_pid >> 8) % 128}.{owner_pid % 256}"


def address(owner_pid: int, node: int) -> str:
    """Return the IPv4 address of a node's eth0."""
    return f"{subnet(owner_pid)}.{node + 1}"


def hosts_file(spec: EmulationSpec, owner_pid: int) -> str:
    """Return the /etc/hosts that every node sees: each name leads to the address on the emulated network."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    lines += [f"{address(owner_pid, node)} {node_name(node)}" for node in range(spec.nodes)]
    return "\n".join(lines) + "\n"


def default_variables(spec: EmulationSpec) -> dict[str, str]:
    """Return the variables that programs get unless the caller has set them: one thread a rank, as torchrun does."""
    return {"OMP_NUM_THREADS": "1"} if spec.ranks_per_node > 1 else {}


def node_environment(spec: EmulationSpec, owner_pid: int, node: int) -> dict[str, str]:
    """Return the variables of one command a node: rendezvous, interface, host, and torchrun's own defaults (PET_*)."""
    master = address(owner_pid, 0)
    return {
        "MASTER_ADDR": master,
        "MASTER_PORT": str(MASTER_PORT),
        "NODE_RANK": str(node),
        "GROUP_RANK": str(node),
        "NNODES": str(spec.nodes),
        "GLOO_SOCKET_IFNAME": INTERFACE,
        "TP_SOCKET_IFNAME": INTERFACE,
        "NCCL_SOCKET_IFNAME": INTERFACE,
        "MESHWRIGHT_HOST": node_name(node),
        "MESHWRIGHT_SWITCHES": ".".join(_switches_above(spec, node)),
        "MESHWRIGHT_EMULATION": str(owner_pid),
        "PET_NNODES": str(spec.nodes),
        "PET_NPROC_PER_NODE": str(spec.ranks_per_node),
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{master}:{MASTER_PORT}",
        "PET_RDZV_ID": str(owner_pid),
        "PET_RDZV_CONF": f"is_host={int(node == 0)}",
        "PET_LOCAL_ADDR": address(owner_pid, node),
    }


def rank_environment(spec: EmulationSpec, owner_pid: int, rank: int) -> dict[str, str]:
    """Return the variables of one rank, as torchrun sets them."""
    node, local_rank = divmod(rank, spec.ranks_per_node)
    shared = node_environment(spec, owner_pid, node)
    return {
        **{name: value for name, value in shared.items() if not name.startswith("PET_")},
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(spec.world_size),
        "LOCAL_WORLD_SIZE": str(spec.ranks_per_node),
        "GROUP_WORLD_SIZE": str(spec.nodes),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(spec.world_size),
    }


def cluster_of(spec: EmulationSpec, *, cores: int, memory_bytes: int) -> Cluster:
    """Return the emulated machines and links as a Cluster, every node with the cores and memory of the real one."""
    nodes = range(spec.nodes)
    rates = {wire.name: wire.rate_bytes_per_s for wire in wires(spec) if wire.lower_switch is None}
    nics = tuple(
        Device(
            id=f"{node_name(n)}/NIC0",
            kind="nic",
            node=node_name(n),
            model="emulated",
            network_bandwidth_bytes_per_s=rates[node_name(n)],
        )
        for n in nodes
    )
    cpus = tuple(Device(id=f"{node_name(n)}/CPU0", kind="cpu", node=node_name(n), numa=0, cores=cores) for n in nodes)
    boxes = tuple(Device(id=name, kind="switch") for name in switches(spec))
    inner = tuple(
        Link(
            a=f"{node_name(n)}/CPU0",
            b=f"{node_name(n)}/NIC0",
            kind="loopback",
            bandwidth_bytes_per_s=spec.intra_bytes_per_s,
        )
        for n in nodes
    )
    cables = tuple(
        Link(
            a=wire.lower_switch or f"{wire.name}/NIC0",
            b=wire.upper_switch,
            kind="ethernet",
            bandwidth_bytes_per_s=wire.rate_bytes_per_s,
        )
        for wire in wires(spec)
    )
    return Cluster(
        name=f"emulated-{spec.topology}-{spec.nodes}x{spec.ranks_per_node}",
        hosts=tuple(Host(name=node_name(n), cores=cores, memory_bytes=memory_bytes) for n in nodes),
        devices=(*cpus, *nics, *boxes),
        links=(*inner, *cables),
        warnings=("all nodes share the cores and memory of one machine",) if spec.nodes > 1 else (),
    )


def _cable(node: int, switch: str, rate: float | None) -> Cable:
    return Cable(name=node_name(node), node=node, lower_switch=None, upper_switch=switch, rate_bytes_per_s=rate)
