"""Text of `nvidia-smi topo -m`, old and new layouts, as names, codes and affinities.

The header names the devices; every device has a row of codes, one a column. Terminals add colours, wrap long rows and
turn tabs into blanks; all of that is undone here. A row that is missing or short is an error, never a guess.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...errors import InputError
from ..paths import CODE, SAME_AS

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|[\x00-\x08\x0b\x0c\x0e-\x1a\x7f\ufeff]")
LISTING = re.compile(r"\s*GPU (\d+): (.*?)\s*\(UUID: [^)]*\)\s*$")
MIG = re.compile(r"\s*MIG (\S+)\s+Device\s+(\d+):")
LEGEND_NIC = re.compile(r"\s*(NIC\d+)\s*:\s*(\S+)\s*$")
DEVICE = re.compile(r"(GPU\d+|NIC\d+|MIG[\w./-]*|[A-Za-z][\w.-]*[_-]?\d+)$")
CPU_LIST = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*$")
TITLES = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
MAX_DEVICES = 256


@dataclass(frozen=True, slots=True)
class Matrix:
    """The devices of the header in order, the code of every pair, and what the columns on the right say."""

    names: tuple[str, ...]
    codes: dict[tuple[int, int], str]
    cpu_affinity: dict[str, str] = field(default_factory=dict)
    numa: dict[str, int] = field(default_factory=dict)
    nic_names: dict[str, str] = field(default_factory=dict)
    models: dict[int, str] = field(default_factory=dict)  # from `nvidia-smi -L` in the same file
    mig: dict[int, list[str]] = field(default_factory=dict)


@dataclass(slots=True)
class _Line:
    number: int
    text: str


def looks_like_matrix(text: str) -> bool:
    """Return whether a text holds a header of GPU columns and a row with an X."""
    plain = ANSI.sub("", text[:200_000])
    return bool(re.search(r"^[ \t|]*GPU\d+[ \t].*\bX\b", plain, re.M) or re.search(r"^\s*GPU0\b(?!:)", plain, re.M))


def parse_matrix(text: str, where: str) -> Matrix:
    """Return the matrix that `text` holds; InputError names the line and what was expected."""
    lines = [_Line(i, ANSI.sub("", line).rstrip()) for i, line in enumerate(text.splitlines(), start=1)]
    models, mig, nic_names, rest = _side_information(lines)
    names, titles, rows = _split(rest, where)
    if len(names) > MAX_DEVICES:
        raise InputError(f"{where}: {len(names)} devices in one matrix, expected {MAX_DEVICES} at most")
    matrix = Matrix(tuple(names), {}, nic_names=nic_names, models=models, mig=mig)
    cells = {label: _cells(names, titles, number, parts, where) for label, number, parts in rows}
    missing = [name for name in names if name not in cells]
    if missing:
        raise InputError(f"{where}: no row for {missing[0]}: the matrix is truncated (rows: {', '.join(cells)})")
    for i, name in enumerate(names):
        codes, extra, number = cells[name]
        for j, code in enumerate(codes):
            _store(matrix, (i, j), code, f"{where}:{number}")
        _store_extra(matrix, name, extra, f"{where}:{number}")
    return matrix


def _side_information(
    lines: Sequence[_Line],
) -> tuple[dict[int, str], dict[int, list[str]], dict[str, str], list[_Line]]:
    """Take out the lines of `nvidia-smi -L` and the NIC legend; everything after "Legend" is prose."""
    models: dict[int, str] = {}
    mig: dict[int, list[str]] = {}
    nics: dict[str, str] = {}
    rest, in_legend = [], False
    for line in lines:
        listed, part, nic = LISTING.match(line.text), MIG.match(line.text), LEGEND_NIC.match(line.text)
        if listed:
            models[int(listed.group(1))] = listed.group(2)
        elif part and models:
            mig.setdefault(max(models), []).append(part.group(1))
        elif re.match(r"\s*(NIC )?Legend:?", line.text, re.I):
            in_legend = True
        elif in_legend and nic:
            nics[nic.group(1)] = nic.group(2)
        elif not in_legend:
            rest.append(line)
    return models, mig, nics, rest


def _split(lines: Sequence[_Line], where: str) -> tuple[list[str], list[str], list[tuple[str, int, list[str]]]]:
    """Return the names and the titles of the header, and (label, line, pieces) of every row, wrapped lines joined."""
    start = next((i for i, line in enumerate(lines) if _is_header(line.text)), None)
    if start is None:
        raise InputError(f"{where}: no header with GPU columns found, expected the output of nvidia-smi topo -m")
    rows: list[tuple[str, int, list[str]]] = []
    header, i = [lines[start].text], start + 1
    while i < len(lines) and not _is_row(lines[i].text):
        if lines[i].text.strip():
            header.append(lines[i].text)
        i += 1
    names, titles = _header(header, f"{where}:{lines[start].number}")
    for line in lines[i:]:
        if not line.text.strip():
            if len(rows) >= len(names):
                break
            continue
        label = line.text.split()[0]
        if label in names and (_is_row(line.text) or all(known != label for known, _, _ in rows)):
            if any(known == label for known, _, _ in rows):
                raise InputError(f"{where}:{line.number}: a second row for {label}")
            rows.append((label, line.number, [line.text]))
        elif rows and not DEVICE.match(label):
            rows[-1][2].append(line.text)
        else:
            raise InputError(f"{where}:{line.number}: {label!r}: expected a row of one of {', '.join(names)}")
    return names, titles, rows


def _is_header(text: str) -> bool:
    tokens = text.split()
    return bool(tokens) and re.fullmatch(r"GPU\d+", tokens[0]) is not None and not _is_row(text)


def _is_row(text: str) -> bool:
    tokens = text.split()
    return len(tokens) > 1 and DEVICE.match(tokens[0]) is not None and CODE.fullmatch(tokens[1]) is not None


def _header(pieces: Sequence[str], where: str) -> tuple[list[str], list[str]]:
    """Return device names and column titles; names that a terminal cut in two are joined again."""
    text = " ".join(pieces)
    plain = re.sub(r"\s+", " ", text)
    found = [title for title in TITLES if title.lower() in plain.lower()]
    first = min((plain.lower().index(title.lower()) for title in found), default=len(plain))
    names = plain[:first].split()
    for name in names:
        if not DEVICE.match(name):
            raise InputError(f"{where}: {name!r}: expected a device such as GPU0, NIC0 or mlx5_0 in the header")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{where}: {twice} stands twice in the header")
    return names, found


def _cells(
    names: Sequence[str], titles: Sequence[str], number: int, pieces: Sequence[str], where: str
) -> tuple[list[str], dict[str, str], int]:
    """Return the codes of a row and its right-hand columns by title."""
    count = len(names)
    for joined in dict.fromkeys((" ".join(pieces), "".join(pieces))):
        tokens = joined.split()
        codes, rest = tokens[1 : count + 1], tokens[count + 1 :]
        if len(codes) == count and all(CODE.fullmatch(code) for code in codes) and len(rest) <= len(titles):
            if not all(token == "N/A" or CPU_LIST.match(token) for token in rest):
                continue
            return codes, _columns(joined, rest, titles, count), number
    bad = next((c for c in " ".join(pieces).split()[1 : count + 1] if not CODE.fullmatch(c)), None)
    label = pieces[0].split()[0]
    what = f"{bad!r} is no link code" if bad else f"{len(' '.join(pieces).split()) - 1} cells"
    expected = f"{count} codes such as NV12, PIX or SYS and then {len(titles)} columns at most"
    raise InputError(f"{where}:{number}: row {label}: {what}; expected {expected}")


def _columns(joined: str, rest: Sequence[str], titles: Sequence[str], count: int) -> dict[str, str]:
    """Return title to cell. With tabs an empty cell keeps its place; with blanks the cells are taken in order."""
    if "\t" in joined:
        cells = [cell.strip() for cell in joined.strip().split("\t")]
        right = cells[count + 1 :]
        if [cell for cell in right if cell] == list(rest) and right:
            named = dict(zip(titles[:2], right, strict=False))
            return {title: cell for title, cell in named.items() if cell}
    return dict(zip(titles, rest, strict=False))


def _store(matrix: Matrix, pair: tuple[int, int], code: str, where: str) -> None:
    i, j = pair
    code = SAME_AS.get(code, code)
    if (code == "X") != (i == j):
        raise InputError(f"{where}: {matrix.names[i]} to {matrix.names[j]} is {code}; X belongs on the diagonal only")
    if i == j:
        return
    key = (min(i, j), max(i, j))
    if matrix.codes.setdefault(key, code) != code:
        raise InputError(
            f"{where}: {matrix.names[i]} to {matrix.names[j]} is {code}, but {matrix.codes[key]} the other way"
        )


def _store_extra(matrix: Matrix, name: str, extra: dict[str, str], where: str) -> None:
    cpus, numa = extra.get("CPU Affinity", "N/A"), extra.get("NUMA Affinity", "N/A")
    if cpus != "N/A":
        for part in cpus.split(","):
            low, _, high = part.partition("-")
            if high and int(low) > int(high):
                raise InputError(f"{where}: CPU affinity {cpus}: {part} runs backwards")
        matrix.cpu_affinity[name] = cpus
    if numa.isdecimal():
        matrix.numa[name] = int(numa)
