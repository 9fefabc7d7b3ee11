"""The lines of a table of runs, as spreadsheets, reports and trackers of experiments write them.

Commas, semicolons, tabs or Markdown's bars between cells, in UTF-8 or, with its mark, UTF-16; columns by their names
here or by what engines and people call them, with a unit behind a name where it is measured.
"""

import codecs
import csv
import difflib
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ...errors import InputError
from ...files import read_bytes, read_text
from ...layout_names import DEGREE, NEAR, near_key, own_name, own_values, pairs_of
from ...units import counted
from .cells import FLAGS, is_empty, with_decimal_point
from .columns import CARRIED, INPUTS, MEASURED, SWITCHED

MAX_TABLE_BYTES = 64 * 2**20
RULE = re.compile(r":?-+:?")  # a cell of the line below the header of a Markdown table
UNIT = re.compile(r"(?i)^(.*?)[\s_]*(?:\(\s*|\[\s*|[\s_])(s|ms|us|sec|seconds|bytes|[kmgt]i?b)\s*[)\]]?$")
UNITS = {"sec": "s", "seconds": "s", "bytes": "B"}
NAMES = {  # of columns, without marks, case and units
    **dict.fromkeys(("name", "run", "runname", "runid"), "id"),
    **dict.fromkeys(("stack", "engine", "framework"), "family"),
    **dict.fromkeys(("accelerator", "gputype", "gpumodel", "gpuname"), "gpu"),
    **dict.fromkeys(("gpus", "ngpus", "numgpu", "gpucount", "numberofgpus", "totalgpus", "worldsize"), "num_gpus"),
    **dict.fromkeys(("gpuspernode", "gpusnode", "nprocpernode"), "gpus_per_node"),
    "model": "model_name",
    **dict.fromkeys(("seqlength", "seqlen", "sequencelength", "contextlength", "maxseqlen"), "seq_len"),
    **dict.fromkeys(("globalbatchsize", "globalbatch", "gbs"), "global_batch_sequences"),
    **dict.fromkeys(("zero", "sharding", "shardingstrategy", "fsdpshardingstrategy"), "zero_stage_fsdp"),
    **dict.fromkeys(("activationcheckpointing", "gradientcheckpointing", "recomputation", "ac"), "recompute"),
    "dtype": "precision",
    **dict.fromkeys(("note", "comment", "comments", "remarks"), "notes"),
    **dict.fromkeys(("parallelism", "parallel", "parallelconfig", "strategy"), "layout"),
    **dict.fromkeys(("steptime", "timeperstep", "iterationtime", "itertime", "timeperiteration"), "step_time_s"),
    **dict.fromkeys(("peakmemory", "peakmem", "maxmemory", "peakmemorypergpu"), "peak_memory_bytes_per_gpu"),
}
RATE = re.compile(  # of one GPU: "Tokens / sec / GPU", "Throughput (T/s/GPU)", "TPS per GPU", "tok/GPU/s"
    r"(?:throughput)?(?:t|toks?|tokens?)(?:(?:per|p)?(?:s|sec|second)(?:per)?gpu|(?:per)?gpu(?:per)?(?:s|sec|second))"
)
TOKENS = re.compile(r"(?i)(?<=len)((?:gth)?)\s*[(\[]\s*(?:t|toks?|tokens?)\s*[)\]]$")  # the unit of a length
SWITCHES = frozenset({"fsdp", "usefsdp", "megatronfsdp", "usemegatronfsdp"})  # columns that may be no degree
# What is no switch in such a column: the ranks that share states. Megatron-Bridge's pages have both: FSDP = 1 "use
# FSDP", and in the archive FSDP > 0 "sharding group size = #GPUs / (TP x PP)" (docs.nvidia.com/nemo/megatron-bridge/
# latest/performance-summary.html and performance-summary-archive.html)
SHARDS = re.compile(r"[2-9]|[1-9]\d+")
IN_CELLS = {  # keys of a layout whose column has another name
    **{"mbs": "micro_batch", "zero": "zero_stage_fsdp", "sp": "seq_parallel"},
    **{name: name for name in ("tp", "pp", "dp", "cp", "ep", "etp", "vpp", "replicas")},
    **{name: name for name in ("schedule", "recompute", "order", "offload")},
}
SPLIT = re.compile(
    r"(?i)(tensor|pipeline|data|context|expert|sequence)[\s_-]*(model[\s_-]*)?paral|micro[\s_-]*batch|zero|[fh]sdp|shard"
    r"|recomp|checkpointing|offload"
)
KNOWN = frozenset({*INPUTS, *MEASURED, *CARRIED})
PRICED = INPUTS.keys() - {"id", "source", "notes", "year"}


