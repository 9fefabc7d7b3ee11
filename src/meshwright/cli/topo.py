"""`meshwright topo`: what this machine, a saved dump, or the catalogue says of devices and links."""

import os
from collections.abc import Sequence

import click
from msgspec.structs import replace
from rich.table import Table

from ..bench.reading import read_tables
from ..cluster.analysis import analyse
from ..cluster.catalogue_devices import open_domain
from ..cluster.discovery.discover import discover
from ..cluster.discovery.plugins import net_plugins
from ..cluster.drawing.draw import draw
from ..cluster.drawing.svg import cluster_svg
from ..cluster.dumps import load_dumps
from ..cluster.dumps.detect import UnknownDump
from ..cluster.emulation.inside import surrounding_cluster
from ..cluster.graph import Cluster
from ..cluster.wire import wire_form
from ..errors import InputError
from ..files import to_json, write_atomic, write_struct
from ..hardware import Catalogue, load_catalogue
from ..hardware.arithmetic import suspicions
from ..hardware.cards import with_cards
from ..hardware.catalogue import shipped
from ..hardware.listing import (
    TABLES,
    HardwareEntry,
    compared,
    entries,
    find_entry,
    of_its_gpus,
    toml_entry,
    with_accelerators,
)  # fmt: skip
from ..report.consoles import console
from ..report.narrow_tables import show_table
from .prose import say


@click.command("topo", epilog="Example: meshwright topo --from nvidia-smi.txt --gpu h100 --svg topology.svg")
@click.argument("words", nargs=-1)
@click.option(
    "--from",
    "dumps",
    multiple=True,
    metavar="FILE",
    help="Read a saved dump: nvidia-smi, rocm-smi, amd-smi, lstopo, NCCL, SLURM, ...; a copy of /sys. Several complete "
    "each other.",
)
@click.option("--hosts", is_flag=True, help="Each --from is another host, which its file names.")
@click.option(
    "--domain", type=click.IntRange(min=1), metavar="N", help="N nodes such as this one share a domain of GPU links."
)
@click.option("--gpu", metavar="NAME", help="Which accelerator it is, where a dump leaves a rate open.")
@click.option("--catalogue", "from_catalogue", is_flag=True, help="List the catalogue; WORDS filter it.")
@click.option("--compare", is_flag=True, help="With --catalogue: put the entries named by WORDS side by side.")
@click.option("--toml", "as_toml", is_flag=True, help="With --catalogue NAME: print the entry as a file to start from.")
@click.option("--hardware", multiple=True, metavar="FILE", help="A TOML file that extends or overrides the catalogue.")
@click.option("--svg", "svg_file", metavar="FILE", help="Draw the graph into an SVG file.")
@click.option("--save", metavar="FILE", help="Write the cluster to a file that plan and simulate read.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    words: tuple[str, ...],
    dumps: tuple[str, ...],
    hosts: bool,
    domain: int | None,
    gpu: str | None,
    from_catalogue: bool,
    compare: bool,
    as_toml: bool,
    hardware: tuple[str, ...],
    svg_file: str | None,
    save: str | None,
    as_json: bool,
) -> int:
    """Show devices, links, NUMA, bottlenecks and traps of this machine, of a saved dump, or the catalogue."""
    catalogue = load_catalogue(*hardware)
    for suspicion in suspicions(catalogue, shipped()):
        say(f"warning: {suspicion}", err=True)
    if as_toml:
        if not from_catalogue or len(words) != 1:
            raise InputError("--toml: expected together with --catalogue and the name of one entry")
        click.echo(toml_entry(catalogue, words[0]))
        return 0
    if from_catalogue:
        return _compare(catalogue, words, as_json) if compare else _list(catalogue, words, as_json)
    if words and all(os.path.exists(word) for word in words):
        raise InputError(f"{' '.join(words)}: expected {' '.join(f'--from {word}' for word in words)} to read a dump")
    if words or compare:
        raise InputError(f"{' '.join(words) or '--compare'}: expected together with --catalogue")
    if gpu is not None:
        catalogue.accelerator(gpu)
    if hosts and len(dumps) < 2:
        raise InputError("--hosts: expected two or more --from, one a host")
    if dumps:
        cluster = _loaded(dumps, catalogue, gpu, one_machine=not hosts)
    else:
        cluster = surrounding_cluster() or discover(catalogue, gpu)
    if domain is not None:
        cluster = replace(cluster, scale_up_nodes=domain)
    if said := open_domain(cluster, catalogue):
        cluster = replace(cluster, warnings=(*cluster.warnings, said))
    code = _show(cluster, svg_file, save, as_json)
    if dumps:
        return code
    if not as_json:
        for plugin in net_plugins():
            say(f"NCCL net plugin: {plugin.path} ({plugin.what})")
    return code


def _loaded(dumps: Sequence[str], catalogue: Catalogue, gpu: str | None, *, one_machine: bool) -> Cluster:
    """Return the cluster of the dumps; InputError that names the command for a benchmark's output among them."""
    try:
        return load_dumps(dumps, catalogue, gpu, one_machine=one_machine)
    except UnknownDump as error:
        for path in dumps:
            if str(error).startswith(f"{path}: ") and (tools := _measured_by(path)):
                said = f"a table of {tools}, of what links carry and not of what they are"
                raise InputError(f"{path}: this is {said}; meshwright bench --from reads it") from None
        raise


def _measured_by(path: str) -> str:
    """Return the tools whose tables of measurements a file holds, "" for none."""
    try:
        return " and ".join(dict.fromkeys(table.tool for table in read_tables(path)))
    except InputError:
        return ""


def _show(cluster: Cluster, svg_file: str | None, save: str | None, as_json: bool) -> int:
    try:
        if svg_file is not None:
            write_atomic(svg_file, cluster_svg(cluster).encode())
        if save is not None:
            write_struct(save, cluster)
    except OSError as error:
        raise InputError(f"{svg_file or save}: {error.strerror}") from None
    found = analyse(cluster)
    if as_json:
        said = (*found.verdicts, *cluster.warnings)
        click.echo(to_json(wire_form(replace(cluster, warnings=said))))
        return 0
    for number, line in enumerate(draw(cluster, found).split("\n")):
        if number == 0 or line.startswith("! "):  # sentences; the rest stands in columns
            say(line)
        else:
            click.echo(line)
    return 0


def _list(catalogue: Catalogue, words: Sequence[str], as_json: bool) -> int:
    found = entries(catalogue, words)
    if not {*words} & {*TABLES}:
        found = with_accelerators(catalogue, found)
    if not found:
        raise InputError(
            f"nothing in the catalogue matches {' '.join(words)!r} (kinds of entries: {', '.join(TABLES)})"
        )
    if as_json:
        click.echo(to_json(found))
        return 0
    shown = console()
    for name in TABLES:
        rows = [entry for entry in found if entry.table == name]
        if rows:
            show_table(shown, _table(name, rows))
    return 0


def _table(name: str, rows: Sequence[HardwareEntry]) -> Table:
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
    known = {word: with_cards(catalogue, word) for word in words}
    chosen = [of_its_gpus(known[word], find_entry(known[word], word)) for word in words]
    if as_json:
        click.echo(to_json(chosen))
        return 0
    table = Table(title="compared with the first", title_justify="left")
    table.add_column("figure")
    for entry in chosen:
        table.add_column(entry.name)
    for key, cells in compared(chosen):
        table.add_row(key, *cells)
    show_table(console(), table)
    return 0
