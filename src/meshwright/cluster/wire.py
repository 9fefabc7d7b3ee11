"""The form of a cluster that `topo --json` prints."""

from typing import Any

from .graph import Cluster


def wire_form(cluster: Cluster) -> dict[str, Any]:
    """Return devices, links (GB/s per direction, null where not determined) and warnings as plain data."""
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
        "warnings": list(cluster.warnings),
    }
