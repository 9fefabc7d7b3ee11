"""The graph of one training step as SVG: which operators run on which rank, and what communication lies between them.

One lane for each stage of the pipeline: its forward pass, then its backward pass from right to left in the graph's
order. Operators of one module are one box. Send and receive stand where the model is cut, the sums of tensor
parallelism where layers are cut, and boxes of backward whose gradients travel together have one colour underneath: a
fused bucket, with its collective behind it.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Literal, NamedTuple

from torch import Tensor, fx, nn

from ..layout import Layout, Plan
from ..pipelines import Target, best_cut, schedule
from ..units import format_bytes
from .pipeline.capture import CapturedModel, crossing, size_bytes
from .tensor import Column, Row, Rule, Vocabulary

Kind = Literal["forward", "backward", "link", "sum"]
COLOURS: dict[Kind, str] = {"forward": "#d6e6f8", "backward": "#f4ead0", "link": "#e0524d", "sum": "#8e5ab5"}
BUCKETS = ("#2b8a3e", "#1971c2", "#e8590c", "#9c36b5", "#0c8599", "#c2255c")
BOX_WIDTH, BOX_HEIGHT, GAP, PER_ROW, MARGIN = 132, 26, 6, 10, 20
CHARACTERS = 22  # that fit into a box


class Box(NamedTuple):
    """One box: operators of a module, or a message or collective."""

    kind: Kind
    text: str
    title: str  # shown on the pointer
    bucket: int | None = None


class Group(NamedTuple):
    """Neighbouring operators of one module."""

    module: str
    nodes: tuple[fx.Node, ...]


def graph_svg(
    model: CapturedModel, plan: Plan, *, bounds: Sequence[int], rules: Mapping[str, Rule] | None = None
) -> str:
    """Return the drawing of one step of `model`, cut into stages at `bounds` of its chain.

    `rules` say which layers tensor parallelism cuts (`parallel.split.rules_of`).
    """
    layout = plan.layout
    stages = layout.pp * layout.vpp
    grid = schedule(layout.schedule, layout.pp, layout.vpp, plan.micro_batches)
    lanes = []
    for stage, (first, end) in enumerate(itertools.pairwise(bounds)):
        groups = _groups(model.chain[first:end])
        incoming = sum(map(size_bytes, crossing(model.chain, first))) if stage else 0
        outgoing = sum(map(size_bytes, crossing(model.chain, end))) if stage + 1 < stages else 0
        ranks = grid.rank_of_stage
        forward = [box for group in groups for box in _forward(group, layout, rules or {})]
        backward = _backward(model, groups, layout, rules or {}, plan.bucket_bytes)
        lanes.append(
            (
                f"stage {stage} on pipeline rank {ranks[stage]}",
                [*_link("receive", incoming, ranks, stage, -1), *forward, *_link("send", outgoing, ranks, stage, 1)],
                [*_link("receive", outgoing, ranks, stage, 1), *backward, *_link("send", incoming, ranks, stage, -1)],
            )
        )
    return _draw(f"{layout}: one step, {plan.micro_batches} micro-batches", lanes)


def counted_bounds(model: CapturedModel, plan: Plan) -> tuple[int, ...]:
    """Return where the best cut by the counted cost of the nodes lies in the model's chain."""
    layout = plan.layout
    grid = schedule(layout.schedule, layout.pp, layout.vpp, plan.micro_batches)
    cut = best_cut(model.unit_costs(layout.mbs, plan.seq_len), Target.of(grid), slack=0.02)
    return tuple(model.cuts[unit] for unit in cut.bounds)


def unit_bounds(model: CapturedModel, units: Sequence[str], bounds: Sequence[int]) -> tuple[int, ...]:
    """Return where a cut between named units (modules) lies in the chain: in front of the first node of each stage.

    What belongs to no unit is part of the one before it.
    """
    number = {name: index for index, name in enumerate(units)}
    starts: dict[int, int] = {}
    for position, node in enumerate(model.chain):
        unit = next((number[name] for name in _path(node) if name in number), None)
        if unit is not None:
            starts.setdefault(unit, position)
    return (0, *(starts.get(unit, len(model.chain)) for unit in bounds[1:-1]), len(model.chain))


def _path(node: fx.Node) -> list[str]:
    """Return the modules that an operator was called in, the outermost first."""
    return [name for name, _ in (node.meta.get("nn_module_stack") or {}).values()]


def _groups(nodes: Iterable[fx.Node]) -> list[Group]:
    runs = itertools.groupby(nodes, key=lambda node: (_path(node) or [""])[-1])
    return [Group(module, tuple(members)) for module, members in runs]


def _forward(group: Group, layout: Layout, rules: Mapping[str, Rule]) -> list[Box]:
    box = Box("forward", _short(group), _title(group))
    rule = rules.get(group.module)
    if layout.tp == 1 or not isinstance(rule, Row | Vocabulary):
        return [box]
    name = "reduce-scatter" if layout.sp else "all-reduce"
    return [box, Box("sum", f"{name} tp={layout.tp}", f"{name} of {_output(group)} over the {layout.tp} ranks of tp")]


