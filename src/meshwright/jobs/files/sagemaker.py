"""SageMaker's estimators: the command that each instance runs, from the Python that starts the job.

Sources: aws/sagemaker-python-sdk:src/sagemaker/estimator.py and modules/train/model_trainer.py,
aws/sagemaker-training-toolkit:src/sagemaker_training/mapping.py (hyperparameters as `--name value`).
"""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..python.calls import Walk
from ..python.script import program_calls
from ..python.values import Opaque, PythonCall
from .notebook import quoted

IMPORTS = re.compile(r"^\s*(?:import|from)\s+sagemaker\b", re.MULTILINE)
# GPUs of an instance, by its family and size; other sizes of these families have one
EIGHT = re.compile(
    r"ml\.(?:p3\.16|p3dn\.24|p4de?\.24|p5(?:en?)?\.48|p6-b[23]00\.48|g5\.48|g6e?\.48)xlarge|ml\.g4dn\.metal"
)
FOUR = re.compile(r"ml\.(?:p3\.8|g4dn\.12|g5\.(?:12|24)|g6e?\.(?:12|24))xlarge")
ONE = re.compile(r"ml\.(?:p3\.2|p5\.4|g4dn\.(?:|2|4|8|16)|g5\.(?:|2|4|8|16)|g6e?\.(?:|2|4|8|16))xlarge")
OFF = "which SageMaker reads as off: each instance starts one process"
ON_ALL = frozenset({"torch_distributed", "pytorchddp", "smdistributed"})  # start a process for each GPU
TRAINERS = frozenset({"Torchrun", "MPI"})


def is_sagemaker(text: str) -> bool:
    """Whether a Python file starts jobs of SageMaker."""
    return IMPORTS.search(text) is not None and "instance_type" in text


def estimator_scripts(
    text: str, where: str, path: Path, variables: Mapping[str, str]
) -> tuple[list[str], str | None, list[str], list[str]]:
    """Return the commands of the estimators that a Python file makes, as scripts, their machines, assumptions, notes.

    The machines are an instance type, by Amazon's name for it elsewhere; None where it is not the same for all.
    """
    walk = Walk(variables=variables)
    _, calls = program_calls(text, where, path, walk)
    found = {script: _settings(call).get("instance_type") for call in calls if (script := _script(call)) is not None}
    kinds = set(found.values())
    kind = kinds.pop() if len(kinds) == 1 else None
    off = [f"{where}: {text}" for call in calls if _script(call) is not None for text in _off(_settings(call))]
    return list(found), kind.removeprefix("ml.") if isinstance(kind, str) else None, walk.assumed, off


def gpus_of_instance(kind: Any) -> int | None:
    """Return the GPUs of an instance type, None for one that is not known."""
    table = ((EIGHT, 8), (FOUR, 4), (ONE, 1))
    return next((count for pattern, count in table if isinstance(kind, str) and pattern.fullmatch(kind)), None)


def _settings(call: PythonCall) -> dict[str, Any]:
    """Return the settings of an estimator, those in parts of a ModelTrainer among them."""
    given = dict(call.fields)
    for part in ("source_code", "compute"):
        inner = given.get(part)
        given |= inner.fields if isinstance(inner, PythonCall) else {}
    return given


def _script(call: PythonCall) -> str | None:
    """Return the command that an estimator runs, None for a call of another kind."""
    given = _settings(call)
    entry = given.get("entry_point", given.get("entry_script"))
    if not isinstance(entry, str) or not given.keys() & {"instance_type", "instance_count"}:
        return None
    nodes, gpus = given.get("instance_count", 1), gpus_of_instance(given.get("instance_type"))
    launcher = _launcher(given, nodes if isinstance(nodes, int) else "$instance_count", gpus or "$gpus_of_instance")
    settings = given.get("hyperparameters")
    words = [f"--{key} {_word(key, value)}" for key, value in settings.items()] if isinstance(settings, dict) else []
    if isinstance(settings, Opaque):
        words = ["$hyperparameters"]
    variables = given.get("environment")
    lines = [
        f"export {key}={quoted(str(value))}"
        for key, value in (variables.items() if isinstance(variables, dict) else ())
        if isinstance(value, str | int) and str(key).isidentifier()
    ]
    folder = given.get("source_dir")
    program = f"{folder.rstrip('/')}/{entry}" if isinstance(folder, str) and "://" not in folder else entry
    return "\n".join([*lines, " ".join([launcher, shlex.quote(program), *words]), ""])


def _is_on(part: Any) -> bool:
    """Whether a part of `distribution` is switched on: by `enabled`, its own or, of smdistributed, of one in it."""
    if not isinstance(part, dict):
        return isinstance(part, Opaque)
    return bool(part.get("enabled")) or any(_is_on(inner) for inner in part.values() if isinstance(inner, dict))


def _off(given: Mapping[str, Any]) -> list[str]:
    """Return in words the parts of `distribution` that are there and not switched on."""
    parts = given.get("distribution")
    return [
        f"distribution {kind} has no enabled = True{_instead(part)}, {OFF}"
        for kind, part in (parts.items() if isinstance(parts, dict) else ())
        if not _is_on(part)
    ]


def _instead(part: Any) -> str:
    return f" ({', '.join(map(str, part))})" if isinstance(part, dict) and part else ""


def _launcher(given: Mapping[str, Any], nodes: int | str, gpus: int | str) -> str:
    """Return what starts the processes of the instances."""
    entry = str(given.get("entry_point", given.get("entry_script")))
    if entry.endswith(".sh"):
        return "bash"
    distribution, trainer = given.get("distribution"), given.get("distributed")
    parts = distribution.items() if isinstance(distribution, dict) else ()
    on = {kind: part for kind, part in parts if _is_on(part)}
    kinds, of_hosts = set(on), on.get("mpi")
    if isinstance(trainer, PythonCall) and trainer.last in TRAINERS:
        kinds.add("torch_distributed")
        gpus = trainer.fields.get("process_count_per_node", gpus)
    if kinds & ON_ALL:
        return f"torchrun --nnodes={nodes} --nproc_per_node={gpus}"
    if isinstance(of_hosts, dict):
        each = of_hosts.get("processes_per_host", 1)
        ranks = nodes * each if isinstance(nodes, int) and isinstance(each, int) else "$processes"
        return f"mpirun -np {ranks} python"
    return "python"


def _word(key: str, value: Any) -> str:
    """Return a hyperparameter as the program gets it; one that only the running file knows is a variable not set."""
    if isinstance(value, PythonCall) and value.last == "dumps" and len(value.args) == 1:
        value = value.args[0]
    if isinstance(value, Opaque | PythonCall):
        return f"${re.sub(r'[^0-9A-Za-z_]', '_', key)}"
    try:
        return shlex.quote(
            value if isinstance(value, str) else json.dumps(value) if isinstance(value, dict | list) else str(value)
        )
    except TypeError:  # something unknown inside
        return f"${re.sub(r'[^0-9A-Za-z_]', '_', key)}"
