"""Rows of a table of measured runs as inputs of the cost model; measured columns are kept apart from them.

`plan.columns` says what the columns mean.
"""

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from ...errors import InputError
from ...hardware import Accelerator, Catalogue
from ...layout import Layout
from ...units import counted, format_time
from ...workload.adapters import adapted_flops_per_token
from ...workload.architecture import Architecture
from ...workload.conventions import OWN, conventions_of
from ...workload.engines import shares_key_heads
from ..analytic.coefficients import STRANGERS, Book, StackCoefficients
from ..analytic.fitted_range import RunSeen, recurrent_kinds
from ..analytic.held_roles import check_own
from ..analytic.host import HostFigures, are_away
from ..analytic.price import peak_flops_per_s, precision_named
from ..layouts.filters import unlike_its_stack
from ..layouts.legality import illegal
from ..layouts.stacks import NO_FURTHER
from .cells import Cells, check_stated, count_of, is_empty, text_of
from .columns import MEASURED, unread
from .engine_cells import check_unread, with_engine_cells, with_layout
from .engine_named import engine_of_row, with_year
from .figures import is_of_tokens, measured_of, measured_step_s, ran_out
from .gpu_cells import counted_cell, with_gpus_of_cell, with_gpus_of_degrees, with_gpus_of_nodes
from .names import KNOWN, is_open_rate
from .reading import TableLine, read_table
from .row_layout import BATCH_SAID, batch_sequences, counted_parts, layout_of, row_facts
from .row_machine import (
    accelerator_of,
    card_of_size,
    cores_of,
    host_of_row,
    link_rate_of_row,
    listed_accelerator,
    network_gbps,
    node_of,
    node_size,
)
from .row_model import check_model, row_architecture
from .row_stack import default_of_row, stack_of_row, stranger_of
from .told_flops import told_of_flops

RECURRENT = "recurrent"  # trait of models with layers that mix tokens by other kernels than attention's
EAGER = "eager"  # trait of runs whose layers go operator by operator
FEW_BITS = re.compile(r"(?i)(?<![a-z0-9])(mxfp8|nvfp4|fp8|float8)(?![a-z])")
NOT_OF_PRODUCTS = re.compile(r"(?i)(?<![a-z])(no|not|non|without|dispatch|gather|state|moment|cache)")  # beside fp8
NEEDED = ("gpu", "num_gpus", "seq_len")  # of every row, and one of each of these
ONE_OF = (BATCH_SAID, ("model_name", "config", "hidden"))
NOT_OURS = f"family is empty, and what {OWN} keeps is more than a GPU holds"
LAYERS = 0.75  # at least this share of a forward is that of the layers, which full recomputation repeats


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One row: what was run where, with what is assumed where the row does not say."""

    id: str
    family: str
    stack: str  # whose constants apply
    accelerator: str
    node: str
    gpus: int
    gpus_per_node: int
    domain: int  # GPUs that reach each other over their own links
    link_bytes_per_s: float
    node_bytes_per_s: float
    host: HostFigures
    architecture: Architecture
    layout: Layout
    shard: int  # ranks over which ZeRO-3 shards
    seq_len: int
    global_batch: int
    precision: str
    traits: tuple[str, ...] = ()
    facts: dict[str, float | str] = {}  # roles of the cost model that the row itself settles
    sourced: bool = False  # the row says where it is from, and so of which release
    assumed: tuple[str, ...] = ()
    cores: int = 1  # of an accelerator, that are counted as GPUs each


def run_host_doubts(run: Run, known: Book) -> tuple[str, ...]:
    """Return what is assumed of the hosts where a run offloads, or activations lie there."""
    by_stack = conventions_of(known.described(run.stack)).results_away
    away = are_away(run.facts.get("results_away"), by_stack, run.layout.recompute)
    return run.host.doubts(run.stack, states=run.layout.offload != "none", activations=away)


def band_of(run: Run, known: Book) -> float:
    """Return the relative error within which nine in ten runs of its stack were predicted, those with experts apart."""
    return known.band(run.stack, experts=run.architecture.experts)


def seen_of(run: Run) -> RunSeen:
    """Return what a fitted run has seen, for `fitted_range.kinds_seen`."""
    return run.layout, run.accelerator, run.stack, run.architecture, run.seq_len, network_of_gpu(run)


def network_of_gpu(run: Run) -> float:
    """Return what a GPU of a run has between nodes in bytes per second; 0 where all reach each other otherwise."""
    return run.node_bytes_per_s / run.gpus_per_node if run.gpus > run.domain else 0.0


def run_flops_per_token(run: Run) -> float:
    """Return the model's FLOPs of a token of a run, whose weights may be frozen beside adapters."""
    trained = float(run.facts.get("trained", 1.0))
    if trained == 1.0:
        return run.architecture.model_flops_per_token(run.seq_len)
    return adapted_flops_per_token(run.architecture, run.seq_len, round(trained * run.architecture.text_parameters))


