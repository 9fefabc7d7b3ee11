"""`meshwright bench --from FILE`: the tables of a file, a verdict on each, fits where they name their collective."""

from collections.abc import Sequence
from typing import NamedTuple

import click

from ..bench.judgement.cluster_links import links_of_nodes
from ..bench.judgement.judge import judge
from ..bench.judgement.verdict import TableVerdict
from ..bench.reading import Rate, ReadTable
from ..bench.reading.tables import BETWEEN_TWO, SEVERAL_PAIRS
from ..bench.table import Row, csv_text, print_rows, row_form
from ..cluster.graph import NodeGroup
from ..files import to_json
from ..hardware import Catalogue
from ..units import format_rate
from .prose import say


class Judged(NamedTuple):
    """One table of a file, smallest size first, with its verdict."""

    number: int
    table: ReadTable
    rows: list[Row]
    verdict: TableVerdict


def judged_tables(
    tables: Sequence[ReadTable],
    catalogue: Catalogue,
    node: str | None,
    link: str | None,
    nics: int | None,
    nodes: NodeGroup | None = None,
) -> list[Judged]:
    """Judge the tables of a file."""
    own = links_of_nodes(catalogue, nodes) if nodes and not node else None
    verdicts = judge(catalogue, tables, node=node, link=link, nics=nics, nodes=own)
    return [
        Judged(number, table, sorted(table.rows, key=lambda row: row.bytes), verdict)
        for number, (table, verdict) in enumerate(zip(tables, verdicts, strict=True), start=1)
    ]


def verdict_notes(one: Judged) -> list[str]:
    """Return what is said below a table: its verdict and what was odd about the file."""
    words = {True: "good", False: "bad", None: "unknown"}[one.verdict.ok]
    return [
        *(f"{one.table.name}: {note}" for note in one.table.notes),
        f"{one.table.name}: verdict: {words}: {one.verdict.reason}",
    ]


def print_judged(found: Sequence[Judged], notes: Sequence[str], *, as_csv: bool, as_json: bool) -> None:
    """Print rows, rates and verdicts: as tables, as CSV, or as JSON with an object a row and one a table."""
    if as_json:
        for one in found:
            for item in [*map(row_form, one.rows), *_rate_objects(one.table)]:
                click.echo(to_json(item | {"table": one.number}))
            click.echo(to_json(_table_object(one)))
    elif as_csv:
        click.echo(csv_text(row for one in found for row in one.rows), nl=False)
    else:
        for one in found:
            click.echo(_text(one))
    for note in notes:
        say(f"# {note}", err=as_json or as_csv)


def _table_object(one: Judged) -> dict[str, object]:
    return {
        "table": one.number,
        "collective": one.table.collective,
        "ranks": one.table.ranks,
        "verdict": one.verdict.wire_form(),
        "name": one.table.name,
        "tool": one.table.tool,
        "ranks_range": one.table.ranks_range,
        "candidates": one.table.candidates,
        "notes": one.table.notes,
    }


def _rate_objects(table: ReadTable) -> list[dict[str, object]]:
    return [
        {
            "collective": None, "backend": table.tool, "ranks": None, "bytes": rate.bytes, "time_us": None,
            "algbw_GBps": rate.rate_bytes_per_s / 1e9, "busbw_GBps": None, "what": rate.what, "src": rate.src,
            "dst": rate.dst,
        }
        for rate in table.rates
    ]  # fmt: skip


def _text(one: Judged) -> str:
    allowed = one.table.ranks_range
    ranks = one.table.ranks or (f"{allowed[0]} to {allowed[1]}" if allowed else "unknown")
    what = one.table.collective or (
        "no collective" if one.table.unjudged in (BETWEEN_TWO, SEVERAL_PAIRS) else "unknown collective"
    )
    head = f"# {one.table.name}: {what}, {one.table.tool}, ranks {ranks}"
    if one.rows:
        return f"{head}\n{print_rows(one.rows)}"
    if matrix := _matrix(one.table):
        return "\n".join([f"# {one.table.name}: {one.table.tool}", *matrix])
    rates = [f"{rate.what:<44} {_of(rate):>16}{format_rate(rate.rate_bytes_per_s):>14}" for rate in one.table.rates]
    return "\n".join([f"# {one.table.name}: {one.table.tool}", *rates])


def _of(rate: Rate) -> str:
    if rate.src is not None:
        return f"{rate.src} to {rate.dst}"
    return "" if rate.bytes is None else f"{rate.bytes} B"


def _matrix(table: ReadTable) -> list[str]:
    """Return the lines of a matrix of pairs, [] where a table is none: a rate for each source and target, GB/s."""
    found = {(rate.src, rate.dst): rate.rate_bytes_per_s / 1e9 for rate in table.rates if rate.src and rate.dst}
    sources, others = dict.fromkeys(src for src, _ in found), dict.fromkeys(dst for _, dst in found)
    targets = [*(src for src in sources if src in others), *(dst for dst in others if dst not in sources)]
    if len(found) < len(table.rates) or len(targets) < 2 or len({rate.what for rate in table.rates}) > 1:
        return []
    own = "; of a device to itself: its own memory, no link" if any(src == dst for src, dst in found) else ""
    lines = [f"{'to':>8}" + "".join(f"{dst:>10}" for dst in targets) + f"   GB/s{own}"]
    for src in sources:
        cells = (f"{found[src, dst]:>10.2f}" if (src, dst) in found else f"{'N/A':>10}" for dst in targets)
        lines.append(f"{src:>8}" + "".join(cells))
    return lines
