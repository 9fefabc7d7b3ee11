"""Legality of layouts for a model: every rule that a layout breaks, in words, and the nearest legal layouts.

Memory is not a rule here: whether a layout fits is a price (`plan.analytic`). The rules:

  world     tp x cp x dp x pp is the number of ranks
  heads     query heads, key-value heads and the inner width divide by tp, an expert's width by etp;
            (sequence / cp) divides by tp under sp; where an engine shares key-value heads, they may divide tp instead
  layers    no pipeline where layers share weights; no more stages than layers; a plain pipeline may be uneven by one
            layer; an interleaved one needs layers / (pp x vpp) whole, or (layers + 2) / (pp x vpp), with embedding and
            output in a slot each, or layers that pp alone does not divide either (61 over 4 x 8): then stages may be
            uneven by one layer
  context   the sequence divides by 2 cp (each rank takes an early and a late part, which evens out the causal half)
  experts   ep divides the experts; ep > 1 needs experts (that ep divides dp x cp x tp / etp is checked by Layout)
  batch     the global batch is a multiple of dp x mbs
  schedule  the micro-batches are as many as the pipeline's schedule needs (`pipelines.broken_rule`)
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import msgspec

from ...errors import InputError
from ...layout import Layout, PipelineSchedule
from ...pipelines import broken_rule as schedule_rule
from ...units import counted
from ...workload.conventions import EMULATES

EXPERT_WIDTH = "expert_size"
SHARED = "layers share weights, which a pipeline's stages would each hold and sum: such pipelines are not priced"
KEY_HEADS = ("num_key_value_heads", "key-value heads")


class Splittable(Protocol):
    """The numbers of a model that decide what may be cut, under the names of a Hugging Face config.json.

    `train`'s ModelConfig and `workload.architecture.Architecture` both have them. A model with experts also has
    `experts` or `num_local_experts` (of a layer) and, where they are not as wide as the network, `expert_size`.
    """

    @property
    def num_hidden_layers(self) -> int:
        """Layers of the stack."""

    @property
    def num_attention_heads(self) -> int:
        """Query heads."""

    @property
    def num_key_value_heads(self) -> int:
        """Key-value heads."""

    @property
    def intermediate_size(self) -> int:
        """Width inside the feed-forward network; 0 where every layer has experts instead."""


def illegal(
    layout: Layout,
    model: Splittable,
    *,
    global_batch: int,
    seq_len: int,
    ranks: int | None = None,
    shared_heads: bool = False,
) -> list[str]:
    """Return every rule that the layout breaks, one sentence each; an empty list if it is legal.

    `global_batch` is in sequences. Without `ranks` the world is as large as the layout. `shared_heads`: several ranks
    of tp may share a key-value head (`engines.shares_key_heads`).
    """
    broken = []
    if ranks is not None and layout.world_size != ranks:
        degrees = f"{layout.tp} x {layout.cp} x {layout.dp} x {layout.pp}"
        there = f"there {'is' if ranks == 1 else 'are'} {counted(ranks, 'rank')}"
        broken.append(f"tp x cp x dp x pp = {degrees} = {layout.world_size}, but {there}")
    broken += [
        f"tp: {layout.tp} does not divide {name} = {number}"
        for name, number in _widths(model).items()
        if name != EXPERT_WIDTH
        and number % layout.tp
        and not (shared_heads and name in KEY_HEADS and layout.tp % number == 0)
    ]
    if _widths(model).get(EXPERT_WIDTH, 0) % layout.expert_tp:
        broken.append(f"tp: {layout.expert_tp} does not divide {EXPERT_WIDTH} = {_widths(model)[EXPERT_WIDTH]}")
    broken += _layers(layout, model.num_hidden_layers)
    if layout.pp > 1 and most_stages(model) == 1:
        broken.append(f"pp: {layout.pp}, but {SHARED}")
    if layout.cp > 1 and seq_len % (2 * layout.cp):
        broken.append(f"cp: 2 x {layout.cp} does not divide the sequence of {seq_len} tokens")
    elif layout.sp and (seq_len // layout.cp) % layout.tp:
        broken.append(f"sp: tp = {layout.tp} does not divide the {seq_len // layout.cp} tokens that a rank holds")
    experts = expert_count(model)
    if experts < 2 and (layout.ep > 1 or layout.is_folded):
        name = "ep" if layout.ep > 1 else "etp"
        broken.append(f"{name}: {getattr(layout, name)}, but the model has no experts")
    elif layout.ep > 1 and experts % layout.ep:
        broken.append(f"ep: {layout.ep} does not divide the {experts} experts")
    return broken + _batch(layout, global_batch)


def check_runnable(layout: Layout, *, compiled: bool = False, precision: str = "") -> None:
    """Raise InputError unless `train` has an engine for `layout`, one that can run compiled layers where asked for.

    `precision` is that of the products, where it is known.
    """
    if layout.mode != "sync":
        raise InputError(f"--layout {layout}: of asynchronous training, data_parallel.mode says the mode")
    problem = (uncompilable(layout) if compiled else "") or unrunnable(layout, precision)
    if problem:
        raise InputError(f"--layout {layout}: {problem}")


def unrunnable(layout: Layout, precision: str = "") -> str:
    """Return why our own engine cannot combine what a layout asks for, "" where it can; `space.runnable` for arrays."""
    if precision in EMULATES and (reason := _without_float8(layout)):
        return f"{reason}; use precision bf16, or a layout of dp, cp, pp, zero and recompute=full"
    if layout.is_folded:
        return "experts folded over tp (etp below tp) are priced alone"
    if layout.pp == 1 or layout.schedule != "zb":
        return ""
    if layout.zero >= 2 and layout.recompute != "none":
        return (
            "schedule=zb goes through a layer's backward twice, and FSDP2 (zero=2 and 3) takes what the second one "
            "recomputes for a forward pass; use recompute=none, zero=0 or 1, or another schedule"
        )
    if layout.recompute == "selective":
        return "schedule=zb goes through a layer's backward twice, recompute=selective only once; use none or full"
    if layout.vpp > 1 and layout.zero >= 2:
        return (
            "zero=2 and 3 shard stages apart, and schedule=zb, vpp=2 has the first and the last one, which may share "
            "parameters, on one rank; use zero=0 or 1, vpp=1, or schedule=interleaved"
        )
    return ""


def _without_float8(layout: Layout) -> str:
    """Return what of a layout linear layers in fp8 are not offered with."""
    if layout.tp > 1:
        return "tp cuts linear layers in a way of its own, which fp8 is not offered with"
    if layout.ep > 1:
        return "ep has experts, whose products fp8 is not offered for"
    if layout.recompute == "selective":
        return "recompute=selective keeps what single products return, which fp8 is not offered with"
    if layout.pp > 1 and layout.schedule == "zb":
        return "schedule=zb halves each backward, which linear layers in fp8 compute as one"
    if layout.offload != "none":
        return f"offload={layout.offload} keeps weights or states on the host, which fp8 is not offered with"
    return ""


def uncompilable(layout: Layout) -> str:
    """Return why layers cannot be compiled: a layout puts communication or its own bookkeeping inside of them."""
    inside = [axis for axis in ("tp", "cp", "ep") if getattr(layout, axis) > 1]
    if inside:
        return f"{inside[0]} communicates inside layers, which cannot be compiled so"
    if layout.schedule == "zb" and layout.pp > 1:
        return "schedule=zb splits the backward of a layer, which compilation joins"
    if layout.recompute == "selective":
        return "recompute=selective selects single operators, which compilation fuses; use none or full"
    return ""


def expert_count(model: Splittable) -> int:
    """Return the experts of a layer, 0 for a dense model."""
    return int(getattr(model, "experts", 0) or getattr(model, "num_local_experts", 0))


def most_tensor_parallel(model: Splittable) -> int:
    """Return the largest tensor-parallel degree; every legal one divides it."""
    return math.gcd(*_widths(model).values())


def most_stages(model: Splittable) -> int:
    """Return the most stages that a pipeline may have: one where layers use the weights of earlier ones."""
    return 1 if getattr(model, "borrowed_parameters", 0) else model.num_hidden_layers


def stages_fit(layers: int, pp: int, vpp: int) -> bool:
    """Return whether that number of layers may be cut into pp x vpp stages."""
    slots = pp * vpp
    if vpp == 1:
        return pp <= layers
    uneven = layers % pp > 0 and slots <= layers
    return uneven or (layers % slots == 0 and slots <= layers) or (layers + 2) % slots == 0


def nearest_legal(
    layout: Layout,
    model: Splittable,
    *,
    global_batch: int,
    seq_len: int,
    ranks: int | None = None,
    count: int = 3,
    shared_heads: bool = False,
) -> list[Layout]:
    """Return up to `count` legal layouts on as many ranks whose degrees differ least from `layout`'s.

    Switches (ZeRO, recomputation, order, mode) stay as they are, as far as the degrees allow them.
    """
    world = ranks or layout.world_size
    found = [
        (_distance(layout, near), -near.dp, str(near), near)
        for near in _degrees(layout, model, world, global_batch)
        if not illegal(near, model, global_batch=global_batch, seq_len=seq_len, ranks=world, shared_heads=shared_heads)
    ]
    return [near for *_, near in sorted(found, key=lambda item: item[:3])[:count]]


def legal_layout(
    text: str,
    model: Splittable,
    *,
    global_batch: int,
    seq_len: int,
    ranks: int | None = None,
    whole_share: bool = False,
    shared_heads: bool = False,
) -> Layout:
    """Return the layout that `--layout` names; InputError with every rule that it breaks and the nearest legal layouts.

    With `whole_share`, a micro-batch that is left out is a rank's whole share of the global batch, but for pipelines,
    which want many of them.
    """

    def hint(layout: Layout) -> str:
        near = nearest_legal(
            layout, model, global_batch=global_batch, seq_len=seq_len, ranks=ranks, shared_heads=shared_heads
        )
        return f"; nearest legal: {' | '.join(map(str, near))}" if near else ""

    try:
        layout = Layout.parse(text, world_size=ranks)
    except InputError as error:
        try:
            asked = Layout.parse(text)
        except InputError:  # its own fault, whatever the number of ranks
            raise InputError(f"{error}{_experts_that_go(text, model, ranks)}") from None
        raise InputError(f"{error}{hint(asked)}") from None
    if whole_share and "mbs" not in text and layout.pp == 1 and global_batch % layout.dp == 0:
        layout = msgspec.structs.replace(layout, mbs=max(1, global_batch // layout.dp))
    broken = illegal(layout, model, global_batch=global_batch, seq_len=seq_len, ranks=ranks, shared_heads=shared_heads)
    if not broken:
        return layout

    def legal_with(batch: int) -> bool:
        return not illegal(layout, model, global_batch=batch, seq_len=seq_len, ranks=ranks, shared_heads=shared_heads)

    batches = " or ".join(f"{batch:,}" for batch in _near_batches(layout, global_batch, legal_with))
    more = f"; or as it is with a global batch of {batches}" if batches else ""
    raise InputError(f"--layout {text}: {'; '.join(broken)}{hint(layout)}{more}")


def _near_batches(layout: Layout, global_batch: int, legal_with: Callable[[int], bool]) -> list[int]:
    """Return the next smaller and the next larger global batch with which a layout is legal; none where none is near.

    Pipelines may want as many micro-batches as a multiple of their stages.
    """
    whole = layout.dp * layout.mbs
    below = range(global_batch // whole * whole, 0, -whole)[: layout.pp]
    above = range((global_batch // whole + 1) * whole, (global_batch // whole + 1 + layout.pp) * whole, whole)
    found = (next((batch for batch in some if legal_with(batch)), 0) for some in (below, above))
    return [batch for batch in found if batch]


def _experts_that_go(text: str, model: Splittable, ranks: int | None) -> str:
    """Return which ep the rest of a layout allows, where it is ep that its own ranks do not; "" where it is not."""
    rest = ",".join(part for part in text.split(",") if not part.strip().startswith("ep="))
    experts = expert_count(model)
    if rest == text or not experts:
        return ""
    try:
        layout = Layout.parse(rest, world_size=ranks)
    except InputError:
        return ""
    go = divisors(math.gcd(layout.dp * layout.cp * (layout.tp // (layout.etp or layout.tp)), experts))
    return f"; with {counted(experts, 'expert')} ep may be {', '.join(map(str, go))} here"


def nearest_of(layout: Layout, others: Iterable[Layout], count: int = 3) -> list[Layout]:
    """Return up to `count` of some layouts, nearest first: by how little their degrees differ from `layout`'s."""
    return sorted(others, key=lambda other: (_distance(layout, other), -other.dp, str(other)))[:count]


