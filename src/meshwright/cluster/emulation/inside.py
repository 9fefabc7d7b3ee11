"""For programs that run in an emulation: the emulated machines and links that they are part of."""

import os
from collections.abc import Mapping

from ..graph import Cluster
from ..wire import read_cluster

VARIABLE = "MESHWRIGHT_EMULATION_CLUSTER"  # path of the emulation's cluster.json, set for every program in it


def surrounding_cluster(environ: Mapping[str, str] | None = None) -> Cluster | None:
    """Return the emulated cluster that this process runs in, as it was asked for, or None outside of any."""
    path = (os.environ if environ is None else environ).get(VARIABLE)
    return read_cluster(path) if path else None
