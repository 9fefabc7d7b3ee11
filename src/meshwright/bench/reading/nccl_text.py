"""The output of nccl-tests and rccl-tests, and our own, as people paste it: a table for each run, type and operator."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise

from msgspec.structs import replace

from ...errors import InputError
from ...units import counted
from ..judgement.settings import settings_in
from ..table import Row
from .columns import WIDTHS, CutRow, Header, Parsed, looks_like_row, parse_header, parse_row, parse_units
from .cut_rows import left_out
from .identify import Named, TableIdentity, identify, named_in, ranks_of_command
from .listed_devices import ListedDevice, shared_gpus
from .nccl_log import failure_in, logged_path
from .prefixes import clean_lines
from .tables import MOST_ROWS, ReadTable, unrepeatable
from .text import instances_in

_DEVICE = re.compile(
    r"(?:^|[\s#>])Rank\s+(?P<rank>\d{1,6})\s+(?:Group\s+(?P<group>\d+)\s+)?(?:Pid\s+(?P<pid>\d{1,10})\s+)?on\s+(?P<host>\S+)\s+"
    r"device\s+(?P<number>\d{1,6})\s+\[(?P<bus>[^\]]*)\]\s*(?P<device>.*?)\s*$"
)
_RANK = re.compile(r"#?\s*Rank\s+(?P<rank>\d{1,6})\b")
_BACKEND = re.compile(r"#\s*(?:\w+:\s*)?(gloo|meshwright|nccl|mpi), ranks (\d{1,6})\b")
_ALIKE = 0.9  # of the fastest
_OURS = re.compile(r"#?\s*ranks?[:= ]+(\d{1,6})\s*$")
_SPLIT = re.compile(r"\bNCCL_TESTS_SPLIT(?:_MASK)?=(?!\"?(?:AND )?(?:0x)?0\b)")  # ranks are of groups at once
_UNCHECKED = re.compile(r"\bvalidation: 0\b")
_BOUNDS = re.compile(r"Out of bounds values\s*:\s*(\d+)")


@dataclass
class _Run:
    """The text before and around the rows of one table."""

    named: Named | None = None
    commanded: int | None = None
    backend: str = "nccl"
    said_ranks: int | None = None
    devices: dict[int, ListedDevice] = field(default_factory=dict)
    starts: int = 0  # processes that listed themselves as rank 0
    firsts: set[str] = field(default_factory=set)  # the hosts of those
    header: Header | None = None
    rows: list[Parsed] = field(default_factory=list)
    footer: int | None = None  # results out of bounds by its footer, None before it is seen
    unchecked: bool = False  # the command left the check of results out
    heading: Named | None = None  # a name after its rows: that of the next table
    failure: str = ""  # that ended it before its footer, in its words
    notes: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)


def read_nccl_text(text: str, where: str) -> list[ReadTable]:
    """Return the tables of a text, [] where it holds none; InputError, naming the line, for a contradiction."""
    path = logged_path(text)
    return [replace(table, instances=instances_in(text), path=path) for table in _sides(text, where)]


def _sides(text: str, where: str) -> list[ReadTable]:
    """Return the tables of a text; of two that stand side by side the left one's first."""
    lines = clean_lines(text)
    halves = [line.split("|") for _, line in lines]
    if any(len(half) == 2 and all(map(looks_like_row, half)) for half in halves):
        sides: list[list[tuple[int, str]]] = [[], []]
        for (number, line), half in zip(lines, halves, strict=True):
            for side, part in zip(sides, half if len(half) == 2 else [line, line], strict=True):
                side.append((number, part))
        return _numbered([table for side in sides for table in _tables(side, where)])
    return _numbered(_tables(lines, where))


def _numbered(tables: Sequence[ReadTable]) -> list[ReadTable]:
    if len(tables) < 2:
        return list(tables)
    return [
        replace(
            t, name=f"table {i}" + (f", {t.collective}" if t.collective else "") + (f" of {t.ranks}" if t.ranks else "")
        )
        for i, t in enumerate(tables, start=1)
    ]


def _tables(lines: Sequence[tuple[int, str]], where: str) -> list[ReadTable]:
    runs = _runs(lines, where)
    return [table for run in runs for table in _split(run, where)]


