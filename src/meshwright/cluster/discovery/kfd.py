"""AMD's GPUs and their xGMI links from the kernel's KFD topology."""

from pathlib import Path

from .sysfs import SYS, read

XGMI = 11  # io_link type


def amd_links(root: Path = SYS) -> dict[tuple[str, str], float | None]:
    """Return the xGMI links by the bus ids of their ends, the lower first: bytes per second, None if not told."""
    folder = root / "class/kfd/kfd/topology/nodes"
    nodes = {path.name: _properties(path / "properties") for path in folder.glob("*")} if folder.is_dir() else {}
    buses = {name: _bus_id(p) for name, p in nodes.items() if p.get("simd_count", 0) > 0}
    links: dict[tuple[str, str], float | None] = {}
    for name, bus in buses.items():
        for link in [*(folder / name / "io_links").glob("*"), *(folder / name / "p2p_links").glob("*")]:
            properties = _properties(link / "properties")
            peer = buses.get(str(properties.get("node_to")))
            if properties.get("type") == XGMI and peer and peer != bus:
                low, high = sorted((bus, peer))
                megabytes = properties.get("max_bandwidth", 0)
                links[low, high] = megabytes * 1e6 or None
    return links


def _bus_id(properties: dict[str, int]) -> str:
    location = properties.get("location_id", 0)
    return f"{properties.get('domain', 0):04x}:{location >> 8 & 255:02x}:{location >> 3 & 31:02x}.{location & 7}"


def _properties(path: Path) -> dict[str, int]:
    pairs = (line.split() for line in read(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}
