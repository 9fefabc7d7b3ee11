"""DeepSpeed JSON, Hugging Face TrainingArguments, and Accelerate YAML (FSDP 1 and 2, DeepSpeed, Megatron plugin)."""

import re

from ...workload.recomputed import INPUT
from ..draft import Draft
from ..job import DEEPSPEED_INSIDE, OLD_OFFLOAD, Job
from ..keys import Keys
from ..objectives import assume_full_rows, named_program, read_objective
from ..options import BY_LAYOUT, JobOptions
from ..outside import each_once
from ..ranks import world_of
from ..savings import dtype_of
from ..sources import Sources
from ..tuning import BY_ENGINE, read_tuning
from .huggingface_settings import settings_of
from .llama_factory import FACTORY_HARMLESS
from .megatron import set_waits
from .megatron_deepspeed import offload_to_nvme
from .no_sync import sums_whole, with_whole_gradients
from .openrlhf import HARMLESS as OPENRLHF_HARMLESS
from .openrlhf import is_supervised
from .own_flags import own_checkpoints, own_degrees
from .swift import SWIFT_HARMLESS, is_swifts
from .trainers import AXOLOTL_HARMLESS, BY_DEFAULT, LENGTHS, PARTS, TRAINER
from .verl import HARMLESS as VERL_HARMLESS
from .verl import is_verls

HARMLESS = (
    *AXOLOTL_HARMLESS,
    *OPENRLHF_HARMLESS,
    *VERL_HARMLESS,
    *FACTORY_HARMLESS,
    *SWIFT_HARMLESS,
    r"(?:arguments|accelerate)\.(?:output_dir|learning_rate|num_train_epochs|max_steps|warmup.*|weight_decay|lr_.*|adam_.*)",
    r"arguments\.(?:logging.*|save.*|eval.*|report_to|run_name|seed|data.*|push_to_hub.*|hub.*|load_best.*|do_.*|metric.*)",
    r"arguments\.(?:overwrite.*|remove_unused.*|label.*|per_device_eval.*|max_grad_norm|train_file|tokenizer.*|ddp_timeout)",
    r"arguments\.(?:template|cutoff.*|disable_gradient_checkpointing|preprocessing.*|plot_loss|finetuning_type|resume.*|trust_remote.*|attn_implementation)",
    r"arguments\.(?:fp8_.*|flash_attn|bnb_4bit_(?:compute_dtype|quant_storage))|deepspeed\.fp8\..*",
    r"arguments\.(?:chat_template.*|model_revision|log_level.*|beta|max_prompt_length|lazy_preprocess|fsdp_transformer.*)",
    r"arguments\.(?:mm_(?!vision_tower$).*|image_(?:aspect_ratio|folder)|pretrain_mm_mlp_adapter|num_warmup_steps|lora_module_name)",
    r"accelerate\.(?:role|tee|multi_gpu|max_restarts|monitor_interval|start_method|log_dir|local_ranks_filter)",
    r"arguments\.(?:val_size|max_samples|overwrite_cache|packing|config_name|local_rank|lora_(?:alpha|dropout|target.*))",
    r"accelerate\.(?:compute_environment|debug|downcast_bf16|enable_cpu_affinity|machine_rank|main_.*|rdzv.*|same_network)",
    r"accelerate\.(?:tpu.*|use_cpu|m|module|mpirun.*|gpu_ids|command.*|commands|deepspeed_config\.deepspeed_multinode_launcher|num_cpu.*)",
    r"arguments\.fsdp_config\.(?:transformer_layer.*|min_num.*|sync_module.*|cpu_ram.*|use_orig.*|state_dict.*)",
    r"accelerate\.fsdp_config\.fsdp_(?:auto_wrap.*|state_dict.*|sync_module.*|cpu_ram.*|use_orig.*|transformer.*|min_num.*)",
    r"accelerate\.deepspeed_config\.(?:zero3_init.*|zero3_save.*|deepspeed_hostfile|deepspeed_moe.*|gradient_clipping)",
    r"deepspeed\.(?:steps_per_print|gradient_clipping|wall_clock.*|optimizer\.params.*|scheduler.*|tensorboard.*)",
    r"deepspeed\.(?:wandb.*|flops_profiler.*|fp16\.(?!enabled).*|bf16\.(?!enabled).*|prescale.*|zero_allow.*|dump_state|seed)",
    r"deepspeed\.zero_optimization\.(?:stage3_gather.*|ignore_unused.*|elastic_checkpoint|load_from.*|round_robin.*)",
    r"deepspeed\.(?:checkpoint|memory_breakdown|comms_logger|comms_config|monitor_config|csv_monitor|zero_force.*).*",
)
PARAMETERS_ALONE = "states stay on the GPUs; priced with the weights there too, without the time of their copies"
SHARDING = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "HYBRID_SHARD": 3, "HYBRID_SHARD_ZERO2": 2}
NUMBERED = {"1": "FULL_SHARD", "2": "SHARD_GRAD_OP", "3": "NO_SHARD", "4": "HYBRID_SHARD", "5": "HYBRID_SHARD_ZERO2"}
MODELS = ("model_name_or_path", "model_name", "config_name", "model", "model_id", "base_model", "model_path")
# settings that put several samples into a row, and lengths of rows that programs cut out of texts end to end
PACKS = ("arguments.packing", "arguments.neat_packing", "arguments.packing_samples", "axolotl.sample_packing")
FILLED = frozenset({"arguments.block_size", "arguments.seq_length"})
# flags that name an encoder whose rows go into the decoder beside those of a text
TOWER = re.compile(
    r"arguments\.(?:mm_)?(?:vision|image|video|audio|speech)_(?:tower|encoder|model)(?:_name|_path|_or)*"
)
BATCH = "--job per_device_train_batch_size=N"