class TableLine(NamedTuple):
    """A line of a table: its cells by column, None where the line ends before, and why it cannot be read, if so.

    `ends`: the number of cells that it leaves out at its end, which it may.
    """

    cells: dict[str, str | None]
    fault: str
    ends: int = 0


class RunTable(NamedTuple):
    """A table of runs as text: the names of its columns as they are read, and its lines."""

    names: list[str]
    lines: list[TableLine]


def read_table(path: str | Path) -> RunTable:
    """Return the columns of a table and its lines; InputError where it is none, or two columns are one."""
    rows, barred = _rows(_text(path), path)
    if not rows:
        return RunTable([], [])
    said = [name.strip() for name in rows[0]]
    columns, rows = _with_switch(said, _columns(said, path), rows[1:])
    names = [name for name, _ in columns]
    found = []
    for row in rows:
        cells: dict[str, str | None] = dict.fromkeys(names[len(row) :])
        cells |= {name: _with_unit(cell, unit) for (name, unit), cell in zip(columns, row, strict=False)}
        fault = _miscounted(len(row), names, barred=barred)
        found.append(TableLine(cells, fault, 0 if fault else max(0, len(names) - len(row))))
    for name in MEASURED.keys() & set(names):
        column = with_decimal_point([line.cells[name] or "" for line in found])
        for line, cell in zip(found, column, strict=True):
            line.cells[name] = cell
    return RunTable(names, found)


def _miscounted(cells: int, names: list[str], *, barred: bool) -> str:
    """Return why a row that has more or fewer cells than its table has columns cannot be read; "" where it can.

    Cells of measurements and notes may be left out at the end of a line, but not where bars part all of them.
    """
    if cells > len(names):
        return f"{cells - len(names)} more cells than the table has columns"
    if cells == len(names) or not (barred or PRICED.intersection(names[cells:])):
        return ""
    return f"{counted(len(names) - cells, 'cell')} fewer than the table has columns: which is missing is not known"


def _with_switch(
    said: list[str], columns: list[tuple[str, str]], rows: list[list[str]]
) -> tuple[list[tuple[str, str]], list[list[str]]]:
    """Return columns and rows with a column FSDP as what it means: a switch, or the number of ranks that share states.

    It is a switch where it says no or 0 at least once, or yes, and no number above 1; a number of ranks where it has
    such, and none is 1. 1 alone, or beside such numbers, could be either.
    """
    place = next((n for n, name in enumerate(said) if _letters(name) in SWITCHES), None)
    if place is None or "zero_stage_fsdp" in (name for name, _ in columns):
        return columns, rows
    cells = {row[place].strip().lower() for row in rows if len(row) == len(columns) and not is_empty(row[place])}
    shards = {cell for cell in cells if SHARDS.fullmatch(cell)}
    either = {cell for cell in cells if FLAGS.get(cell) == 1}
    if not cells or not cells - shards <= FLAGS.keys() or (either if shards else cells == {"1"}):
        return columns, rows

    def switched(row: list[str]) -> list[str]:
        cell = row[place].strip().lower() if place < len(row) else ""
        if SHARDS.fullmatch(cell):
            return [*row[:place], f"shard {cell}", *row[place + 1 :]]
        on = FLAGS.get(cell)
        return row if on is None else [*row[:place], SWITCHED["on" if on else "off"], *row[place + 1 :]]

    return [*columns[:place], ("zero_stage_fsdp", ""), *columns[place + 1 :]], [switched(row) for row in rows]


def with_layout(cells: Mapping[str, str]) -> dict[str, str]:
    """Return the cells of a row, with what its layout stands for; InputError where another cell says otherwise."""
    text = cells.get("layout", "")
    if is_empty(text):
        return dict(cells)
    found = dict(cells)
    for key, value in own_values(_pairs(text), "layout").items():
        if key not in IN_CELLS:
            raise InputError(f"layout: {text!r}: expected KEY=VALUE with keys of {', '.join(IN_CELLS)}")
        column = IN_CELLS[key]
        if not is_empty(found.get(column, "")) and found[column] != value:
            raise InputError(f"layout: {text!r}, but {column} = {found[column]}")
        found[column] = value
    return found


