"""A file as lines of cells, and the line in which its header stands.

Commas, semicolons, tabs or Markdown's bars between cells, or JSON objects, one a line or in a list; UTF-8 or, with its
mark, UTF-16. What stands before the header or behind a table of bars is no part of it.
"""

import codecs
import csv
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import InputError
from ...files import read_bytes, without_halves

MAX_TABLE_BYTES = 64 * 2**20
RULE = re.compile(r":?-+:?")  # a cell of the line below the header of a Markdown table
SAID_AS_JSON = re.compile(r"\s*(?:\{|\[\s*\{)")
LEAST_COLUMNS = 3  # that are known make a header
SEARCHED = 1000  # lines in which a header may stand
SECOND = "a second table of runs begins in line"
ASIDE = re.compile(r"\s*(?:#|sep=.$|$)")  # a comment, what Excel writes of its mark, or nothing


class CellLines(NamedTuple):
    """The cells of a table: the header's, and those of each line behind it, with the line's number.

    `header_line` is 0 where each object names its own, `caption` the last text before the header, which is not read.
    """

    header: list[str]
    header_line: int
    rows: list[tuple[int, list[str]]]
    barred: bool = False  # bars part all cells of a line
    caption: str = ""


def read_lines(path: str | Path, is_column: Callable[[str], bool]) -> CellLines:
    """Return the cells of a file; its header is the first line with some columns, else the first line."""
    text = _text(path)
    if SAID_AS_JSON.match(text):
        return _of_objects(_objects(text, path))
    lines = text.splitlines()
    first = next((n for n, line in enumerate(lines) if not ASIDE.match(line)), len(lines))
    places = range(min(len(lines), first + SEARCHED))
    # a comment may be the header, or its first column the number of GPUs: "# GPUs"
    in_turn = (*(n for n in places if not ASIDE.match(lines[n])), *(n for n in places if ASIDE.match(lines[n])))
    titles = (n for n in places if "|" in lines[n] and n + 1 < len(lines) and _is_rule(_barred(lines[n + 1])))
    start = next((n for n in in_turn if _is_header(lines[n], is_column)), next(titles, first))
    if start == len(lines):
        return CellLines([], 0, [])
    mark = _mark(lines[start])
    rows = _barred_rows(lines, start, is_column, path) if mark == "|" else _parted_rows(lines, start, mark, path)
    # Markdown's headings are no comments
    captions = [line.strip(" \t,;|") for line in lines[:start] if mark == "|" or not ASIDE.match(line)]
    captions = [text for text in captions if re.search(r"\w", text)]
    (_, header), *behind = rows
    for number, row in behind:
        if row != header and len({*row} & {*header}) >= LEAST_COLUMNS and _names_columns({*row} & {*header}, is_column):
            raise InputError(f"{path}: {SECOND} {number}: expected one a file")
    return CellLines(
        header=header,
        header_line=start + 1,
        rows=[row for row in behind if row[1] != header],
        barred=mark == "|",
        caption=captions[-1] if captions else "",
    )


def _text(path: str | Path) -> str:
    data = read_bytes(path, max_bytes=MAX_TABLE_BYTES)
    if not data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return _utf8(data, path).lstrip("\ufeff")
    try:
        return data.decode("utf-16")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-16 text (byte {error.start})") from None


def _utf8(data: bytes, path: str | Path) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}: not UTF-8 text (byte {error.start}, line {line}): spreadsheets write it as CSV UTF-8"
        ) from None


def _mark(line: str) -> str:
    return "|" if line.lstrip().startswith("|") else max(",;\t|", key=line.count)


def _is_header(line: str, is_column: Callable[[str], bool]) -> bool:
    return _names_columns(_cells(line), is_column)


def _names_columns(cells: Iterable[str], is_column: Callable[[str], bool]) -> bool:
    return sum(map(is_column, cells)) >= LEAST_COLUMNS


