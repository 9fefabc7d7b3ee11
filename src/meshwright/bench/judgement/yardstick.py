"""The rate that NCCL attains on the links of a table's collective, as the yardstick of a verdict.

Inside a node the limit is a ring over each GPU's links, or the switch's own sum (NVLS). Between nodes a ring uses all
NICs of a node; between two nodes trees and NVLSTree send half as much as a ring. In an all-to-all over N nodes each
rank has its share of the NICs for the traffic to other nodes: N/(N-1) of that share as bus bandwidth. A send/receive
uses one NIC, the root of a gather or scatter its own. A single GPU of a node is limited by its PCIe link, however many
NICs there are; with NVLink between GPU and CPU (GH200) it reaches all NICs. Cards in PCIe slots reach through the CPU
half the rate of a PCIe switch; no table says which of the two they have. Bridges count only where the rate shows them.
"""

import math
from collections.abc import Sequence

import msgspec

from ...errors import InputError
from ...hardware import Catalogue, Interconnect, NetworkPort, NodeType
from ...hardware.arithmetic import PCIE3_BYTES_PER_S, PCIE3_NICS_SHARE
from ...units import format_rate
from ..reading.tables import ReadTable
from ..table import COUNTED
from .explain import attainable_bytes_per_s
from .named_link import NamedLink, named_link, nic_bytes_per_s
from .settings import leaves_the_rack, nics_named

# GB/s of bus bandwidth that NCCL's maintainers call right for large messages on 8 GPUs of a node, beside the rate
# per direction (nccl-tests issues 149 and 212): 230 of 300, 370 of 450 by ring, 475 to 480 in the switch
RING_SHARE = {"nvlink-3": 230 / 300, "nvlink-4": 370 / 450}
IN_SWITCH_SHARE = {"nvlink-4": 480 / 450}
OWN_SHARE = ("all_to_all", "gather", "scatter")  # of the NICs: a rank's own

# of PCIe's rate: 6 GB/s through a CPU and 12 through a PCIe switch on PCIe 3, twice that on PCIe 4 (nccl issue 766)
PCIE_CPU_SHARE, PCIE_SWITCH_SHARE = 6 / 16, 12 / 16

# of what the NICs carry, when every rank sends to every other: 49 of 54 GB/s over eight nodes (nccl issue 1531) and
# 20.7 of 22.5 over two (1138) are as good as it gets
ALL_TO_ALL_SHARE = 0.9


class TableLinks(msgspec.Struct, frozen=True, kw_only=True):
    """The links of the ranks of a table, as far as file and options say."""

    link_key: str | None = None
    link: Interconnect | None = None  # between GPUs of a node
    is_switched: bool = True
    reduces_in_switch: float | None = None  # the switch's share, where it can
    bridge: Interconnect | None = None  # that a card in a slot may have
    host_bytes_per_s: float | None = None  # attainable by one GPU over PCIe
    cpu_bytes_per_s: float | None = None  # attainable by one GPU over NVLink to its CPU
    nic: NamedLink | None = None
    nics: int | None = None
    nics_said: bool = False  # by an option or the command, not assumed
    gpus: int | None = None  # of a node
    domain: int | None = None  # GPUs that share links of their own
    assumed: str = ""  # what no option said: the node type that the GPUs suggest, or the text names
    is_named: bool = False  # the text names it


class Attainable(msgspec.Struct, frozen=True, kw_only=True):
    """Bus bandwidth to expect."""

    least_bytes_per_s: float  # what the plain algorithm reaches
    most_bytes_per_s: float  # what the best one reaches
    of: str  # the links, in words
    link_bytes_per_s: float = 0.0  # of a GPU's own links inside a node
    hosts: int = 1  # that these links join
    limit_bytes_per_s: float = 0.0  # what the links' own rate allows the best one; 0 where that is not known
    most_of: str = ""  # what bounds the best one, where that is another thing than bounds the plain one
    crosses: bool = False  # leaves the node
    needs_nics: bool = False  # the number of NICs was assumed
    nics: int = 1  # of a node, that its ranks use
    is_ring: bool = True  # the least is what a ring reaches; else what goes through a rank's share
    shared_by_unknown: bool = False  # how many ranks share the NICs is not known: a NIC each was taken
    in_slots: bool = False  # cards in PCIe slots: the least through the CPU, the most through a switch or bridges
    unclear: tuple[float, float] | None = None  # rates between these are neither PCIe's nor those of all bridges

    @property
    def of_links(self) -> str:
        """The links in words, those of GPUs with their rate and the hosts that they join."""
        rate = f", {format_rate(self.link_bytes_per_s)} per direction" if self.link_bytes_per_s else ""
        return f"{self.of}{rate}" + (f", which joins all {self.hosts} hosts" if self.hosts > 1 else "")

    def share_of_limit(self, rate_bytes_per_s: float) -> str:
        """Return which share a rate is of what the NICs' own rate allows, in words, "" where that is not known."""
        share = f"{100 * rate_bytes_per_s / self.limit_bytes_per_s:.0f} %" if self.limit_bytes_per_s else ""
        return f" ({share} of the {format_rate(self.limit_bytes_per_s)} that their own rate allows)" if share else ""

    def at_most(self, rate_bytes_per_s: float) -> str:
        """Return that a rate is the most of the best algorithm and what bounds it, in words, "" for the plain one's."""
        is_most = self.most_of and rate_bytes_per_s > self.least_bytes_per_s
        return f" at most by {self.most_of}" if is_most else ""


