"""Names and labels of the nodes in YAML of Kubernetes (`kubectl get nodes -o yaml`, manifests), and nothing else.

Read by indentation alone, for a whole node object holds more of YAML than is of use here.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

KIND = re.compile(r"^[ ]*(?:- )?kind:[ ]+[\"']?Node[\"']?[ ]*$", re.M)
PAIR = re.compile(r"""(?P<key>"[^"]*"|'[^']*'|[\w./-]+):[ ]+(?P<value>\S.*?)[ ]*$""")
BETWEEN = re.compile(r"\s*(?:---.*|\.\.\.|`{3}.*|~{3}.*)$")  # documents, and fences of Markdown


class YamlLine(NamedTuple):
    """A line of YAML without what stands before its words."""

    indent: int  # of its words, behind the dash of an item
    starts_item: bool
    text: str


def holds_nodes(text: str) -> bool:
    """Return whether a text holds YAML of Kubernetes nodes."""
    return KIND.search(text) is not None


def labelled_nodes(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield name and labels of each node that has a name."""
    lines = [yaml_line(line) for line in text.splitlines()]
    for at, line in enumerate(lines):
        if line is None or KIND.match(line.text) is None:
            continue
        metadata = lines_below(_object(lines, at, line), "metadata")
        pairs = values_below(metadata)
        if name := pairs.get("name"):
            yield name, values_below(lines_below(metadata, "labels"))


def yaml_line(line: str) -> YamlLine | None:
    """Return a line's words and how far they are indented; None for what parts documents and says nothing."""
    if BETWEEN.match(line):
        return None
    words = line.strip()
    dash = words.startswith("- ")
    inner = words[2:].lstrip() if dash else words
    return YamlLine(len(line.rstrip()) - len(inner), dash, "" if inner.startswith("#") else inner)


def _object(lines: Sequence[YamlLine | None], at: int, own: YamlLine) -> list[YamlLine]:
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


def _starts(line: YamlLine, own: YamlLine) -> bool:
    """Return whether a line begins an item of the list in which the object of `own` stands."""
    return line.starts_item and line.indent == own.indent


def _ends(line: YamlLine, own: YamlLine) -> bool:
    """Return whether a line is outside the object of `own`: further left, or of another object's kind."""
    return bool(line.text) and (line.indent < own.indent or (line.indent == own.indent and line.text == own.text))


def lines_below(lines: Sequence[YamlLine], key: str) -> list[YamlLine]:
    """Return the lines below a key of the object whose lines these are."""
    top = min((line.indent for line in lines), default=0)
    found: list[YamlLine] = []
    inside = False
    for line in lines:
        if line.indent == top:
            inside = line.text.rstrip() == f"{key}:"
        elif inside:
            found.append(line)
    return found


def values_below(lines: Sequence[YamlLine]) -> dict[str, str]:
    """Return the keys with a value of the object whose lines these are."""
    top = min((line.indent for line in lines), default=0)
    matches = [match for line in lines if line.indent == top and (match := PAIR.match(line.text))]
    return {match["key"].strip("\"'"): match["value"].strip("\"'") for match in matches}
