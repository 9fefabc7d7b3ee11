"""Stages of Megatron's pipelines: virtual ones, a layout string, first and last ranks with layers of another number."""

import re

from ...errors import InputError
from ..draft import Draft
from ..keys import Keys

# megatron/training/yaml_arguments.py
OF_YAML = "no effect in a YAML of Megatron's, which takes num_layers_per_virtual_pipeline_stage alone"


def virtual(draft: Draft, keys: Keys, layers: int | None) -> None:
    """Set the virtual stages: from layers a virtual stage, their number, or Megatron's layout string."""
    pp = draft.get("pp")
    per_stage = keys.whole("num-layers-per-virtual-pipeline-stage", least=1)
    number = keys.whole("num-virtual-stages-per-pipeline-rank", "virtual-pipeline-model-parallel-size", least=1)
    if number is not None and "yaml-cfg" in keys:
        draft.note(f"{number} virtual stages: {OF_YAML}")
        number = None
    layout = pipeline_layout_text(keys)
    first = keys.whole("decoder-first-pipeline-num-layers", least=1)
    last = keys.whole("decoder-last-pipeline-num-layers", least=1)
    embedding, loss = (
        int(bool(keys.switch(f"account-for-{end}-in-pipeline-split", default=False))) for end in ("embedding", "loss")
    )
    draft.ends = (embedding, loss)
    if pp == 1:
        if per_stage or layout or (number or 1) > 1:
            draft.put("vpp", 2, "virtual stages")  # told and dropped where the draft is finished
        return
    if layout:
        letters = layout_letters(layout, keys.where)
        draft.stages = tuple(stage.count("t") for stage in letters)
        if any("m" in stage for stage in letters[:-1]):
            draft.ignore(f"{layout[:60]}: modules that predict further tokens are priced in the output's stage")
        if len(draft.stages) % pp:
            raise InputError(
                f"{keys.where}: pipeline-model-parallel-layout has {len(draft.stages)} stages, "
                f"which {draft.origin('pp')} does not divide"
            )
        draft.put("vpp", len(draft.stages) // pp, "pipeline-model-parallel-layout")
    elif number is not None:
        draft.put("vpp", number, f"{number} virtual stages")
    elif per_stage is not None and layers is not None:
        slots = layers + sum(draft.ends)
        if slots % pp or (slots // pp) % per_stage:
            raise InputError(
                f"{keys.where}: num-layers {layers} over {draft.origin('pp')} is not a multiple of "
                f"num-layers-per-virtual-pipeline-stage {per_stage}"
            )
        draft.put("vpp", slots // pp // per_stage, keys.told("num-layers-per-virtual-pipeline-stage"))
    if (first or last) and layers is not None:
        draft.stages = uneven_stages(layers, pp, draft.get("vpp"), first, last, keys.where)


def without_idle(draft: Draft, keys: Keys) -> None:
    """Take away the layers that do nothing and make stages equally long (MindSpeed's `noop-layers`: their places).

    Raises InputError where they are no places of layers.
    """
    told, layers = keys.raw("noop-layers"), draft.config.get("num_hidden_layers")
    if told is None or not layers:
        return
    places = {int(text) for text in re.findall(r"\d{1,6}", str(told))}
    if not places or max(places) >= layers or len(places) == layers:
        raise InputError(f"{keys.where}: noop-layers {told}: expected places of some of {layers} layers, from 0")
    parts = draft.get("pp") * draft.get("vpp")
    if draft.get("pp") > 1 and not draft.stages and layers % parts == 0:
        each = layers // parts
        draft.stages = tuple(each - sum(place // each == part for place in places) for part in range(parts))
    draft.config["num_hidden_layers"] = layers - len(places)
    sparse = draft.config.get("layers_with_experts")
    if sparse:
        draft.config["layers_with_experts"] = [one for place, one in enumerate(sparse) if place not in places]


def pipeline_layout_text(keys: Keys) -> str | None:
    """Return the layout of a pipeline as Megatron's letters; recipes list the names of each stage instead."""
    stages = keys.raw("pipeline-model-parallel-layout")
    if not isinstance(stages, list):
        return keys.word("pipeline-model-parallel-layout")
    letters = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
    rows = [stage if isinstance(stage, list) else [stage] for stage in stages]
    return "|".join("".join(letters.get(str(name), "?") for name in row) for row in rows)


def uneven_stages(layers: int, pp: int, vpp: int, first: int | None, last: int | None, where: str) -> tuple[int, ...]:
    """Return the layers of each stage where the first or last pipeline rank holds another number than the rest."""
    middle = pp - (first is not None) - (last is not None)
    rest = layers - (first or 0) - (last or 0)
    counts = [first] if first else []
    if middle <= 0 or rest < middle * vpp or rest % (middle * vpp):
        raise InputError(f"{where}: {rest} layers between the first and last stage do not divide by {middle} x {vpp}")
    counts += [rest // middle] * middle
    counts += [last] if last else []
    if any(count % vpp for count in counts):
        raise InputError(f"{where}: decoder-first/last-pipeline-num-layers do not divide by {vpp} virtual stages")
    return tuple(count // vpp for _ in range(vpp) for count in counts)


def layout_letters(layout: str, where: str) -> list[str]:
    """Return the letters of each stage of a layout string such as "Et*3|(tt|)*4,m|L"."""
    text = re.sub(r"[\s,'\"]", "", layout)
    for _ in range(200):
        match = re.search(r"\(([^()]*)\)\*(\d+)|([A-Za-z])\*(\d+)", text)
        if match is None:
            break
        times = int(match.group(2) or match.group(4))
        part = match.group(1) if match.group(1) is not None else match.group(3)
        if times > 4096 or len(part) * times + len(text) > 65536:
            raise InputError(f"{where}: pipeline-model-parallel-layout: more than 65536 letters, refused")
        text = text[: match.start()] + part * times + text[match.end() :]
    if not re.fullmatch(r"[EtmL|]+", text):
        raise InputError(
            f"{where}: pipeline-model-parallel-layout: {layout[:60]!r}: expected letters E, t, m, L and bars"
        )
    return text.split("|")
