"""Manifests of launchers: the command that one holds, its variables, and the machines that run it.

`KINDS` is a table of where each launcher keeps these; Kubernetes, whose objects nest, has `kubernetes`. A manifest of
no kind that is known gives its command alone. Sources: skypilot-org/skypilot:docs/source/reference/yaml-spec.rst,
dstackai/dstack:docs/docs/reference/dstack.yml/task.md, Azure's commandJob.schema.json, MosaicML's mcli documentation,
determined-ai/determined:docs/reference/training/experiment-config-reference.rst,
compose-spec/compose-spec:05-services.md and deploy.md.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import yaml

from ...units import counted
from ..documents import MAX_BYTES, load_document
from ..keys import as_whole
from .dockerfile import parse_dockerfile
from .notebook import quoted
from .recipes import shell_word

SEPARATOR = re.compile(r"^---(?:[ \t].*)?$", re.MULTILINE)
PLACEHOLDER = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")  # AzureML's `${{inputs.NAME}}`
OF_GPUS = frozenset({"name", "count", "memory", "total_memory", "vendor", "compute_capability"})  # dstack's `gpu`
FOLDERS = ("code", "workdir", "working_dir")  # keys of AzureML, SkyPilot, dstack: the folder whose files a command sees
OF_CONTAINER = frozenset({"command", "entrypoint", "build"})  # of Docker, that say what a container starts
# keys that hold a command, in files of launchers that are not known; lists under the first ones are words of one line
WORDS, LINES = frozenset({"command", "entrypoint", "cmd"}), frozenset({"run", "commands", "script", "bash_command"})


@dataclass(frozen=True, slots=True)
class JobMachines:
    """The machines of one training; a count that is not known is None."""

    nodes: int | None
    gpus: int | None  # of a node
    where: str
    told: tuple[str, str]  # nodes and GPUs of a node, in the manifest's words
    total: int | None = None  # GPUs of all nodes together
    starts_ranks: bool = False  # whether the launcher itself starts a process for each GPU
    type: str | None = None  # an instance type, or an accelerator, as the manifest names it
    rank: str = ""  # the launcher's variable with the rank of a node, where the command asks it


@dataclass(slots=True)
class LauncherManifest:
    """The parts of a manifest that say what runs: scripts by name, files that it mounts, machines."""

    scripts: list[tuple[str, str]] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    machines: JobMachines | None = None
    assumed: list[str] = field(default_factory=list)
    folder: str = ""  # beside the manifest, in which its command runs


@dataclass(frozen=True, slots=True)
class ManifestKind:
    """The places, as dotted keys, where the manifests of one launcher have their command and machines."""

    name: str
    command: str
    beside: tuple[str, ...]  # keys of which one at least stands beside the command
    variables: str
    nodes: str = ""
    gpus: tuple[str, ...] = ()  # how many, or the list of their numbers
    total: tuple[str, ...] = ()
    machine: tuple[str, ...] = ()  # an instance type, before what asks for GPUs by their name
    type: str | None = None  # the value of `type`
    first: str = ""  # commands that run before, in a shell of their own
    jobs: str = ""  # a mapping of several such manifests
    files: tuple[tuple[str, str], ...] = ()  # a part of the manifest, and the file as which the command finds it
    sets: tuple[tuple[str, str], ...] = ()  # variables that the launcher sets, and what to
    starts_ranks: bool = False
    # of one host of any number, whose variables are `$NAME`, the command's `$$NAME`, and a list the words of one line
    of_host: bool = False


KINDS = (
    ManifestKind(
        "SkyPilot",
        command="run",
        beside=("num_nodes", "resources", "setup", "envs", "workdir", "file_mounts"),
        variables="envs",
        nodes="num_nodes",
        gpus=("resources.accelerators", "resources.any_of.accelerators", "resources.ordered.accelerators"),
        machine=("resources.instance_type", "resources.accelerators"),
        first="setup",
        sets=(
            ("SKYPILOT_NUM_NODES", "nodes"),
            ("SKYPILOT_NUM_GPUS_PER_NODE", "gpus"),
            ("SKYPILOT_NODE_RANK", "0"),
            ("SKYPILOT_NODE_IPS", "hosts"),
        ),
    ),
    ManifestKind(
        "dstack",
        command="commands",
        beside=("type",),
        variables="env",
        nodes="nodes",
        gpus=("resources.gpu",),
        machine=("resources.gpu",),
        type="task",
        sets=(
            ("DSTACK_NODES_NUM", "nodes"),
            ("DSTACK_GPUS_PER_NODE", "gpus"),
            ("DSTACK_GPUS_NUM", "total"),
            ("DSTACK_NODE_RANK", "0"),
            ("DSTACK_NODES_IPS", "hosts"),
        ),
    ),
    ManifestKind(
        "AzureML",
        command="command",
        beside=("distribution", "environment_variables", "resources.instance_count", "$schema"),
        variables="environment_variables",
        nodes="resources.instance_count",
        gpus=("distribution.process_count_per_instance",),
        machine=("resources.instance_type",),
        jobs="jobs",
        starts_ranks=True,
        sets=(("WORLD_SIZE", "total"), ("NODE_RANK", "0"), ("AZUREML_NODE_COUNT", "nodes")),
    ),
    ManifestKind(
        "MosaicML",
        command="command",
        beside=("compute.gpus", "compute.num_accelerators"),
        variables="env_variables",
        nodes="compute.nodes",
        total=("compute.gpus", "compute.num_accelerators"),
        files=(("parameters", "/mnt/config/parameters.yaml"),),
        sets=(("WORLD_SIZE", "total"), ("NODE_RANK", "0")),
    ),
    ManifestKind(  # nodes are as large as its agents are
        "Determined AI",
        command="entrypoint",
        beside=("resources.slots_per_trial",),
        variables="environment.environment_variables",
        total=("resources.slots_per_trial",),
    ),
    ManifestKind(  # of several nodes each has its own
        "Docker Compose",
        command="command",
        beside=("image", "build"),
        variables="environment",
        gpus=(
            *("deploy.resources.reservations.devices.count", "deploy.resources.reservations.devices.device_ids"),
            *("gpus.count", "gpus.device_ids"),
        ),
        jobs="services",
        of_host=True,
    ),
)


def launcher_manifest(
    name: str, text: str, find: Callable[[str], str | None] = lambda path: None
) -> LauncherManifest | None:
    """Return what a YAML text of one of the `KINDS` runs, None for any other; InputError where its YAML is broken.

    `find` returns the text of a file that it names, None where that is not at hand.
    """
    parts = yaml_parts(text)
    found = LauncherManifest()
    for part in parts:
        try:
            data = yaml.safe_load(part)
        except (yaml.YAMLError, ValueError, RecursionError):
            return None  # told by the reader of documents
        for kind, job in _jobs(data) if isinstance(data, Mapping) else ():
            load_document(name, part, "yaml")  # for its limits
            _add(kind, _started(kind, job, find), name, found)
    return found if found.scripts else None


def command_of_other(name: str, data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the commands in a file of no kind that is known, as scripts; `args` beside one are its further words."""
    args = data.get("args")
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from command_of_other(name, value)
        elif isinstance(value, list) and all(isinstance(one, Mapping) for one in value):
            for one in value:
                yield from command_of_other(name, one)
        elif key in WORDS and isinstance(value, list) and isinstance(args, list):
            yield _command([*value, *args], lines=False)
        elif key in WORDS | LINES:
            yield _command(value, lines=key in LINES)


