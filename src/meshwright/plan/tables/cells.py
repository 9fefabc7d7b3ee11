"""Cells of a table as numbers and words; each fault is an InputError that names the column."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from ...errors import InputError
from ...units import parse_bytes, parse_time

Cells = Mapping[str, str]
PLACEHOLDERS = frozenset({"", "-", "na", "n/a", "nan", "null", "unknown", "?"})
FLAGS = {"0": 0, "false": 0, "no": 0, "off": 0, "none": 0, "1": 1, "true": 1, "yes": 1, "on": 1}
THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+")  # of a whole number; of others it may be a decimal comma
DECIMAL_COMMA = re.compile(r"^(\d+),(\d{1,2}|\d{4,})(?!\d)")
EITHER_COMMA = re.compile(r"^(\d{1,3}),(\d{3})(?![\d.,])")
# thousands parted by one mark, a fraction by the other
BOTH_MARKS = re.compile(r"^(\d{1,3}(?:([.,])\d{3})+)(?!\2)[.,](\d+)(?![\d.,])")
UNITS = {  # words behind a number, which say of its column what is known of it
    "num_gpus": re.compile(r"(?i)(?<=\d)\s*gpus?$"),
    "global_batch_sequences": re.compile(r"(?i)(?<=\d)\s*(seqs?|sequences)$"),
    "seq_len": re.compile(r"(?i)(?<=\d)\s*(toks?|tokens)$"),
}
MEASURES: dict[str, Callable[[str], float]] = {"step_time_s": parse_time, "peak_memory_bytes_per_gpu": parse_bytes}


def is_empty(text: str) -> bool:
    """Return whether a cell says nothing."""
    return text.strip().lower() in PLACEHOLDERS


def text_of(cells: Cells, name: str, default: str | None = None) -> str:
    """Return a cell; InputError where it is empty and there is no default."""
    value = cells.get(name, "")
    if value:
        return value
    if default is None:
        raise InputError(f"{name}: not stated")
    return default


def number_of(cells: Cells, name: str) -> float | None:
    """Return a cell as a number of 0 or more; None where it is empty."""
    value = cells.get(name, "")
    if is_empty(value) or value.lower() == "none":
        return None
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not 0 <= number < 1e15:
        raise InputError(f"{name}: expected a number of 0 or more, got {value!r}")
    return number


def check_stated(cells: Cells, names: Iterable[str]) -> None:
    """Raise InputError with all of these columns that are empty."""
    missing = [name for name in names if is_empty(cells.get(name, ""))]
    if missing:
        raise InputError(f"{', '.join(missing)}: not stated")


def count_of(cells: Cells, name: str, default: int | None = None, *, least: int = 1) -> int:
    """Return a cell as a whole number; InputError where it is empty and there is no default."""
    said = cells.get(name, "")
    text = UNITS[name].sub("", said) if name in UNITS else said
    value = number_of({name: text.replace(",", "") if THOUSANDS.fullmatch(text) else text}, name)
    if value is None:
        if default is None:
            raise InputError(f"{name}: not stated")
        return default
    if value != int(value) or value < least:
        raise InputError(f"{name}: expected a whole number of {least} or more, got {cells[name]!r}")
    return int(value)


def flag_of(cells: Cells, name: str, default: int) -> int:
    """Return a cell of 0 or 1."""
    value = cells.get(name, "").lower()
    if is_empty(value):
        return default
    if value not in FLAGS:
        raise InputError(f"{name}: expected 0 or 1, got {cells[name]!r}")
    return FLAGS[value]


def with_decimal_point(cells: Sequence[str]) -> list[str]:
    """Return the figures of a column; a comma before three digits is a decimal one where others can be nothing else."""
    decimal = any(DECIMAL_COMMA.match(cell.strip()) for cell in cells) and not any("." in cell for cell in cells)
    return [EITHER_COMMA.sub(r"\1.\2", cell.strip()) for cell in cells] if decimal else list(cells)


def _with_point(found: re.Match[str]) -> str:
    return f"{found[1].replace(found[2], '')}.{found[3]}"


def measured_of(cells: Cells, name: str, unreadable: list[str]) -> float | None:
    """Return a figure that was measured; None where there is none, or where the cell is added to `unreadable`.

    It may have a unit of time or of memory, and a decimal comma; before three digits it may part thousands as well,
    unless a point does, as in 4.512,5.
    """
    text = cells.get(name, "")
    if is_empty(text):
        return None
    plain = DECIMAL_COMMA.sub(r"\1.\2", BOTH_MARKS.sub(_with_point, text))
    if name not in MEASURES and THOUSANDS.fullmatch(text):
        plain = text.replace(",", "")
    try:
        value = float(plain) if name not in MEASURES else MEASURES[name](plain)
    except (ValueError, InputError):
        value = float("nan")
    if not 0 < value < float("inf"):
        either = EITHER_COMMA.match(text)
        why = f"is {either[1]}{either[2]} or {either[1]}.{either[2]}" if either else "is no number above 0"
        unreadable.append(f"{name}: {text!r} {why}, so it counts as not measured")
        return None
    return value
