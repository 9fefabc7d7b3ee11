"""Traffic of the links in a step against their capacity: a table, and the cluster drawn in those colours."""

import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

import msgspec

from ..cluster.graph import Cluster
from ..collectives.pricing.figures import bus_factor
from ..timeline import PEER, Interval, Span, Timeline, length_s
from ..units import format_bytes, format_network_rate, format_rate, format_time
from .document import Cell, Drawing, Table, table
from .paths import Paths
from .waits import without_waits

MAX_HOSTS, MAX_RANKS_DRAWN = 32, 16
BOX, GAP, ROW = 150, 14, 34
SICK_SHARE, SLOW_SHARE = 0.25, 0.5  # of what a link can
LONG_MESSAGE_S = 1e-3  # at the rate of the spec: latency is little of it


class Specs(msgspec.Struct, frozen=True):
    """Capacities of links, in bytes per second and direction; None where that is not known."""

    inside: float | None  # of one rank to the others of its host
    inside_name: str
    network: dict[str, float]  # of all NICs of a host, by host


class LinkUse(msgspec.Struct, frozen=True, kw_only=True):
    """One link in a step: what it carried one way, while it was busy, and what it can carry."""

    host: str
    rank: int | None  # None for the network of a whole host
    bytes: float
    busy_s: float
    held_s: float  # of `busy_s`: in collectives that cross the network too, which holds them up
    step_s: float
    spec_bytes_per_s: float | None
    spec: str
    message_bytes: float = 0.0  # of one communication, on average

    @property
    def name(self) -> str:
        """The name of the link."""
        return f"network of {self.host}" if self.rank is None else f"rank {self.rank}"

    @property
    def rate_bytes_per_s(self) -> float:
        """Rate while the link was busy, from the moment at which all ranks of a communication had come."""
        return self.bytes / self.busy_s if self.busy_s else 0.0

    @property
    def rate(self) -> str:
        """The rate as text, between hosts in Gb/s."""
        return self.text_of(self.rate_bytes_per_s)

    @property
    def share_of_spec(self) -> float | None:
        """Rate over what the link can, None where that is not known."""
        return self.rate_bytes_per_s / self.spec_bytes_per_s if self.spec_bytes_per_s else None

    @property
    def share_of_step(self) -> float:
        """Share of the step during which the link was busy."""
        return self.busy_s / self.step_s if self.step_s else 0.0

    def text_of(self, bytes_per_s: float) -> str:
        """Return a rate of this link as text."""
        return (format_network_rate if self.rank is None else format_rate)(bytes_per_s)


def specs_of(cluster: Cluster, hosts: Collection[str], networks: Mapping[str, float]) -> Specs:
    """Return what the links of a cluster can; `networks` are rates of hosts that their ranks have read themselves."""
    rates: dict[str, float] = defaultdict(float)
    for nic in cluster.of_kind("nic"):
        rates[nic.node] += nic.network_bandwidth_bytes_per_s or 0.0
    of_group = cluster.groups[0].node_bandwidth_bytes_per_s if cluster.groups else 0.0
    network = {host: networks.get(host) or rates.get(host) or of_group for host in sorted({*hosts})}
    return Specs(*_inside(cluster), {host: rate for host, rate in network.items() if rate})


def _inside(cluster: Cluster) -> tuple[float | None, str]:
    """Return the bandwidth and the kind of a rank's intra-host link."""
    own = [link for link in cluster.links if link.kind.startswith(("NV", "xGMI")) and link.bandwidth_bytes_per_s]
    if own:
        return min(link.bandwidth_bytes_per_s or 0.0 for link in own), own[0].kind
    if cluster.groups:
        return cluster.groups[0].gpu_bandwidth_bytes_per_s, cluster.groups[0].gpu_link
    measured = cluster.measured.memory_bandwidth_bytes_per_s if cluster.measured else None
    return measured, "memory copy, measured" if measured else "not known"


def link_descriptions(paths: Paths, specs: Specs) -> Callable[[Span], str]:
    """Return what a reader sees of the link that a span takes: "network node0-node1, 1 Gb/s"; "" where not known."""

    def told(span: Span) -> str:
        hosts = paths.hosts(span)
        if len(hosts) > 1:
            rates = [specs.network[host] for host in hosts if host in specs.network]
            return f"network {hosts[0]}-{hosts[-1]}" + (f", {format_network_rate(min(rates))}" if rates else "")
        if not hosts:
            return ""
        return f"inside {hosts[0]}" + (f", {format_rate(specs.inside)} {specs.inside_name}" if specs.inside else "")

    return told


@dataclass(slots=True)
class _Carried:
    """The traffic of one link in one step."""

    left_bytes: float = 0.0
    came_bytes: float = 0.0
    busy: list[Interval] = field(default_factory=list)
    held: list[Interval] = field(default_factory=list)

    @property
    def message_bytes(self) -> float:
        """Mean bytes of one communication."""
        return max(self.left_bytes, self.came_bytes) / max(1, len(self.busy))

    def add(self, span: Span, left_bytes: float, came_bytes: float, *, held: bool = False) -> None:
        self.left_bytes += left_bytes
        self.came_bytes += came_bytes
        self.busy.append((span.start_s, span.end_s))
        if held:
            self.held.append((span.start_s, span.end_s))