def beyond_peak(run: Run, measured_s: float, catalogue: Catalogue) -> str:
    """Return why a run's measured step cannot be: its FLOPs take longer at the dense peak of its GPUs; "" where it can.

    Frozen weights have no gradients of their own; recomputation counts where the row says that there is some.
    """
    peak = peak_flops_per_s(catalogue.accelerators[run.accelerator].peak_flops_per_s, run.precision, where="gpu")
    peak /= run.cores
    said = not any(text.startswith("recompute") for text in run.assumed)
    passes = 3.0 - (float(run.facts.get("trained", 1.0)) < 1.0) + (said and run.layout.recompute == "full") * LAYERS
    work = run.global_batch * run.seq_len * run.architecture.model_flops_per_token(run.seq_len) / 3.0 * passes
    return faster_than(work / run.gpus / peak, measured_s, run.gpus, run.accelerator)


def faster_than(least_s: float, measured_s: float, gpus: int, accelerator: str) -> str:
    """Return what is said of a step that took less than its work takes at the peak; "" of one that did not."""
    if measured_s >= least_s:
        return ""
    return (
        f"at the peak of {gpus} {accelerator} it takes {format_time(least_s)}: more than 100 % of it cannot be reached"
    )


class RunRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A row of the table: the run or the reason why it cannot be priced; what was measured, if anything."""

    id: str
    family: str
    run: Run | None = None
    reason: str | None = None
    measured_step_time_s: float | None = None
    measured_peak_memory_bytes: float | None = None
    unreadable: tuple[str, ...] = ()  # measured cells that hold something, but no figure
    contradiction: str = ""  # what another measured cell makes of the step, where the two cannot both be
    open_rate: float | None = None  # tokens a second, of one GPU or of all, where nothing else was measured
    ran_out: bool = False  # a measured cell says that memory was not enough
    as_stranger: Run | None = None  # of a row that names no stack, where ours is taken: what another one runs
    is_of_rate: bool = False  # the step is what tokens a second make of it


def read_rows(
    path: str | Path,
    catalogue: Catalogue,
    known: Book,
    models: Mapping[str, Architecture],
    *,
    strangers: bool = False,
    default: str | None = None,
) -> list[RunRow]:
    """Return the rows of a CSV file; with `strangers` as if no stack of it had been measured.

    `default` is the family of rows that name none.

    Raises InputError where it is no table of runs.
    """
    book = msgspec.structs.replace(known, stacks={k: known.stacks[k] for k in STRANGERS}) if strangers else known
    table = read_table(path)
    names, lines = table.names, table.lines
    counted_there = any(counted_cell((line.cells.get("gpu") or "").strip(), catalogue) for line in lines)
    lacks = [name for name in ("gpu", "num_gpus") if name not in names and not (counted_there and name == "num_gpus")]
    hints = "".join(f"; {name}: {hint}" for name, hint in unread(names).items() if hint)
    # each of nodes and dp may say the GPUs, of what is a table of runs otherwise
    counted_by = {"nodes", "dp"} & {*names} and {"seq_len", *MEASURED} & {*names}
    if lacks and not (lacks == ["num_gpus"] and counted_by and "num_gpus" not in hints):
        told = f"; it has {', '.join(filter(None, names))}{hints}" if len(names) > 1 or not table.header_line else ""
        columns = f"column{'s' if len(lacks) > 1 else ''} {' and '.join(lacks)}"
        place = {0: "the keys of its objects", 1: "its first line"}.get(table.header_line, f"line {table.header_line}")
        raise InputError(f"{path}: expected a table with the {columns} in {place}{told}")
    folder = Path(path).parent
    if default is not None:
        for line in lines:
            line.cells["family"] = default if is_empty(line.cells.get("family") or "") else line.cells["family"]
    rows = [
        _row(line, number, catalogue, book, models, folder, names=table.said) for number, line in enumerate(lines, 1)
    ]
    return [_with_open_rate(row, of_all=_are_of_all(rows, catalogue)) for row in rows]


def _are_of_all(rows: Sequence[RunRow], catalogue: Catalogue) -> bool:
    """Return whether a table's tokens a second are of all GPUs: of one, some row would need more than its peak."""
    return any(
        row.run is not None and row.open_rate is not None and row.run.gpus > 1
        and beyond_peak(row.run, _step_of_rate(row.run, row.open_rate * row.run.gpus), catalogue)
        for row in rows
    )  # fmt: skip


