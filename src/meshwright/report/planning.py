"""The output of `meshwright plan`: the ranked layouts, the arithmetic of an envelope, curves and comparisons."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from ..plan.gantt import side_by_side
from ..plan.search.modes import ModePrice, fastest_mode, without_slow_text
from ..plan.search.reasons import waiting_text
from ..plan.search.study import PricedLayout, Study, offload_text, on_host_text
from ..plan.search.that_fit import changes
from ..plan.targets.alternatives import TargetAlternative
from ..plan.targets.envelope import Envelope, gpu_hours
from ..plan.targets.inverse import TOLERANCE, FewestGpus, Need, Solution
from ..plan.targets.whatif import FIGURES, ClusterComparison, Scaling
from ..units import counted, format_bytes, format_days, format_network_rate, format_rate, format_time
from .curve import Mark
from .layout_words import layout_text
from .narrow_tables import show_table
from .sections import FITS_TEXT

MORE_THAN_LINEAR = 1.05  # of the throughput a GPU of the fewest: from here on it is said why
WIDE = 110  # characters of a console that shows every column
BAR = 20  # characters of the longest bar of a curve
UNITS = {"peak": "TFLOP/s", "link rate": "GB/s", "node rate": "Gb/s", "memory rate": "GB/s", "memory bytes": "GiB"}
SCALES = {"peak": 1e12, "link rate": 1e9, "node rate": 1e9 / 8, "memory rate": 1e9, "memory bytes": 2**30}
QUANTITIES = {
    "inter": "rate between nodes (all NICs of a node, per direction)",
    "intra": "rate inside a node (one GPU to its peers, per direction)",
    "latency": "latency of a hop between nodes",
}
# terms that are shown where there are any: of layouts that offload, and of an update that is not fused
AT_TIMES = frozenset({"host_bytes", "pinned_bytes", "update_bytes"})
MEMORY_TERMS = {
    "allocated_bytes": "allocated memory",
    "reserved_bytes": "reserved memory",
    "card_bytes": "memory on the card",
    "optimizer_bytes": "optimizer states",
    "working_bytes": "working memory",
    "host_bytes": "host memory",
    "pinned_bytes": "of it pinned",
    "update_bytes": "made by the update",
}


def show_study(console: Console, study: Study) -> None:
    """Print what a search found."""
    console.print(
        f"{study.model} on {counted(study.gpus, 'GPU')} of {study.cluster}: {study.global_batch:,} x "
        f"{counted(study.seq_len, 'token')} a "
        f"step, {study.precision}, stack {study.stack}; {counted(study.legal, 'legal layout')}, "
        f"{counted(study.priced, 'price')}",
        highlight=False,
    )
    title = "the fastest of each way to split"
    plain = [study.plain] if study.plain.layout not in {row.layout for row in study.rows} else []
    show_table(console, rows_table(title, [*study.rows, *plain], brief=console.width < WIDE))
    console.print(study.reason, highlight=False)
    if study.best.simulated_s is None:
        console.print("step times come from closed formulas; --refine 100 simulates the fastest", highlight=False)
    if study.pareto:
        show_table(console, _pareto(study.pareto))
    show_table(console, _micro_batches(study))
    for rejection in study.rejections:
        console.print(f"set aside: {rejection}", highlight=False)
    for warning in study.warnings:
        console.print(f"warning: {warning}", highlight=False)
    show_limits(console, study.best)


def _show_band(console: Console, band: float | None, more: str = "") -> None:
    if band is not None:
        console.print(f"step times are held to lie within {band:.0%}{more}", highlight=False)


def constants_said(calibration: Sequence[str]) -> str:
    """Return where the constants of a prediction come from, for one line; the file that holds them all is left out."""
    return "; ".join(source for source in calibration if source != "constants.toml")


def show_limits(console: Console, row: PricedLayout) -> None:
    """Print how far a prediction is to be trusted."""
    _show_band(console, row.predicted.error_band, f"; constants: {constants_said(row.predicted.calibration)}")
    console.print(f"not modelled: {', '.join(row.predicted.not_modelled)}", highlight=False)


def rows_table(title: str, rows: Sequence[PricedLayout], *, brief: bool = False) -> Table:
    """Return layouts with their terms, the fastest bold; `brief` leaves out forward and backward."""
    simulated = any(row.simulated_s is not None for row in rows)
    names = ["step", *(["simulated"] if simulated else []), "MFU", *([] if brief else ["forward", "backward"])]
    table = _table(title)
    table.add_column("layout", overflow="fold")
    for name in (*names, "exposed", "bubble", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    for place, row in enumerate(rows):
        p = row.predicted
        note = row.note or (fits_text(row) if row.fits != "fits" or row.squeezes else "")
        table.add_row(
            layout_text(row.text) + (f" ({note})" if note else ""),
            format_time(p.step_time_s),
            *([format_time(row.simulated_s) if row.simulated_s is not None else ""] if simulated else []),
            "" if p.mfu is None else f"{p.mfu:.1%}",
            *([] if brief else [format_time(p.forward_s), format_time(p.backward_s)]),
            format_time(p.exposed_comm_s),
            format_time(p.bubble_s),
            format_bytes(p.peak_memory_bytes_per_gpu),
            style="bold" if place == 0 else "",
        )
    return table


def fits_text(row: PricedLayout) -> str:
    """Return the verb of a sentence about a layout: "fits", "may not fit" or "does not fit".

    Of live tensors that are predicted to be more than there is, it is the doubt that may make them fit.
    """
    if row.fits == "may not" and row.terms["allocated_bytes"] > row.capacity_bytes:
        return "does not fit as priced, but may"
    return "fits as split blocks are given back" if row.squeezes else FITS_TEXT[row.fits]


def host_text(row: PricedLayout) -> str:
    """Return what a layout needs of its host's memory, and whether that is there; "" where it offloads nothing."""
    if not row.on_host:
        return ""
    return f"; {on_host_text(row.on_host['host_bytes'], row.host_capacity_bytes, nvme=row.nvme)}"


