"""The rows of a table of runs, as spreadsheets, reports and trackers of experiments write them.

Columns go by their names here or by what engines and people call them, with a unit behind a name, or in a line below
the header, where it is measured.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from ...errors import InputError
from ...units import counted
from .cells import FLAGS, is_empty
from .columns import MEASURED, WHOLE, unread
from .engine_cells import FSDP_SWITCHES, PRICED, ZERO1_SWITCHES, is_read
from .figures import NO_UNIT, with_plain_numbers
from .lines import read_lines
from .names import UNIT, column_of, in_company, is_column, is_derived, is_weak, leaf_of, letters, unit_of
from .told_flops import is_flops

# What is no switch in such a column: the ranks that share states. Megatron-Bridge's pages have both: FSDP = 1 "use
# FSDP", and in the archive FSDP > 0 "sharding group size = #GPUs / (TP x PP)" (docs.nvidia.com/nemo/megatron-bridge/
# latest/performance-summary.html and performance-summary-archive.html)
SHARDS = re.compile(r"[2-9]|[1-9]\d+")
FSDP_WORDS = {"on": "fsdp", "off": "without fsdp", "shard": "shard"}  # cells of zero_stage_fsdp
# InternLM/InternEvo:configs/_base_/models/internlm_7B.py: above 1 ranks that share states, 1 none, 0 or less all
ZERO1_WORDS = {"on": "zero1", "off": "none", "shard": "zero1 shard"}
DDP_SWITCHES = frozenset({"ddp", "useddp", "distributeddataparallel"})


OF_TRAINING = "loss (a number)"
MERGED = " (of cells that a spreadsheet merged only the first has the value)"


class TableLine(NamedTuple):
    """A line of a table: its cells by column, None where the line ends before, and why it cannot be read, if so.

    `ends`: the number of cells that it leaves out at its end, which it may. `merged`: that cells above may be its own.
    """

    cells: dict[str, str | None]
    fault: str
    ends: int = 0
    merged: str = ""


class RunTable(NamedTuple):
    """A table of runs as text: the names of its columns as they are read, and its lines.

    `header_line` is the line of the file that names the columns, `caption` the last text before it.
    """

    names: list[str]
    lines: list[TableLine]
    header_line: int = 1
    caption: str = ""
    said: tuple[str, ...] = ()  # the names as they are written
    beside: Mapping[str, str] = {}  # names that mean what they do by what stands beside them, and as which columns


def read_table(path: str | Path) -> RunTable:
    """Return the columns of a table and its lines; InputError where it is none, or two columns are one."""
    found = read_lines(path, is_column)
    said, rows = found.header, [row for _, row in found.rows]
    columns, rows = _with_switch(said, _columns(said, path), rows)
    columns, rows, numbers = _without_units(columns, rows, [number for number, _ in found.rows])
    columns = [(name, unit or _no_unit(name, called)) for (name, unit), called in zip(columns, said, strict=True)]
    names = [name for name, _ in columns]
    lines: list[TableLine] = []
    for row, number in zip(rows, numbers, strict=True):
        cells: dict[str, str | None] = dict.fromkeys(names[len(row) :])
        cells |= {name: _with_unit(cell, unit) for (name, unit), cell in zip(columns, row, strict=False)}
        fault = _miscounted(len(row), names, number, barred=found.barred)
        merged = MERGED if lines and _is_below(cells) else ""
        lines.append(TableLine(cells, fault, 0 if fault else max(0, len(names) - len(row)), merged))
    _read_numbers(lines, names)
    names = _without_loss(lines, names)
    return RunTable(names, lines, found.header_line, found.caption, tuple(said), in_company(said))


def not_read(path: str | Path) -> list[str]:
    """Return what a file holds beside a table of runs, and the columns that nothing reads, a sentence each."""
    table = read_table(path)
    seen = Counter(tuple(line.cells.items()) for line in table.lines)
    again = sum(count - 1 for count in seen.values())
    repeats = f"lines that repeat another word for word: {again}; each counts as a run of its own"
    before = f"the table begins in line {table.header_line}; what stands before it is not read: {table.caption[:80]!r}"
    short, beside = (
        ", ".join(f"{name} as {column}" for name, column in table.beside.items() if (len(name.strip()) == 1) == letter)
        for letter in (True, False)
    )
    return (
        [before] * bool(table.caption)
        + [f"columns of one letter are read: {short}"] * bool(short)
        + [f"read by what stands beside it: {beside}"] * bool(beside)
        + [repeats] * bool(again)
        + [
            f"column {name}: not read{f' ({hint})' if hint else ''}; --columns lists what is"
            for name, hint in unread(name for name in table.names if not _is_read(name, table)).items()
        ]
    )


def _is_read(name: str, table: RunTable) -> bool:
    """Return whether something reads a column of a table: a rate in FLOPs says nothing beside a measured time."""
    if not is_flops(name):
        return is_read(name)
    times = MEASURED.keys() - {"peak_memory_bytes_per_gpu"}
    return any(all(is_empty(line.cells.get(time) or "") for time in times) for line in table.lines)


def _no_unit(column: str, called: str) -> str:
    """Return the mark of a number that may be in any unit: of memory under a name that is not our own."""
    return NO_UNIT if column == "peak_memory_bytes_per_gpu" and column != called else ""


def _without_loss(lines: list[TableLine], names: list[str]) -> list[str]:
    """Return the names of columns with numbers of a loss, as metrics have them, under a name that nothing reads."""
    said = [text for line in lines if not is_empty(text := line.cells.get("loss") or "")]
    if not said or not all(re.fullmatch(r"[\d.,]+(?:e[+-]?\d+)?", text.strip(), re.IGNORECASE) for text in said):
        return names
    for line in lines:
        line.cells[OF_TRAINING] = line.cells.pop("loss")
    return [OF_TRAINING if name == "loss" else name for name in names]


def _read_numbers(lines: list[TableLine], names: list[str]) -> None:
    """Replace numbers whose marks part thousands, or are decimal, as the whole table tells, by plain ones."""

    def columns(of: Iterable[str]) -> dict[str, list[str]]:
        return {name: [line.cells[name] or "" for line in lines] for name in of if name in names}

    for name, column in with_plain_numbers(columns(WHOLE), columns(MEASURED)).items():
        for line, cell in zip(lines, column, strict=True):
            line.cells[name] = cell


def _is_below(cells: Mapping[str, str | None]) -> bool:
    """Return whether a row says how it was split and not on which GPUs, as beside a cell that spans several rows."""
    machine, split = ("gpu", "num_gpus"), ("tp", "pp", "dp", "micro_batch", "zero_stage_fsdp")
    says_machine, says_split = (any(not is_empty(cells.get(name) or "") for name in some) for some in (machine, split))
    return says_split and not says_machine


def _miscounted(cells: int, names: list[str], number: int, *, barred: bool) -> str:
    """Return why a row that has more or fewer cells than its table has columns cannot be read; "" where it can.

    Cells of measurements and notes may be left out at the end of a line, but not where bars part all of them.
    """
    if cells > len(names):
        more = counted(cells - len(names), "cell")
        part = "" if barred else ": a decimal comma, say, parts a number in two unless it stands in quotes"
        return f"line {number} has {cells} cells, {more} more than the table has columns{part}"
    if cells == len(names) or not (barred or PRICED.intersection(names[cells:])):
        return ""
    return f"{counted(len(names) - cells, 'cell')} fewer than the table has columns: which is missing is not known"


def _without_units(
    columns: list[tuple[str, str]], rows: list[list[str]], numbers: list[int]
) -> tuple[list[tuple[str, str]], list[list[str]], list[int]]:
    """Return columns, rows and their lines without a line of units below the header, which figures then have."""
    said = rows[0] if rows else []
    if not any(re.search(r"[^\W\d_]|#", cell) for cell in said) or any(re.search(r"\d", cell) for cell in said):
        return columns, rows, numbers  # a run has a number at least, and units have none
    words = dict(zip(columns, (cell.strip("()[] ") for cell in said), strict=False))
    found = [
        (name, _unit_below(words.get((name, unit), "")) if name in MEASURED and not unit else unit)
        for name, unit in columns
    ]
    return found, rows[1:], numbers[1:]


def _unit_below(word: str) -> str:
    """Return the unit that stands below the name of a measured column: one of time or memory, or as it is."""
    united = UNIT.match(f"x {word}")
    return "" if is_empty(word) else unit_of(united[2]) if united else word


def _with_switch(
    said: list[str], columns: list[tuple[str, str]], rows: list[list[str]]
) -> tuple[list[tuple[str, str]], list[list[str]]]:
    """Return columns and rows with a column FSDP, or ZeRO1, as what it means: a switch, or ranks that share states.

    It is a switch where it says no or 0 at least once, or yes, and no number above 1; a number of ranks where it has
    such, and none is 1. 1 alone, or beside such numbers, could be either; 0 beside numbers of ZeRO1 is none or all.
    """
    for names, words in ((FSDP_SWITCHES, FSDP_WORDS), (ZERO1_SWITCHES, ZERO1_WORDS)):
        place = next((n for n, name in enumerate(said) if letters(leaf_of(name)) in names), None)
        if place is not None and "zero_stage_fsdp" not in (name for name, _ in columns):
            columns, rows = _switched(columns, rows, place, words)
            break
    return _with_ddp(said, columns, rows)


def _with_ddp(
    said: list[str], columns: list[tuple[str, str]], rows: list[list[str]]
) -> tuple[list[tuple[str, str]], list[list[str]]]:
    """Return columns and rows with a column DDP that says whether, and not how many ranks, as what it means.

    It does where it says so in words, or is 0 or 1 alone and 1 of several GPUs. Beside a column that says how states
    are shared it says nothing more.
    """
    place = next((n for n, name in enumerate(said) if letters(leaf_of(name)) in DDP_SWITCHES), None)
    names = [name for name, _ in columns]
    if place is None:
        return columns, rows
    cells = [row[place].strip().lower() for row in rows if place < len(row)]
    gpus = names.index("num_gpus") if "num_gpus" in names else None
    several = any(
        gpus is not None and max(gpus, place) < len(row) and row[place].strip() == "1" and row[gpus].strip() != "1"
        for row in rows
    )
    worded = any(cell in FLAGS and not cell.isdigit() for cell in cells)
    if not all(cell in FLAGS or is_empty(cell) for cell in cells) or not (several or worded):
        return columns, rows
    if "zero_stage_fsdp" in names:
        return [*columns[:place], (said[place], ""), *columns[place + 1 :]], rows
    switched = [
        [*row[:place], "ddp" if FLAGS.get(row[place].strip().lower()) == 1 else "", *row[place + 1 :]]
        if place < len(row)
        else row
        for row in rows
    ]
    return [*columns[:place], ("zero_stage_fsdp", ""), *columns[place + 1 :]], switched


def _switched(
    columns: list[tuple[str, str]], rows: list[list[str]], place: int, words: Mapping[str, str]
) -> tuple[list[tuple[str, str]], list[list[str]]]:
    """Return columns and rows with one column as cells of zero_stage_fsdp; as they are where it could be either."""
    cells = {row[place].strip().lower() for row in rows if len(row) == len(columns) and not is_empty(row[place])}
    shards = {cell for cell in cells if SHARDS.fullmatch(cell)}
    either = {cell for cell in cells if FLAGS.get(cell) == 1}
    either |= {cell for cell in cells if words is ZERO1_WORDS and FLAGS.get(cell) == 0}
    if not cells or not cells - shards <= FLAGS.keys() or (either if shards else cells == {"1"}):
        return columns, rows

    def switched(row: list[str]) -> list[str]:
        cell = row[place].strip().lower() if place < len(row) else ""
        if SHARDS.fullmatch(cell):
            return [*row[:place], f"{words['shard']} {cell}", *row[place + 1 :]]
        on = FLAGS.get(cell)
        return row if on is None else [*row[:place], words["on" if on else "off"], *row[place + 1 :]]

    return [*columns[:place], ("zero_stage_fsdp", ""), *columns[place + 1 :]], [switched(row) for row in rows]


def _columns(said: list[str], path: str | Path) -> list[tuple[str, str]]:
    """Return the column that each name means, and the unit behind it; names that stand for one that is there do not."""
    beside = in_company(said)
    found = [(beside[name], "") if name in beside else column_of(name) for name in said]
    found = [one if one[0] == name or one[0] not in said else (name, "") for one, name in zip(found, said, strict=True)]
    claimed = Counter(column for column, _ in found)
    found = [
        (name, "") if claimed[one[0]] > 1 and is_weak(name) else one for one, name in zip(found, said, strict=True)
    ]
    several = {
        column for column, count in Counter(column for column, _ in found).items() if count > 1
    } & MEASURED.keys()
    # a time goes before how many steps a second has; of means and medians none goes before the others
    derived = [one[0] in several and is_derived(name, one[1]) for one, name in zip(found, said, strict=True)]
    found = [(name, "") if other else one for one, name, other in zip(found, said, derived, strict=True)]
    names = [name for name, _ in found]
    twice = next((name for place, name in enumerate(names) if name and name in names[:place]), None)
    if twice is not None:
        both = " and ".join(repr(name) for name, (column, _) in zip(said, found, strict=True) if column == twice)
        raise InputError(f"{path}: columns {both} are both {twice}")
    return found


def _with_unit(cell: str, unit: str) -> str:
    """Return a cell with the unit of its column where it has none of its own."""
    return f"{cell.strip()} {unit}" if unit and re.fullmatch(r"[\d.,\s]*\d[\d.,\s]*", cell) else cell