def _with_open_rate(row: RunRow, *, of_all: bool) -> RunRow:
    """Return a row with what its tokens a second make of a step if they are of one GPU, and if of all."""
    run, rate = row.run, row.open_rate
    if run is None or rate is None:
        return row
    together = _step_of_rate(run, rate)
    if run.gpus == 1:
        return msgspec.structs.replace(row, measured_step_time_s=together)
    one, all_ = (format_time(step_s) for step_s in (together / run.gpus, together))
    told = f"{rate:.6g} tokens/s may be of one GPU, a step of {one}, or of all, {all_}"
    if of_all:
        told = f"{rate:.6g} tokens/s can only be of all GPUs, a step of {all_}: of one, some row would exceed its peak"
    counts = "tokens_per_s is a column of all, tokens_per_s_per_gpu of one"
    return msgspec.structs.replace(row, contradiction=f"{told}; {counts}")


def _step_of_rate(run: Run, rate: float) -> float:
    """Return the seconds of a step whose tokens all GPUs together do at this rate, in tokens a second."""
    return run.global_batch * run.seq_len / rate


def _row(
    line: TableLine,
    number: int,
    catalogue: Catalogue,
    known: Book,
    models: Mapping[str, Architecture],
    folder: Path,
    *,
    names: Sequence[str],
) -> RunRow:
    cells = {key: (value or "").strip() for key, value in line.cells.items()}
    given = cells
    name, family = cells.get("id") or f"row-{number}", "" if line.fault else cells.get("family", "")
    run, reason, stranger = None, None, None
    assumed: list[str] = []
    try:
        if line.fault:
            raise InputError(line.fault)
        cells = with_gpus_of_nodes(with_gpus_of_cell(cells, catalogue, assumed), catalogue, assumed)
        cells = with_engine_cells(cells, assumed)
        cells = with_gpus_of_degrees(cells, assumed)
        _check_known(cells, catalogue, models, hint=line.merged)
        cells = with_layout(cells)
        run, stranger = _both_runs(name, family, cells, catalogue, known, models, folder, assumed, names)
    except InputError as error:
        reason = str(error)
        if line.ends:  # the cells that are there may stand under other columns than their own
            short = counted(line.ends, "cell")
            reason = f"{short} fewer than the table has columns; if the last are missing, {reason}"
    if line.fault:
        cells, given = {}, {}  # under which columns they stand is not known
    unreadable: list[str] = []
    done = None if run is None else (run.global_batch, run.seq_len, run.gpus)
    measured_s, contradiction = measured_step_s(cells, done, unreadable)
    held = measured_of(cells, "peak_memory_bytes_per_gpu", unreadable)
    if run is not None and held is not None and (card := card_of_size(catalogue, run.accelerator, cells["gpu"], held)):
        told = "is the memory that a GPU has, and not what a run took"
        other = f" ({card}, where it is that one: gpu says it)" * (card != run.accelerator)
        unreadable.append(f"{cells['peak_memory_bytes_per_gpu']!r} {told}{other}")
        held = None
    said = next((text for name, text in given.items() if is_open_rate(name)), "") if measured_s is None else ""
    if run is not None and measured_s is None and is_empty(said):
        contradiction = _told_of_flops(run, given, catalogue)
    return RunRow(
        id=name,
        family=family,
        run=run,
        reason=reason,
        measured_step_time_s=measured_s,
        measured_peak_memory_bytes=held,
        unreadable=tuple(unreadable),
        contradiction=contradiction,
        open_rate=measured_of({"tokens_per_s": said}, "tokens_per_s", unreadable),
        ran_out=ran_out({**cells, "tokens_per_s": said or cells.get("tokens_per_s", "")}),
        is_of_rate=measured_s is not None and is_of_tokens(cells),
        as_stranger=stranger,
    )


