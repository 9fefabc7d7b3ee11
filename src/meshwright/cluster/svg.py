"""A cluster as SVG: devices in a column a NUMA node, GPU links above in colour, the slow ones in red."""

import math
from collections.abc import Sequence
from html import escape

from ..units import format_rate
from .graph import Cluster, Device, Link
from .paths import SLOW, is_own, rank

BOX_WIDTH, BOX_HEIGHT, GAP = 92, 40, 26
COLOURS = {"gpu": "#d8f0d0", "nic": "#d6e6f8", "cpu": "#f4ead0", "memory": "#f0e4e4", "switch": "#e6dcf2"}
MAX_DEVICES = 400


def svg(cluster: Cluster) -> str:
    """Return the drawing as one SVG document; names are escaped, nothing outside it is referred to."""
    devices = list(cluster.devices)[:MAX_DEVICES]
    places = _places(devices)
    width = max((x for x, _ in places.values()), default=0) + BOX_WIDTH + 2 * GAP
    height = max((y for _, y in places.values()), default=0) + BOX_HEIGHT + 2 * GAP + 20
    drawn = [link for link in cluster.links if link.a in places and link.b in places]
    drawn.sort(key=lambda link: -rank(link.kind))
    body = [_line(link, places) for link in drawn] + [_box(device, places[device.id]) for device in devices]
    left_out = len(cluster.devices) - len(devices)
    title = f"{cluster.name}" + (f" (first {MAX_DEVICES} devices, {left_out} left out)" if left_out > 0 else "")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'font-family="sans-serif" font-size="11">',
            f"<title>{escape(title)}</title>",
            f'<text x="{GAP}" y="16" font-size="13">{escape(title)}: rates per direction</text>',
            *body,
            "</svg>",
        ]
    )


def _places(devices: Sequence[Device]) -> dict[str, tuple[int, int]]:
    """Put GPUs on a circle (so that no link hides another), all other devices in rows below."""
    gpus = [device for device in devices if device.kind == "gpu"]
    radius = max(70, round(len(gpus) * (BOX_WIDTH + 10) / (2 * math.pi))) if len(gpus) > 1 else 0
    places = {}
    for i, gpu in enumerate(gpus):
        angle = 2 * math.pi * i / len(gpus) - math.pi / 2
        places[gpu.id] = (
            round(GAP + radius * (1 + math.cos(angle))),
            round(GAP + 20 + radius * (1 + math.sin(angle))),
        )
    y = max((y for _, y in places.values()), default=0) + BOX_HEIGHT + 2 * GAP
    columns = max(4, min(16, 2 * radius // (BOX_WIDTH + GAP) + 1))
    for kind in ("switch", "nic", "cpu", "memory"):
        row = [device for device in devices if device.kind == kind]
        for i, device in enumerate(row):
            places[device.id] = (GAP + i % columns * (BOX_WIDTH + GAP), y + i // columns * (BOX_HEIGHT + GAP))
        if row:
            y += (1 + (len(row) - 1) // columns) * (BOX_HEIGHT + GAP) + GAP
    return places


def _line(link: Link, places: dict[str, tuple[int, int]]) -> str:
    (ax, ay), (bx, by) = ((x + BOX_WIDTH // 2, y + BOX_HEIGHT // 2) for x, y in (places[link.a], places[link.b]))
    slow, own = link.kind in SLOW, is_own(link.kind)
    colour = "#c0392b" if slow else "#2e8b57" if own else "#7f8c9a"
    dash = ' stroke-dasharray="4 3"' if slow else ""
    rate = f" {format_rate(link.bandwidth_bytes_per_s)}" if link.bandwidth_bytes_per_s else ""
    label = escape(f"{link.a} - {link.b}: {link.kind}{rate}")
    return (
        f'<line x1="{ax}" y1="{ay}" x2="{bx}" y2="{by}" stroke="{colour}" stroke-width="{2.5 if own else 1}"{dash} '
        f'opacity="0.7"><title>{label}</title></line>'
    )


def _box(device: Device, place: tuple[int, int]) -> str:
    x, y = place
    where = f"NUMA {device.numa}" if device.numa is not None else device.kind
    label = escape(f"{device.id} {device.model} CPUs {device.cpu_affinity or 'not known'}")
    return (
        f'<g><title>{label}</title><rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="5" '
        f'fill="{COLOURS[device.kind]}" stroke="#555"/>'
        f'<text x="{x + 6}" y="{y + 16}">{escape(device.id[-14:])}</text>'
        f'<text x="{x + 6}" y="{y + 31}" fill="#666">{escape(where)}</text></g>'
    )