def show_memory(console: Console, row: PricedLayout) -> None:
    """Print what a layout needs beside what the card has."""
    needs = [format_bytes(row.terms[f"{name}_bytes"]) for name in ("allocated", "reserved", "card")]
    lacks = row.memory_band_lacks and f": {row.memory_band_lacks}"
    lacks += row.memory_otherwise and f"; {row.memory_otherwise}"
    console.print(
        f"memory: it {fits_text(row)}: {needs[0]} allocated, {needs[1]} reserved, {needs[2]} on the card, of "
        f"{format_bytes(row.capacity_bytes)} ({row.capacity_source}); held to lie within {row.memory_band:.0%}{lacks}"
        f"{_moment_text(row.terms)}{host_text(row)}",
        highlight=False,
    )


def _moment_text(terms: Mapping[str, float]) -> str:
    """Return of which moment the terms of memory are, where one of them is nothing then that a step has as well."""
    if terms["gradients_bytes"] and terms["logits_bytes"]:
        return ""
    when = "after the loss, without logits" if terms["gradients_bytes"] else "at the loss, without gradients yet"
    return f"; most is needed {when}"


def show_row(console: Console, title: str, row: PricedLayout) -> None:
    """Print one layout with every term of its time and memory."""
    console.print(title, style="italic", highlight=False, markup=False, soft_wrap=True)  # may be wider than the table
    table = _table("")
    table.add_column("term")
    table.add_column("", justify="right", no_wrap=True)
    p = row.predicted
    for name, value in row.terms.items():
        if not name.endswith("_bytes"):
            table.add_row(name.removesuffix("_s").replace("_", " "), format_time(value))
    table.add_row("MFU", "" if p.mfu is None else f"{p.mfu:.1%}")
    table.add_row("model TFLOP/s a GPU", f"{p.model_tflops_per_gpu:.4g}")
    table.add_row("tokens/s a GPU", _rate(p.tokens_per_s_per_gpu))
    for name, value in row.terms.items():
        if name.endswith("_bytes") and (value or name not in AT_TIMES):
            told = MEMORY_TERMS.get(name) or name.removesuffix("_bytes").replace("_", " ")
            table.add_row(told, format_bytes(value))
    show_table(console, table)
    show_memory(console, row)
    if row.on_host and row.layout.offload != "none":
        told = offload_text(row.predicted.optimizer_s or 0.0, row.predicted.step_time_s, row.host_link)
        console.print(told, highlight=False)
    if waits := waiting_text(row.terms):
        console.print(waits, highlight=False)
    show_limits(console, row)


