"""A `meshwright train` on every node of an emulated cluster."""

import shlex
import sys
from pathlib import Path

import msgspec

from meshwright.backend.hosts.links import LINKS_VARIABLE
from meshwright.cluster.emulation import Emulation
from meshwright.cluster.emulation.session import StartedJob
from meshwright.layout import Layout
from meshwright.train.run.run_folder import RunFolder
from testkit.caches import new_cache
from testkit.skew import set_clock
from testkit.train_jobs import small_job, write_run

BATCH = 12  # divides over two, three and four nodes
PORT = 29400


def start_on_nodes(
    cluster: Emulation,
    path: Path,
    corpus: str,
    *,
    launch: dict[str, object],
    model: dict[str, object] | None = None,
    links: Path | None = None,
    clocks: dict[int, int] | None = None,
    **train: object,
) -> tuple[RunFolder, StartedJob]:
    """Start a small job with the cluster's ranks on each node, which meet on node 0; return its folder and processes.

    `links` is the folder with the links that another run has kept; None: this one measures its own. `clocks` says how
    many seconds the wall clocks of some nodes are ahead.
    """
    folder = write_on_nodes(cluster, path, corpus, launch=launch, model=model, **train)
    environment = {"OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": new_cache(path.parent / "cache")}
    environment |= {LINKS_VARIABLE: str(links)} if links else {}
    return folder, cluster.start_nodes(train_command(path, clocks or {}), env=environment)


def write_on_nodes(
    cluster: Emulation,
    path: Path,
    corpus: str,
    *,
    launch: dict[str, object],
    model: dict[str, object] | None = None,
    **train: object,
) -> RunFolder:
    """Write the run folder of a small job on all ranks of a cluster."""
    nodes, ranks = cluster.spec.nodes, cluster.spec.ranks_per_node
    job = small_job(corpus, global_batch=BATCH, **train)
    where = {"nodes": nodes, "ranks": ranks, "rendezvous": f"{cluster.address(0)}:{PORT}"}
    job = msgspec.structs.replace(
        job,
        model=msgspec.structs.replace(job.model, **(model or {})),
        launch=msgspec.structs.replace(job.launch, **(where | launch)),
    )
    return write_run(path, job, Layout(dp=nodes * ranks, mbs=BATCH // (nodes * ranks)))


def train_command(path: Path, clocks: dict[int, int]) -> list[str]:
    """Return the command that every node runs, with the wall clocks of some a number of seconds ahead."""
    command = [sys.executable, "-m", "meshwright", "train", "--resume", str(path)]
    if clocks:
        cases = "".join(f"{node}) {set_clock(ahead_s, path.parent)};;\n" for node, ahead_s in clocks.items())
        return ["sh", "-ec", f'case "$NODE_RANK" in\n{cases}esac\nexec {shlex.join(command)}']
    return command