def _both_runs(
    name: str,
    family: str,
    cells: Cells,
    catalogue: Catalogue,
    known: Book,
    models: Mapping[str, Architecture],
    folder: Path,
    assumed: list[str],
    names: Sequence[str],
) -> tuple[Run, Run | None]:
    """Return the run of a row, and where it names no stack and ours is taken, what a stranger's would be."""
    cells = with_year(cells, assumed)
    engine = engine_of_row(cells, names) if is_empty(family) and is_empty(cells.get("year", "")) else ("", "")
    so_far = list(assumed)
    run = _run(name, family, cells, catalogue, known, models, folder, assumed, engine)
    if run.stack != OWN or not is_empty(family):
        return run, None
    other = stranger_of(cells, beside_of(cells, run.accelerator)), NOT_OURS
    with contextlib.suppress(InputError):
        return run, _run(name, family, cells, catalogue, known, models, folder, so_far, other)
    return run, None


def _told_of_flops(run: Run, given: Cells, catalogue: Catalogue) -> str:
    """Return what a rate in FLOPs makes of the step of a run whose time nobody states."""
    flops = run.global_batch * run.seq_len * run_flops_per_token(run) / run.gpus
    open_ = any(text.startswith("recompute") for text in run.assumed)
    again = open_ or run.layout.recompute == "full"
    return told_of_flops(given, flops, run.accelerator, run.precision, catalogue, again=again)


def _check_known(cells: Cells, catalogue: Catalogue, models: Mapping[str, Architecture], *, hint: str = "") -> None:
    """Raise InputError with all that a row needs and does not say, or says in a way that nobody knows or reads.

    `hint` is why several cells may be empty.
    """
    told: list[str] = []
    checks: tuple[Callable[[], object], ...] = (
        lambda: check_unread(cells),
        lambda: check_stated(cells, NEEDED, ONE_OF, hint=hint),
        lambda: accelerator_of(catalogue, text_of(cells, "gpu", "")) if cells.get("gpu") else None,
        lambda: check_model(cells, models),
        lambda: None if is_empty(said := cells.get("precision", "")) else precision_named(said, flag="precision:"),
    )
    for check in checks:
        try:
            check()
        except InputError as error:
            told.append(str(error))
    if told:
        raise InputError("; ".join(told))


def _run(
    name: str,
    family: str,
    cells: Cells,
    catalogue: Catalogue,
    known: Book,
    models: Mapping[str, Architecture],
    folder: Path,
    assumed: list[str],
    engine: tuple[str, str],
) -> Run:
    key = listed_accelerator(cells, catalogue, assumed)
    precision = _precision(cells, catalogue.accelerators[key], assumed)
    beside = beside_of(cells, key)
    cells = _with_unstated(cells, known, beside, assumed)
    accelerator = catalogue.accelerators[key]
    gpus = count_of(cells, "num_gpus")
    node_name, node = node_of(catalogue, key, text_of(cells, "gpu"))
    per_node = node_size(cells, node, gpus, assumed)
    cores = cores_of(accelerator, node, per_node, assumed)
    further = count_of(cells, "mtp_layers", 0, least=0)
    default = default_of_row(cells, engine, precision, known, (gpus, per_node), further, key, beside)
    stack_name = stack_of_row(family, cells, default, known, beside, assumed)
    _check_own(stack_name, cells, further)
    stack = known.stacks[stack_name]
    parts = counted_parts(accelerator, node) if cores == 1 else ""
    layout, shard = layout_of(cells, stack, gpus, per_node, assumed, parts=parts)
    rate = network_gbps(cells, catalogue, node, assumed if gpus > per_node else [])
    batch = batch_sequences(cells, layout, assumed, parts=parts)
    trays = round(node.scale_up_nodes.number) if node and node.scale_up_nodes else 1
    peak_flops_per_s(accelerator.peak_flops_per_s, precision, where=key)  # or say so
    architecture = row_architecture(cells, models, folder, assumed)
    seq_len = count_of(cells, "seq_len")
    _check_legal(layout, architecture, stack_name, family, global_batch=batch, seq_len=seq_len, ranks=gpus)
    conventions = conventions_of(known.described(stack_name), precision)
    traits = _traits(known.traits, stack, beside, architecture, assumed)
    return Run(
        id=name,
        family=family,
        stack=stack_name,
        accelerator=key,
        node=node_name,
        gpus=gpus,
        gpus_per_node=min(per_node, gpus),
        domain=per_node * trays,
        link_bytes_per_s=link_rate_of_row(cells, catalogue, accelerator, node, assumed if gpus > 1 else []) / cores,
        node_bytes_per_s=rate * 1e9 / 8 * min(1.0, gpus / per_node),
        host=host_of_row(accelerator, node, catalogue),
        architecture=architecture,
        layout=layout,
        shard=shard,
        seq_len=seq_len,
        global_batch=batch,
        precision=precision,
        traits=traits,
        facts=row_facts(cells, architecture, conventions, assumed, stack=stack_name),
        sourced=not is_empty(cells.get("source", "")),
        assumed=tuple(assumed),
        cores=cores,
    )


