"""Text of `nvidia-smi topo -m`, old and new layouts, as names, codes and affinities.

The header names the devices; every device has a row of codes, one a column. Terminals add colours, wrap long rows and
turn tabs into blanks, people paste it between prose; all of that is undone here. A row of a GPU that is missing or
short is an error, never a guess; rows of NICs may be left out, since what they say of the GPUs the GPU rows say too,
and one that the end of the text cuts short is, also that of the last GPU.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...errors import InputError
from ..paths import CODE, SAME_AS
from .evidence import LINK, GpuEvidence, evidence
from .names import is_listing
from .pasted import ANSI, PlainLine, plain_lines
from .unsupported import known_but_unread

LEGEND = re.compile(r"\s*(NIC )?Legend:?", re.I)
LEGEND_NIC = re.compile(r"\s*(NIC\d+)\s*:\s*(\S+)\s*$")
DEVICE = re.compile(r"(GPU\d+|NIC\d+|MIG[\w./-]*|[A-Za-z][\w.-]*[_-]?\d+)$")
GPUS = ("GPU", "MIG")
NUMBERED = re.compile(r"GPU\d+|NIC\d+")
GLUED_LABEL = re.compile(r"^(\s*(?:GPU|NIC)\d+)(?=(?:X|NV\d|PIX|PSB|PXB|PHB|NODE|SYS|SOC))")
GLUED_CODES = re.compile(rf"(?:{CODE.pattern})+")
PIECE = re.compile(r"[A-Z/]{1,4}\d{0,2}|[\d,-]+")  # what a wrapped row continues with: no prose looks so
CPU_LIST = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*$")
HEADING = re.compile(r"^\W*([A-Za-z][\w.-]*)\W*$")
PROMPT = re.compile(r"^\[?[\w.-]+@([\w.-]+)[:\s].*[$#]")
TITLES = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
SHORT_NUMA = re.compile(r"(CPU Affinity) NUMA$", re.I)  # as people shorten the title of the last column
TAB = 8  # columns; " X " begins one later than other codes
MAX_DEVICES = 256


@dataclass(frozen=True, slots=True)
class Matrix:
    """The devices of the header in order, the codes of the pairs that are said, and what stands to their right."""

    names: tuple[str, ...]
    codes: dict[tuple[int, int], str]
    host: str = ""  # named before the matrix
    cpu_affinity: dict[str, str] = field(default_factory=dict)
    near_numa: dict[str, str] = field(default_factory=dict)  # as the column says it: one node, or a list
    numa: dict[str, int] = field(default_factory=dict)
    memory_numa: dict[str, int] = field(default_factory=dict)
    nic_names: dict[str, str] = field(default_factory=dict)
    facts: GpuEvidence = field(default_factory=GpuEvidence)  # of single GPUs, in the same file or given with it
    warnings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Row:
    label: str
    number: int
    pieces: list[str]


def looks_like_matrix(text: str) -> bool:
    """Return whether a text holds a header of GPU columns and a row with an X."""
    plain = "\n".join(line.text for line in plain_lines(ANSI.sub("", text[:200_000])))
    return bool(re.search(r"^[ \t|]*GPU\d+[ \t].*\bX\b", plain, re.M) or re.search(r"^\s*GPU0\b(?! *:)", plain, re.M))


def holds_codes(text: str) -> bool:
    """Return whether a text holds a row of a GPU with a code of a link."""
    plain = "\n".join(line.text for line in plain_lines(ANSI.sub("", text[:200_000])))
    return bool(re.search(r"^[ \t|]*GPU\d+[ \t].*\b(?:NV\d+|PIX|PXB|PHB|NODE|SYS|SOC)\b", plain, re.M))


def parse_matrices(text: str, where: str, facts: GpuEvidence | None = None) -> list[Matrix]:
    """Return every matrix that `text` holds, one a node; InputError names the line and what was expected.

    `facts` are used where the text itself says nothing of single GPUs.
    """
    lines = plain_lines(text)
    found: list[Matrix] = []
    last = max((line.number for line in lines if re.search(r"[A-Za-z0-9]", line.text)), default=0)
    for host in dict.fromkeys(line.host for line in lines):
        mine = [line for line in lines if line.host == host]
        plain = [line.text for line in mine]
        here = evidence(plain)
        here = here if here.gpus or facts is None else facts
        for heading, part, nics in _parts(mine):
            matrix = Matrix((), {}, host=host or heading, nic_names=nics, facts=here)
            found.append(_parse(part, matrix, where, last))
    if not found:
        said = known_but_unread(text) or "no header with GPU columns found, expected the output of nvidia-smi topo -m"
        raise InputError(f"{where}: {said}")
    return found


def _parts(lines: Sequence[PlainLine]) -> Iterator[tuple[str, list[PlainLine], dict[str, str]]]:
    """Yield the host's name, the lines and the legend of NICs of every matrix: from a header to the next."""
    starts = [i for i, line in enumerate(lines) if _is_header(line.text)]
    # a header that a terminal wrapped begins with GPUs again; rows lie between two matrices
    starts = [s for n, s in enumerate(starts) if not n or any(_is_row(k.text) for k in lines[starts[n - 1] : s])]
    legends = {m.group(1): m.group(2) for line in lines if (m := LEGEND_NIC.match(line.text))}
    for start, stop in itertools.pairwise([*starts, len(lines)]):
        body = lines[start:stop]
        below = {m.group(1): m.group(2) for line in body if (m := LEGEND_NIC.match(line.text))}
        kept = [line for line in body if not is_listing(line.text) and not LINK.match(line.text)]
        end = next((i for i, line in enumerate(kept) if LEGEND.match(line.text)), len(kept))
        yield _heading(lines[:start]), kept[:end], below or (legends if len(starts) == 1 else {})


