"""The work of `meshwright bench`: measure or read tables, fit, judge, save, print."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from ..bench.fit import clean_sweep, describe_outliers, fit_sweep
from ..bench.judgement.cluster_links import nodes_of
from ..bench.judgement.spec import link_spec, node_spec
from ..bench.judgement.verdict import Spec, sweep_verdict
from ..bench.pairs import Pair
from ..bench.plot import plot_svg
from ..bench.reading import ReadTable
from ..bench.run import Measurement, measure_compute, measure_fusion, measure_memory, measure_pairs, measure_sweeps
from ..bench.save_fits import fit_of_pairs, save_fits, with_gpu_rates
from ..bench.sweep import COLLECTIVES, sizes_between
from ..bench.table import Row, csv_text, print_rows, row_form
from ..cluster.builders import catalogue_cluster
from ..cluster.discovery.discover import discover
from ..cluster.graph import Cluster, CollectiveFit, NodeGroup
from ..errors import InputError, nearest
from ..files import to_json, write_atomic
from ..hardware import Catalogue, load_catalogue
from ..units import format_bytes, format_time, parse_bytes, parse_time
from .amounts import collective_named
from .bench_from import Judged, judged_tables, print_judged, verdict_notes
from .named_cluster import named_cluster
from .prose import say

Tables = list[tuple[str, list[Row], CollectiveFit | None]]
SPECIAL = ("p2p", "latency", "compute", "memory")


def bench(
    *,
    what: tuple[str, ...],
    backend: str,
    ranks: int,
    smallest: str,
    largest: str,
    factor: int,
    budget: str,
    dtype: str,
    source: str | None,
    node: str | None,
    link: str | None,
    nics: int | None,
    cluster_name: str | None,
    hardware: tuple[str, ...],
    save: str | None,
    plot: str | None,
    html: str | None,
    as_csv: bool,
    as_json: bool,
    read: Sequence[ReadTable],
) -> int:
    """Measure, print and save as the options of the command say; return the exit code. `read` is what `source` has."""
    catalogue = load_catalogue(*hardware)
    names = [collective_named(name, (*COLLECTIVES, *SPECIAL)) for name in what or ("all_reduce",)]
    _check(names, ranks)
    if node:
        catalogue.node(node)
    found: list[Judged] = []
    nodes = _nodes(cluster_name, source, node, link, nics, catalogue)
    if source is not None:
        node = node if nodes is None else nodes.type or None
        found = judged_tables(read, catalogue, node, link, nics, nodes)
        tables = [(one.table.name, one.rows, _fit_of(one)) for one in found if one.rows]
        notes = [*_fit_notes(tables), *(note for one in found for note in verdict_notes(one))]
        cluster = catalogue_cluster(catalogue, node) if node else Cluster(name=source)
    else:
        cluster = discover(catalogue)
        special = [name for name in names if name in SPECIAL]
        if special and len(names) > 1:
            raise InputError(f"{special[0]} is measured alone, not together with {len(names) - 1} others")
        if special:
            return _special(special[0], catalogue, cluster, backend, ranks, parse_bytes(largest), save, as_json)
        sizes = sizes_between(parse_bytes(smallest), parse_bytes(largest), factor)
        measured = measure_sweeps(names, backend, ranks, sizes, dtype, parse_time(budget), catalogue, cluster)
        if measured is None:  # under torchrun, not rank 0
            return 0
        tables = [(name, rows, _fit(rows, measured.busy_share)) for name, rows in measured.tables.items()]
        chosen = [_chosen_spec(catalogue, node, link, rows[0].ranks or 1) or measured.spec for _, rows, _ in tables]
        notes = [*_beside_notes(measured.beside), *_notes(tables, chosen)]
    _write(tables, notes, plot, html)
    fits = [fit for _, _, fit in tables if fit is not None]
    if save:
        _save(save, cluster, fits)
    if source is not None:
        print_judged(found, notes, as_csv=as_csv, as_json=as_json)
    else:
        _print(tables, notes, as_csv, as_json)
    return _code(tables, found)


def _code(tables: Tables, found: Sequence[Judged]) -> int:
    """Return 1 where results are wrong or the verdict on a table of a file is bad."""
    wrong = any(row.wrong for _, rows, _ in tables for row in rows) or any(one.table.wrong for one in found)
    return 1 if wrong or any(one.verdict.ok is False for one in found) else 0


def _nodes(
    cluster: str | None, source: str | None, node: str | None, link: str | None, nics: int | None, catalogue: Catalogue
) -> NodeGroup | None:
    """Return the nodes that `--cluster` names for a table of `--from`; None without it."""
    if nics is not None and source is None:
        raise InputError("--nics: of a table that was saved; expected --from FILE beside it")
    if cluster is None:
        return None
    if source is None or node:
        raise InputError("--cluster: the nodes that a table was measured on; expected --from FILE beside it, no --node")
    return nodes_of(named_cluster(cluster, None), catalogue, link, cluster)


def _save(path: str, cluster: Cluster, fits: Sequence[CollectiveFit]) -> None:
    if not fits:
        raise InputError("--save: no table has the two sizes or more that a fit needs")
    save_fits(path, cluster, fits)


def _check(names: Sequence[str], ranks: int) -> None:
    """Raise InputError for what cannot be measured."""
    for name in names:
        if name not in (*COLLECTIVES, *SPECIAL):
            if os.path.isfile(name):
                raise InputError(f"{name}: is a file; expected --from {name} to read a table that was saved")
            raise InputError(f"{name}: nothing to measure ({nearest(name, (*COLLECTIVES, *SPECIAL))})")
    if ranks < 1 or ranks > 1024:
        raise InputError(f"--ranks {ranks}: expected 1 to 1024")


def _fit_of(one: Judged) -> CollectiveFit | None:
    """Return the fit of a table of a file, None too where its times are no call's alone, or nothing was sent."""
    return None if one.table.unjudged or one.table.alone else _fit(one.rows)


