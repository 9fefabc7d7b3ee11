"""Launchers written in Python: the commands that `subprocess`, `os.system` or submitit start, as scripts.

Source: facebookincubator/submitit:submitit/slurm/slurm.py (update_parameters has nodes, tasks_per_node and
gpus_per_node, with or without `slurm_` before them; each task of the job calls what `submit` is given) and
submitit/helpers.py (CommandFunction, a list of words).
"""

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import InputError
from ..keys import as_whole
from ..python.calls import Walk
from ..python.script import program_calls
from ..python.static import PythonModule
from ..python.values import Opaque, PythonCall
from ..shell.marks import unknown
from .recipes import shell_word

STARTS_COMMANDS = re.compile(r"\b(?:subprocess|os\.system|os\.execv\w*|submitit)\b")
SUBMITIT = re.compile(r"^\s*(?:import|from)\s+submitit\b", re.MULTILINE)
STARTS = frozenset({"run", "call", "check_call", "check_output", "Popen", "system"})  # of subprocess and os
REPLACES = frozenset({"execv", "execve", "execvp", "execvpe"})  # of os: the command is their second argument
# a command that starts the ranks of a training
LAUNCHES = re.compile(
    r"(?:^|[\s/\"'])(?:torchrun|accelerate launch|deepspeed|composer|tune run|axolotl|trl|litgpt|llamafactory-cli|srun"
    r"|mpirun|torch\.distributed\.(?:run|launch))\s"
)


def started_commands(calls: Sequence[PythonCall]) -> list[str]:
    """Return the commands that calls of subprocess and os start, in their order, as lines of a script."""
    started = [one for one in calls if one.last in STARTS | REPLACES and re.match(r"(?:subprocess|os)\.", one.name)]
    words = [(call.args[1:] if call.last in REPLACES else call.args) or [call.fields.get("args")] for call in started]
    return [text for value in words if (text := command_line(value[0]))]


def command_line(value: Any) -> str:
    """Return a command as a line of a script; what only the running file knows stands as marks."""
    if isinstance(value, Opaque):
        return value.partial
    if not isinstance(value, list):
        return value if isinstance(value, str) else ""
    return " ".join(_word(one) for one in value)


def _word(value: Any) -> str:
    if isinstance(value, Opaque) and value.text == "sys.executable":
        return "python"
    if isinstance(value, str | int | float):
        return shell_word(str(value))
    known = value.partial if isinstance(value, Opaque) else ""
    return shell_word(known or unknown(value.text if isinstance(value, Opaque) else "a word of the file"))


def launcher_script(text: str, where: str, path: Path, variables: Mapping[str, str]) -> tuple[str, list[str]] | None:
    """Return the script of what a Python file starts on all ranks, and what was assumed; None where it starts nothing.

    Raises InputError where it submits something that stands elsewhere.
    """
    if STARTS_COMMANDS.search(text) is None:
        return None
    walk = Walk(variables=variables)
    module, calls = program_calls(text, where, path, walk)
    lines = [line for line in started_commands(calls) if LAUNCHES.search(line)]
    if SUBMITIT.search(text):
        lines += _submitted(module, calls, walk, where)
    return ("\n".join([*lines, ""]), walk.assumed) if lines else None


def _submitted(module: PythonModule, calls: Sequence[PythonCall], walk: Walk, where: str) -> list[str]:
    """Return the lines of a job of SLURM that do what submitit submits."""
    settings = {
        key.removeprefix("slurm_"): value
        for call in calls
        if call.last == "update_parameters"
        for key, value in call.fields.items()
    }
    nodes, tasks = (as_whole(settings.get(key, 1)) for key in ("nodes", "tasks_per_node"))
    tasks = as_whole(settings.get("ntasks_per_node")) or tasks
    asked = {"nodes": nodes, "ntasks-per-node": tasks, "gpus-per-node": as_whole(settings.get("gpus_per_node"))}
    head = [f"#SBATCH --{key}={value}" for key, value in asked.items() if value]
    if isinstance(gres := settings.get("gres"), str):
        head.append(f"#SBATCH --gres={gres}")
    for call in calls:
        if call.last != "submit" or len(call.args) < 2:
            continue
        target, given = call.args[1], call.args[2:]
        if isinstance(target, PythonCall) and target.last == "CommandFunction" and target.args:
            return [*head, f"srun {command_line(target.args[0])}"]
        if isinstance(target, Opaque) and target.text in module.functions:
            walk.calls = []
            module.call(module.functions[target.text], list(given), {})
            inner, walk.calls = walk.calls, None
            if lines := started_commands(inner or []):
                return [
                    *head,
                    *(f"srun bash -c {shell_word(line)}" if "\n" in line else f"srun {line}" for line in lines),
                ]
        elif isinstance(target, PythonCall | Opaque):
            sizes = ", ".join(f"{key.replace('-', ' ')} {value}" for key, value in asked.items() if value)
            told = f"submits {_told(target, module)} ({sizes})"
            raise InputError(f"{where}: {told}: what that trains is not in this file: give the program that it starts")
    return []


def _told(target: PythonCall | Opaque, module: PythonModule) -> str:
    """Return what is submitted in words, with the module that it is from."""
    name = target.name if isinstance(target, PythonCall) else target.text
    modules = {
        alias.asname or alias.name: node.module
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    source = f" of {modules[name]}" if modules.get(name) else ""
    words = [str(one) for one in target.args if isinstance(one, str)] if isinstance(target, PythonCall) else []
    return f"{name}{source}" + (f" with {', '.join(words)}" if words else "")
