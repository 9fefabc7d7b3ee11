"""`rocm-smi --showtopo` and `amd-smi topology`, as tables or JSON, into a Cluster: link types, weights, hops, NUMA.

Weights tell a direct link from a routed one: 15 is one xGMI link. Hops do not: on MI250 every pair has one hop.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import InputError
from ...hardware import Catalogue
from ...units import counted
from ..catalogue_devices import with_catalogue
from ..graph import Cluster, Device, Link
from .names import card_names
from .pasted import plain_lines

SECTION = re.compile(r"=+\s*(.*?)\s*=+\s*$|(?:#{1,6}|\*\*)\s*([A-Za-z ]+?)\s*(?:\*\*)?\s*$")  # or of Markdown
TITLE = re.compile(r"([A-Z][A-Z /-]+) TABLE:\s*$")
NUMA = re.compile(r"GPU\s*\[?\s*(\d+)\s*\]?\s*:\s*\(Topology\)\s*Numa (Node|Affinity):\s*(-?\d+)")
TYPES = {"XGMI": "xGMI", "PCIE": "PCIe"}
NOT_TOLD = {"UNKNOWN", "XXXX", "N/A"}  # where a tool itself does not know the link: amd-smi's words, rocm-smi's
TABLES = {  # what both tools call it, in small letters: name of the table
    "link type between two gpus": "type",
    "weight between two gpus": "weight",
    "hops between two gpus": "hops",
    "link type": "type",
    "weight": "weight",
    "hops": "hops",
    "numa bw": "bandwidth",
    "link accessibility between two gpus": "access",
    "access": "access",
}
NO_ACCESS = {"DISABLED", "FALSE"}  # amd-smi's word, rocm-smi's
NEEDED = "expected the output of rocm-smi --showtopo or amd-smi topology"
DIRECT_WEIGHT = 15
SAME_NODE_HOPS = 2  # from a GPU to its CPU and to the other GPU; more of them cross the sockets
MAX_GPUS = 128
MOST_LINKS = 7  # of a card of AMD towards its peers


@dataclass(slots=True)
class _Tables:
    """Cells by pair of positions, what the rows are called, and NUMA nodes by position."""

    names: list[str] = field(default_factory=list)
    cells: dict[str, dict[tuple[int, int], str]] = field(default_factory=dict)
    numa: dict[int, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def number(self, table: str, pair: tuple[int, int]) -> int | None:
        """Return a cell as a number, of the two ways of a pair the larger; None where table or number is missing."""
        texts = [self.cells.get(table, {}).get(way, "") for way in (pair, pair[::-1])]
        return max((int(text) for text in texts if text.isdecimal() and len(text) < 9), default=None)

    def peers(self, gpu: int) -> int:
        """Return how many other GPUs one reaches over xGMI, by its row."""
        return sum(cell.upper() == "XGMI" for (i, _), cell in self.cells["type"].items() if i == gpu)

    def one_sided(self, table: str) -> list[tuple[int, int]]:
        """Return the pairs of which a table says another thing each way."""
        cells = self.cells.get(table, {})
        return [(i, j) for (i, j), cell in cells.items() if i < j and cells.get((j, i), cell) != cell]


def looks_like_rocm(text: str) -> bool:
    """Return whether a text is the output of rocm-smi or amd-smi."""
    return (
        "link type between two gpus" in text.lower()
        or "LINK TYPE TABLE" in text
        or ("(Topology)" in text and re.search(r"GPU ?\[?\d", text) is not None)
    )


def from_rocm_topology(text: str, where: str, catalogue: Catalogue, gpu: str | None = None) -> Cluster:
    """Return the cluster of saved tables; `gpu` names the device, which decides rates that they leave open."""
    lines = [line.text for line in plain_lines(text)]
    tables = _read_tables(lines, where)
    if "type" not in tables.cells:
        raise InputError(f"{where}: no table of link types between two GPUs, {NEEDED}")
    known = {name: key for name in card_names(lines).values() if (key := catalogue.driver_key(name))}
    keys = set(known.values())
    return _cluster(tables, where, catalogue, gpu or (keys.pop() if len(keys) == 1 else None))


def from_rocm_json(data: Any, where: str, catalogue: Catalogue, gpu: str | None = None) -> Cluster:
    """Return the cluster of `rocm-smi --showtopo --json` or `amd-smi topology --json`."""
    try:
        tables = _rocm_json(data) if isinstance(data, Mapping) else _amd_json(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{where}: {error!r}: {NEEDED} with --json") from None
    return _cluster(tables, where, catalogue, gpu)


def looks_like_rocm_json(data: Any) -> bool:
    """Return whether JSON is of one of the two tools."""
    if isinstance(data, Mapping):
        return any("between DRM devices" in key for key in data.get("system") or ())
    return isinstance(data, list) and bool(data) and isinstance(data[0], Mapping) and "links" in data[0]


def _cluster(tables: _Tables, where: str, catalogue: Catalogue, gpu: str | None) -> Cluster:
    count = len(tables.names)
    if not 0 < count <= MAX_GPUS:
        raise InputError(f"{where}: {count} GPUs, expected 1 to {MAX_GPUS}")
    ids = [name if name.startswith("GPU") else f"GPU{i}" for i, name in enumerate(tables.names)]
    devices = [Device(id=ids[i], kind="gpu", numa=tables.numa.get(i)) for i in range(count)]
    parts = _are_partitions(tables, catalogue, gpu)
    if gpu is not None and not parts:
        devices = [with_catalogue(device, gpu, catalogue) for device in devices]
    rule = _Rates(catalogue, None if parts else gpu)
    links = []
    for i, j in itertools.combinations(range(count), 2):
        kind = _kind(tables, ids, (i, j), where)
        if kind != _kind(tables, ids, (j, i), where):
            one, other = tables.cells["type"][i, j], tables.cells["type"][j, i]
            raise InputError(f"{where}: {ids[i]} to {ids[j]} is {one} one way and {other} the other")
        if kind is None:
            continue
        rate = rule.bytes_per_s(kind, tables, (i, j), f"{ids[i]}-{ids[j]}")
        rate = None if kind != "PCIe" and _no_access(tables, (i, j)) else rate
        links.append(Link(a=ids[i], b=ids[j], kind=kind, bandwidth_bytes_per_s=rate))
    warnings = ([parts] if parts else rule.warnings()) + _without_access(tables, ids)
    warnings += [*_not_told(tables, ids), *_contradictions(tables, ids), *tables.warnings]
    if ids != tables.names:
        warnings.append(", ".join(f"{a} is {b}" for a, b in zip(ids, tables.names, strict=True)))
    return Cluster(name=where, devices=tuple(devices), links=tuple(links), warnings=tuple(warnings))


def _contradictions(tables: _Tables, ids: Sequence[str]) -> list[str]:
    """Return the tables that say another weight or number of hops there than back, of which the larger is taken."""
    found = []
    for table in ("weight", "hops"):
        if pairs := tables.one_sided(table):
            (i, j), cells = pairs[0], tables.cells[table]
            found.append(
                f"{table} of {counted(len(pairs), 'pair')} differ there and back ({ids[i]}-{ids[j]}: {cells[i, j]} and "
                f"{cells[j, i]}): the tables are damaged or of two runs"
            )
    return found


def _are_partitions(tables: _Tables, catalogue: Catalogue, gpu: str | None) -> str:
    """Say that the devices are parts of cards (DPX, CPX): each has twice as many peers as a card links."""
    link = catalogue.accelerators[catalogue.shown_key(gpu)].link if gpu else None
    most = round(catalogue.interconnect(link).links.number) if link else MOST_LINKS
    peers = tables.peers(0)
    if peers < 2 * most:
        return ""
    return (
        f"{len(tables.names)} devices of which each has {peers} peers over xGMI, where a card has {most} links: they "
        "are partitions of cards (DPX, CPX), whose rates, memory and peaks are parts of a card's and not known"
    )


def _no_access(tables: _Tables, pair: tuple[int, int]) -> bool:
    """Return whether a tool says that one GPU of a pair cannot reach the memory of the other."""
    cells = tables.cells.get("access", {})
    return any(cells.get(way, "").upper() in NO_ACCESS for way in (pair, pair[::-1]))


def _without_access(tables: _Tables, ids: Sequence[str]) -> list[str]:
    pairs = [f"{ids[i]}-{ids[j]}" for i, j in itertools.combinations(range(len(ids)), 2) if _no_access(tables, (i, j))]
    if not pairs:
        return []
    more = ", ..." if len(pairs) > 4 else ""
    return [
        f"no peer access between {counted(len(pairs), 'pair')} of GPUs ({', '.join(pairs[:4])}{more}): what goes "
        "between them is copied through the host's memory, below the link's rate"
    ]


def _not_told(tables: _Tables, ids: Sequence[str]) -> list[str]:
    """Say between which GPUs the tool itself does not know a link."""
    cells = tables.cells["type"]
    pairs = [pair for pair in itertools.combinations(range(len(ids)), 2) if cells.get(pair, "").upper() in NOT_TOLD]
    if not pairs:
        return []
    shown, more = ", ".join(f"{ids[i]}-{ids[j]}" for i, j in pairs[:4]), ", ..." if len(pairs) > 4 else ""
    return [
        f"the tool finds no link between {counted(len(pairs), 'pair')} of GPUs ({shown}{more}: {cells[pairs[0]]}): "
        "over what they meet is not known"
    ]


def _kind(tables: _Tables, ids: Sequence[str], pair: tuple[int, int], where: str) -> str | None:
    """Return the kind of link of a pair; None where the tool itself says that it does not know one."""
    cell = tables.cells["type"].get(pair, "")
    if cell.upper() in NOT_TOLD:
        return None
    kind = TYPES.get(cell.upper())
    if kind is None:
        raise InputError(f"{where}: {ids[pair[0]]} to {ids[pair[1]]}: link type {cell!r}, expected XGMI or PCIE")
    return kind


class _Rates:
    """Rates of the pairs, and what must be said of pairs without one."""

    def __init__(self, catalogue: Catalogue, gpu: str | None) -> None:
        accelerator = catalogue.accelerators[catalogue.shown_key(gpu)] if gpu else None
        link = catalogue.interconnect(accelerator.link) if accelerator and accelerator.link else None
        self._accelerator = accelerator
        self._link = link if link and link.kind == "xgmi" else None
        self._host = catalogue.interconnect(accelerator.host_link).rate_bytes_per_s if accelerator else None
        self._far: list[str] = []
        self._open = self._single = self._routed = False
        self._pcie: dict[str, list[str]] = {}  # by where the path goes, in words

    def bytes_per_s(self, kind: str, tables: _Tables, pair: tuple[int, int], name: str) -> float | None:
        """Return the rate of a pair: the tool's own bandwidth, else the device's; None where neither is known."""
        weight, hops = tables.number("weight", pair), tables.number("hops", pair)
        if kind == "PCIe":
            self._pcie.setdefault(_way(tables, pair, hops), []).append(name)
            return self._host
        said = re.fullmatch(r"(\d{1,9})-(\d{1,9})", tables.cells.get("bandwidth", {}).get(pair, ""))
        if (weight or 0) > DIRECT_WEIGHT or (hops or 0) > 1:
            self._far.append(name)
            return None
        if said and int(said.group(2)):
            return int(said.group(2)) * 1e6
        if self._link is None:
            self._open = True
            return None
        if self._link.peer_rate is None:
            peers = [tables.peers(gpu) for gpu in pair]
            if set(peers) == {self._link.links.number}:  # as many peers as links: one link to each
                return self._link.link_bytes_per_s
            self._single, self._routed = self._single or weight is not None, self._routed or weight is None
            return self._link.link_bytes_per_s if weight is not None else None
        return self._link.peer_rate.number

    def warnings(self) -> list[str]:
        """Return what is to be said, once each."""
        found = []
        if self._open and self._accelerator is not None:
            found.append(f"{self._accelerator.title} has no xGMI: the rates are left open")
        elif self._open:
            found.append(
                "xGMI: 50 GB/s a link on MI250X, 64 to a peer on MI300X, 76.8 on MI350X and MI355X; say which with "
                "--gpu NAME"
            )
        if self._single:
            found.append(
                "xGMI: the tool does not count the links of a pair: the rate is one link's, a lower bound; "
                "neighbours in one package have more"
            )
        if self._routed:
            found.append(
                "xGMI: without the table of weights (rocm-smi --showtopo) a link of a pair's own and a way over others "
                "look the same: the rates are left open"
            )
        if self._far:
            found.append(
                f"{len(self._far)} pairs are more than one xGMI hop apart ({self._far[0]}, ...) by weight or hops: "
                "their rate must be measured"
            )
        for way, names in self._pcie.items():
            shown = (
                f"{len(names)} pairs are PCIe{way} ({names[0]}, ...)" if len(names) > 1 else f"{names[0]} is PCIe{way}"
            )
            found.append(f"{shown}: slow")
        if self._pcie:
            bound = "the rate is the PCIe link's, an upper bound" if self._host else "which generation is not said"
            found.append(f"PCIe: {bound}; measure with bench p2p")
        return found


def _way(tables: _Tables, pair: tuple[int, int], hops: int | None) -> str:
    """Return whether a path over PCIe crosses the sockets, in words: by the GPUs' NUMA nodes, else by its hops."""
    a, b = (tables.numa.get(gpu) for gpu in pair)
    if a is not None and b is not None:
        return " within a NUMA node" if a == b else " between two NUMA nodes"
    return "" if hops is None else " within a socket" if hops <= SAME_NODE_HOPS else " across the sockets"


