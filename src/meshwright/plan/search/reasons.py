"""Why the winner wins: what each of its choices gains over the nearest others, from the terms of their prices."""

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from ...layout import Layout, micro_batches
from ...pipelines import broken_rule as schedule_rule
from ...units import counted, format_bytes, format_time
from ..analytic import RECOMPUTES, Grid, Setting, StepPrices, price_layouts
from ..analytic.fits import word
from ..analytic.host import ON_NVME
from ..analytic.price import machine_of, verdicts_in
from ..layouts.legality import divisors
from .study import MicroBatch, PricedLayout, on_host_text

# the terms that a step is the sum of, as a reader calls them
TERMS = {
    "forward_s": "forward",
    "backward_s": "backward",
    "tensor_comm_s": "communication inside the layers",
    "pipeline_comm_s": "sends between stages",
    "data_comm_s": "exposed gradient and parameter traffic",
    "bubble_s": "pipeline bubble",
    "optimizer_s": "optimiser",
    "other_s": "host",
}
WAITS = ("tensor_comm_s", "pipeline_comm_s", "data_comm_s", "bubble_s", "optimizer_s", "other_s")  # of `TERMS`
CHOICES = ("tp", "pp", "cp", "ep", "zero", "mbs", "recompute")
MOST_RIVALS = 4
LARGE_BUBBLE = 0.1  # of the step: from here on more micro-batches are worth a thought
SMALL_BUBBLE = 0.05
MOST = 0.5  # of the step
WORTH = 1e-5  # of a step: what a term differs by less is no reason
TIMES = 0.5  # of the winner's step: what another takes longer than that is said as a factor
MOST_TRIES = 12  # of a batch whose bubble is small
BATCH_FACTORS = (2, 4)  # of the global batch: what a larger one would bring


def waiting_text(terms: Mapping[str, float]) -> str:
    """Return the sentence that one term, in which a rank computes no layer, is most of a step; "" where none is."""
    name = max(WAITS, key=lambda one: terms[one])
    share = terms[name] / terms["step_time_s"]
    return f"{share:.0%} of the step is {TERMS[name]}: the layers wait for it" if share > MOST else ""


def why_chosen(setting: Setting, grid: Grid, prices: StepPrices, winner: int) -> str:
    """Return one paragraph: the winner's terms, then its choices in the order of what each gains."""
    total = float(prices.step_time_s[winner])
    shares = sorted(
        ((float(getattr(prices, name)[winner]) / total, words) for name, words in TERMS.items()), reverse=True
    )
    head = ", ".join(f"{words} {share:.0%}" for share, words in shares if share >= 0.01)
    text = f"{grid.layout(winner)} takes {format_time(total)} a step ({head})."
    rivals: dict[int, list[str]] = {}
    for name in CHOICES:
        rival = _rival(grid, prices, winner, name)
        if rival is not None:
            rivals.setdefault(rival, []).append(name)
    if not rivals:
        return text + " No other layout fits."
    nearest = sorted(rivals, key=lambda index: float(prices.step_time_s[index]))[:MOST_RIVALS]
    sentences = [_beside(grid, prices, winner, rival, rivals[rival]) for rival in nearest]
    return " ".join([text, *sentences, _memory(setting, prices, winner)])


def _rival(grid: Grid, prices: StepPrices, winner: int, name: str) -> int | None:
    """Return the fastest layout that has another value of one degree."""
    column = getattr(grid, name)
    others = np.flatnonzero(column != column[winner])
    return int(others[np.argmin(prices.step_time_s[others])]) if len(others) else None


def _beside(grid: Grid, prices: StepPrices, winner: int, rival: int, names: list[str]) -> str:
    """Return what the winner gains over a rival, and the terms that gain and lose most."""
    loss = float(prices.step_time_s[rival] / prices.step_time_s[winner] - 1)
    mine, its = (" and ".join(f"{n}={_value(n, getattr(grid, n)[index])}" for n in names) for index in (winner, rival))
    worst, best = _differences(prices, winner, rival)
    one = len(names) == 1
    gain = f"save{'s' if one else ''} {loss:.1%}"
    if loss > TIMES:
        gain = f"{'is' if one else 'are'} {1.0 + loss:.2g} times as fast"
    text = f"{mine} rather than {its} {gain}"
    worth_s = WORTH * float(prices.step_time_s[winner])
    if worst[0] > worth_s:
        text += f": {worst[1]} would be {format_time(worst[0])} longer"
    if best[0] < -worth_s:
        text += f", against {format_time(-best[0])} less for {best[1]}"
    return f"{text} ({grid.layout(rival)})."


