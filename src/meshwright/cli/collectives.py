"""`meshwright collectives`: list, show, verify, price, draw, export and import schedules."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from ..collectives.algorithms.uneven import read_counts, uneven_all_to_all
from ..collectives.catalogue import algorithm_names, build_schedule, describe_algorithm
from ..collectives.msccl.exporter import to_msccl_xml
from ..collectives.msccl.file import MAX_FILE_BYTES, read_algo
from ..collectives.msccl.flight import HELD, flight
from ..collectives.msccl.limits import LIMITS, kept_apart
from ..collectives.msccl.write import write_algo
from ..collectives.mscclpp.exporter import runtime_fault, to_mscclpp
from ..collectives.pricing.figures import figures
from ..collectives.pricing.network import HostsNetwork, LinkRate, Network, network_of, uniform
from ..collectives.pricing.price import CollectivePrice, price_schedule
from ..collectives.proof.bitwise import leaves_equal_bits
from ..collectives.proof.verify import ScheduleError, verify
from ..collectives.schedules.draw import draw_svg, draw_text
from ..collectives.schedules.schedule import COLLECTIVES, ROOTED, Schedule
from ..collectives.sources import named_schedule, read_schedule
from ..errors import InputError
from ..files import read_text, to_json, write_atomic
from ..units import counted, format_rate, format_time, parse_bytes, parse_latency, parse_rate
from .amounts import CollectiveName
from .collectives_nccl import price_like
from .collectives_trips import round_trips
from .help_format import Brief, Listing
from .named_cluster import listed_network, named_cluster, unjoined_notes, unknown_latencies
from .prose import say
from .unproved import note_unproved

F = TypeVar("F", bound=Callable[..., Any])
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
COLLECTIVE = click.option(
    "--collective",
    type=CollectiveName(COLLECTIVES),
    metavar="NAME",
    help="Default: all_reduce. `collectives list` has the others.",
)

COUNTS = click.option(
    "--counts",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="For all_to_all: a row a rank, what it sends to each (text, CSV, .json).",
)


def one_schedule(function: F) -> F:
    """Add the options that name one schedule."""
    for option in reversed(
        (
            click.argument("name", required=False),
            click.option("--ranks", metavar="N", type=click.IntRange(min=1), help="Number of ranks."),
            COLLECTIVE,
            click.option("--root", metavar="N", type=int, help="Root, or sender. Default: 0."),
            click.option("--target", metavar="N", type=int, help="Receiver of a send or signal."),
            click.option(
                "--ranks-per-node", metavar="N", type=click.IntRange(min=1), help="For hierarchical algorithms."
            ),
            click.option(
                "--xml", metavar="FILE", type=click.Path(path_type=Path), help="An MSCCL XML file instead of NAME."
            ),
            click.option(
                "--file",
                metavar="FILE",
                type=click.Path(path_type=Path),
                help="A schedule as text or .json, or an MSCCL++ plan (.json), instead.",
            ),
            COUNTS,
        )
    ):
        function = option(function)
    return function


@click.group(
    name="collectives",
    cls=Listing,
    epilog="Example: meshwright collectives draw hierarchical --ranks 8 --svg picture.svg",
)
def command() -> None:
    """Work with collective algorithms as data. NAME is an algorithm (see `list`) or FILE.py:FUNCTION."""


@command.command("list", epilog="Example: meshwright collectives list --collective all_gather")
@COLLECTIVE
@JSON
def list_(collective: str | None, as_json: bool) -> int:
    """List the algorithms of every collective."""
    rows = [
        {"collective": kind, "name": name, "description": describe_algorithm(kind, name)}
        for kind in ([collective] if collective else COLLECTIVES)
        for name in algorithm_names(kind)
    ]
    if as_json:
        click.echo(to_json(rows))
    else:
        for row in rows:
            say(f"{row['collective']:<15}{row['name']:<23}{row['description']}", indent=38)
    return 0


@command.command(epilog="Example: meshwright collectives show ring --ranks 4")
@one_schedule
@JSON
def show(as_json: bool, **source: Any) -> int:
    """Print a schedule, round by round, and what it costs in itself."""
    schedule = _noted(**source)
    if as_json:
        click.echo(to_json(schedule))
        return 0
    counted = figures(schedule, source["ranks_per_node"])
    click.echo(str(schedule), nl=False)
    shares = {key: getattr(counted, key) for key in counted.__struct_fields__}
    say(", ".join(f"{key.replace('_', ' ')} {value}" for key, value in shares.items() if value))
    return 0


@command.command("verify", epilog="Example: meshwright collectives verify ring --ranks 8")
@one_schedule
@click.option("--all", "everything", is_flag=True, help="Every algorithm, every root, 1 to --max-ranks ranks.")
@click.option("--max-ranks", type=click.IntRange(min=1), default=64, show_default=True, help="With --all.")
@click.option(
    "--round-trip",
    "trips",
    metavar="PATH",
    multiple=True,
    type=click.Path(path_type=Path),
    help="MSCCL files, or folders: and written again.",
)
@JSON
def verify_(everything: bool, max_ranks: int, trips: tuple[Path, ...], as_json: bool, **source: Any) -> int:
    """Prove a schedule: exit 0 if it is proved, 1 with the first fault if it is not."""
    if trips:
        if everything or any(source[key] is not None for key in ("name", "xml", "file", "counts")):
            raise InputError("--round-trip: names its files itself; expected nothing beside it")
        return round_trips(trips, as_json=as_json)
    if everything:
        if source["counts"] is not None:
            raise InputError("--counts: expected one schedule of all_to_all, not --all of them")
        return _verify_all(max_ranks, as_json)
    schedule = _schedule(**source)
    try:
        proof = verify(schedule)
    except ScheduleError as error:
        if as_json:
            click.echo(to_json({"proved": False, "fault": str(error)}))
        raise
    same_bits = leaves_equal_bits(schedule) if schedule.collective == "all_reduce" else None
    if as_json:
        click.echo(to_json({"proved": True, "same_bits": same_bits} | msgspec.to_builtins(proof)))
        return 0
    of_root = f" of root {schedule.root}" if proof.collective in ROOTED else ""
    say(
        f"proved: {proof.collective} {proof.name}{of_root} on {counted(proof.ranks, 'rank')}, "
        f"{counted(proof.rounds, 'round')}, {counted(proof.transfers, 'transfer')}"
    )
    if same_bits:
        say("a sum in floating point ends with the same bits on all ranks")
    elif same_bits is not None:
        say("ranks sum in orders of their own: in floating point the last bits differ, and replicas drift apart")
    if source["xml"] is not None and source["xml"].suffix != ".json":
        _say_of_file(source["xml"])
    return 0


@command.command(
    "price",
    cls=Brief,
    often=("ranks", "collective", "sizes", "like", "curve", "cluster", "rate", "alpha", "as_json"),
    epilog="Example: meshwright collectives price --like nccl --ranks 16 --bytes 1G --cluster dgx-h100",
)
@one_schedule
@click.option("--bytes", "sizes", metavar="SIZE", required=True, help="Payload: 25MiB, or several with commas.")
@click.option("--like", type=click.Choice(["nccl", "rccl"]), help="The time that this library takes.")
@click.option("--curve", is_flag=True, help="With --like: every power of two up to --bytes.")
@click.option("--cluster", metavar="NAME", help="Node type of the catalogue, or a cluster file: its links are priced.")
@click.option("--rate", metavar="RATE", help="Between any two ranks, or inside a node (10GB/s).")
@click.option("--alpha", metavar="TIME", help="Latency of a message (5us).")
@click.option(
    "--inter",
    metavar="RATE",
    help="Of each NIC (400Gbps); needs --ranks-per-node. With --like and --cluster: of all NICs of a node together.",
)
@click.option("--inter-alpha", metavar="TIME", help="Between nodes. Default: --alpha.")
@click.option("--nics", metavar="N", type=click.IntRange(min=1), help="NICs of a node. Default: 1.")
@JSON
def price_(
    sizes: str, like: str | None, curve: bool, cluster: str | None, rate: str | None, alpha: str | None,
    inter: str | None, inter_alpha: str | None, nics: int | None, as_json: bool, **source: Any,
) -> int:  # fmt: skip
    """Predict times on a cluster's links, or on equal ones; without NAME, of every algorithm of the collective."""
    if like is not None:
        links = {"cluster": cluster, "rate": rate, "alpha": alpha, "inter": inter, "inter_alpha": inter_alpha}
        return price_like(like, {**source, **links, "sizes": sizes}, curve=curve, as_json=as_json)
    if curve:
        raise InputError("--curve: of which library? expected --like nccl or rccl beside it")
    if any(source[key] for key in ("name", "xml", "file")):
        schedules = [_noted(**source)]
    else:
        kind = source["collective"] or "all_reduce"
        keys = {"root": source["root"] or 0, "target": source["target"], "ranks_per_node": source["ranks_per_node"]}
        matrix = read_counts(source["counts"]) if source["counts"] else None
        ranks = source["ranks"] or (len(matrix) if matrix else None)
        schedules = [build_schedule(kind, name, _ranks(ranks), **keys) for name in algorithm_names(kind)]
        schedules = [uneven_all_to_all(schedule, matrix) for schedule in schedules] if matrix else schedules
    ranks = schedules[0].ranks
    network = _network(ranks, source["ranks_per_node"], cluster, rate, alpha, inter, inter_alpha, nics)
    prices = [price_schedule(s, network, parse_bytes(size)) for size in sizes.split(",") for s in schedules]
    if as_json:
        click.echo(to_json(prices))
        return 0
    click.echo(_price_lines(sorted(prices, key=lambda p: (p.bytes, p.time_s))))
    return 0


