"""Ways to a target that these machines do not reach: more GPUs, a larger batch, another precision."""

from collections.abc import Callable, Iterator

import msgspec
import numpy as np
from msgspec.structs import replace

from ...errors import InputError
from ...layout import Layout
from ...workload.conventions import OWN
from ..analytic import Grid, Setting, price_layouts
from ..analytic.conditions import parse_conditions
from ..analytic.fits import OVER
from ..analytic.price import PEAKS, block_scaling_lacks, flops_per_token, machine_of, node_group_of, verdicts_in
from ..layouts.stacks import default_stack
from ..search.explore import price_all, price_in_chunks, space_of

MOST_GPUS = 2**17
FUTILE = 2  # numbers of GPUs in a row that come no nearer to the target: more of them will not
LEAST_MFU = 1 / 16  # numbers of GPUs that would meet a target with less of their peak are not tried
BATCH_FACTORS = (2, 4)
PRECISIONS = ("fp8", "mxfp8", "nvfp4")

Target = Callable[[Setting], float]


class TargetAlternative(msgspec.Struct, frozen=True, kw_only=True):
    """One change beside the network, and the fastest step with it."""

    change: str  # in words
    step_time_s: float
    target_step_time_s: float  # with this change
    layout: Layout
    peak_step_time_s: float  # of the arithmetic alone, at the peak of all GPUs in `precision`
    precision: str
    needs_bytes: int | None = None  # of memory, where that is more than a GPU has

    @property
    def mfu(self) -> float:
        """The share of the GPUs' peak in its precision that the step takes."""
        return self.peak_step_time_s / self.step_time_s

    @property
    def meets(self) -> bool:
        """Whether it meets the target, in the memory that there is."""
        return self.step_time_s <= self.target_step_time_s and self.needs_bytes is None


def fastest_layout(setting: Setting) -> tuple[Layout, float]:
    """Return the fastest layout that fits and its seconds; InputError if nothing is legal or fits."""
    priced = price_all(setting)
    if not len(priced.grid):
        raise InputError("nothing fits")
    best = int(np.argmin(priced.prices.step_time_s))
    return priced.grid.layout(best), float(priced.prices.step_time_s[best])


def counts_beyond(setting: Setting) -> Iterator[int]:
    """Yield numbers of GPUs above the setting's: 1, 2, 3, 4, 6, 8, 12, ... nodes."""
    node = node_group_of(setting.cluster).gpus
    nodes = 1
    while nodes * node <= MOST_GPUS:
        for count in (nodes * node, nodes * node * 3 // 2):
            if setting.gpus < count <= MOST_GPUS and count % node == 0:
                yield count
        nodes *= 2


def beyond(setting: Setting, target_at: Target) -> Iterator[tuple[int, Layout, float, float]]:
    """Yield numbers of GPUs beyond the setting's, each with its fastest layout, step and target, while it helps.

    It ends behind the first that meets its target, and where more GPUs come no nearer to it.
    """
    nearest, futile = float("inf"), 0
    for gpus in counts_beyond(setting):
        larger = replace(setting, gpus=gpus)
        share = at_peak_s(larger) / target_at(larger)  # of the peak that the target takes
        if share > 1:
            continue
        if share < LEAST_MFU:
            return
        try:
            layout, step_s = fastest_layout(larger)
        except InputError:  # nothing is legal, or nothing fits
            futile += 1
        else:
            target_s = target_at(larger)
            yield gpus, layout, step_s, target_s
            if step_s <= target_s:
                return
            futile = 0 if step_s / target_s < nearest * 0.999 else futile + 1
            nearest = min(nearest, step_s / target_s)
        if futile >= FUTILE:
            return


def at_peak_s(setting: Setting) -> float:
    """Return the seconds of a step whose arithmetic alone counts, at the peak of all GPUs."""
    tokens = setting.global_batch * setting.seq_len
    flops = tokens * flops_per_token(setting)
    return float(flops / setting.gpus / machine_of(setting).peak)


def other_means(setting: Setting, target_at: Target) -> tuple[TargetAlternative, ...]:
    """Return what a larger batch, each faster precision and as much memory as one likes would bring."""
    found = []
    for change, changed in _changes(setting):
        if changed.global_batch > setting.global_batch and target_at(changed) <= target_at(setting):
            continue  # more work in the same time
        try:
            layout, step_s = fastest_layout(changed)
        except InputError:
            continue
        target_s = target_at(changed)
        found.append(
            TargetAlternative(
                change=change,
                step_time_s=step_s,
                target_step_time_s=target_s,
                layout=layout,
                peak_step_time_s=at_peak_s(changed),
                precision=changed.precision,
            )
        )
    return (*found, *_without_recomputation(setting, target_at(setting)))


def _changes(setting: Setting) -> Iterator[tuple[str, Setting]]:
    for factor in BATCH_FACTORS:
        batch = setting.global_batch * factor
        yield f"global batch {batch:,}", replace(setting, global_batch=batch)
    gpu, now = node_group_of(setting.cluster).gpu, machine_of(setting).peak
    peaks = gpu.peak_flops_per_s
    for precision in PRECISIONS:
        faster = precision != setting.precision and peaks.get(PEAKS[precision], 0.0) > now
        if faster and not block_scaling_lacks(peaks, precision, where=gpu.model):
            stack = default_stack(precision) if setting.stack == OWN else setting.stack
            told = f"precision {precision}" + ("" if stack == setting.stack else f" (stack {stack})")
            yield told, replace(setting, precision=precision, stack=stack)


def _without_recomputation(setting: Setting, target_s: float) -> tuple[TargetAlternative, ...]:
    """Return the fastest layout that recomputes nothing, whether it fits or not: all three ways were searched."""
    plain = replace(setting, conditions=(*setting.conditions, *parse_conditions(["recompute=none"], [])))
    grid = space_of(plain).grid
    if not len(grid):
        return ()
    best = int(np.argmin(price_in_chunks(plain, grid).step_time_s))
    layout = grid.layout(best)
    one = Grid.of([layout])
    prices = price_layouts(plain, one)
    terms, fits = prices.terms(0), int(verdicts_in(setting, one, prices)[0]) != OVER
    return (
        TargetAlternative(
            change="no recomputation",
            step_time_s=terms["step_time_s"],
            target_step_time_s=target_s,
            layout=layout,
            peak_step_time_s=at_peak_s(plain),
            precision=plain.precision,
            needs_bytes=None if fits else round(terms["card_bytes"]),
        ),
    )