def table_links(
    catalogue: Catalogue,
    table: ReadTable,
    node: str | None,
    link: str | None,
    nics: int | None,
    nodes: TableLinks | None = None,
) -> TableLinks | None:
    """Return the machine by the options (`nodes` of a cluster), else by the GPUs of the file; None where none tells."""
    accelerator = None if node or nodes else _accelerator_of(catalogue, table.devices)
    named_node = _named_node(catalogue, table) if node is None and nodes is None else None
    kind = node or named_node
    if kind is None and nodes is None:
        kind = _node_of(catalogue, accelerator, table.ranks_per_node)
    named_by = named_link(catalogue, link) if link else None
    own = named_by.link if named_by else None
    network = named_by if named_by and own is None else None
    if nics is not None and kind is None and network is None and nodes is None:
        raise InputError("--nics: of which kind? expected --link with a NIC of the catalogue, --node or --cluster")
    of_node = None if kind is None else _of_node(catalogue, catalogue.node(kind), accelerator)
    machine = nodes or of_node or links_of_card(catalogue, accelerator)
    if kind is None and nodes is None and network is None and own is None and machine.link is None:
        return None
    changes: dict[str, object] = {}
    if network is not None:
        said = nics or (nodes.nics if nodes else None)
        changes |= {"nic": network, "nics": said or 1, "nics_said": said is not None}
    elif nics is not None:
        changes |= {"nics": nics, "nics_said": True}
    if own is not None and link is not None:
        changes |= {"link_key": link, "link": own, "reduces_in_switch": None, "bridge": None}
    if not node and kind and network is None and own is None:
        changes |= {"assumed": kind, "is_named": named_node is not None}
    changes |= _said_by_table(table, machine) if nics is None else {}
    if leaves_the_rack(table.settings):
        changes |= {"domain": machine.gpus}
    return msgspec.structs.replace(machine, **changes)


def other_gpus(catalogue: Catalogue, table: ReadTable, node: str) -> str:
    """Return that the GPUs of a table have other links than those of a node type, in words; "" where they have not."""
    accelerator, named = _accelerator_of(catalogue, table.devices), catalogue.node(node).accelerator
    as_listed = catalogue.accelerators[named].shown_as or named
    if accelerator is None or catalogue.accelerators[accelerator].link == catalogue.accelerators[as_listed].link:
        return ""
    return f"the table's GPUs are {table.devices[0]}, those of --node {node} are {named}, with other links"


def link_of_devices(catalogue: Catalogue, table: ReadTable) -> str | None:
    """Return the link between the GPUs of a matrix of peers, where all are of a kind that has a switch between them.

    Of copies between GPUs and their hosts it is the link to the host.
    """
    accelerator = _accelerator_of(catalogue, table.devices)
    if table.host and accelerator is not None:
        return catalogue.accelerators[accelerator].cpu_link or catalogue.accelerators[accelerator].host_link
    if not table.peers:
        return None
    kind = _node_of(catalogue, accelerator, len(table.devices) or None)
    if accelerator is None or kind is None or not catalogue.node(kind).switch:
        return None
    return catalogue.accelerators[accelerator].link


def _said_by_table(table: ReadTable, machine: TableLinks) -> dict[str, object]:
    """Return the number of NICs that the command names, else of those in NCCL's log."""
    named = nics_named(table.settings)
    if named and machine.nics:
        return {"nics": min(named, machine.nics), "nics_said": True}
    return {"nics": table.path.nics, "nics_said": True} if table.path.nics else {}