def _fit(rows: Sequence[Row], busy_share: float = 0.0) -> CollectiveFit | None:
    """Return the fit; None for fewer than two sizes (glitches left out), several kinds of rows or unknown ones."""
    kinds = {(row.collective, row.backend, row.ranks, row.dtype) for row in rows}
    if (
        len(kinds) != 1
        or rows[0].collective is None
        or rows[0].ranks is None
        or len(set(clean_sweep([row for row in rows if row.bytes]).sizes_bytes)) < 2
    ):
        return None
    return fit_sweep(rows, busy_share=busy_share)


def _chosen_spec(catalogue: Catalogue, node: str | None, link: str | None, ranks: int) -> Spec | None:
    if link is not None:
        return link_spec(catalogue, link)
    return node_spec(catalogue, node, ranks) if node else None


def _fit_notes(tables: Tables) -> list[str]:
    """Return the fits with their bands, and the sizes that were left out."""
    notes = []
    for name, rows, fit in tables:
        if fit is not None:
            notes.append(f"{name}: {describe_fit(fit)}")
            notes += [f"{name}: {words}: left out" for words in describe_outliers(rows)]
        elif rows and rows[0].collective is not None and len({row.bytes for row in rows if row.bytes}) == 1:
            notes.append(f"{name}: no fit of alpha and beta: one size; two or more tell the start from the rate")
    return notes


def _notes(tables: Tables, specs: Sequence[Spec | None]) -> list[str]:
    """Return what follows the tables that were measured: fits, glitches, verdicts."""
    notes = _fit_notes(tables)
    for (name, rows, _), spec in zip(tables, specs, strict=True):
        if spec is None:
            notes.append(f"{name}: verdict: none, say with --node or --link which hardware it ran on")
        else:
            notes.append(f"{name}: verdict: {sweep_verdict(rows, spec)}")
    return notes


