"""Text as people paste it, without colours, quoting, fences, tables of Markdown or CSV, prefixes of hosts and logs."""

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|[\x00-\x08\x0b\x0c\x0e-\x1a\x7f\ufeff]")
QUOTE = re.compile(r"^(?:\s?>)+ ?")
RULE = re.compile(r"^\s*\|?[\s:|+-]*-{2,}[\s:|+-]*\|?\s*$")
TIME = re.compile(r"^\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?\s?")
CLOCK = re.compile(r"^\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?\s")
# a host of pdsh or ansible, a task of srun, a container of docker compose, a pod of kubectl logs --prefix, mpirun's tag
HOST = re.compile(
    r"^\[?([A-Za-z][\w.-]*)(?:\]|:)(?: |(?=\t)|(?=\s*$))|^(\d+): |^([A-Za-z][\w.-]*) +\|(?: |(?=\t)|$)"
    r"|^\[((?:pod/)?[\w.-]+(?:/[\w.-]+)+)\](?: |(?=\t)|$)|^\[(\d+,\d+)\](?:<\w+>)?:? ?"
)
# perhaps behind a title in the corner, or columns of NICs
CSV_HEADER = re.compile(r"""^\W*(?:[A-Za-z][\w.-]*["']?\s*[,;]\s*["']?)*GPU0["']?\s*([,;])\s*["']?GPU1\b""")
# a header of GPUs or the root of a PCI tree behind the sign of a comment, as in the script that a note quotes
COMMENTED = re.compile(r"^\s*(?:#|//) *(?:\s+GPU0\s+GPU1\b|-\+?-?\[[0-9a-f]{4,8}:[0-9a-f]{2}\]-)", re.M)
COMMENT = re.compile(r"^\s*(?:#|//) ?", re.M)
LONGEST_LINE = 2**20  # of characters; a line of all nodes of a cluster has less
DEVICE = re.compile(r"^Device (?=\d+$)")
LEVEL = re.compile(r"^(?:\[?(?:INFO|DEBUG|WARN(?:ING)?|ERROR|STDOUT|OUT)\]?:?\s)", re.I)


@dataclass(slots=True)
class PlainLine:
    """One line of a dump without what pasting added; `host` is the name that stood before it, or ""."""

    number: int
    text: str
    host: str = ""


def uncommented(text: str) -> str:
    """Return a text without the signs of comments where a dump stands behind them, any other text as it is."""
    return COMMENT.sub("", text) if COMMENTED.search(text[:200_000]) else text


def short_lines(text: str) -> str:
    """Return a text whose lines end after `LONGEST_LINE` characters, by which its kind can be told.

    Some ninety expressions look at a text before it is known to be no dump.
    """
    if len(text) <= LONGEST_LINE:
        return text
    return "".join(_shortened(line) for line in text.splitlines(keepends=True))


def _shortened(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] + "\n"


def plain_lines(text: str) -> list[PlainLine]:
    """Return the lines of a pasted text.

    A prefix such as "node01: " is taken for a host's name only where lines by the dozen begin so, which no dump does
    by itself.
    """
    lines = [PlainLine(i, _unquoted(ANSI.sub("", line).rstrip())) for i, line in enumerate(text.splitlines(), start=1)]
    for line in lines:
        line.text = _undated(line.text)
    _take_hosts(lines)
    if _is_markdown_table(lines):
        for line in lines:
            line.text = _cells(line.text)
    separator = next((match.group(1) for line in lines if (match := CSV_HEADER.match(line.text))), "")
    for line in lines:
        if separator and separator in line.text:
            cells = [cell.strip() for cell in next(csv.reader([line.text], delimiter=separator))]
            line.text = "\t".join(_untitled(cells))
    return lines


def _unquoted(line: str) -> str:
    return QUOTE.sub("", line.replace("&nbsp;", " "))


def _undated(line: str) -> str:
    for pattern in (TIME, CLOCK, LEVEL):
        line = pattern.sub("", line, count=1)
    return line


def _take_hosts(lines: Sequence[PlainLine]) -> None:
    matches = {id(line): match for line in lines if (match := HOST.match(line.text))}
    counts = Counter(_name(match) for match in matches.values())
    written = sum(1 for line in lines if line.text.strip())
    hosts = {name for name, count in counts.items() if count >= 3}
    if not hosts or sum(counts[name] for name in hosts) < 0.5 * written:
        return
    for line in lines:
        match = matches.get(id(line))
        name = _name(match) if match else ""
        if match and name in hosts:
            line.host, line.text = name, _undated(line.text[match.end() :])


def _name(match: re.Match[str]) -> str:
    """Return the host, task, container or pod that stands before a line; of a pod its own name."""
    return next(filter(None, match.groups()), "").removeprefix("pod/").split("/")[0]


def _is_markdown_table(lines: Sequence[PlainLine]) -> bool:
    return any(re.match(r"^\s*\|.*\b(?:GPU|Device )0\b.*\|", line.text) for line in lines)


def _cells(line: str) -> str:
    """Return a row of a Markdown table as cells between tabs; a rule between header and rows is an empty line.

    GPUs that are called devices get their names, a title in the corner of the header goes.
    """
    if not line.lstrip().startswith("|"):
        return line
    if RULE.match(line):
        return ""
    cells = [DEVICE.sub("GPU", cell.strip().strip("*`")) for cell in line.strip().strip("|").split("|")]
    return "\t".join(_untitled(cells))


def _untitled(cells: list[str]) -> list[str]:
    """Return the cells of a row, those of a header without a title in its corner."""
    return ["", *cells[1:]] if "GPU0" in cells[1:] and not re.search(r"\d$", cells[0]) else cells
