"""Names and labels of the nodes in YAML of Kubernetes (`kubectl get nodes -o yaml`, manifests), and nothing else.

Read by indentation alone, for a whole node object holds more of YAML than is of use here.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

KIND = re.compile(r"^[ ]*(?:- )?kind:[ ]+[\"']?Node[\"']?[ ]*$", re.M)
PAIR = re.compile(r"""(?P<key>"[^"]*"|'[^']*'|[\w./-]+):[ ]+(?P<value>\S.*?)[ ]*$""")
BETWEEN = re.compile(r"\s*(?:---.*|\.\.\.|`{3}.*|~{3}.*)$")  # documents, and fences of Markdown


class _Line(NamedTuple):
    indent: int  # of its words, behind the dash of an item
    starts_item: bool
    text: str


def holds_nodes(text: str) -> bool:
    """Return whether a text holds YAML of Kubernetes nodes."""
    return KIND.search(text) is not None


def labelled_nodes(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield name and labels of each node that has a name."""
    lines = [_line(line) for line in text.splitlines()]
    for at, line in enumerate(lines):
        if line is None or KIND.match(line.text) is None:
            continue
        metadata = _below(_object(lines, at, line), "metadata")
        pairs = _pairs(metadata)
        if name := pairs.get("name"):
            yield name, _pairs(_below(metadata, "labels"))


def _line(line: str) -> _Line | None:
    """Return a line's words and how far they are indented; None for what parts documents and says nothing."""
    if BETWEEN.match(line):
        return None
    words = line.strip()
    dash = words.startswith("- ")
    inner = words[2:].lstrip() if dash else words
    return _Line(len(line.rstrip()) - len(inner), dash, "" if inner.startswith("#") else inner)


def _object(lines: Sequence[_Line | None], at: int, own: _Line) -> list[_Line]:
    """Return the lines of the object around its line `own`: as far as nothing stands further left or begins anew."""
    found = [own]
    above = () if own.starts_item else range(at - 1, -1, -1)
    for line in (lines[number] for number in above):
        if line is None or _ends(line, own):
            break
        found.append(line)
        if _starts(line, own):
            break
    found.reverse()
    for line in (lines[number] for number in range(at + 1, len(lines))):
        if line is None or _ends(line, own) or _starts(line, own):
            break
        found.append(line)
    return [line for line in found if line.text]


def _starts(line: _Line, own: _Line) -> bool:
    """Return whether a line begins an item of the list in which the object of `own` stands."""
    return line.starts_item and line.indent == own.indent


def _ends(line: _Line, own: _Line) -> bool:
    """Return whether a line is outside the object of `own`: further left, or of another object's kind."""
    return bool(line.text) and (line.indent < own.indent or (line.indent == own.indent and line.text == own.text))


def _below(lines: Sequence[_Line], key: str) -> list[_Line]:
    """Return the lines below a key of the object whose lines these are."""
    top = min((line.indent for line in lines), default=0)
    found: list[_Line] = []
    inside = False
    for line in lines:
        if line.indent == top:
            inside = line.text.rstrip() == f"{key}:"
        elif inside:
            found.append(line)
    return found


def _pairs(lines: Sequence[_Line]) -> dict[str, str]:
    """Return the keys with a value of the object whose lines these are."""
    top = min((line.indent for line in lines), default=0)
    matches = [match for line in lines if line.indent == top and (match := PAIR.match(line.text))]
    return {match["key"].strip("\"'"): match["value"].strip("\"'") for match in matches}
