"""How long NCCL takes for one collective, alone on the links: the planner's own formulas, and what they were fitted to.

Inside a domain of GPU links a ring, or the switch's own sum (NVLS) where it can add up; over nodes a ring, or a tree
(NVLSTree) where that is faster. The planner's share of the NICs is that of training, where other traffic shares them;
alone a collective reaches more. The protocol is what NCCL picks at such sizes: LL where the start counts, LL128 on
NVLink until the links fill, Simple from there on.
"""

import functools

import msgspec
import numpy as np
from msgspec.structs import replace

from ...cluster.graph import Cluster, Fabric, NodeGroup
from ...collectives.pricing.figures import bus_factor
from ...errors import InputError, nearest
from ...hardware.arithmetic import PCIE3_BYTES_PER_S, PCIE3_NICS_SHARE
from ...units import counted
from ..analytic.coefficients import Coefficients, book, coefficients
from ..analytic.collective import AxisPlacement, all_reduce_s, all_reduce_ways_s, all_to_all_s, gather_s, span
from ..analytic.measured import IDLE_SHARE, on_measured_links, with_switch
from ..analytic.price import node_group_of
from ..analytic.quantities import Machine

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
# exponent of (ranks - 1) / 7 for starts of fewer than eight ranks: in a training step they hide behind computation,
# alone two GPUs take 8 us for what eight take 13 us
ALONE_GROUP = 0.25
PEER_S = 1.5e-6  # of an all-to-all, a further peer on another node (h800_a2a)
TCP_SHARE = 0.8  # of the NICs' rate, 10 of 12.5 GB/s
LL_BYTES = 2**16  # up to here NCCL sends 8-byte words with flags
FITTED_ON = (
    *("h100x8_dgxc", "p5_1n", "mle_h200x8", "8 x A100", "72 x GB200"),  # inside a domain of links
    *("p4de_2n", "mle_4n_unknown", "h100_16n_small", "p6b200_2n", "dgx2_256", "h800_a2a"),  # over nodes
)
KNOWN_DEVICES = {"a100", "h100", "h100-500w"}  # whose curves inside a node are among these
BAND, WIDE_BAND = 0.3, 0.6  # relative; nine in ten sizes from 1 MiB of the published tables are within the first
# Over more than two domains of several hosts each NCCL runs a ring through all GPUs, or a tree where that starts
# sooner. From the only table that is public, 20 racks of GB200 (coreweave/nccl-tests pull request 48): a step from GPU
# to GPU (NCCL's own model has 1.9 us of LL128 over NVLink), the ring's share of a GPU's links, and what a tree reaches
# at most, or it would have been faster at 512 MiB. All four sizes are within 2 % of it.
RACK_STEP_S, RACK_RING_SHARE, RACK_TREE_BYTES_PER_S = 1.6e-6, 0.465, 75e9


class NcclTime(msgspec.Struct, frozen=True, kw_only=True):
    """The predicted time of one collective of `bytes` bytes, as nccl-tests count them."""

    collective: str
    library: str
    ranks: int
    bytes: int
    time_s: float
    algorithm: str
    protocol: str
    error_band: float  # relative
    fitted_on: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def algbw_bytes_per_s(self) -> float:
        """Payload over time."""
        return self.bytes / self.time_s if self.time_s else 0.0

    @property
    def busbw_bytes_per_s(self) -> float:
        """Bus bandwidth as nccl-tests define it."""
        return self.algbw_bytes_per_s * bus_factor(self.collective, self.ranks)

    def wire_form(self) -> dict[str, object]:
        """Return the object that `collectives price --like nccl --json` prints."""
        return {
            "collective": self.collective, "library": self.library, "ranks": self.ranks, "bytes": self.bytes,
            "time_us": self.time_s * 1e6, "algbw_GBps": self.algbw_bytes_per_s / 1e9,
            "busbw_GBps": self.busbw_bytes_per_s / 1e9, "algorithm": self.algorithm, "protocol": self.protocol,
            "error_band": self.error_band, "fitted_on": self.fitted_on, "notes": self.notes,
        }  # fmt: skip


def nccl_price(cluster: Cluster, collective: str, size_bytes: int, ranks: int, library: str = "nccl") -> NcclTime:
    """Return NCCL's time on the first `ranks` GPUs of a cluster; InputError for what it does not have."""
    if collective not in COLLECTIVES:
        raise InputError(f"--collective {collective}: {library}'s time is known of {nearest(collective, COLLECTIVES)}")
    if size_bytes < 1 or ranks < 1:
        raise InputError(f"{counted(size_bytes, 'byte')} on {counted(ranks, 'rank')}: expected 1 or more of both")
    group = node_group_of(cluster)
    if ranks > group.count * group.gpus:
        raise InputError(f"--ranks {ranks}: {cluster.name} has {counted(group.count * group.gpus, 'GPU')}")
    machine, c = _machine(cluster, group, ranks), _coefficients(cluster, group, ranks)
    over = span(machine, c, float(ranks), 1.0)
    size = float(size_bytes)
    if collective == "all_reduce":
        time_s = float(all_reduce_s(c, over, size))
    elif collective == "all_to_all":
        time_s = float(all_to_all_s(machine, c, over, size, peer_s=PEER_S))
    else:
        time_s = float(gather_s(c, over, size))
    algorithm, moved_s = _algorithm(c, over, collective, size)
    strange, many = _unmeasured(group, library), _many_racks(group, ranks)
    if many and collective != "all_to_all":
        racks_s, of_racks = _over_racks(group, collective, size, ranks)
        time_s, algorithm = (racks_s, of_racks) if racks_s > time_s else (time_s, algorithm)
    return NcclTime(
        collective=collective, library=library, ranks=ranks, bytes=size_bytes, time_s=time_s, algorithm=algorithm,
        protocol=_protocol(group, size_bytes, time_s, moved_s),
        error_band=WIDE_BAND if strange or many else BAND,
        fitted_on=FITTED_ON, notes=(*strange, *many),
    )  # fmt: skip


