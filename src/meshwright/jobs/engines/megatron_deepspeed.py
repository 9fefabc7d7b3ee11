"""Megatron-DeepSpeed beside Megatron-LM: its DeepSpeed file, and its own cut of layers into stages."""

from typing import Any

from ...pipelines import even_stages
from ..draft import Draft
from ..keys import Keys, as_whole, dotted_keys
from ..shell.marks import shown
from ..sources import Sources

# its switches of fused attention, off by default (deepspeedai/Megatron-DeepSpeed:megatron/arguments.py); FPDT cuts long
# sequences into chunks that it hands to such a kernel (deepspeedai/DeepSpeed:deepspeed/sequence/fpdt_layer.py)
FLASH = (
    *("use-flash-attn", "use-flash-attn-v1", "use-flash-attn-v2", "use-flash-attn-triton", "use-flash-attn-builder"),
    "ds-sequence-parallel-fpdt",
)


def with_deepspeed_file(values: dict[str, Any], origin: dict[str, str], sources: Sources) -> None:
    """Add what the DeepSpeed file of `--deepspeed-config` says of states: its stage is the one that DeepSpeed runs.

    Raises InputError where the file is needed and is not at hand.
    """
    path = values.get("deepspeed-config")
    if not isinstance(path, str) or not values.get("deepspeed"):
        return
    found = sources.document(path)
    if found is None and "zero-stage" not in values:
        raise sources.absent(path)
    if found is None:
        sources.assumed.append(f"{shown(path)} is not here: states and precision are what the flags say")
        return
    settings = dotted_keys(found.data)
    stage = as_whole(settings.get("zero_optimization.stage"))
    told = as_whole(values.get("zero-stage"))
    if stage is not None and told is not None and told != stage:
        sources.notes.append(f"zero-stage {told} gives way to zero_optimization.stage {stage} ({found.name})")
    if stage is not None:
        values["zero-stage"], origin["zero-stage"] = stage, found.name
    places = [str(settings.get(f"zero_optimization.{part}.device")) for part in ("offload_optimizer", "offload_param")]
    if any(place in {"cpu", "nvme"} for place in places) and not values.get("cpu-optimizer"):
        values["cpu-optimizer"], origin["cpu-optimizer"] = True, found.name
    if "nvme" in places:
        values["offload-nvme"], origin["offload-nvme"] = True, found.name
    if places[1] in {"cpu", "nvme"}:
        values["offload-param"], origin["offload-param"] = f"{places[1]} (in {found.name})", found.name


def offload_to_nvme(draft: Draft) -> None:
    """Have what DeepSpeed offloads lie on NVMe, whose rates and size no price knows."""
    draft.traits.append("nvme")
    draft.ignore("offload to NVMe: priced as offload to the hosts' memory, which is faster")


def read_deepspeed(draft: Draft, keys: Keys) -> None:
    """Set how DeepSpeed's pipeline cuts layers that do not divide, and say that its flags were read."""
    if not keys.switch("deepspeed", default=False):
        return
    keys.raw("deepspeed-config")
    if keys.switch("offload-nvme", default=False):
        offload_to_nvme(draft)
    draft.note("the script runs Megatron-DeepSpeed: read as Megatron, with DeepSpeed's ZeRO stage")
    fused = [keys.switch(name, default=False) for name in FLASH]  # each is read
    if not any(fused) and not keys.behind:  # words that are not known may hold it
        draft.without_fused_attention("Megatron-DeepSpeed has fused attention with use-flash-attn alone")
    if draft.switches.get("zero") == 0 and draft.precision == "bf16" and "zero-stage" in keys:
        draft.zero(1)  # deepspeedai/DeepSpeed:deepspeed/runtime/bf16_optimizer.py
        draft.assume("ZeRO 1: in bf16 DeepSpeed shares the states over data-parallel ranks at stage 0 too")
    layers, pp = draft.config.get("num_hidden_layers"), draft.get("pp")
    method = keys.word("pp-partition-method") or "type:transformer"
    keys.switch("no-pipeline-parallel", default=False)  # understood: it says no more than a degree of 1 does
    if not layers or pp == 1 or layers % pp == 0 or draft.stages or not method.strip("'\"").startswith("type:"):
        return
    ends = (1, 1) if "embedding" in method else (0, 0)  # embedding and tied output weigh as much as a layer each
    draft.stages = cut = even_stages(layers, pp, ends=ends)
    draft.assume(
        f"DeepSpeed cuts {layers} layers into {pp} stages of {', '.join(map(str, sorted(set(cut))))} ({method})"
    )
