"""A cluster as SVG: a frame for each host, NUMA node and PCIe switch, a GPU above its NIC, GPU links on top.

What is sound is grey; only what is slow or sick has a colour. The rate of a line is in its tool tip.
"""

import itertools
from collections.abc import Sequence
from html import escape

from ...units import format_bytes, format_network_rate, format_rate
from ..graph import Cluster, Device, Link
from ..paths import is_own, rank
from .arrangement import HostArrangement, Numa, SwitchGroup, arranged_hosts, is_even, sick
from .svg_parts import CAPTION, GAP, HEIGHT, PAD, WIDTH, Drawn, rect
from .svg_places import drawn_switches

BAR, ARC = 26, 26
MAX_DEVICES, MAX_WIDTH = 400, 1400
STYLE = (
    "<style>.topo text{fill:currentColor;font:11px sans-serif}.topo .quiet{opacity:.65}.topo rect{stroke:#8c96a3}"
    ".topo .frame{fill:none;stroke:#8c96a388}.topo .gpu{fill:#8c96a344}"
    ".topo .nic,.topo .cpu,.topo .memory{fill:#8c96a316}.topo .switch{fill:#8c96a32b}"
    ".topo line,.topo path{stroke:#8c96a3;fill:none}.topo .own{stroke-width:2.5}"
    ".topo .slow{stroke:#e0a100;stroke-width:2.5}.topo .sick{stroke:#d62728;stroke-width:2.5}</style>"
)


def cluster_svg(cluster: Cluster) -> str:
    """Return the drawing as one SVG document; names are escaped, nothing outside it is referred to."""
    shown, left_out = arranged_hosts(cluster, MAX_DEVICES)
    body, x, y, row, width = [], GAP, CAPTION + GAP, 0, 0
    parts = [_machine(machine, framed=len(shown) > 1) for machine in shown]
    if not cluster.devices:
        parts, left_out = drawn_switches(cluster.placements, MAX_DEVICES)
    for drawn in parts:
        if x > GAP and x + drawn.width > MAX_WIDTH:
            x, y, row = GAP, y + row + GAP, 0
        body.append(f'<g transform="translate({x} {y})">{"".join(drawn.body)}</g>')
        x, row, width = x + drawn.width + GAP, max(row, drawn.height), max(width, x + drawn.width)
    title = cluster.name + (
        f" ({left_out} more {'devices' if cluster.devices else 'nodes'} are not drawn)" if left_out > 0 else ""
    )
    heading = f"{title}: rates per direction"
    width, height = max(width + GAP, 7 * len(heading) + 2 * GAP), y + row + GAP
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'class="topo" font-family="sans-serif" font-size="11">',
            f"{STYLE}<title>{escape(title)}</title>",
            f'<text x="{GAP}" y="16" style="font-size:13px">{escape(heading)}</text>',
            *body,
            "</svg>",
        ]
    )


def _machine(machine: HostArrangement, *, framed: bool) -> Drawn:
    """Draw one host: its NUMA nodes side by side, the links between its GPUs above them."""
    places: dict[str, tuple[int, int]] = {}
    below, width, height = _numas(machine, places)
    links, above = _own_links(machine, places, width)
    top = above + PAD + (CAPTION if framed else 0)
    body = [f'<g transform="translate(0 {top})">', *links, *_between_cpus(machine, places), *below, "</g>"]
    height += top + PAD
    if framed:
        name = f'<text x="{PAD}" y="16">{escape(machine.name)}</text>'
        body = [rect(0, 0, width, height, "frame"), name, *body]
    return Drawn(body, width, height)


def _numas(machine: HostArrangement, places: dict[str, tuple[int, int]]) -> tuple[list[str], int, int]:
    """Draw the NUMA nodes in one row, and note where their boxes stand; return the drawing, its width and height."""
    has_gpus = any(group.gpus for numa in machine.numas for group in numa.groups)
    heights = [_group_height(group, has_gpus) for numa in machine.numas for group in numa.groups]
    deepest = max(heights, default=0)
    cpus = max((len(numa.cpus) for numa in machine.numas), default=0)
    known = any(numa.number is not None for numa in machine.numas)
    height = PAD + deepest + cpus * (BAR + GAP) + CAPTION + (PAD if not cpus else 0)
    body: list[str] = []
    x, bad = PAD, sick(machine)
    for numa in machine.numas:
        left, x = x, x + PAD
        for group in numa.groups:
            drawn = _group(group, machine, places, (x, PAD), bad, has_gpus)
            cpu_top = PAD + deepest + GAP
            body += [*_to_cpu(group, numa, machine.links, (x, PAD + drawn.height), cpu_top), *drawn.body]
            x += drawn.width + GAP
        width = max(x - GAP + PAD - left, WIDTH + 2 * PAD, 180 if numa.cpus else 0)
        for place, device in enumerate(numa.cpus):
            at = (left + PAD, PAD + deepest + GAP + place * (BAR + GAP))
            places[device.id] = at
            body.append(_box(device, at, machine.name, "", width=width - 2 * PAD, height=BAR))
        if known:
            name = "NUMA not known" if numa.number is None else f"NUMA node {numa.number}"
            caption = f'<text x="{left + PAD}" y="{height - 6}" class="quiet">{name}</text>'
            body = [rect(left, 0, width, height, "frame"), caption, *body]
        x = left + width + GAP
    return body, max(x - GAP + PAD, WIDTH + 2 * PAD), height