def _machine(cluster: Cluster, group: NodeGroup, ranks: int) -> Machine:
    """Return the links; what computes does not matter here."""
    fabric = cluster.fabric or Fabric()
    leaves = fabric.kind not in {"flat", "torus"}
    used = min(group.gpus, ranks)
    nics, (link_rate, peer_share) = group.node_bandwidth_bytes_per_s or np.inf, group.group_rates(used)
    return Machine(
        peak=np.nan, peak_half=np.nan, product_bytes=np.nan, memory_rate=np.nan, memory_bytes=np.nan,
        gpus_per_node=used, domain=group.gpus * group.scale_up_nodes, link_rate=link_rate,
        peer_share=peer_share, node_rate=nics * used / group.gpus,
        nodes_per_leaf=fabric.nodes_per_leaf if leaves else np.inf,
        oversubscription=fabric.oversubscription if leaves else 1.0, hop_latency_s=fabric.hop_latency_s,
        sides=fabric.sides if fabric.kind == "torus" else (), slice_rate=fabric.slice_bytes_per_s or np.inf,
    )  # fmt: skip


def _coefficients(cluster: Cluster, group: NodeGroup, ranks: int) -> Coefficients:
    c = with_switch(_of_device(group.gpu.model, group.nic_kind), group)
    idle = _network_share(c, group)
    c = replace(c, network=idle, small_group=ALONE_GROUP)
    return on_measured_links(c, _machine(cluster, group, ranks), cluster, links=True, network=True, idle=idle)


@functools.lru_cache(maxsize=64)  # a curve asks again for each size and each number of ranks
def _of_device(accelerator: str, fabric: str) -> Coefficients:
    return coefficients(book(), "", accelerator, "bf16", fabric)


def _network_share(c: Coefficients, group: NodeGroup) -> float:
    """Return the share of the NICs' rate that a collective alone on the network reaches."""
    if group.nic_kind == "tcp":
        return TCP_SHARE
    old = group.host_bandwidth_bytes_per_s is not None and group.host_bandwidth_bytes_per_s < PCIE3_BYTES_PER_S
    return PCIE3_NICS_SHARE if old else max(float(c.network), IDLE_SHARE)


def _algorithm(c: Coefficients, over: AxisPlacement, collective: str, size_bytes: float) -> tuple[str, float]:
    """Return the algorithm that is assumed, and the seconds in which it moves the bytes."""
    if collective == "all_to_all":
        return "point-to-point", np.inf
    if collective != "all_reduce":
        ranks = float(over.ranks)
        return "Ring", size_bytes * (ranks - 1.0) / ranks / float(over.rate)
    ring, other = (float(way) for way in all_reduce_ways_s(c, over, size_bytes))
    if ring <= other:
        return "Ring", ring
    in_switch = float(c.in_switch) > 1.0
    return (("NVLSTree" if in_switch else "Tree") if over.crosses else "NVLS"), other


def _protocol(group: NodeGroup, size_bytes: int, time_s: float, moved_s: float) -> str:
    if size_bytes <= LL_BYTES:
        return "LL"
    return "LL128" if moved_s < time_s / 2 and group.gpu_link.startswith("NV") else "Simple"


def _unmeasured(group: NodeGroup, library: str) -> tuple[str, ...]:
    """Return why the band is wider than that of what was measured."""
    device = book().device(group.gpu.model)[0]
    notes = () if device in KNOWN_DEVICES else (f"no sweep of {group.gpu.model} was fitted: starts are the H100's",)
    return (*notes, "no table of RCCL was fitted: NCCL's formulas on these links") if library == "rccl" else notes


def _many_racks(group: NodeGroup, ranks: int) -> tuple[str, ...]:
    """Return the word on more domains than were fitted, where each spans several hosts."""
    domains = ranks / (group.gpus * group.scale_up_nodes)
    if group.scale_up_nodes == 1 or domains <= 2:
        return ()
    return ("more than two racks: by the one table that is public, of 20 racks of GB200 from 512 MiB to 4 GiB",)


def _over_racks(group: NodeGroup, collective: str, size_bytes: float, ranks: int) -> tuple[float, str]:
    """Return the seconds over many racks, and the algorithm."""
    steps = (ranks - 1) * (2 if collective == "all_reduce" else 1)
    rate = RACK_RING_SHARE * group.gpu_bandwidth_bytes_per_s
    ring_s, tree_s = steps * RACK_STEP_S + size_bytes * steps / ranks / rate, size_bytes / RACK_TREE_BYTES_PER_S
    return (tree_s, "Tree") if collective == "all_reduce" and tree_s < ring_s else (ring_s, "Ring")
