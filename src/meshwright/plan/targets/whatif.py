"""Comparisons: the same model on several clusters side by side, and from one GPU to all of them."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from ...errors import InputError
from ...hardware.arithmetic import EXPECTED_SHARE, intra_node_ratio_needed
from ...layout import Layout
from ...units import format_time
from ..analytic import Grid, Setting, price_layouts
from ..analytic.price import machine_of
from ..search.explore import explore, row_of
from ..search.reasons import TERMS, WORTH
from ..search.study import PricedLayout
from .inverse import gpu_counts

LINEAR = 0.9  # of the best throughput a GPU: below this linear scaling has broken
FIGURES = {
    "peak": "FLOP/s",
    "memory_rate": "bytes/s",
    "memory_bytes": "bytes",
    "domain": "GPUs",
    "link_rate": "bytes/s",
    "node_rate": "bytes/s",
}


class FigureChange(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of the machines that differs between clusters, in their order."""

    figure: str
    unit: str
    values: tuple[float, ...]


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster of a comparison: its best layout, and the layout that all are compared with."""

    cluster: str
    best: PricedLayout
    same: PricedLayout  # the common layout on this cluster
    terms: dict[str, float]  # of the common layout, in words: seconds more (or less) than on the first cluster
    rule: str = ""


class ClusterComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Clusters side by side."""

    sides: tuple[Side, ...]
    changes: tuple[FigureChange, ...]
    reason: str


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """One number of GPUs of a scaling curve."""

    gpus: int
    global_batch: int
    row: PricedLayout
    speedup: float  # over the smallest number on which the model fits, times that number: linear is `gpus`
    efficiency: float  # speedup over gpus
    exposed_share: float  # of the step


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """A scaling curve, and where it leaves the straight line."""

    points: tuple[Scale, ...]
    grown: bool  # the global batch grows with the GPUs
    breaks_at: int | None  # from here on under 90 % of the best throughput a GPU of fewer
    too_small: tuple[int, ...]  # numbers on which nothing is legal or fits


def compare_clusters(settings: Mapping[str, Setting], layout: Layout | None = None) -> ClusterComparison:
    """Return clusters side by side: each with its best layout, and all with one layout (the first one's best).

    InputError if nothing fits on one of them.
    """
    bests = {name: explore(setting).best for name, setting in settings.items()}
    first = next(iter(settings))
    common = layout or bests[first].layout
    rows = {name: _priced(setting, common) for name, setting in settings.items()}
    sides = tuple(
        Side(
            cluster=name,
            best=bests[name],
            same=rows[name],
            terms=_differences(rows[first], rows[name]),
            rule=_rule(setting, common),
        )
        for name, setting in settings.items()
    )
    return ClusterComparison(sides=sides, changes=_changes(settings), reason=_reason(sides))


def scaling(setting: Setting, *, grown: bool = False) -> Scaling:
    """Return the curve from one GPU to all; the batch is fixed, or grows in proportion if `grown`.

    InputError if the model fits on no number of GPUs.
    """
    found: list[tuple[int, int, PricedLayout]] = []
    too_small, reason = [], ""
    for gpus in gpu_counts(setting):
        batch = setting.global_batch
        if grown:
            batch, rest = divmod(setting.global_batch * gpus, setting.gpus)
            if rest or not batch:
                too_small.append(gpus)
                continue
        try:
            found.append((gpus, batch, explore(replace(setting, gpus=gpus, global_batch=batch), offers=False).best))
        except InputError as error:
            too_small.append(gpus)
            reason = f": {error}"  # of the most of them, in the end
    if not found:
        raise InputError(f"nothing is legal or fits on any number of GPUs up to {setting.gpus}{reason}")
    base = found[0][2].predicted.tokens_per_s_per_gpu
    points = tuple(
        Scale(
            gpus=gpus,
            global_batch=batch,
            row=row,
            speedup=gpus * row.predicted.tokens_per_s_per_gpu / base,
            efficiency=row.predicted.tokens_per_s_per_gpu / base,
            exposed_share=row.predicted.exposed_comm_s / row.predicted.step_time_s,
        )
        for gpus, batch, row in found
    )
    return Scaling(points=points, grown=grown, breaks_at=_breaks_at(points), too_small=tuple(too_small))


def _breaks_at(points: tuple[Scale, ...]) -> int | None:
    """Return the first number of GPUs from which on all fall behind the best throughput a GPU of fewer.

    Fewer may be slower a GPU, where memory is scarce; a number that divides badly may fall behind its neighbours.
    """
    broken = None
    for place in range(len(points) - 1, 0, -1):
        if points[place].efficiency >= LINEAR * max(point.efficiency for point in points[:place]):
            break
        broken = points[place].gpus
    return broken