def show_that_fit(console: Console, row: PricedLayout, others: Sequence[PricedLayout]) -> None:
    """Print what lets a layout fit that may not, changes alone."""
    if not others:
        return
    told = " | ".join(
        f"{','.join(f'{key}={value}' for key, value in changes(row.layout, one.layout).items())} "
        f"({format_time(one.predicted.step_time_s)}, {format_bytes(one.terms['card_bytes'])} on the card)"
        for one in others
    )
    console.print(f"it would fit with {told}", highlight=False)


def show_engines(console: Console, found: Sequence[tuple[str, float]]) -> None:
    """Print the seconds of a layout on other engines, where the software was not said."""
    if found:
        told = ", ".join(f"{stack} {format_time(seconds)}" for stack, seconds in found)
        console.print(f"the same layout on other engines (--stack NAME): {told}", highlight=False)


def show_envelope(console: Console, envelope: Envelope) -> None:
    """Print the arithmetic line by line, and the step as bars."""
    table = _table("back of an envelope")
    table.add_column("what", no_wrap=True)
    table.add_column("how", overflow="fold")
    table.add_column("", justify="right", no_wrap=True)
    for line in envelope.lines:
        table.add_row(line.name, line.formula, line.text)
    show_table(console, table)
    if envelope.overlapped.spans:
        named = {"one after another": envelope.in_sequence, "overlapped": envelope.overlapped}
        for text in side_by_side(named, width=max(16, min(64, console.width - 30))):
            console.print(text, highlight=False, markup=False, soft_wrap=True)
        console.print("d data, F forward, B backward, c communication")
    console.print(envelope.verdict, highlight=False)
    for warning in envelope.warnings:
        console.print(f"note: {warning}", highlight=False)


def show_solution(console: Console, solution: Solution, marks: dict[str, tuple[Mark, ...]]) -> None:
    """Print what a target needs, each with its curve as bars and the catalogue's fabrics on it."""
    now, target = format_time(solution.present_step_time_s), format_time(solution.target_step_time_s)
    asked = f"MFU {solution.mfu_of(solution.target_step_time_s):.1%}"
    more = "" if solution.target.startswith("MFU") else f", {asked}"
    days = days_text(solution, solution.present_step_time_s)
    reached = f"MFU {solution.mfu_of(solution.present_step_time_s):.1%}"
    console.print(
        f"{solution.target}: a step of {target}{more}; the cluster as it is takes {now}{days}, {reached}, "
        f"with {solution.present_layout}: " + ("met" if solution.met else "not met"),
        highlight=False,
    )
    if told := computes_too_long(solution):
        console.print(told, highlight=False)
    for need in solution.needs:
        console.print(f"{QUANTITIES[need.quantity]}: {need_text(need)}", highlight=False)
    for need in solution.needs:
        console.print(f"\nstep time against the {QUANTITIES[need.quantity]}", highlight=False)
        show_table(console, _bars(need, solution.target_step_time_s, marks.get(need.quantity, ())))
    if solution.others:
        console.print("what else was tried:", highlight=False)
    for means in solution.others:
        console.print(f"  {means_text(means)}", highlight=False)
    fewest = solution.fewest
    days = days_text(solution, fewest.step_time_s, fewest.gpus or fewest.nearest_gpus)
    console.print(f"fewest GPUs: {fewest_text(fewest, days)}", highlight=False)
    _show_band(console, solution.error_band, ", and what is needed is no surer")


