"""torchtune's YAML: a model of its own under FSDP 2, with `key=value` words of `tune run` on top.

Sources: pytorch/torchtune:recipes/full_finetune_distributed.py, lora_finetune_distributed.py (and their single_device
siblings), recipes/configs, torchtune/training/_distributed.py (ParallelDims), torchtune/modules/loss.
"""

import re

from ...errors import InputError
from ...workload.recomputed import INPUT
from ..draft import Draft
from ..job import Job
from ..keys import Keys
from ..launch import named_by
from ..objectives import assume_full_rows
from ..optimizers import momentum_of, read_optimizer, take_early
from ..options import BY_LAYOUT, JobOptions
from ..ranks import world_of
from ..sources import Sources

HARMLESS = (
    r"(?:tokenizer|checkpointer|dataset|dataset_val|lr_scheduler|metric_logger|profiler|collate_fn|tensor_parallel_plan)(?:\..*)?",
    r"output_dir|resume_from_checkpoint|save_adapter.*|seed|shuffle|epochs|max_steps.*|log_.*|device|clip_grad_norm|model\._component_",
    r"batch_size_val|run_val.*|enable_async_checkpointing|custom_sharded_layers|cudnn_.*|keep_last.*|save_every.*|loss\.(?!_component_).*",
    r"optimizer\.(?!_component_).*|model\.(?:lora_alpha|lora_dropout|use_dora|apply_lora_to.*|lora_attn_modules.*)|ac_option",
)
# names of its published YAML files (`tune ls`): family, size and what is trained
PUBLISHED = re.compile(r"(?P<family>[a-z]\w*)/(?P<size>[\d.]+[BM])_(?P<kind>full|lora|qlora)")
# what a command must say itself where the published YAML that it names is not here
PRICED = ("batch_size", "gradient_accumulation_steps", "tokenizer.max_seq_len", "enable_activation_checkpointing")
# of a sequence; the second up to torchtune 0.2 (meta-pytorch/torchtune#1311)
LENGTHS = ("tokenizer.max_seq_len", "dataset.max_seq_len")
RECIPES = re.compile(r"(?:full|lora)_finetune_(?:distributed|single_device)")
WHOLE = re.compile(r"(?:^|\.)(?:CrossEntropyLoss|ForwardKLLoss)$")  # losses over logits that are whole
TYPES = {"bf16": "bf16", "bfloat16": "bf16", "fp32": "fp32", "float32": "fp32"}


def read(sources: Sources, question: JobOptions) -> Job:
    """Return the job of a torchtune YAML; InputError for recipes that are not read (preferences, distillation)."""
    keys = _keys(sources)
    draft = Draft("accelerate", sources.names, question)
    draft.note("torchtune shards with FSDP 2: read as FSDP")
    recipe = "" if sources.launch is None else sources.launch.program
    name = recipe.rpartition("/")[2].removesuffix(".py")
    loss = keys.word("loss._component_") or ""
    if (name and not recipe.endswith(".py") and not RECIPES.fullmatch(name)) or "rlhf" in loss:
        raise draft.refused(f"torchtune's {name if name else loss} is not read: {BY_LAYOUT}")
    world_of(sources.launch, draft)
    alone = name.endswith("_single_device")
    if alone:
        draft.world = (1, name)
    _mesh(draft, keys, alone=alone)
    _model(draft, keys)
    _states(draft, keys)
    draft.take_batch("mbs", keys, "batch_size")
    draft.take_batch("steps", keys, "gradient_accumulation_steps")
    draft.seq_len = keys.whole(*LENGTHS, least=1)
    if not keys.switch("dataset.packed", "packed", default=False):
        assume_full_rows(draft)
    if loss:
        draft.savings.loss = ("whole" if WHOLE.search(loss) else "chunked", keys.told("loss._component_"))
    momentum = momentum_of(keys, "optimizer.momentum")
    read_optimizer(draft, keys, "optimizer._component_", momentum=momentum)
    if keys.switch("optimizer_in_bwd", default=False):
        take_early(draft, keys.told("optimizer_in_bwd"))
    return draft.conclude(sources, keys, HARMLESS)


def _keys(sources: Sources) -> Keys:
    """Return the settings with the words of the command on top; InputError where its YAML is not here."""
    launch = sources.launch
    named = None if launch is None else named_by(launch.arguments, "config")
    if named is not None and all(sources.document(name) is None for name in (named, f"{named}.yaml")):
        return _published(sources, named)
    return sources.with_words()