def _named_node(catalogue: Catalogue, table: ReadTable) -> str | None:
    """Return the node type of the only instance type that the text names, None where its GPUs are others."""
    named = [key for key, node in catalogue.nodes.items() if node.title.split()[-1].lower() in table.instances]
    if len(named) != 1 or len(table.instances) != 1:
        return None
    accelerator = _accelerator_of(catalogue, table.devices)
    return named[0] if accelerator in {None, catalogue.nodes[named[0]].accelerator} else None


def _accelerator_of(catalogue: Catalogue, devices: Sequence[str]) -> str | None:
    """Return the accelerator that all ranks have, one die of a card with several; None for unknown or mixed ones."""
    if len(set(devices)) != 1:
        return None
    known = catalogue.accelerators.items()
    return next((one.shown_as or key for key, one in known if devices[0] in {one.title, *one.aliases}), None)


def _node_of(catalogue: Catalogue, accelerator: str | None, per_node: int | None) -> str | None:
    """Return the plainest node type with this accelerator, else with one of its architecture and links of its own."""
    if accelerator is None:
        return None
    known = catalogue.accelerators
    own = known[accelerator]
    same = [name for name, node in catalogue.whole_nodes.items() if node.accelerator == accelerator]
    alike = [
        name for name, node in catalogue.whole_nodes.items()
        if own.link and known[node.accelerator].link and own.architecture
        and known[node.accelerator].architecture == own.architecture
        and own.bridged == known[node.accelerator].bridged  # a card may have a bridge, or none
        and not known[node.accelerator].shown_as  # whole cards: how the dies of a host are joined is said by none
    ]  # fmt: skip
    for names in (same, alike):
        equal = [name for name in names if catalogue.nodes[name].gpus.number == per_node]
        if equal or names:
            return (equal or names)[0]
    return None


def links_of_card(catalogue: Catalogue, accelerator_key: str | None) -> TableLinks:
    """Return what is known of cards in the slots of some host: PCIe, perhaps bridges; nothing of other accelerators."""
    accelerator = catalogue.accelerators[accelerator_key] if accelerator_key else None
    if accelerator is None or (accelerator.link and not accelerator.bridged):
        return TableLinks()
    slot = catalogue.interconnect(accelerator.host_link)
    return TableLinks(
        link_key=accelerator.host_link,
        link=slot,
        bridge=catalogue.interconnect(accelerator.link) if accelerator.link else None,
        host_bytes_per_s=attainable_bytes_per_s(slot),
    )


def _of_node(catalogue: Catalogue, node: NodeType, accelerator_key: str | None) -> TableLinks:
    accelerator = catalogue.accelerators[accelerator_key or node.accelerator]
    switch = catalogue.switches[node.switch] if node.switch else None
    network = catalogue.network(node.network) if node.network else None
    gpus = round(node.gpus.number)
    return TableLinks(
        link_key=accelerator.link or accelerator.host_link,
        link=catalogue.interconnect(accelerator.link or accelerator.host_link),
        is_switched=switch is not None,
        reduces_in_switch=switch.reduction_share.number if switch and switch.reduction_share else None,
        host_bytes_per_s=attainable_bytes_per_s(catalogue.interconnect(accelerator.host_link)),
        cpu_bytes_per_s=(
            attainable_bytes_per_s(catalogue.interconnect(accelerator.cpu_link)) if accelerator.cpu_link else None
        ),
        nic=_nic_of_several(network, catalogue.interconnect(accelerator.host_link), node.ports) if network else None,
        nics=node.ports or None,
        gpus=gpus,
        domain=gpus * (round(node.scale_up_nodes.number) if node.scale_up_nodes else 1),
    )


def _nic_of_several(network: NetworkPort, slot: Interconnect, nics: int) -> NamedLink:
    """Return one of the NICs of a host, with what it carries while all do."""
    old = nics > 1 and slot.rate_bytes_per_s < PCIE3_BYTES_PER_S
    most = PCIE3_NICS_SHARE * network.rate_bytes_per_s if old else math.inf
    return NamedLink(
        title=network.title,
        rate_bytes_per_s=network.rate_bytes_per_s,
        attainable_bytes_per_s=min(nic_bytes_per_s(network), most),
        family=network.family,
    )


