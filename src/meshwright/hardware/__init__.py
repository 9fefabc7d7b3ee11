"""The catalogue: accelerators, links, NICs, nodes and fabrics as TOML data with a source for each figure.

- `kinds`: one struct each; `figures`: a figure with its source; `pci`: kinds of PCI functions
- `catalogue`: loaded and extended; `cards`: machines told by their accelerators alone
- `listing`: as rows; `arithmetic`: of link rates
"""

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
