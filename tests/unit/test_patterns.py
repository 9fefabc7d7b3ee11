"""No regular expression of the package takes exponential time: a damaged line would hold its reader for hours.

A repeat inside a repeat can split one text in many ways. Each such expression gets what its inner repeat matches, many
times over, and an end that it cannot match, so that all ways are tried; none may need more than a moment.
"""

import ast
import random
import re
import re._constants as kinds
import re._parser as parser
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import meshwright

CALLS = {"compile", "match", "fullmatch", "search", "findall", "finditer", "split", "sub"}
REPEATS = {kinds.MAX_REPEAT, kinds.MIN_REPEAT}
TIMES, SAMPLES, MOST_S = 60, 6, 0.3


def _patterns() -> Iterator[tuple[str, str]]:
    """Yield where and what each expression is that stands in the package as a constant."""
    for path in sorted(Path(meshwright.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            is_call = isinstance(node, ast.Call) and node.args and ast.unparse(node.func).removeprefix("re.") in CALLS
            if is_call and (text := _text(node.args[0])):
                yield f"{path.name}:{node.lineno}", text


def _text(node: ast.expr) -> str:
    """Return a constant, with a plain word in place of what an f-string puts in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) if isinstance(part, ast.Constant) else "9" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _sample(items, rng: random.Random) -> str:
    """Return a text that a parsed expression matches, or nearly: what looks around is left out."""
    said = ""
    for kind, inside in items:
        if kind in REPEATS:
            least, most, body = inside
            said += "".join(_sample(body, rng) for _ in range(rng.randint(least, min(most, least + 2))))
        elif kind is kinds.SUBPATTERN:
            said += _sample(inside[-1], rng)
        elif kind is kinds.BRANCH:
            said += _sample(rng.choice(inside[1]), rng)
        elif kind is kinds.LITERAL:
            said += chr(inside)
        elif kind in {kinds.NOT_LITERAL, kinds.ANY}:
            said += "z"
        elif kind is kinds.IN:
            said += _member(inside, rng)
    return said


def _member(inside, rng: random.Random) -> str:
    ordinary = "a1 Z_.,-/:=[]()\t\n"
    expression = re.compile(_spelled(inside))
    fitting = [letter for letter in ordinary if expression.match(letter)]
    return rng.choice(fitting) if fitting else "a"


def _spelled(inside) -> str:
    """Return a parsed class of characters as an expression again."""
    said = ""
    names = {"DIGIT": r"\d", "NOT_DIGIT": r"\D", "SPACE": r"\s", "NOT_SPACE": r"\S", "WORD": r"\w", "NOT_WORD": r"\W"}
    for kind, value in inside:
        if kind is kinds.NEGATE:
            said += "^"
        elif kind is kinds.LITERAL:
            said += re.escape(chr(value))
        elif kind is kinds.RANGE:
            said += f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
        else:
            said += names[str(value).removeprefix("CATEGORY_")]
    return f"[{said}]"


def _attacks(text: str) -> Iterator[str]:
    """Yield texts that many ways of an expression begin to match and none ends."""

    def inner(items, before) -> Iterator[tuple[list, list]]:
        for place, (kind, inside) in enumerate(items):
            ahead = [*before, *items[:place]]
            if kind in REPEATS:
                if inside[1] > TIMES and _repeats(inside[2]):
                    yield ahead, list(inside[2])
                yield from inner(list(inside[2]), ahead)
            elif kind is kinds.SUBPATTERN:
                yield from inner(list(inside[-1]), ahead)
            elif kind is kinds.BRANCH:
                for branch in inside[1]:
                    yield from inner(list(branch), ahead)

    rng = random.Random(ascii(text))
    for ahead, body in inner(list(parser.parse(text)), []):
        for _ in range(SAMPLES):
            one = _sample(body, rng)
            yield _sample(ahead, rng) + one * TIMES + "\0"
            yield _sample(ahead, rng) + "".join(_sample(body, rng) for _ in range(TIMES)) + "\0"


def _repeats(items) -> bool:
    return any(
        kind in REPEATS
        or (kind is kinds.SUBPATTERN and _repeats(inside[-1]))
        or (kind is kinds.BRANCH and any(_repeats(branch) for branch in inside[1]))
        for kind, inside in items
    )


class _Late(BaseException):
    pass


def _slow(text: str) -> str:
    """Return a line that an expression needs long for, "" where there is none."""

    def late(number, frame):
        raise _Late

    expression = re.compile(text)
    before = signal.signal(signal.SIGPROF, late)
    try:
        for attack in _attacks(text):
            signal.setitimer(signal.ITIMER_PROF, MOST_S)  # of the processor: the machine may be busy
            expression.search(attack)
    except _Late:
        return attack
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return ""


def test_no_expression_takes_exponential_time():
    found = list(_patterns())

    assert len(found) > 300
    assert [f"{where}: {text}: {line!r}" for where, text in found if (line := _slow(text))] == []


@pytest.mark.parametrize("text", [r"Ranks? ((?:\d+(?:, )?)+) failed", r"^\s*\d+(?:\s+\d+\.?\d*)+\s*$", r"(\s*\d+)+$"])
def test_an_expression_that_does_is_found(text):
    assert _slow(text)
