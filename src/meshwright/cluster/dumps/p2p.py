"""`nvidia-smi topo -p2p`: which GPUs can copy to each other. It says neither over what nor how fast."""

import itertools
import re

from ...errors import InputError
from ...hardware import Catalogue
from ...units import counted
from ..catalogue_devices import with_catalogue
from ..graph import Cluster, Device, Link
from ..paths import P2P
from .pasted import plain_lines

MEANING = {
    "OK": "",
    "CNS": "the chipset does not support it",
    "GNS": "the GPU does not support it",
    "TNS": "the topology does not support it",
    "DR": "the driver disables it",
    "NS": "not supported",
    "U": "unknown",
}
REFUSED = frozenset({"CNS", "GNS", "TNS", "DR"})  # the others may be of links alone (-p2p n), which are not there
CELL = re.compile("|".join((*MEANING, "X")))


ROW = re.compile(r"^\s*GPU\d+\s+(?:(?:X|OK|CNS|GNS|TNS|DR|NS|U)\s+)*(?:OK|CNS|GNS|TNS|DR|NS)\b", re.M)


def looks_like_p2p(text: str) -> bool:
    """Return whether a text holds rows of GPUs with the states of peer-to-peer."""
    return ROW.search(text) is not None


def without_p2p(text: str) -> str:
    """Return a text without the rows of peer-to-peer and the headers above them; a matrix beside them is left."""
    lines = text.splitlines(keepends=True)
    gone: set[int] = set()
    for at, line in enumerate(lines):
        if ROW.match(line):
            gone.add(at)
            above = at - 1
            while above >= 0 and not lines[above].strip():
                above -= 1
            if above >= 0 and re.fullmatch(r"\s*(GPU\d+\s*)+", lines[above]):
                gone.add(above)
    return "".join(line for at, line in enumerate(lines) if at not in gone)


def from_p2p(text: str, where: str, catalogue: Catalogue, gpu: str | None = None) -> Cluster:
    """Return the GPUs, a link without a rate for every pair that can copy, and a warning for the pairs that cannot."""
    rows: dict[str, list[str]] = {}
    for line in plain_lines(text):
        tokens = line.text.split()
        if len(tokens) > 1 and re.fullmatch(r"GPU\d+", tokens[0]) and all(map(CELL.fullmatch, tokens[1:])):
            if tokens[0] in rows:
                raise InputError(f"{where}:{line.number}: a second row for {tokens[0]}")
            rows[tokens[0]] = tokens[1:]
    names = list(rows)
    short = next((name for name, cells in rows.items() if len(cells) != len(names)), None)
    if short is not None or len(names) < 2:
        what = (
            f"row {short}: {counted(len(rows[short]), 'cell')} for {counted(len(names), 'GPU')}"
            if short
            else counted(len(names), "row")
        )
        raise InputError(f"{where}: {what}: truncated? expected the output of nvidia-smi topo -p2p r")
    links, refused = [], dict[str, list[str]]()
    for (i, a), (j, b) in itertools.combinations(enumerate(names), 2):
        states = {rows[a][j], rows[b][i]}
        if states == {"OK"}:
            links.append(Link(a=a, b=b, kind=P2P, bandwidth_bytes_per_s=None))
        else:
            refused.setdefault(min(states - {"OK"}), []).append(f"{a}-{b}")
    warnings = [
        f"no peer-to-peer between {counted(len(pairs), 'pair')} ({', '.join(pairs[:4])}): {MEANING.get(state, state)}"
        + (", so that copies go through the host's memory, slower than their link" if state in REFUSED else "")
        for state, pairs in refused.items()
    ]
    warnings.append("peer-to-peer says not over what: give the output of nvidia-smi topo -m as well")
    devices = [Device(id=name, kind="gpu") for name in names]
    if gpu is not None:
        devices = [with_catalogue(device, gpu, catalogue) for device in devices]
    return Cluster(name=where, devices=tuple(devices), links=tuple(links), warnings=tuple(warnings))
