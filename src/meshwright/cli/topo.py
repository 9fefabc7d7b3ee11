"""`meshwright topo`: what this machine, a saved dump, or the catalogue says of devices and links."""

from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table

from ..errors import InputError
from ..files import to_json
from ..hardware import Catalogue, load
from ..hardware.listing import TABLES, Entry, compared, entries, find


@click.command("topo")
@click.argument("words", nargs=-1)
@click.option("--catalogue", "from_catalogue", is_flag=True, help="List the catalogue; WORDS filter it.")
@click.option("--compare", is_flag=True, help="With --catalogue: put the entries named by WORDS side by side.")
@click.option("--hardware", multiple=True, metavar="FILE", help="A TOML file that extends or overrides the catalogue.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    words: tuple[str, ...], from_catalogue: bool, compare: bool, hardware: tuple[str, ...], as_json: bool
) -> int:
    """Show devices, links, NUMA, bottlenecks and traps of this machine, of a saved dump, or the catalogue."""
    catalogue = load(*hardware)
    if compare and not from_catalogue:
        raise InputError("--compare: expected together with --catalogue")
    if from_catalogue:
        return _compare(catalogue, words, as_json) if compare else _list(catalogue, words, as_json)
    raise InputError("topo: expected --catalogue")


def _list(catalogue: Catalogue, words: Sequence[str], as_json: bool) -> int:
    found = entries(catalogue, words)
    if not found:
        raise InputError(f"nothing in the catalogue matches {' '.join(words)!r}")
    if as_json:
        click.echo(to_json(found))
        return 0
    console = Console()
    for name in TABLES:
        rows = [entry for entry in found if entry.table == name]
        if rows:
            console.print(_table(name, rows))
    return 0


def _table(name: str, rows: Sequence[Entry]) -> Table:
    table = Table(title=name, title_justify="left")
    table.add_column("name", no_wrap=True)
    table.add_column("what")
    table.add_column("figures")
    for entry in rows:
        lines = [f"{key.removeprefix('flops.')}: {text}" for key, text in entry.texts.items()]
        lines += [f"trap: {trap}" for trap in entry.traps]
        table.add_row(entry.name, entry.title, "\n".join(lines))
    return table


def _compare(catalogue: Catalogue, words: Sequence[str], as_json: bool) -> int:
    if len(words) < 2:
        raise InputError("--compare: expected the names of two or more entries")
    chosen = [find(catalogue, word) for word in words]
    if as_json:
        click.echo(to_json(chosen))
        return 0
    table = Table(title="compared with the first", title_justify="left")
    table.add_column("figure")
    for entry in chosen:
        table.add_column(entry.name)
    for key, cells in compared(chosen):
        table.add_row(key, *cells)
    Console().print(table)
    return 0
