"""`nvidia-smi topo -m` into a Cluster: GPUs and NICs, one link a pair, rates where the dump determines them."""

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ...errors import InputError
from ...hardware import Catalogue
from ..catalogue_devices import with_catalogue
from ..graph import Cluster, Device, DeviceKind, Link
from ..paths import RateRule, nvlink_count, rank
from .evidence import GpuEvidence, single_gpu_notes, with_facts
from .matrix import Matrix, parse_matrices

WITHOUT_NVLINK = re.compile(r"topo\s+(?:-mp|-p\s+-m|-m\s+-p)\b")


def from_nvidia_matrix(
    text: str, where: str, catalogue: Catalogue, gpu: str | None = None, facts: GpuEvidence | None = None
) -> Cluster:
    """Return the cluster of a saved matrix; `gpu` or `facts` name the device where the dump leaves a rate open.

    Every matrix of the text is a node.
    """
    matrices = parse_matrices(text, where, facts)
    if WITHOUT_NVLINK.search(text):
        matrices[0].warnings.append("printed with -mp, which leaves NVLink out: give the output of nvidia-smi topo -m")
    if len(matrices) == 1:
        return from_matrix(matrices[0], where, catalogue, gpu)
    names = [matrix.host for matrix in matrices]
    if len(set(names)) < len(names) or not all(names):
        names = [f"node{i}" for i in range(len(matrices))]
    parts = [on_node(name, from_matrix(m, where, catalogue, gpu)) for name, m in zip(names, matrices, strict=True)]
    said = f"{len(parts)} matrices in one file: read as {len(parts)} nodes, {', '.join(names)}"
    return joined_hosts(where, parts, said)


def on_node(name: str, cluster: Cluster) -> Cluster:
    """Return the cluster of one host with the host's name in every device's id."""
    return replace(
        cluster,
        name=name,
        devices=tuple(replace(d, id=f"{name}/{d.id}", node=name) for d in cluster.devices),
        links=tuple(replace(k, a=f"{name}/{k.a}", b=f"{name}/{k.b}") for k in cluster.links),
        warnings=tuple(f"{name}: {warning}" for warning in cluster.warnings),
    )


def joined_hosts(name: str, parts: list[Cluster], *warnings: str) -> Cluster:
    """Return several hosts as one cluster."""
    alike = Counter(re.sub(r"^\S+: ", "", w) for part in parts for w in part.warnings)
    every = [text for text, count in alike.items() if count == len(parts)]
    some = [w for part in parts for w in part.warnings if re.sub(r"^\S+: ", "", w) not in every]
    return Cluster(
        name=name,
        hosts=tuple(host for part in parts for host in part.hosts),
        devices=tuple(device for part in parts for device in part.devices),
        links=tuple(link for part in parts for link in part.links),
        warnings=(*warnings, *every, *some),
    )


def from_matrix(matrix: Matrix, where: str, catalogue: Catalogue, gpu: str | None) -> Cluster:
    """Return the cluster of one matrix."""
    kinds = {name: _kind(name) for name in matrix.names}
    gpus = [i for i, name in enumerate(matrix.names) if kinds[name] == "gpu"]
    if not gpus:
        raise InputError(f"{where}: no GPU among the devices of the matrix")
    models, warnings = _models(matrix, catalogue, gpu)
    counts = {
        (gpus.index(i), gpus.index(j)): nvlink_count(_code(matrix, i, j))
        for i, j in itertools.combinations(gpus, 2)
        if nvlink_count(_code(matrix, i, j))
    }
    told = matrix.facts.per_link_bytes_per_s(catalogue)
    every = set(models.values()) if len(models) == len(gpus) else set[str]()
    named: list[str | None] = [*sorted(every)]
    rules = {key: RateRule(catalogue, key, counts, len(gpus), told) for key in named or [None]}
    numa = matrix.numa | _numa_of_nics(matrix, kinds)
    devices = []
    for name in matrix.names:
        device = Device(
            id=name,
            kind=kinds[name],
            model=matrix.nic_names.get(name, name) if kinds[name] == "nic" else "",
            numa=numa.get(name),
            cpu_affinity=matrix.cpu_affinity.get(name),
            memory_numa=matrix.memory_numa.get(name),
        )
        if name in models:
            device = with_catalogue(device, models[name], catalogue)
        digits = re.fullmatch(r"GPU(\d+)", name)
        devices.append(with_facts(device, int(digits.group(1)), matrix.facts, catalogue, gpu) if digits else device)
    links = [
        Link(
            a=matrix.names[i],
            b=matrix.names[j],
            kind=code,
            bandwidth_bytes_per_s=_slower(rules, matrix, (i, j), code, models),
        )
        for (i, j), code in sorted(matrix.codes.items())
    ]
    open_rates = dict.fromkeys(warning for rule in rules.values() for warning in rule.warnings)
    numbered = {int(device.id[3:]): device for device in devices if re.fullmatch(r"GPU\d+", device.id)}
    single = single_gpu_notes(matrix.facts, numbered)
    said = (*matrix.warnings, *matrix.facts.notes, *warnings, *open_rates, *single)
    return Cluster(name=where, devices=tuple(devices), links=tuple(links), warnings=said)


