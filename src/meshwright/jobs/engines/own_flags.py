"""Flags of programs of their own on Hugging Face or DeepSpeed, where their names leave no doubt of what they set.

Such a program parses words that no trainer has (`--use_lora --rank 64`, `--pipe_parallel_size 4`). What their names
say is read; what they may say is asked for or listed, and never passed over.
"""

import re

from ..draft import Draft
from ..keys import Keys

PIPELINE = (
    *("pipe_parallel_size", "pipeline_parallel_size", "pipeline_model_parallel_size", "pp_size"),
    *("pipeline_parallel_degree", "pp_degree"),
)
TENSOR = (
    *("model_parallel_size", "tensor_parallel_size", "tensor_model_parallel_size", "tp_size"),
    *("tensor_parallel_degree", "tp_degree"),
)
# ranks that share weights and states, and how many such groups there are
SHARDS = ("shard_degree", "dp_shard_degree", "fsdp_shard_degree", "data_parallel_shard_degree", "dp_shard_size")
COPIES = ("num_replicas", "dp_replicate_degree", "data_parallel_replicate_degree", "dp_replicate_size")
SEQUENCE = (
    *("sequence_parallel_size", "seq_parallel_size", "sp_size", "ulysses_size", "ulysses_sequence_parallel_size"),
    *("ring_attn_size", "context_parallel_size", "cp_size", "ulysses_degree", "ring_degree"),
    *("context_parallel_degree", "sequence_parallel_degree", "cp_degree", "sp_degree"),
)
RANKS = ("lora_r", "lora_rank", "lora_dim", "lora_attn_dim", "peft_lora_r")
PLAIN_RANKS = ("rank", "r", "adapter_rank")  # of adapters, where another flag says that there are any
ADAPTERS = re.compile(
    r"(?:(?:use|enable|with|train|do|include|apply|add|is)_(?!\w*(?:no_|merge|save|load))(?:\w+_)?)?(?:q?lora|dora|peft)(?:_enabled?)?"
)
METHODS = frozenset({"lora", "qlora", "dora", "adalora", "rslora"})
METHOD = re.compile(
    r"(?:\w+_)?(?:tun(?:ing|er)|train(?:ing)?|fine_?tun(?:e|ing)|peft|adapter)(?:_(?:type|mode|method|strategy))?|method|mode"
)
FOUR_BITS = ("use_qlora", "qlora", "q_lora", "qlora_enable", "use_4bit")
CHECKPOINTS = re.compile(
    r"(?:(?:use|enable|with|do)_)?(?:grad(?:ient)?s?|act(?:ivation)?s?)_(?:checkpoint(?:ing|s)?|ckpt)(?:_enabled?)?"
)
PERHAPS = re.compile(r"(?:use|with|do)_(?:checkpointing|checkpoint|ckpt)|recompute\w*")
SPLITS = re.compile(r"ring|ulysses|zigzag|striped|dist[-_]?flash|sequence[-_]?parallel", re.IGNORECASE)


def of_arguments(*names: str) -> tuple[str, ...]:
    """Return names of flags as keys."""
    return tuple(f"arguments.{name}" for name in names)


def own_degrees(draft: Draft, keys: Keys) -> None:
    """Set the degrees that a program's own flags say; InputError where sequences are split by a mode of no number."""
    for name, flags in (("pp", PIPELINE), ("tp", TENSOR)):
        if (keys.whole(*of_arguments(*flags)) or 1) > 1 and draft.get(name) == 1:
            draft.degree(name, keys, *of_arguments(*flags))
            draft.assume(f"{name} {draft.get(name)}: by the name of the program's own flag, {draft.origin(name)}")
    _own_shards(draft, keys)
    split = keys.whole(*of_arguments(*SEQUENCE))
    if split is not None and split > 1 and draft.get("cp") == 1:
        draft.put("cp", split, f"sequence parallelism {split}")
        draft.ignore(f"sequence parallelism of {split}: priced as context parallelism")
    mode = next((key for key in keys.values if re.fullmatch(r"arguments\.(?:\w+_)?parallel_mode", key)), None)
    if mode is not None and draft.get("cp") == 1 and SPLITS.search(keys.word(mode) or ""):
        raise draft.refused(
            f"{keys.told(mode)}: splits sequences among ranks, of how many the program alone says: "
            "say --job sequence_parallel_size=N"
        )


def _own_shards(draft: Draft, keys: Keys) -> None:
    """Set the ranks that share weights and states, and their copies."""
    shared, copied = (keys.find(*of_arguments(*names)) for names in (SHARDS, COPIES))
    shards = 1 if shared is None else keys.whole(shared, least=-1) or 1
    copies = 1 if copied is None else keys.whole(copied, least=-1) or 1
    if shared is None or shards < 2 or "dp" in draft.degrees:
        return
    told = keys.told(shared)
    if copied is not None and copies > 1:
        told = f"{keys.told(copied)} x {told}"
        draft.put("replicas", copies, keys.told(copied))
    draft.put("dp", max(copies, 1) * shards, told)
    draft.assume(f"states that {shards} ranks share: by the name of the program's own flag, {keys.told(shared)}")


def own_adapters(keys: Keys) -> str | None:
    """Return the flag that says that adapters alone are trained, None where none does."""
    for key, value in keys.values.items():
        kind, _, name = key.partition(".")
        if kind != "arguments" or "." in name:
            continue
        text = str(value).strip().lower()
        named = ADAPTERS.fullmatch(name) and text in {"true", "1", "yes", "y"}
        if named or (text in METHODS and METHOD.fullmatch(name)):
            keys.raw(key)
            return key
    return None


def own_checkpoints(keys: Keys) -> tuple[bool, str]:
    """Return whether a program's own flag switches recomputation on, and a flag that may mean it ("" for none)."""
    perhaps = ""
    for key, value in keys.values.items():
        kind, _, name = key.partition(".")
        if kind != "arguments" or str(value).strip().lower() not in {"true", "1", "yes"}:
            continue
        if CHECKPOINTS.fullmatch(name):
            keys.raw(key)
            return True, ""
        if PERHAPS.fullmatch(name):
            perhaps = name
    return False, perhaps
