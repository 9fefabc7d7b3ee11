"""Put measured fits into a cluster file, where the planner finds them."""

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from ..cluster.graph import Cluster, CollectiveFit, Host, Measurements
from ..cluster.local import fingerprint
from ..errors import InputError
from ..files import read_struct, write_struct


def with_fits(cluster: Cluster, fits: Sequence[CollectiveFit], copy_bytes_per_s: float | None) -> Cluster:
    """Return the cluster with these fits; one of the same collective, backend, ranks and algorithm is replaced."""
    known = cluster.measured or Measurements(fingerprint=_fingerprint(cluster.hosts))
    merged = {_key(fit): fit for fit in (*known.collectives, *fits)}
    measured = replace(
        known,
        collectives=tuple(merged.values()),
        memory_bandwidth_bytes_per_s=copy_bytes_per_s or known.memory_bandwidth_bytes_per_s,
    )
    return replace(cluster, measured=measured)


def save_fits(path: str, base: Cluster, fits: Sequence[CollectiveFit], copy_bytes_per_s: float | None = None) -> None:
    """Add the fits to the cluster file `path`, or begin one from `base`; InputError where that cannot be done."""
    cluster = read_struct(path, Cluster) if Path(path).exists() else base
    try:
        write_struct(path, with_fits(cluster, fits, copy_bytes_per_s))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _key(fit: CollectiveFit) -> tuple[str, str, int, str]:
    return fit.collective, fit.backend, fit.ranks, fit.algorithm


def _fingerprint(hosts: Sequence[Host]) -> str:
    return fingerprint(hosts[0]) if hosts else ""
