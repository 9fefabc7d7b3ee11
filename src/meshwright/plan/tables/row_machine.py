"""The machine of a row of measured runs: its accelerator, the node that holds it, and the rates between them."""

import contextlib
import re

from ...errors import InputError, nearest
from ...hardware import Accelerator, Catalogue, NodeType
from ...hardware.arithmetic import dies_told, gpu_link, node_network_bytes_per_s, share_between_peers, without_peers
from ...units import counted
from ..analytic.host import HostFigures
from .cells import Cells, count_of, is_empty, names_link, number_of, text_of


def listed_accelerator(cells: Cells, catalogue: Catalogue, assumed: list[str]) -> str:
    """Return the accelerator of a row as drivers list it; that it is one die of a card is added to `assumed`."""
    key = catalogue.shown_key(accelerator_of(catalogue, text_of(cells, "gpu")))
    assumed += dies_told(catalogue, key)
    return key


def network_gbps(cells: Cells, catalogue: Catalogue, node: NodeType | None, assumed: list[str]) -> float:
    """Return the Gb/s of all NICs of a node: the row's, or those of the catalogue's node, which is assumed."""
    rate = number_of(cells, "inter_node_Gbps_per_node")
    if rate is None:
        rate = (node_network_bytes_per_s(catalogue, node) * 8e-9 if node else 0.0) or 3200.0
        assumed.append(f"inter-node rate {rate:.0f} Gb/s a node")
    return rate


def accelerator_of(catalogue: Catalogue, name: str) -> str:
    """Return the catalogue's key for a GPU as a table names it: "GB200-NVL72", or its node (a2-ultragpu-8g: A100)."""
    try:
        return catalogue.accelerator_key(name)
    except InputError:
        with contextlib.suppress(InputError):
            return catalogue.node(name).accelerator
        words = re.sub(r"(?<=[a-z]) (?=\d)", "", re.sub(r"\(.*?\)", " ", name.lower()))
        stems = {key.split("-")[0] for key in catalogue.accelerators}
        stem = next(
            (word for word in re.findall(r"[a-z0-9]+", words) if word in stems and re.search(r"\d", word)), None
        )
        if stem is None:
            raise InputError(
                f"gpu: no accelerator {name!r} in the catalogue ({_known_like(name, catalogue)})"
            ) from None
        size = re.search(r"(\d+) ?gb", words)
        keys = [key for key in catalogue.accelerators if key == stem or key.startswith(stem + "-")]
        sized = [key for key in keys if size and f"{size.group(1)}g" in key and ("pcie" in key) == ("pcie" in words)]
        if sized or stem in keys:
            return sized[0] if sized else stem
        return catalogue.accelerator_key(stem)


def _known_like(name: str, catalogue: Catalogue) -> str:
    """Return what may be meant by a name that is no accelerator: those of the same kind, or the nearest one."""
    words = set(re.findall(r"[a-z]+", name.lower()))
    alike = [key for key in catalogue.accelerators if key.split("-")[0] in words]
    if alike:
        return f"of that kind it has {', '.join(alike)}"
    near = nearest(name.lower(), catalogue.accelerators)
    listed = "`topo --catalogue accelerators` lists them"
    return f"{near if near.startswith('did you mean') else listed}; --hardware FILE adds one"


def means_accelerator(name: str, catalogue: Catalogue) -> bool:
    """Return whether a text is the name of an accelerator, and no more."""
    with contextlib.suppress(InputError):
        return bool(catalogue.accelerator_key(name))
    return False


def node_named(name: str, catalogue: Catalogue) -> str:
    """Return the node type that a name means; "" for an accelerator's, and for one that means none."""
    if means_accelerator(name, catalogue):
        return ""
    with contextlib.suppress(InputError):
        return catalogue.node_key(name)
    return ""


def node_of(catalogue: Catalogue, accelerator: str, name: str) -> tuple[str, NodeType | None]:
    """Return the node type that a table's cell names ("p4d.24xlarge"); of an accelerator's `name`, the first with it.

    That is the first of the catalogue with this accelerator, or with the same family of it.
    """
    if (key := node_named(name, catalogue)) in catalogue.whole_nodes:
        return key, catalogue.listed_node(key)
    listed = catalogue.shown_key
    exact = [key for key, node in catalogue.whole_nodes.items() if listed(node.accelerator) == accelerator]
    related = [key for key, node in catalogue.whole_nodes.items() if chip_of(node.accelerator) == chip_of(accelerator)]
    for key in (*exact, *related):
        return key, catalogue.listed_node(key)
    return "", None


