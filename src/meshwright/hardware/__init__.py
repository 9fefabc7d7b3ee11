"""The catalogue: accelerators, links, NICs, nodes and fabrics as TOML data with a source for each figure."""

from .catalogue import Catalogue, load
from .figures import Figure
from .kinds import Accelerator, FabricType, Interconnect, Network, NodeType, Switch

__all__ = ["Accelerator", "Catalogue", "FabricType", "Figure", "Interconnect", "Network", "NodeType", "Switch", "load"]
