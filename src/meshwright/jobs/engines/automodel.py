"""NeMo Automodel: YAML with a step scheduler, FSDP2's mesh, and a pipeline whose micro-batches are its own."""

from ...pipelines import even_stages
from ...units import counted
from ..draft import Draft
from ..job import Job
from ..keys import Keys
from ..launch import assignments_of, flags_of
from ..optimizers import momentum_of, read_optimizer
from ..options import JobOptions
from ..ranks import world_of
from ..savings import dtype_of
from ..sources import Sources, plain_value
from ..tuning import AS_ALL

HARMLESS = (
    r"(?:seed|wandb|mlflow|logger|log|checkpoint|dist_env|rng|lr_scheduler|clip_grad_norm|nvtx|profiling|slurm|comet).*",
    r"(?:validation_|val_|test_)?(?:dataset|dataloader)\.(?!seq_len|seq_length|batch_size|packed).*",
    r"(?:validation_dataset|validation_dataloader)\..*",
    r"benchmark\.(?!num_nodes).*",
    r"step_scheduler\.(?!global_batch_size|local_batch_size).*",
    r"(?:model\.)?(?:trust_remote_code|is_meta_device|.*_target_|torch_dtype|attn_implementation)",
    r"model\.backend\..*",
    r"(?:autopipeline|distributed\.pipeline)\.(?:round_virtual.*|scale_grads.*|patch_.*|_target_|layer_fqns.*|dtype)",
    r"distributed\.(?:_target_|strategy|backend|world_size|use_hf_tp_plan|mp_policy\.(?!param_dtype|reduce_dtype).*)",
    r"quantization\.(?:load_in_[48]bit|bnb_4bit_(?:compute_dtype|quant_storage|quant_type|use_double_quant))",
    r"(?:optimizer|loss_fn|recipe|moe|ci|launcher|freeze_config)(?:\..*)?",
    r"parallelizer\._target_|packed_sequence\.(?!packed_sequence_size|pack_size|max_length).*|distributed\.moe\..*",
)
SCHEDULES = {
    "1f1b": "1f1b",
    "interleaved1f1b": "interleaved",
    "gpipe": "gpipe",
    "zbv": "zb",
    "interleavedzerobubble": "zb",
}
GPUS_PER_NODE = 8


def read(sources: Sources, question: JobOptions) -> Job:
    """Return the job of an Automodel YAML."""
    draft = Draft("automodel", sources.names, question)
    keys = _keys(sources)
    _world(draft, keys, sources)
    name = keys.word(
        *("model.config.pretrained_model_name_or_path", "model.pretrained_model_name_or_path", "model.config"),
    )
    draft.model_name = name
    draft.degree("tp", keys, "distributed.tp_size", default=1)
    draft.degree("cp", keys, "distributed.cp_size", default=1)
    draft.degree("pp", keys, "distributed.pp_size", default=1)
    draft.degree("ep", keys, "distributed.ep_size", default=1)
    draft.degree("dp", keys, "distributed.dp_size")
    draft.degree("replicas", keys, "distributed.dp_replicate_size", default=1)
    if draft.get("ep") > 1:
        draft.put("etp", 1, "experts are not cut by tensor parallelism")
    _held(draft, keys)
    frozen = [
        key for key in ("embeddings", "language_model") if keys.switch(f"freeze_config.freeze_{key}", default=False)
    ]
    if frozen:
        draft.ignore(f"freeze_config, {' and '.join(frozen)}: {AS_ALL}")
    deepep = "deepep" if keys.switch("model.backend.enable_deepep", default=False) else None  # its older name
    draft.dispatch("model.backend.dispatcher", keys.word("model.backend.dispatcher") or deepep)
    if keys.switch("model.backend.fake_balanced_gate", default=False):
        draft.traits.append("beside")
    _pipeline(draft, keys)
    draft.take_batch("global", keys, "step_scheduler.global_batch_size")
    draft.take_batch("local", keys, "step_scheduler.local_batch_size")
    packed = [keys.whole(f"packed_sequence.{name}") for name in ("packed_sequence_size", "pack_size", "max_length")]
    plain = keys.whole("dataset.seq_len", "dataset.seq_length", "dataset.max_seq_len", least=1)
    draft.seq_len = next((size for size in packed if size), None) or plain  # 0 packs nothing
    _states(draft, keys)
    draft.precision = _precision(keys, draft)
    draft.recipe("fp8 recipe", keys.word("model.backend.te_fp8.recipe", "fp8.recipe_name"))
    if keys.word("peft._target_") or any(key.startswith("peft.") for key in keys.values):
        all_linear = keys.switch("peft.match_all_linear", default=False)
        targets = "" if all_linear else str(keys.raw("peft.target_modules") or "")
        draft.adapters("peft", keys.whole("peft.dim", least=1), targets)
    return draft.conclude(sources, keys, (*HARMLESS, r"peft\..*"))


