"""Where this machine hangs among the switches, from the file that `launch.topology` names."""

import os
import socket
from collections.abc import MutableMapping

from ...backend.hosts.machine_names import HOST_VARIABLE
from ...backend.hosts.placement import SWITCHES_VARIABLE
from ...cluster.dumps import load_dump
from ...cluster.graph import Placement
from ...errors import InputError
from ...hardware import load_catalogue


def placements(topology: str) -> tuple[Placement, ...]:
    """Return the places of all nodes in a file of `scontrol show topology`, or of `topo --save`; () for "".

    InputError where it has none.
    """
    if not topology:
        return ()
    found = load_dump(topology, load_catalogue()).placements
    if not found:
        raise InputError(f"launch.topology: {topology}: no switches and nodes in it (see `scontrol show topology`)")
    return found


def export_switches(topology: str, environment: MutableMapping[str, str]) -> None:
    """Write the switches above this machine where the ranks look for them; InputError if the file lacks it."""
    known = {place.node: place.switches for place in placements(topology)}
    if not known:
        return
    name = os.environ.get(HOST_VARIABLE) or socket.gethostname()
    above = known.get(name) or known.get(name.partition(".")[0])
    if above is None:
        raise InputError(f"launch.topology: {topology}: this machine, {name}, is not among its {len(known)} nodes")
    environment[SWITCHES_VARIABLE] = ".".join(reversed(above))
