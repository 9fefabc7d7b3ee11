"""GPUs that a row does not count: of the cell of its accelerator, of its nodes, or of its degrees of parallelism."""

import contextlib
import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from ...errors import InputError
from ...hardware import Catalogue
from .cells import count_of, is_empty, text_of
from .row_machine import accelerator_of, means_accelerator, node_named, node_of

DEGREES = ("tp", "pp", "cp", "dp")
_TIMES = r"\s*[x×*]\s*"
COUNTED_CELLS = (  # "4x8 H100", "8xH100", "2*RTX4090", "8 A100 80GB", then "H100 x 8"
    re.compile(rf"(?i)(?P<nodes>\d{{1,5}}){_TIMES}(?P<count>\d{{1,5}})(?:{_TIMES}|\s+)(?P<name>\S.*)"),
    re.compile(rf"(?i)(?P<count>\d{{1,5}})(?:{_TIMES}|\s+)(?P<name>\S.*)"),
    re.compile(rf"(?i)(?P<name>\S.*?)(?:{_TIMES}|\s*\(x\s*)(?P<count>\d{{1,5}})\)?"),
)
MOST_OF_NODE = 16  # GPUs of a node, in a name that may say them and not all


class CountedCell(NamedTuple):
    """An accelerator with its number, as one cell has both: how many there are, or how many nodes or slices hold it."""

    name: str
    gpus: int = 0  # 0 where nodes are counted
    each: int = 0  # of them in a node, 0 where it does not say
    nodes: int = 0
    slices: int = 0


def counted_cell(text: str, catalogue: Catalogue) -> CountedCell | None:
    """Return an accelerator with its number as one cell has both; None where it says no number."""
    if means_accelerator(text, catalogue):
        return None
    if alone := catalogue.slice_of(text):
        return CountedCell(catalogue.nodes[alone[0]].accelerator, int(alone[1]), slices=1)
    for form in COUNTED_CELLS:
        said = form.fullmatch(text)
        if said is None or said["name"].lower().endswith(("pci", "pcie")):  # x16 is the width of a link
            continue
        name, count, nodes = said["name"], int(said["count"]), int(said.groupdict().get("nodes") or 0)
        if sliced := catalogue.slice_of(name):
            return CountedCell(catalogue.nodes[sliced[0]].accelerator, count * int(sliced[1]), slices=count)
        if node_named(name, catalogue):
            return CountedCell(name, nodes=count * (nodes or 1))
        with contextlib.suppress(InputError):
            accelerator_of(catalogue, name)
            return CountedCell(name, count * (nodes or 1), each=count if nodes else 0)
    return None


def with_gpus_of_cell(cells: Mapping[str, str], catalogue: Catalogue, assumed: list[str]) -> dict[str, str]:
    """Return the cells of a row whose accelerator's cell says how many there are, with the two apart.

    Where the row counts its GPUs as well, and they are several times as many, the cell is of a node.
    """
    text = cells.get("gpu", "")
    said = counted_cell(text, catalogue)
    if said is None:
        return dict(cells)
    if said.slices > 1:
        assumed.append(f"{said.slices} slices: priced as one, though a network of the data centre lies between them")
    found = {**cells, "gpu": said.name}
    counts = {"nodes": said.nodes} if said.nodes else {"num_gpus": said.gpus}
    if said.each:
        counts["gpus_per_node"] = said.each
    elif not said.slices and not is_empty(cells.get("nodes", "")):
        counts = {"gpus_per_node": said.gpus}
    for column, number in counts.items():
        stated = number if is_empty(cells.get(column, "")) else count_of(cells, column)
        if stated == number:
            found[column] = str(number)
        elif column == "num_gpus" and not (said.slices or stated % number or number > MOST_OF_NODE):
            assumed.append(f"{number} GPUs a node, as gpu {text!r} says")
            found["gpus_per_node"] = str(number)
        else:
            raise InputError(f"gpu: {text!r} makes {column} {number}, but {column} = {stated}")
    return found