def _keys(sources: Sources) -> Keys:
    if sources.launch is not None and not sources.documents:
        flags = flags_of(sources.launch.arguments, dashes=False)
        named = [word for word in (flags.get("config"), flags.get("c")) if isinstance(word, str)]
        named += [word for word in sources.launch.arguments if word.endswith((".yaml", ".yml"))]
        if not named:
            raise sources.need("its YAML")
        if sources.document(named[0]) is None:
            raise sources.absent(named[0])
    values, origin = sources.settings()
    if sources.launch is not None:
        given = {**flags_of(sources.launch.arguments, dashes=False), **assignments_of(sources.launch.arguments)}
        for key, value in given.items():
            if "." in key:
                values[key] = plain_value(value) if isinstance(value, str) else value
                origin[key] = sources.launch.where
    return sources.overridden(values, origin, sources.names[0])


def _world(draft: Draft, keys: Keys, sources: Sources) -> None:
    world_of(sources.launch, draft)
    path = keys.find("slurm.nodes", "benchmark.num_nodes", "num_nodes")
    nodes = keys.whole(path, least=1) if path else None
    per_node = keys.whole("slurm.ntasks_per_node", "slurm.gpus_per_node", least=1)
    if nodes is None or path is None or draft.world is not None:
        return
    if per_node is None:
        per_node = GPUS_PER_NODE
        if draft.question.gpus is None:
            draft.assume(f"{counted(per_node, 'GPU')} a node: the file gives nodes alone ({path} {nodes})")
    draft.nodes_times((nodes, keys.told(path)), (per_node, f"{counted(per_node, 'GPU')} a node"))