def _runs(lines: Sequence[tuple[int, str]], where: str) -> list[_Run]:
    runs: list[_Run] = []
    run = _Run()
    last = max((number for number, line in lines if looks_like_row(line)), default=0)
    for number, line in lines:
        if looks_like_row(line):
            if run.footer is not None:  # rows after a footer, without a header of their own
                runs.append(run)
                run = _Run(
                    run.named, run.commanded, run.backend, run.said_ranks, run.devices, run.starts, header=run.header
                )
                run.settings, run.firsts = runs[-1].settings, runs[-1].firsts
                run.unchecked = runs[-1].unchecked
            _take_row(run, line, where, number, last)
            continue
        if run.rows and _begins_run(run, line):
            runs.append(run)
            run = _Run(run.heading or run.named, run.commanded, run.backend, run.said_ranks, header=run.header)
            carried = parse_header(line) is not None
            run.settings = dict(runs[-1].settings) if carried else {}
            run.unchecked = carried and runs[-1].unchecked
            if carried:  # the list of devices is above the headers of all tables that one run prints
                run.devices, run.starts, run.firsts = dict(runs[-1].devices), runs[-1].starts, set(runs[-1].firsts)
        _take_line(run, line, where, number)
    runs.append(run)
    return [run for run in runs if run.rows or run.notes]


def without_rows(text: str, where: str) -> str:
    """Return what a text of nccl-tests shows that has their heading and no whole row, "" for other texts."""
    run = _Run()
    for number, line in clean_lines(text):
        if not looks_like_row(line):
            _take_line(run, line, where, number)
    if run.header is None:
        return ""
    found = "the heading of nccl-tests stands there, and no whole row below it"
    if run.starts < 2:
        return found
    return (
        f"{found}; {counted(run.starts, 'process')} are each rank 0 of 1: if they were started together, nccl-tests "
        "was built without MPI=1"
    )


def _begins_run(run: _Run, line: str) -> bool:
    """Return whether a line belongs to the next run and not to the one whose rows were read."""
    named = named_in(line)
    return (
        parse_header(line) is not None
        or "nThread" in line
        or "Using devices" in line
        or "test starting:" in line
        or (_DEVICE.search(line) is not None)
        or (_BACKEND.match(line) is not None)
        or (run.footer is not None and named is not None and "concluded" not in line)
        or (named is not None and named.sure and "concluded" not in line)
    )


def _take_line(run: _Run, line: str, where: str, number: int) -> None:
    header = parse_header(line)
    if header is not None:
        if header.is_cpu_time:
            raise InputError(
                f"{where}:{number}: cputime is what the host spends on launching, not how long a transfer takes; "
                "expected a run without -C 1"
            )
        run.header = header
        return
    unit = parse_units(line)
    if unit is not None and run.header is not None:
        run.header = Header(run.header.lead, run.header.middle, run.header.tail, unit)
        return
    found = _BOUNDS.search(line)
    if found or "Avg bus bandwidth" in line:
        run.footer = (run.footer or 0) + (int(found[1]) if found else 0)
        return
    if run.rows and run.footer is None and not run.failure:
        run.failure = failure_in(line)
    _take_device(run, line)
    own = _BACKEND.match(line)
    if own:
        run.backend, run.said_ranks = own[1], int(own[2]) or None
    said = _OURS.match(line)
    if said:
        run.said_ranks = int(said[1]) or None
    if "concluded" in line:
        return
    named = named_in(line)
    if named is not None and run.rows and not named.sure:
        run.heading = named
    elif named is not None and (named.sure or run.named is None or not run.named.sure):
        run.named = named
    run.commanded = (None if _SPLIT.search(line) else ranks_of_command(line)) or run.commanded
    run.settings |= settings_in(line)
    run.unchecked = run.unchecked or _UNCHECKED.search(line) is not None


def _take_device(run: _Run, line: str) -> None:
    device = _DEVICE.search(line)
    rank = device or (_RANK.match(line) if line.lstrip().startswith("#") else None)
    if rank is None:
        return
    number = int(rank["rank"])
    run.starts += number == 0
    if device and number == 0 and not int(device["group"] or 0):
        run.firsts.add(device["host"])
    if device:
        group, place, bus = int(device["group"] or 0), int(device["number"]), device["bus"].strip()
        run.devices[number] = ListedDevice(device["host"], device["device"], group, place, bus, int(device["pid"] or 0))
    else:
        run.devices[number] = ListedDevice("", "", 0, number, "", 0)


def _take_row(run: _Run, line: str, where: str, number: int, last: int) -> None:
    try:
        row = parse_row(line, run.header, where, number)
    except CutRow as cut:
        if number != last:
            raise InputError(str(cut)) from None
        run.notes.append(left_out(number))
        return
    run.rows.append(row)


