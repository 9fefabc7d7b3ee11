"""The cluster that `--cluster` names: a file, or nodes of the catalogue."""

from typing import TYPE_CHECKING, TypeVar

import msgspec

from ..cluster.graph import Cluster
from ..errors import InputError
from .options import JobQuestion, PlanOptions
from .prose import say

if TYPE_CHECKING:
    from ..hardware import Catalogue

Asked = TypeVar("Asked", PlanOptions, JobQuestion)
OTHER_LINKS = "`topo --save` on it reads it; a node type of your own in MESHWRIGHT_HARDWARE says other links"


def named_cluster(name: str, gpus: int | None, *, fabric: str = "flat", **changes: float) -> Cluster:
    """Return the cluster of a file, or as many nodes of a type of the catalogue as `gpus` need, on a fabric.

    Fewer GPUs than one node's are a part of a node. `changes` replace keys of the fabric. InputError for a name that
    is neither, and for a fabric beside a file, which says its own.
    """
    from ..cluster.builders import catalogue_cluster, fabric_assumed
    from ..cluster.wire import names_file, read_cluster
    from ..hardware import load_catalogue
    from ..hardware.cards import cards_assumed, gpus_told, machine_meant, with_cards

    if names_file(name):
        if changes or fabric != "flat":
            raise InputError(f"{name}: says itself what its fabric is; expected no --fabric or change of it")
        return read_cluster(name)
    name, gpus, told = machine_meant(load_catalogue(), name, gpus)
    if told:
        say(f"note: {told}", err=True)
    catalogue = with_cards(load_catalogue(), name)
    for assumed in cards_assumed(load_catalogue(), name, OTHER_LINKS):
        say(f"note: assumed: {assumed}", err=True)
    gpus = gpus or gpus_told(load_catalogue(), name)
    per_node = round(catalogue.listed_node(name).gpus.number)
    rounded = None if gpus is None else gpus if gpus < per_node else -(-gpus // per_node) * per_node
    cluster = catalogue_cluster(catalogue, name, gpus=rounded, fabric=fabric, **changes)  # type: ignore[arg-type]
    for assumed in fabric_assumed(catalogue, cluster):
        say(f"note: assumed: {assumed}", err=True)
    return cluster


def listed_network(cluster: Cluster, *, is_timed: bool) -> Cluster:
    """Return a cluster that lists its links as messages meet them; what is assumed of it is said, unless `is_timed`.

    `is_timed`: an option gives the latency of all messages.
    """
    from ..cluster.as_network import as_network
    from ..hardware import load_catalogue

    found, notes = as_network(cluster, load_catalogue())
    for note in () if is_timed else notes:
        say(f"note: {note}", err=True)
    return found


def with_machine_meant(given: Asked, catalogue: "Catalogue") -> Asked:
    """Return the options with the machine that the name of their cluster means, and say what it was."""
    from ..cluster.wire import names_file
    from ..hardware.cards import machine_meant

    if given.cluster is None or names_file(given.cluster):
        return given
    meant = machine_meant(catalogue, given.cluster, given.gpus)
    if meant.told:
        say(f"note: {meant.told}", err=True)
    return msgspec.structs.replace(given, cluster=meant.name, gpus=meant.gpus)


def unknown_latencies(cluster: Cluster) -> list[str]:
    """Return what of a cluster of nodes has no latency."""
    inside = [g.type for g in cluster.groups if g.gpus > 1 and g.gpu_latency_s is None]
    outside = [g.type for g in cluster.groups if cluster.num_nodes > g.scale_up_nodes and g.nic_latency_s is None]
    return [*(f"GPUs' links of {name}" for name in inside), *(f"NICs of {name}" for name in outside)]


def unjoined_notes(cluster: Cluster) -> list[str]:
    """Return what is to be said of nodes that have pairs of GPUs without a link: ranks are not laid along the links."""
    found = []
    for group in cluster.groups:
        pairs = group.gpus * (group.gpus - 1) // 2
        if group.mesh and len(group.mesh) < pairs and group.meets_through_host:
            apart = f"{pairs - len(group.mesh)} of the {pairs} pairs of GPUs of {group.type} have no link of their own"
            rings = "ranks lie as GPUs are numbered, where NCCL lays rings along the links"
            found.append(f"{apart} and meet over PCIe; {rings}")
    return found
