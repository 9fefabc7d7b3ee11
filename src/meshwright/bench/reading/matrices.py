"""Matrices of pairs: nvbandwidth, p2pBandwidthLatencyTest of the CUDA samples, rocm_bandwidth_test.

Each is a title, a line of device numbers, then a row for each device; N/A where nothing was measured.
"""

import re
from collections.abc import Sequence, Set

from msgspec.structs import replace

from ...errors import InputError
from ...units import counted
from .cut_rows import lacks_decimals, last_line, left_out
from .prefixes import without_prefix
from .tables import Rate, ReadTable

_QUOTED = re.compile(r"^(?:>\s?)+")
_TITLES = (
    # a title may stand at the end of somebody's sentence
    (re.compile(r"\bmemcpy .*bandwidth \(GB/s\)|^\w.*-> .*bandwidth \(GB/s\)", re.I), "nvbandwidth"),
    (
        re.compile(r"\b(Uni|Bi)directional P2P=(En|Dis)abled Bandwidth.*Matrix \(GB/s\)", re.I),
        "p2pBandwidthLatencyTest",
    ),
    (re.compile(r"\b(Uni|Bi?)directional copy peak bandwidth GB/s", re.I), "rocm_bandwidth_test"),
)
_HEAD = re.compile(r"^(?:D[\\/]D)?\s*\d{1,6}(?:\s+\d{1,6})*$", re.I)
_ENDS = re.compile(r"\b(CPU|GPU)\(row\).*?\b(CPU|GPU)\(column\)")
# as rocm_bandwidth_test lists devices: a GPU has an id or a place on the bus behind its name, a CPU has neither
_DEVICE = re.compile(r"\bDevice:\s*(\d+),\s*(\S.*?)\s*$")
# as the CUDA samples and nvbandwidth list theirs: "Device: 0, NAME, pciBusID: 1b", "Device 0: NAME (00000000:1b:00)",
# of several hosts "Process 0 (HOST): device 0: NAME (00000000:1b:00)"
_NAMED = re.compile(r"\b[Dd]evice(?:: \d+,| \d+:) (\w[^,(]*?),? (?:pciBusID|\()")
_LOCAL = "device_local_copy"  # of nvbandwidth: what a GPU copies within its own memory
_ONE_BY_ONE = re.compile(r"(?:host_to_device|device_to_host)_memcpy_")
_PEERS = re.compile(r"P2P=Enabled|\bGPU\(row\) .*\bGPU\(column\)", re.I)
_GPU = re.compile(r"GPU-|,\s*[0-9a-f]{2}:[0-9a-f]{1,2}\.[0-7]$|Radeon|Instinct|Vega|Arcturus|Aldebaran|gfx\d", re.I)
_DAMAGED = re.compile(r"Invalid value when checking the (?:pattern|buffer).*")  # what nvbandwidth prints and ends
_STAGED = "it is without peer access: each copy passes through the host's memory, over two links"
_WAIVED = re.compile(r"^Waiving (\w+)|^Waived\b")  # newer versions print the second below "Running NAME."
_NO_PEER = re.compile(r"^Device=(\d{1,6}) CANNOT Access Peer Device=(\d{1,6})\s*$")
_CONNECTIVITY = "P2P Connectivity Matrix"
_ANSWERS = re.compile(r"\d{1,6}(?:\s+[01])+$")  # of one device: whether it reaches each of the others
_OTHER = re.compile(r"Matrix|Inter-Device|Latency|^Running |^SUM |^D[\\/]D", re.I)


