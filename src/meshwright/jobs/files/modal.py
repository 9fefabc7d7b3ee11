"""Modal's functions: the commands that those with GPUs start, from the Python that defines them.

Sources: Modal's guides (`gpu="H100:8"` of a function, `modal.gpu.H100(count=8)` before, `clustered(size=2)` of several
containers).
"""

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..python.calls import Walk
from ..python.script import program_calls
from ..python.static import PythonModule
from ..python.values import Opaque, PythonCall
from .manifest import JobMachines, LauncherManifest, gpu_count, machine_name
from .python_launcher import started_commands

IMPORTS = re.compile(r"^\s*(?:import|from)\s+modal\b", re.MULTILINE)
# a command that may train: others look at the machine
PROGRAM = re.compile(
    r"(?:^|[\s/])(?:torchrun|accelerate|deepspeed|composer|tune|axolotl|trl|litgpt|llamafactory-cli|python[\d.]*|(?:ba)?sh)\s"
)


def is_modal(text: str) -> bool:
    """Whether a Python file has functions of Modal's with GPUs."""
    return IMPORTS.search(text) is not None and "gpu=" in text


def modal_functions(
    text: str, where: str, path: Path, variables: Mapping[str, str]
) -> tuple[LauncherManifest, list[str]]:
    """Return what the functions with GPUs of a Python file start, and on what; with it what was assumed.

    Where functions ask for different GPUs, the machines are left open.
    """
    walk = Walk(variables=variables)
    module, _ = program_calls(text, where, path, walk)
    found = LauncherManifest()
    machines: set[JobMachines] = set()
    for function in module.functions.values():
        asked = _asked(function, module)
        commands = _commands(function, module, walk) if "gpu" in asked else []
        if any(map(PROGRAM.search, commands)):
            number = len(found.scripts) + 1
            found.scripts.append((where if number == 1 else f"{where} ({number})", "\n".join([*commands, ""])))
            machines.add(_machines(asked, where))
    found.machines = machines.pop() if len(machines) == 1 else None
    return found, walk.assumed


def _asked(function: ast.FunctionDef, module: PythonModule) -> dict[str, Any]:
    """Return what the decorators of a function ask for: `gpu`, and the `size` of a cluster."""
    found: dict[str, Any] = {}
    for one in function.decorator_list:
        if isinstance(one, ast.Call):
            found |= {word.arg: module.value(word.value, module.names) for word in one.keywords if word.arg}
            if ast.unparse(one.func).endswith("clustered") and one.args:
                found["size"] = module.value(one.args[0], module.names)
    return found


def _commands(function: ast.FunctionDef, module: PythonModule, walk: Walk) -> list[str]:
    """Return the commands that a function starts, in their order."""
    walk.calls = []
    module.call(function, [], {})
    calls, walk.calls = walk.calls, None
    return started_commands(calls or [])


def _machines(asked: Mapping[str, Any], where: str) -> JobMachines:
    """Return the containers of a function and their GPUs; what only the running file knows is open."""
    gpu, size = asked["gpu"], asked.get("size", 1)
    if isinstance(gpu, PythonCall):
        gpu = {"name": gpu.last, "count": gpu.fields.get("count", 1)}
    gpus = None if isinstance(gpu, Opaque) else gpu_count(gpu)
    nodes = size if isinstance(size, int) else None
    told = f"{nodes} containers ({where})", f"{gpus} GPUs a container ({where})"
    return JobMachines(nodes, gpus, where, told, type=machine_name(gpu))