def link_uses(timeline: Timeline, paths: Paths, specs: Specs) -> list[LinkUse]:
    """Return the links of every rank inside its host, then the network of every host: medians over the steps."""
    steps: dict[int, list[Span]] = defaultdict(list)
    for span in timeline.spans:
        steps[span.step].append(span)
    found: dict[tuple[str, int | None], list[_Carried]] = defaultdict(list)
    for spans in steps.values():
        for key, carried in _carried(without_waits(spans, paths), paths).items():
            found[key].append(carried)
    step_s = (
        statistics.median(max(s.end_s for s in spans) - min(s.start_s for s in spans) for spans in steps.values())
        if steps
        else 0.0
    )
    uses = []
    for (host, rank), seen in sorted(found.items(), key=lambda item: (item[0][1] is None, item[0][1] or 0, item[0][0])):
        spec = specs.network.get(host) if rank is None else specs.inside
        uses.append(
            LinkUse(
                host=host,
                rank=rank,
                bytes=statistics.median(max(one.left_bytes, one.came_bytes) for one in seen),
                busy_s=statistics.median(length_s(one.busy) for one in seen),
                held_s=statistics.median(length_s(one.held) for one in seen),
                step_s=step_s,
                spec_bytes_per_s=spec,
                spec=("all NICs" if spec else "not known") if rank is None else specs.inside_name,
                message_bytes=statistics.median(carried.message_bytes for carried in seen),
            )
        )
    return uses


def _carried(spans: Sequence[Span], paths: Paths) -> dict[tuple[str, int | None], _Carried]:
    """Return what the links carried in one step, by host and rank (None: the host's network).

    Of a collective over several hosts, a host's network carries what it must at least (each part reduced or gathered
    inside the host before it leaves), and so does a rank's link inside. What joins unknown ranks is left out, unless
    there is but one host.
    """
    found: dict[tuple[str, int | None], _Carried] = defaultdict(_Carried)
    for span in spans:
        joined = paths.joined(span) if span.bytes else {}
        host, hosts = paths.host(span.rank), len(joined)
        if span.bytes and paths.stays(span):  # a parameter server's traffic, say
            size = span.bytes * bus_factor(span.name, group_ranks(span, len(paths.ranks)))
            found[host, span.rank].add(span, size, size)
            continue
        here = joined.get(host, ())
        if peer := PEER.fullmatch(span.detail) if joined else None:
            left, came = (span.bytes, 0) if peer["way"] == "to" else (0, span.bytes)
            found[host, None if hosts > 1 else span.rank].add(span, left, came)
            continue
        if len(here) > 1:
            size = span.bytes * bus_factor(span.name, len(here))
            found[host, span.rank].add(span, size, size, held=hosts > 1)
        if hosts > 1 and here[:1] == (span.rank,):
            copies = len(here) if span.name == "all_to_all" else 1  # every rank has other data for each
            size = span.bytes * bus_factor(span.name, hosts) * copies
            found[host, None].add(span, size, size)
    return found


def group_ranks(span: Span, otherwise: int) -> int:
    """Return how many ranks took part in a collective: what its detail says ("8 ranks of tp"), or `otherwise`."""
    said = re.match(r"(\d{1,9}) ranks", span.detail)
    return max(1, int(said.group(1))) if said else otherwise


def bus_rate_bytes_per_s(spans: Sequence[Span], ranks: int) -> float:
    """Return the bus bandwidth (as nccl-tests define it) of collectives over `ranks` ranks; 0 without bytes."""
    known = [span for span in spans if span.bytes and span.end_s > span.start_s]
    busy_s = sum(span.end_s - span.start_s for span in known)
    return sum(span.bytes * bus_factor(span.name, ranks) for span in known) / busy_s if busy_s else 0.0


def links_table(uses: Sequence[LinkUse]) -> Table | None:
    """Return the links with their use and percent of spec, sortable."""
    if not uses:
        return None
    columns = ("link", "host", "carried one way", "busy", "of the step", "rate while busy", "of spec", "spec")
    rows = [
        [
            Cell(use.name),
            Cell(use.host),
            Cell(format_bytes(use.bytes), use.bytes),
            Cell(format_time(use.busy_s), use.busy_s),
            Cell(f"{use.share_of_step:.0%}", use.share_of_step),
            Cell(use.rate, use.rate_bytes_per_s),
            Cell("", "") if use.share_of_spec is None else Cell(_percent(use.share_of_spec), use.share_of_spec),
            Cell(use.text_of(use.spec_bytes_per_s), use.spec_bytes_per_s) if use.spec_bytes_per_s else Cell(""),
        ]
        for use in uses
    ]
    note = (
        "per direction; bytes as nccl-tests count the bus: 2(n-1)/n of the payload for an all-reduce over the n ranks "
        "of a host, and over the n hosts on their network, which is the least that it carries; waiting for ranks that "
        "come later is left out; spec: " + ", ".join(dict.fromkeys(use.spec for use in uses))
    )
    return table(columns, rows, title="Links in a step", sortable=True, note=note)


