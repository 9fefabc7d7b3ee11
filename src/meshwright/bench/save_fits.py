"""Put measured fits into a cluster file, where the planner finds them."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from ..cluster.discovery.local import fingerprint
from ..cluster.graph import Cluster, CollectiveFit, Host, Measurements
from ..cluster.wire import read_cluster
from ..errors import InputError
from ..files import write_struct
from .pairs import LATENCY_BYTES, Pair


def with_fits(cluster: Cluster, fits: Sequence[CollectiveFit]) -> Cluster:
    """Return the cluster with these fits; those of the same collective, backend, ranks, algorithm and type go."""
    known = cluster.measured or Measurements(fingerprint=_fingerprint(cluster.hosts))
    merged = {_key(fit): fit for fit in (*known.collectives, *fits)}
    return replace(cluster, measured=replace(known, collectives=tuple(merged.values())))


def save_fits(path: str, base: Cluster, fits: Sequence[CollectiveFit]) -> None:
    """Add the fits to the cluster file `path`, or begin one from `base`; InputError where that cannot be done."""
    cluster = read_cluster(path) if Path(path).exists() else base
    try:
        write_struct(path, with_fits(cluster, fits))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def fit_of_pairs(pairs: Sequence[Pair], backend: str, size_bytes: int) -> CollectiveFit:
    """Return alpha and beta of a message between two ranks: medians over pairs, 5th to 95th percentile."""
    alphas = sorted(pair.latency_s for pair in pairs)
    betas = sorted(1 / pair.one_way_bytes_per_s for pair in pairs)
    low, high = len(pairs) // 20, len(pairs) - 1 - len(pairs) // 20
    return CollectiveFit(
        collective="send",
        backend=backend,
        ranks=2,
        alpha_s=statistics.median(alphas),
        beta_s_per_byte=statistics.median(betas),
        min_bytes=LATENCY_BYTES,
        max_bytes=size_bytes,
        alpha_band_s=(alphas[low], alphas[high]),
        beta_band_s_per_byte=(betas[low], betas[high]),
    )


def with_gpu_rates(cluster: Cluster, pairs: Sequence[Pair]) -> Cluster:
    """Return the cluster with each GPU link's measured rate and latency, rank i being GPU i of this host."""
    measured = {frozenset((f"GPU{p.a}", f"GPU{p.b}")): p for p in pairs}
    links = []
    for link in cluster.links:
        pair = measured.get(frozenset((link.a, link.b)))
        if pair is not None:
            link = replace(link, bandwidth_bytes_per_s=pair.one_way_bytes_per_s, latency_s=pair.latency_s)
        links.append(link)
    return replace(cluster, links=tuple(links))


def _key(fit: CollectiveFit) -> tuple[str, str, int, str, str]:
    return fit.collective, fit.backend, fit.ranks, fit.algorithm, fit.dtype


def _fingerprint(hosts: Sequence[Host]) -> str:
    return fingerprint(hosts[0]) if hosts else ""
