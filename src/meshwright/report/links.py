"""What the links carried in a step, held against what they can: a table, and the cluster drawn in those colours."""

import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape

import msgspec

from ..cluster.graph import Cluster
from ..collectives.figures import bus_factor
from ..timeline import Span, Timeline, length_s
from ..units import format_bytes, format_rate, format_time
from .document import Cell, Drawing, Table, table

MAX_HOSTS, MAX_RANKS_DRAWN = 32, 16
BOX, GAP, ROW = 110, 14, 34


class LinkUse(msgspec.Struct, frozen=True, kw_only=True):
    """One link in a step: what it carried one way, while it was busy, and what it can carry."""

    name: str
    host: str
    rank: int | None  # None for the network of a whole host
    bytes: float
    busy_s: float
    step_s: float
    spec_bytes_per_s: float | None
    spec: str

    @property
    def rate_bytes_per_s(self) -> float:
        """Rate while the link was busy; waiting for a slower rank counts as busy."""
        return self.bytes / self.busy_s if self.busy_s else 0.0

    @property
    def share_of_spec(self) -> float | None:
        """Rate over what the link can, None where that is not known."""
        return self.rate_bytes_per_s / self.spec_bytes_per_s if self.spec_bytes_per_s else None

    @property
    def share_of_step(self) -> float:
        """Share of the step during which the link was busy."""
        return self.busy_s / self.step_s if self.step_s else 0.0


def link_uses(timeline: Timeline, cluster: Cluster, hosts: Mapping[int, str]) -> list[LinkUse]:
    """Return the links of every rank, and of every host where there are several; `hosts` says where a rank ran."""
    ranks = sorted({span.rank for span in timeline.spans})
    carried = {rank: _carried(timeline, rank, len(ranks)) for rank in ranks}
    inside = _inside_spec(cluster)
    uses = [
        LinkUse(name=f"rank {rank}", host=hosts.get(rank, ""), rank=rank, bytes=size, busy_s=busy, step_s=step,
                spec_bytes_per_s=inside[0], spec=inside[1])
        for rank, (size, busy, step) in carried.items()
        if size
    ]  # fmt: skip
    names = sorted({hosts[rank] for rank in ranks if rank in hosts})
    if len(names) > 1:
        uses += [_host_use(timeline, cluster, hosts, name, len(names)) for name in names]
    return uses


def _carried(timeline: Timeline, rank: int, members: int) -> tuple[float, float, float]:
    """Return (bytes one way, busy seconds, seconds of the step) of one rank, medians over the steps."""
    steps: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
    spans: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for span in timeline.spans:
        if span.rank == rank:
            spans[span.step].append((span.start_s, span.end_s))
            if span.lane == "comm" and span.bytes:
                factor = bus_factor(span.name, group_ranks(span, members))
                steps[span.step].append((span.start_s, span.end_s, span.bytes * factor))
    if not steps:
        return 0.0, 0.0, 0.0
    size = statistics.median(sum(item[2] for item in found) for found in steps.values())
    busy = statistics.median(length_s([(start, end) for start, end, _ in found]) for found in steps.values())
    whole = statistics.median(max(e for _, e in found) - min(s for s, _ in found) for found in spans.values())
    return size, busy, whole


def group_ranks(span: Span, otherwise: int) -> int:
    """Return how many ranks took part in a collective: what its detail says ("8 ranks of tp"), or `otherwise`."""
    said = re.match(r"(\d{1,9}) ranks", span.detail)
    return max(1, int(said.group(1))) if said else otherwise


def bus_rate_bytes_per_s(spans: Sequence[Span], ranks: int) -> float:
    """Return the bus bandwidth (as nccl-tests define it) of collectives over `ranks` ranks; 0 without bytes."""
    known = [span for span in spans if span.bytes and span.end_s > span.start_s]
    busy_s = sum(span.end_s - span.start_s for span in known)
    return sum(span.bytes * bus_factor(span.name, ranks) for span in known) / busy_s if busy_s else 0.0


