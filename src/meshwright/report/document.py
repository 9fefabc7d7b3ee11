"""The nouns of a page: sections of tables, figures, drawings and lines. A page prints as HTML and as JSON alike."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from ..traces.stragglers.culprit import Culprit
from ..traces.summary import RankShares
from ..traces.usage import Shares


class Cell(msgspec.Struct, frozen=True, omit_defaults=True):
    """One cell of a table: what a person reads, and the figure behind it."""

    text: str
    value: float | str | None = None


class Table(msgspec.Struct, frozen=True, tag="table", kw_only=True):
    """Rows under named columns; a reader may sort by any column of a `sortable` one."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    sortable: bool = False
    prose: bool = False  # cells are words, which wrap, and no figures
    note: str = ""


class Figure(msgspec.Struct, frozen=True, tag="figure", kw_only=True):
    """A Plotly figure as plain data. Texts that come from outside must have gone through `plain`."""

    title: str
    traces: list[dict[str, Any]]
    layout: dict[str, Any] = {}
    height_px: int = 360
    note: str = ""


class Drawing(msgspec.Struct, frozen=True, tag="drawing", kw_only=True):
    """An SVG that was made here, every text in it escaped."""

    title: str
    svg: str
    note: str = ""


class Lines(msgspec.Struct, frozen=True, tag="lines"):
    """Sentences, one a line."""

    items: tuple[str, ...]
    title: str = ""


Block = Table | Figure | Drawing | Lines


class Section(msgspec.Struct, frozen=True):
    """A heading and what stands below it."""

    heading: str
    blocks: tuple[Block, ...]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A whole page: the verdict in one sentence, then the sections."""

    title: str
    verdict: str
    sections: tuple[Section, ...]
    kind: str = "run"  # "run", "comparison", "plan", "bench", "trace"
    median: Shares | msgspec.UnsetType = msgspec.UNSET  # of traces: the typical step
    mean: Shares | msgspec.UnsetType = msgspec.UNSET  # likewise, where medians do not make up a step
    ranks: tuple[RankShares, ...] | msgspec.UnsetType = msgspec.UNSET
    culprit: Culprit | msgspec.UnsetType | None = msgspec.UNSET  # None: nobody is to blame
    schema: Literal["meshwright.page/1"] = "meshwright.page/1"


def section(heading: str, *blocks: Block | None) -> Section | None:
    """Return a section of the blocks that exist, None where there is none."""
    kept = tuple(block for block in blocks if block is not None)
    return Section(heading, kept) if kept else None


def table(columns: Sequence[str], rows: Sequence[Sequence[Cell | str]], **options: Any) -> Table:
    """Return a table; a plain text becomes a cell."""
    cells = tuple(tuple(Cell(cell) if isinstance(cell, str) else cell for cell in row) for row in rows)
    return Table(columns=tuple(columns), rows=cells, **options)


def figure_text(text: str) -> str:
    """Return a text from outside for a Plotly figure, which reads a few HTML tags: escaped, at most 200 characters."""
    short = text if len(text) <= 200 else text[:199] + "…"
    return short.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
