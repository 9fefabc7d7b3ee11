"""For programs that run in an emulation: the emulated machines and links that they are part of."""

import os
from collections.abc import Mapping
from pathlib import Path

from ...files import read_struct
from ..graph import Cluster

VARIABLE = "MESHWRIGHT_EMULATION_CLUSTER"  # path of the emulation's cluster.json, set for every program in it


def surrounding_cluster(environ: Mapping[str, str] | None = None) -> Cluster | None:
    """Return the emulated cluster that this process runs in, as it was asked for, or None outside of any."""
    path = (os.environ if environ is None else environ).get(VARIABLE)
    return read_struct(Path(path), Cluster) if path else None
