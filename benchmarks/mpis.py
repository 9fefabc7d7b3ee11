"""The MPIs that take part in benchmarks, each in an environment of its own below build/mpi: a process holds one only.

All come from the package index with their launchers. `prepare(kind)` makes such an environment once; what is installed
beside this interpreter (torch, this package) is seen from it through a .pth file.
"""

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path
from typing import Any

PACKAGES = {"mpich": "mpich>=4.2,<6", "openmpi": "openmpi>=5,<6", "intel": "impi-rt>=2021,<2022"}
MPI4PY = "mpi4py>=4,<5"
FOLDER = Path(__file__).parents[1] / "build" / "mpi"
# Open MPI starts as root, and with more ranks than processors, only where it is told to
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


def prepared(kind: str) -> bool:
    """Return whether an MPI has its environment."""
    return (_folder(kind) / "bin" / "mpiexec").exists()


def prepare(kind: str) -> None:
    """Make the environment of an MPI; nothing where it is there."""
    if prepared(kind):
        return
    folder = _folder(kind)
    venv.create(folder, with_pip=False, clear=True)
    python = folder / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", MPI4PY, PACKAGES[kind]], check=True
    )
    site = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    (Path(site) / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")


def turns(kinds: list[str] | None, launches: int) -> list[str | None]:
    """Return the MPI of each launch, every kind as often, in turns; without a choice the prepared ones, and
    None, for ranks without an MPI, where none is.
    """
    for kind in kinds or ():
        prepare(kind)
    taking: list[str | None] = [*(kinds or [kind for kind in PACKAGES if prepared(kind)])]
    return (taking or [None]) * launches


def launch(module: str, ranks: int, arguments: list[str], kind: str | None) -> list[dict[str, Any]]:
    """Start the ranks of a module of this package, under an MPI where one is named; return what rank 0 wrote."""
    with tempfile.TemporaryDirectory() as folder:
        output = str(Path(folder) / "rows.json")
        own = ["-m", f"benchmarks.{module}", *arguments, "--output", output, "--folder", folder]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "WORLD_SIZE": str(ranks), "CUDA_VISIBLE_DEVICES": ""}
        if kind is not None:
            bin_ = _folder(kind) / "bin"
            paths = os.pathsep.join(path for path in sys.path if path)
            command = [str(bin_ / "mpiexec"), "-n", str(ranks), str(bin_ / "python"), *own]
            subprocess.run(command, env=environment | ENVIRONMENT | {"PYTHONPATH": paths}, check=True)
        else:
            command = [sys.executable, *own]
            children = [subprocess.Popen(command, env=environment | {"RANK": str(rank)}) for rank in range(ranks)]
            codes = [child.wait() for child in children]
            if any(codes):
                raise SystemExit("a rank of the benchmark failed")
        rows: list[dict[str, Any]] = json.loads(Path(output).read_text())
        return rows


def this_mpi() -> str:
    """Return the MPI of this rank, whose environment has its name."""
    return Path(sys.prefix).name


def _folder(kind: str) -> Path:
    return FOLDER / kind
