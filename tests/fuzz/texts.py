"""Good files that stand in the tests as text: the literals of their modules, with 1 where an f-string has a value."""

import ast
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

UNIT = Path(__file__).parents[1] / "unit"
LEAST_CHARACTERS = 60


def literals(*patterns: str, lines: int) -> Callable[[], Sequence[tuple[str, bytes]]]:
    """Return the literals of test modules of at least that many lines, named by module and line."""

    @functools.cache
    def found() -> list[tuple[str, bytes]]:
        paths = sorted({path for pattern in patterns for path in UNIT.glob(pattern)})
        return [
            (f"{path.stem}_{line}{suffix_of(text)}", text.encode("utf-8", "surrogatepass"))
            for path in paths
            for line, text in literals_of(path.read_text())
            if len(text) >= LEAST_CHARACTERS and text.count("\n") + 1 >= lines
        ]

    return found


def literals_of(program: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string of a program but docstrings; of an f-string the whole, not its parts."""
    tree = ast.parse(program)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, documented)]
    left_out = {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.JoinedStr):
            left_out |= {id(part) for part in ast.walk(node)}
            yield node.lineno, "".join(_text(part) for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def _text(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else "1"


def suffix_of(text: str) -> str:
    """Return the suffix under which a text is a file of its kind."""
    start = text.lstrip()
    if start.startswith(("{", "[[", "[{")):
        return ".json"
    if start.startswith(("import ", "from ", "def ", "class ")):
        return ".py"
    if start.startswith("#!") or " --" in text or "\\\n" in text:
        return ".sh"
    if start.startswith("[") and "=" in text:
        return ".toml"
    if ": " in start.partition("\n")[0] and not start.startswith(("#", "$")):
        return ".yaml"
    return ".txt"
