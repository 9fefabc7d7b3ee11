"""Cells of a table as numbers and words; each fault is an InputError that names the column."""

import re
from collections.abc import Iterable, Mapping, Sequence

from ...errors import InputError

Cells = Mapping[str, str]
PLACEHOLDERS = frozenset({"", "-", "na", "n/a", "nan", "null", "unknown", "?"})
FLAGS = {"0": 0, "false": 0, "no": 0, "off": 0, "none": 0, "1": 1, "true": 1, "yes": 1, "on": 1}
THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:(?:,\d{3})+|(?:[ \u00a0\u202f]\d{3})+|(?:['\u2019]\d{3})+)")  # of whole numbers
EITHER_POINT = re.compile(r"[1-9]\d{0,2}\.000")  # 4.000 is 4, or in other countries 4000
UNITS = {  # words behind a number, which say of its column what is known of it
    "num_gpus": re.compile(r"(?i)(?<=\d)\s*gpus?$"),
    "global_batch_sequences": re.compile(r"(?i)(?<=\d)\s*(seqs?|sequences)$"),
    "seq_len": re.compile(r"(?i)(?<=\d)\s*(toks?|tokens)$"),
}


LINKS = {  # kinds of links inside a node, and the words of tables for each
    "pcie": r"pcie?",
    "nvlink": r"nv ?link|nv ?switch|nvl",
    "xgmi": r"xgmi|infinity ?fabric",
    "ethernet-mesh": r"roce|rdma|ethernet",
    "ici": r"ici|torus",
    "neuronlink": r"neuron ?link",
}


def names_link(text: str, kind: str, title: str) -> bool:
    """Return whether a cell means these links: their kind, and their generation where it says one.

    `kind` and `title` are theirs in the catalogue, such as "nvlink" and "NVLink 4".
    """
    said = re.search(rf"(?:{LINKS[kind]})[ -]*(?:v|gen)?[ -]*(\d?)(?!\d)", text.lower())
    generation = re.search(r"\d", title)
    return said is not None and said[1] in {"", generation[0] if generation else ""}


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


def check_stated(cells: Cells, names: Iterable[str], one_of: Iterable[Sequence[str]] = (), *, hint: str = "") -> None:
    """Raise InputError with all of these columns that are empty, and the first of each set that is empty as a whole.

    `hint` is why several may be.
    """
    missing = [name for name in names if is_empty(cells.get(name, ""))]
    missing += [some[0] for some in one_of if all(is_empty(cells.get(name, "")) for name in some)]
    if missing:
        raise InputError(f"{', '.join(missing)}: not stated{hint if len(missing) > 1 else ''}")


def count_of(cells: Cells, name: str, default: int | None = None, *, least: int = 1) -> int:
    """Return a cell as a whole number; InputError where it is empty and there is no default."""
    said = cells.get(name, "")
    text = UNITS[name].sub("", said) if name in UNITS else said
    if EITHER_POINT.fullmatch(text):
        raise InputError(f"{name}: {said!r} is {text.replace('.', '')} or {text.partition('.')[0]}")
    value = number_of({name: re.sub(r"\D", "", text) if THOUSANDS.fullmatch(text) else text}, name)
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