def yaml_parts(text: str) -> list[str]:
    """Return the documents of a YAML text that are not empty."""
    return [part for part in SEPARATOR.split(text[:MAX_BYTES]) if part.strip() and not _is_empty(part)]


def _is_empty(part: str) -> bool:
    """Whether a document has no line beside comments."""
    return all(not line.strip() or line.lstrip().startswith("#") for line in part.splitlines())


def _jobs(data: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[ManifestKind, Mapping[str, Any]]]:
    """Yield the manifests in a document, each with its kind."""
    for kind in KINDS:
        beside = any(_at(data, key) is not None for key in kind.beside)
        typed = kind.type is None or data.get("type") == kind.type
        starts = isinstance(_at(data, kind.command), str | list) or (kind.of_host and data.keys() & OF_CONTAINER)
        if beside and typed and starts:
            yield kind, data
            return
        inner = _at(data, kind.jobs) if kind.jobs and not depth else None
        for job in inner.values() if isinstance(inner, Mapping) else ():
            if isinstance(job, Mapping):
                yield from _jobs(job, depth + 1)


def _started(kind: ManifestKind, data: Mapping[str, Any], find: Callable[[str], str | None]) -> Mapping[str, Any]:
    """Return a manifest whose command is what its container starts: with the entry point of its own, or of its image.

    Variables of the image hold where it has none of its own.
    """
    if not kind.of_host:
        return data
    build = data.get("build")
    folder = build.get("context", ".") if isinstance(build, Mapping) else build
    file = build.get("dockerfile", "Dockerfile") if isinstance(build, Mapping) else "Dockerfile"
    text = find(f"{folder}/{file}") if isinstance(folder, str) else None
    image = parse_dockerfile(text or "")
    said = {key: _command(data[key], lines=False) for key in OF_CONTAINER - {"build"} if data.get(key)}
    line = image.line(said.get("entrypoint"), said.get("command"))
    return {**data, kind.command: line, kind.variables: image.variables | _variables(_at(data, kind.variables))}


