"""`lstopo` as text (hwloc 1 and 2) into the tree that its XML holds: levels by indentation, several of them on a line.

It names classes of PCI devices and hardly ever their ids: whose accelerator one is follows from the devices of the
operating system below it, and where none tells the text is refused.
"""

import re

from msgspec.structs import replace

from ...errors import InputError
from ...hardware import Catalogue
from ...hardware.pci import pci_kind
from ..graph import Cluster
from .hwloc import from_hwloc
from .pasted import plain_lines
from .xml import MAX_DEPTH, Element

_HEAD = re.compile(r"\s*Machine\b(?: L#\d+)?(?: \([^)]*\))?\s*(?:$|\+ )")
_UNIT = re.compile(r"\bPU L#\d+ \(P#\d+\)")
_NAMED = re.compile(r"(?P<type>[A-Z]\w*)(?:\((?P<sort>[\w-]+)\))?(?: L#\d+)?(?: \((?P<facts>[^)]*)\))?$")
_DEVICE = re.compile(r'(?P<type>[A-Z]\w*)(?:\((?P<sort>[\w-]+)\))?(?: L#\d+)? "(?P<name>[^"]{1,80})"')
_PCI = re.compile(
    r"PCI (?:L#\d+ )?(?:\(busid=)?"
    r"(?:(?P<bus>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])|(?P<ids>[0-9a-f]{4}:[0-9a-f]{4}))"
    r"(?: id=(?P<id>[0-9a-f]{4}:[0-9a-f]{4}))?(?: class=(?P<number>[0-9a-f]{4})\(?[\w -]*\)?)?"
    r"(?:.*?\blink=(?P<link>[\d.]+)GB/s)?(?: ?\((?P<word>[\w /-]+)\))?"
)
_CLASSES = {"3D": "0302", "VGA": "0300", "Display": "0380", "InfiniBand": "0207", "Ethernet": "0200", "Network": "0280"}
_ACCELERATORS = {"0300", "0302", "0380", "1200"}
_OS_DEVICES = {"Block": "0", "GPU": "1", "Net": "2", "Network": "2", "OpenFabrics": "3", "DMA": "4", "CoProc": "5"}
_VENDORS = {"NVML": "10de", "CUDA": "10de", "RSMI": "1002", "LevelZero": "8086"}  # by who finds the device
_NAMES = {"nvml": "10de", "cuda": "10de", "rsmi": "1002", "ze": "8086"}  # hwloc 1 says no more than a name
_NUMBER = re.compile(r"\bP#(\d{1,5})\b")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_ANY = "ffff"  # a device whose number is not said


def looks_like_lstopo_text(text: str) -> bool:
    """Return whether a text is a tree of lstopo from the machine down to processing units."""
    if "PU L#" not in text[:200_000] or "Machine" not in text[:200_000]:
        return False
    lines = [line.text for line in plain_lines(text[:200_000])]
    return any(map(_HEAD.match, lines)) and any(_UNIT.search(line) for line in lines)


def from_lstopo_text(text: str, where: str, catalogue: Catalogue, gpu: str | None = None) -> Cluster:
    """Return the cluster of one host, without rates where the text has none."""
    machine = _tree(text, where)
    _place(machine)
    devices = [e for e in machine.walk() if e.attributes.get("type") == "PCIDev"]
    consoles = [words for device in devices if (words := _identify(device, where))]
    cluster = from_hwloc(Element("topology", {"version": "2.0"}, 1, [machine]), where, catalogue, gpu)
    said = ["lstopo's text does not say NVLink, xGMI and most rates: lstopo --of xml, nvidia-smi topo -m say them"]
    said += [f"{words}: a console or a GPU, which this text does not tell: not counted" for words in consoles]
    # that none of a GPU's own links is shown says nothing here
    open_links = tuple(replace(device, own_links=None) for device in cluster.devices)
    return replace(cluster, devices=open_links, warnings=(*cluster.warnings, *said))


def _tree(text: str, where: str) -> Element:
    """Return the machine with all below it; what stands before it and behind its end is none of it."""
    stack: list[tuple[int, Element]] = []  # with the columns in which their lines begin
    for line in plain_lines(text):
        depth, words = len(line.text) - len(line.text.lstrip()), line.text.strip()
        if not words or (not stack and not _HEAD.match(line.text)):
            continue
        if stack and depth <= stack[0][0]:
            break
        while len(stack) > 1 and stack[-1][0] >= depth:
            stack.pop()
        for place, part in enumerate(words.split(" + ")):
            element = _element(part.strip(), f"{line.number}.{place}", line.number, where)
            if stack:
                stack[-1][1].children.append(element)
            stack.append((depth, element))
        if len(stack) > MAX_DEPTH:
            raise InputError(f"{where}:{line.number}: more than {MAX_DEPTH} levels")
    return stack[0][1]