def computes_too_long(solution: Solution) -> str:
    """Return that no network meets a target, where the GPUs compute for longer than it; "" where they do not."""
    least = solution.least_compute_s
    if least is None or least <= solution.target_step_time_s:
        return ""
    return (
        f"no network reaches it: of the layouts that fit, the one that computes least does so for {format_time(least)} "
        f"(MFU {solution.mfu_of(least):.1%} with nothing exposed)"
    )


def days_text(solution: Solution, step_time_s: float | None, gpus: int | None = None) -> str:
    """Return in brackets the days of the target's budget at a step, and the GPU-hours of them; "" without a budget."""
    days = None if step_time_s is None else solution.days_of(step_time_s)
    if days is None:
        return ""
    hours = "" if gpus is None else f", {gpu_hours(days, gpus):,.0f} GPU-hours"
    return f" ({format_days(days)}{hours})"


def fewest_text(fewest: FewestGpus, days: str = "") -> str:
    """Return one sentence about the number of GPUs that a target needs; `days` follow its step."""
    took = f"{format_time(fewest.step_time_s or 0.0)}{days}"
    if fewest.gpus is None:
        nearest = fewest.nearest_gpus
        near = "" if nearest is None else f"; {nearest:,} come nearest, with {took}"
        least = f"from {fewest.least:,} to" if fewest.least > 1 else "up to"
        return f"none of {fewest.tried} numbers {least} {fewest.most:,} meets it{near}"
    more = f", more than {fewest.asked:,}" if fewest.gpus > fewest.asked else ""
    least = f", {fewest.least:,} the least" if fewest.least > 1 else ""
    tried = f"{counted(fewest.tried, 'number')} of GPUs tried{least}"
    return f"{fewest.gpus:,}{more}: {fewest.layout} takes {took}; {tried}"


def means_text(means: TargetAlternative) -> str:
    """Return one sentence about another way to a target."""
    verdict = "meets it" if means.meets else "does not"
    if means.needs_bytes is not None:
        verdict = f"does not fit: needs {format_bytes(means.needs_bytes)} a GPU"
    return (
        f"{means.change}: {format_time(means.step_time_s)} of {format_time(means.target_step_time_s)}, "
        f"MFU {means.mfu:.1%} of the peak in {means.precision}, with {means.layout}: {verdict}"
    )


def need_text(need: Need) -> str:
    """Return one sentence about what a quantity must be."""
    now = quantity_text(need.quantity, need.present)
    if not need.reachable:
        return f"no value meets the target (now {now})"
    if need.value is None:
        return f"any value meets the target (now {now})"
    word = "at most" if need.quantity == "latency" else "at least"
    return f"{word} {quantity_text(need.quantity, need.value)}, with {need.layout} (now {now})"


def quantity_text(quantity: str, value: float) -> str:
    """Return a rate between nodes in Gb/s, inside one in GB/s, a latency in seconds."""
    if quantity == "latency":
        return format_time(value)
    return format_network_rate(value) if quantity == "inter" else format_rate(value)


