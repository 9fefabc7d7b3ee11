"""Machines that the catalogue does not list, told by their accelerators alone: "4xRTX4090", "8xH100"."""

import re

from msgspec.structs import replace

from .catalogue import Catalogue, is_family
from .figures import SourcedFigure
from .kinds import NodeType

_CARDS = re.compile(
    r"(?P<count>\d{1,2}) ?[xX*\u00d7] ?(?P<cards>\S.*)|(?P<named>\S.*?) ?[xX*\u00d7] ?(?P<number>\d{1,2})"
)
NO_NETWORK = "the network between such machines is not known; `plan --inter RATE` says it, such as 25Gbps"


def with_cards(catalogue: Catalogue, name: str) -> Catalogue:
    """Return the catalogue with the machine that `name` tells by a number of accelerators, or as it is for other names.

    Those with links of their own are joined as in the node types that have as many of them, where all these are alike:
    four of eight behind a switch may have none between them. Else each card has the PCIe link of its data sheet to
    itself: none is bridged, and the machine has one socket. What joins several such machines no such name tells.
    """
    told = _CARDS.fullmatch(name.strip())
    if told is None or name in catalogue.nodes:
        return catalogue
    count = int(told["count"] or told["number"])
    called = told["cards"] or told["named"]
    key = catalogue.driver_key(called)
    inside = _inside(catalogue, key, count, whole_family=is_family(called, key)) if key and count else None
    if inside is None:
        return catalogue
    machine = replace(
        inside,
        title=f"{count} x {catalogue.accelerators[inside.accelerator].title}",
        gpus=SourcedFigure(value=count, source="assumed", note="told by the name"),
        network=None,
        nics=None,
        no_network=NO_NETWORK,
        aliases=(name,),
        part=True,
        traps=(),
    )
    return replace(catalogue, nodes={**catalogue.nodes, f"{count}x{key}": machine})


def _inside(catalogue: Catalogue, key: str, count: int, *, whole_family: bool) -> NodeType | None:
    """Return a machine with `count` accelerators, of which only what joins them counts; None where that is unknown.

    `whole_family`: the name may mean any of several sizes ("A100"), which then have to be one.
    """
    accelerator = catalogue.accelerators[key]
    if accelerator.link is None or accelerator.bridged:
        one_socket = SourcedFigure(value=1, source="assumed", note="one socket")
        return NodeType(title="", accelerator=key, gpus=one_socket, numa_nodes=one_socket, no_network=NO_NETWORK)
    family = key.partition("-")[0]
    boards = [
        node
        for node in catalogue.whole_nodes.values()
        if node.accelerator.partition("-")[0] == family and count in {1, node.gpus.number}
    ]
    die = any(card.shown_as == key for card in catalogue.accelerators.values())  # one of several on a card
    joined = {(node.switch, node.link, node.mesh, node.fabric) for node in boards}
    sizes = {node.accelerator for node in boards} if whole_family else {key}
    alike = len(joined) == len(sizes) == 1 and not any(node.scale_up_nodes or node.most_nodes for node in boards)
    return replace(boards[0], accelerator=key) if alike and not die else None


def cards_assumed(catalogue: Catalogue, name: str) -> tuple[str, ...]:
    """Return what is assumed of a machine that `name` tells by its accelerators alone; nothing for any other name."""
    known = with_cards(catalogue, name)
    if known is catalogue or (machine := known.node(name)).gpus.number == 1:
        return ()
    accelerator = known.accelerators[machine.accelerator]
    if accelerator.link and not accelerator.bridged:
        link = known.switches[machine.switch].title if machine.switch else known.interconnect(accelerator.link).title
        return (f"{name}: {accelerator.title}, joined by {link} as in all node types of the catalogue that have it",)
    link = known.interconnect(accelerator.host_link).title
    bridges = ", none of them bridged by NVLink" if accelerator.bridged else ""
    return (f"{name}: each card has {link} to itself{bridges} (--intra says another; `topo --save` on it reads it)",)