def with_gpus_of_nodes(cells: Mapping[str, str], catalogue: Catalogue, assumed: list[str]) -> dict[str, str]:
    """Return the cells of a row with the GPUs that its nodes have, or how many of its GPUs each has.

    Degrees that are all stated go before the GPUs of the catalogue's node.
    """
    found = dict(cells)
    if is_empty(cells.get("nodes", "")):
        return found
    nodes = count_of(cells, "nodes")
    each = cells.get("gpus_per_node", "")
    if is_empty(cells.get("num_gpus", "")):
        gpus = nodes * count_of(cells, "gpus_per_node") if not is_empty(each) else _product(cells)
        if not gpus:
            of_node = _gpus_of_node(cells, catalogue)
            gpus = nodes * of_node
            assumed.append(f"{gpus} GPUs: nodes {nodes} x {of_node} of a node (gpus_per_node)")
        found["num_gpus"] = str(gpus)
    gpus = count_of(found, "num_gpus")
    if gpus % nodes or (not is_empty(each) and gpus != nodes * count_of(cells, "gpus_per_node")):
        of_each = "" if is_empty(each) else f" of {each} GPUs"
        raise InputError(f"nodes: {nodes}{of_each}, but there are {gpus} GPUs")
    if is_empty(each) and nodes > 1 and gpus == _gpus_of_node(cells, catalogue):
        raise InputError(f"nodes: {nodes} with num_gpus {gpus}, of each or in all? gpus_per_node says it")
    if cores := catalogue.accelerators[_key(cells, catalogue)].cores:
        return found | _cores_of_nodes(nodes, gpus, round(cores.number), cells, catalogue, assumed)
    return found | {"gpus_per_node": str(gpus // nodes)}


def _cores_of_nodes(
    nodes: int, count: int, cores: int, cells: Mapping[str, str], catalogue: Catalogue, assumed: list[str]
) -> dict[str, str]:
    """Return the column that says that a row counts the cores of its chips, where its nodes have fewer chips.

    InputError where the count is neither that of the chips nor of the cores. Without the column chips are counted.
    """
    chips = _gpus_of_node(cells, catalogue)
    if not is_empty(cells.get("gpus_per_node", "")) or count <= nodes * chips:
        return {}
    if count != nodes * chips * cores:
        has = f"{nodes * chips} chips and {nodes * chips * cores} cores"
        raise InputError(f"nodes: {nodes} of {chips} chips of {cores} cores have {has}, but the row counts {count}")
    assumed.append(f"{count} cores, {cores} of each chip: {nodes} nodes have {nodes * chips} chips (gpus_per_node)")
    return {"gpus_per_node": str(chips * cores)}


def with_gpus_of_degrees(cells: Mapping[str, str], assumed: list[str]) -> dict[str, str]:
    """Return the cells of a row with the GPUs that its degrees make, where its table has dp and no column of them."""
    gpus = 0 if "num_gpus" in cells else _product(cells)
    if not gpus:
        return dict(cells)
    assumed.append(f"{gpus} GPUs: tp x pp x cp x dp (num_gpus)")
    return {**cells, "num_gpus": str(gpus)}


def _product(cells: Mapping[str, str]) -> int:
    """Return the ranks of the degrees of a row; 0 where it leaves dp open."""
    if is_empty(cells.get("dp", "")):
        return 0
    return math.prod(count_of(cells, axis, 1) for axis in DEGREES)


def _gpus_of_node(cells: Mapping[str, str], catalogue: Catalogue) -> int:
    """Return the GPUs of the catalogue's node with this accelerator, or of the node that a row names."""
    _, node = node_of(catalogue, _key(cells, catalogue), text_of(cells, "gpu"))
    return round(node.gpus.number) if node else 8


def _key(cells: Mapping[str, str], catalogue: Catalogue) -> str:
    """Return the accelerator of a row as drivers list it."""
    return catalogue.shown_key(accelerator_of(catalogue, text_of(cells, "gpu")))
