"""Machines that the catalogue does not list, told by their accelerators alone: "4xRTX4090", "8xH100", "64xH100".

A number of machines may stand in a name too: "4xdgx-h100", "4 nodes of 8xH100".
"""

import re
from typing import NamedTuple

from msgspec.structs import replace

from ..errors import InputError
from ..units import counted
from .catalogue import Catalogue, is_family
from .figures import SourcedFigure
from .kinds import NodeType

_BEFORE = re.compile(r"(?P<count>\d{1,6})(?: ?[xX*\u00d7] ?| )(?P<cards>\S.*)")
_BEHIND = re.compile(r"(?P<cards>\S.*?) ?[xX*\u00d7:] ?(?P<count>\d{1,6})")  # with a colon as SLURM writes it
_NODES_BEFORE = re.compile(
    r"(?P<nodes>[1-9]\d{0,4})(?: ?[xX*\u00d7] ?| ?(?:nodes?|machines?) ?(?:of|with|[xX*\u00d7])? | )(?P<machine>\S.*)"
)
_NODES_BEHIND = re.compile(r"(?P<machine>\S.*?) ?(?:[xX*\u00d7]|(?P<colon>:)) ?(?P<nodes>[1-9]\d{0,4})(?: nodes?)?")
PER_MACHINE, MOST_CARDS = 8, 10  # of cards in a host, as is usual; and at most: Supermicro's SYS-420GP-TNR takes ten
NO_NETWORK = "the network between such machines is not known; `plan --inter RATE` says it, such as 25Gbps"


class MachineMeant(NamedTuple):
    """A name of the catalogue or of cards, the number of GPUs, and what is to be said where another name was given."""

    name: str
    gpus: int | None
    told: str = ""


def machine_meant(catalogue: Catalogue, name: str, gpus: int | None) -> MachineMeant:
    """Return what a name means that is no node type's: a cloud's slice, a number of nodes, or an accelerator alone.

    An accelerator means the one whole node type that has it, or with a number of GPUs as many cards in one machine.
    All other names stay as they are. InputError for a slice, or a number of nodes, beside another number of GPUs.
    """
    if (slice_ := catalogue.slice_of(name)) is not None:
        key, chips = slice_[0], round(slice_[1])
        if gpus not in {None, chips}:
            raise InputError(f"{name!r} names a slice of {chips} chips, but {gpus} are asked for; expected {key}")
        return MachineMeant(key, chips, f"{name} is {chips} chips of {key}")
    if (counted_nodes := _nodes_named(catalogue, name)) is not None:
        nodes, machine, per_node = counted_nodes
        if gpus not in {None, nodes * per_node}:
            has = f"{counted(nodes, 'node')} of {machine}, {nodes * per_node} GPUs"
            raise InputError(f"{name!r} names {has}, but {gpus} are asked for; expected {machine}")
        said = f"{name} is read as {counted(nodes, 'node')} of {machine}: {counted(nodes * per_node, 'GPU')} in all"
        return MachineMeant(machine, nodes * per_node, said)
    theirs = catalogue.nodes_with(name)
    if len(theirs) == 1 and theirs[0] in catalogue.whole_nodes:
        node = catalogue.listed_node(theirs[0])
        each = f"{counted(_size(node), 'GPU')} ({catalogue.accelerators[node.accelerator].title}) a node"
        return MachineMeant(theirs[0], gpus, f"{name} is read as {theirs[0]}, the one node type that has it: {each}")
    if gpus is None or (not theirs and catalogue.is_node(name)) or with_cards(catalogue, name) is not catalogue:
        return MachineMeant(name, gpus)
    card, cards = catalogue.driver_key(name), f"{gpus}x{name}"
    whole = card is not None and catalogue.dies(card) == 1 and with_cards(catalogue, cards) is not catalogue
    if not whole or gpus_told(catalogue, cards):  # of several machines a node type says what joins them
        return MachineMeant(name, gpus)
    return MachineMeant(cards, gpus, f"{name} is read as {cards}, all in one machine")


