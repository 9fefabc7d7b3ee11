"""The catalogue: accelerators, links, NICs, nodes and fabrics as TOML data with a source for each figure."""

from .catalogue import Catalogue, load_catalogue
from .figures import SourcedFigure
from .kinds import Accelerator, FabricType, Interconnect, NetworkPort, NodeType, Switch

__all__ = [
    "Accelerator",
    "Catalogue",
    "FabricType",
    "Interconnect",
    "NetworkPort",
    "NodeType",
    "SourcedFigure",
    "Switch",
    "load_catalogue",
]
