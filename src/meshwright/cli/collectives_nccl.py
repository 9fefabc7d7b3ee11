"""`meshwright collectives price --like nccl`: how long NCCL or RCCL takes, for one size or a curve of sizes."""

from collections.abc import Mapping
from typing import Any

import click

from ..collectives.schedules.schedule import COLLECTIVES
from ..errors import InputError
from ..files import to_json
from ..units import format_bytes, format_rate, format_time, parse_bytes
from .named_cluster import named_cluster
from .prose import say

SMALLEST = 1024  # of a curve


def price_like(library: str, options: Mapping[str, Any], *, curve: bool, as_json: bool) -> int:
    """Print the library's time of --collective of --bytes on --ranks of --cluster; return the exit code."""
    from ..cluster.compact import compact
    from ..hardware import load_catalogue
    from ..plan.clusters.nccl import nccl_price

    for key in ("name", "xml", "file", "counts", "rate", "alpha", "inter", "inter_alpha"):
        if options.get(key) is not None:
            word = str(options[key]) if key == "name" else f"--{key.replace('_', '-')}"
            if key == "name" and word in COLLECTIVES:
                raise InputError(f"--like {library}: expected --collective {word}, and no NAME of an algorithm")
            raise InputError(f"--like {library}: {word} does not go with it: the library chooses its own way")
    if options["cluster"] is None or options["ranks"] is None:
        raise InputError(f"--like {library}: expected --ranks N and --cluster, a node type of the catalogue or a file")
    name, ranks = str(options["cluster"]), int(options["ranks"])
    cluster = compact(named_cluster(name, ranks), load_catalogue(), where=name)
    sizes = [parse_bytes(size) for size in str(options["sizes"]).split(",")]
    if curve:
        largest = max(sizes)
        sizes = sorted({*(SMALLEST << i for i in range(64) if SMALLEST << i < largest), largest})
    found = [nccl_price(cluster, options["collective"] or "all_reduce", size, ranks, library) for size in sizes]
    if as_json:
        for one in found:
            click.echo(to_json(one.wire_form()))
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
    for note in first.notes:
        say(f"note: {note}")
    return 0
