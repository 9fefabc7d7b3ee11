"""Kubernetes manifests: the commands of the containers that hold GPUs, as scripts, and how many pods run them.

Sources: kubernetes-sigs/jobset:api/jobset/v1alpha2, kubeflow/training-operator:pkg/apis/kubeflow.org/v1 and
pkg/controller.v1/pytorch/envvar.go (1.9), kubeflow/trainer:pkg/apis/trainer/v1alpha1, volcano.sh:batch/v1alpha1,
ray-project/kuberay:ray-operator/apis/ray/v1/rayjob_types.go, kubernetes-sigs/lws:api/leaderworkerset/v1 (a group is
`size` pods, its leader among them; each of `replicas` groups is on its own), project-codeflare/appwrapper:api/v1beta2.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...errors import InputError
from ...units import counted
from ..documents import load_document
from ..keys import as_whole
from .manifest import JobMachines, LauncherManifest, yaml_parts
from .notebook import quoted

IS_MANIFEST = re.compile(r"^apiVersion:\s*\S", re.MULTILINE)
GPU = re.compile(r"(?:nvidia|amd|intel|habana)\.(?:com|ai)/(?:gpu|gaudi|i915|xe)|nvidia\.com/mig-.*")
SHELLS = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")  # of a shell, which `envsubst` replaces
COUNTED = re.compile(
    r"^[ \t-]*[\"']?((?:replicas|completions|parallelism|numNodes|numProcPerNode|nprocPerNode|numOfHosts)"
    rf"|{GPU.pattern})[\"']?:[ \t]*[\"']?\$\{{?([A-Za-z_]\w*)",
    re.MULTILINE,
)
CONTROLLERS = frozenset({"StatefulSet", "Deployment", "ReplicaSet"})  # whose replicas are pods of one template
DEEPEST = 20
RANK = re.compile(r"--(node|machine)[-_]rank[= ](\d+)(?=\s|$)")
REFERENCE = re.compile(r"\$\(([A-Za-z_]\w*)\)")  # Kubernetes's own, replaced before a shell sees the text


def is_kubernetes(text: str) -> bool:
    """Whether a YAML text is of Kubernetes."""
    return IS_MANIFEST.search(text) is not None and re.search(r"^kind:\s*\S", text, re.MULTILINE) is not None


def jobs_of_manifest(name: str, text: str) -> list[str]:
    """Return the names of the objects of a manifest that start pods with GPUs."""
    objects = [one for part in yaml_parts(text) for one in _objects(load_document(name, part, "yaml"))]
    return [_name(one) for one in objects if not _is_runtime(one) and any(_group(*pod)[1] for pod in _pods(one))]


def parse_kubernetes(
    name: str, text: str, variables: Mapping[str, str] = {}, only: str | None = None
) -> LauncherManifest:
    """Return what a manifest runs, with `only` its object of that name.

    Raises InputError where its YAML is broken, where a variable counts its pods or GPUs, or where none is named so.

    A manifest that counts by variables is a template: `envsubst` puts in the `variables` before Kubernetes sees it.
    """
    if COUNTED.search(text):
        text = SHELLS.sub(lambda match: variables.get(match[1] or match[2], match[0]), text)
        if left := COUNTED.findall(text):
            told = " and ".join(f"{key} ${variable}" for key, variable in dict.fromkeys(left))
            names = " ".join(f"--job {variable}=N" for variable in dict.fromkeys(variable for _, variable in left))
            raise InputError(f"{name}: {told}: not set in the files: give the file that sets it, or {names}")
    found = LauncherManifest()
    groups: list[tuple[int | None, int, str]] = []  # pods, GPUs, script
    objects = [one for part in yaml_parts(text) for one in _objects(load_document(name, part, "yaml"))]
    if only is not None and only not in map(_name, objects):
        raise InputError(f"{name}: no object is named {only!r} (there are: {', '.join(map(_name, objects))})")
    runtimes = {_name(one): _inner(one, "spec") for one in objects if _is_runtime(one)}
    for data in objects:
        if data.get("kind") == "ConfigMap":
            found.files |= {str(key): str(value) for key, value in _inner(data, "data").items()}
        elif not _is_runtime(data) and only in {None, _name(data)}:
            found.assumed += _groups_apart(name, data)
            groups += [_group(*pod) for pod in _pods(data, runtimes)]
    training = [group for group in groups if group[1]] or groups
    _refuse_same_rank(name, training)
    for _, _, script in [*training, *(group for group in groups if group not in training)]:
        if script and script not in [known for _, known in found.scripts]:
            number = len(found.scripts) + 1
            found.scripts.append((name if number == 1 else f"{name} ({number})", script))
    gpus = {group[1] for group in groups if group[1]}
    if len(gpus) == 1:
        counts, each = [group[0] for group in groups if group[1]], gpus.pop()
        pods = None if None in counts else sum(count or 0 for count in counts)
        words = ("pods of a kind that is not known" if pods is None else counted(pods, "pod"), counted(each, "GPU"))
        own = any(_starts_slots(one, each, groups) for one in objects)
        found.machines = JobMachines(pods, each, name, (words[0], f"{words[1]} a pod"), starts_ranks=own)
    return found


def _starts_slots(data: Mapping[str, Any], gpus: int, groups: Sequence[tuple[int | None, int, str]]) -> bool:
    """Whether an MPIJob starts a task for each GPU: on all slots of its hostfile, which the operator writes.

    Source: kubeflow/mpi-operator:pkg/apis/kubeflow/v2beta1/types.go (slotsPerWorker, by default 1).
    """
    slots = as_whole(_inner(data, "spec").get("slotsPerWorker", 1))
    counts = any(re.search(r"\s-{1,2}(?:np?|H|host|hostfile|N|npernode|map-by)\b", script) for _, _, script in groups)
    return data.get("kind") == "MPIJob" and slots == gpus and not counts


def _objects(data: Mapping[str, Any], depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield the objects in a document: itself, or what a list or a wrapper of several holds."""
    spec, kind = _inner(data, "spec"), str(data.get("kind"))
    inner = _listed(data, "items") if kind.endswith("List") else []
    if kind == "AppWrapper":
        old = [_inner(one, "generictemplate") for one in _listed(_inner(spec, "resources"), "GenericItems")]
        inner = [*(_inner(one, "template") for one in _listed(spec, "components")), *old]
    if inner and depth < DEEPEST:
        for one in inner:
            yield from _objects(one, depth + 1)
    else:
        yield data


