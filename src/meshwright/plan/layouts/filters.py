"""The layouts that a search keeps: what the setting's stack can run, and what `--only` and `--not` leave."""

import itertools
from collections.abc import Collection, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from ...jobs.emit.rules import SCHEDULES, allowed, misordered, refusals
from ...layout import AXES, Layout
from ...units import counted
from ...workload.architecture import Architecture
from ...workload.conventions import OWN, Conventions, conventions_of
from ...workload.elements import SINGLE_BYTES
from ...workload.engines import ENGINES, STACK_SCHEDULES, VARIANTS, EngineFacts, itself_with, uneven_note
from ..analytic import Grid, Setting, book
from ..analytic.by_stage import layers_of_stages
from ..analytic.coefficients import STRANGERS
from ..analytic.conditions import kept
from ..analytic.held_roles import BITS_AND_BYTES
from ..analytic.price import node_group_of
from .legality import nearest_legal, nearest_of, unrunnable
from .space import in_every_order, runnable
from .stacks import through_xla

# what its optimised kernels multiply lies whole on a rank (huggingface/transformers, issue 38122, of Params4bit and tp)
UNCUT = "tp does not cut weights that bitsandbytes holds in few bits"
SHARDS_WEIGHTS = 2  # ZeRO stage from which on weights are gathered
XLA = "xla"  # trait of runs under JAX on GPUs
NEAR = 64  # legal layouts among which one is looked for that an engine runs
Mask = npt.NDArray[np.bool_]


def engine_of(stack: str) -> EngineFacts | None:
    """Return the engine that a stack runs on, or its own variant of that; None where its rules are not known."""
    known = book().stacks
    return VARIANTS.get(stack, ENGINES.get(known[stack].engine)) if stack in known else None


def _asked_engine(setting: Setting) -> EngineFacts | None:
    """Return the engine that a search keeps to: with the axes that only its own programs have where they are named."""
    engine = engine_of(setting.stack)
    return engine and itself_with(engine, (condition.name for condition in setting.conditions))


def _engine_with(stack: str, layout: Layout) -> EngineFacts | None:
    """Return the engine of a stack that runs a layout: its own programs where others have not all that it asks for."""
    engine = engine_of(stack)
    return engine and itself_with(engine, (axis for axis in AXES if getattr(layout, axis) > 1), zero=layout.zero)


def broken_on(engine: EngineFacts, setting: Setting, layout: Layout) -> list[str]:
    """Return the rules of an engine, as programs written for it use it, that a layout breaks, in words."""
    model, compiled = setting.architecture, setting.compiled
    used = itself_with(engine, (axis for axis in AXES if getattr(layout, axis) > 1), zero=layout.zero)
    return refusals(used, layout, model.num_key_value_heads, model.num_hidden_layers, compiled=compiled)


def near_on(engine: EngineFacts, setting: Setting, layout: Layout) -> list[Layout]:
    """Return the nearest layouts that an engine runs, of each split the one with the nearest stage of ZeRO."""
    found: dict[tuple[int, ...], Layout] = {}
    for zero in sorted({*engine.zero, *engine.zero_in_pipelines}, key=lambda stage: abs(stage - layout.zero)):
        legal = nearest_legal(
            msgspec.structs.replace(layout, zero=zero), setting.architecture, global_batch=setting.global_batch,
            seq_len=setting.seq_len, ranks=setting.gpus, count=NEAR,
        )  # fmt: skip
        runs = next((near for near in legal if not broken_on(engine, setting, near)), None)
        if runs is not None:
            found.setdefault((runs.tp, runs.pp, runs.cp, runs.dp, runs.ep, runs.mbs), runs)
    return nearest_of(layout, found.values())


def can_run(setting: Setting, grid: Grid) -> Mask:
    """Return which layouts the setting's stack can run; all that its weights allow where its rules are not known."""
    found = _of_engine(setting, grid)
    return found & (grid.tp == 1) if setting.weights.lower() in BITS_AND_BYTES else found


def _of_engine(setting: Setting, grid: Grid) -> Mask:
    if setting.stack == OWN:
        return runnable(grid, setting.precision)
    engine = _asked_engine(setting)
    if not len(grid):
        return np.ones(0, dtype=bool)
    if engine is None:
        names = STACK_SCHEDULES[setting.stack][0] if setting.stack in STACK_SCHEDULES else SCHEDULES
        within: Mask = (grid.pp == 1) | np.isin(grid.schedule, [SCHEDULES.index(name) for name in names])
        return within
    model = setting.architecture
    sizes = (model.num_key_value_heads, model.num_hidden_layers)
    return allowed(engine, grid.columns(), *sizes, compiled=setting.compiled)


def in_its_orders(setting: Setting, grid: Grid) -> Grid:
    """Return each layout in every axis order that differs in effect and that the stack and the conditions allow."""
    every = in_every_order(grid)
    if not len(every):
        return every
    mask = kept(setting.conditions, every, only={"order"})
    engine = engine_of(setting.stack)
    if engine is not None:
        mask &= ~misordered(engine.orders, every.columns())
    return every if mask.all() else every.take(np.flatnonzero(mask))


