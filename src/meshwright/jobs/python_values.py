"""Values of Python configurations that are read as data, and what may be asked of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


class Opaque:
    """A value that only running the file would tell."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"<{self.text}>"


@dataclass(slots=True)
class PythonCall:
    """A call: the name of what is called, its positional arguments, its keywords and what was assigned to it later."""

    name: str
    args: list[Any] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)


TEXTS: Mapping[str, Callable[..., Any]] = {
    "lower": lambda text: text.lower(),
    "upper": lambda text: text.upper(),
    "strip": lambda text, characters=None: text.strip(characters),
    "replace": lambda text, old="", new="": text.replace(old, new)[:1000] if old else text,
    "startswith": lambda text, start="": text.startswith(start),
    "endswith": lambda text, end="": text.endswith(end),
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