def _add(kind: ManifestKind, data: Mapping[str, Any], name: str, found: LauncherManifest) -> None:
    """Add the script, the files and the machines of one manifest."""
    command = _filled(_command(_at(data, kind.command), lines=not kind.of_host), data)
    asked_nodes = _at(data, kind.nodes)
    nodes = as_whole(asked_nodes) if asked_nodes is not None else None if kind.total or kind.of_host else 1
    gpus = _first(data, kind.gpus)
    total = _first(data, kind.total) or (nodes * gpus if nodes and gpus else None)
    if nodes and kind.total and total and not total % nodes:
        gpus = total // nodes
    if kind.of_host:
        command = _undoubled(command, _variables(_at(data, kind.variables)).keys())
    hosts = "\n".join(f"host-{place}" for place in range(min(nodes, 4096))) if nodes else None
    values = {"nodes": nodes, "gpus": gpus, "total": total, "hosts": hosts, "0": 0}
    known = {key: str(values[value]) for key, value in kind.sets if values[value] is not None}
    variables = known | {key: _filled(value, data) for key, value in _variables(_at(data, kind.variables)).items()}
    lines = [f"export {key}={quoted(value)}" for key, value in variables.items() if key.isidentifier()]
    before = _at(data, kind.first) if kind.first else None
    if isinstance(before, str | list) and before:
        lines += ["(", _command(before, lines=True), ")"]
    folder = next((one for key in FOLDERS if isinstance(one := data.get(key), str)), "")
    found.folder = found.folder or ("" if kind.of_host else folder)
    number = len(found.scripts) + 1
    found.scripts.append((name if number == 1 else f"{name} ({number})", "\n".join([*lines, command, ""])))
    for part, path in kind.files:
        if isinstance(inner := _at(data, part), Mapping):
            found.files[path] = yaml.safe_dump(dict(inner), sort_keys=False)
    told = f"{kind.nodes.rpartition('.')[2]} {nodes} ({name})", f"{counted(gpus, 'GPU')} a node ({name})"
    starts = kind.starts_ranks and gpus is not None
    named = next(filter(None, (machine_name(_at(data, key)) for key in kind.machine)), None)
    ranks = (key for key, value in kind.sets if value == "0")
    asked = next((key for key in ranks if re.search(rf"\$\{{?{key}\b", command)), "")
    found.machines = JobMachines(nodes, gpus, name, told, total if kind.total else None, starts, named, asked)


def _command(value: Any, *, lines: bool) -> str:
    """Return a command as a script: a text, or a list of lines or of the words of one line."""
    if isinstance(value, list):
        texts = [str(one) for one in value if not isinstance(one, Mapping | list)]
        return "\n".join(texts) if lines else " ".join(map(shell_word, texts))
    return value if isinstance(value, str) else ""


