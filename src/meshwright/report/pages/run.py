"""From a run folder to its comparison and its page."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from ...bench.pace import drifted
from ...cluster.graph import Cluster, Pace
from ...machine_load import busy_words
from ...timeline import Performance
from ...train.run.events import Event, read_events
from ...train.run.run_folder import RunFolder
from ...units import format_time
from ..blame import blame
from ..compare import PartComparison, compare_parts
from ..document import Cell, Figure, Lines, Page, Section, section, table
from ..figures import curve_figure, memory_figure, parts_figure
from ..lanes import lanes_figure, on_every_rank
from ..late_ranks import late_ranks
from ..links import LinkUse, cluster_drawing, link_descriptions, link_uses, links_table, specs_of
from ..page import write_page
from ..paths import Paths
from ..ranks import RankUse, ranks_table, stragglers, uses_of_run
from ..run_header import run_section
from ..sections import alternatives_section, caveats_section, comparison_table, layout_section

MAX_EVENTS = 200
Rows = Sequence[dict[str, float]]


def report(folder: RunFolder) -> PartComparison:
    """Write report.html and report.json of a run and return predicted beside measured; InputError if it has no end."""
    comparison, page = run_page(folder)
    write_page(folder.report, page)
    return comparison


def run_page(folder: RunFolder) -> tuple[PartComparison, Page]:
    """Return predicted beside measured of a run, and its page."""
    plan, measured = folder.plan(), folder.measured()
    timelines = {"predicted": folder.timeline("predicted"), "measured": folder.timeline("measured")}
    ranks = {span.rank for span in timelines["measured"].spans}
    predicted = on_every_rank(timelines["predicted"], plan.layout, ranks)
    hosts, cluster, loads = folder.hosts(), folder.cluster(), folder.loads()
    paths, specs = (
        Paths(plan.layout, hosts, folder.switches()),
        specs_of(cluster, hosts.values(), folder.networks()),
    )
    uses = uses_of_run(folder.rank_parts(), timelines["measured"])
    where = blame(plan.predicted, measured, timelines["predicted"], timelines["measured"], paths, uses)
    beside = "; ".join(filter(None, (busy_words(loads), _pace_words(cluster, len(hosts), folder.pace()))))
    comparison = compare_parts(plan.predicted, measured, where=where, beside=beside)
    events = read_events(folder.events)
    late = late_ranks(events, timelines["measured"], measured.step_time_s, folder.rank_parts(), folder.steps_of_parts())
    if late:
        comparison = msgspec.structs.replace(comparison, verdict=f"{comparison.verdict}; {late}")
    rows = folder.metric_rows()
    sections = (
        run_section(folder, plan, cluster, hosts, rows, loads),
        _beside(comparison, plan.predicted, measured),
        section("Timeline", lanes_figure({**timelines, "predicted": predicted}, told=link_descriptions(paths, specs))),
        section("Loss and throughput", *curves({"": rows})),
        _ranks(folder, uses, plan.predicted),
        _events(events),
        _links(link_uses(timelines["measured"], paths, specs), hosts),
        layout_section(plan),
        alternatives_section(plan),
        caveats_section(plan.predicted),
    )
    kept = tuple(part for part in sections if part is not None)
    return comparison, Page(title=folder.path.resolve().name, verdict=comparison.verdict, sections=kept)


def _pace_words(cluster: Cluster, ranks: int, at_end: Pace | None) -> str:
    """Return how much slower or faster a machine was at the end of a run than at the calibration that it was priced by.

    "" where it was as fast, or that is not known.
    """
    conditions = cluster.measured.conditions if cluster.measured else ()
    then = next((one.pace for one in conditions if one.ranks == ranks), None)
    found = drifted(then, at_end) if then and at_end else None
    return f"{found[0]} took {found[1]:.2f} times as long at the end of the run as at the calibration" if found else ""


def _beside(comparison: PartComparison, predicted: Performance, measured: Performance) -> Section | None:
    bars = parts_figure({"predicted": predicted, "measured": measured})
    return section("Predicted beside measured", comparison_table(comparison), bars)


def curves(runs: dict[str, Rows]) -> list[Figure | None]:
    """Return what the rows of one or more runs hold over the steps; what only asynchronous runs have, where it is."""
    return [
        curve_figure(
            "Loss", series(runs, "loss", "training") | series(runs, "validation_loss", "held out"), "nats per token"
        ),
        curve_figure("Gradient norm", series(runs, "grad_norm", "before clipping"), "norm of all gradients"),
        curve_figure("Learning rate", series(runs, "learning_rate", ""), "learning rate"),
        curve_figure("Throughput", series(runs, "tokens_per_s", "tokens/s"), "tokens/s of all ranks"),
        curve_figure(
            "Staleness of the gradients",
            series(runs, "staleness_mean", "mean") | series(runs, "staleness_max", "largest"),
            "steps",
        ),
        curve_figure("Workers", series(runs, "workers", "workers"), "that took part"),
        curve_figure("Bytes that workers and servers moved", series(runs, "moved_bytes", "bytes"), "bytes a step"),
    ]


def series(runs: dict[str, Rows], key: str, label: str) -> dict[str, tuple[list[float], list[float]]]:
    """Return {name: (steps, values)} of the rows that have `key`."""
    found = {}
    for name, rows in runs.items():
        having = [row for row in rows if key in row]
        found[f"{name} {label}".strip()] = [row["step"] for row in having], [row[key] for row in having]
    return found


def _ranks(folder: RunFolder, uses: Sequence[RankUse], predicted: Performance) -> Section | None:
    staged = any(use.parts_s["bubble"] for use in uses)  # stages differ by their layers
    slow = [] if staged else stragglers(uses)
    said = Lines(tuple(slow), title="Stragglers") if slow else None
    memory = memory_figure(predicted.peak_memory_bytes_per_gpu, folder.rank_memory())
    return section("Ranks", said, memory, ranks_table(uses))


def _events(events: Sequence[Event]) -> Section | None:
    """Return what happened to the run: failures, restarts, slow ranks and links, storage, stops."""
    if not events:
        return None
    counts = Counter(event.kind.replace("_", " ") for event in events)
    said = ", ".join(f"{count} x {kind}" for kind, count in counts.most_common())
    first_s = events[0].time_s
    rows = [
        [
            Cell(format_time(event.time_s - first_s), event.time_s),
            Cell(event.kind.replace("_", " ")),
            Cell("" if event.step is None else str(event.step), event.step),
            Cell("" if event.culprit is None else str(event.culprit), event.culprit),
            Cell(event.host),
            Cell(event.message),
        ]
        for event in events[:MAX_EVENTS]
    ]
    left_out = len(events) - len(rows)
    note = f"{left_out} later events are not shown" if left_out else ""
    columns = ("after", "what", "step", "rank", "host", "message")
    return section("Events", table(columns, rows, title=said, sortable=True, note=note))


def _links(uses: Sequence[LinkUse], hosts: Mapping[int, str]) -> Section | None:
    return section("Cluster and links", cluster_drawing(uses, hosts), links_table(uses))