def _read_tables(lines: Sequence[str], where: str) -> _Tables:
    tables = _Tables()
    by_name: dict[str, int] = {}
    i = 0
    while i < len(lines):
        heading = SECTION.match(lines[i].strip()) or TITLE.match(lines[i].strip())
        title = next(filter(None, heading.groups()), "") if heading else ""
        table = TABLES.get(title.lower())
        i += 1
        if table is not None:
            i, names, cells = _table(lines, i, where, title)
            if not by_name:
                by_name = {name: n for n, name in enumerate(names)}
            elif set(names) != set(by_name):
                raise InputError(
                    f"{where}: the tables are of different GPUs: {', '.join(by_name)} and {', '.join(names)}"
                )
            tables.cells[table] = {(by_name[a], by_name[b]): cell for (a, b), cell in cells.items()}
    tables.names = list(by_name)
    _take_numa(tables, lines, by_name)
    return tables


def _take_numa(tables: _Tables, lines: Sequence[str], by_name: Mapping[str, int]) -> None:
    """Note the NUMA node of each GPU; one of which two are said has none, and that is said."""
    said: dict[str, set[int]] = {}
    for line in lines:
        match = NUMA.match(line.strip())
        if match and match.group(2) == "Node" and int(match.group(3)) >= 0 and f"GPU{match.group(1)}" in by_name:
            said.setdefault(f"GPU{match.group(1)}", set()).add(int(match.group(3)))
    for name, nodes in said.items():
        if len(nodes) == 1:
            tables.numa[by_name[name]] = min(nodes)
        else:
            shown = " and ".join(map(str, sorted(nodes)))
            tables.warnings.append(f"{name} is said to be on NUMA nodes {shown}: which is right is not known")