def _backward(
    model: CapturedModel, groups: list[Group], layout: Layout, rules: Mapping[str, Rule], bucket_bytes: int
) -> list[Box]:
    found: list[Box] = []
    bucket, filled = 0, 0
    data = layout.dp * layout.cp
    seen: set[str] = set()
    for group in reversed(groups):
        names = _parameters(group) - seen
        seen |= names
        own = sum(p.numel() * p.element_size() for p in map(model.get_parameter, names))
        filled += own
        found.append(Box("backward", _short(group), _title(group), bucket if own and data > 1 else None))
        if layout.tp > 1 and isinstance(rules.get(group.module), Column):
            name = "reduce-scatter" if layout.sp else "all-reduce"
            found.append(Box("sum", f"{name} tp={layout.tp}", f"{name} of the gradient of the input of {group.module}"))
        if data > 1 and filled >= bucket_bytes:
            found.append(_collective(layout, filled, bucket))
            bucket, filled = bucket + 1, 0
    if data > 1 and filled:
        found.append(_collective(layout, filled, bucket))
    return found


def _collective(layout: Layout, size: int, bucket: int) -> Box:
    name = "reduce-scatter" if layout.zero else "all-reduce"
    data = layout.dp * layout.cp
    text = f"{name} {format_bytes(size // layout.tp)}"
    return Box("sum", text, f"bucket {bucket}: {name} of gradients over {data} data-parallel ranks", bucket)


def _link(verb: str, size: int, ranks: Sequence[int], stage: int, step: int) -> list[Box]:
    if not size or ranks[stage] == ranks[stage + step]:
        return []
    preposition = "to" if verb == "send" else "from"
    text = f"{verb} {format_bytes(size)}"
    return [Box("link", text, f"{text} {preposition} pipeline rank {ranks[stage + step]} (stage {stage + step})")]


def _parameters(group: Group) -> set[str]:
    sources = {source for node in group.nodes for source in node.all_input_nodes if source.op == "get_attr"}
    owner = group.nodes[0].graph.owning_module
    assert owner is not None
    known = dict(owner.named_parameters())
    return {str(source.target) for source in sources if isinstance(known.get(str(source.target)), nn.Parameter)}


def _short(group: Group) -> str:
    text = group.module.removeprefix("model.") or str(group.nodes[-1].name)
    return text if len(text) <= CHARACTERS else "…" + text[1 - CHARACTERS :]


def _title(group: Group) -> str:
    return f"{group.module}: {', '.join(node.name for node in group.nodes)} -> {_output(group)}"


def _output(group: Group) -> str:
    value = group.nodes[-1].meta.get("val")
    return str(list(value.shape)) if isinstance(value, Tensor) else "several tensors"


def _draw(title: str, lanes: Sequence[tuple[str, list[Box], list[Box]]]) -> str:
    body: list[str] = []
    y = MARGIN + 34
    for name, forward, backward in lanes:
        body.append(f'<text x="{MARGIN}" y="{y}" font-size="13" font-weight="bold">{escape(name)}</text>')
        y += 8
        for label, boxes in (("forward", forward), ("backward", backward)):
            body.append(f'<text x="{MARGIN}" y="{y + 17}" fill="#666">{label}</text>')
            body += [_box(box, index, y) for index, box in enumerate(boxes)]
            y += -(-len(boxes) // PER_ROW) * (BOX_HEIGHT + 2 * GAP) + GAP
        y += 24
    width = 2 * MARGIN + 70 + PER_ROW * (BOX_WIDTH + GAP)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}" height="{y}" '
            'font-family="sans-serif" font-size="10">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{y}" fill="white"/>',
            f'<text x="{MARGIN}" y="{MARGIN}" font-size="14">{escape(title)}</text>',
            f'<text x="{MARGIN}" y="{MARGIN + 16}" fill="#666">boxes: operators of one module; red: messages between '
            "stages; violet: collectives; one colour underneath: gradients fused into one bucket</text>",
            *body,
            "</svg>",
        ]
    )


def _box(box: Box, index: int, y: int) -> str:
    left = MARGIN + 70 + index % PER_ROW * (BOX_WIDTH + GAP)
    top = y + index // PER_ROW * (BOX_HEIGHT + 2 * GAP)
    light = box.kind in {"forward", "backward"}
    mark = "" if box.bucket is None else BUCKETS[box.bucket % len(BUCKETS)]
    under = (
        f'<rect x="{left}" y="{top + BOX_HEIGHT}" width="{BOX_WIDTH + GAP}" height="5" fill="{mark}"/>' if mark else ""
    )
    return (
        f'<g><title>{escape(box.title)}</title><rect x="{left}" y="{top}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" '
        f'rx="{3 if light else 12}" fill="{COLOURS[box.kind]}" stroke="#888"/>{under}'
        f'<text x="{left + BOX_WIDTH / 2:g}" y="{top + 17}" text-anchor="middle" fill="{"#222" if light else "white"}">'
        f"{escape(box.text)}</text></g>"
    )