def read(sources: Sources, question: JobOptions) -> Job:
    """Return the job of DeepSpeed, Hugging Face and Accelerate files that belong together."""
    keys = settings_of(sources)
    kind = (keys.word("accelerate.distributed_type") or "").upper()
    kind = kind or ("MULTI_GPU" if is_swifts(sources.launch) else "")  # which keeps whole copies of split sequences too
    has = {key.partition(".")[0] for key in keys.values}
    by_deepspeed = sources.launch is not None and sources.launch.launcher == "deepspeed"
    through_accelerate = "accelerate" in has and not by_deepspeed  # whose launcher alone reads its settings
    of_deepspeed = not through_accelerate and ("deepspeed" in has or by_deepspeed)
    draft = Draft("deepspeed" if of_deepspeed else "accelerate", sources.names, question)
    if (keys.whole("axolotl.expert_parallel_size") or 1) > 1:
        raise draft.refused(f"{keys.told('axolotl.expert_parallel_size')}: axolotl's split of experts is not read")
    _world(draft, keys, sources)
    _model(draft, keys)
    unsloths = keys.switch("arguments.unsloth_kernels", default=False)
    for name in ("tp", "pp", "cp"):
        draft.put(name, 1, f"{name} 1")
    if kind == "MEGATRON_LM":
        engine = "megatron"
        _megatron(draft, keys)
    else:
        _mesh(draft, keys)
        own_degrees(draft, keys)
        engine = _states(draft, keys, kind, has, "" if sources.launch is None else sources.launch.launcher)
        if engine == BY_ENGINE and draft.engine == "accelerate":
            draft.version = DEEPSPEED_INSIDE
        elif unsloths and engine != BY_ENGINE:
            draft.stack = "unsloth"
        elif is_swifts(sources.launch) and engine != BY_ENGINE:
            draft.stack = "ms-swift"
    _batch(draft, keys)
    _precision(draft, keys)
    _recompute(draft, keys)
    read_tuning(draft, keys, engine, "" if sources.launch is None else sources.launch.program)
    read_objective(draft, keys, named_program(sources.launch))
    of_own_loop = sources.launch is not None and (is_verls(sources.launch) or is_supervised(sources.launch))
    whole = not of_own_loop and sums_whole(draft, keys)
    job = draft.conclude(sources, keys, HARMLESS)
    return with_whole_gradients(job) if whole else job