def is_size_of(accelerator: Accelerator, memory_bytes: float) -> bool:
    """Return whether this memory is what an accelerator is sold with: 80 GB, or 80 GiB, of an H100 of 80 GB."""
    sizes = {float(size) for size in re.findall(r"(\d+) ?GB", accelerator.title)}
    sizes.add(float(-(-accelerator.memory_bytes // 2**30)))
    return memory_bytes / 1e9 in sizes or memory_bytes / 2**30 in sizes


def card_of_size(catalogue: Catalogue, accelerator: str, said: str, memory_bytes: float) -> str:
    """Return the accelerator that is sold with this memory, "" where none is.

    It is a row's, or, where the cell `said` names no size, another one of its chip.
    """
    keys = [accelerator]
    if not re.search(r"(?i)\d\s*gi?b?(?![a-z])", said):
        keys += [key for key in catalogue.accelerators if chip_of(key) == chip_of(accelerator)]
    return next((key for key in keys if is_size_of(catalogue.accelerators[key], memory_bytes)), "")


def chip_of(accelerator: str) -> str:
    """Return the part of a key that names the chip, without its memory and form: "rtx-3090" of "rtx-3090-ti"."""
    found = re.match(r"(?:[a-z]+-)*[a-z]*\d\w*", accelerator)
    return found.group() if found else accelerator


def host_of_row(accelerator: Accelerator, node: NodeType | None, catalogue: Catalogue) -> HostFigures:
    """Return what the catalogue knows of the host of an accelerator: its link, and the memory of the node."""
    link = catalogue.interconnect(accelerator.cpu_link or accelerator.host_link).rate_bytes_per_s
    memory_rate = node.host_memory_rate.number if node and node.host_memory_rate else None
    return HostFigures(link, memory_rate, node.host_memory.number if node and node.host_memory else None)


def link_rate_of_row(
    cells: Cells, catalogue: Catalogue, accelerator: Accelerator, node: NodeType | None, assumed: list[str]
) -> float:
    """Return the rate of one GPU to its peers; a bridge between cards is none that a table could tell of."""
    own = accelerator.link if accelerator.peer_access or not accelerator.bridged else None
    link = catalogue.interconnect(own or accelerator.host_link) if own or node is None else gpu_link(catalogue, node)
    told = without_peers(accelerator, link)
    assumed += [told] if told else []
    said = cells.get("intra_node", "")
    if not is_empty(said) and not names_link(said, link.kind, link.title):
        assumed.append(f"links inside a node: {link.title}, the accelerator's (intra_node says {said!r}, is not read)")
    return link.rate_bytes_per_s * share_between_peers(accelerator, link)


def node_size(cells: Cells, node: NodeType | None, gpus: int, assumed: list[str]) -> int:
    """Return the GPUs of a node: the row's, or those of the catalogue's node, which is assumed of several nodes."""
    found = count_of(cells, "gpus_per_node", round(node.gpus.number) if node else 8)
    if gpus > found and is_empty(cells.get("gpus_per_node", "")):
        assumed.append(f"{counted(found, 'GPU')} a node (gpus_per_node)")
    return found


def cores_of(accelerator: Accelerator, node: NodeType | None, per_node: int, assumed: list[str]) -> int:
    """Return into how many of its cores, each counted as a GPU, a row divides an accelerator; 1 where it counts chips.

    What frameworks drive as a device may be a core: a node then has that many times the catalogue's accelerators.
    """
    most = round(accelerator.cores.number) if accelerator.cores else 1
    if most == 1 or node is None:
        return 1
    chips = round(node.gpus.number)
    found = per_node // chips if per_node % chips == 0 and most % (per_node // chips) == 0 else 1
    if found == 1:
        assumed.append(f"a GPU is a chip of {most} cores (gpus_per_node says that cores are counted: {most * chips})")
    else:
        assumed.append(f"a GPU is one of {found} cores of a chip: a node has {chips} chips, and {per_node} are counted")
    return found