def with_cards(catalogue: Catalogue, name: str) -> Catalogue:
    """Return the catalogue with the machine that `name` tells by a number of accelerators, or as it is for other names.

    Those with links of their own are joined as in the node types that have as many of them, where all these are alike;
    fewer are a part of such a machine, and more are several of them (`gpus_told`). Else each card has the PCIe link of
    its data sheet to itself: none is bridged, and the machine has one socket. What joins several such machines no such
    name tells.
    """
    told = None if name in catalogue.nodes else _cards_named(catalogue, name)
    if told is None:
        return catalogue
    count, called, key = told
    inside = _inside(catalogue, key, count, whole_family=is_family(called, key)) if count else None
    if inside is None:
        return catalogue
    here = min(count, round(inside.gpus.number))
    machine = replace(
        inside,
        title=f"{here} x {catalogue.accelerators[inside.accelerator].title}",
        gpus=SourcedFigure(value=here, source="assumed", note="told by the name"),
        network=None,
        nics=None,
        no_network=NO_NETWORK,
        aliases=(name,),
        part=True,
        traps=(),
    )
    return replace(catalogue, nodes={**catalogue.nodes, f"{here}x{key}": machine})


def gpus_told(catalogue: Catalogue, name: str) -> int | None:
    """Return how many accelerators such a name tells where they are more than one machine's; None for other names."""
    count = cards_told(catalogue, name)
    return count if count and count > with_cards(catalogue, name).node(name).gpus.number else None


def cards_told(catalogue: Catalogue, name: str) -> int | None:
    """Return how many accelerators such a name tells, of one machine or of several; None for other names."""
    known, told = with_cards(catalogue, name), _cards_named(catalogue, name)
    return None if known is catalogue or told is None else told[0]


def _cards_named(catalogue: Catalogue, name: str) -> tuple[int, str, str] | None:
    """Return the number of accelerators in a name, what they are called there, and their key; None for other names.

    The number stands before or behind: of "4090x2" one reading alone is an accelerator.
    """
    for form in (_BEFORE, _BEHIND):
        told = form.fullmatch(name.strip())
        if told and (key := catalogue.driver_key(told["cards"])):
            return int(told["count"]), told["cards"], key
    return None


def _nodes_named(catalogue: Catalogue, name: str) -> tuple[int, str, int] | None:
    """Return the number of nodes in a name, what each is, and its GPUs; None for names that count no nodes.

    InputError where a node type is a part of a rack: such a name may count racks.
    """
    if catalogue.is_node(name) or with_cards(catalogue, name) is not catalogue:
        return None
    readings = {}
    for form in (_NODES_BEFORE, _NODES_BEHIND):
        told = form.fullmatch(name.strip())
        machine = told["machine"] if told else ""
        known = with_cards(catalogue, machine)
        listed = bool(told) and catalogue.is_node(machine)
        cards = (
            known is not catalogue
            and not gpus_told(catalogue, machine)
            and not (told and told.groupdict().get("colon"))
        )
        if told and (listed or cards):
            readings[int(told["nodes"])] = known.node_key(machine), known.listed_node(machine)
    if not readings:
        return None
    if len(readings) > 1:
        either = " or ".join(f'"{nodes} nodes of {key}"' for nodes, (key, _) in readings.items())
        raise InputError(f"{name!r}: of the two numbers which counts the nodes? expected {either}")
    ((nodes, (key, node)),) = readings.items()
    if node.scale_up_nodes:
        raise InputError(f"{name!r}: {nodes} nodes or racks? expected {key}, and with --gpus the number of all GPUs")
    return nodes, key, _size(node)