def read_matrices(text: str, where: str) -> list[ReadTable]:
    """Return a table for each matrix of bandwidths, [] where there is none; a cut last row is said and left out."""
    tables: list[ReadTable] = []
    title, tool, running = "", "", ""
    columns: list[str] | None = None
    rates: list[Rate] = []
    cpus: set[str] = set()
    devices: list[str] = []

    def close() -> None:
        nonlocal columns, rates, title
        if rates:
            found = _table(title, tool, running, columns or (), rates, devices)
            tables.append(replace(found, notes=(*found.notes, *_copied_by_host(title, apart))))
        columns, rates = None, []

    lines = text.splitlines()
    apart = _without_access(lines)
    last = last_line(lines)
    cut = ""
    for number, line in enumerate(lines, start=1):
        words = _QUOTED.sub("", without_prefix(line)).strip()
        found = next(((match, name) for pattern, name in _TITLES if (match := pattern.search(words))), None)
        if found is not None:
            close()
            cpus = cpus if found[1] == "rocm_bandwidth_test" else set()
            title, tool = words[found[0].start() :].rstrip(":"), found[1]
        elif named := _NAMED.search(line):
            devices.append(named[1])
        elif device := _DEVICE.search(line):
            if not _GPU.search(device[2]):
                cpus.add(device[1])
        elif (damaged := _DAMAGED.search(words)) and running:
            close()
            tables.append(damaged_table(running, damaged[0]))
        elif words.startswith("Running "):
            close()
            title, running = "", words.removeprefix("Running ").rstrip(".")
        elif title and columns is None and _HEAD.match(words):
            columns = re.sub(r"^D[\\/]D", "", words, flags=re.I).split()
        elif title and columns is not None and re.match(r"^\d+\s", words):
            cells = words.split()[1:]
            if number == last and (
                len(cells) < len(columns) or lacks_decimals(cells[-1], [[cell] for cell in cells[:-1]])
            ):
                cut = f"{title}: {left_out(number)}"
            else:
                rates += _row(words, columns, title, cpus, f"{where}:{number}")
        elif title and _OTHER.search(words):
            close()
            title = ""
    close()
    if cut and not tables:
        raise InputError(f"{where}:{last}: {title or 'a matrix'}: cut off in its first row: expected all of it")
    return _with_notes(tables, [cut, without_figures(_waived(lines))], where)


def _without_access(lines: Sequence[str]) -> list[tuple[int, int]]:
    """Return the devices that cannot reach each other's memory: by lines of their own, or by the 0 of a matrix."""
    apart: list[tuple[int, int]] = []
    columns: list[str] | None = None  # of the matrix of connectivity, [] below its title
    for line in lines:
        words = _QUOTED.sub("", without_prefix(line)).strip()
        row = words.split()
        if pair := _NO_PEER.match(words):
            apart.append((int(pair[1]), int(pair[2])))
        elif words.startswith(_CONNECTIVITY):
            columns = []
        elif columns is not None and not columns and _HEAD.match(words):
            columns = re.sub(r"^D[\\/]D", "", words, flags=re.I).split()
        elif columns and len(row) == len(columns) + 1 and _ANSWERS.match(words):
            ends = zip(columns, row[1:], strict=True)
            apart += [(int(row[0]), int(column)) for column, cell in ends if cell == "0" and column != row[0]]
        else:
            columns = None
    return apart


def _copied_by_host(title: str, apart: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    """Return that some pairs of a matrix with peer access have none, () for a matrix without it."""
    pairs = sorted({(min(pair), max(pair)) for pair in apart})
    if not pairs or "P2P=Enabled" not in title:
        return ()
    shown = ", ".join(f"{a}-{b}" for a, b in pairs[:4]) + (", ..." if len(pairs) > 4 else "")
    return (f"no peer access between {counted(len(pairs), 'pair')} ({shown}): their copies go through the host",)


def _with_notes(tables: Sequence[ReadTable], notes: Sequence[str], where: str) -> list[ReadTable]:
    """Return the tables with notes at the last; InputError where there are notes and no tables."""
    said = [note for note in notes if note]
    if said and not tables:
        raise InputError(f"{where}: nvbandwidth measured no bandwidth: {said[-1]}")
    return [*tables[:-1], replace(tables[-1], notes=(*tables[-1].notes, *said))] if said else list(tables)


def _waived(lines: Sequence[str]) -> list[str]:
    """Return the tests that nvbandwidth left out: by its line, or as the one that it had begun."""
    found, running = [], ""
    for line in lines:
        words = _QUOTED.sub("", without_prefix(line)).strip()
        if words.startswith("Running "):
            running = words.removeprefix("Running ").rstrip(".")
        elif (match := _WAIVED.match(words)) and (match[1] or running):
            found.append(match[1] or running)
    return found


def damage_in(words: str) -> str:
    """Return what nvbandwidth says of copied data that is not what was sent, "" where it says nothing of it."""
    found = _DAMAGED.search(words)
    return found[0] if found else ""


def damaged_table(name: str, words: str) -> ReadTable:
    """Return the table of a test whose data check failed: it has no rates."""
    return ReadTable(name=name, tool="nvbandwidth", wrong=1, notes=(words,))


def without_figures(waived: Sequence[str]) -> str:
    """Return which tests nvbandwidth left out, "" for none."""
    if not waived:
        return ""
    return f"it waived {', '.join(waived)}, as where GPUs cannot reach each other's memory or one is alone"


def matrix_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], running: str, devices: Sequence[str], at: str
) -> ReadTable:
    """Return the table of a matrix of nvbandwidth whose cells stand as text, row i that of device i."""
    rates = [
        rate for i, cells in enumerate(rows) for rate in _row(" ".join([str(i), *cells]), columns, title, set(), at)
    ]
    return _table(title, "nvbandwidth", running, columns, rates, devices)