def _name(data: Mapping[str, Any]) -> str:
    return str(_inner(data, "metadata").get("name"))


def _is_runtime(data: Mapping[str, Any]) -> bool:
    """Whether an object is a template of Kubeflow's Trainer, which a TrainJob names."""
    return str(data.get("kind")).endswith("TrainingRuntime")


def _refuse_same_rank(name: str, groups: Sequence[tuple[int | None, int, str]]) -> None:
    """Raise InputError where several pods start with the same rank of a node, written as a number: none joins."""
    found: dict[str, int] = {}
    for pods, _, script in groups:
        said = None if re.search(r"--rdzv[-_]backend[= ]c10d", script) else RANK.search(script)
        if said is not None:
            found[said[2]] = found.get(said[2], 0) + (pods or 1)
    for rank, pods in found.items():
        if pods > 1:
            raise InputError(f"{name}: {pods} pods start with node_rank {rank}: expected a rank of its own for each")


Pods = tuple[int | None, Mapping[str, Any], dict[str, str]]  # their number, one of them, and its controller's variables


def _pods(data: Mapping[str, Any], runtimes: Mapping[str, Mapping[str, Any]] = {}) -> Iterator[Pods]:
    """Yield how many pods each template of a workload makes, the pod, and variables that its controller sets.

    Of a kind that is not known their number is None.
    """
    kind, spec = str(data.get("kind")), _inner(data, "spec")
    if kind == "JobSet":
        for group in _listed(spec, "replicatedJobs"):
            job = _inner(group, "template", "spec")
            yield (as_whole(group.get("replicas")) or 1) * _of_job(job), _inner(job, "template", "spec"), {}
    elif kind == "Job" and "tasks" in spec:  # Volcano's
        for task in _listed(spec, "tasks"):
            yield as_whole(task.get("replicas")) or 1, _inner(task, "template", "spec"), {}
    elif kind in {"Job", "CronJob"}:
        job = spec if kind == "Job" else _inner(spec, "jobTemplate", "spec")
        yield _of_job(job), _inner(job, "template", "spec"), {}
    elif kind in CONTROLLERS:
        yield as_whole(spec.get("replicas", 1)) or 0, _inner(spec, "template", "spec"), {}
    elif kind == "LeaderWorkerSet":
        yield from _group_pods(_inner(spec, "leaderWorkerTemplate"))
    elif kind == "TrainJob":
        yield _trainers_pods(spec, runtimes)
    elif kind == "Pod":
        yield 1, spec, {}
    elif kind in {"RayJob", "RayCluster"}:
        yield from _ray_pods(spec)
    elif replicas := next((value for key, value in spec.items() if str(key).endswith("ReplicaSpecs")), None):
        groups = [one for one in replicas.values() if isinstance(one, Mapping)] if isinstance(replicas, Mapping) else []
        counts = [as_whole(one.get("replicas")) or 1 for one in groups]
        known = _torch_variables(sum(counts), spec.get("nprocPerNode")) if kind == "PyTorchJob" else {}
        for pods, group in zip(counts, groups, strict=True):
            yield pods, _inner(group, "template", "spec"), known
    else:
        yield from ((None, pod, {}) for pod in _templates(spec))