def _world(draft: Draft, keys: Keys, sources: Sources) -> None:
    machines = keys.whole("accelerate.num_machines", least=1)
    processes = keys.whole("accelerate.num_processes", least=1)
    world_of(sources.launch, draft)
    by_launcher = sources.launch is not None and sources.launch.launcher not in {"", "python"}
    if keys.switch("arguments.of_unsloth", default=False) and not by_launcher and draft.world is None:
        draft.world = (1, "one process")  # docs.unsloth.ai, Multi-GPU training: others take torchrun or accelerate
        if draft.question.gpus is None:
            draft.assume("one GPU: no launcher starts more, and Unsloth trains on one by itself")
    known, told = (None, "") if sources.machines is None else (sources.machines.nodes, sources.machines.told[0])
    if known is None and sources.launch is not None and draft.question.gpus is None:
        known, told = each_once(sources.launch) or (None, "")
    if machines is not None and known is not None and machines != known:  # a run of its own on each node
        raise draft.refused(f"{keys.told('accelerate.num_machines')} contradicts {told}")
    alone = (keys.word("accelerate.distributed_type") or "").upper() in {"NO", "FALSE"}
    if alone and not keys.switch("accelerate.multi_gpu", default=False):  # accelerate/commands/launch.py: one process
        draft.world = (1, keys.told("accelerate.distributed_type"))
        if processes not in {None, 1}:
            draft.note(f"{keys.told('accelerate.num_processes')}: has no effect, since distributed_type is NO")
    elif processes is not None:
        draft.world = (processes, keys.told("accelerate.num_processes"))
        if machines:
            draft.gpus_per_node = processes // machines


def _model(draft: Draft, keys: Keys) -> None:
    named = [f"arguments.{name}" for name in MODELS]
    draft.model_name = keys.word(*named) or next(filter(None, map(keys.last_part, named)), None)
    if tower := next((key for key in keys.values if TOWER.fullmatch(key) and keys.raw(key)), None):
        draft.ignore(f"{keys.told(tower)}: the tower before the decoder and its projector are not priced")
    if (keys.word("arguments.attn_implementation") or "").lower() == "eager":
        draft.ignore(f"{keys.told('arguments.attn_implementation')}: scores lie in memory; priced as a fused kernel")
    lengths = [f"arguments.{name}" for name in LENGTHS]
    draft.seq_len = keys.whole(*lengths, least=1)
    if draft.seq_len is None:
        _joined_length(draft, keys)
    packed = [keys.switch(key, default=False) for key in PACKS]  # each is read
    whole = (keys.word("arguments.stage") or "").lower() == "pt"  # LLaMA-Factory's, which cuts texts into full rows
    if draft.seq_len and not any(packed) and not whole and keys.find(*lengths) not in FILLED:
        assume_full_rows(draft)


def _joined_length(draft: Draft, keys: Keys) -> None:
    """Set the length of rows that hold a prompt and its answer, each of a length of its own."""
    for names in PARTS:
        parts = [keys.whole(f"arguments.{name}", least=1) for name in names]
        if all(parts):
            draft.seq_len = sum(filter(None, parts))
            told = " + ".join(keys.told(f"arguments.{name}") for name in names)
            draft.assume(f"rows of {draft.seq_len} tokens: {told}, a prompt and its answer")


def _mesh(draft: Draft, keys: Keys) -> None:
    """Set the degrees of an Accelerate parallelism_config, or DeepSpeed's tensor and sequence parallelism."""
    if doubt := keys.doubtful("accelerate.parallelism_config"):
        raise draft.refused(f"{doubt}: its degrees are known only where the job runs: {BY_LAYOUT}")
    prefix = "accelerate.parallelism_config.parallelism_config_"
    short = "accelerate.parallelism_config."
    draft.degree("tp", keys, f"{prefix}tp_size", f"{short}tp_size", "deepspeed.tensor_parallel.autotp_size", default=1)
    draft.degree("cp", keys, f"{prefix}cp_size", f"{short}cp_size", default=1)
    copies = keys.whole(f"{prefix}dp_replicate_size", f"{short}dp_replicate_size", least=1)
    shards = keys.whole(f"{prefix}dp_shard_size", f"{short}dp_shard_size", least=1)
    ulysses = keys.whole(f"{prefix}sp_size", f"{short}sp_size", "deepspeed.sequence_parallel_size", least=1)
    if ulysses is not None and ulysses > 1:
        draft.put("cp", ulysses, f"sequence parallelism (Ulysses) {ulysses}")
        draft.ignore(f"sequence parallelism of {ulysses}: Ulysses's all-to-alls are priced as context parallelism")
    if copies is not None or shards is not None:
        told = f"dp_replicate_size {copies or 1} x dp_shard_size {shards or 1}"
        draft.put("dp", (copies or 1) * (shards or 1), told)
        if (copies or 1) > 1:
            draft.put("replicas", copies or 1, f"dp_replicate_size {copies}")
    for key in list(keys.values):
        if key.endswith("cp_comm_strategy"):
            keys.raw(key)


