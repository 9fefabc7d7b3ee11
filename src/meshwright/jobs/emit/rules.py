"""The rules that follow from what an engine can run: which layouts break them, for a search and for an emission."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from ...layout import AXES, OFFLOADS, ORDERS, Layout, PipelineSchedule, Recompute
from ...workload.engines import EngineFacts

Mask = npt.NDArray[np.bool_]
# layouts as arrays of one length; names are indices into their lists, etp is the tensor parallelism inside an expert
Columns = Mapping[str, npt.NDArray[Any]]
NUMBERS = ("tp", "pp", "dp", "cp", "ep", "vpp", "zero", "sp", "replicas")
SCHEDULES: tuple[str, ...] = get_args(PipelineSchedule)
RECOMPUTES: tuple[str, ...] = get_args(Recompute)


def broken(
    engine: EngineFacts, layouts: Columns, kv_heads: int, layers: int | None = None, *, compiled: bool = False
) -> dict[str, Mask]:
    """Return, for each rule of an engine in words, which of the layouts break it; without layers none of stages.

    `compiled` says that torch.compile joins the operators of its layers.
    """
    tp, pp, dp, cp, ep, vpp, zero, sp, copies = (layouts[name] for name in NUMBERS)
    found: dict[str, Mask] = {}
    for name, degree in (("tp", tp), ("pp", pp), ("cp", cp), ("ep", ep)):
        if name not in engine.axes:
            found[f"{engine.reached} has no {name}"] = degree > 1
    # rules of an axis that an engine lacks would contradict that it lacks it
    tp, pp, cp, ep = (layouts[name] if name in engine.axes else np.ones_like(dp) for name in ("tp", "pp", "cp", "ep"))
    piped = pp > 1
    found |= {words: piped & mask for words, mask in _of_schedules(engine, layouts, compiled=compiled).items()}
    offload = layouts["offload"]
    sharded = (dp * cp > 1) | (offload > 0)  # one rank offloads by stages of ZeRO too
    alone, within = np.isin(zero, engine.zero), np.isin(zero, engine.zero_in_pipelines)
    found[f"its ZeRO stages are {_listed(engine.zero)}"] = sharded & ~piped & ~alone
    found[f"its ZeRO stages in a pipeline are {_listed(engine.zero_in_pipelines)}"] = sharded & piped & ~within
    found[f"it offloads {', '.join(engine.offload)}"] = ~_among(offload, OFFLOADS, engine.offload)
    for kind, stages in engine.offload_zero.items():
        words = f"its offload={kind} goes with ZeRO stages {_listed(stages)}"
        found[words] = _among(offload, OFFLOADS, (kind,)) & ~np.isin(zero, stages)
    if engine.zero_with_tensor is not None:
        cut = (tp > 1) | (cp > 1)
        words = f"its ZeRO stages with tp or cp are {_listed(engine.zero_with_tensor)}"
        found[words] = sharded & cut & ~np.isin(zero, engine.zero_with_tensor)
    if engine.sp == "always":
        found["its tensor parallelism cuts the sequence too: sp=1"] = (tp > 1) & (sp == 0)
    elif engine.sp == "never":
        found["it has no sequence parallelism: sp=0"] = sp == 1
    if engine.experts_need_sp:
        found["experts with tp need sp=1"] = (ep > 1) & (tp > 1) & (sp == 0)
    if not engine.replicas:
        found["it keeps no copies of a sharded model: replicas=1"] = copies > 1
    else:
        found["copies divide dp"] = dp % np.maximum(copies, 1) != 0
    if engine.shares_over_context:
        found["ranks of cp and ep share the weights too: zero=3"] = ((cp > 1) | (ep > 1)) & (zero != 3)
    if engine.expert_ranks == "dp":
        found["copies divide dp / ep"] = dp // np.maximum(ep, 1) % np.maximum(copies, 1) != 0
    folded = tp // np.maximum(layouts["etp"], 1)
    ranks = {"dp": dp, "dp-cp": dp * cp * folded, "shard-cp-tp": dp // np.maximum(copies, 1) * cp * tp}
    if engine.etp == "one":
        found["its experts are not cut by tensor parallelism: etp=1"] = (ep > 1) & (layouts["etp"] > 1)
    if engine.etp == "tp":
        words = "its experts are cut by tensor parallelism as all else is: etp=tp"
        found[words] = (ep > 1) & (layouts["etp"] != tp)
    found[f"ep divides {engine.expert_ranks.replace('-', ' x ')}"] = (ep > 1) & (
        ranks[engine.expert_ranks] % np.maximum(ep, 1) != 0
    )
    found[f"it recomputes {', '.join(engine.recompute)}"] = ~_among(layouts["recompute"], RECOMPUTES, engine.recompute)
    uneven = kv_heads % tp != 0
    found["tp does not fit the key-value heads"] = uneven & ((engine.kv_heads == "divides") | (tp % kv_heads != 0))
    found[f"its orders of ranks are {', '.join(engine.orders)}"] = misordered(engine.orders, layouts)
    if layers is not None and engine.stages != "any":
        found[f"{layers} layers do not fit: {STAGES[engine.stages]}"] = piped & ~_fits(engine.stages, layers, pp, vpp)
    return found


def _of_schedules(engine: EngineFacts, layouts: Columns, *, compiled: bool) -> dict[str, Mask]:
    """Return, for each rule of an engine about the schedules of pipelines, which of the layouts break it."""
    schedule = layouts["schedule"]
    found = {f"its schedules are {', '.join(engine.schedules)}": ~_among(schedule, SCHEDULES, engine.schedules)}
    if compiled and engine.uncompiled:
        words = f"its layers are compiled, and schedule={','.join(engine.uncompiled)} halves a backward that is not"
        found[words] = _among(schedule, SCHEDULES, engine.uncompiled)
    looped = _among(schedule, SCHEDULES, engine.virtual_only)
    return found | {"this schedule needs two or more virtual stages": looped & (layouts["vpp"] < 2)}


# how an engine cuts layers into the stages of a pipeline, in words
STAGES = {
    "even": "its stages hold equally many layers",
    "counted": "its stages hold equally many layers, embedding and output counted as one each or not at all",
    "by_length": "as many stages as layers of one length make, rounded up to a multiple of pp",
}


def _fits(stages: str, layers: int, pp: Any, vpp: Any) -> Mask:
    """Return whether layers can be cut into pp x vpp stages as an engine cuts them."""
    slots = pp * vpp
    even: Mask = layers % slots == 0
    counted: Mask = (layers + 2) % slots == 0
    if stages == "even":
        return even
    if stages == "counted":
        return even | counted
    length = -(-layers // slots)
    cut: Mask = (-(-layers // length) > slots - pp) & (even | ~counted)
    return cut


def allowed(
    engine: EngineFacts, layouts: Columns, kv_heads: int, layers: int | None = None, *, compiled: bool = False
) -> Mask:
    """Return which of the layouts an engine can run."""
    rules = list(broken(engine, layouts, kv_heads, layers, compiled=compiled).values())
    refused = rules[0]
    for rule in rules[1:]:
        refused = refused | rule
    return ~refused


def refusals(
    engine: EngineFacts, layout: Layout, kv_heads: int, layers: int | None = None, *, compiled: bool = False
) -> list[str]:
    """Return the rules of an engine that a layout breaks, in words."""
    one = {name: np.array([getattr(layout, name)]) for name in NUMBERS} | {
        "etp": np.array([layout.expert_tp]),
        "schedule": np.array([SCHEDULES.index(layout.schedule)]),
        "recompute": np.array([RECOMPUTES.index(layout.recompute)]),
        "order": np.array([ORDERS.index(layout.order)]),
        "offload": np.array([layout.offloaded]),
    }
    return [rule for rule, mask in broken(engine, one, kv_heads, layers, compiled=compiled).items() if mask[0]]


def _among(indices: Any, names: tuple[str, ...], wanted: tuple[str, ...]) -> Mask:
    found: Mask = np.isin(indices, [names.index(name) for name in wanted])
    return found


def _listed(stages: tuple[int, ...]) -> str:
    return ", ".join(map(str, stages))


def misordered(orders: Sequence[str], layouts: Columns) -> Mask:
    """Return which layouts place ranks in none of these orders; axes of degree 1 have no place."""
    pattern = layouts["order"] * 16 + sum((layouts[axis] > 1) * (1 << place) for place, axis in enumerate(AXES))
    values, places = np.unique(pattern, return_inverse=True)
    wrong = []
    for value in values:
        active = {axis for place, axis in enumerate(AXES) if int(value) >> place & 1}
        own = [axis for axis in ORDERS[int(value) // 16].split("-") if axis in active]
        wrong.append(all(own != [a for a in other.split("-") if a in active] for other in orders))
    found: Mask = np.array(wrong, dtype=bool)[places.reshape(-1)]
    return found
