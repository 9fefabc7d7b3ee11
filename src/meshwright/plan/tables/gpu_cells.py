"""GPUs that a row does not count: those of its nodes, or of its degrees of parallelism."""

import math
from collections.abc import Mapping

from ...errors import InputError
from ...hardware import Catalogue
from .cells import count_of, is_empty, text_of
from .row_machine import accelerator_of, node_of

DEGREES = ("tp", "pp", "cp", "dp")


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
    if catalogue.accelerators[_key(cells, catalogue)].cores:  # gpus_per_node would say whether cores are counted
        return found
    return found | {"gpus_per_node": str(gpus // nodes)}


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
    _, node = node_of(catalogue, _key(cells, catalogue))
    return round(node.gpus.number) if node else 8


def _key(cells: Mapping[str, str], catalogue: Catalogue) -> str:
    """Return the accelerator of a row as drivers list it."""
    return catalogue.shown_key(accelerator_of(catalogue, text_of(cells, "gpu")))