def cluster_drawing(uses: Sequence[LinkUse], hosts: Mapping[int, str]) -> Drawing | None:
    """Draw hosts, ranks and their links: width by use of the step, in colour what is slow."""
    names = sorted(set(hosts.values()))[:MAX_HOSTS]
    if not names:
        return None
    by_name = {(use.host, use.rank): use for use in uses}
    body: list[str] = []
    x, bus = GAP, 2 * ROW + 26
    for name in names:
        ranks = sorted(rank for rank, host in hosts.items() if host == name)
        shown = ranks[:MAX_RANKS_DRAWN]
        width = max(2 * BOX, len(shown) * (BOX + GAP) + GAP)
        if len(names) > 1:
            body += _line(by_name.get((name, None)), x + width // 2, 34, x + width // 2, 56)
        body.append(_box(x, 56, width, bus + 20, "host"))
        more = f" ({len(ranks) - len(shown)} more ranks)" if len(ranks) > len(shown) else ""
        body.append(f'<text x="{x + 8}" y="74">{escape(name + more)}</text>')
        body.append(f'<line x1="{x + 8}" y1="{bus}" x2="{x + width - 8}" y2="{bus}" class="bus"/>')
        for i, rank in enumerate(shown):
            left = x + GAP + i * (BOX + GAP)
            body += _line(by_name.get((name, rank)), left + BOX // 2, bus, left + BOX // 2, bus + 34)
            body.append(_box(left, bus + 34, BOX, 28, "rank"))
            body.append(f'<text x="{left + 8}" y="{bus + 53}">rank {rank}</text>')
        x += width + GAP
    if len(names) > 1:
        body.insert(
            0, f'<line x1="{GAP}" y1="34" x2="{x - GAP}" y2="34" class="bus"/><text x="{GAP}" y="26">network</text>'
        )
    top = 0 if len(names) > 1 else 56 - GAP  # a single host has no network above it
    height = 56 + bus + 20 + GAP - top
    style = (
        "<style>.host{fill:none;stroke:#8888}.rank{fill:#8882;stroke:#888}.bus{stroke:#8888;stroke-width:3}"
        "svg text{fill:currentColor;font:12px sans-serif}</style>"
    )
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 {top} {x} {height}" width="{x}" height="{height}" '
        f'role="img">{style}{"".join(body)}</svg>'
    )
    left_out = len(set(hosts.values())) - len(names)
    note = (
        f"thicker: busy for more of the step; red and amber: under {SICK_SHARE:.0%} and {SLOW_SHARE:.0%} of what the "
        f"link can, in messages that would take it {format_time(LONG_MESSAGE_S)} or more; blue: held up by the network"
    )
    return Drawing(title="Cluster", svg=svg, note=note + (f"; {left_out} more hosts are not drawn" if left_out else ""))


def _box(x: int, y: int, width: int, height: int, kind: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" class="{kind}"/>'


def _line(use: LinkUse | None, x1: int, y1: int, x2: int, y2: int) -> list[str]:
    if use is None:
        return [f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#8888"/>']
    share = use.share_of_spec
    rate, percent = use.rate, "" if share is None else f"{_percent(share)} of spec"
    told = [f"{format_bytes(use.bytes)} one way", rate, percent, f"busy {_percent(use.share_of_step)} of the step"]
    title = f"{use.name}: {', '.join(part for part in told if part)}"
    middle = (y1 + y2) // 2 + (4 if share is None else -2)
    return [
        f'<g><title>{escape(title)}</title><line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{_colour(use)}" '
        f'stroke-width="{2 + 8 * min(1.0, use.share_of_step):.1f}"/>'
        f'<text x="{x1 + 8}" y="{middle}" style="font-size:9px">{escape(rate)}'
        f'<tspan x="{x1 + 8}" dy="11">{escape(percent)}</tspan></text></g>'
    ]


def _colour(use: LinkUse) -> str:
    """Return grey for a link that does what it can: low rates of short messages are their latency, no fault."""
    share = use.share_of_spec
    if use.held_s > use.busy_s / 2:
        return "#7f9fbf"
    at_spec_s = use.message_bytes / use.spec_bytes_per_s if use.spec_bytes_per_s else 0.0
    if share is None or share >= SLOW_SHARE or at_spec_s < LONG_MESSAGE_S:
        return "#8c96a3"
    return "#d62728" if share < SICK_SHARE else "#e0a100"


def _percent(share: float) -> str:
    return "<1%" if 0 < share < 0.01 else f"{share:.0%}"