def divisors(number: int) -> list[int]:
    """Return the divisors of a number of 1 or more, ascending."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def _widths(model: Splittable) -> dict[str, int]:
    """Return what tensor parallelism cuts."""
    names = ("num_attention_heads", "num_key_value_heads", "intermediate_size", EXPERT_WIDTH)
    found = {name: width for name in names if (width := int(getattr(model, name, 0)))}
    more: dict[str, int] = getattr(model, "mixer_widths", {})
    return found | {name: width for name, width in more.items() if width not in found.values()}


def _layers(layout: Layout, layers: int) -> list[str]:
    slots = layout.pp * layout.vpp
    if stages_fit(layers, layout.pp, layout.vpp):
        return []
    if slots > layers + 2 or layout.vpp == 1:
        return [f"pp: pp x vpp = {counted(slots, 'stage')} are more than the {layers} layers"]
    if layers % layout.pp:
        return [f"vpp: pp x vpp = {counted(slots, 'stage')} are more than the {layers} layers"]
    even = [v for v in range(2, layers // layout.pp + 1) if stages_fit(layers, layout.pp, v)]
    instead = f"; pp = {layout.pp} divides them with vpp = {' or '.join(map(str, even))}" if even else ""
    both = f"neither {counted(layers, 'layer')} nor {layers + 2} (embedding and output as two)"
    return [f"vpp: pp x vpp = {slots} divides {both}{instead}"]


def _batch(layout: Layout, global_batch: int) -> list[str]:
    per_round = layout.dp * layout.mbs
    if global_batch < per_round or global_batch % per_round:
        return [f"mbs: dp x mbs = {layout.dp} x {layout.mbs} does not divide the global batch of {global_batch}"]
    if layout.pp == 1:
        return []
    problem = schedule_rule(layout.schedule, layout.pp, layout.vpp, global_batch // per_round)
    return [problem] if problem else []


def _degrees(layout: Layout, model: Splittable, world: int, global_batch: int) -> Iterator[Layout]:
    """Yield the layouts of `world` ranks whose degrees may be legal."""
    widths = [tp for tp in divisors(most_tensor_parallel(model)) if world % tp == 0]
    for tp in widths:
        for pp in divisors(world // tp):
            if pp > model.num_hidden_layers:
                break
            for cp in divisors(world // tp // pp):
                if cp > max(8, 2 * layout.cp):
                    break
                dp = world // tp // pp // cp
                if global_batch % dp:
                    continue
                yield from _rest(layout, model, tp, pp, cp, dp, global_batch // dp)


def _rest(layout: Layout, model: Splittable, tp: int, pp: int, cp: int, dp: int, share: int) -> Iterator[Layout]:
    sizes_of_batch = {m for m in divisors(share) if m <= layout.mbs} or {1}
    etp = layout.etp if layout.etp and tp % layout.etp == 0 else None
    whole = dp * cp * (tp // (etp or 1) if etp or layout.is_folded else 1)
    experts = {e for e in divisors(math.gcd(whole, max(1, expert_count(model)))) if e <= layout.ep} or {1}
    stages: set[tuple[PipelineSchedule, int]] = {(layout.schedule, layout.vpp), (layout.schedule, 1), ("1f1b", 1)}
    copies = max(c for c in divisors(dp * cp) if c <= layout.replicas and (c < dp * cp or c == 1))
    for mbs, ep, (schedule, vpp) in itertools.product({max(sizes_of_batch), 1}, {max(experts)}, stages):
        if vpp > 1 and (pp == 1 or schedule not in {"interleaved", "zb"}):
            continue
        yield msgspec.structs.replace(
            layout, tp=tp, pp=pp, cp=cp, dp=dp, ep=ep, etp=etp, mbs=mbs, vpp=vpp, replicas=copies,
            sp=layout.sp if tp > 1 else 0, schedule=schedule if pp > 1 else "1f1b",
        )  # fmt: skip


def _distance(a: Layout, b: Layout) -> float:
    """Return how far `b` is from `a`: doublings of each degree; what is new or switched counts as half of one."""
    names = ("tp", "pp", "cp", "dp", "ep", "vpp", "mbs")
    doublings = sum(abs(math.log2(getattr(a, name) / getattr(b, name))) for name in names)
    new = sum(getattr(a, name) == 1 < getattr(b, name) for name in ("tp", "pp", "cp"))
    return float(round(doublings + 0.5 * (new + (a.schedule != b.schedule) + (a.sp != b.sp)), 6))
