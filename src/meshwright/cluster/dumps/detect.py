"""Find out what kind of dump a file is, and read it."""

import os
from pathlib import Path

from msgspec.structs import replace

from ...errors import InputError
from ...files import read_text
from ...hardware import Catalogue
from ..discover import assemble
from ..graph import Cluster
from ..wire import read_cluster
from .hwloc import from_hwloc
from .matrix import looks_like_matrix
from .nccl import from_nccl
from .nvidia import from_nvidia_matrix
from .rocm import from_rocm_topology, looks_like_rocm
from .slurm import from_slurm_topology, looks_like_slurm
from .xml import parse_xml

MAX_BYTES = 32 * 2**20
MAX_LINES = 200_000
KNOWN = (
    "nvidia-smi topo -m, rocm-smi --showtopo, lstopo XML, NCCL topology XML, scontrol show topology, "
    "a folder like /sys, or cluster.json"
)


def load_dump(path: str | os.PathLike[str], catalogue: Catalogue, gpu: str | None = None) -> Cluster:
    """Read a saved dump, a copy of /sys, or a cluster file; InputError in one line for anything else."""
    if Path(path).is_dir():
        return _saved_sysfs(Path(path), catalogue, gpu)
    if Path(path).suffix in {".json", ".toml"}:
        return read_cluster(path)
    text = read_text(path, max_bytes=MAX_BYTES)
    cluster = parse_dump(text, str(path), catalogue, gpu)
    return replace(cluster, name=Path(path).stem) if cluster.name == str(path) else cluster


def _saved_sysfs(folder: Path, catalogue: Catalogue, gpu: str | None) -> Cluster:
    if not (folder / "bus/pci/devices").is_dir():
        raise InputError(f"{folder}: no bus/pci/devices in this folder; expected a copy of /sys, or a file of {KNOWN}")
    return assemble(Cluster(name=folder.name), catalogue, [], gpu, folder, None)


def parse_dump(text: str, where: str, catalogue: Catalogue, gpu: str | None = None) -> Cluster:
    """Return the cluster that a dump's text describes; `where` opens the message of an error."""
    text = text.removeprefix("\ufeff")  # a byte order mark
    if text.count("\n") > MAX_LINES:
        raise InputError(f"{where}: more than {MAX_LINES} lines, refused")
    if text.lstrip().startswith("<"):
        root = parse_xml(text.lstrip(), where)
        if root.name == "topology":
            return from_hwloc(root, where, catalogue, gpu)
        if root.name == "system":
            return from_nccl(root, where, catalogue, gpu)
        raise InputError(f"{where}: XML element {root.name[:40]!r}, expected topology (lstopo) or system (NCCL)")
    if looks_like_slurm(text):
        return from_slurm_topology(text, where)
    if looks_like_rocm(text):
        return from_rocm_topology(text, where, catalogue, gpu)
    if looks_like_matrix(text):
        return from_nvidia_matrix(text, where, catalogue, gpu)
    raise InputError(f"{where}: not a known dump; expected {KNOWN}")
