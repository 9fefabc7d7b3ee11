"""NCCL's net plugins on the library path: which there are and what they drive."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

SYSTEM_FOLDERS = (
    *("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"),
    *("/opt/amazon/ofi-nccl/lib", "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu", "/opt/amazon/efa/lib"),
    *(
        "/usr/local/nvidia/lib64",
        "/var/lib/tcpx/lib64",
        "/usr/local/tcpx/lib64",
        "/opt/hpcx/nccl_rdma_sharp_plugin/lib",
    ),
)
# words in a library that tell whose plugin it is
MARKS = {
    b"aws-ofi-nccl": "AWS OFI (EFA and other libfabric networks)",
    b"NET/OFI": "OFI (EFA and other libfabric networks)",
    b"tcpx": "Google GPUDirect-TCPX",
    b"FasTrak": "Google GPUDirect-TCPXO",
    b"sharp": "NVIDIA SHARP (InfiniBand)",
    b"slingshot": "HPE Slingshot",
}
MAX_BYTES = 64 * 2**20


class NetPlugin(msgspec.Struct, frozen=True):
    """One plugin: the file and what drives it, as far as it can be told."""

    path: str
    what: str


def net_plugins(
    environment: Mapping[str, str] = os.environ, folders: Sequence[str] = SYSTEM_FOLDERS
) -> tuple[NetPlugin, ...]:
    """Return the plugins that NCCL would find, in the order of its search: NCCL_NET_PLUGIN, LD_LIBRARY_PATH, system."""
    wanted = environment.get("NCCL_NET_PLUGIN", "")
    if wanted == "none":
        return ()
    names = [f"libnccl-net-{wanted}.so", wanted] if wanted else []
    names.append("libnccl-net.so")
    path = [folder for folder in environment.get("LD_LIBRARY_PATH", "").split(":") if folder]
    found: dict[str, NetPlugin] = {}
    for folder in (*path, *folders):
        for name in names:
            file = Path(folder) / name
            if name and file.is_file():
                real = str(file.resolve())
                found.setdefault(real, NetPlugin(str(file), _whose(file)))
    return tuple(found.values())


def _whose(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES)
    except OSError as error:
        return f"not readable: {error.strerror}"
    return next((what for mark, what in MARKS.items() if mark in data), "unknown")