def show_comparison_of_clusters(console: Console, comparison: ClusterComparison) -> None:
    """Print clusters side by side, and what changed."""
    sides = comparison.sides
    table = _table("what if")
    table.add_column("")
    for side in sides:
        table.add_column(side.cluster, justify="right", overflow="fold")
    for change in comparison.changes:
        scale, unit = SCALES.get(change.figure, 1.0), UNITS.get(change.figure, FIGURES["domain"])
        table.add_row(f"{change.figure} ({unit})", *(f"{value / scale:.4g}" for value in change.values))
    table.add_row("best layout", *(_marked(side.best) for side in sides))
    table.add_row("  its step", *(format_time(side.best.predicted.step_time_s) for side in sides))
    table.add_row("  its MFU", *(f"{side.best.predicted.mfu or 0:.1%}" for side in sides))
    table.add_row("  within", *(_band(side.best) for side in sides))
    table.add_row("the same layout", *(layout_text(side.same.text) for side in sides))
    table.add_row("  step", *(format_time(side.same.predicted.step_time_s) for side in sides))
    table.add_row("  memory", *(_memory_and_verdict(side.same) for side in sides))
    table.add_row("  within", *(_band(side.same) for side in sides))
    for name in sides[0].terms:
        if any(abs(side.terms[name]) > 1e-9 for side in sides):
            cells = (format_time(side.terms[name]) for side in sides[1:])
            table.add_row(f"  {name}, beside the first", "", *(f"+{c}" if c[0] != "-" else c for c in cells))
    show_table(console, table)
    console.print(comparison.reason, highlight=False)
    left_out = dict.fromkeys(
        what for side in sides for row in (side.best, side.same) for what in row.predicted.not_modelled
    )
    console.print(f"not modelled: {', '.join(left_out)}", highlight=False)
    for side in sides:
        if side.rule:
            console.print(f"{side.cluster}: {side.rule}", highlight=False)


def _marked(row: PricedLayout) -> str:
    """Return a layout, and where it does not surely fit what holds in its place."""
    return layout_text(row.text) + ("" if row.fits == "fits" else f" ({FITS_TEXT[row.fits]})")


def _memory_and_verdict(row: PricedLayout) -> str:
    verdict = "" if row.fits == "fits" else f", {FITS_TEXT[row.fits]}"
    return format_bytes(row.predicted.peak_memory_bytes_per_gpu) + verdict


def _band(row: PricedLayout) -> str:
    """Return the share within which a step time is held to lie."""
    return "" if row.predicted.error_band is None else f"{row.predicted.error_band:.0%}"