def check_unread(cells: Mapping[str, str]) -> None:
    """Raise InputError where a column that nothing reads says what would change the price of a row.

    That is how the run was split, by its name or in its cell, or what a column with nearly its name has.
    """
    for name, text in cells.items():
        if name in KNOWN or is_empty(text):
            continue
        close = _near(name.lower(), frozenset(PRICED - cells.keys())) or near_key(name)
        if close:
            raise InputError(f"column {name}, {text!r}, is not read: did you mean {close}?")
        if SPLIT.search(name) or DEGREE.search(text):
            raise InputError(
                f"column {name} is not read, and says {text!r} of the layout; `validate --columns` has names"
            )


@functools.lru_cache(maxsize=256)
def _near(name: str, absent: frozenset[str]) -> str:
    """Return the one of these columns, which a table lacks, that a name is a slip of; "" where it is none."""
    return next(iter(difflib.get_close_matches(name, absent, n=1, cutoff=NEAR)), "")


def _pairs(text: str) -> dict[str, str]:
    """Return the keys and values of a layout; InputError where one lacks a value, or is said twice."""
    found = pairs_of(text)
    given = {name.lower(): value for name, value in found}
    if not all(given.values()) or len(given) < len(found):
        raise InputError(f"layout: {text!r}: expected each KEY=VALUE once, such as tp=4,pp=2,dp=8")
    return given


def _text(path: str | Path) -> str:
    data = read_bytes(path, max_bytes=MAX_TABLE_BYTES)
    if not data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return read_text(path, max_bytes=MAX_TABLE_BYTES).lstrip("\ufeff")
    try:
        return data.decode("utf-16")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-16 text (byte {error.start})") from None


def _rows(text: str, path: str | Path) -> tuple[list[list[str]], bool]:
    """Return the cells of each line that holds some, the header's first, and whether bars part them.

    Lines before the header may be comments.
    """
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")), len(lines))
    lines = lines[start:]
    if lines and lines[0].lstrip().startswith("|"):
        rows = [_barred(line) for line in lines if line.lstrip().startswith("|")]
        return [row for row in rows if not all(RULE.fullmatch(cell) for cell in row)], True
    mark = max(",;\t", key=lines[0].count) if lines else ","
    try:
        rows = list(csv.reader(lines, delimiter=mark, strict=True))
    except csv.Error as error:
        raise InputError(f"{path}: {error}") from None
    return [row for row in rows if any(cell.strip() for cell in row)], False


def _barred(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]


def _columns(said: list[str], path: str | Path) -> list[tuple[str, str]]:
    """Return the column that each name means, and the unit behind it; names that stand for one that is there do not."""
    found = [_column(name) for name in said]
    found = [one if one[0] == name or one[0] not in said else (name, "") for one, name in zip(found, said, strict=True)]
    names = [name for name, _ in found]
    twice = next((name for place, name in enumerate(names) if name and name in names[:place]), None)
    if twice is not None:
        both = " and ".join(repr(name) for name, (column, _) in zip(said, found, strict=True) if column == twice)
        raise InputError(f"{path}: columns {both} are both {twice}")
    return found


def _column(name: str) -> tuple[str, str]:
    """Return the column that a name means, and the unit behind it; a name that is none of them as it stands."""
    if name in KNOWN:
        return name, ""
    if known := _known(name):
        return known, ""
    united = UNIT.match(name)
    known = _known(united.group(1)) if united else ""
    if united is None or known not in MEASURED:
        return name, ""
    unit = united.group(2).lower()
    return known, UNITS.get(unit) or (unit if unit.endswith("s") else unit[:-1].upper().replace("I", "i") + "B")


def _known(name: str) -> str:
    """Return the column that a name without a unit means, "" where none is."""
    plain = _letters(TOKENS.sub(r"\1", name))
    own = IN_CELLS.get(own_name(plain) or plain, "")
    exact = next((known for known in (*INPUTS, *MEASURED) if _letters(known) == plain), "")
    return exact or NAMES.get(plain, "") or own or ("tokens_per_s_per_gpu" if RATE.fullmatch(plain) else "")


def _letters(name: str) -> str:
    """Return a name without marks and case."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _with_unit(cell: str, unit: str) -> str:
    """Return a cell with the unit of its column where it has none of its own."""
    return f"{cell.strip()} {unit}" if unit and re.fullmatch(r"[\d.,\s]*\d[\d.,\s]*", cell) else cell