def _heading(above: Sequence[PlainLine]) -> str:
    """Return the host that the last written line above a matrix names: alone on the line, or in a prompt."""
    last = [line.text for line in above if line.text.strip()][-1:]
    for line in last:
        match = PROMPT.match(line) or HEADING.match(line)
        if match and any(c.isdigit() for c in match.group(1)):
            return match.group(1)
    return ""


def _parse(lines: Sequence[PlainLine], matrix: Matrix, where: str, last: int) -> Matrix:
    """Return what the lines of a matrix say; of a row in the `last` line of the text, the end may be cut off."""
    header, rows = _split(lines, where)
    names, titles = _header(header, [row.label for row in rows], f"{where}:{lines[0].number}")
    matrix = replace(matrix, names=tuple(names))
    by_label: dict[str, _Row] = {}
    for row in rows:
        if row.label not in names:
            raise InputError(f"{where}:{row.number}: {row.label!r}: expected a row of one of {', '.join(names)}")
        if row.label in by_label:
            raise InputError(f"{where}:{row.number}: a second row for {row.label}")
        by_label[row.label] = row
    cut = rows[-1] if rows and rows[-1].number == last and len(rows[-1].pieces) == 1 else None
    if cut and _may_be_missing(names, by_label, cut):
        del by_label[cut.label]  # as a row that is not there at all
    cells = {label: _cells(names, titles, row, where) for label, row in by_label.items()}
    if cut and cut.label in cells and _ends_in_cpus(cells, cut.label):
        cells[cut.label] = (cells[cut.label][0], {})
        matrix.warnings.append(f"{cut.label}: its CPUs are cut off: left out")
    missing = [name for name in names if name not in by_label]
    lacking = [name for name in missing if name.startswith(GPUS)]
    if lacking and not (cut and lacking == [cut.label]):
        shown = ", ".join(by_label) or "none"
        raise InputError(f"{where}: no row for {lacking[0]}: the matrix is truncated (rows: {shown})")
    if lacking:
        matrix.warnings.append(
            f"the row of {lacking[0]} is cut off: its links to GPUs are those of the other rows, its CPUs, NUMA node "
            "and NICs are not known"
        )
    if missing := [name for name in missing if name not in lacking]:
        matrix.warnings.append(f"no row for {', '.join(missing)}: what lies between these NICs is not known")
    for i, name in enumerate(names):
        if name in cells:
            codes, extra = cells[name]
            for j, code in enumerate(codes):
                _store(matrix, (i, j), code, f"{where}:{by_label[name].number}")
            _store_extra(matrix, name, extra, f"{where}:{by_label[name].number}")
    if absent := _absent(names):
        matrix.warnings.append(
            f"no {', '.join(absent)} between the others: left out of the matrix, or a GPU that the driver lost"
        )
    _place(matrix)
    return matrix


def _absent(names: Sequence[str]) -> list[str]:
    """Return the GPUs whose numbers lie between those of others and stand nowhere."""
    numbers = {int(name[3:]) for name in names if re.fullmatch(r"GPU\d{1,4}", name)}
    return [
        f"GPU{number}" for number in range(min(numbers, default=0), max(numbers, default=0)) if number not in numbers
    ]