def _price_lines(prices: Sequence[CollectivePrice]) -> str:
    """Return a line for each price, in columns as wide as what stands in them: names to the left, figures right."""
    rows = [
        (p.collective, p.algorithm, f"{p.bytes} B", format_time(p.time_s), f"{format_rate(p.busbw_bytes_per_s)} busbw")
        for p in prices
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = ("<", "<", ">", ">", ">")
    return "\n".join(
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, aligned, widths, strict=True))
        for row in rows
    )


@command.command(epilog="Example: meshwright collectives draw ring --ranks 4 --svg ring.svg")
@one_schedule
@click.option("--svg", type=click.Path(path_type=Path), help="Write a picture to this file instead.")
@JSON
def draw(svg: Path | None, as_json: bool, **source: Any) -> int:
    """Draw a schedule: rounds by ranks, in the terminal or as SVG."""
    schedule = _noted(**source)
    if svg is not None:
        _write(svg, draw_svg(schedule))
    if as_json:
        click.echo(to_json({"text": draw_text(schedule), "svg": None if svg is None else str(svg)}))
    elif svg is None:
        click.echo(draw_text(schedule), nl=False)
    return 0


@command.command(epilog="Example: meshwright collectives export ring --ranks 8 --output ring.xml")
@one_schedule
@click.option("--output", type=click.Path(path_type=Path), help="File to write. Default: standard output.")
@click.option(
    "--for",
    "runtime",
    type=click.Choice([*sorted(LIMITS), "mscclpp"]),
    help="The runtime: its reader's limits, or its own form.",
)
@JSON
def export(output: Path | None, runtime: str | None, as_json: bool, **source: Any) -> int:
    """Write a schedule as MSCCL XML (--xml keeps its blocks and channels), as a plan of MSCCL++ or as our own JSON."""
    schedule = _schedule(**source)
    verify(schedule)
    if runtime == "mscclpp":
        plan = to_mscclpp(schedule)
        fault = runtime_fault(plan)
        if fault:
            raise InputError(f"{schedule.name}: {runtime} does not take it: {fault}")
        text = json.dumps(plan, indent=1) + "\n"
    elif as_json:
        text = to_json(schedule) + "\n"
    elif source["xml"] is not None and source["xml"].suffix != ".json":
        algo = read_algo(read_text(source["xml"], max_bytes=MAX_FILE_BYTES), where=str(source["xml"]))
        algo = kept_apart(algo) if runtime else algo
        fault = LIMITS[runtime].fault_of(algo) if runtime else ""
        if fault:
            raise InputError(f"{source['xml']}: {runtime} does not take it: {fault}")
        text = write_algo(algo)
    else:
        text = to_msccl_xml(schedule, runtime)
    _write(output, text)
    return 0


