"""Programs of jq and yq that set keys: `.a.b = 4 | .c = "x" | del(.d)`, as far as they are plain.

Sources: jq's manual (assignment, --arg, --argjson, $ENV, `*` merges deeply, `+` at the top level alone), mikefarah/yq:
pkg/yqlib (env, strenv).
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from ...errors import InputError
from ..documents import load_document
from .marks import reasons

KINDS = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".conf": "json"}  # a .conf of DeepSpeed's is JSON
QUERIES = frozenset({"jq", "yq"})
STEP = re.compile(r"""\.(?:([A-Za-z_][\w-]*)|"([^"\\]+)")|\.?\["([^"\\]+)"\]""")
SETS = re.compile(r"""((?:\.?\["[^"\\]+"\]|\.[A-Za-z_][\w-]*|\."[^"\\]+")+)\s*=(?!=)(.+)""", re.DOTALL)
NAMED = re.compile(r"(?:\$ENV\.|env\.)([A-Za-z_]\w*)|(?:str)?env\(([A-Za-z_]\w*)\)|\$([A-Za-z_]\w*)")
ARGUMENT = re.compile(r"--?arg(json)?$")
IN_PLACE = re.compile(r"-[A-Za-z]*i[A-Za-z]*|--in-?place")
ALONE = frozenset({"e", "ea", "eval", "eval-all"})  # words before yq's program
OUTSIDE = re.compile(r"""("(?:[^"\\]|\\.)*"|\{[^{}|]*\}|\[[^\[\]|]*\])""")  # what a bar may stand in
MOST_STEPS = 100


class NotFollowed(Exception):
    """A program that does more than set keys."""


class Query:
    """One command of jq or yq: its program, the files behind it and the values that its options name."""

    def __init__(self, words: Sequence[str]) -> None:
        self.program, self.files, self.values = "", list[str](), dict[str, Any]()
        self.in_place = words[0].rpartition("/")[2] == "yq" and any(map(IN_PLACE.fullmatch, words[1:]))
        rest = [word for word in words[1:] if word not in ALONE]
        while rest:
            word = rest.pop(0)
            if (own := ARGUMENT.fullmatch(word)) and len(rest) > 1:
                name, text = rest.pop(0), rest.pop(0)
                self.values[name] = _typed(text) if own[1] else text
            elif word in {"--indent", "-I", "--output-format", "-o", "--input-format", "-p"}:
                del rest[:1]
            elif word.startswith("-") and word != "-":
                continue
            elif not self.program:
                self.program = word
            else:
                self.files.append(word)


def queried(query: Query, text: str, path: str, value: Callable[[str], str | None]) -> str | None:
    """Return what a program makes of a file's text, as JSON, which YAML reads too; None for what is not followed.

    `value` is what a name of the environment holds, None where that is not known.
    """
    kind = KINDS.get(PurePath(path).suffix)
    if kind is None or reasons(query.program):
        return None
    try:
        data: dict[str, Any] = load_document(path, text, kind)
        for part in _parts(query.program):
            data = _changed(data, part, query.values, value)
        return json.dumps(data, indent=2) + "\n"
    except (InputError, NotFollowed, TypeError, ValueError, RecursionError):
        return None


def _parts(program: str) -> list[str]:
    """Return the steps of a program, cut at the bars outside of texts and of values in brackets.

    With a plain value `|=` is `=`; what hangs on the old value is no value here, and is not followed.
    """
    kept: list[str] = []

    def hidden(match: re.Match[str]) -> str:
        kept.append(match[0])
        return f"\0{len(kept) - 1}\0"

    cut = [part.strip() for part in OUTSIDE.sub(hidden, program).replace("|=", "=").split("|")]
    if len(cut) > MOST_STEPS or not all(cut):
        raise NotFollowed
    return [re.sub(r"\0(\d+)\0", lambda match: kept[int(match[1])], part) for part in cut]


def _changed(
    data: dict[str, Any], part: str, values: Mapping[str, Any], value: Callable[[str], str | None]
) -> dict[str, Any]:
    """Return the data after one step: a key set, keys deleted, or a mapping laid over all."""
    if part == ".":
        return data
    part = part[1:-1].strip() if part.startswith("(") and part.endswith(")") else part
    if deleted := re.fullmatch(r"del\((.+)\)", part):
        for path in deleted[1].split(","):
            _delete(data, _path(path.strip()))
        return data
    if laid := re.fullmatch(r"\.\s*([*+])\s*(.+)", part, re.DOTALL):
        more = _value(laid[2], values, value)
        if not isinstance(more, dict):
            raise NotFollowed
        return _merged(data, more) if laid[1] == "*" else data | more
    said = SETS.fullmatch(part)
    if said is None:
        raise NotFollowed
    *outer, last = _path(said[1])
    here = data
    for name in outer:
        if here.get(name) is None:
            here[name] = {}
        here = here[name]
        if not isinstance(here, dict):
            raise NotFollowed
    here[last] = _value(said[2], values, value)
    return data


def _path(text: str) -> list[str]:
    steps = [match[1] or match[2] or match[3] for match in STEP.finditer(text)]
    if not steps or "".join(match[0] for match in STEP.finditer(text)) != text:
        raise NotFollowed
    return steps


def _delete(data: dict[str, Any], path: list[str]) -> None:
    here: Any = data
    for name in path[:-1]:
        here = here.get(name) if isinstance(here, dict) else None
    if isinstance(here, dict):
        here.pop(path[-1], None)


def _merged(data: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(data)
    for key, one in more.items():
        old = found.get(key)
        found[key] = _merged(old, one) if isinstance(old, dict) and isinstance(one, Mapping) else one
    return found


def _value(text: str, values: Mapping[str, Any], value: Callable[[str], str | None]) -> Any:
    """Return a value as written: JSON, or a name of the command's or of the environment's."""
    text = text.strip()
    named = NAMED.fullmatch(text)
    if named is None:
        return _scalar(text)
    if named[3] and named[3] not in values:
        raise NotFollowed
    if named[3]:
        return values[named[3]]
    known = value(named[1] or named[2])
    if known is None or reasons(known):
        raise NotFollowed
    return _typed(known) if text.startswith("env(") else known  # yq's env() reads YAML, strenv() and jq's a text


def _scalar(text: str) -> Any:
    if reasons(text):
        raise NotFollowed
    try:
        return json.loads(text)
    except ValueError:
        raise NotFollowed from None


def _typed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