def show_modes(console: Console, modes: Sequence[ModePrice]) -> None:
    """Print asynchronous modes below the best synchronous layout."""
    table = _table("modes of data parallelism; a step is one global batch")
    for name in ("step", "tokens/s a GPU", "exposed", "sent a step", "busiest server"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("mode", overflow="fold")
    table.add_column("layout of a worker", overflow="fold")
    for mode in modes:
        alone = mode.workers == 1
        table.add_row(
            format_time(mode.step_time_s),
            f"{mode.tokens_per_s_per_gpu:,.0f}",
            format_time(mode.exposed_comm_s),
            "" if alone else format_bytes(round(mode.wire_bytes)),
            "" if alone else format_bytes(round(mode.server_link_bytes)),
            mode.name,
            layout_text(mode.layout),
        )
    show_table(console, table)
    best, sync = fastest_mode(modes), modes[0]
    ahead = "" if best is sync else f", {sync.step_time_s / best.step_time_s:.2f} x as fast as synchronous"
    text = f"{best.name} has the shortest step{ahead}; what a mode costs in accuracy is not priced"
    for line in filter(None, (text, without_slow_text(modes))):
        console.print(line, highlight=False)
    _show_band(console, sync.error_band)


def show_scaling(console: Console, scaling: Scaling) -> None:
    """Print the scaling curve as a table with bars."""
    table = _table("scaling, the batch growing with the GPUs" if scaling.grown else "scaling, the batch fixed")
    names = ("GPUs", "batch", "step", "speedup", "of linear", "exposed", "bubble")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("layout", overflow="fold")
    for point in scaling.points:
        p = point.row.predicted
        table.add_row(
            f"{point.gpus:,}",
            f"{point.global_batch:,}",
            format_time(p.step_time_s),
            f"{point.speedup:,.1f}",
            f"{point.efficiency:.0%}",
            f"{point.exposed_share:.1%}",
            f"{p.bubble_s / p.step_time_s:.1%}",
            _marked(point.row),
        )
    show_table(console, table)
    if scaling.too_small:
        numbers = [*map(str, scaling.too_small[:-1]), counted(scaling.too_small[-1], "GPU")]
        console.print(f"nothing is legal or fits on {', '.join(numbers)}", highlight=False)
    _show_base(console, scaling)
    _show_band(console, scaling.points[-1].row.predicted.error_band)
    console.print(
        "scaling stays within 10 % of linear up to all GPUs"
        if scaling.breaks_at is None
        else (
            f"linear scaling breaks at {counted(scaling.breaks_at, 'GPU')}: under 90 % of the best "
            "throughput a GPU from there"
        ),
        highlight=False,
    )


def _show_base(console: Console, scaling: Scaling) -> None:
    """Print what the speedup is over, where that is not one GPU, and why more GPUs do better than in proportion."""
    first, best = scaling.points[0], max(scaling.points, key=lambda point: point.efficiency)
    base = counted(first.gpus, "GPU")
    if first.gpus > 1:
        console.print(f"speedup and linear count from {base}, the fewest here", highlight=False)
    if best.efficiency > MORE_THAN_LINEAR:
        console.print(
            f"more than linear: what fits on {base} is slower a GPU ({layout_text(first.row.text)}) than what fits "
            f"on {best.gpus:,} ({layout_text(best.row.text)})",
            highlight=False,
        )


def _pareto(rows: Sequence[PricedLayout]) -> Table:
    table = _table("memory against time: nothing is both smaller and faster (up to ten times the fastest step)")
    table.add_column("layout", overflow="fold")
    for name in ("memory", "step"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        p = row.predicted
        table.add_row(layout_text(row.text), format_bytes(p.peak_memory_bytes_per_gpu), format_time(p.step_time_s))
    return table


def _rate(tokens_per_s: float) -> str:
    """Return tokens per second in full, with four digits at least where there are fewer before the point."""
    return f"{tokens_per_s:,.0f}" if tokens_per_s >= 1000 else f"{tokens_per_s:.4g}"


def _micro_batches(study: Study) -> Table:
    table = _table("the winner with other micro-batches, and with larger batches")
    for name in ("batch", "mbs", "micro-batches", "step", "bubble", "activations", "memory", "tokens/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for trade in study.micro_batches:
        table.add_row(
            f"{trade.global_batch:,}",
            str(trade.mbs),
            f"{trade.micro_batches:,}",
            format_time(trade.step_time_s),
            f"{trade.bubble_share:.1%}",
            format_bytes(trade.activations_bytes),
            format_bytes(trade.memory_bytes) + ("" if trade.fits == "fits" else f" {FITS_TEXT[trade.fits]}"),
            _rate(trade.global_batch * study.seq_len / trade.step_time_s),
        )
    return table


def _bars(need: Need, target_s: float, marks: Sequence[Mark]) -> Table:
    """Return the curve as one row a value: those of the catalogue, the present one and the answer among them."""
    values = [(mark.value, mark.name) for mark in marks if need.curve[0].value <= mark.value <= need.curve[-1].value]
    values.append((need.present, "<- now"))
    if need.value is not None:
        values.append((need.value, "<- needed"))
    values += [(point.value, "") for point in need.curve[:: max(1, len(need.curve) // 8)]]
    slowest = need.curve[0].step_time_s if need.quantity != "latency" else need.curve[-1].step_time_s
    table = _table("")
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("", overflow="fold")
    named: dict[str, tuple[float, list[str]]] = {}
    for value, name in sorted(values):  # what reads the same is one row
        named.setdefault(quantity_text(need.quantity, value), (value, []))[1].append(name)
    for text, (value, names) in named.items():
        step_s = need.at(value)
        length = max(1, round(BAR * step_s / slowest))
        sign = "+" if step_s <= target_s * (1 + TOLERANCE) else "-"
        table.add_row(text, format_time(step_s), sign * length, ", ".join(filter(None, names)))
    return table


def _table(title: str) -> Table:
    return Table(title=title or None, title_justify="left", box=box.SIMPLE)