def _table(
    title: str, tool: str, running: str, columns: Sequence[str], rates: Sequence[Rate], devices: Sequence[str]
) -> ReadTable:
    name = f"{running}, {title}" if running and tool == "nvbandwidth" else title
    return ReadTable(
        name=name, tool=tool, rates=tuple(rates), both_ways=_adds_both_ways(title, tool), devices=tuple(devices),
        peers=_PEERS.search(title) is not None, host=_is_host(title, tool, running),
        notes=_missing_rows(title, columns, rates),
        unjudged="what a GPU copies within its own memory, over no link" if running == _LOCAL else "",
        bounds=_STAGED if "P2P=Disabled" in title else "",
    )  # fmt: skip


def _is_host(title: str, tool: str, running: str) -> bool:
    """Whether a matrix of nvbandwidth is of copies between each GPU and its host, one way and one after the other."""
    kinds = _ENDS.search(title)
    alone = not running or _ONE_BY_ONE.match(running) is not None
    return tool == "nvbandwidth" and alone and kinds is not None and kinds[1] != kinds[2] and "<->" not in title


def _missing_rows(title: str, columns: Sequence[str], rates: Sequence[Rate]) -> tuple[str, ...]:
    """Return that a matrix of devices of one kind has fewer rows than columns, () where it has not, or is one row."""
    kinds, rows = _ENDS.search(title), len({rate.src for rate in rates})
    targets = {rate.dst for rate in rates}
    of_one_row = "(column)" in title and "(row)" not in title  # each device by itself
    if of_one_row or (kinds and kinds[1] != kinds[2]) or rows >= len(targets):
        return ()
    return (f"{rows} rows for {len(columns)} columns: it is cut off",)


def _adds_both_ways(title: str, tool: str) -> bool:
    """Whether a matrix adds both directions: nvbandwidth does so under Total only, else it times one of the two."""
    return (
        "total" in title.lower()
        if tool == "nvbandwidth"
        else title.lower().startswith(("bidirectional", "bdirectional"))
    )


def _row(words: str, columns: Sequence[str], title: str, cpus: Set[str], at: str) -> list[Rate]:
    source, *cells = words.split()
    source, *columns = (f"CPU{end}" if end in cpus else end for end in (source, *columns))
    kinds = _ENDS.search(title)
    if kinds and kinds[1] != kinds[2]:  # CPU 0 and GPU 0 are two devices
        source, columns = f"{kinds[1]}{source}", [f"{kinds[2]}{column}" for column in columns]
    if len(cells) != len(columns):
        raise InputError(f"{at}: expected {len(columns)} figures, one for each device, found {len(cells)}")
    result = []
    for target, cell in zip(columns, cells, strict=True):
        if cell.upper() == "N/A":
            continue
        try:
            rate = float(cell) * 1e9
        except ValueError:
            raise InputError(f"{at}: {cell!r}: expected GB/s or N/A") from None
        result.append(Rate(what=title, rate_bytes_per_s=rate, src=source, dst=target))
    return result