def _cells(line: str) -> list[str]:
    """Return the cells of one line, none where it is no whole one."""
    mark = _mark(line)
    if mark == "|":
        return _barred(line)
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=mark, strict=True), [])]
    except csv.Error:
        return []


def _parted_rows(lines: Sequence[str], start: int, mark: str, path: str | Path) -> list[tuple[int, list[str]]]:
    reader = csv.reader(lines[start:], delimiter=mark, strict=True)
    found, number = [], start + 1
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                found.append((number, [cell.strip() for cell in row]))
            number = start + reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{path}: {error}") from None
    return found


def _barred_rows(
    lines: Sequence[str], start: int, is_column: Callable[[str], bool], path: str | Path
) -> list[tuple[int, list[str]]]:
    """Return the rows of a table of bars, the header's first; InputError where another table of runs comes after it."""
    header = _barred(lines[start])
    leading = lines[start].lstrip().startswith("|")
    found, is_parted = [(start + 1, header)], False
    for n in range(start + 1, len(lines)):
        is_barred = lines[n].lstrip().startswith("|") if leading else "|" in lines[n]
        row = _barred(lines[n]) if is_barred else []
        is_parted |= not is_barred and bool(lines[n].strip())
        if not any(row) or _is_rule(row):
            continue
        if n + 1 < len(lines) and _is_rule(_barred(lines[n + 1])) and (is_parted or row != header):
            if _is_header(lines[n], is_column):  # what stands between may say in what the two differ
                raise InputError(f"{path}: {SECOND} {n + 1}: expected one a file")
            break
        found.append((n + 1, row))
    return found


def _is_rule(row: Sequence[str]) -> bool:
    return any(row) and all(RULE.fullmatch(cell) for cell in row)


def _barred(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]


def _objects(text: str, path: str | Path) -> list[tuple[int, dict[str, str]]]:
    """Return the objects of a JSON file, one a line, or all in a list or alone, each as text by the way to a value."""
    try:
        return [(number, _flat(value)) for number, value in _values(text)]
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None


def _values(text: str) -> list[tuple[int, Any]]:
    """Return the values of a file with their lines; of one that is a list, or holds a list and no more, its items."""
    found: list[tuple[int, Any]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            found.append((number, _parsed(line)))
        except ValueError as error:
            if found:
                raise ValueError(f"line {number}: expected an object of JSON: {error}") from None
            found = [(1, _parsed(text))]
            break
    if len(found) > 1:
        return found
    whole = found[0][1]
    if isinstance(whole, dict) and len(whole) == 1:
        (inner,) = whole.values()
        whole = inner if isinstance(inner, list) else whole
    return list(enumerate(whole, 1)) if isinstance(whole, list) else [(1, whole)]


def _parsed(text: str) -> Any:
    """Return a value of JSON, its numbers as they are written; ValueError where it is none."""
    try:
        return json.loads(text, parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for n, (key, _) in enumerate(pairs) if key in dict(pairs[:n]))
        raise ValueError(f"key {twice} stands twice in one object")
    return found


def _flat(value: Any) -> dict[str, str]:
    """Return the values of an object as text, those of objects inside it by the way to them: `parallel.tp`."""
    if not isinstance(value, dict):
        raise ValueError("expected an object of JSON for each run")
    found: dict[str, str] = {}
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            found |= {f"{key}.{name}": text for name, text in _flat(inner).items()}
        else:
            found[key] = _as_text(inner)
    return {without_halves(name): without_halves(text) for name, text in found.items()}


def _as_text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_as_text(item) for item in value)
    return {None: "", True: "true", False: "false"}.get(value, value) if not isinstance(value, dict) else ""


def _of_objects(objects: Iterable[tuple[int, dict[str, str]]]) -> CellLines:
    objects = list(objects)
    header = list(dict.fromkeys(name for _, one in objects for name in one))
    return CellLines(header, 0, [(number, [one.get(name, "") for name in header]) for number, one in objects])
