"""`ibnetdiscover` and `iblinkinfo`: the InfiniBand switches above every node."""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence

from ...errors import InputError
from ...units import counted
from ..graph import Cluster, Placement
from .ibnet_rates import FabricRates

# Switch	36 "S-0002c902004885b0"		# "MF0;leaf0:MSX6036F/U1" enhanced port 0 lid 2 lmc 0
BLOCK = re.compile(r'^[ \t]*(Switch|Ca|Rt)\s+\d+\s+"([^"]+)"\s*#\s*"([^"]*)"')
# [1]	"H-0002c903000e0b72"[1](2c903000e0b73) 		# "node01 HCA-1" lid 5 4xNDR
PORT = re.compile(
    r'^[ \t]*\[\d+\](?:\[[^\]]*\])?(?:\([^)\s]*\))?\s+"([^"]+)"\[\d+\]'
    r'(?:[^#"]*#\s*(?:lid \d+ lmc \d+ )?"([^"]*)")?'
)
# 2    1[  ] ==( 4X     100.0 Gbps Active/  LinkUp)==>       5    1[  ] "node01 HCA-1" ( )
LINKINFO_SWITCH = re.compile(r"^[ \t]*Switch:?\s+0x([0-9a-f]+)\s+(.+?):?\s*$")
LINKINFO_CA = re.compile(r"^[ \t]*CA:\s+(.+?):?\s*$")
LINKINFO = re.compile(r"==\(.*?(?:Active|LinkUp).*?\)==>\s*(?:0x[0-9a-f]+\s+)?\d+\s+\d+\[.*?\]\s+\"([^\"]+)\"")
# one line by itself (`iblinkinfo -l`, or filtered by grep): the port's id and its owner's name may be there, LID, port
ALONE = re.compile(
    r'^\s*(?:(0x[0-9a-f]+)\s+)?(?:"([^"]*)"\s+)?(\d+)\s+(\d+)\[[^\]]*\]\s+==\([^)]*(?:Active|LinkUp)[^)]*\)==>'
    r'\s*(?:0x[0-9a-f]+\s+)?(\d+)\s+(\d+)\[[^\]]*\]\s+"([^"]+)"'
)
ADAPTER_PORTS = 2  # at most, each with an LID of its own
# ibnetdiscover's id of a switch, and how switches describe themselves: "MF0;leaf0:MQM9700/U1" and makers' chips
SWITCH = re.compile(r"S-[0-9a-f]+\b")
DESCRIBED = re.compile(r"MF0;|.+:M(?:QM|SB|SX|CS|TQ)\d\w*/\w+$|(?:Quantum|Switch-?(?:IB|X)|Infini[Ss]cale)\b")
MAX_NODES = 100_000


def looks_like_ibnet(text: str) -> bool:
    """Return whether a text is of ibnetdiscover or iblinkinfo."""
    head = text[:200_000]
    return re.search(BLOCK.pattern, head, re.M) is not None or re.search(LINKINFO.pattern, head, re.M) is not None


def from_ibnet(text: str, where: str) -> Cluster:
    """Return the switches above every node, the leaf first; levels are counted from the switches that have nodes."""
    names: dict[str, str] = {}
    switches: set[str] = set()
    near: dict[str, set[str]] = defaultdict(set)
    rates = FabricRates()
    here = ""
    for line in text.splitlines():
        block, port = BLOCK.match(line), PORT.match(line)
        switch, host, link = LINKINFO_SWITCH.match(line), LINKINFO_CA.match(line), LINKINFO.search(line)
        if block:
            here = _told_apart(names, block.group(2), block.group(3))
            if block.group(1) == "Switch":
                switches.add(here)
        elif port and here:
            peer = _told_apart(names, port.group(1), port.group(2))
            near[here].add(peer)
            near[peer].add(here)
            rates.take(here, peer, line)
        elif switch:
            here = switch.group(2)
            switches.add(here)
        elif host:
            here = host.group(1)
        elif link and here:
            near[here].add(link.group(1))
            near[link.group(1)].add(here)
            rates.take_info(here, line)
    if not here:
        switches, near = _by_lid(text.splitlines(), rates)
    if not switches:
        raise InputError(f"{where}: no switches, expected the output of ibnetdiscover or iblinkinfo")
    return _placed(names, switches, near, where, rates)


def _told_apart(names: dict[str, str], node: str, description: str | None) -> str:
    """Return what to know a node by, and note its description: its id, with which two may stand of which a part is out.

    Notes hide ids ("H-946d<redacted>"): what is described in another way is another node then.
    """
    if description is None or names.setdefault(node, description) == description:
        return node
    if re.fullmatch(r"[A-Z]-[0-9a-f]{8,16}", node):  # a whole GUID; somebody renamed the host meanwhile
        return node
    both = f"{node} {description}"
    names[both] = description
    return both


def _by_lid(lines: Iterable[str], rates: FabricRates) -> tuple[set[str], dict[str, set[str]]]:
    """Return the switches and who is beside whom, of lines of iblinkinfo that stand under no heading.

    A switch is what has no port id before its LID, as only adapters have one there, or more ports of one LID than the
    one that an adapter has; of a single port the number tells.
    """
    matches = [match for line in lines if (match := ALONE.match(line))]
    found = [match.groups() for match in matches]
    name: dict[str, str] = {}
    ports: dict[str, set[int]] = defaultdict(set)
    bare: set[str] = set()
    for guid, own, lid, port, other, other_port, remote in found:
        name.setdefault(other, remote)
        if own:
            name[lid] = own.strip()
        ports[lid].add(int(port))
        ports[other].add(int(other_port))
        if guid is None:
            bare.add(lid)
    near: dict[str, set[str]] = defaultdict(set)
    for _, _, lid, _, other, _, _ in found:
        if lid in name:
            near[name[lid]].add(name[other])
            near[name[other]].add(name[lid])
    for match in matches:
        if match[3] in name:
            rates.take_info(name[match[3]], match.string)
    return {
        name[lid]
        for lid in ports
        if lid in name and (lid in bare or len(ports[lid]) > 1 or max(ports[lid]) > ADAPTER_PORTS)
    }, near


