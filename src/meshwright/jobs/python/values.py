"""Values of Python configurations that are read as data, and what may be asked of them."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..shell.marks import unknown

MOST_TEXT = 10_000
DEEPEST = 40  # records inside each other, and functions that call each other


class Opaque:
    """A value that only running the file would tell; `owner` and `name` where it is an attribute of something else.

    Of a text that is known in part `partial` has that, with marks of the rest.
    """

    def __init__(
        self, text: str, owner: "PythonCall | Opaque | None" = None, name: str = "", *, partial: str = ""
    ) -> None:
        self.text, self.owner, self.name, self.partial = text, owner, name, partial

    def __repr__(self) -> str:
        return f"<{self.text}>"


@dataclass(slots=True)
class PythonCall:
    """A call: the name of what is called, its positional arguments, its keywords and what was assigned to it later."""

    name: str
    args: list[Any] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def last(self) -> str:
        """The last part of the name, without module or class."""
        return self.name.rpartition(".")[2]


def joined_text(parts: list[Any], text: str) -> Any:
    """Return parts as one text; unknown, with what is known of it, where one of them is."""
    if all(isinstance(part, str | int) for part in parts):
        return "".join(map(str, parts))[:MOST_TEXT]
    known = (part.partial or unknown(part.text) if isinstance(part, Opaque) else str(part) for part in parts)
    plain = all(isinstance(part, str | int | float | Opaque) for part in parts)
    return Opaque(text, partial="".join(known)[:MOST_TEXT] if plain else "")


def fields_of(value: Any, text: str) -> Any:
    """Return the fields of a record as a mapping of its own; unknown, by its text, for anything else."""
    return dict(value.fields) if isinstance(value, PythonCall) else Opaque(text)


def record_of(value: Opaque) -> PythonCall | None:
    """Return the record that an attribute is, made where its owner has none; None for what is no attribute.

    Something that is set on `strategy = recipe.trainer.strategy` is set on the recipe.
    """
    owner = record_of(value.owner) if isinstance(value.owner, Opaque) else value.owner
    if owner is None:
        return None
    found = owner.fields.get(value.name)
    if not isinstance(found, PythonCall):
        found = owner.fields[value.name] = PythonCall(value.name)
    return found


def flattened(value: Any, prefix: str = "", depth: int = 0) -> dict[str, Any]:
    """Return records and mappings as one mapping with dotted keys; the called name is under `KEY.()`."""
    found: dict[str, Any] = {}
    if depth > DEEPEST:
        return found
    if isinstance(value, PythonCall):
        found[f"{prefix}()"] = value.name
        if value.args:
            found[f"{prefix}[]"] = value.args
        items: Mapping[str, Any] = value.fields
    elif isinstance(value, dict):
        items = value
    else:
        return {prefix.removesuffix("."): value}
    for key, inner in items.items():
        if isinstance(inner, PythonCall | dict):
            found |= flattened(inner, f"{prefix}{key}.", depth + 1)
        else:
            found[f"{prefix}{key}"] = unknown(inner.text) if isinstance(inner, Opaque) else inner
    return found


TEXTS: Mapping[str, Callable[..., Any]] = {
    "lower": lambda text: text.lower(),
    "upper": lambda text: text.upper(),
    "strip": lambda text, characters=None: text.strip(characters),
    "replace": lambda text, old="", new="": text.replace(old, new)[:1000] if old else text,
    "startswith": lambda text, start="": text.startswith(start),
    "endswith": lambda text, end="": text.endswith(end),
}
# builtins whose result is a number or a text
COMPUTED: Mapping[str, Callable[..., Any]] = {
    **{
        "int": int,
        "float": float,
        "str": str,
        "bool": bool,
        "max": max,
        "min": min,
        "len": len,
        "sum": sum,
        "abs": abs,
        "shlex.split": shlex.split,
        "shlex.join": shlex.join,
    },
}
PLAIN = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict}


def is_of(value: Any, kind: str) -> bool | None:
    """Return whether a value is of a class by its text, None where that is not known."""
    if isinstance(value, Opaque):
        return None
    if isinstance(value, PythonCall):
        return True if value.name.rpartition(".")[2] == kind.rpartition(".")[2] else None
    if kind in PLAIN:
        return isinstance(value, PLAIN[kind])
    return False if kind.isidentifier() else None  # plain data is of no class of the file's own
