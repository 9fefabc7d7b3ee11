"""Custom jobs of Vertex AI: pools of machines, each of which runs one container.

Source: cloud.google.com/vertex-ai/docs/reference/rest/v1/CustomJobSpec (workerPoolSpecs: machineSpec, replicaCount,
containerSpec or pythonPackageSpec; `gcloud ai custom-jobs create --config` takes the same in YAML).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...units import counted
from ..documents import load_document
from ..keys import as_whole
from .kubernetes import container_script
from .manifest import JobMachines, LauncherManifest

IS_VERTEX = re.compile(r"(?<!\w)[\"']?(?:workerPoolSpecs|worker_pool_specs)[\"']?\s*:")


def is_vertex(text: str) -> bool:
    """Whether a YAML or JSON text is a custom job of Vertex AI."""
    return IS_VERTEX.search(text) is not None


def parse_vertex(name: str, text: str, kind: str) -> LauncherManifest:
    """Return what the pools of a custom job run; a pool without accelerators trains nothing where others have them."""
    found = LauncherManifest()
    pools = list(_pools(load_document(name, text, kind)))
    training = [pool for pool in pools if _accelerators(pool)] or pools
    for pool in training:
        container, package = _part(pool, "container_spec"), _part(pool, "python_package_spec")
        module = _value(package, "python_module")
        words = {"command": ["python", "-m", str(module)], "args": package.get("args"), "env": package.get("env")}
        script = container_script(words if module else container)
        if script and script not in [known for _, known in found.scripts]:
            found.scripts.append((name if not found.scripts else f"{name} ({len(found.scripts) + 1})", script))
    gpus = {_accelerators(pool) for pool in training}
    nodes = sum(as_whole(_value(pool, "replica_count")) or 1 for pool in training)
    each = gpus.pop() if len(gpus) == 1 else None
    types = {str(_value(_part(pool, "machine_spec"), "machine_type") or "") for pool in training}
    told = counted(nodes, "replica"), f"{counted(each or 0, 'GPU')} a replica"
    named = types.pop() if len(types) == 1 else ""
    found.machines = JobMachines(nodes, each, name, told, type=named or None)
    return found


def _pools(data: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the pools that stand anywhere in a document."""
    for key, value in data.items() if isinstance(data, Mapping) else ():
        if _snake(str(key)) == "worker_pool_specs" and isinstance(value, list):
            yield from (one for one in value if isinstance(one, Mapping) and one)
        else:
            yield from _pools(value)


def _accelerators(pool: Mapping[str, Any]) -> int | None:
    return as_whole(_value(_part(pool, "machine_spec"), "accelerator_count"))


def _part(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = _value(data, name)
    return value if isinstance(value, Mapping) else {}


def _value(data: Mapping[str, Any], name: str) -> Any:
    """Return what stands under a key, which may be in the style of Python or of JSON."""
    return next((value for key, value in data.items() if _snake(str(key)) == name), None)


def _snake(key: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", key).lower()