def _split(run: _Run, where: str) -> list[ReadTable]:
    """Return the tables of a run: one for each element type, operator, root, leading column and repetition."""
    groups: dict[tuple[object, ...], list[Parsed]] = {}
    repetition = 0
    for row in run.rows:
        has_column = run.header is not None and bool(run.header.lead)
        lead = row.lead if has_column or (run.header is None and row.lead.isdecimal()) else ""
        key = (row.type, row.redop, row.root, lead)
        same = groups.get((*key, repetition), [])
        if len(same) >= MOST_ROWS:
            raise InputError(f"{where}:{row.line}: expected at most {MOST_ROWS:,} rows in a table")
        if len({r.bytes for r in same}) > 1 and row.bytes == same[0].bytes:
            repetition += 1
        groups.setdefault((*key, repetition), []).append(row)
    if not any(_alone(run, rows) for rows in groups.values()):  # else that each printed its own is said
        _refuse_mixed(groups, run.starts, where)
    groups = _of_one_size(groups)
    # a leading column counts nodes or processes: the ranks of the header are not those of its tables
    leads = len({key[3] for key in groups}) > 1
    tables = [_table(run, rows, where, leads) for rows in groups.values()]
    return _on_nodes(tables, [str(key[3]) for key in groups]) if leads else tables


def _of_one_size(groups: dict[tuple[object, ...], list[Parsed]]) -> dict[tuple[object, ...], list[Parsed]]:
    """Return types and operators of one size as one table, where all are about as fast: `-d all -o all` of one size.

    One that is slower keeps all apart, so that it has a verdict of its own.
    """
    rows = [row for group in groups.values() for row in group]
    rates = [row.bytes / row.time_s for row in rows if row.time_s]
    alike = len(rates) == len(rows) and bool(rates) and min(rates) >= _ALIKE * max(rates)
    is_one = alike and len({row.bytes for row in rows}) == 1 and len({key[2:] for key in groups}) == 1
    return {("", "", *next(iter(groups))[2:]): rows} if is_one and len(groups) > 1 else groups


def _refuse_mixed(groups: Mapping[tuple[object, ...], Sequence[Parsed]], starts: int, where: str) -> None:
    """Raise InputError where sizes that stand twice fall back and then go on: the rows of two runs lie in one another.

    A run prints its sizes in order; nobody can tell which row of two at once is whose, or what one cost the other.
    Where two began before these rows (`starts`), a size that stands twice in a sweep is enough.
    """
    sizes: dict[tuple[object, ...], Counter[int]] = defaultdict(Counter)
    for key, rows in groups.items():
        twice = next((b for a, b in pairwise(rows) if starts > 1 and a.bytes == b.bytes), None)
        if twice is not None:
            raise InputError(
                f"{where}:{twice.line}: {twice.bytes} B stands twice below the lists of {starts} runs: they are "
                "written into one another; expected one run after the other"
            )
        sizes[key[:-1]].update(size for size, _ in groupby(row.bytes for row in rows))
    for key, rows in groups.items():
        largest, back = 0, None
        for row in rows:
            if back is not None and row.bytes > largest and max(sizes[key[:-1]].values()) > 1:
                raise InputError(
                    f"{where}:{back.line}: the sizes fall back to {back.bytes} B and go on at line {row.line}: two "
                    "runs are written into one another; expected one run after the other"
                )
            back = row if row.bytes < largest else back
            largest = max(largest, row.bytes)