@command.command("import", epilog="Example: meshwright collectives import ring.xml --output ring.txt")
@click.argument("xml", type=click.Path(path_type=Path))
@click.option("--output", type=click.Path(path_type=Path), help="File to write. Default: standard output.")
@JSON
def import_(xml: Path, output: Path | None, as_json: bool) -> int:
    """Read MSCCL XML or an MSCCL++ plan, prove it, and print it as a schedule (the text form, or JSON)."""
    schedule = read_schedule(xml)
    verify(schedule)
    _write(output, to_json(schedule) + "\n" if as_json else str(schedule))
    return 0


def _say_of_file(path: Path) -> None:
    """Print what the proof of an XML file does not say: elements without meaning, and what large chunks need."""
    algo = read_algo(read_text(path, max_bytes=MAX_FILE_BYTES), where=str(path))
    if algo.ignored:
        say(f"passed over, as the runtimes do: {', '.join(f'<{name}>' for name in algo.ignored)}")
    needs = flight(algo, HELD[algo.protocol], by_chunk=True)
    if needs is not None:
        say(
            f"note: where a chunk fills a buffer (large sizes) it needs {needs}, and a connection holds "
            f"{HELD[algo.protocol]} with {algo.protocol}: it would wait for ever"
        )


def _noted(**source: Any) -> Schedule:
    """Return the schedule that options name; one of the user's own that is not proved is said to be so."""
    schedule = _schedule(**source)
    if source["xml"] or source["file"] or ".py:" in (source["name"] or ""):
        note_unproved(schedule)
    return schedule