def _templates(data: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield the pods that stand anywhere in an object."""
    if isinstance(data, Mapping) and isinstance(data.get("containers"), list):
        yield data
    elif isinstance(data, Mapping) and isinstance(data.get("container"), Mapping):  # of Argo's workflows
        yield {"containers": [data["container"]]}
    elif isinstance(data, Mapping) and "source" in (script := _inner(data, "script")):
        yield {"containers": [{**script, "args": ["-c", script["source"]]}]}
    elif isinstance(data, Mapping | list) and depth < DEEPEST:
        for one in data.values() if isinstance(data, Mapping) else data:
            yield from _templates(one, depth + 1)


def _group_pods(template: Mapping[str, Any]) -> Iterator[Pods]:
    """Yield the pods of one group of a LeaderWorkerSet: its workers, and a leader where that has a template."""
    size = as_whole(template.get("size")) or 1
    known = {"LWS_GROUP_SIZE": str(size)}
    leader = _inner(template, "leaderTemplate", "spec")
    if leader:
        yield 1, leader, known
    if size > bool(leader):
        yield size - bool(leader), _inner(template, "workerTemplate", "spec"), known


def _groups_apart(name: str, data: Mapping[str, Any]) -> list[str]:
    """Return in words that several groups of a LeaderWorkerSet train each on their own; nothing for other objects."""
    groups = as_whole(_inner(data, "spec").get("replicas")) or 1
    if data.get("kind") != "LeaderWorkerSet" or groups == 1:
        return []
    return [f"{name}: one of its {groups} groups of pods, each of which trains on its own"]


def _trainers_pods(spec: Mapping[str, Any], runtimes: Mapping[str, Mapping[str, Any]]) -> Pods:
    """Return the pods of a TrainJob: what it says itself counts before what its runtime says."""
    trainer, runtime = _inner(spec, "trainer"), runtimes.get(str(_inner(spec, "runtimeRef").get("name")), {})
    policy = _inner(runtime, "mlPolicy")
    pods = as_whole(trainer.get("numNodes")) or as_whole(policy.get("numNodes")) or 1
    of_runtime = [one for pod in _templates(_inner(runtime, "template")) for one in _listed(pod, "containers")]
    own = {key: value for key, value in trainer.items() if value is not None}
    if isinstance(resources := trainer.get("resourcesPerNode"), Mapping):
        own["resources"] = resources
    base = max(of_runtime, key=_gpus, default={})
    ranks = trainer.get("numProcPerNode", _inner(policy, "torch").get("numProcPerNode"))
    return pods, {"containers": [{**base, **own}]}, _torch_variables(pods, ranks)


def _ray_pods(spec: Mapping[str, Any]) -> Iterator[Pods]:
    """Yield the pods of a Ray cluster; its head starts the entry point, with the variables of the runtime."""
    cluster = _inner(spec, "rayClusterSpec") or spec
    head = _inner(cluster, "headGroupSpec")
    command = spec.get("entrypoint")
    words = {"command": ["bash", "-c", command]} if isinstance(command, str) else {}
    runtime = spec.get("runtimeEnvYAML")
    variables = _inner(load_document("runtimeEnvYAML", runtime, "yaml"), "env_vars") if runtime else {}
    given = [{"name": key, "value": value} for key, value in variables.items()]
    yield 1, {"containers": [{**words, "env": given, "resources": _ray_resources(head)}]}, {}
    for group in _listed(cluster, "workerGroupSpecs"):
        replicas = as_whole(group.get("replicas"))
        hosts = as_whole(group.get("numOfHosts")) or 1
        if (replicas if replicas is not None else 1) > 0:
            yield (replicas or 1) * hosts, {"containers": [{"resources": _ray_resources(group)}]}, {}


def _ray_resources(group: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the resources of the container with GPUs in a group of Ray's pods, else what Ray is told of them."""
    containers = _listed(_inner(group, "template", "spec"), "containers")
    with_gpus = next((one for one in containers if _gpus(one)), None)
    if with_gpus is not None:
        return _inner(with_gpus, "resources")
    told = as_whole(_inner(group, "rayStartParams").get("num-gpus"))
    return {"limits": {"nvidia.com/gpu": told}} if told else {}


def _of_job(spec: Mapping[str, Any]) -> int:
    return as_whole(spec.get("completions")) or as_whole(spec.get("parallelism")) or 1


def _torch_variables(pods: int, ranks: Any) -> dict[str, str]:
    """Return the variables that Kubeflow sets for torchrun."""
    found = {"PET_NNODES": str(pods)}
    return found | ({"PET_NPROC_PER_NODE": str(ranks)} if as_whole(ranks) else {})


def _group(pods: int | None, pod: Mapping[str, Any], known: Mapping[str, str]) -> tuple[int | None, int, str]:
    """Return the pods, the GPUs of each and the script of the container that has them, else of the first one."""
    containers = _listed(pod, "containers")
    counted = [(_gpus(container), container) for container in containers]
    gpus, container = max(counted, key=lambda one: one[0], default=(0, {}))
    return pods, gpus, container_script(container, known)


def _gpus(container: Mapping[str, Any]) -> int:
    for part in ("limits", "requests"):
        for key, value in _inner(container, "resources", part).items():
            if GPU.fullmatch(str(key)):
                return as_whole(value) or 0
    return 0


def container_script(container: Mapping[str, Any], known: Mapping[str, str] = {}) -> str:
    """Return a container's command as a shell script, with its variables set before it; empty where it has none."""
    variables: dict[str, str] = dict(known)
    for one in _listed(container, "env"):
        if "value" in one:
            variables[str(one.get("name"))] = _replaced(str(one["value"]), variables)
    said = [value for key in ("command", "args") if isinstance(value := container.get(key), list)]
    words = [_replaced(str(word), variables) for value in said for word in value]
    if not words:
        return ""
    lines = [f"export {key}={quoted(value)}" for key, value in variables.items() if key.isidentifier()]
    return "\n".join([*lines, " ".join(map(shlex.quote, words)), ""])


def _replaced(text: str, variables: Mapping[str, str]) -> str:
    """Return a text with `$(NAME)` of variables that a container has; all else is left to the shell."""
    return REFERENCE.sub(lambda match: variables.get(match[1], match[0]), text)


def _inner(data: Any, *keys: str) -> Mapping[str, Any]:
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data if isinstance(data, Mapping) else {}


def _listed(data: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = data.get(key)
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
