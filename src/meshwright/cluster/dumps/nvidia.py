"""`nvidia-smi topo -m` into a Cluster: GPUs and NICs, one link a pair, rates where the dump determines them."""

import itertools

from ...errors import InputError
from ...hardware import Catalogue
from ..graph import Cluster, Device, DeviceKind, Link
from ..paths import RateRule, nvlink_count
from .matrix import Matrix, parse_matrix


def from_nvidia_matrix(text: str, where: str, catalogue: Catalogue, gpu: str | None = None) -> Cluster:
    """Return the cluster of a saved matrix; `gpu` names the device where the dump leaves a rate open."""
    matrix = parse_matrix(text, where)
    kinds = {name: _kind(name) for name in matrix.names}
    gpus = [i for i, name in enumerate(matrix.names) if kinds[name] == "gpu"]
    if not gpus:
        raise InputError(f"{where}: no GPU among the devices of the matrix")
    model, model_warning = _model(matrix, catalogue, gpu)
    counts = {
        (gpus.index(i), gpus.index(j)): nvlink_count(matrix.codes[i, j])
        for i, j in itertools.combinations(gpus, 2)
        if nvlink_count(matrix.codes[i, j])
    }
    rule = RateRule(catalogue, model, counts, len(gpus))
    devices = [_device(matrix, name, kinds[name], model, catalogue) for name in matrix.names]
    links = [
        Link(a=matrix.names[i], b=matrix.names[j], kind=code, bandwidth_bytes_per_s=rule.bytes_per_s(code))
        for (i, j), code in sorted(matrix.codes.items())
    ]
    warnings = [*model_warning, *rule.warnings, *_mig_warnings(matrix)]
    return Cluster(name=where, devices=tuple(devices), links=tuple(links), warnings=tuple(warnings))


def _kind(name: str) -> DeviceKind:
    return "gpu" if name.startswith(("GPU", "MIG")) else "nic"


def _device(matrix: Matrix, name: str, kind: DeviceKind, model: str | None, catalogue: Catalogue) -> Device:
    common = {"id": name, "numa": matrix.numa.get(name), "cpu_affinity": matrix.cpu_affinity.get(name)}
    if kind == "nic":
        return Device(kind="nic", model=matrix.nic_names.get(name, name), **common)  # type: ignore[arg-type]
    if model is None:
        return Device(kind="gpu", **common)  # type: ignore[arg-type]
    accelerator = catalogue.accelerator(model)
    return Device(
        kind="gpu",
        model=catalogue.accelerator_key(model),
        memory_bytes=accelerator.memory_bytes,
        memory_bandwidth_bytes_per_s=accelerator.memory_rate.number,
        peak_flops_per_s=accelerator.peak_flops_per_s,
        **common,  # type: ignore[arg-type]
    )


def _model(matrix: Matrix, catalogue: Catalogue, gpu: str | None) -> tuple[str | None, list[str]]:
    """Return the accelerator that the user or the listing of the file names, and a warning where it is unknown."""
    if gpu is not None:
        return catalogue.accelerator_key(gpu), []
    names = sorted(set(matrix.models.values()))
    if not names:
        return None, []
    if len(names) > 1:
        return None, [f"several GPU models: {', '.join(names)}; rates that depend on the model are left open"]
    try:
        return catalogue.accelerator_key(names[0]), []
    except InputError:
        return None, [f"{names[0]} is not in the catalogue; rates that depend on the model are left open"]


def _mig_warnings(matrix: Matrix) -> list[str]:
    return [
        f"GPU{number} is split by MIG into {', '.join(parts)}: its instances have no NVLink and no peer-to-peer"
        for number, parts in sorted(matrix.mig.items())
    ]