def _schedule(
    name: str | None, ranks: int | None, collective: str | None, root: int | None, target: int | None,
    ranks_per_node: int | None, xml: Path | None, file: Path | None, counts: Path | None,
) -> Schedule:  # fmt: skip
    if counts is not None:
        matrix = read_counts(counts)
        even = _schedule(name, ranks or len(matrix), collective, root, target, ranks_per_node, xml, file, None)
        return uneven_all_to_all(even, matrix)
    if sum(source is not None for source in (name, xml, file)) != 1:
        raise InputError("expected one of NAME, --xml FILE and --file FILE")
    path = xml or file
    if path is None:
        assert name is not None
        keys = {"root": root or 0, "target": target, "ranks_per_node": ranks_per_node}
        return named_schedule(name, _ranks(ranks), collective=collective, **keys)
    schedule = read_schedule(path, root=root)
    if collective is not None and collective != schedule.collective:
        raise InputError(f"{path}: is of {schedule.collective}, --collective says {collective}")
    if ranks is not None and ranks != schedule.ranks:
        raise InputError(f"{path}: is for {counted(schedule.ranks, 'rank')}, --ranks says {ranks}")
    return schedule


def _ranks(ranks: int | None) -> int:
    if ranks is None:
        raise InputError("--ranks: how many? expected a number")
    return ranks


def _verify_all(max_ranks: int, as_json: bool) -> int:
    rows, start = [], time.perf_counter()
    for collective in COLLECTIVES:
        for name in algorithm_names(collective):
            begun, count = time.perf_counter(), 0
            for ranks in range(1, max_ranks + 1):
                for root in range(ranks) if collective in ROOTED else (0,):
                    verify(build_schedule(collective, name, ranks, root=root))
                    count += 1
            row = {
                "collective": collective,
                "name": name,
                "proved": count,
                "time_s": round(time.perf_counter() - begun, 3),
            }
            rows.append(row)
            if not as_json:
                click.echo(f"{collective:<15}{name:<23}{count:>6} proved{row['time_s']:>9} s")
    total = sum(int(str(row["proved"])) for row in rows)
    elapsed = time.perf_counter() - start
    if as_json:
        click.echo(to_json({"proved": total, "time_s": round(elapsed, 3), "algorithms": rows}))
    else:
        say(
            f"{counted(total, 'schedule')} proved, 1 to {counted(max_ranks, 'rank')} and every root, "
            f"in {format_time(elapsed)}"
        )
    return 0


def _network(
    ranks: int, ranks_per_node: int | None, cluster: str | None, rate: str | None, alpha: str | None,
    inter: str | None, inter_alpha: str | None, nics: int | None,
) -> Network:  # fmt: skip
    if (cluster is None) == (rate is None):
        raise InputError("expected one of --cluster NAME and --rate RATE")
    latency_s = None if alpha is None else parse_latency(alpha)
    if inter is None or cluster is not None:
        for flag, said in (("--inter", inter), ("--inter-alpha", inter_alpha), ("--nics", nics)):
            if said is not None:
                raise InputError(f"{flag}: goes with --rate and --inter, the rates inside nodes and of a NIC")
    if cluster is not None:
        from ..simulate.nodes import NodesTopology
        from ..simulate.topology import TopologyNetwork

        found = named_cluster(cluster, ranks)
        for what in unknown_latencies(found) if latency_s is None else ():
            say(f"note: the latency of the {what} is not known: counted as 0 (--alpha gives one)", err=True)
        for note in unjoined_notes(found):
            say(f"note: {note}", err=True)
        if not found.groups:
            return network_of(listed_network(found, is_timed=latency_s is not None), ranks, latency_s=latency_s)
        return TopologyNetwork(NodesTopology(found, ranks), latency_s)
    if latency_s is None:
        raise InputError("--alpha: expected a latency such as 5us beside --rate")
    bandwidth = parse_rate(str(rate))
    if inter is None:
        return uniform(ranks, latency_s, bandwidth)
    if ranks_per_node is None:
        raise InputError("--inter: expected --ranks-per-node too")
    between = LinkRate(latency_s if inter_alpha is None else parse_latency(inter_alpha), parse_rate(inter))
    return HostsNetwork(ranks, ranks_per_node, LinkRate(latency_s, bandwidth), between, nics or 1)


def _write(path: Path | None, text: str) -> None:
    """Write to a file, or to standard output where none is given."""
    if path is None:
        click.echo(text, nl=False)
        return
    try:
        write_atomic(path, text.encode())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
