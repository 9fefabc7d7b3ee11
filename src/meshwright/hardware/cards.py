"""Machines that the catalogue does not list, told by their cards alone: "4xRTX4090"."""

import re

from msgspec.structs import replace

from .catalogue import Catalogue
from .figures import SourcedFigure
from .kinds import NodeType

_CARDS = re.compile(
    r"(?P<count>\d{1,2}) ?[xX*\u00d7] ?(?P<cards>\S.*)|(?P<named>\S.*?) ?[xX*\u00d7] ?(?P<number>\d{1,2})"
)
NO_NETWORK = "the network between such machines is not known; `plan --inter RATE` says it, such as 25Gbps"


def with_cards(catalogue: Catalogue, name: str) -> Catalogue:
    """Return the catalogue with the machine that `name` tells by a number of cards; as it is for any other name.

    Each card has the PCIe link of its data sheet to itself: none is bridged, and the machine has one socket. Cards with
    links of their own stand in nodes that are listed, whose switches and NICs no such name tells.
    """
    told = _CARDS.fullmatch(name.strip())
    if told is None or name in catalogue.nodes:
        return catalogue
    count = int(told["count"] or told["number"])
    key = catalogue.driver_key(told["cards"] or told["named"])
    if key is None or not count or (catalogue.accelerators[key].link and not catalogue.accelerators[key].bridged):
        return catalogue
    machine = NodeType(
        title=f"{count} x {catalogue.accelerators[key].title}",
        accelerator=key,
        gpus=SourcedFigure(value=count, source="assumed", note="told by the name"),
        no_network=NO_NETWORK,
        numa_nodes=SourcedFigure(value=1, source="assumed", note="one socket"),
        aliases=(name,),
        part=True,
    )
    return replace(catalogue, nodes={**catalogue.nodes, f"{count}x{key}": machine})


def cards_assumed(catalogue: Catalogue, name: str) -> tuple[str, ...]:
    """Return what is assumed of a machine that `name` tells by its cards alone; nothing for any other name."""
    known = with_cards(catalogue, name)
    if known is catalogue or (machine := known.node(name)).gpus.number == 1:
        return ()
    key = machine.accelerator
    link = known.interconnect(known.accelerators[key].host_link).title
    bridges = ", none of them bridged by NVLink" if known.accelerators[key].bridged else ""
    return (f"{name}: each card has {link} to itself{bridges} (--intra says another; `topo --save` on it reads it)",)