def _split(lines: Sequence[PlainLine], where: str) -> tuple[list[str], list[_Row]]:
    """Return the lines of the header, and the rows with the pieces of wrapped ones; prose below ends the matrix."""
    header, rows = [lines[0].text], list[_Row]()
    for line in lines[1:]:
        text = GLUED_LABEL.sub(r"\1 ", line.text)
        tokens = text.split()
        if _is_row(text):
            rows.append(_Row(tokens[0], line.number, [text]))
        elif not rows:
            if tokens:
                header.append(text)
        elif not tokens:
            continue
        elif all(PIECE.fullmatch(token) for token in tokens) and not DEVICE.match(tokens[0]):
            rows[-1].pieces.append(text)
        elif DEVICE.match(tokens[0]) and tokens[0].startswith(("GPU", "NIC")) and len(tokens) < 3:
            rows.append(_Row(tokens[0], line.number, [text]))  # broken off, or continued on the next line
        elif len(tokens) > 2 and all(map(CODE.fullmatch, tokens[1:3])):
            rows.append(_Row(tokens[0], line.number, [text]))  # refused by its name
        else:
            break
    return header, rows


def _is_header(text: str) -> bool:
    tokens = text.split()
    if _is_row(text):
        return False
    # columns of NICs may stand before those of GPUs
    first = next((i for i, token in enumerate(tokens) if re.fullmatch(r"(GPU\d+)+", token)), None)
    if first is None or not all(map(DEVICE.match, tokens[:first])):
        return False
    return _names_more(tokens[first:])


def _names_more(tokens: Sequence[str]) -> bool:
    """Return whether a line may go on as a header after its first GPU: a device, a column's title, or nothing."""
    return (
        len(tokens) == 1 or NUMBERED.match(tokens[1]) is not None or bool(DEVICE.match(tokens[1])) or tokens[1] == "CPU"
    )


def _is_row(text: str) -> bool:
    tokens = GLUED_LABEL.sub(r"\1 ", text).split()
    return len(tokens) > 1 and DEVICE.match(tokens[0]) is not None and GLUED_CODES.fullmatch(tokens[1]) is not None


def _header(pieces: Sequence[str], labels: Sequence[str], where: str) -> tuple[list[str], list[str]]:
    """Return device names and column titles; names that a terminal cut in two or ran together are set right."""
    plain = SHORT_NUMA.sub(r"\1 NUMA Affinity", re.sub(r"\s+", " ", " ".join(pieces)).strip())
    found = [title for title in TITLES if title.lower() in plain.lower()]
    first = min((plain.lower().index(title.lower()) for title in found), default=len(plain))
    tokens = plain[:first].split()
    if len(tokens) > MAX_DEVICES:
        raise InputError(f"{where}: {len(tokens)} devices in one matrix, expected {MAX_DEVICES} at most")
    names = [name for token in tokens for name in _unglued(token, set(labels))]
    for name in names:
        if not DEVICE.match(name):
            raise InputError(f"{where}: {name!r}: expected a device such as GPU0, NIC0 or mlx5_0 in the header")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{where}: {twice} stands twice in the header")
    return names, found


def _unglued(token: str, labels: set[str]) -> list[str]:
    """Return the devices that a piece of the header names: more than one where the gap between them was lost."""
    if token in labels:
        return [token]
    for cut in range(1, len(token)):
        if token[:cut] in labels and (rest := _unglued(token[cut:], labels))[0] in labels:
            return [token[:cut], *rest]
    numbered = NUMBERED.findall(token)
    return numbered if len(numbered) > 1 and "".join(numbered) == token else [token]


def _cells(names: Sequence[str], titles: Sequence[str], row: _Row, where: str) -> tuple[list[str], dict[str, str]]:
    """Return the codes of a row and its right-hand columns by title."""
    count = len(names)
    for joined in dict.fromkeys((" ".join(row.pieces), "".join(row.pieces))):
        tokens = [part for token in joined.split() for part in _codes(token)]
        codes, rest = tokens[1 : count + 1], tokens[count + 1 :]
        if len(codes) == count and all(CODE.fullmatch(code) for code in codes) and len(rest) <= len(titles):
            if not all(token == "N/A" or CPU_LIST.match(token) for token in rest):
                continue
            return codes, _columns(joined, rest, titles, count)
    every = _every_cell(row)
    bad = next((c for c in every[:count] if not CODE.fullmatch(c)), None)
    what = f"{bad!r} is no link code" if bad else f"{len(every)} cells"
    expected = f"{count} codes such as NV12, PIX or SYS and then {len(titles)} columns at most"
    raise InputError(f"{where}:{row.number}: row {row.label}: {what}; expected {expected}")


def _every_cell(row: _Row) -> list[str]:
    return [part for token in " ".join(row.pieces).split()[1:] for part in _codes(token)]