def _placed(
    names: Mapping[str, str], switches: set[str], near: Mapping[str, set[str]], where: str, rates: FabricRates
) -> Cluster:
    near = _without_sums(names, near)
    switches = switches | {node for node in near if SWITCH.match(node) or DESCRIBED.match(names.get(node, node))}
    adapters = [node for node in near if node not in switches]
    if len(adapters) > MAX_NODES:
        raise InputError(f"{where}: more than {MAX_NODES} adapters")
    leaves = {s for s in switches if near[s] - switches}
    level = _levels(leaves, switches, near)
    label = _labels(names, switches)
    host, nameless = _hosts(names, adapters)
    above: dict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
    for adapter in adapters:
        for leaf in near[adapter] & switches:
            above[host[adapter]][_chain(leaf, level, near, label)] += 1
    ports: dict[str, list[float]] = defaultdict(list)
    for adapter, its in rates.ports_bytes_per_s(switches).items():
        ports[host.get(adapter, adapter)] += its
    placements = tuple(
        Placement(node, chains.most_common(1)[0][0], ports_bytes_per_s=tuple(sorted(ports[node], reverse=True)))
        for node, chains in sorted(above.items())
    )
    rails = sum(1 for chains in above.values() if len(chains) > 1)
    hang = f"{counted(rails, 'node')} {'hangs' if rails == 1 else 'hang'}"
    on_rails = [f"{hang} on several leaf switches (rails): the one with most of the node's ports is named"]
    warnings = [*(on_rails if rails else ()), *nameless]
    warnings += rates.warnings(switches, lambda node: label.get(node) or host.get(node, node))
    warnings += rates.thin_leaves(switches, adapters, lambda node: label[node])
    warnings += _alike(level, label)
    if not placements:
        raise InputError(f"{where}: no adapter hangs on any switch")
    return Cluster(name=where, placements=placements, warnings=tuple(warnings))


def _without_sums(names: Mapping[str, str], near: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return who is beside whom without the adapters inside switches that add up for SHARP: no node has them."""
    inside = {node for node in near if "Aggregation Node" in names.get(node, node)}
    return defaultdict(set, {node: beside - inside for node, beside in near.items() if node not in inside})


def _levels(leaves: set[str], switches: set[str], near: Mapping[str, set[str]]) -> dict[str, int]:
    level, todo = dict.fromkeys(leaves, 0), deque(sorted(leaves))
    while todo:
        here = todo.popleft()
        for other in sorted(near[here] & switches):
            if other not in level:
                level[other] = level[here] + 1
                todo.append(other)
    return level


def _chain(
    leaf: str, level: Mapping[str, int], near: Mapping[str, set[str]], label: Mapping[str, str]
) -> tuple[str, ...]:
    """Return a leaf and the switches above it. All of a level that one leaf reaches stand for one another."""
    chain, here = [label[leaf]], {leaf}
    while higher := {s for one in here for s in near[one] if level.get(s, -1) == level[next(iter(here))] + 1}:
        chain.append(min(label[s] for s in higher))
        here = higher
    return tuple(chain)


def _alike(level: Mapping[str, int], label: Mapping[str, str]) -> list[str]:
    """Return how many switches stand above the leaves where a place names one of a level alone."""
    above = Counter(number for number in level.values() if number)
    several = [
        f"{counted(count, 'switch')} on level {number + 1}" for number, count in sorted(above.items()) if count > 1
    ]
    return [f"of the switches above a leaf a place names one: there are {', '.join(several)}"] if several else []


def _labels(names: Mapping[str, str], switches: Iterable[str]) -> dict[str, str]:
    """Return what to call each switch: the host's part of its description, or its id where two have the same."""
    said = {s: re.sub(r"^MF0;|[:;].*$", "", names.get(s, s)) or s for s in switches}
    often = Counter(said.values())
    return {s: name if often[name] == 1 else s for s, name in said.items()}


def _hosts(names: Mapping[str, str], adapters: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the node of each adapter and what is odd about their descriptions, such as "node01 mlx5_0".

    What several adapters are called alike names none of them ("localhost mlx5_0", the name of a chip): each is then
    told by its GUID. One word alone is a host's, whose adapters may share it.
    """
    often = Counter(names.get(adapter, adapter) for adapter in adapters)
    alike = {words: number for words, number in often.items() if number > 1 and len(words.split()) > 1}
    found = {}
    for adapter in adapters:
        words = names.get(adapter, adapter)
        found[adapter] = adapter if words in alike else _host(words)
    said = [
        f"{number} adapters call themselves {words!r}, which tells no host: each counts as a node, by its GUID, so "
        "that a host with several of them counts more than once"
        for words, number in alike.items()
    ]
    return found, said


def _host(description: str) -> str:
    """Return the node of an adapter's description, such as "node01 mlx5_0" or "node01 HCA-1"."""
    return description.split()[0].strip("'\"") if description.split() else description