def _pipeline(draft: Draft, keys: Keys) -> None:
    """Set schedule, virtual stages and the pipeline's own micro-batch, wherever the version keeps them."""
    places = ("distributed.pipeline.", "autopipeline.", "distributed.pipeline_config.", "pipeline.")

    def paths(name: str) -> list[str]:
        return [place + name for place in places]

    schedule = keys.word(*paths("pp_schedule"), *paths("schedule"))
    per_stage = keys.whole(*paths("layers_per_stage"), least=1)
    micro = keys.whole(*paths("pp_microbatch_size"), *paths("microbatch_size"), least=1)
    batch = keys.whole(*paths("pp_batch_size"), least=1)
    if draft.get("pp") == 1:
        if schedule or per_stage:
            draft.note(f"{keys.where}: a pipeline is described, but distributed.pp_size is 1: it has no effect")
        return
    named = SCHEDULES.get((schedule or "1f1b").lower().replace("_", ""))
    if named is None:
        raise draft.refused(f"pp_schedule {schedule}: expected one of {', '.join(SCHEDULES)}")
    draft.switches["schedule"] = named
    if micro is not None:
        draft.batch["mbs"] = (micro, f"pp_microbatch_size {micro}")
    else:
        draft.batch["mbs"] = (1, "pp_microbatch_size 1")
        draft.assume("pp_microbatch_size 1 (the default of automodel)")
    if batch is not None and "local" not in draft.batch:
        draft.batch["local"] = (batch, f"pp_batch_size {batch}")
    model = draft.named_model()
    if per_stage is not None and model is not None:
        stages = -(-model.num_hidden_layers // per_stage)
        if stages % draft.get("pp"):
            up = "up" in str(keys.word(*paths("round_virtual_stages_to_pp_multiple")))
            rounded = stages + (draft.get("pp") if up else 0)
            stages = max(draft.get("pp"), rounded // draft.get("pp") * draft.get("pp"))
            draft.note(f"layers_per_stage {per_stage}: {stages} stages, a multiple of distributed.pp_size")
        draft.put("vpp", stages // draft.get("pp"), f"layers_per_stage {per_stage}")
        if model.num_hidden_layers % stages:
            draft.stages = even_stages(model.num_hidden_layers, stages)
    elif per_stage is None and named in {"interleaved", "zb"}:
        draft.put("vpp", 2, f"{schedule}: two stages a rank")
        draft.assume("two virtual stages a rank: layers_per_stage is not set")


def _states(draft: Draft, keys: Keys) -> None:
    """FSDP2 shards everything; weights stay whole after the first gather where resharding is off."""
    strategy = (keys.word("distributed.strategy") or keys.word("distributed._target_") or "fsdp2").lower()
    if "ddp" in strategy:
        draft.zero(0)
    elif "megatron_fsdp" in strategy or "megatronfsdp" in strategy:
        draft.zero(3)
    else:
        reshard = keys.switch(
            "parallelizer.reshard_after_forward",
            "distributed.reshard_after_forward",
            "distributed.moe.reshard_after_forward",
        )
        kept = draft.get("pp") > 1 or draft.get("ep") > 1  # components/distributed/config.py (0.7.0)
        draft.zero(2 if reshard is False or (reshard is None and kept) else 3)
        if reshard is None and kept:
            draft.assume("weights stay after each forward pass (ZeRO 2), as in pipelines and with experts: not set")
        elif reshard is None:
            draft.assume("weights are given up after each forward pass (ZeRO 3): resharding is not set")
    draft.switches["sp"] = int(bool(keys.switch("distributed.sequence_parallel", default=False)))
    places = (
        "distributed.activation_checkpointing",
        "parallelizer.activation_checkpointing",
        "activation_checkpointing",
    )
    named = (keys.word(*places) or "").lower()
    if named in {"selective", "full"}:
        draft.recompute("selective" if named == "selective" else "full", f"activation_checkpointing {named}")
    else:
        full = keys.switch(*places)
        draft.recompute("full" if full else "none", f"activation_checkpointing {str(bool(full)).lower()}")
    if keys.switch("distributed.defer_fsdp_grad_sync") is False:
        draft.ignore("distributed.defer_fsdp_grad_sync = False")
    if any(keys.word(key) for key in ("distributed.offload_policy._target_", "distributed.offload_policy")):
        draft.offload("parameters")


def _held(draft: Draft, keys: Keys) -> None:
    """Set what is held of weights, moments and logits; without a word weights and moments are in half precision.

    Sources: NVIDIA-NeMo/Automodel:nemo_automodel/components/quantization/qlora.py and loss/*.py; TransformerEngine:
    transformer_engine/pytorch/optimizers/fused_adam.py (master_weights, exp_avg_dtype).
    """
    read_optimizer(draft, keys, "optimizer._target_", momentum=momentum_of(keys, "optimizer.momentum"))
    dtype = keys.find("model.dtype", "model.torch_dtype")
    if keys.switch("quantization.load_in_4bit", default=False):
        nested = keys.switch("quantization.bnb_4bit_use_double_quant", default=True)
        draft.savings.weights = ("nf4-nested" if nested else "nf4", keys.told("quantization.load_in_4bit"))
    elif keys.switch("quantization.load_in_8bit", default=False):
        draft.savings.weights = ("int8", keys.told("quantization.load_in_8bit"))
    elif dtype and dtype_of(keys, dtype) == "fp32":
        draft.savings.weights = ("fp32", keys.told(dtype))
    elif keys.switch("optimizer.master_weights", default=False):
        draft.savings.weights = ("fp32", keys.told("optimizer.master_weights"))
    else:
        draft.savings.by_itself_half = True
    made = (keys.word("loss_fn._target_") or "").rpartition(".")[2]
    kept = keys.whole("loss_fn.chunk_size")
    if made == "FusedLinearCrossEntropy":
        draft.savings.loss = ("fused", made)
    elif made == "ChunkedCrossEntropy" or (made == "MaskedCrossEntropy" and kept):
        # whole logits in half precision and their gradients; single precision is of one chunk (loss/chunked_ce.py)
        draft.savings.loss = ("compiled", made)
    elif made == "MaskedCrossEntropy" and not keys.switch("loss_fn.fp32_upcast", default=True):
        draft.savings.loss = ("half", keys.told("loss_fn.fp32_upcast"))


def _precision(keys: Keys, draft: Draft) -> str:
    recipe = keys.word("model.backend.te_fp8.recipe", "fp8.recipe_name")
    if keys.switch("fp8.enabled", default=recipe is not None):
        return "fp8"
    kept = (keys.word("model.torch_dtype", "model.dtype") or "").lower()
    computed = (keys.word("distributed.mp_policy.param_dtype") or "").lower()
    if draft.switches.get("zero") != 0 and not computed:
        computed = "bfloat16"  # FSDP2's policy, whatever weights are kept in (components/distributed/config.py, 0.7.0)
        if not kept:
            draft.assume("precision bf16 (the default of automodel)")
    return "fp32" if (computed or kept).removeprefix("torch.") in {"float32", "fp32"} else "bf16"