def unlike_its_stack(
    stack: str,
    layout: Layout,
    model: Architecture,
    traits: Collection[str] = (),
    *,
    precision: str = "",
    compiled: bool = False,
) -> Sequence[str]:
    """Return the rules of a stack's engine that a layout of a model breaks, in words; of ours what it cannot run.

    `traits` are what is written beside a run of a stack: under JAX its engine is MaxText. `precision` is that of the
    products, where it matters to what ours can run; `compiled` says that torch.compile joins the layers' operators.
    """
    if stack == OWN:
        return [problem] if (problem := unrunnable(layout, precision)) else []
    engine = ENGINES["maxtext"] if XLA in traits else _engine_with(stack, layout)
    if engine is not None:
        return refusals(engine, layout, model.num_key_value_heads, model.num_hidden_layers, compiled=compiled)
    names, why = STACK_SCHEDULES.get(stack, (SCHEDULES, ""))
    return [f"its schedules are {', '.join(names)} ({why})"] if layout.pp > 1 and layout.schedule not in names else []


def limits_unknown(stack: str) -> str:
    """Return, of a stack whose rules are not known, that no layout is left out for it; "" where they are."""
    if stack == OWN or engine_of(stack) is not None:
        return ""
    what = "beside its schedules is" if stack in STACK_SCHEDULES else "is"
    return f"which layouts stack {stack} can run {what} not known: none was left out for it"


def warnings_of_stack(setting: Setting, layout: Layout) -> list[str]:
    """Return what is to be said of a layout that is priced for a stack which cannot run it."""
    stack, precision, compiled = setting.stack, setting.precision, setting.compiled
    rules = [*unlike_its_stack(stack, layout, setting.architecture, precision=precision, compiled=compiled)]
    rules += [UNCUT] if layout.tp > 1 and setting.weights.lower() in BITS_AND_BYTES else []
    return [f"stack {setting.stack} cannot run it: {rule}" for rule in rules]


def needs_of_stack(setting: Setting, layout: Layout) -> list[str]:
    """Return what the engine of a stack has to be told, or used through, to run a layout that it can run."""
    engine, used = engine_of(setting.stack), _engine_with(setting.stack, layout)
    if engine is None or used is None:
        return []
    own = sorted(set(used.axes) - set(engine.axes))
    found = [f"{', '.join(own)} is that of {used.title}: {engine.reached} has none"] if own else []
    uneven = uneven_note(engine, setting.architecture.num_hidden_layers, layout.pp, layout.vpp)
    return [*found, uneven] if uneven else found


def notes_of_stack(setting: Setting, layout: Layout) -> list[str]:
    """Return what is to be said of how a stack runs a layout: what it needs, if it can, and what it does of its own."""
    c = conventions_of(book().described(setting.stack), setting.precision)
    single = c.weight_bytes == SINGLE_BYTES and setting.precision != "fp32" and layout.zero >= SHARDS_WEIGHTS
    travels = f"weights travel in float32 on stack {setting.stack}, twice the bytes of most others (--stack NAME)"
    told = needs_of_stack(setting, layout) or [*_unknown(setting, layout), *_uneven(setting, layout, c)]
    return [*told, *_elsewhere(setting), *([travels] if single else [])]


def _elsewhere(setting: Setting) -> list[str]:
    """Return, of a stack on accelerators that its engine is not known to run on, that this is so."""
    what, usual = through_xla(node_group_of(setting.cluster).gpu.model)
    own = engine_of(setting.stack)
    if not what or setting.stack in STRANGERS or (own is not None and own is engine_of(usual)):
        return []
    return [f"whether stack {setting.stack} runs on {what} is not known; {usual} is usual there (--stack)"]


def _uneven(setting: Setting, layout: Layout, c: Conventions) -> list[str]:
    """Return how stages are cut that do not all have as many layers, of a stack that needs no option for it."""
    layers, slots = setting.architecture.num_hidden_layers, layout.pp * layout.vpp
    over = f"{counted(layers, 'layer')} over {slots} stages"
    if c.cut_by_cost and layout.pp > 1:
        counts = layers_of_stages(setting, layout)
        each = ", ".join(f"{len(list(same))} x {count}" for count, same in itertools.groupby(counts))
        return [f"{over}: cut where that balances their cost, in turn {each}"] if len({*counts}) > 1 else []
    if layout.pp == 1 or layers % slots == 0:
        return []
    return [f"{over}: the longest, of {-(-layers // slots)}, is priced"]


def _unknown(setting: Setting, layout: Layout) -> list[str]:
    """Return, of a layout that cuts the model for a stack whose rules are not known, that nobody knows if it runs."""
    if setting.stack == OWN or engine_of(setting.stack) is not None or setting.stack in STRANGERS:
        return []
    cut = [f"{axis}={size}" for axis in ("tp", "pp", "cp", "ep") if (size := getattr(layout, axis)) > 1]
    return [f"whether stack {setting.stack} can run {','.join(cut)} is not known"] if cut else []


def narrowed_search(setting: Setting, grid: Grid, dropped: int) -> tuple[Grid, dict[str, int]]:
    """Return what the conditions keep of layouts that the stack can run, and how many were left out for which reason.

    `dropped`: the layouts that the stack cannot run, which are not in the grid.
    """
    left = {f"that stack {setting.stack} cannot run": dropped} if dropped else {}
    asked = kept(setting.conditions, grid)
    if not asked.all():
        told = " ".join(condition.flag for condition in setting.conditions)
        unmet = [condition.alternatives(grid) for condition in setting.conditions if not condition.holds(grid).any()]
        left["; ".join([f"outside {told}", *filter(None, unmet)])] = int((~asked).sum())
    return (grid if asked.all() else grid.take(np.flatnonzero(asked))), left
