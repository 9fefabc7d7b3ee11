"""`meshwright bench`: measure links, collectives, compute and memory, or read tables that others measured.

The work is in `bench_work`, which imports torch; so `--help` does not.
"""

import signal
import threading
from typing import Any

import click

from .. import interruptible
from ..bench.table import DTYPES
from .help_format import Brief
from .values import measurable

OFTEN = ("backend", "ranks", "smallest", "largest", "budget", "source", "node", "save", "html", "as_json")


@click.command(
    "bench",
    cls=Brief,
    often=OFTEN,
    epilog="Example: meshwright bench all_reduce --ranks 4 --max 64M --save cluster.json",
)
@click.argument("what", nargs=-1)
@click.option("--backend", metavar="NAME", default="gloo", show_default=True, help="gloo, meshwright, nccl or mpi.")
@click.option(
    "--ranks", metavar="N", default=2, show_default=True, help="Ranks to start here (under torchrun: its own)."
)
@click.option("--min", "smallest", metavar="SIZE", default="1K", show_default=True, help="Smallest size.")
@click.option("--max", "largest", metavar="SIZE", default="128M", show_default=True, help="Largest size.")
@click.option("--factor", metavar="N", default=2, show_default=True, help="Each size is the one before times N.")
@click.option("--time", "budget", metavar="TIME", default="0.25", show_default=True, help="Seconds to spend on a size.")
@click.option("--dtype", type=click.Choice(list(DTYPES)), default="float", show_default=True)
@click.option(
    "--from",
    "source",
    multiple=True,
    metavar="FILE...",
    help="Read tables: nccl-tests or another tool's. WHAT: more files.",
)
@click.option("--node", metavar="NAME", help="Hold the result against this node type of the catalogue.")
@click.option(
    "--link",
    metavar="NAME",
    help="Hold the result against this link or NIC of the catalogue, or a rate such as 400Gbps.",
)
@click.option("--nics", metavar="N", type=click.IntRange(min=1), help="With --from: NICs of a node.")
@click.option("--cluster", "cluster_name", metavar="NAME", help="With --from: node type, or cluster file of `topo`.")
@click.option("--hardware", multiple=True, metavar="FILE", help="A TOML file that extends the catalogue.")
@click.option("--save", metavar="FILE", help="Put the fits into this cluster file, which the planner reads.")
@click.option("--plot", metavar="FILE", help="Draw time over size into an SVG file.")
@click.option("--html", metavar="FILE", help="Write a page with plot and tables.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a size.")
def command(**options: Any) -> int:
    """Measure WHAT: collectives (all_reduce, ...), p2p, latency, compute or memory. Default: all_reduce."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, interruptible.end)
    read: Any = []
    files = options.pop("source")
    if files:
        from ..bench.reading import read_files

        what = options.pop("what")
        files = (*files, *(word for word in what if word not in measurable()))
        read = read_files(files)  # before torch is loaded: a bad file is refused at once
        options["what"] = ()
    source = " + ".join(files) or None
    from .bench_work import bench

    return bench(**options, source=source, read=read)
