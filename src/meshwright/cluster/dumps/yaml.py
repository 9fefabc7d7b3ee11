"""The part of YAML that SLURM's topology.yaml uses: lists and mappings by indentation, plain and quoted scalars."""

import re
from dataclasses import dataclass
from typing import Any

from ...errors import InputError

KEY = re.compile(r"""("[^"]*"|'[^']*'|[\w./-]+)\s*:(?:\s+(.*)|\s*)$""")
MAX_DEPTH = 30


@dataclass(slots=True)
class _Line:
    number: int
    indent: int
    text: str


def parse_yaml(text: str, where: str) -> Any:
    """Return lists, dicts and strings; InputError in one line for anything else that YAML can say."""
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        plain = re.sub(r"(^|\s)#.*$", "", line).rstrip()
        if plain.strip() and plain.strip() not in {"---", "..."}:
            if "\t" in plain[: len(plain) - len(plain.lstrip())]:
                raise InputError(f"{where}:{number}: indented with a tab, which YAML forbids")
            lines.append(_Line(number, len(plain) - len(plain.lstrip()), plain.strip()))
    if not lines:
        return None
    value, rest = _block(lines, 0, where, 0)
    if rest < len(lines):
        raise InputError(f"{where}:{lines[rest].number}: {lines[rest].text[:40]!r}: indented unlike the lines above")
    return value


def _block(lines: list[_Line], start: int, where: str, depth: int) -> tuple[Any, int]:
    """Return the list or mapping that begins at a line, and the line after it."""
    if depth > MAX_DEPTH:
        raise InputError(f"{where}:{lines[start].number}: more than {MAX_DEPTH} levels")
    if lines[start].text.startswith("- ") or lines[start].text == "-":
        return _list(lines, start, where, depth)
    return _mapping(lines, start, where, depth)


def _list(lines: list[_Line], start: int, where: str, depth: int) -> tuple[list[Any], int]:
    indent, items, i = lines[start].indent, list[Any](), start
    while i < len(lines) and lines[i].indent == indent and re.match(r"-( |$)", lines[i].text):
        inside = lines[i].text[1:].lstrip()
        if not inside:
            value, i = _block(lines, i + 1, where, depth + 1) if _deeper(lines, i) else (None, i + 1)
        elif KEY.match(inside):  # a mapping that begins on the line of its dash
            lines[i] = _Line(lines[i].number, indent + len(lines[i].text) - len(inside), inside)
            value, i = _mapping(lines, i, where, depth + 1)
        else:
            value, i = _scalar(inside, f"{where}:{lines[i].number}"), i + 1
        items.append(value)
    return items, i


def _mapping(lines: list[_Line], start: int, where: str, depth: int) -> tuple[dict[str, Any], int]:
    indent, found, i = lines[start].indent, dict[str, Any](), start
    while i < len(lines) and lines[i].indent == indent and not re.match(r"-( |$)", lines[i].text):
        line, match = lines[i], KEY.match(lines[i].text)
        if match is None:
            raise InputError(f"{where}:{line.number}: {line.text[:40]!r}: expected key: value")
        key = match.group(1).strip("\"'")
        if key in found:
            raise InputError(f"{where}:{line.number}: {key} stands twice")
        if match.group(2):
            found[key], i = _scalar(match.group(2), f"{where}:{line.number}"), i + 1
        elif _deeper(lines, i) or (
            i + 1 < len(lines) and lines[i + 1].indent == indent and lines[i + 1].text[0] == "-"
        ):
            found[key], i = _block(lines, i + 1, where, depth + 1)
        else:
            found[key], i = None, i + 1
    return found, i


def _deeper(lines: list[_Line], i: int) -> bool:
    return i + 1 < len(lines) and lines[i + 1].indent > lines[i].indent


def _scalar(text: str, where: str) -> Any:
    text = text.strip()
    if text[0] in "\"'":
        if len(text) < 2 or text[-1] != text[0]:
            raise InputError(f"{where}: {text[:40]!r}: the quotation is not closed")
        return text[1:-1]
    if text[0] == "[" and text[-1] == "]":
        return [part.strip().strip("\"'") for part in text[1:-1].split(",") if part.strip()]
    if text[0] in "&*!|>{%@`":
        raise InputError(f"{where}: {text[:40]!r}: expected a plain value")
    return text
