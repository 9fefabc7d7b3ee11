"""`lspci -tv`: the PCI tree as a drawing, with the names of what hangs on it, without lanes, rates and NUMA nodes.

A bus stands in brackets behind its bridge, what is on it behind that, one below the other from a "+" on:

    -[0000:00]-+-01.0-[01-03]----00.0-[02-03]--+-00.0-[03]----00.0  NVIDIA Corporation GH100 [H100 SXM5 80GB]
               |                               \\-01.0-[04]----00.0  Mellanox Technologies MT2910 Family [ConnectX-7]
"""

import re

from msgspec.structs import replace

from ...errors import InputError
from ...hardware import Catalogue
from ..graph import Cluster
from .lspci import Function, assembled, kind_by_name
from .pasted import plain_lines

ROOT = re.compile(r"^[ |]*[-+\\]+(?=\[[0-9a-f]{4,8}:[0-9a-f]{2}\])")
BRANCH = re.compile(r"^[ |]*([+\\])-")
BUS = re.compile(r"-*\[(?:([0-9a-f]{4,8}):)?([0-9a-f]{2})(?:-[0-9a-f]{2})?\]")
FORK = re.compile(r"-*(\+)-")
DEVICE = re.compile(r"-*([0-9a-f]{2}\.[0-7])")
NAME = re.compile(r"  (\S.*?)(?: \[([0-9a-f]{4}):([0-9a-f]{4})\])?\s*$")
NAMED_TREE = re.compile(r"^\s*-\+?-?\[[0-9a-f]{4,8}:[0-9a-f]{2}\]-.*$", re.M)


def looks_like_lspci_tree(text: str) -> bool:
    """Return whether a text is a tree of lspci with names."""
    head = text[:200_000]
    return NAMED_TREE.search(head) is not None and re.search(r"[+\\-]-?[0-9a-f]{2}\.[0-7]  [A-Z]", head) is not None


def from_lspci_tree(text: str, where: str, catalogue: Catalogue, gpu: str | None = None) -> Cluster:
    """Return the accelerators and network cards by their names, with the paths between them and no rates.

    InputError where a branch is out of its column: what hangs on it would be lost.
    """
    functions: list[Function] = []
    forks: dict[int, tuple[str, str]] = {}  # column of a "+": domain and bus of what stands below it
    for plain in plain_lines(text):
        line = plain.text
        if root := ROOT.match(line):
            forks = {}
            _read(line, root.end(), ("0000", ""), forks, functions)
        elif (branch := BRANCH.match(line)) and forks:
            if branch.start(1) not in forks:
                raise InputError(
                    f'{where}:{plain.number}: this branch stands below no "+" of the lines above: blanks of the tree '
                    "were lost or added; expected it as lspci -tv draws it"
                )
            here = forks[branch.start(1)]
            forks = {column: bus for column, bus in forks.items() if column <= branch.start(1)}
            _read(line, branch.end(), here, forks, functions)
    for function in functions:
        function.kind = kind_by_name(function.name, catalogue)
    cluster = assembled(functions, where, catalogue, gpu)
    said = ["lspci -t does not say lanes: the rates of PCIe are open; lspci -vv says them"]
    if any(link.kind == "SYS" for link in cluster.links):
        said.append("lspci -t does not say NUMA nodes: SYS may be NODE")
    return replace(cluster, warnings=(*cluster.warnings, *said))


def _read(
    line: str, at: int, here: tuple[str, str], forks: dict[int, tuple[str, str]], functions: list[Function]
) -> None:
    """Take in what one line draws from a column on; `here` is the bus on which it begins."""
    while True:
        if bus := BUS.match(line, at):
            here, at = (bus.group(1) or here[0], bus.group(2)), bus.end()
            if functions and line[bus.start() - 1 : bus.start()].strip() and bus.group(1) is None:
                functions[-1].secondary = here[1]
            if fork := FORK.match(line, at):
                forks[fork.start(1)], at = here, fork.end()
        device = DEVICE.match(line, at)
        if device is None:
            return
        name = NAME.match(line, device.end())
        text, vendor, number = name.groups() if name else ("", None, None)
        functions.append(Function(here[0], here[1], device.group(1), "", text, vendor or "", number or ""))
        at = device.end()
        if not BUS.match(line, at):
            return