def _table(
    lines: Sequence[str], start: int, where: str, title: str
) -> tuple[int, list[str], dict[tuple[str, str], str]]:
    """Return the line after a table, its columns, and its cells; some of the machine's GPUs are columns enough."""
    names: list[str] = []
    cells: dict[tuple[str, str], str] = {}
    seen: list[str] = []
    for number in range(start, len(lines)):
        line, tokens = lines[number], lines[number].split()
        if SECTION.match(line.strip()) or TITLE.match(line.strip()) or (seen and len(seen) == len(names)):
            return _whole(number, names, seen, cells, where, title)
        if not tokens:
            continue
        if not names:
            names = tokens
            if not all(re.fullmatch(r"GPU\d+|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.\d", name, re.I) for name in names):
                raise InputError(f"{where}:{number + 1}: {title}: expected columns such as GPU0 or 0000:05:00.0")
            if len(set(names)) != len(names) or len(names) > MAX_GPUS:
                raise InputError(f"{where}:{number + 1}: {title}: expected each GPU once, {MAX_GPUS} at most")
        elif len(seen) < len(names) and tokens[0] == names[len(seen)] and len(tokens) == len(names) + 1:
            seen.append(tokens[0])
            cells |= {(tokens[0], name): cell for name, cell in zip(names, tokens[1:], strict=True)}
        else:
            expected = names[len(seen)]
            raise InputError(f"{where}:{number + 1}: expected the row {expected} with {len(names)} cells")
    return _whole(len(lines), names, seen, cells, where, title)


