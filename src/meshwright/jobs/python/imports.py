"""Modules that a Python configuration imports from its own source tree: found beside it, and read as it is."""

import ast
import contextlib
import warnings
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError

HIGHEST = 10  # folders above a file that may be the root of its packages


@dataclass(frozen=True, slots=True)
class Imported:
    """A name that a file takes from another module."""

    module: str  # dotted, "" where only dots are written
    level: int  # dots before it
    name: str  # as the module calls it


def parsed(text: str, where: str) -> ast.Module:
    """Return the tree of a Python text; InputError of one line where it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what the file itself would be warned of
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f"line {error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
        raise InputError(f"{where}: {line}no Python ({getattr(error, 'msg', None) or 'too deeply nested'})") from None


def imports_of(tree: ast.Module) -> dict[str, Imported]:
    """Return what a file imports by name, on its first level or inside its functions."""
    return {
        alias.asname or alias.name: Imported(node.module or "", node.level, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def package_of(tree: ast.Module, name: str) -> str:
    """Return the package that a called name comes from (`ed.Config` after `import easydel as ed`: easydel).

    "" for a name that the file imports from its own package, or not at all.
    """
    first = name.partition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if first == (alias.asname or alias.name.partition(".")[0]):
                    return alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and any(first == (one.asname or one.name) for one in node.names):
            return "" if node.level else (node.module or "").partition(".")[0]
    return ""


def module_file(origin: Path, imported: Imported) -> Path | None:
    """Return the file of the module that a name comes from, where it lies in the source tree of `origin`."""
    parts = imported.module.split(".") if imported.module else []
    level = imported.level
    for root in origin.parents[level - 1 : level] if level else origin.parents[:HIGHEST]:
        inner = root.joinpath(*parts)
        for found in (*([inner.with_suffix(".py")] if parts else []), inner / "__init__.py"):
            with contextlib.suppress(OSError):  # a name that is too long for a file
                if found.is_file() and found != origin:
                    return found.resolve()
    return None