def _element(words: str, index: str, line: int, where: str) -> Element:
    """Return one object as the XML has it; of a kind that says nothing here its name alone."""
    said = {"gp_index": index}
    if words.startswith("PCI "):
        match = _PCI.match(words)
        if match is None:
            raise InputError(f"{where}:{line}: {words[:60]!r}: expected such as PCI 1a:00.0 (3D)")
        number = match["number"] or _CLASSES.get(match["word"] or "", "")
        said |= {"type": "PCIDev", "class": number, "ids": match["id"] or match["ids"] or "", "word": words[:60]}
        said |= {"pci_busid": match["bus"]} if match["bus"] else {}
        said |= {"pci_link_speed": match["link"]} if match["link"] else {}
    elif (device := _DEVICE.match(words)) and device["type"] in _OS_DEVICES:
        kind = _OS_DEVICES[device["type"]]
        said |= {"type": "OSDev", "osdev_type": kind, "name": device["name"], "subtype": device["sort"] or ""}
    elif match := _NAMED.match(words):
        kind, facts = match["type"], _NUMBER.search(match["facts"] or "")
        said["type"] = "Bridge" if kind.endswith("Bridge") else "Package" if kind == "Socket" else kind
        if facts and kind in {"NUMANode", "PU"}:
            said["os_index"] = facts[1]
        size = re.search(r"(\d{1,9})([KMGT])B", match["facts"] or "")
        if size and kind in {"NUMANode", "Machine"}:
            said["local_memory"] = str(int(size[1]) * _UNITS[size[2]])
    return Element("object", said, line)


def _place(element: Element) -> tuple[set[str], set[str]]:
    """Give NUMA nodes their processing units, and what is above them its nodes; return nodes and units below.

    A node that has none below it is beside those of what it is in, as hwloc 2 draws it.
    """
    kind, number = element.attributes.get("type"), element.attributes.get("os_index", "")
    nodes, units = set[str](), {number} if kind == "PU" else set[str]()
    for child in element.children:
        below = _place(child)
        nodes |= below[0]
        units |= below[1]
    for node in (e for e in element.children if e.attributes.get("type") == "NUMANode"):
        node.attributes.setdefault("cpuset", _mask(units))
    if kind == "NUMANode":
        nodes = {number}
        if units:
            element.attributes["cpuset"] = _mask(units)
    elif nodes:
        element.attributes["nodeset"] = _mask(nodes)
        if kind == "Machine":
            element.attributes.pop("local_memory", None)  # the nodes have it
    return nodes, units


def _mask(numbers: set[str]) -> str:
    """Return numbers as a mask in words of 32 bits, the highest first."""
    digits = f"{sum(1 << int(number) for number in numbers if number):x}"
    whole = digits.zfill(-(-len(digits) // 8) * 8)
    return ",".join(whole[i : i + 8] for i in range(0, len(whole), 8))


def _identify(device: Element, where: str) -> str:
    """Give a PCI device the class and the ids that its text and what is in it tell; return what stays open of it."""
    said, inside = device.attributes, [e.attributes for e in device.walk() if e.attributes.get("type") == "OSDev"]
    kinds = {its["osdev_type"] for its in inside}
    number = said["class"] or ("0302" if kinds & {"1", "5"} else "0200" if kinds & {"2", "3"} else "0000")
    vendors = {_VENDORS.get(its["subtype"]) or _vendor(its["name"]) for its in inside} - {""}
    ids = said["ids"] or (f"{vendors.pop()}:{_ANY}" if len(vendors) == 1 else "0000:0000")
    vendor, _, model = ids.partition(":")
    said["pci_type"] = f"{number} [{vendor}:{model}]"
    if number not in _ACCELERATORS or said["ids"] or pci_kind(number, vendor, model):
        return ""
    if number == "0300" and not kinds & {"1", "5"}:
        return said["word"]
    raise InputError(
        f"{where}:{device.line}: {said['word']}: whose accelerator it is is not said; expected lstopo --of xml"
    )


def _vendor(name: str) -> str:
    return next((vendor for word, vendor in _NAMES.items() if re.fullmatch(rf"{word}\d+", name)), "")