def _codes_of(row: _Row, count: int) -> list[str]:
    """Return as many cells of a row as there are devices, "" for what is not there."""
    return [*_every_cell(row), *[""] * count][:count]


def _may_be_missing(names: Sequence[str], by_label: Mapping[str, _Row], cut: _Row) -> bool:
    """Return whether the row at the end of the text lacks codes that the matrix can do without.

    A NIC's, or the last GPU's below the rows of all the others: what lies between it and them their rows say.
    """
    if all(map(CODE.fullmatch, _codes_of(cut, len(names)))):
        return False
    gpus = [name for name in names if name.startswith(GPUS)]
    is_last = len(gpus) > 1 and cut.label == gpus[-1] and all(name in by_label for name in gpus)
    return is_last or not cut.label.startswith(GPUS)


def _ends_in_cpus(cells: Mapping[str, tuple[list[str], dict[str, str]]], label: str) -> bool:
    """Return whether a row ends with the beginning of the list of CPUs of another one."""
    last, others = cells[label][1], [extra.get(TITLES[0], "") for other, (_, extra) in cells.items() if other != label]
    cpus = last.get(TITLES[0], "")
    return len(last) == 1 and bool(cpus) and any(cpus != full and full.startswith(cpus) for full in others)


def _codes(token: str) -> list[str]:
    """Return a cell, or the cells that ran together: codes are a closed set."""
    return CODE.findall(token) if GLUED_CODES.fullmatch(token) else [token]


def _columns(joined: str, rest: Sequence[str], titles: Sequence[str], count: int) -> dict[str, str]:
    """Return title to cell. With tabs an empty cell keeps its place; with blanks the cells are taken in order.

    Blanks in place of tabs still show that the first cell, the CPUs, is empty.
    """
    if "\t" in joined:
        cells = [cell.strip() for cell in joined.strip().split("\t")]
        right = cells[count + 1 :]
        if [cell for cell in right if cell] == list(rest) and right:
            # two tabs stand before the last column
            last = next((cell for cell in right[2:] if cell), "")
            named = dict(zip(titles, [*right[:2], last], strict=False))
            return {title: cell for title, cell in named.items() if cell}
    empty = 1 if len(rest) < len(titles) and _skips_cell(joined, count) else 0
    return dict(zip(titles[empty:], rest, strict=False))


def _skips_cell(row: str, count: int) -> bool:
    """Return whether the cell after the codes is empty in a row whose tabs became blanks: a gap of two tab stops."""
    starts = [match.start() for match in re.finditer(r"\S+", row)][: count + 2]
    gaps = [right - left for left, right in itertools.pairwise(starts)]
    tabbed = len(gaps) > count and all(TAB - 1 <= gap <= TAB + 1 for gap in gaps[:count])
    return tabbed and 2 * TAB - 1 <= gaps[count] <= 2 * TAB


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
    cpus, numa, memory = (extra.get(title, "N/A") for title in TITLES)
    if cpus != "N/A":
        for part in cpus.split(","):
            low, _, high = part.partition("-")
            if max(len(low), len(high)) > 9 or (high and not (low.isdecimal() and high.isdecimal())):
                raise InputError(f"{where}: CPU affinity {cpus[:40]}: expected numbers of CPUs such as 0-7,16-23")
            if high and int(low) > int(high):
                raise InputError(f"{where}: CPU affinity {cpus}: {part} runs backwards")
        matrix.cpu_affinity[name] = cpus
    if re.match(r"\d{1,6}\b", numa):
        matrix.near_numa[name] = numa
    if memory.isdecimal() and len(memory) < 7:
        matrix.memory_numa[name] = int(memory)


def _place(matrix: Matrix) -> None:
    """Set the NUMA nodes of the devices: a list names the node with the CPUs first, then nodes of memory alone.

    Nodes in a row ("0-1") are of CPUs, as a socket has them that is cut in several: which of them is nearest is open.
    Where the nodes that are the GPUs' memory are named, what lies below them are those of CPUs.
    """
    memory = min(matrix.memory_numa.values(), default=None)
    for name, nodes in matrix.near_numa.items():
        first, _, last = nodes.partition(",")[0].partition("-")
        if not last or (memory is not None and int(first) + 1 >= memory):
            matrix.numa[name] = int(first)
    wide: dict[str, list[str]] = {}
    for name, nodes in matrix.near_numa.items():
        if name not in matrix.numa:
            wide.setdefault(nodes, []).append(name)
    matrix.warnings.extend(
        f"{', '.join(names)}: near several NUMA nodes at once ({nodes}): which of them is nearest is not known"
        for nodes, names in wide.items()
    )