def _on_nodes(tables: Sequence[ReadTable], leads: Sequence[str]) -> list[ReadTable]:
    """Return the tables with their hosts where the leading column counts nodes: all have as many ranks of each."""
    counts = [int(lead) if lead.isdecimal() and len(lead) < 7 else 0 for lead in leads]
    sizes = {t.ranks // n if n and t.ranks and t.ranks % n == 0 else 0 for t, n in zip(tables, counts, strict=True)}
    each = sizes.pop()
    if sizes or each < 2:
        return list(tables)
    return [replace(t, hosts=tuple(f"node {rank // each}" for rank in range(t.ranks or 0))) for t in tables]


def _table(run: _Run, rows: Sequence[Parsed], where: str, has_leads: bool) -> ReadTable:
    listed, notes = _listed(run)
    listed = None if has_leads else listed
    known = identify(rows, run.named, listed or run.said_ranks, run.commanded, where)
    alone = _alone(run, rows)
    if known.ranks == 1 or listed == 1:
        alone = run.starts if run.starts > 1 else run.commanded or 1
        known = TableIdentity(collective=known.collective or _only(run), ranks=1)
    order = _first_group(run, listed)
    return ReadTable(
        name="table",
        tool="nccl-tests",
        collective=known.collective,
        ranks=known.ranks,
        ranks_range=known.ranks_range,
        candidates=known.candidates,
        rows=tuple(table_row(row, known, run.backend) for row in rows if row.bytes),
        hosts=tuple(run.devices[rank].host for rank in order) or _some_hosts(run, known.ranks),
        devices=tuple(run.devices[rank].model for rank in order) or _some_devices(run, known.ranks),
        wrong=_wrong(run, rows),
        alone=alone,
        failed=unrepeatable(row.different_bits for row in rows),
        doubled=shared_gpus(run.devices) if not alone else (),
        settings=tuple(run.settings.items()),
        notes=(*run.notes, *notes, *known.notes, *_unchecked(run, rows), *_ended_early(run, rows)),
    )


def _alone(run: _Run, rows: Sequence[Parsed]) -> int:
    """Return the processes that each printed a table of its own between these rows, 0 where one run did."""
    apart = len(run.firsts) > 1 or set(run.devices) == {0} or len({row.bytes for row in rows}) * 2 <= len(rows)
    return run.starts if run.starts > 1 and apart else 0


def _wrong(run: _Run, rows: Sequence[Parsed]) -> int:
    """Return the wrong results of a table: by its rows, and by the footer where no row of the run has one."""
    own = max((row.wrong or 0 for row in rows), default=0)
    elsewhere = any(row.wrong for row in run.rows) and all(row.wrong is not None for row in rows)
    return own if elsewhere and not own else max(run.footer or 0, own)


def _ended_early(run: _Run, rows: Sequence[Parsed]) -> list[str]:
    """Return that a run failed behind the last row of a table, [] where it did not."""
    if not run.failure or rows[-1] is not run.rows[-1]:
        return []
    return [f"the run failed after its row of {rows[-1].bytes} B ({run.failure}): what was to follow is missing"]


def _unchecked(run: _Run, rows: Sequence[Parsed]) -> list[str]:
    """Return that nothing says whether results were right: validation was off, or its column has no figure."""
    has_column = run.header is not None and "wrong" in run.header.tail
    if any(row.wrong is not None for row in rows) or not (run.unchecked or has_column):
        return []
    return ["results were not checked (validation was off, or #wrong has no figure): whether they are right is unknown"]


def _only(run: _Run) -> str | None:
    """Return the collective of a single process: its columns say no more than operator and root."""
    row = run.rows[-1]
    if run.named is not None:
        return run.named.collective
    return "all_reduce" if row.redop != "none" and (row.root is None or row.root < 0) else None


def _listed(run: _Run) -> tuple[int | None, list[str]]:
    """Return the ranks of one communicator by the list of devices, None without a list."""
    if not run.devices:
        return None, []
    groups = {each.group for each in run.devices.values()}
    sizes = [sum(group == each.group for each in run.devices.values()) for group in groups]
    if len(sizes) > 1 and len(set(sizes)) == 1:
        return sizes[0], [f"{len(sizes)} groups of {sizes[0]} ranks ran at once"]
    return max(run.devices) + 1, []


def _first_group(run: _Run, listed: int | None) -> list[int]:
    """Return the ranks of the first communicator where its list is whole; of several at once each has as many."""
    first = min((device.group for device in run.devices.values()), default=0)
    ranks = sorted(rank for rank, device in run.devices.items() if device.group == first)
    return ranks if listed == len(ranks) else []


def _some_hosts(run: _Run, ranks: int | None) -> tuple[str, ...]:
    """Return a name for the host of each rank where only some are listed: their numbers on the host tell.

    Several sizes of a host may fit. One is shown where all its devices are listed, or two ranks on either side of a
    border between hosts; else nothing is known.
    """
    if not run.devices or not ranks:
        return ()
    places = {rank: device.number for rank, device in run.devices.items()}
    most = max(places.values()) + 1
    fits = [n for n in range(most, ranks + 1) if ranks % n == 0 and all((r - d) % n == 0 for r, d in places.items())]
    if not fits:
        return ()
    each = fits[0]
    is_whole = each > 1 and set(places.values()) == set(range(each))
    has_border = any(rank - 1 in places for rank in places if rank and rank % each == 0)
    if len(fits) > 1 and not is_whole and not has_border:
        return ()
    return tuple(f"node {rank // each}" for rank in range(ranks))


def _some_devices(run: _Run, ranks: int | None) -> tuple[str, ...]:
    models = {device.model for device in run.devices.values() if device.model}
    return tuple(models) * (ranks or 0) if len(models) == 1 else ()


def table_row(row: Parsed, known: TableIdentity, backend: str) -> Row:
    """Return a row of a table of which collective and ranks are known as far as they are."""
    busbw = row.busbw if row.busbw and row.busbw not in {"N/A", "-"} else None
    return Row(
        collective=known.collective,
        backend=backend,
        ranks=known.ranks,
        bytes=row.bytes,
        time_s=row.time_s,
        dtype=row.type,
        element_bytes=WIDTHS[row.type],
        redop=row.redop,
        wrong=row.wrong,
        stated_busbw_bytes_per_s=float(busbw) * 1e9 if busbw else None,
    )
