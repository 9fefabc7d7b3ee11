"""SLURM's topology (`scontrol show topology`, topology.conf, topology.yaml): nodes under switches and in blocks."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from ...errors import InputError
from ...units import counted, first_few
from ..graph import Cluster, Placement
from .hostlist import MAX_NAMES, expand_hosts
from .yaml import parse_yaml

PROMPT = re.compile(r"^\s*(?:\[?[\w.@:~/ -]*\]?[$#%] |`{3}|~{3})")  # or a fence of Markdown
PAIR = re.compile(r"(\w+)=(\S*)")
HEADS = ("switchname", "blockname", "aggregatedblock")
SHOWN_DOUBLES = 3


def looks_like_slurm(text: str) -> bool:
    """Return whether a text describes switches or blocks as SLURM does."""
    return re.search(r"^\s*(SwitchName|BlockName|AggregatedBlock)=", text[:200_000], re.M | re.I) is not None


def looks_like_slurm_yaml(text: str) -> bool:
    """Return whether a text is a topology.yaml of SLURM."""
    head = text[:200_000]
    entry = re.search(r"^\s*- topology\s*:|^topology\s*:", head, re.M)
    named, placed = (re.search(rf"^\s*{words}\s*:", head, re.M) for words in ("topology", "(?:tree|block|flat)"))
    return bool(entry or (named and placed)) and "=" not in text[:200]


@dataclass(slots=True)
class _Tree:
    """Switches and blocks as they are read: what each hangs on."""

    parents: dict[str, str] = field(default_factory=dict)  # of switches
    leaf: dict[str, str] = field(default_factory=dict)  # of nodes
    block: dict[str, str] = field(default_factory=dict)  # of nodes
    aggregated: dict[str, str] = field(default_factory=dict)  # of blocks, the larger block
    sizes: tuple[int, ...] = ()  # of blocks, in nodes: of a base block, then of blocks that join several
    known: set[str] = field(default_factory=set)
    doubles: list[str] = field(default_factory=list)

    def add(self, kind: str, name: str, nodes: str, switches: str, where: str) -> None:
        """Take in one switch or block."""
        if name in self.known:
            raise InputError(f"{where}: {name} is described twice")
        if kind == "aggregatedblock":
            for inner in expand_hosts(name, where):
                top = inner
                while top in self.aggregated:
                    top = self.aggregated[top]
                if top != name:
                    self.aggregated[top] = name
            return
        self.known.add(name)
        for below in expand_hosts(switches, where):
            self._hang(self.parents, below, name)
        if not switches:  # higher levels repeat the nodes below them
            for node in expand_hosts(nodes, where):
                self._hang(self.block if kind == "blockname" else self.leaf, node, name)
        if len(self.leaf) + len(self.block) > MAX_NAMES:
            raise InputError(f"{where}: more than {MAX_NAMES} nodes")

    def join_blocks(self) -> None:
        """Put blocks that BlockSizes joins under larger ones, in the order of the file, where no line names those."""
        blocks = list(dict.fromkeys(self.block.values()))
        if self.aggregated or not self.sizes:
            return
        base = self.sizes[0]
        below: list[tuple[str, ...]] = [(block,) for block in blocks]
        per = 1  # blocks of each
        for size in self.sizes[1:]:
            count = size // base
            above = [tuple(blocks[i : i + count]) for i in range(0, len(blocks), count)]
            for place, group in enumerate(below):
                joined = above[place * per // count]
                if joined != group:
                    self.aggregated[_joined(group)] = _joined(joined)
            below, per = above, count

    def _hang(self, above: dict[str, str], name: str, on: str) -> None:
        """Note that `name` hangs on `on`; where it already hangs elsewhere, the first place stays."""
        first = above.setdefault(name, on)
        if first != on:
            self.doubles.append(f"{name} hangs on {first} and on {on}")


def _joined(blocks: tuple[str, ...]) -> str:
    return blocks[0] if len(blocks) == 1 else f"{blocks[0]} to {blocks[-1]}"


def _sizes(text: str, where: str) -> tuple[int, ...]:
    """Return the sizes of BlockSizes: each a power of two times the first."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) <= MAX_NAMES for part in parts):
        raise InputError(f"{where}: BlockSizes={text[:60]}: expected numbers of nodes, such as 18,36")
    sizes = sorted({int(part) for part in parts})
    wrong = next((size for size in sizes if size % sizes[0] or (size // sizes[0]).bit_count() != 1), None)
    if wrong is not None:
        raise InputError(
            f"{where}: BlockSizes={text[:60]}: {wrong} is no power of two times {sizes[0]}, the base block"
        )
    return tuple(sizes)


def from_slurm_topology(text: str, where: str) -> Cluster:
    """Return a cluster of placements only: the switches above every node, the leaf first, and its block."""
    tree = _Tree()
    for number, plain in _whole_lines(text):
        here = f"{where}:{number}"
        pairs = {key.lower(): value for key, value in PAIR.findall(plain)}
        head = next((name for name in HEADS if name in pairs), None)
        if head is not None:
            tree.add(head, pairs[head], pairs.get("nodes", ""), pairs.get("switches", ""), here)
        elif plain.lower().startswith("include"):
            raise InputError(f"{here}: {plain[:60]}: is not followed; expected the lines of that file in its place")
        elif "blocksizes" in pairs:
            tree.sizes = _sizes(pairs["blocksizes"], here)
        elif "linkspeed" not in pairs:
            raise InputError(f"{here}: expected SwitchName=..., BlockName=..., AggregatedBlock=... or BlockSizes=...")
    return _placed(tree, where)


def _whole_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line that says something, with its number; one that ends in a backslash goes on in the next.

    The command that printed them, and prose above the first, say nothing.
    """
    begun, first, is_inside = "", 0, False
    for number, line in enumerate(text.splitlines(), start=1):
        plain = line.split("#")[0].strip()
        if PROMPT.match(line) or not (is_inside or "=" in plain or plain.lower().startswith("include")):
            continue
        is_inside = True
        begun, first = f"{begun} {plain}".strip(), first if begun else number
        if plain.endswith("\\"):
            begun = begun[:-1].rstrip()
            continue
        if begun:
            yield first, begun
        begun = ""
    if begun:
        yield first, begun


def from_slurm_yaml(text: str, where: str) -> Cluster:
    """Return the placements of a topology.yaml: by its default topology, beside a tree the blocks of another."""
    entries = parse_yaml(text, where)
    if isinstance(entries, Mapping):
        entries = [entries]
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise InputError(f"{where}: expected a list of topologies, each with topology: NAME")
    placing = [entry for entry in entries if "tree" in entry or "block" in entry]  # a flat one has no nodes
    chosen = next((entry for entry in placing if _is_default(entry)), placing[0] if placing else {})
    tree, used = _Tree(), [chosen]
    _take_entry(tree, chosen, where)
    for entry in [entry for entry in placing if "tree" in chosen and "block" in entry and entry is not chosen]:
        beside = _Tree()
        _take_entry(beside, {"block": entry["block"]}, where)
        if tree.leaf.keys() & beside.block.keys():  # of the same nodes: else it is another part of the cluster
            tree.block = {node: block for node, block in beside.block.items() if node in tree.leaf}
            tree.sizes = beside.sizes
            used.append(entry)
            break
    cluster = _placed(tree, where)
    unused = [entry for entry in placing if entry not in used]
    if not unused:
        return cluster
    names = ", ".join(str(entry.get("topology", "?")) for entry in unused)
    held = ", ".join(_contents(entry, where) for entry in unused)
    left = f"{names} left out ({held}): {chosen.get('topology', '?')} is the {_why(chosen)} topology"
    return replace(cluster, warnings=(*cluster.warnings, left))


def _take_entry(tree: _Tree, entry: Mapping[str, Any], where: str) -> None:
    """Take in the switches and the blocks of one topology."""
    if "tree" in entry:
        for item in _items(entry, "tree", "switches", where):
            tree.add("switchname", _text(item, "switch", where), _text(item, "nodes"), _text(item, "children"), where)
    if "block" in entry:
        if sizes := _text(entry["block"], "block_sizes") if isinstance(entry["block"], Mapping) else "":
            tree.sizes = _sizes(sizes, where)
        for item in _items(entry, "block", "blocks", where):
            tree.add("blockname", _text(item, "block", where), _text(item, "nodes"), "", where)


def _contents(entry: Mapping[str, Any], where: str) -> str:
    """Return what a topology that is left out holds, in words."""
    tree = _Tree()
    _take_entry(tree, entry, where)
    kind = "tree" if "tree" in entry else "block"
    return f"a {kind} of {counted(len({*tree.leaf, *tree.block}), 'node')}"


def _is_default(entry: Mapping[str, Any]) -> bool:
    return str(entry.get("cluster_default")).lower() in {"true", "yes", "on"}


def _why(entry: Mapping[str, Any]) -> str:
    return "default" if _is_default(entry) else "first"


def _items(entry: Mapping[str, Any], kind: str, key: str, where: str) -> Iterator[Mapping[str, Any]]:
    inside = entry[kind]
    found = inside.get(key) if isinstance(inside, Mapping) else None
    if not isinstance(found, list) or not all(isinstance(item, Mapping) for item in found):
        raise InputError(f"{where}: {kind}: expected a list {key}")
    yield from found


def _text(item: Mapping[str, Any], key: str, where: str | None = None) -> str:
    value = item.get(key)
    if value is None and where is not None:
        raise InputError(f"{where}: {dict(item)!r}: expected the key {key}"[:200])
    return ",".join(map(str, value)) if isinstance(value, list) else str(value or "")


def _placed(tree: _Tree, where: str) -> Cluster:
    missing = sorted(set(tree.parents) - tree.known)
    if missing:
        raise InputError(f"{where}: switch {missing[0]} is named below another but not described: truncated?")
    if not tree.leaf and not tree.block:
        raise InputError(f"{where}: no nodes below any switch")
    tree.join_blocks()
    warnings = []
    if tree.doubles:
        warnings.append(f"the first place of each is used: {first_few(tree.doubles, SHOWN_DOUBLES, '; ')}")
    if tree.leaf and tree.block:
        blocks = len(set(tree.block.values()))
        warnings.append(
            f"switches and {blocks} blocks in one file: the switches place a node, its block is noted beside"
        )
    if tree.leaf and (apart := len(tree.block.keys() - tree.leaf.keys())):
        warnings.append(f"{counted(apart, 'node')} of blocks below no switch: how they reach the others is not said")
    placements = []
    for node in dict.fromkeys((*tree.leaf, *tree.block)):
        block = tree.block.get(node, "")
        if node in tree.leaf:
            above = _above(tree.leaf[node], tree.parents, where)
        else:
            above = _above(block, tree.aggregated, where)
        placements.append(Placement(node, above, block))
    return Cluster(name=where, placements=tuple(placements), warnings=tuple(warnings))


def _above(switch: str, parents: Mapping[str, str], where: str) -> tuple[str, ...]:
    chain = [switch]
    while chain[-1] in parents:
        above = parents[chain[-1]]
        if above in chain:
            raise InputError(f"{where}: switch {above} is above itself")
        chain.append(above)
    return tuple(chain)