def _with_unstated(cells: Cells, known: Book, beside: str, assumed: list[str]) -> Cells:
    """Return the cells of a row with what its table leaves unsaid and another page of its authors says."""
    found: dict[str, str] = {}
    for entry in known.unstated.values():
        if re.search(entry.pattern, beside):
            new = {name: cell for name, cell in entry.cells.items() if is_empty(cells.get(name, ""))}
            assumed += [f"not stated in the table: {name} {cell} ({entry.source})" for name, cell in new.items()]
            found |= new
    return {**cells, **found} if found else cells


def _precision(cells: Cells, accelerator: Accelerator, assumed: list[str]) -> str:
    """Return the precision of a row: where it says none bf16, or fp16 of an accelerator that multiplies no bf16."""
    said = cells.get("precision", "")
    if not is_empty(said):
        return precision_named(said, flag="precision:")
    if named := _precision_beside(cells):
        column, word = named
        assumed.append(f"precision {word}: column {column} names it (precision says another)")
        return precision_named(word)
    if {"bf16", "fp16"} & accelerator.peak_flops_per_s.keys() != {"fp16"}:
        assumed.append("precision bf16")
        return "bf16"
    assumed.append("precision fp16: bf16 is none of this accelerator's")
    return "fp16"


def _precision_beside(cells: Cells) -> tuple[str, str] | None:
    """Return a column that nothing reads and the precision of few bits that it alone names; None where none does."""
    found = {
        (name, word.lower())
        for name, text in cells.items()
        if name not in KNOWN and not NOT_OF_PRODUCTS.search(text)
        for word in FEW_BITS.findall(text)
    }
    return found.pop() if len(found) == 1 else None


def _check_own(stack: str, cells: Cells, further: int) -> None:
    """Raise InputError for what a row asks of our own engine that it has not."""
    if stack == OWN and further:
        raise InputError(f"mtp_layers: {NO_FURTHER}; name a family that may have them")
    check_own(stack, {"activations_away": text_of(cells, "activations_away", "")})


def _check_legal(layout: Layout, model: Architecture, stack: str, family: str, **job: int) -> None:
    """Raise InputError with every rule that a layout breaks, our own engine's too; strangers may share heads.

    Whose rules hold is not known of a row without a family.
    """
    shared = stack in STRANGERS or shares_key_heads(stack) or (is_empty(family) and stack != OWN)
    broken = illegal(layout, model, **job, shared_heads=shared)
    if stack == OWN:
        broken += [f"{rule}; or a family that has it" for rule in unlike_its_stack(OWN, layout, model)]
    if broken:
        raise InputError("; ".join(broken))


def _traits(
    patterns: Mapping[str, str], stack: StackCoefficients, beside: str, architecture: Architecture, assumed: list[str]
) -> tuple[str, ...]:
    """Return what sets a run apart: what its model is, then what is written beside it.

    That layers are compiled, where nothing says whether they are and the stack has both, is added to `assumed`.
    """
    patterns = {**patterns, **stack.traits}
    compiled = EAGER in patterns and stack.uses.get(f"element_wise+{EAGER}") != stack.uses.get("element_wise")
    found = tuple(name for name, pattern in patterns.items() if re.search(pattern, beside))
    if compiled and EAGER not in found and "compile" not in beside.lower():
        assumed.append("torch.compile joins the operators of a layer (notes: eager, where it does not)")
    return (RECURRENT, *found) if recurrent_kinds(architecture) else found


def beside_of(cells: Cells, accelerator: str) -> str:
    """Return what is written beside a run, in which traits are looked for, after its accelerator."""
    return "; ".join((accelerator, *(cells.get(column, "") for column in ("model_name", "source", "notes"))))
