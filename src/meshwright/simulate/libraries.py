"""Ways of NCCL and RCCL: their algorithm for a collective between nodes, beside one that somebody named.

They send rings through all NICs of a node at once, and post the messages of an all-to-all together.
"""

import msgspec

from ..collectives.catalogue import RINGS
from ..hardware import load_catalogue
from ..units import format_rate, format_time
from .collective import Simulated, simulate_collective
from .nodes import NodesTopology
from .problem import Costs, Disturbance
from .traffic import named_traffic

MOST_MESSAGES = 300_000  # of the distinct rounds of its way; more take longer than the question itself
WORTH = 1.05  # times as long as theirs, from which on theirs is named
VENDORS = {"nvidia": "NCCL", "amd": "RCCL"}
THEIRS = {**dict.fromkeys(RINGS, "rings"), "all_to_all": "linear"}
RINGS_THROUGH = "a ring for each GPU of a {place}, through all of its NICs"
RINGS_INSIDE = "a ring for each GPU, over the links of all pairs"
AT_ONCE = "all messages are posted at once"
ONE_RING = "one ring in the order of the ranks leaves each {place} by one NIC of {nics}"
IN_ROUNDS = "a round is over with its slowest message, one between nodes"
# of XLA's collectives: jax-ml/scaling-book, sharding.md (both ways round, and along several axes of a mesh at once)
OF_XLA = "rings along all dimensions of a torus at once, as XLA runs them: one in the order of the ranks takes longer"
ONE_LINK = "a round takes one of the links that each GPU has to its peers"


class LibraryWay(msgspec.Struct, frozen=True, kw_only=True):
    """The algorithm of a library in place of another one, and its time."""

    library: str
    algorithm: str
    how: str  # it goes about that
    why: str  # the named algorithm takes longer; "" where nothing is said of it
    time_s: float
    busbw_bytes_per_s: float

    @property
    def sentence(self) -> str:
        """Return it in words."""
        takes = f"{format_time(self.time_s)}, {format_rate(self.busbw_bytes_per_s)} busbw"
        why = f"{self.why}; " if self.why else ""
        return f"{why}{self.library}'s way is {self.algorithm} ({self.how}): {takes}"


def library_way(
    named: Simulated, topology: NodesTopology, *, costs: Costs | None = None, disturbance: Disturbance | None = None
) -> LibraryWay | None:
    """Return what the library of these GPUs would do in place of a named algorithm.

    None inside a node with a switch, where the two take as long, and where no such library or way of it is known; also
    above MOST_MESSAGES.
    """
    algorithm, group = THEIRS.get(named.collective), topology.groups[0]
    accelerator = load_catalogue().accelerators.get(group.gpu.model)
    library = VENDORS.get(accelerator.vendor) if accelerator else None
    per_node = topology.ranks_per_domain
    crosses = len(set(topology.domain_of.tolist())) > 1
    if library is None or algorithm is None or per_node is None or not (crosses or topology.links_join_pairs):
        return None
    traffic = named_traffic(named.collective, algorithm, named.ranks, ranks_per_node=per_node)
    if sum(len(pattern.src) for pattern in traffic.patterns) > MOST_MESSAGES:
        return None
    result = simulate_collective(traffic, topology, named.bytes, costs=costs, disturbance=disturbance).result
    if named.time_s < WORTH * result.time_s:
        return None
    place, nics = ("rack" if per_node > group.gpus else "node"), max(1, per_node // group.gpus) * group.nic_ports
    whys = {"ring": ONE_RING.format(place=place, nics=nics) if nics > 1 else "", "pairwise": IN_ROUNDS}
    why = whys.get(named.algorithm, "") if crosses else ONE_LINK if named.algorithm in whys else ""
    how = RINGS_THROUGH.format(place=place) if crosses else RINGS_INSIDE
    return LibraryWay(
        library=library,
        algorithm=algorithm,
        how=AT_ONCE if algorithm == "linear" else how,
        why=why,
        time_s=result.time_s,
        busbw_bytes_per_s=result.busbw_bytes_per_s,
    )