def _priced(setting: Setting, layout: Layout) -> PricedLayout:
    grid = Grid.of([layout])
    return row_of(setting, grid, price_layouts(setting, grid), 0)


def _differences(first: PricedLayout, other: PricedLayout) -> dict[str, float]:
    return {words: other.terms[name] - first.terms[name] for name, words in TERMS.items()}


def _changes(settings: Mapping[str, Setting]) -> tuple[FigureChange, ...]:
    """Return the figures of the machines that are not the same everywhere."""
    machines: list[Any] = [machine_of(setting) for setting in settings.values()]
    found = []
    for figure, unit in FIGURES.items():
        values = tuple(float(getattr(machine, figure)) for machine in machines)
        if len(set(values)) > 1:
            found.append(FigureChange(figure=figure.replace("_", " "), unit=unit, values=values))
    return tuple(found)


def _rule(setting: Setting, layout: Layout) -> str:
    """Return what the rule of thumb for tensor x pipeline parallelism says, and how far to trust it.

    NVLink must be 2(P-1)/P of the node's network. The rule divides a spec by a measurement and counts one all-reduce
    for each cut where a stage makes several a layer: the verdict is the exposed time, not the ratio.
    """
    if layout.tp < 2 or layout.pp < 2:
        return ""
    machine = machine_of(setting)
    needed = intra_node_ratio_needed(layout.tp)
    measured = EXPECTED_SHARE[0] * machine.node_rate
    ratio = machine.link_rate / measured
    verdict = "enough" if ratio >= needed else "bound by the links inside the node"
    return (
        f"rule of thumb: links inside a node need {needed:g} times its network; {machine.link_rate / 1e9:.0f} / "
        f"{measured / 1e9:.0f} GB/s ({EXPECTED_SHARE[0]:.0%} of {machine.node_rate / 1e9:.0f}) = {ratio:.4g}: "
        f"{verdict}. Spec by spec it is {machine.link_rate / machine.node_rate:.3g}; the exposed time decides"
    )


def _reason(sides: tuple[Side, ...]) -> str:
    """Return what the common layout takes on clusters with room for it, and which cluster is the fastest."""
    roomy = [side for side in sides if side.same.fits != "does not fit"]
    sentences = _too_large(sides)
    for side in roomy[1:]:
        sentences.append(_beside(roomy[0], side))
    return " ".join(sentences + _fastest(sides))


def _beside(first: Side, side: Side) -> str:
    """Return what the common layout takes on one cluster beside another, and the term that tells most of it."""
    start, layout = first.same.predicted.step_time_s, first.same.text
    terms = _differences(first.same, side.same)
    words, extra = max(terms.items(), key=lambda item: abs(item[1]))
    delta = side.same.predicted.step_time_s - start
    if max(abs(delta), abs(extra)) < WORTH * start:
        return f"With {layout} {side.cluster} takes as long as {first.cluster}."
    return (
        f"With {layout} {side.cluster} takes {_more(delta)} than {first.cluster} "
        f"({_change(delta, start)}); {words} alone {_more(extra)}."
    )


def _change(delta: float, start: float) -> str:
    """Return a difference beside what it starts from: a percentage, or how many times where it is more than that."""
    return f"{delta / start:+.1%}" if delta < start else f"{1.0 + delta / start:.3g} times"


def _fastest(sides: tuple[Side, ...]) -> list[str]:
    """Return which cluster is the fastest where each has its own best layout; nothing where they take as long."""
    best, *others = sorted(sides, key=lambda side: side.best.predicted.step_time_s)
    step_s = best.best.predicted.step_time_s
    if others[-1].best.predicted.step_time_s - step_s < WORTH * step_s:
        return []
    beside = ", ".join(
        f"{side.cluster} takes {side.best.predicted.step_time_s / step_s:.3g} times as long{_away(side)}"
        for side in others
    )
    own = f"Each with its own best layout, {best.cluster} is the fastest: {format_time(step_s)} a step{_away(best)}"
    return [f"{own}; {beside}."]


def _away(side: Side) -> str:
    """Return what a cluster's best layout keeps in its hosts' memory, which another may not need to."""
    kept = {"optimizer": "optimiser states", "parameters": "weights and optimiser states"}
    what = kept.get(side.best.layout.offload)
    return f", with {what} in its hosts' memory" if what else ""


def _too_large(sides: tuple[Side, ...]) -> list[str]:
    """Return where the layout that all are compared with has no room: its time there says nothing of a step."""
    places = [side.cluster for side in sides if side.same.fits == "does not fit"]
    if not places:
        return []
    none = f"It does not fit on {' and '.join(places)}: these times are of no step that runs."
    return [f"All are set beside each other with {sides[0].same.text}. {none}"]


def _more(seconds: float) -> str:
    return f"{format_time(abs(seconds))} {'more' if seconds > 0 else 'less'}"
