"""The form of a cluster that `topo --json` prints, and every file that a cluster is read from."""

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ..errors import InputError
from ..files import convert, read_data, read_text
from ..quantities import MOST_RATE, Number
from .graph import Cluster, Device, DeviceKind, Link, Placement, consistent

GigabytesPerSecond = Annotated[float, Meta(ge=0, lt=MOST_RATE / 1e9)]


class _WireDevice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    id: str
    kind: DeviceKind
    numa: Number | None = None
    cpu_affinity: str | None = None
    model: str = ""


class _WireLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    a: str
    b: str
    kind: str
    bandwidth_GBps: GigabytesPerSecond | None = None


class _WireCluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    devices: tuple[_WireDevice, ...]
    links: tuple[_WireLink, ...] = ()
    placements: tuple[Placement, ...] = ()
    warnings: tuple[str, ...] = ()


def wire_form(cluster: Cluster) -> dict[str, Any]:
    """Return devices, links (GB/s per direction, null where not determined) and warnings as plain data.

    Where nodes under switches are known, their places too.
    """
    places = [{"node": p.node, "switches": list(p.switches), "block": p.block} for p in cluster.placements]
    return {
        "devices": [
            {"id": d.id, "kind": d.kind, "numa": d.numa, "cpu_affinity": d.cpu_affinity, "model": d.model}
            for d in cluster.devices
        ],
        "links": [
            {
                "a": link.a,
                "b": link.b,
                "kind": link.kind,
                "bandwidth_GBps": None if link.bandwidth_bytes_per_s is None else link.bandwidth_bytes_per_s / 1e9,
            }
            for link in cluster.links
        ],
        **({"placements": places} if places else {}),
        "warnings": list(cluster.warnings),
    }


def names_file(name: str) -> bool:
    """Return whether `--cluster` names a file rather than a node type: by its ending, or since there is one."""
    return Path(name).suffix in {".json", ".toml"} or Path(name).is_file()


def read_cluster(path: str | os.PathLike[str]) -> Cluster:
    """Read a cluster file (`topo --save`, `bench --save`, one written by hand) or what `topo --json` printed.

    The latter has no name: its file's is taken. Of a calibration (`plan --calibrate --save`) the machines are read.
    InputError for anything else, and for a link to no device.
    """
    try:
        return consistent(_read(path))
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None


def may_be_cluster(data: dict[str, Any]) -> bool:
    """Return whether an object has a key of a cluster, a calibration or a catalogue: `read_cluster` then says more."""
    return bool({*Cluster.__struct_fields__, "sources", "nodes"} & set(data))


def _data(path: str | os.PathLike[str]) -> Any:
    """Return the value of a cluster file; InputError for any other text says what makes one of a dump."""
    if Path(path).suffix not in {".json", ".toml"} and not read_text(path).lstrip().startswith("{"):
        raise InputError(f"{path}: no cluster file; `topo --from {path} --save FILE` makes one where it is a dump")
    return read_data(path)


def _read(path: str | os.PathLike[str]) -> Cluster:
    where, data = str(path), _data(path)
    if isinstance(data, dict) and str(data.get("schema", "")).startswith("calibration/"):
        if data.get("cluster") is None:
            raise InputError(f"{where}: a calibration of a stack without machines; expected --stack {where}")
        return convert(data["cluster"], Cluster, where=f"{where}: cluster")
    if isinstance(data, dict) and "name" not in data and "sources" in data:
        named = f"; --cluster takes its {next(iter(data['nodes']))}" if isinstance(data.get("nodes"), dict) else ""
        raise InputError(f"{where}: extends the hardware catalogue: expected --hardware {where}{named}")
    if not isinstance(data, dict) or "name" in data or "devices" not in data:
        return convert(data, Cluster, where=where)
    printed = convert(data, _WireCluster, where=where)
    return Cluster(
        name=Path(path).stem,
        devices=tuple(
            Device(node=d.id.rpartition("/")[0], **{name: getattr(d, name) for name in d.__struct_fields__})
            for d in printed.devices
        ),
        links=tuple(
            Link(
                a=link.a,
                b=link.b,
                kind=link.kind,
                bandwidth_bytes_per_s=None if link.bandwidth_GBps is None else link.bandwidth_GBps * 1e9,
            )
            for link in printed.links
        ),
        placements=printed.placements,
        warnings=printed.warnings,
    )