def _whole(
    end: int, names: list[str], seen: list[str], cells: dict[tuple[str, str], str], where: str, title: str
) -> tuple[int, list[str], dict[tuple[str, str], str]]:
    if len(seen) != len(names) or not seen:
        raise InputError(
            f"{where}: table {title!r}: {counted(len(seen), 'row')} for {counted(len(names), 'GPU')}: it is truncated"
        )
    return end, names, cells


def _rocm_json(data: Mapping[str, Any]) -> _Tables:
    tables = _Tables()
    words = {"weight": "weight", "hops": "hops", "link type": "type", "link accessibility": "access"}
    numbers: set[int] = set()
    for key, value in data["system"].items():
        match = re.fullmatch(r"\(Topology\) (.+?) between DRM devices (\d+) and (\d+)", key)
        if match and match.group(1).lower() in words:
            pair = int(match.group(2)), int(match.group(3))
            numbers |= {*pair}
            table = tables.cells.setdefault(words[match.group(1).lower()], {})
            table[pair] = table[pair[1], pair[0]] = str(value)
    place = {number: i for i, number in enumerate(sorted(numbers))}
    tables.cells = {
        name: {(place[a], place[b]): cell for (a, b), cell in table.items()} for name, table in tables.cells.items()
    }
    tables.names = [f"GPU{number}" for number in sorted(numbers)]
    for card, said in data.items():
        digits = re.fullmatch(r"card(\d+)", card)
        numa = str(said.get("(Topology) Numa Node", "")) if digits else ""
        if digits and int(digits.group(1)) in place and numa.isdecimal():
            tables.numa[place[int(digits.group(1))]] = int(numa)
    tables.cells["type"]  # a KeyError where it is missing
    return tables


def _amd_json(data: Sequence[Mapping[str, Any]]) -> _Tables:
    tables = _Tables(names=[str(gpu.get("bdf") or f"GPU{gpu['gpu']}") for gpu in data])
    place = {gpu["gpu"]: i for i, gpu in enumerate(data)}
    keys = {
        "weight": "weight",
        "link_type": "type",
        "num_hops": "hops",
        "bandwidth": "bandwidth",
        "link_status": "access",
    }
    for i, gpu in enumerate(data):
        for link in gpu["links"]:
            for key, table in keys.items():
                tables.cells.setdefault(table, {})[i, place[link["gpu"]]] = str(link.get(key, ""))
    return tables
