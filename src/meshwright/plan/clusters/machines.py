"""The cluster that a plan is made for: a node type of the catalogue or a file, a number of GPUs, rates overridden."""

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from ...cluster.builders import catalogue_cluster, uneven_nodes
from ...cluster.catalogue_devices import most_trays
from ...cluster.graph import Cluster, CollectiveFit, Fabric, NodeGroup, Placement
from ...cluster.proximity import nearest_nodes
from ...cluster.wire import names_file, read_cluster
from ...errors import InputError
from ...hardware import Catalogue
from ...hardware.cards import with_cards
from ...units import counted


def cluster_by_name(
    catalogue: Catalogue,
    name: str,
    gpus: int | None = None,
    *,
    fabric: str = "flat",
    intra_bytes_per_s: float | None = None,
    inter_bytes_per_s: float | None = None,
    latency_s: float | None = None,
    in_parts: int = 0,
) -> Cluster:
    """Return a cluster with `gpus` GPUs: `name` is a node type of the catalogue, or a file of a cluster.

    The file may be one that `topo` or `bench` wrote of a machine with GPUs (`cluster.compact`).

    `intra_bytes_per_s` replaces the rate of one GPU to its peers in the node, `inter_bytes_per_s` the rate of all NICs
    of a node together, `latency_s` the latency of a NIC; all per direction. InputError for what is not known. With
    `in_parts` GPUs that whole nodes of the catalogue do not have are those of nodes with fewer.
    """
    if names_file(name):
        read = read_cluster(name)
        from ...cluster.compact import compact  # and all that reads a machine: it is loaded only for its file

        cluster = resized(compact(read, catalogue, where=name), gpus)
        _check_domain(read, cluster, catalogue, name)
    else:
        known = with_cards(catalogue, name)
        joined = inter_bytes_per_s is not None
        cluster = catalogue_cluster(known, name, gpus=gpus, fabric=fabric, joined=joined, in_parts=in_parts)
    cluster = with_rates(
        cluster, intra_bytes_per_s=intra_bytes_per_s, inter_bytes_per_s=inter_bytes_per_s, latency_s=latency_s
    )
    if any(group.count > group.scale_up_nodes and not group.node_bandwidth_bytes_per_s for group in cluster.groups):
        raise InputError(f"{name}: no NIC of known rate joins its nodes; expected --inter RATE, such as 1600Gbps")
    return cluster


def unlike_gpus(name: str, cluster: Cluster) -> tuple[str, ...]:
    """Return how GPUs of a cluster file count that are not of one model; nothing where they are, or for a node type."""
    models = Counter(gpu.model for gpu in read_cluster(name).of_kind("gpu")) if names_file(name) else {}
    if len(models) < 2:
        return ()
    listed = " and ".join(f"{count} {model}" for model, count in sorted(models.items()))
    return (f"{name}: {listed}: all {cluster.num_gpus} GPUs count as the slowest, {node(cluster).gpu.model}",)


def nodes_counted(name: str, cluster: Cluster) -> tuple[str, ...]:
    """Return how the nodes of a cluster file count where more or fewer GPUs are asked for than it has; else nothing."""
    read = read_cluster(name) if names_file(name) else None
    own = 0 if read is None else read.num_gpus
    if not own or own == cluster.num_gpus:
        return ()
    asked = f"{cluster.num_gpus} GPUs are {counted(cluster.num_nodes, 'node')} like its own"
    joined = ", joined by their NICs" if own < cluster.num_gpus and node(cluster).scale_up_nodes == 1 else ""
    return (f"{name} has {counted(own, 'GPU')}: {asked}{joined}",)