def _published(sources: Sources, named: str) -> Keys:
    """Return the settings of a command that names one of torchtune's own YAML files, with the model of that name.

    Raises InputError for another name, and where the command leaves a setting that is priced to the file.
    """
    found = PUBLISHED.fullmatch(named.removesuffix(".yaml"))
    if found is None:
        raise sources.absent(named)
    keys = sources.with_words()
    needed = [*PRICED, *(["model.lora_rank"] if found["kind"] != "full" else [])]
    if missing := [key for key in needed if key not in keys]:
        told = f"takes {', '.join(missing)} from torchtune's own {found[0]}, which is not here"
        raise InputError(f"{sources.names[0]}: {told}: `tune cp {found[0]} own.yaml` writes it; give it in its place")
    builder = f"{found['family']}_{found['size'].lower()}"
    prefix = "" if found["kind"] == "full" else f"{found['kind']}_"
    keys.values.setdefault("model._component_", f"{prefix}{builder}")
    keys.values.setdefault("optimizer._component_", "torch.optim.AdamW")
    sources.assumed.append(
        f"{found[0]} of torchtune is not here: bf16, AdamW and FSDP 2 unless the command says others"
    )
    return keys


def _mesh(draft: Draft, keys: Keys, *, alone: bool) -> None:
    """Set the degrees, and what FSDP shards over the ranks that no other degree takes."""
    draft.degree("tp", keys, "tensor_parallel_dim", default=1)
    draft.degree("cp", keys, "context_parallel_dim", default=1)
    draft.put("pp", 1, "pp 1")
    draft.switches["sp"] = int(draft.get("tp") > 1)  # its plans (torchtune/models/llama3/_parallelism.py)
    if alone:
        draft.zero(0)
        return
    copies = keys.whole("data_parallel_replicate_dim", least=1) or 1
    shards = keys.whole("data_parallel_shard_dim", least=-1)
    if copies > 1:
        draft.put("replicas", copies, keys.told("data_parallel_replicate_dim"))
    if shards is not None and shards > 0:
        draft.put("dp", copies * shards, f"data_parallel_replicate_dim {copies} x data_parallel_shard_dim {shards}")
    draft.zero(3 if keys.switch("fsdp_reshard_after_forward", default=True) else 2)
    if keys.switch("fsdp_cpu_offload", default=False):
        draft.offload("parameters")


def _model(draft: Draft, keys: Keys) -> None:
    """Set the model by the name of its builder, and adapters where the builder makes them."""
    builder = (keys.word("model._component_") or "").rpartition(".")[2]
    plain = re.sub(r"^q?lora_", "", builder)
    draft.model_name = plain or None
    if plain == builder:
        return
    rank = keys.whole("model.lora_rank", least=1)
    if rank is None:
        rank = 8
        draft.assume("adapters of rank 8 (the default of torchtune)")
    networks = keys.switch("model.apply_lora_to_mlp", default=False)
    attention = str(keys.raw("model.lora_attn_modules") or ("" if networks else "attention"))
    draft.adapters(builder, rank, f"{attention} and mlp".removeprefix(" and ") if networks else attention)
    if builder.startswith("qlora_") or keys.switch("model.quantize_base", default=False):
        draft.savings.weights = ("nf4-nested", builder)


def _states(draft: Draft, keys: Keys) -> None:
    """Set the type of everything, recomputation, and whose kernels it runs."""
    named = (keys.word("dtype") or "bf16").lower()
    if named not in TYPES:
        raise draft.refused(f"dtype {named}: expected one of {', '.join(TYPES)}")
    draft.precision = TYPES[named]
    if draft.precision == "bf16":
        draft.stack = "torchtune"  # weights, gradients and moments in half precision
    if keys.switch("enable_fp8_training", default=False):
        draft.precision = "fp8"
        draft.recipe("fp8_recipe_name", keys.word("fp8_recipe_name"))
    again = keys.switch("enable_activation_checkpointing", default=False)
    draft.recompute("full" if again else "none", f"enable_activation_checkpointing {str(bool(again)).lower()}")
    mode = (keys.word("ac_mode") or "").lower()
    if again and mode == "selective":
        each = keys.word("ac_option") or "1"
        draft.ignore(f"ac_mode selective, ac_option {each}: priced as a checkpoint of each layer")
    if keys.switch("enable_activation_offloading", default=False):
        draft.away = (INPUT,)
