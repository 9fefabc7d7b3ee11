"""Configurations of trainers that are not read: each is refused by its own name, and never taken for another's."""

from collections.abc import Mapping
from typing import Any

HINT = "say the layout with --layout, or give the DeepSpeed or Megatron settings that it makes"


def unread_trainer(keys: frozenset[str], flat_keys: Mapping[str, Any]) -> str | None:
    """Return the name of the trainer whose YAML, JSON or TOML this is, None for any other.

    `keys` are those of the first level, `flat_keys` all of them under dotted names.
    """
    plain = {key.replace("-", "_") for key in keys}
    last = {key.rpartition(".")[2] for key in flat_keys}
    for name, found in (
        (
            "GPT-NeoX",
            plain & {"pipe_parallel_size", "model_parallel_size"} and "train_micro_batch_size_per_gpu" in plain,
        ),
        ("nanotron", {"tokens", "parallelism"} <= plain),
        ("torchtune", "_component_" in last),
        ("LLM Foundry", plain & {"device_train_microbatch_size", "global_train_batch_size"}),
        (
            "LitGPT",
            "train" in plain and plain & {"checkpoint_dir", "model_name"} and "train.micro_batch_size" in flat_keys,
        ),
        ("verl", "actor_rollout_ref" in plain),
        ("Lightning's CLI", "trainer" in plain and "class_path" in last),
    ):
        if found:
            return name
    return None
