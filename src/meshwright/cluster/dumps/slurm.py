"""`scontrol show topology` (or topology.conf) into the placements of nodes under switches or blocks."""

import itertools
import re

from ...errors import InputError
from ..graph import Cluster, Placement

MAX_NAMES = 100_000
PAIR = re.compile(r"(\w+)=(\S*)")


def looks_like_slurm(text: str) -> bool:
    """Return whether a text describes switches or blocks as SLURM does."""
    return re.search(r"^\s*(SwitchName|BlockName)=", text[:200_000], re.M | re.I) is not None


def from_slurm_topology(text: str, where: str) -> Cluster:
    """Return a cluster of placements only: the switches above every node, the leaf first."""
    parents: dict[str, str] = {}
    leaf: dict[str, str] = {}
    known: set[str] = set()
    warnings: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        pairs = {key.lower(): value for key, value in PAIR.findall(line.split("#")[0])}
        name = pairs.get("switchname") or pairs.get("blockname")
        if not line.strip() or line.strip().startswith("#"):
            continue
        if not name:
            raise InputError(f"{where}:{number}: expected SwitchName=... or BlockName=...")
        here = f"{where}:{number}"
        if name in known:
            raise InputError(f"{here}: {name} is described twice")
        known.add(name)
        _hang(parents, expand_hosts(pairs.get("switches", ""), here), name, warnings)
        if not pairs.get("switches"):  # higher levels repeat the nodes below them
            _hang(leaf, expand_hosts(pairs.get("nodes", ""), here), name, warnings)
        if len(leaf) > MAX_NAMES:
            raise InputError(f"{here}: more than {MAX_NAMES} nodes")
    missing = sorted(set(parents) - known)
    if missing:
        raise InputError(f"{where}: switch {missing[0]} is named below another but not described: truncated?")
    if not leaf:
        raise InputError(f"{where}: no nodes below any switch")
    placements = tuple(Placement(node, _above(switch, parents, where)) for node, switch in leaf.items())
    return Cluster(name=where, placements=placements, warnings=tuple(warnings[:20]))


def _hang(above: dict[str, str], names: list[str], switch: str, warnings: list[str]) -> None:
    """Note that `names` hang on `switch`; where one already hangs elsewhere, the first place stays."""
    for name in names:
        first = above.setdefault(name, switch)
        if first != switch:
            warnings.append(f"{name} hangs on {first} and on {switch}; the first is used")


def expand_hosts(text: str, where: str) -> list[str]:
    """Return the names of a SLURM host list: "a[0-2,5],b" gives a0, a1, a2, a5, b."""
    names: list[str] = []
    for part in _top_level_parts(text, where):
        pieces = re.split(r"\[([^\[\]]*)\]", part)
        choices = [[piece] if i % 2 == 0 else _range(piece, where) for i, piece in enumerate(pieces)]
        total = 1
        for choice in choices:
            total *= len(choice)
        if total + len(names) > MAX_NAMES:
            raise InputError(f"{where}: host list of more than {MAX_NAMES} names")
        names += ["".join(parts) for parts in itertools.product(*choices)]
    return names


def _top_level_parts(text: str, where: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for character in text:
        depth += (character == "[") - (character == "]")
        if depth not in {0, 1}:
            raise InputError(f"{where}: host list {text[:40]!r}: brackets do not match")
        if character == "," and not depth:
            parts.append(current)
            current = ""
        else:
            current += character
    if depth:
        raise InputError(f"{where}: host list {text[:40]!r}: brackets do not match")
    return [part for part in (*parts, current) if part]


def _range(text: str, where: str) -> list[str]:
    numbers: list[str] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part.strip())
        if match is None:
            raise InputError(f"{where}: {part[:30]!r}: expected a range such as 0-15")
        low, high = match.group(1), match.group(2) or match.group(1)
        if int(high) < int(low) or int(high) - int(low) >= MAX_NAMES:
            raise InputError(f"{where}: range {part[:30]}: expected a rising one of {MAX_NAMES} names at most")
        numbers += [str(n).zfill(len(low)) for n in range(int(low), int(high) + 1)]
    return numbers


def _above(switch: str, parents: dict[str, str], where: str) -> tuple[str, ...]:
    chain = [switch]
    while chain[-1] in parents:
        above = parents[chain[-1]]
        if above in chain:
            raise InputError(f"{where}: switch {above} is above itself")
        chain.append(above)
    return tuple(chain)