def _differences(prices: StepPrices, winner: int, rival: int) -> tuple[tuple[float, str], tuple[float, str]]:
    """Return the term in which the rival is worst and the one in which it is best, with the seconds."""
    found = [(float(getattr(prices, name)[rival] - getattr(prices, name)[winner]), TERMS[name]) for name in TERMS]
    return max(found), min(found)


def _value(name: str, value: float) -> str:
    return RECOMPUTES[int(value)] if name == "recompute" else f"{value:.0f}"


def _memory(setting: Setting, prices: StepPrices, winner: int) -> str:
    machine, away, on_nvme = machine_of(setting), float(prices.host_bytes[winner]), ON_NVME in setting.traits
    need, have = float(prices.reserved_bytes[winner]), float(machine.memory_bytes)
    names = ("parameters_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes", "logits_bytes")
    largest = max(names, key=lambda name: float(getattr(prices, name)[winner]))
    part = float(getattr(prices, largest)[winner])
    what = largest.removesuffix("_bytes")
    host = f", and {on_host_text(away, float(machine.host_memory_bytes), nvme=on_nvme)}" if away else ""
    return f"It needs {format_bytes(need)} of {format_bytes(have)}, {format_bytes(part)} of them for {what}{host}."


def micro_batch_trade(setting: Setting, row: PricedLayout) -> tuple[MicroBatch, ...]:
    """Return the winner with every micro-batch size, and with its own at larger global batches.

    Only the micro-batch changes; a size with which the schedule does not run is left out.
    """
    layout = row.layout
    trades = []
    sizes = divisors(setting.global_batch // layout.dp)
    cases = [(size, setting.global_batch) for size in sizes]
    cases += [(layout.mbs, setting.global_batch * factor) for factor in BATCH_FACTORS]
    for size, batch in cases:
        changed = replace(layout, mbs=size)
        if _runs(changed, batch):
            trades.append(_trade(replace(setting, global_batch=batch), changed))
    return tuple(trades)


def _runs(layout: Layout, global_batch: int) -> bool:
    count = micro_batches(layout, global_batch)
    return layout.pp == 1 or not schedule_rule(layout.schedule, layout.pp, layout.vpp, count)


def _trade(setting: Setting, layout: Layout) -> MicroBatch:
    grid = Grid.of([layout])
    prices = price_layouts(setting, grid)
    terms = prices.terms(0)
    return MicroBatch(
        mbs=layout.mbs,
        micro_batches=micro_batches(layout, setting.global_batch),
        global_batch=setting.global_batch,
        step_time_s=terms["step_time_s"],
        bubble_share=terms["bubble_s"] / terms["step_time_s"],
        activations_bytes=terms["activations_bytes"],
        memory_bytes=terms["reserved_bytes"],
        fits=word(verdicts_in(setting, grid, prices)[0]),
    )


def batch_warnings(setting: Setting, row: PricedLayout) -> tuple[str, ...]:
    """Return a warning where the bubble could only be made small by a larger global batch."""
    share = row.predicted.bubble_s / row.predicted.step_time_s
    layout = row.layout
    if share < LARGE_BUBBLE or layout.mbs > 1:
        return ()
    count = micro_batches(layout, setting.global_batch)
    batch = setting.global_batch
    larger = share
    for _ in range(MOST_TRIES):  # the bubble is the same for any number of micro-batches, the rest grows no faster
        needed = int(
            np.ceil(batch / layout.dp / layout.mbs * larger / (1 - larger) * (1 - SMALL_BUBBLE) / SMALL_BUBBLE)
        )
        batch = needed * layout.dp * layout.mbs
        larger = _trade(replace(setting, global_batch=batch), layout).bubble_share
        if larger <= SMALL_BUBBLE:
            break
    return (
        f"the pipeline bubble is {share:.0%} of the step with {counted(count, 'micro-batch')}; under "
        f"{SMALL_BUBBLE:.0%} it would "
        f"take a global batch of {counted(batch, 'sequence')} ({batch * setting.seq_len / 1e6:.3g} M "
        "tokens) in place of "
        f"{setting.global_batch:,}: a large batch can cost accuracy, so it is not chosen for you",
    )