def _columns(group: SwitchGroup) -> int:
    return len(group.gpus) or min(2, len(group.nics))


def _group_height(group: SwitchGroup, has_gpus: bool) -> int:
    rows = int(has_gpus) + -(-len(group.nics) // _columns(group))
    return rows * (HEIGHT + GAP) - GAP + (2 * PAD + CAPTION - 6 if group.switched else 0)


def _group(
    group: SwitchGroup,
    machine: HostArrangement,
    places: dict[str, tuple[int, int]],
    at: tuple[int, int],
    bad: dict[str, str],
    has_gpus: bool,
) -> Drawn:
    """Draw what is behind one PCIe switch: GPUs in the first row, their NICs below."""
    (left, top), columns = at, _columns(group)
    inner = PAD if group.switched else 0
    width, height = columns * (WIDTH + GAP) - GAP + 2 * inner, _group_height(group, has_gpus)
    body = []
    if group.switched:
        body.append(rect(left, top, width, height, "frame"))
        body.append(f'<text x="{left + inner}" y="{top + height - 6}" class="quiet">PCIe switch</text>')
    rows = {device.id: 0 for device in group.gpus}
    rows |= {device.id: int(has_gpus) + place // columns for place, device in enumerate(group.nics)}
    for devices in (group.gpus, group.nics):
        for place, device in enumerate(devices):
            x, y = left + inner + place % columns * (WIDTH + GAP), top + inner + rows[device.id] * (HEIGHT + GAP)
            places[device.id] = (x, y)
            body.append(_box(device, (x, y), machine.name, bad.get(device.id, "")))
    return Drawn(body, width, height)


def _to_cpu(group: SwitchGroup, numa: Numa, links: Sequence[Link], corner: tuple[int, int], cpu_top: int) -> list[str]:
    """Draw the way of a group to its CPU, from the lower left corner of the group."""
    if not numa.cpus:
        return []
    members, cpu = [device.id for device in (*group.gpus, *group.nics)], numa.cpus[0].id
    found = next((link for link in links if cpu in (link.a, link.b) and {link.a, link.b} & set(members)), None)
    x, y = corner[0] + WIDTH * 4 // 5, corner[1]
    if not group.nics and not group.switched:
        y = PAD + HEIGHT
    label = f"{members[0]} - {cpu}" + (f": {_said(found)}" if found else "")
    return [_line(x, y, x, cpu_top, label, "")]


def _own_links(machine: HostArrangement, places: dict[str, tuple[int, int]], width: int) -> tuple[list[str], int]:
    """Draw NVLink and xGMI above y = 0: a box for a switch and for GPUs that all reach each other alike, else arcs.

    Returns the drawing and its height.
    """
    bars: list[tuple[str, dict[str, Link]]] = []
    arcs: list[Link] = []
    for switch in machine.switches:
        joined = [link for link in machine.links if switch.id in (link.a, link.b)]
        ends = {(link.b if link.a == switch.id else link.a): link for link in joined}
        rates = {link.bandwidth_bytes_per_s for link in joined}
        each = f": {_said(joined[0])} a device" if len(rates) == 1 else ""
        bars.append((_short(switch.id, machine.name) + each, ends))
    for domain in () if bars else machine.domains:
        own = [link for link in machine.links if {link.a, link.b} <= set(domain.gpus) and is_own(link.kind)]
        if domain.switched or is_even(domain, machine.links):
            what = "every pair" if not domain.switched else "NVSwitch" if own[0].kind.startswith("NV") else "switch"
            ends = {gpu: next(link for link in own if gpu in (link.a, link.b)) for gpu in domain.gpus}
            bars.append((f"{what}: {_said(max(own, key=_goodness))}", ends))
        else:
            arcs += own
    bad, body, ends_of_rows = sick(machine), list[str](), list[int]()
    bars.sort(key=lambda bar: min((places[name][0] for name in bar[1] if name in places), default=0))
    for text, ends in bars:
        left = min((places[name][0] for name in ends if name in places), default=PAD)
        right = max((places[name][0] + WIDTH for name in ends if name in places), default=PAD + WIDTH)
        right = max(right, min(width - PAD, left + 16 + 7 * len(text)))
        row = next((row for row, end in enumerate(ends_of_rows) if left > end), len(ends_of_rows))
        ends_of_rows[row : row + 1] = [right]
        body = [*_bar(text, ends, places, (left, right, -(row + 1) * (BAR + GAP)), bad), *body]
    height = len(ends_of_rows) * (BAR + GAP)
    if arcs:
        body += _arcs(arcs, places, bad)
        height = max(height, 3 * ARC)
    return body, height


def _goodness(link: Link) -> tuple[float, int]:
    return link.bandwidth_bytes_per_s or 0.0, -rank(link.kind)


def _bar(
    text: str,
    ends: dict[str, Link],
    places: dict[str, tuple[int, int]],
    box: tuple[int, int, int],
    bad: dict[str, str],
) -> list[str]:
    """Draw a switch as one box, from left to right at a height, over the devices that it joins."""
    left, right, y = box
    lines = [
        _line(places[name][0] + WIDTH // 2, y + BAR, places[name][0] + WIDTH // 2, places[name][1],
              f"{name}: {_said(link)}", "sick" if name in bad else "own")
        for name, link in ends.items() if name in places
    ]  # fmt: skip
    return [
        *lines,
        rect(left, y, right - left, BAR, "switch"),
        f'<text x="{left + 8}" y="{y + 17}">{escape(_cut(text, right - left))}</text>',
    ]


def _arcs(links: Sequence[Link], places: dict[str, tuple[int, int]], bad: dict[str, str]) -> list[str]:
    """Draw one arc a pair, higher for GPUs that are farther apart; pairs slower than the others are in colour."""
    best = max((link.bandwidth_bytes_per_s or 0.0 for link in links), default=0.0)
    body = []
    for link in links:
        (ax, ay), (bx, _) = sorted((places[link.a], places[link.b]))
        ax, bx = ax + WIDTH // 2, bx + WIDTH // 2
        high = min(3 * ARC - 6, ARC // 2 + ARC * (bx - ax) // (WIDTH + GAP) // 3)
        rate = link.bandwidth_bytes_per_s
        state = "sick" if link.a in bad and link.b in bad else "slow" if rate and rate < 0.45 * best else "own"
        label = escape(f"{link.a} - {link.b}: {_said(link)}")
        body.append(
            f'<path d="M{ax},{ay}C{ax},{ay - high * 4 // 3} {bx},{ay - high * 4 // 3} {bx},{ay}" class="{state}">'
            f"<title>{label}</title></path>"
        )
    return body


def _between_cpus(machine: HostArrangement, places: dict[str, tuple[int, int]]) -> list[str]:
    """Draw the links between the CPUs of neighbouring NUMA nodes."""
    firsts = [numa.cpus[0].id for numa in machine.numas if numa.cpus]
    body = []
    for a, b in itertools.pairwise(firsts):
        link = next((link for link in machine.links if {link.a, link.b} == {a, b}), None)
        bx, by = places[b]
        said = f": {_said(link)}" if link else ""
        body.append(_line(bx - 2 * PAD - GAP, by + BAR // 2, bx, by + BAR // 2, f"{a} - {b}{said}", ""))
    return body


def _said(link: Link) -> str:
    rate = f", {format_rate(link.bandwidth_bytes_per_s)}" if link.bandwidth_bytes_per_s else ""
    return f"{link.kind}{rate}"


def _line(x1: int, y1: int, x2: int, y2: int, label: str, state: str) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="{state}"><title>{escape(label)}</title></line>'


def _short(name: str, node: str) -> str:
    return name.removeprefix(f"{node}/")


def _told(facts: dict[str, str], width: int) -> str:
    """Return what is known of a device; where it is too long the model's name is cut, never a figure."""
    figures = "".join(f", {text}" for name, text in facts.items() if text and name != "model")
    model = _cut(facts["model"], width - 6 * len(figures)) if facts["model"] else ""
    return f"{model}{figures}".removeprefix(", ")


def _cut(text: str, width: int) -> str:
    most = max(4, (width - 12) // 6)
    return text if len(text) <= most else text[: most - 1] + "…"


def _box(
    device: Device, place: tuple[int, int], node: str, trouble: str, *, width: int = WIDTH, height: int = HEIGHT
) -> str:
    x, y = place
    name = _short(device.id, node)
    facts = {
        "model": "" if device.model in {"ethernet", name} else device.model,
        "cores": f"{device.cores} cores" if device.cores else "",
        "memory": format_bytes(device.memory_bytes) if device.memory_bytes else "",
        "network": format_network_rate(device.network_bandwidth_bytes_per_s or 0.0)
        if device.network_bandwidth_bytes_per_s
        else "",
    }
    told = trouble or _told(facts, width)
    label = escape(f"{device.id} {device.model} CPUs {device.cpu_affinity or 'not known'}")
    state = f"{device.kind} sick" if trouble else device.kind
    one_line = height < HEIGHT
    words = [
        f'<text x="{x + 6}" y="{y + 16}">{escape(_cut(f"{name}: {told}" if one_line and told else name, width))}</text>'
    ]
    if not one_line:
        words.append(f'<text x="{x + 6}" y="{y + 31}" class="quiet">{escape(_cut(told, width))}</text>')
    return f"<g><title>{label}</title>{rect(x, y, width, height, state)}{''.join(words)}</g>"
