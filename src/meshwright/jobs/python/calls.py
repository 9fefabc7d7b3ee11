"""Calls that a Python configuration makes and whose result is known: builtins, variables of the job, its flags."""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .values import COMPUTED, TEXTS, Opaque, PythonCall

ENVIRONMENT = frozenset({"os.environ.get", "environ.get", "os.getenv", "getenv"})
PARSER, PARSED = "ArgumentParser", "Namespace"
MOST_TEXT = 10_000


@dataclass(slots=True)
class Walk:
    """State that the files of one configuration share: how far they were followed, and what was assumed."""

    steps: int = 0
    depth: int = 0
    assumed: list[str] = field(default_factory=list)
    modules: dict[Path, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)  # of the job's environment, as far as files set them
    flags: Mapping[str, Any] = field(default_factory=dict)  # that the program is started with, under their long names
    taken: dict[str, bool] = field(default_factory=dict)  # of the flags that it reads, whether a value follows
    tree: Callable[[str, str], PythonCall | None] | None = None  # Hydra's configuration, by its folder and its name
    composed: PythonCall | None = None  # that configuration, where the program asks for it
    calls: list[PythonCall] | None = None  # in the order in which they are made, where a program is followed

    def assume(self, text: str) -> None:
        """Add to what was assumed, once."""
        if text not in self.assumed:
            self.assumed.append(text)


def variable(key: Any, default: Any, walk: Walk, where: str) -> Any:
    """Return a variable of the job's environment, or its default; what is in no file is not known."""
    if not isinstance(key, str):
        return Opaque("os.environ")
    if key in walk.variables:
        return walk.variables[key]
    if default is None or isinstance(default, Opaque | PythonCall):
        return Opaque(f"${key}")
    walk.assume(f"{key}={default} (its default in {where})")
    return default


def instantiated(target: Any, keywords: Mapping[str, Any]) -> PythonCall | None:
    """Return the call that Hydra's `instantiate` makes of a part of a configuration, None for a part without one."""
    fields = {**target.fields, **keywords} if isinstance(target, PythonCall) else {}
    name = fields.pop("_target_", None)
    plain = {key: value for key, value in fields.items() if key not in {"_partial_", "_recursive_", "_convert_"}}
    return PythonCall(name, [], plain) if isinstance(name, str) else None


def computed(name: str, args: list[Any], text: str) -> Any:
    """Return what a builtin makes of plain values; unknown where one of them is."""
    flat = [one for value in args for one in (value if isinstance(value, list) else [value])]
    if any(isinstance(one, Opaque | PythonCall | dict) for one in flat) or not args:
        return Opaque(text)
    try:
        return COMPUTED[name](*args)
    except (TypeError, ValueError, OverflowError):
        return Opaque(text)


def text_method(owner: str, name: str, args: list[Any], text: str) -> Any:
    """Return what a method makes of a text."""
    try:
        return TEXTS[name](owner[:MOST_TEXT], *args)
    except TypeError:  # more arguments than it takes here
        return Opaque(text)


LISTS = frozenset({"append", "extend", "insert", "join", "split"})  # methods that build a command


def list_method(owner: str | list[Any], name: str, args: list[Any], text: str) -> Any:
    """Return what a method makes of a list or of a text, or change the list; what is not known stands as unknown."""
    if isinstance(owner, str):
        words = args[0] if name == "join" and len(args) == 1 else None
        if name == "split" and not args:
            return owner.split()
        plain = isinstance(words, list) and all(isinstance(one, str) for one in words)
        return owner.join(words)[:MOST_TEXT] if plain and words is not None else Opaque(text)
    if name == "append" and len(args) == 1:
        owner.append(args[0])
    elif name == "extend" and len(args) == 1:
        owner += args[0] if isinstance(args[0], list) else [Opaque(text)]
    elif name == "insert" and len(args) == 2 and isinstance(args[0], int):
        owner.insert(args[0], args[1])
    return None


MAPPINGS = frozenset({"get", "pop", "setdefault", "copy", "keys", "values", "items"})


def mapping_method(owner: dict[str, Any], name: str, args: list[Any], text: str) -> Any:
    """Return what a method makes of a mapping, or change the mapping; unknown for a key that is not known.

    A key that is not there has the default; `pop` of one without a default would stop the program.
    """
    if name == "copy":
        return dict(owner)
    if name in {"keys", "values", "items"}:
        pairs = {"keys": list(owner), "values": list(owner.values()), "items": [list(pair) for pair in owner.items()]}
        return Opaque(text) if "**" in owner else pairs[name]
    if not args or len(args) > 2 or not isinstance(args[0], str | int | bool | None):
        return Opaque(text)
    key, default = str(args[0]), args[1] if len(args) == 2 else None
    if key not in owner and ("**" in owner or (name == "pop" and len(args) == 1)):
        return Opaque(text)
    if name == "setdefault":
        return owner.setdefault(key, default)
    return (owner.pop if name == "pop" else owner.get)(key, default)


def spread_fields(value: Any, text: str) -> dict[str, Any]:
    """Return what `**value` stands for: the fields that are known, else further ones under "**"."""
    known = value if isinstance(value, dict) else value.fields if isinstance(value, PythonCall) else {}
    return dict(known) if known or isinstance(value, dict) else {"**": Opaque(text)}


def starred_values(node: ast.expr, value: Callable[[ast.expr], Any]) -> list[Any]:
    """Return the values that an element of a list stands for: several behind a star, which may not be known."""
    if not isinstance(node, ast.Starred):
        return [value(node)]
    inner = value(node.value)
    return list(inner) if isinstance(inner, list) else [Opaque(f"*{ast.unparse(node.value)}")]


def method(owner: PythonCall, name: str, call: PythonCall, walk: Walk, where: str) -> Any:
    """Return what a method of argparse's parser makes, None for any other: it keeps its flags, and hands them on."""
    if owner.last != PARSER:
        return None
    if name == "add_argument":
        owner.fields.setdefault("flags", []).append(call)
        return call
    if name not in {"parse_args", "parse_known_args"}:
        return None
    found = PythonCall(PARSED)
    for flag in owner.fields.get("flags", []):
        names = [str(one).lstrip("-") for one in flag.args if isinstance(one, str)]
        if not names:
            continue
        known = flag.fields.get("dest") or next((one for one in names if len(one) > 1), names[0])
        found.fields[str(known).replace("-", "_")] = _flag(flag, names, walk, where)
    return found if name == "parse_args" else [found, []]


def _flag(flag: PythonCall, names: list[str], walk: Walk, where: str) -> Any:
    """Return a flag as the program is started with it, else its default."""
    given = next((walk.flags[name] for name in names if name in walk.flags), None)
    action = flag.fields.get("action")
    walk.taken |= dict.fromkeys(names, not str(action).startswith("store_"))
    if action in {"store_true", "store_false"}:
        return (given is not None) == (action == "store_true")
    if given is not None:
        return given
    default = flag.fields.get("default")
    if default is None or isinstance(default, Opaque | PythonCall):
        return Opaque(f"--{names[0]}") if flag.fields.get("required") or default is not None else None
    if isinstance(default, int) and not isinstance(default, bool):
        walk.assume(f"--{names[0]} {default} (its default in {where})")
    return default
