"""Tables as spreadsheets of countries with decimal commas save them: semicolons between cells, 31.510,4 for 31510.4."""

import re

_FIGURE = re.compile(r"-?(?:\d{1,3}(?:\.\d{3})+|\d{1,15})(?:,\d{1,15})?")
_WITH_COMMA = re.compile(r"-?[\d.]*\d,\d{1,15}")
_LIKE_A_FIGURE = re.compile(r"-?\d[\d.,]*")
_CELLS = 3  # of a row of a table
# heads of columns, in the languages of such countries
_WORDS = (
    (re.compile(r"^(?:größe|groesse|taille|tamaño|dimensione|grootte)\b", re.I), "size"),
    (re.compile(r"^(?:zeit|temps|tiempo|tempo|tijd)\b", re.I), "time"),
    (re.compile(r"^(?:anzahl|nombre|elementos|aantal)\b", re.I), "count"),
    (re.compile(r"^(?:typ|tipo)\b", re.I), "type"),
    (re.compile(r"^(?:mittel(?:wert)?|moyenne|media|gemiddelde|summe)\b", re.I), "mean"),
)


def with_decimal_points(text: str) -> str:
    """Return a text whose rows between semicolons have decimal commas as one with points, | between the cells.

    Only where every figure of these rows can be read so, and one at least in no other way: the rows of one file are
    written alike, and their times and bandwidths must agree as in every table. Numbers of lines stay.
    """
    lines = text.splitlines()
    rows = {n: line.split(";") for n, line in enumerate(lines) if line.count(";") >= _CELLS - 1}
    figures = [cell.strip() for cells in rows.values() for cell in cells if _LIKE_A_FIGURE.fullmatch(cell.strip())]
    if not any(map(_WITH_COMMA.fullmatch, figures)) or not all(map(_FIGURE.fullmatch, figures)):
        return text
    return "\n".join(_row(rows[n]) if n in rows else line for n, line in enumerate(lines))


def _row(cells: list[str]) -> str:
    words = [cell.strip().strip('"').strip() for cell in cells]
    if sum(map(bool, words)) == 1:  # a title, alone in its row
        return "".join(words)
    return f"| {' | '.join(map(_cell, words))} |"


def _cell(word: str) -> str:
    if _LIKE_A_FIGURE.fullmatch(word):
        return word.replace(".", "").replace(",", ".")
    for pattern, ours in _WORDS:
        word = pattern.sub(ours, word)
    return word