def _inside(catalogue: Catalogue, key: str, count: int, *, whole_family: bool) -> NodeType | None:
    """Return a machine with `count` accelerators, or with the part of them that one holds where they are several.

    Only what joins them counts; None where that is unknown. `whole_family`: the name may mean any of several sizes
    ("A100"), which then have to be one.
    """
    accelerator = catalogue.accelerators[key]
    if accelerator.link is None or accelerator.bridged:
        here = PER_MACHINE if count > MOST_CARDS else count
        if count % here:
            return None
        cards = SourcedFigure(value=here, source="assumed", note="told by the name")
        one_socket = SourcedFigure(value=1, source="assumed", note="one socket")
        return NodeType(title="", accelerator=key, gpus=cards, numa_nodes=one_socket, no_network=NO_NETWORK)
    if any(card.shown_as == key for card in catalogue.accelerators.values()):  # one of several on a card
        return None
    family = key.partition("-")[0]
    every = [node for node in catalogue.whole_nodes.values() if node.accelerator.partition("-")[0] == family]
    same = [node for node in every if count in {1, node.gpus.number}]
    # a part of a machine whose every pair has links, or several machines: of other meshes a part may have none
    whole = [node for node in every if node.switch or _joins_all_pairs(catalogue, node)]
    boards = same or [node for node in whole if not (count > node.gpus.number and count % _size(node))]
    joined = {(node.switch, node.link, node.mesh, node.fabric) for node in boards}
    sizes = {node.accelerator for node in boards} if whole_family else {key}
    alike = len(joined) == len(sizes) == 1 and not any(node.scale_up_nodes or node.most_nodes for node in boards)
    return replace(min(boards, key=_size), accelerator=key) if alike else None


def _joins_all_pairs(catalogue: Catalogue, node: NodeType) -> bool:
    """Return whether a link of a rate of its own joins every pair of accelerators of a node."""
    link = node.link or catalogue.accelerators[node.accelerator].link
    peers = node.gpus.number - 1
    return bool(
        link and not node.mesh and not node.peer_links
        and (to_one := catalogue.interconnect(link).peer_rate)
        and to_one.number * peers <= catalogue.interconnect(link).rate_bytes_per_s
    )  # fmt: skip


def _size(node: NodeType) -> int:
    return round(node.gpus.number)


def cards_assumed(
    catalogue: Catalogue, name: str, otherwise: str = "--intra says another; `topo --save` on it reads it"
) -> tuple[str, ...]:
    """Return what is assumed of a machine that `name` tells by its accelerators alone; nothing for any other name.

    `otherwise`: how the command that asks is told of other links.
    """
    known = with_cards(catalogue, name)
    if known is catalogue or (machine := known.node(name)).gpus.number == 1:
        return ()
    accelerator = known.accelerators[machine.accelerator]
    several = gpus_told(catalogue, name)
    machines = f"{several // _size(machine)} machines of {_size(machine)}; " if several else ""
    if accelerator.link and not accelerator.bridged:
        link = known.switches[machine.switch].title if machine.switch else known.interconnect(accelerator.link).title
        joined = f"{accelerator.title}, joined by {link} as in all node types of the catalogue that have it"
        return (f"{name}: {machines}{joined}{_part_of_board(catalogue, machine)}",)
    link = known.interconnect(accelerator.host_link).title
    bridges = ", none of them bridged by NVLink" if accelerator.bridged else ""
    own = f"each card has {link} to itself{bridges} ({otherwise})"
    return (f"{name}: {machines}{own}",)


def _part_of_board(catalogue: Catalogue, machine: NodeType) -> str:
    """Return what is assumed where no whole node type with a network has as few as this machine."""
    family = machine.accelerator.partition("-")[0]
    every = [node for node in catalogue.whole_nodes.values() if node.accelerator.partition("-")[0] == family]
    if any(node.gpus.number <= machine.gpus.number for node in every):
        return ""
    if not machine.switch:
        return f", of which these are {_size(machine)}"
    return f", of which these are {_size(machine)}; on a board of its own they are linked directly (--intra says how)"