def _slower(
    rules: Mapping[str | None, RateRule], matrix: Matrix, pair: tuple[int, int], code: str, models: Mapping[str, str]
) -> float | None:
    """Return the rate of a pair by the models of its ends, the lesser where they differ; None if one is open."""
    keys = {models.get(matrix.names[end]) for end in pair} & set(rules)
    rates = [rules[key].bytes_per_s(code) for key in sorted(keys or set(rules), key=str)]
    return None if None in rates else min(rate for rate in rates if rate is not None)


def _kind(name: str) -> DeviceKind:
    return "gpu" if name.startswith(("GPU", "MIG")) else "nic"


def _numa_of_nics(matrix: Matrix, kinds: Mapping[str, DeviceKind]) -> dict[str, int]:
    """Return the NUMA node of each NIC that lies on the node of the GPUs, or of other NICs, that it is near."""
    number = {name: i for i, name in enumerate(matrix.names)}
    found: dict[str, int] = {}
    nics = [name for name in matrix.names if kinds[name] == "nic"]
    for _ in range(2):  # the second time by what the first found
        for nic in nics:
            known = matrix.numa | found
            near = {
                known[other]
                for other in matrix.names
                if other in known
                and other != nic
                and 0 < rank(_code(matrix, number[nic], number[other])) <= rank("NODE")
            }
            if len(near) == 1 and nic not in found:
                found[nic] = near.pop()
    return found


def _code(matrix: Matrix, i: int, j: int) -> str:
    return matrix.codes.get((min(i, j), max(i, j)), "")


def _models(matrix: Matrix, catalogue: Catalogue, gpu: str | None) -> tuple[dict[str, str], list[str]]:
    """Return the catalogue's key of each GPU, by the user or by names in the file, and warnings of unknown ones."""
    gpus = [name for name in matrix.names if _kind(name) == "gpu"]
    if gpu is not None:
        return dict.fromkeys(gpus, catalogue.accelerator_key(gpu)), []
    named = matrix.facts.models or _in_order(matrix.facts.unnumbered, gpus, catalogue)
    keys: dict[str, str | None] = {name: catalogue.driver_key(name) for name in set(named.values())}
    warnings = [
        f"{name} is not in the catalogue (describe it with --hardware FILE): rates that depend on it are left open"
        for name, key in sorted(keys.items())
        if key is None
    ]
    if len(keys) > 1:
        slower = "a pair is as fast as the slower" if all(keys.values()) else "rates that depend on it are left open"
        warnings.append(f"several GPU models: {', '.join(sorted(keys))}: {slower}")
    found = {}
    for name in gpus:
        digits = re.fullmatch(r"GPU(\d+)", name)
        model = named.get(int(digits.group(1))) if digits else None
        if model is None and len(keys) == 1:  # a report names one device only, or MIG instances of one
            model = next(iter(keys))
        if model is not None and (key := keys[model]):
            found[name] = key
    return found, warnings


def _in_order(names: Sequence[str], gpus: Sequence[str], catalogue: Catalogue) -> dict[int, str]:
    """Return names without numbers by the numbers of the GPUs, where there are as many or all are the same."""
    known = [name for name in names if catalogue.driver_key(name)]
    if len(known) != len(gpus) and len(set(known)) != 1:
        return {}
    return dict(enumerate(known if len(known) == len(gpus) else known[:1] * len(gpus)))