def attainable(table: ReadTable, machine: TableLinks, over_network: bool = False) -> Attainable | None:
    """Return what the table's collective reaches there; None where hosts, ranks or links are not known."""
    ranks, collective = table.ranks, table.collective
    if ranks is None or ranks < 2 or collective not in COUNTED:
        return None
    nodes = table.nodes or (-(-ranks // machine.domain) if machine.domain else None)
    per_node = table.ranks_per_node or (min(ranks, machine.gpus) if machine.gpus and table.nodes is None else None)
    if nodes is not None and machine.domain and ranks <= machine.domain and machine.domain > (machine.gpus or 0):
        nodes, per_node = 1, ranks  # one domain of links spans several hosts
    elif nodes is not None and machine.domain and machine.gpus and machine.nics and machine.domain > machine.gpus:
        # what leaves a domain leaves through the NICs of all its hosts: to the algorithm it is one node
        nodes = -(-ranks // machine.domain)
        per_node = -(-ranks // nodes)
        hosts = -(-per_node // machine.gpus)
        machine = msgspec.structs.replace(machine, nics=machine.nics * hosts, gpus=machine.gpus * hosts)
    if over_network and (nodes is None or (table.nodes is None and machine.gpus is None)):
        nodes, per_node = (2, 1) if ranks == 2 else (0, None)  # two ranks that a network joins have a host each
    on_node = per_node or (ranks if nodes == 1 else None)
    if on_node and machine.gpus and on_node > max(machine.gpus, machine.domain or 0):
        return None  # more ranks on a host than this type has GPUs: it is another one
    if nodes == 1:
        inside = _inside(machine, collective, ranks)
        return msgspec.structs.replace(inside, hosts=table.nodes or 1) if inside else None
    if machine.nic is None or machine.nics is None or nodes is None:
        return None
    return _between(machine, collective, ranks, nodes, per_node)


def _inside(machine: TableLinks, collective: str, ranks: int) -> Attainable | None:
    if machine.link is None or machine.link_key is None:
        return None
    if machine.link.kind == "pcie":
        return _in_slots(machine, machine.link, ranks)
    rate = machine.link.rate_bytes_per_s
    share = RING_SHARE.get(machine.link_key)
    ring = share * rate if share else attainable_bytes_per_s(machine.link)
    if machine.gpus and not machine.is_switched:  # links that join pairs of GPUs: those to the others stay idle
        ring, rate = (one * (ranks - 1) / (machine.gpus - 1) for one in (ring, rate))
    most = _in_switch(machine, ranks) if collective == "all_reduce" else None
    return Attainable(
        least_bytes_per_s=ring,
        most_bytes_per_s=max(ring, most or 0.0),
        of=machine.link.title,
        link_bytes_per_s=rate,
        limit_bytes_per_s=max(rate, most or 0.0),
    )


def _in_slots(machine: TableLinks, slot: Interconnect, ranks: int) -> Attainable:
    """Return what cards in PCIe slots reach: more than a switch's share only a pair that has bridges."""
    through_cpu = PCIE_CPU_SHARE * slot.rate_bytes_per_s
    most = PCIE_SWITCH_SHARE * slot.rate_bytes_per_s
    of = f"{slot.title}: {format_rate(through_cpu)} through the CPU, {format_rate(most)} through a PCIe switch"
    if machine.bridge is None or ranks > 2:
        return Attainable(least_bytes_per_s=through_cpu, most_bytes_per_s=most, of=of, in_slots=True)
    bridged = attainable_bytes_per_s(machine.bridge)
    return Attainable(
        least_bytes_per_s=through_cpu,
        most_bytes_per_s=bridged,
        of=f"{of}, {format_rate(bridged)} by {machine.bridge.title}",
        in_slots=True,
        unclear=(most, bridged),
    )


def _in_switch(machine: TableLinks, ranks: int) -> float | None:
    if machine.reduces_in_switch is None or machine.link is None or machine.link_key is None:
        return None
    rate, factor = machine.link.rate_bytes_per_s, 2 * (ranks - 1) / ranks
    share = IN_SWITCH_SHARE.get(machine.link_key)
    return rate * factor * (share / 1.75 if share else machine.reduces_in_switch)


def _between(machine: TableLinks, collective: str, ranks: int, nodes: int, per_node: int | None) -> Attainable | None:
    assert machine.nic is not None
    assert machine.nics is not None
    one, count = machine.nic.attainable_bytes_per_s, machine.nics
    if per_node == 1 and machine.cpu_bytes_per_s:
        words = f"one GPU a node, with NVLink to its CPU: {count} x {machine.nic.title}"
        return _across(machine, min(one * count, machine.cpu_bytes_per_s), words, nics=count)
    if per_node == 1:
        words = f"one GPU a node: its own PCIe and the NIC next to it, {machine.nic.title}"
        return _across(machine, min(one, machine.host_bytes_per_s or one), words)
    inside = _inside(machine, collective, per_node or ranks)
    if per_node and machine.gpus and per_node < machine.gpus and not (machine.nics_said and count <= per_node):
        count = max(1, count * per_node // machine.gpus)
    together, own = one * count, machine.nic.rate_bytes_per_s / one
    name = f"{count} x {machine.nic.title}" if count > 1 else machine.nic.title
    if collective == "sendrecv":  # each rank sends to the next: one of a node leaves it
        return _across(machine, one, f"one NIC, {machine.nic.title}", is_ring=False, limit=one * own)
    if collective in OWN_SHARE:
        return _own_share(machine, collective, ranks, per_node, count, inside)
    ring = min(together, inside.least_bytes_per_s) if inside else together
    most, most_of = ring, ""
    limit = own * together
    if collective == "all_reduce" and nodes > 1:
        # a hierarchical algorithm (trees, NVLSTree) sends 2(N-1)/N of the bytes out of a node, a ring 2(n-1)/n
        fewer = (1 - 1 / ranks) / (1 - 1 / nodes)
        most = max(ring, min(together * fewer, inside.most_bytes_per_s if inside else together * fewer))
        is_inside = inside is not None and most < together * fewer
        most_of = f"trees, which {inside.of} bounds and not the NICs" if inside and is_inside else "trees"
        limit *= fewer
    limit = min(limit, max(inside.limit_bytes_per_s, most)) if inside and inside.limit_bytes_per_s else limit
    name = f"{inside.of} inside a node, which bounds it, and {name}" if inside and ring < together else name
    return msgspec.structs.replace(_across(machine, ring, name, most, nics=count, limit=limit), most_of=most_of)


def _own_share(
    machine: TableLinks, collective: str, ranks: int, per_node: int | None, count: int, inside: Attainable | None
) -> Attainable | None:
    """Return what a rank's share of the NICs allows; None where nothing says how many ranks share a host's only one."""
    assert machine.nic is not None
    one = machine.nic.attainable_bytes_per_s
    together, own = one * count, machine.nic.rate_bytes_per_s / one
    name = f"{count} x {machine.nic.title}" if count > 1 else machine.nic.title
    is_open = collective == "all_to_all" and per_node is None  # how many ranks share the NICs decides it
    if is_open and count == 1:
        return None
    at_once = max(1, min(per_node or count, machine.gpus or per_node or count))
    # of the n - 1 shares that busbw counts only those of other nodes cross the NIC: of two nodes about half
    beside = ((ranks - 1) / (ranks - per_node)) if per_node and per_node < ranks else 1.0
    share = ALL_TO_ALL_SHARE * together / at_once if collective == "all_to_all" else one  # else the root's alone
    limit = share * beside * own / (ALL_TO_ALL_SHARE if collective == "all_to_all" else 1)
    limit *= 2 if is_open else 1  # of two nodes half of the parts stay inside
    is_inside = inside is not None and inside.least_bytes_per_s < share * beside
    share = inside.least_bytes_per_s if inside and is_inside else share * beside
    of = f"a rank's share of {name}{_parts_that_leave(collective, ranks, per_node)}"
    limit = inside.limit_bytes_per_s if inside and is_inside else limit
    found = _across(machine, share, of, is_ring=False, limit=limit)
    return msgspec.structs.replace(found, shared_by_unknown=is_open)


def _parts_that_leave(collective: str, ranks: int, per_node: int | None) -> str:
    """Return how many of a rank's parts in an all-to-all leave its node, in words, "" where that is not known."""
    if collective != "all_to_all" or not per_node or per_node >= ranks:
        return ""
    return f", over which {ranks - per_node} of {ranks} parts go"


def _across(
    machine: TableLinks,
    least: float,
    of: str,
    most: float | None = None,
    *,
    nics: int = 1,
    is_ring: bool = True,
    limit: float = 0.0,
) -> Attainable:
    return Attainable(
        least_bytes_per_s=least,
        most_bytes_per_s=least if most is None else most,
        of=of,
        limit_bytes_per_s=limit,
        crosses=True,
        needs_nics=bool(machine.assumed) and not machine.is_named and not machine.nics_said,
        nics=nics,
        is_ring=is_ring,
    )
