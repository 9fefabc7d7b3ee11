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
from typing import Any, NamedTuple

from ...errors import InputError
from ...files import read_bytes, read_text
from ...layout_names import DEGREE, own_name, own_values, pairs_of
from .cells import is_empty
from .columns import CARRIED, INPUTS, MEASURED

MAX_TABLE_BYTES = 64 * 2**20
RULE = re.compile(r":?-+:?")  # a cell of the line below the header of a Markdown table
UNIT = re.compile(r"(?i)^(.*?)[\s_]*(?:\(\s*|\[\s*|[\s_])(s|ms|us|sec|seconds|bytes|[kmgt]i?b)\s*[)\]]?$")
UNITS = {"sec": "s", "seconds": "s", "bytes": "B"}
NAMES = {  # of columns, without marks, case and units
    **dict.fromkeys(("name", "run", "runname", "runid"), "id"),
    **dict.fromkeys(("stack", "engine", "framework"), "family"),
    **dict.fromkeys(("accelerator", "gputype", "gpumodel", "gpuname"), "gpu"),
    **dict.fromkeys(("gpus", "ngpus", "gpucount", "numberofgpus", "totalgpus", "worldsize"), "num_gpus"),
    **dict.fromkeys(("gpuspernode", "gpusnode", "nprocpernode"), "gpus_per_node"),
    "model": "model_name",
    **dict.fromkeys(("seqlength", "seqlen", "sequencelength", "contextlength", "maxseqlen"), "seq_len"),
    **dict.fromkeys(("globalbatchsize", "globalbatch", "gbs"), "global_batch_sequences"),
    **dict.fromkeys(("zero", "sharding"), "zero_stage_fsdp"),
    **dict.fromkeys(("activationcheckpointing", "gradientcheckpointing", "recomputation", "ac"), "recompute"),
    "dtype": "precision",
    **dict.fromkeys(("note", "comment", "comments", "remarks"), "notes"),
    **dict.fromkeys(("parallelism", "parallel", "parallelconfig", "strategy"), "layout"),
    **dict.fromkeys(("steptime", "timeperstep", "iterationtime", "itertime", "timeperiteration"), "step_time_s"),
    **dict.fromkeys(("peakmemory", "peakmem", "maxmemory", "peakmemorypergpu"), "peak_memory_bytes_per_gpu"),
}
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
NEAR = 0.85  # of two names, from which on one is taken for a slip of the other


class RunTable(NamedTuple):
    """A table of runs as text: the names of its columns as they are read, and its rows."""

    names: list[str]
    lines: list[dict[str, Any]]


def read_table(path: str | Path) -> RunTable:
    """Return the columns of a table and its lines; InputError where it is none, or two columns are one."""
    rows = _rows(_text(path), path)
    if not rows:
        return RunTable([], [])
    columns = _columns([name.strip() for name in rows[0]], path)
    names = [name for name, _ in columns]
    found = []
    for row in rows[1:]:
        line: dict[Any, Any] = dict.fromkeys(names[len(row) :])
        line |= {name: _with_unit(cell, unit) for (name, unit), cell in zip(columns, row, strict=False)}
        found.append(line | ({None: row[len(names) :]} if len(row) > len(names) else {}))
    return RunTable(names, found)


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
        close = _near(name.lower(), frozenset(PRICED - cells.keys()))
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


def _rows(text: str, path: str | Path) -> list[list[str]]:
    """Return the cells of each line that holds some, the header's first; lines before it may be comments."""
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")), len(lines))
    lines = lines[start:]
    if lines and lines[0].lstrip().startswith("|"):
        rows = [_barred(line) for line in lines if line.lstrip().startswith("|")]
        return [row for row in rows if not all(RULE.fullmatch(cell) for cell in row)]
    mark = max(",;\t", key=lines[0].count) if lines else ","
    try:
        rows = list(csv.reader(lines, delimiter=mark, strict=True))
    except csv.Error as error:
        raise InputError(f"{path}: {error}") from None
    return [row for row in rows if any(cell.strip() for cell in row)]


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
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    own = IN_CELLS.get(own_name(plain) or plain, "")
    exact = next((known for known in (*INPUTS, *MEASURED) if re.sub(r"[^a-z0-9]", "", known.lower()) == plain), "")
    return exact or NAMES.get(plain, "") or own


def _with_unit(cell: str, unit: str) -> str:
    """Return a cell with the unit of its column where it has none of its own."""
    return f"{cell.strip()} {unit}" if unit and re.fullmatch(r"[\d.,\s]*\d[\d.,\s]*", cell) else cell
