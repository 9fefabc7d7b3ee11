"""Functions of a Python configuration: which return one, which something that runs, which copy what another holds."""

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...errors import InputError

CONFIGS = ("Config", "ConfigContainer", "Partial", "Recipe")
FIELDS = frozenset({"vars", "asdict", "dataclasses.asdict"})  # that return the fields of a record as a mapping


class Returned(Exception):
    """`return` of a function, with its value."""

    def __init__(self, value: Any) -> None:
        self.value = value


class LoopLeft(Exception):
    """`break` of a loop, or `continue` to its next round."""

    def __init__(self, *, ends: bool) -> None:
        self.ends = ends


def makes_configs(text: str) -> bool:
    """Whether a Python file has a function that seems to return a configuration, or is no Python that can be read."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    return any(isinstance(node, ast.FunctionDef) and returns_config(node) for node in tree.body)


def returns_config(node: ast.FunctionDef) -> bool:
    """Whether a function says, or seems, to return a configuration."""
    if node.returns is not None and any(word in ast.unparse(node.returns) for word in CONFIGS):
        return True
    returned = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Return)]
    return any(
        isinstance(value, ast.Call) and any(word in ast.unparse(value.func) for word in CONFIGS) for value in returned
    )


def runs_among(names: Sequence[str], functions: Mapping[str, ast.FunctionDef]) -> list[str]:
    """Return the functions among some that return what NeMo-Run runs, a Partial; all of them where none says so.

    A Config is a part of such a thing (NVIDIA-NeMo/Run:docs/guides/configuration.md).
    """
    return [name for name in names if _is_run(functions[name])] or list(names)


def _is_run(node: ast.FunctionDef) -> bool:
    told = "" if node.returns is None else ast.unparse(node.returns).partition("[")[0]
    return told.rpartition(".")[2] == "Partial"


def whole_call(node: ast.Call) -> ast.Call:
    """Return `partial(f, a, x=1)(b, y=2)` as the call that it is, `f(a, b, x=1, y=2)`; any other call as it is."""
    made = node.func
    if not isinstance(made, ast.Call) or not made.args or ast.unparse(made.func).rpartition(".")[2] != "partial":
        return node
    later = {word.arg for word in node.keywords}
    words = [word for word in made.keywords if word.arg is None or word.arg not in later]
    return whole_call(ast.Call(made.args[0], [*made.args[1:], *node.args], [*words, *node.keywords]))


def copied_fields(node: ast.DictComp) -> ast.expr | None:
    """Return what `{f.name: getattr(X, f.name) for f in dataclasses.fields(T)}` copies: X; None for any other."""
    rule, value = node.generators[0], node.value
    over = isinstance(rule.iter, ast.Call) and ast.unparse(rule.iter.func).rpartition(".")[2] == "fields"
    takes = isinstance(value, ast.Call) and ast.unparse(value.func) == "getattr" and len(value.args) >= 2
    if len(node.generators) > 1 or rule.ifs or not over or not takes or not isinstance(value, ast.Call):
        return None
    return value.args[0] if ast.unparse(value.args[1]) == ast.unparse(node.key) else None


def given_arguments(node: ast.FunctionDef, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return values for the parameters of a function; InputError naming those without a default that are not given."""
    spec = node.args
    plain = [*spec.posonlyargs, *spec.args]
    needed = [one.arg for one in plain[: len(plain) - len(spec.defaults)]]
    needed += [one.arg for one, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if default is None]
    if missing := [name for name in needed if name not in given]:
        told = ", ".join(missing)
        raise InputError(
            f"{where}: {node.name}: takes {told} without a default: say {missing[0]}=VALUE beside the file"
        )
    return {one.arg: given[one.arg] for one in [*plain, *spec.kwonlyargs] if one.arg in given}


def items_of(value: Any) -> Any:
    """Return what a loop goes over: the keys of a mapping that is known whole, anything else as it is."""
    return list(value) if isinstance(value, dict) and "**" not in value else value


def grown_lists(nodes: Iterable[ast.AST]) -> list[str]:
    """Return the names of lists that statements put further items into."""
    found = []
    for one in nodes:
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr in {"append", "extend"}:
            found.append(ast.unparse(one.func.value))
        elif isinstance(one, ast.AugAssign) and isinstance(one.target, ast.Name):
            found.append(one.target.id)
    return list(dict.fromkeys(found))
