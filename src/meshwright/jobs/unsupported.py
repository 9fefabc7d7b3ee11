"""Configurations of trainers that are not read: each is refused by its own name, and never taken for another's."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .options import BY_LAYOUT
from .signs import (
    LEVANTER,
    is_foundry,
    is_levanter,
    is_lightning,
    is_lingua,
    is_litgpt,
    is_nanotron,
    is_nemo_rl,
    is_neox,
    is_olmo,
    is_picotron,
    is_torchtune,
)

HINT = f"{BY_LAYOUT}, or give the DeepSpeed or Megatron settings that it makes"


# programs of trainers that are not read, by what their name or one of their flags has
PROGRAMS: tuple[tuple[str, str], ...] = (
    ("OpenRLHF", r"(?:^|[./])openrlhf[./]|^--micro[-_]train[-_]batch[-_]size(?:=|$)"),
    ("verl", r"(?:^|[./])verl[./]"),
    ("slime", r"^--(?:rollout-batch-size|actor-num-nodes)(?:=|$)"),
    ("NeMo RL", r"(?:^|[./])nemo_rl[./]"),
    (
        "OLMo-core",
        r"(?:^|[./])olmo_core[./]|(?:^|/)src/scripts/(?:train|official)/(?:[\w.-]+/){0,4}\w[\w.-]*\.py$"
        r"|^--(?:train_module\.|trainer\.max_duration(?:\.|=|$))",
    ),
    ("Levanter", r"(?:^|[./])levanter[./]"),
    ("fairseq2", r"(?:^|[./])fairseq2[./]"),
    ("nanochat", r"^scripts\.(?:base|mid|chat)_(?:train|sft|rl)$|(?:^|/)nanochat/"),
    ("GPT-NeoX", r"(?:^|/)deepy\.py$"),
    ("EasyLM", r"(?:^|[./])EasyLM[./]"),
    ("AXLearn", r"(?:^|[./])axlearn[./]"),
    ("prime-rl", r"(?:^|[./])prime_rl[./]"),
    ("AReaL", r"(?:^|[./])areal[./]"),
    ("SkyRL", r"(?:^|[./])skyrl(?:_train)?[./]"),
    ("VeOmni", r"(?:^|[./])veomni[./]"),
    ("PaddlePaddle", r"^paddle\.distributed\.launch$|(?:^|/)fleetrun$"),
    ("PaddleNLP", r"^--(?:unified_checkpoint|virtual_pp_degree|amp_master_grad|sharding_parallel_\w+)(?:=|$)"),
    ("fms-fsdp", r"(?:^|/)main_training(?:_\w+)?\.py$|^--use_dummy_dataset(?:=|$)"),
    ("nanoGPT", r"^--n_embd="),
    ("ROLL", r"(?:^|/)start_(?:rlvr|agentic|sft|dpo|distill)_(?:\w+_)?pipeline\.py$"),
    ("MaxDiffusion", r"(?:^|[./])maxdiffusion[./]"),
)
# commands that start a training by themselves, with the words that may follow them
COMMANDS: tuple[tuple[str, str, str], ...] = (
    ("ms-swift", "megatron", r"rlhf"),
    ("ms-swift", "swift", r"rlhf"),
    ("Composer", "composer", r"-.*|.*\.py"),
    ("xtuner", "xtuner", r"train"),
    ("TRL beyond its SFTTrainer", "trl", r"grpo|orpo|cpo|bco|ppo|rloo|gkd"),
    ("ColossalAI", "colossalai", r"run"),
    ("fairseq2", "fairseq2", r"lm|wav2vec2|asr|mt|hg"),
    ("Oumi", "oumi", r"train|distributed|launch"),
    ("Cosmos-RL", "cosmos-rl", r"--config(?:=.*)?"),
    ("Lightning Fabric", "fabric", r"run"),
    *(("prime-rl", own, r"@") for own in ("sft", "rl", "trainer")),
)
# what a program imports of a trainer that is not read
PYTHON: tuple[tuple[str, str], ...] = (
    ("Lightning", r"^\s*(?:import|from) (?:lightning|pytorch_lightning)\b"),
    ("Composer", r"^\s*(?:import|from) composer\b"),
    ("a function of Modal's that starts no command", r"^\s*(?:import|from) modal\b"),
    ("Ray Train beyond TrainingArguments", r"^\s*(?:import|from) ray\.train\b"),
    ("torchtune", r"^\s*(?:import|from) torchtune\b"),
    ("OLMo-core", r"^\s*(?:import|from) olmo_core\b"),
    ("Levanter", r"^\s*(?:import|from) levanter\b"),
    ("fairseq2", r"^\s*(?:import|from) fairseq2\b"),
    ("xtuner", r"^\s*(?:import|from) xtuner\b"),
    ("nanochat", r"^\s*(?:import|from) nanochat\b"),
    ("nanoGPT", r"\bopen\([\"']configurator\.py[\"']\)|^from model import GPTConfig\b"),
    ("InternEvo", r"^\s*(?:import|from) (?:internlm|internevo)\b|^model_type\s*=\s*[\"']INTERN"),
    (
        "TRL beyond its SFTTrainer",
        r"\b(?:GRPO|PPO|BCO|RLOO|GKD|XPO|PRM|NashMD|OnlineDPO)Config\(",
    ),
)
# lines of a trainer's configuration in Python that stand together, in a file that imports nothing of torch
CONFIGURATIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("nanoGPT", (r"^(?:max_iters|block_size|init_from)\s*=", r"^(?:batch_size|gradient_accumulation_steps)\s*=")),
    ("InternEvo", (r"^hybrid_zero_optimizer\s*=\s*dict\(", r"^parallel\s*=\s*dict\(")),
)
# keys that stand together in the files of a trainer that is not read; under dotted names, or of the first level
MARKS: tuple[tuple[str, frozenset[str]], ...] = (
    ("prime-rl", frozenset({"trainer", "orchestrator"})),
    ("prime-rl", frozenset({"deployment.num_train_nodes"})),
    ("prime-rl", frozenset({"model.name", "data.seq_len", "data.batch_size", "optim"})),
    ("AReaL", frozenset({"allocation_mode", "experiment_name"})),
    ("AReaL", frozenset({"gconfig", "actor"})),
    ("Oumi", frozenset({"model.model_name", "training.trainer_type"})),
    ("Cosmos-RL", frozenset({"train.train_batch_per_replica"})),
    ("Cosmos-RL", frozenset({"policy.parallelism"})),
    ("VeOmni", frozenset({"model", "train.data_parallel_mode"})),
    ("VeOmni", frozenset({"model", "train.ulysses_parallel_size"})),
    ("VeOmni", frozenset({"model", "train.accelerator"})),
    ("ROLL", frozenset({"actor_train", "actor_infer"})),
    ("ROLL", frozenset({"actor_train.strategy_args"})),
    ("SkyRL", frozenset({"trainer.policy.model.path"})),
    ("torchforge", frozenset({"actors", "services"})),
    ("MaxDiffusion", frozenset({"pretrained_model_name_or_path", "ici_fsdp_parallelism"})),
    ("trlX", frozenset({"method", "train", "tokenizer", "model"})),
    # PaddleNLP's TrainingArguments, beside the batch that Hugging Face's have too (paddlenlp/trainer/training_args.py)
    *(
        ("PaddleNLP", frozenset({"per_device_train_batch_size", name}))
        for name in (
            *("unified_checkpoint", "virtual_pp_degree", "amp_master_grad", "sharding_parallel_degree"),
            *("sharding_parallel_config", "pipeline_parallel_config", "tensor_parallel_config", "sep_parallel_degree"),
        )
    ),
    *(
        ("PaddleNLP", frozenset({"per_device_train_batch_size", "recompute", name}))
        for name in ("tensor_parallel_degree", "pipeline_parallel_degree", "sharding", "fp16_opt_level")
    ),
    # of PaddleFormers, its successor (examples/config)
    ("PaddleFormers", frozenset({"per_device_train_batch_size", "fine_tuning", "stage"})),
    ("PaddleFormers", frozenset({"per_device_train_batch_size", "sharding", "tensor_model_parallel_size"})),
)
# packages whose TrainingArguments and SFTConfig have Hugging Face's names and other settings
NAMESAKES: tuple[tuple[str, str], ...] = (
    ("EasyDeL", r"^\s*(?:import|from) easydel\b"),
    ("PaddleNLP", r"^\s*(?:import|from) (?:paddlenlp|paddleformers)\b"),
    ("SetFit", r"^\s*(?:import|from) setfit\b"),
)
# commands whose YAML is read where it is given
WITH_YAML: tuple[tuple[str, str, str], ...] = (
    ("LLaMA-Factory", "llamafactory-cli", r"train|sft"),
    ("axolotl", "axolotl", r"train|preprocess"),
)


def unread_command(words: Sequence[str]) -> str | None:
    """Return the name of the trainer that a command starts and that is not read, None for any other."""
    told = next((name for name, pattern in PROGRAMS if any(re.search(pattern, word) for word in words)), None)
    return told or next((name for name, own, then in COMMANDS if _starts(words, own, then) is not None), None)


def unread_program(text: str, engine: str | None) -> str | None:
    """Return the name of the trainer that a Python program is on and that is not read, None for any other.

    `engine` is the one that its classes speak for: Hugging Face's names are those of other packages too.
    """
    tables = {None: NAMESAKES + PYTHON, "huggingface": NAMESAKES}.get(engine, ())
    return next((name for name, pattern in tables if re.search(pattern, text, re.MULTILINE)), None)


def unread_configuration(text: str) -> str | None:
    """Return the name of the trainer whose configuration in Python this is, None for any other text."""
    if re.search(r"^\s*(?:import|from) torch\b", text, re.MULTILINE):
        return None
    return next(
        (name for name, lines in CONFIGURATIONS if all(re.search(line, text, re.MULTILINE) for line in lines)), None
    )


def yaml_of_command(words: Sequence[str]) -> tuple[str, str] | None:
    """Return a trainer whose YAML is read and the YAML that its command names, None for any other command."""
    for name, own, then in WITH_YAML:
        at = _starts(words, own, then)
        if at is not None:
            named = [
                word
                for before, word in zip(words[at + 1 :], words[at + 2 :], strict=False)
                if word.endswith((".yaml", ".yml"))
                or (word.endswith(".json") and not word.startswith("-") and not before.startswith("--"))
            ]
            return name, named[0] if named else "its YAML"
    return None


def _starts(words: Sequence[str], own: str, then: str) -> int | None:
    """Return where a command stands with one of the words that may follow it, None where it does not."""
    for place, word in enumerate(words[:-1]):
        if word.rpartition("/")[2] == own and re.fullmatch(then, words[place + 1]):
            return place
    return None


def unread_trainer(keys: frozenset[str], flat_keys: Mapping[str, Any]) -> str | None:
    """Return the name of the trainer whose YAML, JSON or TOML this is, None for any other.

    `keys` are those of the first level, `flat_keys` all of them under dotted names.
    """
    known = is_neox(keys) or is_foundry(keys) or is_nanotron(keys) or is_litgpt(keys, flat_keys)
    if (
        known
        or is_nemo_rl(keys, flat_keys)
        or is_levanter(flat_keys)
        or is_torchtune(flat_keys)
        or is_picotron(flat_keys)
        or is_olmo(flat_keys)
        or is_lingua(flat_keys)
        or is_lightning(keys, flat_keys)
    ):
        return None
    plain = {str(key).replace("-", "_") for key in keys}  # YAML has numbers for keys too
    targets = {str(value) for key, value in flat_keys.items() if key.rpartition(".")[2] == "_target_"}
    last = {key.rpartition(".")[2] for key in flat_keys}
    for name, found in (
        (
            "GPT-NeoX",
            plain & {"pipe_parallel_size", "model_parallel_size"} and "train_micro_batch_size_per_gpu" in plain,
        ),
        ("nanotron", {"tokens", "parallelism"} <= plain),
        ("torchtune", "_component_" in last),
        ("OLMo", "data" in plain and "train_loader" not in plain and "device_train_microbatch_size" in plain),
        ("LLM Foundry", plain & {"device_train_microbatch_size", "global_train_batch_size"}),
        ("Primus", "modules" in plain and "framework" in last),  # with several modules, or none that trains
        ("Composer", "max_duration" in plain and plain & {"train_batch_size", "global_train_batch_size", "grad_accum"}),
        ("verl", "actor_rollout_ref" in plain or any(target.startswith("verl.") for target in targets)),
        ("verl", "train_batch_size" in plain and plain & {"max_response_length", "reward_fn_key"}),
        ("NeMo RL", "policy" in plain and plain & {"grpo", "sft", "dpo", "loss_fn", "rm", "distillation"}),
        ("fairseq2", "trainer.data_parallelism" in flat_keys or "gang.tensor_parallel_size" in flat_keys),
        (
            "Levanter",
            "trainer.train_batch_size" in flat_keys and any(map(LEVANTER.match, flat_keys)),
        ),
    ):
        if found:
            return name
    names = plain | {start for key in flat_keys for start in itertools.accumulate(key.split("."), "{}.{}".format)}
    return next((name for name, marks in MARKS if marks <= names), None)