def _host_use(timeline: Timeline, cluster: Cluster, hosts: Mapping[int, str], name: str, count: int) -> LinkUse:
    """Return the network of one host: what a collective over so many hosts must carry at least."""
    rank = min(rank for rank, host in hosts.items() if host == name)
    size, busy, whole = _carried(timeline, rank, count)
    nics = [d for d in cluster.of_kind("nic") if d.node == name and d.network_bandwidth_bytes_per_s]
    rate = sum(d.network_bandwidth_bytes_per_s or 0.0 for d in nics) or (
        cluster.groups[0].node_bandwidth_bytes_per_s if cluster.groups else 0.0
    )
    spec = f"{len(nics)} NICs" if nics else "NICs of the node" if rate else "not known"
    return LinkUse(name=f"network of {name}", host=name, rank=None, bytes=size, busy_s=busy, step_s=whole,
                   spec_bytes_per_s=rate or None, spec=spec)  # fmt: skip


def _inside_spec(cluster: Cluster) -> tuple[float | None, str]:
    """Return what a rank's link inside its host can carry, and what that is."""
    own = [link for link in cluster.links if link.kind.startswith(("NV", "xGMI")) and link.bandwidth_bytes_per_s]
    if own:
        return min(link.bandwidth_bytes_per_s or 0.0 for link in own), own[0].kind
    if cluster.groups:
        return cluster.groups[0].gpu_bandwidth_bytes_per_s, cluster.groups[0].gpu_link
    measured = cluster.measured.memory_bandwidth_bytes_per_s if cluster.measured else None
    return measured, "memory copy with all ranks busy, measured" if measured else "not known"


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
            Cell(format_rate(use.rate_bytes_per_s), use.rate_bytes_per_s),
            Cell("", "") if use.share_of_spec is None else Cell(_percent(use.share_of_spec), use.share_of_spec),
            Cell(f"{format_rate(use.spec_bytes_per_s)}, {use.spec}" if use.spec_bytes_per_s else use.spec),
        ]
        for use in uses
    ]
    note = (
        "bytes as nccl-tests count the bus: 2(n-1)/n of the payload for an all-reduce over n ranks; of a host's "
        "network what a collective over the hosts carries at least; a link that waits for a slow rank counts as busy"
    )
    return table(columns, rows, title="Links in a step", sortable=True, note=note)


def cluster_drawing(uses: Sequence[LinkUse], hosts: Mapping[int, str]) -> Drawing | None:
    """Draw hosts, ranks and their links: width by use of the step, colour by percent of spec."""
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
    height = 56 + bus + 20 + GAP
    style = (
        "<style>.host{fill:none;stroke:#8888}.rank{fill:#8882;stroke:#888}.bus{stroke:#8888;stroke-width:3}"
        "svg text{fill:currentColor;font:12px sans-serif}</style>"
    )
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {x} {height}" width="{x}" height="{height}" '
        f'role="img">{style}{"".join(body)}</svg>'
    )
    left_out = len(set(hosts.values())) - len(names)
    note = "thicker: busy for more of the step; red below 50 % of the spec, amber below 80 %, else green; grey: no spec"
    return Drawing(title="Cluster", svg=svg, note=note + (f"; {left_out} more hosts are not drawn" if left_out else ""))


def _box(x: int, y: int, width: int, height: int, kind: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" class="{kind}"/>'


def _line(use: LinkUse | None, x1: int, y1: int, x2: int, y2: int) -> list[str]:
    if use is None:
        return [f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#8888"/>']
    share = use.share_of_spec
    colour = "#888" if share is None else "#d62728" if share < 0.5 else "#e0a100" if share < 0.8 else "#2ca02c"
    rate, percent = format_rate(use.rate_bytes_per_s), "" if share is None else f"{_percent(share)} of spec"
    told = [f"{format_bytes(use.bytes)} one way", rate, percent, f"busy {_percent(use.share_of_step)} of the step"]
    title = f"{use.name}: {', '.join(part for part in told if part)}"
    middle = (y1 + y2) // 2 + (4 if share is None else -2)
    return [
        f'<g><title>{escape(title)}</title><line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" '
        f'stroke-width="{2 + 8 * min(1.0, use.share_of_step):.1f}"/>'
        f'<text x="{x1 + 8}" y="{middle}" style="font-size:9px">{escape(rate)}'
        f'<tspan x="{x1 + 8}" dy="11">{escape(percent)}</tspan></text></g>'
    ]


def _percent(share: float) -> str:
    return "<1%" if 0 < share < 0.01 else f"{share:.0%}"
