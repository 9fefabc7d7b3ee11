"""Ranks of MPICH on the hosts of a cluster in a box, beside torch's groups in the same processes.

A rank's process holds one MPI, which must start it. MPICH's launcher tells what it would start on each host
(`-launcher manual`), and `meshwright emulate exec` starts it there; messages between hosts go over TCP.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.mpis import FOLDER, prepare

MESHWRIGHT = [sys.executable, "-m", "meshwright", "emulate"]
LAUNCH = "HYDRA_LAUNCH:"
REPORT = "REPORT "


def emulated_by_mpi(module: str, nodes: int, nic: str | None, arguments: list[Any], *, ranks_per_node: int = 1) -> Any:
    """Run `work` of a benchmark on every rank of an emulated cluster, under MPICH; return what rank 0 reports."""
    prepare("mpich")
    bin_ = FOLDER / "mpich" / "bin"
    hosts = [f"node{n}" for n in range(nodes)]
    paths = os.pathsep.join(str(Path(path).resolve()) for path in ["", *sys.path])
    with _cluster(nodes, nic) as on:
        launcher = subprocess.Popen(
            [*on(hosts[0]), "env", "FI_PROVIDER=tcp", "OMP_NUM_THREADS=1", f"PYTHONPATH={paths}",
             str(bin_ / "mpiexec"), "-launcher", "manual", "-hosts", ",".join(hosts), "-ppn", str(ranks_per_node),
             "-n", str(nodes * ranks_per_node), str(bin_ / "python"), "-m", module, json.dumps(arguments)],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        started, report = [], None
        for line in launcher.stdout or ():
            if line.startswith(LAUNCH):
                words = shlex.split(line.removeprefix(LAUNCH))
                started.append(subprocess.Popen([*on(hosts[len(started)]), *words]))
            elif REPORT in line:
                report = json.loads(line.partition(REPORT)[2])
        codes = [launcher.wait(), *(each.wait() for each in started)]
    if any(codes) or report is None:
        raise SystemExit(f"the emulated ranks of MPICH failed: exit codes {codes}")
    return report


def join_by_mpi() -> Any:
    """Tell torch what MPI knows of this rank; return MPI's communicator, or None where no MPI started it."""
    if "PMI_RANK" not in os.environ:
        return None
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    os.environ |= {"RANK": str(comm.Get_rank()), "WORLD_SIZE": str(comm.Get_size())}
    os.environ["MESHWRIGHT_HOST"] = MPI.Get_processor_name()  # the launcher hands its own on to all hosts
    return comm


@contextmanager
def _cluster(nodes: int, nic: str | None) -> Iterator[Any]:
    """Emulate nodes while a block runs; give a function that returns the words before a command on one of them."""
    words = [*MESHWRIGHT, "--nodes", str(nodes), *(["--nic", nic] if nic else []), "--per-node"]
    cluster = subprocess.Popen([*words, "--", "sleep", "infinity"], stderr=subprocess.PIPE, text=True)
    try:
        told = next((line for line in cluster.stderr or () if "ready" in line), "")
        ready = re.search(r"emulation (\d+) ready", told)
        if ready is None:
            raise SystemExit("the cluster could not be emulated")
        yield lambda node: [*MESHWRIGHT, "exec", "--id", ready[1], node, "--"]
    finally:
        cluster.terminate()
        cluster.wait()
