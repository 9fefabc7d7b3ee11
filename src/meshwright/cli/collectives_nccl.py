"""`meshwright collectives price --like nccl`: how long NCCL or RCCL takes, for one size or a curve of sizes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ..collectives.schedules.schedule import COLLECTIVES
from ..errors import InputError
from ..files import to_json
from ..units import counted, format_bytes, format_network_rate, format_rate, format_time, parse_bytes, parse_rate
from .named_cluster import named_cluster
from .prose import say

if TYPE_CHECKING:
    from ..cluster.graph import Cluster

SMALLEST = 1024  # of a curve


def price_like(library: str, options: Mapping[str, Any], *, curve: bool, as_json: bool) -> int:
    """Print the library's time of --collective of --bytes on --ranks of --cluster; return the exit code."""
    from ..plan.clusters.nccl import nccl_price

    for key in ("name", "xml", "file", "counts", "rate", "alpha", "inter", "inter_alpha"):
        if options.get(key) is not None and not (key == "inter" and options["cluster"]):
            word = str(options[key]) if key == "name" else f"--{key.replace('_', '-')}"
            if key == "name" and word in COLLECTIVES:
                raise InputError(f"--like {library}: expected --collective {word}, and no NAME of an algorithm")
            raise InputError(f"--like {library}: {word} does not go with it: the library chooses its own way")
    if options["cluster"] is None or options["ranks"] is None:
        raise InputError(f"--like {library}: expected --ranks N and --cluster, a node type of the catalogue or a file")
    name, ranks = str(options["cluster"]), int(options["ranks"])
    cluster, joined = _nodes_for(name, ranks, options["inter"])
    sizes = [parse_bytes(size) for size in str(options["sizes"]).split(",")]
    if curve:
        largest = max(sizes)
        sizes = sorted({*(SMALLEST << i for i in range(64) if SMALLEST << i < largest), largest})
    found = [nccl_price(cluster, options["collective"] or "all_reduce", size, ranks, library) for size in sizes]
    if as_json:
        for one in found:
            click.echo(to_json({**one.wire_form(), "notes": (*joined, *one.notes)}))
        return 0
    for one in found:
        click.echo(
            f"{one.collective} {format_bytes(one.bytes):>10}{format_time(one.time_s):>12}"
            f"{format_rate(one.algbw_bytes_per_s):>14} algbw{format_rate(one.busbw_bytes_per_s):>14} busbw  "
            f"{one.algorithm}, {one.protocol}"
        )
    first = found[0]
    say(f"band {100 * first.error_band:.0f} %; fitted to {', '.join(first.fitted_on)}")
    say(
        "each is the time to expect of a call of that size, in the middle of the fitted runs; bench --from holds "
        "a table against what NCCL reaches on its links at most"
    )
    for note in (*joined, *first.notes):
        say(f"note: {note}")
    return 0


def _nodes_for(name: str, ranks: int, inter: str | None) -> "tuple[Cluster, tuple[str, ...]]":
    """Return the nodes that ranks fill, and what is taken of them: of a file of one node as many like it as are needed.

    `inter` is the rate of all NICs of a node together. InputError where several nodes have no NICs of known rate.
    """
    from ..cluster.compact import compact
    from ..cluster.wire import names_file
    from ..hardware import load_catalogue
    from ..plan.clusters.machines import cluster_by_name, node, nodes_counted, with_rates

    rate = None if inter is None else parse_rate(inter)
    cluster = compact(named_cluster(name, ranks), load_catalogue(), where=name)
    if not names_file(name) or ranks <= cluster.num_gpus:
        return with_rates(cluster, inter_bytes_per_s=rate), ()
    per_node = node(cluster).gpus
    cluster = cluster_by_name(load_catalogue(), name, -(-ranks // per_node) * per_node, inter_bytes_per_s=rate)
    group = node(cluster)
    network = f"{counted(group.nics, 'NIC')} of {format_network_rate(group.nic_bandwidth_bytes_per_s)}"
    by_nics = () if group.scale_up_nodes > 1 else (f"a node sends through {network} (--inter says another rate)",)
    return cluster, (*nodes_counted(name, cluster), *by_nics)