def _beside_notes(beside: str) -> list[str]:
    return [f"{beside}: what was measured is what they left; measure again on a quiet machine"] if beside else []


def describe_fit(fit: CollectiveFit) -> str:
    """Return a fit in one line: constants with their 90 % bands, crossover, errors."""
    assert fit.alpha_band_s is not None
    assert fit.beta_band_s_per_byte is not None
    (a0, a1), (b0, b1) = fit.alpha_band_s, fit.beta_band_s_per_byte
    crossover = f", crossover {format_bytes(fit.crossover_bytes)}" if fit.crossover_bytes else ""
    line = (
        f"alpha {format_time(fit.alpha_s)} ({format_time(a0)} to {format_time(a1)}), beta "
        f"{fit.beta_s_per_byte * 1e9:.4g} ns/B ({b0 * 1e9:.4g} to {b1 * 1e9:.4g}){crossover}, "
        f"largest error {100 * fit.residual:.0f} %"
    )
    curve = f"; curve of 5 constants: largest error {100 * fit.curve_residual:.1f} %" if fit.curve else ""
    return line + curve + ("; between the measured sizes, times are interpolated" if fit.points else "")


def _write(tables: Tables, notes: Sequence[str], plot: str | None, html: str | None) -> None:
    drawn = [(name, [row for row in rows if row.bytes], fit) for name, rows, fit in tables]
    drawn = [item for item in drawn if item[1]]
    if not drawn and (plot is not None or html is not None):
        raise InputError(f"{'--plot' if plot is not None else '--html'}: no table has sizes and times to draw")
    if plot is not None:
        try:
            write_atomic(plot, plot_svg(drawn).encode())
        except OSError as error:
            raise InputError(f"{plot}: {error.strerror}") from None
    if html is not None:
        from ..report.page import write_page
        from ..report.pages.bench import bench_page

        write_page(Path(html), bench_page(drawn, notes))


def _print(tables: Tables, notes: Sequence[str], as_csv: bool, as_json: bool) -> None:
    every = [row for _, rows, _ in tables for row in rows]
    if as_json:
        for row in every:
            click.echo(to_json(row_form(row)))
    elif as_csv:
        click.echo(csv_text(every), nl=False)
    else:
        for name, rows, _ in tables:
            click.echo(f"# {name}: {rows[0].backend}, ranks {rows[0].ranks}\n{print_rows(rows)}")
    for note in notes:
        say(f"# {note}", err=as_json or as_csv)


def _special(
    name: str,
    catalogue: Catalogue,
    cluster: Cluster,
    backend: str,
    ranks: int,
    largest_bytes: int,
    save: str | None,
    as_json: bool,
) -> int:
    """Run one of the measurements that are no collective; each returns text, objects, and a verdict."""
    if save and name != "p2p":
        raise InputError(f"--save: {name} gives nothing that a cluster file holds; expected collectives or p2p")
    size_bytes = min(largest_bytes, 4 * 2**20)
    measures: dict[str, Callable[[], Measurement | None]] = {
        "p2p": lambda: measure_pairs(catalogue, cluster, backend, ranks, size_bytes),
        "latency": lambda: measure_fusion(cluster, backend, ranks),
        "compute": lambda: measure_compute(catalogue, cluster),
        "memory": lambda: measure_memory(cluster),
    }
    measured = measures[name]()
    if measured is None:
        return 0
    if save:
        pairs = [item for item in measured.objects if isinstance(item, Pair)]
        base = with_gpu_rates(cluster, pairs) if backend == "nccl" else cluster
        save_fits(save, base, [fit_of_pairs(pairs, backend, size_bytes)])
    if as_json:
        for item in measured.objects:
            click.echo(to_json(item))
    else:
        click.echo(measured.text)
    for note in (*_beside_notes(measured.beside), f"verdict: {measured.verdict}"):
        say(f"# {note}", err=as_json)
    return 0