def _states(draft: Draft, keys: Keys, kind: str, has: set[str], launcher: str) -> str:
    """Set ZeRO, copies and offload, and return by what: "deepspeed", "fsdp", "" for plain data parallelism.

    Raises InputError where DeepSpeed's settings are nowhere.
    """
    said = keys.raw("arguments.fsdp")
    words = " ".join(map(str, said)) if isinstance(said, list) else keys.word("arguments.fsdp") or ""
    if "deepspeed" in has or kind == "DEEPSPEED":
        _deepspeed(draft, keys)
    elif kind == "FSDP" or words.strip():
        _fsdp(draft, keys, words)
        return "fsdp"
    elif launcher == "deepspeed":
        _own_deepspeed(draft, keys)
    elif draft.get("dp") > draft.get("replicas") or (draft.get("cp") > 1 and kind != "MULTI_GPU"):
        draft.zero(3)
        return "fsdp"
    else:
        draft.zero(0)
        if launcher == "accelerate" and not kind and "accelerate.config_file" not in keys:
            draft.assume("plain data parallelism: the script names no configuration of Accelerate; give its YAML too")
        elif not launcher and not kind and has == {"arguments"}:
            draft.assume("plain data parallelism: the arguments say no other; give Accelerate's or DeepSpeed's file")
        return ""
    return "deepspeed"


def _own_deepspeed(draft: Draft, keys: Keys) -> None:
    """Set the states of a program that `deepspeed` starts and that makes its configuration from flags of its own."""
    stage = keys.whole("arguments.zero_stage")
    if stage is None:
        doubt = keys.doubtful("arguments.zero_stage") or "no --deepspeed FILE and no --zero_stage"
        raise draft.refused(
            f"{doubt}: the DeepSpeed configuration is made inside the program; give it, or zero_optimization.stage=N"
        )
    if stage > 3:
        raise draft.refused(f"{keys.told('arguments.zero_stage')}: expected 0 to 3")
    draft.switches["zero"] = stage
    offloaded = keys.switch("arguments.offload", "arguments.adam_offload", default=False)
    draft.offload(("parameters" if stage == 3 else "optimizer") if offloaded else "none")