def _undoubled(text: str, own: Set[str]) -> str:
    """Return a command as its shell gets it: `$$NAME` is its variable, `$NAME` the host's, of its `own` name too."""

    def of_host(match: re.Match[str]) -> str:
        return f"{match[0]}_of_the_host" if match[2] in own else match[0]

    return re.sub(r"(?<!\$)\$(\{?)([A-Za-z_]\w*)", of_host, text).replace("$$", "$")


def _filled(text: str, data: Mapping[str, Any]) -> str:
    """Return a text with its placeholders replaced; one without a known value becomes a variable that is not set."""

    def replaced(match: re.Match[str]) -> str:
        value = _at(data, match[1])
        value = value.get("path") if isinstance(value, Mapping) else value
        return str(value) if isinstance(value, str | int | float) else f"${{{re.sub(r'[^0-9A-Za-z_]', '_', match[1])}}}"

    return PLACEHOLDER.sub(replaced, text)


def _variables(value: Any) -> dict[str, str]:
    """Return variables however they are listed: a mapping, NAME=VALUE words, or entries with name and value.

    One without a value is set from outside.
    """
    if isinstance(value, Mapping):
        pairs = list(value.items())
    else:
        entries = value if isinstance(value, list) else []
        pairs = [(one.get("key", one.get("name")), one.get("value")) for one in entries if isinstance(one, Mapping)]
        pairs += [
            (one.partition("=")[0], one.partition("=")[2]) for one in entries if isinstance(one, str) and "=" in one
        ]
    return {str(key): str(inner) for key, inner in pairs if isinstance(inner, str | int | float)}


def gpu_count(value: Any) -> int | None:
    """Return the GPUs of a node by a request for them; None where it leaves open how many, or asks for all.

    8, "H100:8", "80GB:8", {"H100": 8}, {"name": "H100", "count": 8}, or several of one count to choose from:
    a list, or a set `{"H100:8", "H200:8"}`, which YAML has as keys without values.
    """
    if isinstance(value, list):
        counts = {gpu_count(one) for one in value}
        return counts.pop() if len(counts) == 1 else None
    if isinstance(value, Mapping):
        if value.keys() & OF_GPUS:
            return gpu_count(value.get("count", 1))
        return gpu_count([key if count is None else count for key, count in value.items()])
    parts = [part.strip() for part in str(value).split(":")]
    if parts[-1].lower() == "all":  # of Docker
        return None
    if any(".." in part and not re.search(r"[A-Za-z]", part) for part in parts):
        return None
    numbers = [part for part in parts if re.fullmatch(r"\d{1,6}(?:\.\d+)?", part)]
    count = as_whole(float(numbers[-1])) if numbers else 1
    return count or None


def machine_name(value: Any) -> str | None:
    """Return the accelerator or the instance type that a request for machines names; None for a choice, or none.

    "H100:8", {"H100": 8}, {"name": "H100", "count": 8}, "p5.48xlarge"; "80GB:8" names a memory.
    """
    if isinstance(value, Mapping) and value.keys() & OF_GPUS:
        value = value.get("name")
    elif isinstance(value, Mapping | list):
        value = next(iter(value)) if len(value) == 1 else None
    name = value.partition(":")[0].strip() if isinstance(value, str) else ""
    plain = re.fullmatch(r"(?=.*[A-Za-z])[\w.-]+", name) and not re.fullmatch(r"[\d.]+\s*[GMT]i?B", name)
    return name if plain else None


def _first(data: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    """Return the GPUs that the first of some keys which is there asks for; a list of entries without it has none."""
    for key in keys:
        value = _at(data, key)
        if value is None or (isinstance(value, list) and all(one is None for one in value)):
            continue
        if key.endswith("_ids"):
            return sum(len(one) for one in value if isinstance(one, list)) if isinstance(value, list) else None
        return gpu_count(value)
    return None


def _at(data: Any, path: str) -> Any:
    """Return what stands under a dotted key; of a list, what stands there in each of its entries."""
    for place, key in enumerate(keys := path.split(".")):
        if isinstance(data, list):
            return [_at(one, ".".join(keys[place:])) for one in data]
        data = data.get(key) if isinstance(data, Mapping) else None
    return data
