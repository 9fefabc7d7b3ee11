"""Access Control Services in `lspci -vvv`: ports of switches that send peer traffic up to the root complex."""

import re
from collections.abc import Sequence

from ...units import first_few

# the flags that are set (ACSCtl); ACSCap lists the flags that a port could set
ACS = re.compile(r"^\s+ACSCtl:\s*(\S.*?)\s*$")
ATS = re.compile(r"^\s+ATSCtl:\s*Enable\+")
_REDIRECTS = re.compile(r"\b(?:ReqRedir|CmpltRedir)\+")
_DIRECT = re.compile(r"\bDirectTrans\+")
_SHOWN = 4  # ports that a warning names


def redirects(flags: str) -> bool:
    """Return whether a port with these flags sends what comes from below up to the root, whatever its address."""
    return _REDIRECTS.search(flags) is not None


def redirected(devices: Sequence[tuple[str, bool, Sequence[tuple[str, str]]]]) -> list[str]:
    """Return a warning of the ports that redirect the traffic between devices below one switch.

    Of each device: its name, whether it sends translated addresses, and the ports above it with their flags. Direct
    Translated P2P lets such addresses pass (PCI Express Base Specification, Access Control Services).
    """
    below: dict[str, list[str]] = {}
    for name, is_translated, ports in devices:
        for place, flags in ports:
            if redirects(flags) and not (is_translated and _DIRECT.search(flags)):
                below.setdefault(place, []).append(name)
    if not below:
        return []
    shown = first_few([f"{place} (above {', '.join(names)})" for place, names in below.items()], _SHOWN)
    return [
        f"ACS redirects peer traffic at {shown}: what goes between GPUs, or between a GPU and its "
        "NIC, goes up to the root complex and its IOMMU, so that GPUDirect falls far below the rates shown; turn ACS "
        "off on bare metal (firmware, or setpci of ACSCtl), in virtual machines use ATS"
    ]