def _deepspeed(draft: Draft, keys: Keys) -> None:
    stage = keys.whole("deepspeed.zero_optimization.stage", "accelerate.deepspeed_config.zero_stage")
    if stage is None:
        stage = 0 if "deepspeed.zero_optimization.stage" not in keys.values else None
    if stage is not None and stage > 3:
        raise draft.refused(f"zero_optimization.stage {stage}: expected 0 to 3")
    if stage is not None:
        draft.switches["zero"] = stage
    overlap = keys.switch("deepspeed.zero_optimization.overlap_comm", default=stage == 3)
    set_waits(draft, gradients=bool(overlap) or stage not in {1, 2}, weights=True)
    size = keys.whole("deepspeed.zero_optimization.mics_shard_size", least=-1)
    world = draft.question.gpus or (draft.world[0] if draft.world else None)
    if size is not None and size > 0:
        if world is not None and world % size == 0 and world > size:
            draft.put("replicas", world // size, f"mics_shard_size {size}")
        elif world is None:
            draft.note("mics_shard_size needs the number of ranks")
    if (hpz := keys.whole("deepspeed.zero_optimization.zero_hpz_partition_size", least=1)) is not None and hpz > 1:
        again = f"in half precision lies on groups of {hpz}, which backward gathers from: neither is priced"
        draft.ignore(f"zero_hpz_partition_size = {hpz}: a second copy of the weights {again}")
    optimizer = _device(keys, "offload_optimizer")
    parameters = _device(keys, "offload_param")
    if keys.switch("deepspeed.zero_optimization.cpu_offload", default=False):
        optimizer = "cpu"
    if keys.switch(*(f"deepspeed.zero_optimization.{name}" for name in OLD_OFFLOAD), default=False):
        parameters = "cpu"
    if parameters and stage is not None and stage < 3:
        draft.note(f"offload_param has no effect with stage {stage}: it goes with stage 3")
    if "nvme" in {optimizer, parameters}:
        offload_to_nvme(draft)
    if parameters and not optimizer and (stage is None or stage == 3):
        draft.offload("none")
        draft.ignore(f"offload_param without offload_optimizer: {PARAMETERS_ALONE}")
    elif parameters and (stage is None or stage == 3):
        draft.offload("parameters")
    elif optimizer:
        draft.offload("optimizer")
    else:
        draft.offload("none")
    stages = keys.whole("deepspeed.pipeline.stages", least=1)
    if stages is not None and stages > 1:
        draft.put("pp", stages, keys.told("deepspeed.pipeline.stages"))


def _device(keys: Keys, name: str) -> str | None:
    """Return where DeepSpeed keeps states, None where they stay on the GPU."""
    word = keys.word(f"deepspeed.zero_optimization.{name}.device", f"accelerate.deepspeed_config.{name}_device")
    for part in ("pin_memory", "buffer_count", "fast_init", "buffer_size", "max_in_cpu"):
        keys.raw(f"deepspeed.zero_optimization.{name}.{part}")
    return None if word is None or word.lower() == "none" else word.lower()


def _fsdp(draft: Draft, keys: Keys, words: str) -> None:
    prefix = "accelerate.fsdp_config.fsdp_"
    mine = "arguments.fsdp_config."
    version = keys.whole(f"{prefix}version", f"{mine}version", f"{mine}fsdp_version") or 1
    named = (keys.word(f"{prefix}sharding_strategy", f"{mine}sharding_strategy") or "").upper()
    named = NUMBERED.get(named, named)
    for word in words.upper().split():
        named = word if word in SHARDING else named
    keys.raw("arguments.fsdp")
    reshard = keys.word(f"{prefix}reshard_after_forward", f"{mine}reshard_after_forward")
    if reshard and reshard.upper() in SHARDING:
        named, reshard = reshard.upper(), None
    stage = SHARDING.get(named or "FULL_SHARD")
    if stage is None:
        raise draft.refused(f"fsdp_sharding_strategy {named}: expected one of {', '.join(SHARDING)}")
    if reshard is not None:
        stage = 2 if reshard.lower() in {"false", "no", "0"} else 3
    elif not named:
        draft.assume(f"full sharding (the default of FSDP {version})")
    draft.switches["zero"] = stage
    if named.startswith("HYBRID") and "replicas" not in draft.degrees:
        draft.copies_by_node(named, keys.whole("accelerate.num_machines", least=1))
    if (
        keys.switch(f"{prefix}offload_params", f"{mine}offload_params", default=False)
        or "offload" in words.lower().split()
    ):
        draft.offload("parameters")
    draft.version = f"FSDP {version}"
    for name in ("backward_prefetch", "backward_prefetch_policy", "forward_prefetch", "limit_all_gathers"):
        keys.raw(f"{prefix}{name}")
        keys.raw(f"{mine}{name}")
    keys.raw(f"{mine}activation_checkpointing")


def _megatron(draft: Draft, keys: Keys) -> None:
    """Set what Accelerate's Megatron plugin says."""
    prefix = "accelerate.megatron_lm_config.megatron_lm_"
    draft.degree("tp", keys, f"{prefix}tp_degree", default=1)
    draft.degree("pp", keys, f"{prefix}pp_degree", default=1)
    draft.switches["sp"] = int(bool(keys.switch(f"{prefix}sequence_parallelism", default=False)))
    draft.zero(1 if keys.switch(f"{prefix}use_distributed_optimizer", default=False) else 0)
    count = keys.whole(f"{prefix}num_micro_batches", least=1)
    if count is not None:
        draft.batch["steps"] = (count, keys.told(f"{prefix}num_micro_batches"))
    again = keys.switch(f"{prefix}recompute_activations", f"{prefix}recompute_activation", default=False)
    draft.recompute("selective" if again else "none", f"recompute_activations {str(bool(again)).lower()}")


def _batch(draft: Draft, keys: Keys) -> None:
    """Set the batch; numbers that stand in two files must agree, as DeepSpeed asks."""
    pairs = {
        "mbs": ("deepspeed.train_micro_batch_size_per_gpu", "arguments.per_device_train_batch_size"),
        "steps": ("deepspeed.gradient_accumulation_steps", "arguments.gradient_accumulation_steps"),
    }
    for name, (first, second) in pairs.items():
        a, b = keys.whole(first, least=1), keys.whole(second, least=1)
        if a is not None and b is not None and a != b:
            raise draft.refused(f"{keys.told(first)} contradicts {keys.told(second)}")
        for key, value in ((first, a), (second, b)):
            if value is not None and name not in draft.batch:
                draft.batch[name] = (value, keys.told(key))
    for path in ("accelerate.gradient_accumulation_steps", "accelerate.deepspeed_config.gradient_accumulation_steps"):
        value = keys.whole(path, least=1)
        if value is not None and value != draft.batch.setdefault("steps", (value, keys.told(path)))[0]:
            draft.note(f"{keys.told(path)} gives way to {draft.batch['steps'][1]}")
    for whole in ("factory.global_batch_size", "deepspeed.train_batch_size"):
        if (total := keys.whole(whole, least=1)) is not None:
            draft.batch["global"] = (total, keys.told(whole))
            _ranks_of_batch(draft, total)
    for name, pair in pairs.items():
        if name not in draft.batch and (doubt := keys.doubtful(*pair)):
            raise draft.refused(f"{doubt}: is not set in the files; say --job NAME=VALUE")
    by_trainer = any(f"arguments.{name}" in keys.values for name in TRAINER)
    if not by_trainer and "global" not in draft.batch and "mbs" not in draft.batch:
        draft.note(f"the batch is in none of the files: {BATCH} says it where the program is one on TrainingArguments")
    if "mbs" not in draft.batch and by_trainer and "global" not in draft.batch:
        draft.batch["mbs"] = (8, "per_device_train_batch_size 8")
        draft.assume("per_device_train_batch_size 8 (the default of TrainingArguments)")
    if by_trainer and "steps" not in draft.batch and "global" not in draft.batch:
        draft.batch["steps"] = (1, "gradient_accumulation_steps 1")
        draft.assume("gradient_accumulation_steps 1 (the default of TrainingArguments)")


def _ranks_of_batch(draft: Draft, total: int) -> None:
    """Say how many ranks DeepSpeed's rule asks for: the batch is micro-batch x accumulation x data-parallel ranks."""
    if draft.world is None and draft.question.gpus is None and {"mbs", "steps"} <= draft.batch.keys():
        own = draft.batch["mbs"][0] * draft.batch["steps"][0]
        if total % own == 0:
            draft.note(f"train_batch_size {total} / ({own} sequences of a rank) is {total // own} data-parallel ranks")


def _precision(draft: Draft, keys: Keys) -> None:
    mixed = (keys.word("accelerate.mixed_precision") or "").lower()
    for key in (
        "arguments.bf16",
        "arguments.fp16",
        "arguments.deepspeed",
        "arguments.deepspeed_config",
        "arguments.tf32",
        "accelerate.config_file",
    ):
        keys.raw(key)
    if mixed == "fp8" or keys.switch("deepspeed.fp8.enabled", "arguments.fp8", default=False):
        draft.precision = "fp8"  # beside it bf16 says what the rest is computed in
        return
    for name in ("bf16", "fp16"):
        old = ("deepspeed.bfloat16.enabled",) if name == "bf16" else ()  # its name before DeepSpeed 0.6
        inside = keys.switch(f"deepspeed.{name}.enabled", f"deepspeed.{name}", *old)
        if inside or (inside is None and keys.switch(f"arguments.{name}", default=False)) or mixed == name:
            draft.precision = name
            return
    if doubt := keys.doubtful("arguments.bf16"):  # such as torch.cuda.is_bf16_supported()
        draft.precision = "bf16"
        draft.assume(f"precision bf16: {doubt} is known only where the job runs")
        return
    named = dtype_of(keys, "arguments.dtype", "arguments.torch_dtype") if mixed in {"", "no", "false"} else ""
    if named in {"bf16", "fp16"}:
        draft.precision = named
    elif keys.word("deepspeed.bf16.enabled", "deepspeed.fp16.enabled") == "auto":
        draft.precision = "bf16"
        draft.assume('precision bf16: "auto" in the DeepSpeed file, and no TrainingArguments beside it')
    elif "arguments.zero_stage" in keys and not any(key.startswith("deepspeed.") for key in keys.values):
        draft.precision = "fp16"  # deepspeedai/DeepSpeedExamples:applications/DeepSpeed-Chat, --dtype of main.py
        told = "the program makes its DeepSpeed configuration itself, of half precision as DeepSpeed-Chat's does"
        draft.assume(f"precision fp16: {told}; --precision says another")
    else:
        draft.precision = "fp32"
        draft.assume("precision fp32: no file switches mixed precision on")


def _entries_away(keys: Keys) -> bool:
    """Return whether what enters recomputed layers goes to host memory: Unsloth, axolotl, TRL, LLaMA-Factory.

    Sources: unslothai/unsloth-zoo:unsloth_zoo/gradient_checkpointing.py, axolotl-ai-cloud/axolotl:src/axolotl/utils/
    gradient_checkpointing, huggingface/trl:trl/models/activation_offloading.py, hiyouga/LLaMA-Factory:
    src/llamafactory/model/model_utils/checkpointing.py (use_unsloth_gc). What goes to a disk is not priced.
    """
    asked = {
        "arguments.use_gradient_checkpointing": {"unsloth"},
        "axolotl.gradient_checkpointing": {"unsloth", "offload"},
        "axolotl.activation_offloading": {"true", "legacy", "hidden_states"},
        "arguments.activation_offloading": {"true"},
        "arguments.use_unsloth_gc": {"true"},
    }
    found = {name: (keys.word(name) or "").lower() for name in asked}  # each is read, whichever says it
    return any(found[name] in words for name, words in asked.items())


BY_FSDP = ("accelerate.fsdp_config.fsdp_activation_checkpointing", "arguments.fsdp_config.activation_checkpointing")


def _refuse_twice(draft: Draft, keys: Keys) -> None:
    """Raise InputError where FSDP and the Trainer are both told to recompute (transformers/trainer.py).

    Where TRL's default alone says the second, the job cannot mean both: that is listed.
    """
    by_trainer = any(f"arguments.{name}" in keys.values for name in TRAINER)
    mine = next((key for key in BY_FSDP if keys.raw(key) is True), None)
    by_default = keys.switch(f"arguments.{BY_DEFAULT}", default=False)
    if mine and by_trainer and "FSDP" in (draft.version or "") and keys.raw("arguments.gradient_checkpointing") is True:
        if by_default:
            refused = "beside it the Trainer refuses TRL's default, so gradient_checkpointing has to be False"
            draft.assume(f"recomputation by {keys.told(mine)} alone: {refused}")
            return
        told = f"{keys.told(mine)} contradicts {keys.told('arguments.gradient_checkpointing')}"
        raise draft.refused(f"{told}: the Trainer takes one of them alone")


def _recompute(draft: Draft, keys: Keys) -> None:
    if "recompute" in draft.switches:
        return
    _refuse_twice(draft, keys)
    again = keys.switch("arguments.gradient_checkpointing", *BY_FSDP)
    both = [
        key
        for key in keys.values
        if "activation_checkpointing" in key and not key.startswith("deepspeed.") and keys.raw(key) is True
    ]
    own = [
        key for key in keys.values if key.startswith("deepspeed.activation_checkpointing.") and keys.raw(key) is True
    ]
    mine, perhaps = own_checkpoints(keys) if again is None else (False, "")
    if again or both or mine:
        draft.recompute("full", "gradient_checkpointing true")
        draft.away = (INPUT,) if _entries_away(keys) else ()
        return
    draft.recompute("none")
    if own:
        draft.assume(
            "no recomputation: activation_checkpointing says how DeepSpeed's own would work, and only a model that "
            "calls it does; no file says so"
        )
    elif perhaps:
        draft.assume(f"no recomputation: {perhaps} may mean it; --job gradient_checkpointing=true says so")
    elif again is None:
        draft.assume("no recomputation: no file switches it on")
    for key in list(keys.values):
        if re.match(r"deepspeed\.activation_checkpointing\.", key):
            keys.raw(key)