def on_nearest_nodes(cluster: Cluster, placements: Sequence[Placement]) -> Cluster:
    """Return the cluster on the nearest of these nodes, which become its `placements` in the order of ranks.

    Its fabric gets as many nodes on a leaf as these have on average. InputError where they are too few.
    """
    chosen = nearest_nodes(placements, cluster.num_nodes)
    leaves = len({place.switches[:1] for place in chosen})
    fabric = cluster.fabric or Fabric()
    kind = "fat-tree" if fabric.kind == "flat" else fabric.kind
    fabric = replace(fabric, kind=kind, nodes_per_leaf=max(1, len(chosen) // leaves))
    return replace(cluster, placements=chosen, fabric=fabric)


def with_rates(
    cluster: Cluster,
    *,
    intra_bytes_per_s: float | None = None,
    inter_bytes_per_s: float | None = None,
    latency_s: float | None = None,
) -> Cluster:
    """Return the cluster with these rates in place of its own, in every group of nodes.

    What was measured of links that get another rate describes them no longer, and is left out.
    """
    groups = tuple(_group(group, intra_bytes_per_s, inter_bytes_per_s, latency_s) for group in cluster.groups)
    domain = max((group.gpus * group.scale_up_nodes for group in cluster.groups), default=0)

    def holds(fit: CollectiveFit) -> bool:
        return (intra_bytes_per_s if fit.ranks <= domain else inter_bytes_per_s) is None

    measured = cluster.measured
    if measured is not None:
        measured = replace(measured, collectives=tuple(filter(holds, measured.collectives)))
    return replace(cluster, groups=groups, measured=measured)


def fits_left_out(name: str, cluster: Cluster) -> tuple[str, ...]:
    """Return a remark where rates given beside a cluster file left out collectives that it has measured."""
    read = read_cluster(name).measured if names_file(name) else None
    kept = cluster.measured.collectives if cluster.measured else ()
    fits = [fit for fit in read.collectives if fit not in kept] if read else []
    told = ", ".join(f"{fit.collective} on {fit.ranks} ranks" for fit in fits)
    return (f"{name}: {told} as measured says nothing of links with the rate that was given",) if fits else ()


def node(cluster: Cluster) -> NodeGroup:
    """Return the nodes of a cluster; InputError if they are not all alike."""
    if len(cluster.groups) != 1:
        each = ", ".join(f"{group.count} x {group.gpus} {group.gpu.model}" for group in cluster.groups)
        raise InputError(
            f"{cluster.name}: {counted(len(cluster.groups), 'group')} of nodes ({each}); plan needs nodes that are all "
            "alike: a file with one group for each part, or all of them as the slowest, since a step waits for it; "
            "`simulate` takes them as they are"
        )
    return cluster.groups[0]


def resized(cluster: Cluster, gpus: int | None) -> Cluster:
    """Return a cluster of a file with as many nodes as `gpus` need."""
    if gpus is None or gpus == cluster.num_gpus:
        return cluster
    group = node(cluster)
    count, rest = divmod(gpus, group.gpus)
    if rest or not count:
        raise InputError(f"{cluster.name}: {uneven_nodes(gpus, group.gpus, 'a node')}")
    return replace(cluster, groups=(replace(group, count=count),))


def _check_domain(read: Cluster, cluster: Cluster, catalogue: Catalogue, name: str) -> None:
    """Raise InputError where trays of a rack are asked for and nothing says how many of them share its NVLink."""
    group = cluster.groups[0]
    if read.groups or read.scale_up_nodes or group.count == 1 or group.scale_up_nodes > 1:
        return
    trays = most_trays(group.gpu.model, catalogue)
    if trays and group.switched:
        raise InputError(
            f"{name}: {group.gpus} {group.gpu.model} are one tray of an NVLink domain; the file does not say how many "
            f"trays are in it (up to {trays}); expected a file written with `topo --domain N --save FILE`"
        )


def _group(group: NodeGroup, intra: float | None, inter: float | None, latency_s: float | None) -> NodeGroup:
    changes: dict[str, object] = {}
    if intra is not None:
        share = intra / group.gpu_bandwidth_bytes_per_s
        changes["gpu_bandwidth_bytes_per_s"] = intra
        changes["peer_bandwidth_bytes_per_s"] = group.peer_bandwidth_bytes_per_s * share
        changes["mesh"] = tuple((a, b, rate * share) for a, b, rate in group.mesh)
        if group.reduction_bandwidth_bytes_per_s is not None:
            changes["reduction_bandwidth_bytes_per_s"] = group.reduction_bandwidth_bytes_per_s * share
    if inter is not None:
        changes["nics"] = max(1, group.nics)
        changes["nic_bandwidth_bytes_per_s"] = inter / max(1, group.nics)
    if latency_s is not None:
        changes["nic_latency_s"] = latency_s
    return replace(group, **changes) if changes else group
