"""Stages of torchtitan's pipelines: by layers a stage, by names of modules, or as it cuts them itself."""

import itertools
import re
from typing import Any

from ...pipelines import even_stages
from ..draft import Draft
from ..keys import Keys

SCHEDULES = {
    "1f1b": "1f1b",
    "gpipe": "gpipe",
    "interleaved1f1b": "interleaved",
    "loopedbfs": "interleaved",
    "interleavedzerobubble": "zb",
    "zbvzerobubble": "zb",
    "dualpipev": "zb",
}
SINGLE = frozenset({"1f1b", "gpipe"})


def pipeline(draft: Draft, keys: Keys) -> None:
    """Set the schedule and the stages as torchtitan cuts them: embedding and output count as layers."""
    named = keys.word("parallelism.pipeline_parallel_schedule", "experimental.pipeline_parallel_schedule") or "1F1B"
    plain = named.lower().replace("_", "")
    schedule = SCHEDULES.get(plain)
    if schedule is None:
        raise draft.refused(f"pipeline_parallel_schedule {named}: expected one of {', '.join(SCHEDULES)}")
    per_stage = keys.whole("parallelism.pipeline_parallel_layers_per_stage", least=1)
    first = keys.whole("parallelism.pipeline_parallel_first_stage_less_layers")
    last = keys.whole("parallelism.pipeline_parallel_last_stage_less_layers")
    parts = keys.raw("parallelism.pipeline_parallel_module_fqns_per_model_part") or keys.raw(
        "parallelism.module_fqns_per_model_part"
    )
    splits = keys.raw("parallelism.pipeline_parallel_split_points") or keys.raw(
        "experimental.pipeline_parallel_split_points"
    )
    draft.switches["schedule"] = schedule
    pp = draft.get("pp")
    if pp == 1:
        return
    if plain in {"loopedbfs", "dualpipev", "zbvzerobubble"}:
        draft.ignore(f"pipeline_parallel_schedule = {named}: priced as {schedule}")
    model = draft.named_model()
    layers = None if model is None else model.num_hidden_layers
    weights = (1 if first is None else first, 1 if last is None else last)
    if isinstance(parts, list) and parts:
        draft.stages = tuple(sum("layers." in str(name) for name in part) for part in parts)
    elif isinstance(splits, list) and splits and layers is not None:
        draft.stages = cut_at(splits, layers)
    elif layers is not None:
        single = plain in SINGLE
        stages = pp * (1 if single else 2)
        if per_stage is not None:
            stages = -(-(layers + sum(weights)) // per_stage)
        draft.stages = even_stages(layers, stages, ends=weights)
    if draft.stages:
        if len(draft.stages) % pp:
            slots = None if parts or splits or per_stage is None or layers is None else (layers, *weights)
            draft.refusal = _no_multiple(draft, slots, per_stage or 1)
            draft.stages = ()
        draft.put("vpp", max(1, len(draft.stages) // pp), f"{len(draft.stages)} stages")
    else:
        draft.put("vpp", 1 if plain in SINGLE else 2, named)
    if len(set(draft.stages)) == 1:
        draft.stages = ()


def cut_at(splits: list[Any], layers: int) -> tuple[int, ...]:
    """Return the layers of each stage where stages begin at the named layers ("layers.8")."""
    places = [int(match.group(1)) for name in splits if (match := re.search(r"layers\.(\d+)", str(name)))]
    edges = [0, *sorted(place for place in places if place < layers), layers]
    return tuple(b - a for a, b in itertools.pairwise(edges))


def _no_multiple(draft: Draft, slots: tuple[int, ...] | None, per_stage: int) -> str:
    """Return why ranks cannot share the stages evenly, with layers a stage nearby that would do.

    `slots` are the layers, and how many the embedding and the output count as; None where the file names the stages.
    """
    pp, stages = draft.get("pp"), len(draft.stages)
    if slots is None:
        return f"{stages} stages are no multiple of {draft.origin('pp')}"
    total = sum(slots)
    near = [each for each in range(1, total + 1) if -(-total // each) % pp == 0]
    told = f" ({' + '.join(map(str, slots))} layers, embedding and output counted, in stages of {per_stage})"
    best = min(near, key=lambda each: abs(each - per_stage), default=None)
    does = "" if best is None else f"; layers_per_stage {best} makes {-(-total // best)}"
    return f"{stages} stages{told} are no multiple of {draft.origin('pp')}{does}"
