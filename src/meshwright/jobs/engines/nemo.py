"""NeMo 1 and 2: the YAML of a run, with its interpolations, the variables of `config_*.sh`, and Hydra's overrides."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import InputError
from ..draft import Draft
from ..files.hydra import laid, named_tree, tree_finder
from ..interpolation import Interpolated
from ..job import Job
from ..keys import Keys
from ..launch import Launch, assignments_of
from ..models import catalogue_name
from ..nearby import nearby
from ..options import JobOptions
from ..ranks import world_of
from ..sources import Sources, plain_value
from .megatron import dispatching, precision, recomputation, set_waits, states, vocabulary
from .megatron_refusals import take_ramp
from .megatron_stages import virtual
from .nemo_recipes import factory_settings, recipe_name, with_recipe

HARMLESS = (
    r"(?:exp_manager|logger|log|resume|name|restore_from_path|hydra|defaults|nsys|tune|run|inference|cluster|env_vars).*",
    r"trainer\.(?!num_nodes|devices|precision|accumulate|strategy).*",
    r"trainer\.strategy\.(?:_target_|ckpt.*|save.*|load.*|find_unused.*|setup_optimizers|restore_config.*).*",
    r"(?:model\.)?(?:data|tokenizer|validation_ds|train_ds|test_ds|custom|nsys_profile|peft)\..*",
    r"(?:data)\.(?!global_batch_size|micro_batch_size|seq_length).*",
    r"(?:model\.)?optim(?:\.(?!name|_target_|config\.use_distributed|config\.optimizer_cpu).*)?",
    r"(?:model\.)?(?:seed|init_method_std|use_scaled_init_method|layernorm_epsilon|do_layer_norm_weight_decay|gc_interval)",
    r"(?:model\.)?(?:resume_from_checkpoint|name|mcore_gpt|megatron_amp_O2|apply_query_key_layer_scaling|rotary.*|onnx.*)",
    r"(?:model\.)?(?:fp8_amax.*|fp8_margin|fp8_interval|reduce_amax|native_amp.*|hysteresis|pre_process|post_process)",
    r"(?:model\.)?(?:_target_|config\._target_|share_embeddings.*|make_vocab_size_divisible_by|use_cpu_initialization)",
    r"(?:model\.)?(?:nccl_communicator_config_path|sync_batch_comm|grad_clip.*|masked_softmax.*|persist_layer_norm)",
    r"(?:.*\.)?(?:\(\)|\[\])|fn|trainer\.strategy\.(?:ddp\.check.*|gradient_as_bucket_view|pipeline_dtype)",
    r"(?:.*\.)?mtp_loss_scaling_factor",
    r"executor\..*|(?:dir|performance_mode|peft_scheme|fn)",
    r"(?:proxy_gbs|is_proxy_run|recipe|factory|do_.*|trainer|model|optim)",
)
SUBCHANNEL = "subchannel"  # in names of recipes: a scale for each block
# NeMo's names for what Megatron's flags say, in the order in which they are tried; the last ones are those under which
# recipes of NeMo 2 hand degrees to the function that makes their trainer
NAMES = {
    "tensor-model-parallel-size": ("tensor_model_parallel_size", "tensor_parallelism"),
    "pipeline-model-parallel-size": ("pipeline_model_parallel_size", "pipeline_parallelism"),
    "context-parallel-size": ("context_parallel_size", "context_parallelism"),
    "expert-model-parallel-size": ("expert_model_parallel_size", "expert_parallelism"),
    "expert-tensor-parallel-size": ("expert_tensor_parallel_size",),
    "moe-token-dispatcher-type": ("moe_token_dispatcher_type",),
    "moe-flex-dispatcher-backend": ("moe_flex_dispatcher_backend",),
    "moe-enable-deepep": ("moe_enable_deepep",),
    "virtual": ("virtual_pipeline_model_parallel_size", "virtual_pipeline_parallelism"),
    "sequence-parallel": ("sequence_parallel", "sequence_parallelism"),
    "micro-batch-size": ("micro_batch_size",),
    "rampup-batch-size": ("rampup_batch_size",),
    "decrease-batch-size-if-needed": ("decrease_batch_size_if_needed",),
    "global-batch-size": ("global_batch_size",),
    "seq-length": ("seq_length", "encoder_seq_length"),
    "recompute-granularity": ("recompute_granularity", "activations_checkpoint_granularity"),
    "recompute-method": ("recompute_method", "activations_checkpoint_method"),
    "recompute-num-layers": ("recompute_num_layers", "activations_checkpoint_num_layers"),
    "recompute-modules": ("recompute_modules",),
    "decoder-first-pipeline-num-layers": ("num_layers_in_first_pipeline_stage",),
    "decoder-last-pipeline-num-layers": ("num_layers_in_last_pipeline_stage",),
    "account-for-embedding-in-pipeline-split": ("account_for_embedding_in_pipeline_split",),
    "account-for-loss-in-pipeline-split": ("account_for_loss_in_pipeline_split",),
    "pipeline-model-parallel-layout": ("pipeline_model_parallel_layout",),
    "use-tp-pp-dp-mapping": ("use_tp_pp_dp_mapping",),
    "mtp-num-layers": ("mtp_num_layers",),
    "hidden-dropout": ("hidden_dropout",),
    "attention-dropout": ("attention_dropout",),
}
SIZES = {
    "num_hidden_layers": "num_layers",
    "hidden_size": "hidden_size",
    "intermediate_size": "ffn_hidden_size",
    "num_attention_heads": "num_attention_heads",
    "num_key_value_heads": "num_query_groups",
    "head_dim": "kv_channels",
    "vocab_size": "vocab_size",
    "num_experts": "num_moe_experts",
    "num_experts_per_tok": "moe_router_topk",
    "moe_intermediate_size": "moe_ffn_hidden_size",
}
OPTIMIZERS = ("optimizer.", "optim.config.", "optim.", "model.optim.")  # where an optimiser stands
OPTIMIZER = {
    "optimizer": ("optimizer", "name"),
    "sgd-momentum": ("sgd_momentum",),
    "use-precision-aware-optimizer": ("use_precision_aware_optimizer",),
    "exp-avg-dtype": ("exp_avg_dtype",),
    "exp-avg-sq-dtype": ("exp_avg_sq_dtype",),
}
# ranks of a node: the trainer's, a recipe's argument, those of NeMo-Run's executor
PER_NODE = ("trainer.num_gpus_per_node", "num_gpus_per_node", "executor.gpus_per_node", "executor.ntasks_per_node")
PLACES = (
    "model.",
    "model.config.",
    "trainer.strategy.",
    "strategy.",
    "data.",
    "trainer.",
    "train.",
    "",
    "model.data.train_ds.",
)


def read(sources: Sources, question: JobOptions) -> Job:
    """Return the job of NeMo YAML files."""
    draft = Draft("nemo", sources.names, question)
    keys = nemo_keys(sources, draft)
    with_recipe(draft, keys)
    world(draft, keys, sources.launch)
    plain = as_megatron(keys, PLACES)
    _trainer(draft, keys, plain)
    named = ("model.model_name", "model.pretrained_name", "recipe", "model.name")
    draft.model_name = next((text for text in map(keys.word, named) if text), draft.model_name)
    keys.raw("model.base_config")  # the size again, of MLPerf's submissions
    _name(draft, keys, sources)
    fill_shared_settings(draft, keys, plain)
    scheme = keys.word("model.peft.peft_scheme")
    if scheme not in {None, "none"}:
        draft.adapters(f"model.peft.peft_scheme {scheme}", keys.whole("model.peft.lora_tuning.adapter_dim", least=1))
    if re.search("[LD]oRA", "".join(str(keys.values.get(f"peft.{part}", "")) for part in ("()", "[]"))):
        draft.adapters("peft LoRA", keys.whole("peft.dim", least=1))
    return draft.conclude(sources, keys, HARMLESS)


def _trainer(draft: Draft, keys: Keys, plain: Keys) -> None:
    """Say that a recipe's trainer is made by a function that is not here; InputError where it may hold the degrees."""
    maker = str(keys.values.get("trainer.()", "Trainer"))
    if re.search(r"(?:^|\.)(?:Trainer|Config|Partial)$", maker) or recipe_name(keys):
        return
    if not any(flag.endswith("-parallel-size") for flag in plain.values):
        raise InputError(f"{keys.where}: takes its degrees from {maker}, which is not here: give the file that has it")
    draft.assume(f"what {maker} sets beyond its arguments here is not known: NeMo's defaults are taken")


def _name(draft: Draft, keys: Keys, sources: Sources) -> None:
    """Set the model by the class that configures it (Llama3Config70B), else by the recipe's file."""
    called = [str(keys.values.get(f"model{part}", "")) for part in (".config.[]", ".config.()", ".[]")]
    targets = [keys.word("model.config._target_") or "", keys.word("model._target_") or ""]
    python = [] if sources.python is None else [sources.python[0].removesuffix(".py"), sources.python[1]]
    for text in (draft.model_name or "", *called, *targets, *python):
        for word in re.findall(r"[\w.-]+", text):
            found = catalogue_name(re.sub(r"Config|Model", "-", word.rpartition(".")[2]).strip("-")) if word else None
            if found:
                draft.model_name = found
                return


def nemo_keys(sources: Sources, draft: Draft) -> Keys:
    """Return the settings of the documents with Hydra's overrides, interpolations resolved."""
    _take_trees(sources)
    factory = factory_settings(sources.launch.arguments) if sources.launch is not None else {}
    if sources.launch is not None and not sources.documents and sources.python is None and not factory:
        name = named_tree(sources.launch.arguments)[1]
        raise sources.need(f"the YAML {name}" if name else "its YAML")
    values, origin = sources.settings()
    values |= factory
    if sources.launch is not None:
        for key, text in assignments_of(sources.launch.arguments).items():
            values[key], origin[key] = plain_value(text), sources.launch.where
    reader = Interpolated(values, {**sources.variables, **sources.overrides}, sources.names[0])
    found = reader.resolved()
    for text in reader.assumed:
        if "PORT" not in text and "PATH" not in text:
            draft.assume(text)
    for key, text in sources.given_keys.items():
        found[key], origin[key] = plain_value(text), "--job"
    return Keys(found, sources.names[0], sources=origin)


def _take_trees(sources: Sources) -> None:
    """Take the YAML that the command chooses from beside the job, and lay over its defaults list what each file says.

    NeMo's own programs have their tree in `conf`. Raises InputError where a file of a tree is missing.
    """
    words = () if sources.launch is None else sources.launch.arguments
    folder, name = named_tree(words)
    if name is not None:
        sources.document(f"{folder or 'conf'}/{name}.yaml")
    taken: set[Path] = set()
    for place, document in enumerate(sources.documents):
        beside = None if document.path else nearby(sources.folder, f"{folder or 'conf'}/{document.name}")
        file = beside or Path(document.path)
        if not isinstance(document.data.get("defaults"), list) or not file.is_file():
            continue
        find = tree_finder(file.parent, taken)
        sources.documents[place] = replace(document, data=laid(file.stem, words, find))
        taken.discard(file.resolve())
    sources.documents = [one for one in sources.documents if not one.path or Path(one.path).resolve() not in taken]


def as_megatron(keys: Keys, places: tuple[str, ...]) -> Keys:
    """Return the settings that Megatron's flags have too under the flags' names; they count as understood."""
    values: dict[str, Any] = {}
    paths: dict[str, str] = {}
    for flag, names in NAMES.items():
        for path in (place + name for name in names for place in places):
            if path in keys.values and keys.raw(path) is not None and flag not in values:
                values[flag], paths[flag] = keys.values[path], path
    found = Keys(values, keys.where, sources={flag: keys.source(path) for flag, path in paths.items()})
    found.aliases = paths
    return found


def world(draft: Draft, keys: Keys, launch: Launch | None) -> None:
    """Set the ranks: nodes times devices of the trainer, else what the launcher says."""
    if launch is not None:
        world_of(launch, draft)
    counts = keys.find("trainer.num_nodes", "num_nodes", "executor.nodes")
    nodes = None if counts is None else keys.whole(counts, least=1)
    devices = keys.find("trainer.devices", *PER_NODE)
    each = None if devices is None else keys.whole(devices, least=1)
    if each is None or devices is None:
        return
    if nodes is not None and counts is not None:
        draft.nodes_times((nodes, keys.told(counts)), (each, keys.told(devices)))
    elif str(keys.values.get("trainer.()", "")).endswith("Trainer") and (launch is None or launch.nodes is None):
        draft.nodes_times((1, "num_nodes 1"), (each, keys.told(devices)))
        draft.assume("num_nodes 1 (the default of Lightning's Trainer)")


def fill_shared_settings(draft: Draft, keys: Keys, plain: Keys) -> None:
    """Fill a draft from settings that NeMo and Megatron-Bridge share."""
    draft.degree("tp", plain, "tensor-model-parallel-size", default=1)
    draft.degree("pp", plain, "pipeline-model-parallel-size", default=1)
    draft.degree("cp", plain, "context-parallel-size", default=1)
    draft.degree("ep", plain, "expert-model-parallel-size", default=1)
    if draft.get("ep") > 1:
        draft.degree("etp", plain, "expert-tensor-parallel-size", default=draft.get("tp"))
    sizes(draft, keys)
    number = plain.whole("virtual", least=1)
    if number is not None:
        draft.put("vpp", number, f"{number} virtual stages")
    _stages(draft, plain)
    draft.take_batch("mbs", plain, "micro-batch-size")
    draft.take_batch("global", plain, "global-batch-size")
    if "mbs" not in draft.batch:
        draft.batch["mbs"] = (1, "micro_batch_size 1")
        draft.assume("micro_batch_size 1: the files do not say it")
    take_ramp(draft, plain)
    draft.seq_len = plain.whole("seq-length", least=1)
    draft.switches["sp"] = int(bool(plain.switch("sequence-parallel", default=False)))
    if plain.switch("use-tp-pp-dp-mapping", default=False):
        draft.switches["order"] = "tp-cp-pp-dp"
    recomputation(draft, plain)
    draft.further_tokens(plain, "mtp-num-layers")
    dispatching(draft, plain)
    _precision(draft, keys)
    _states(draft, keys)
    _sums(draft, keys)
    places = ("ddp.", "trainer.strategy.ddp.", "model.optim.", "optim.")
    gradients, weights = (
        keys.switch(*(f"{place}{name}" for place in places)) is not False
        for name in ("overlap_grad_reduce", "overlap_param_gather")
    )
    set_waits(draft, gradients=gradients, weights=weights)
    for name in ("hidden-dropout", "attention-dropout"):
        share = plain.word(name)
        if share is not None and share.strip("0.") != "":
            draft.ignore(f"{name} = {share}: masks are kept for the backward pass")


def _sums(draft: Draft, keys: Keys) -> None:
    """Say how gradients add up where it is set.

    What sets the precision has fp32 of itself, and writes its own over what sets data parallelism
    (NVIDIA-NeMo/Megatron-Bridge:src/megatron/bridge/training/mixed_precision.py, NeMo 2's plugin alike).
    """
    name = "grad_reduce_in_fp32"
    wide = keys.switch(f"mixed_precision.{name}", f"trainer.plugins.{name}")
    if wide is not None:
        draft.half_sums = not wide
    if keys.switch(f"ddp.{name}", f"trainer.strategy.ddp.{name}") is False and not draft.half_sums:
        draft.note(f"ddp.{name} is off: the precision, which has it on, comes before it")


def _stages(draft: Draft, plain: Keys) -> None:
    vpp = draft.degrees.get("vpp")
    layers, model = draft.config.get("num_hidden_layers"), draft.named_model()
    virtual(draft, plain, layers or (None if model is None else model.num_hidden_layers))
    if vpp is not None:
        draft.degrees["vpp"] = vpp


def sizes(draft: Draft, keys: Keys) -> None:
    """Set the sizes of the model under the keys of a config.json."""
    for name, key in SIZES.items():
        places = ("model.", "model.config.", "model_config.", "model.overwritten_attributes.")
        value = keys.whole(*(f"{place}{key}" for place in places))
        if value:
            draft.config[name] = value
    config = draft.config
    if "hidden_size" not in config:
        return

    def word(key: str) -> str:
        return (keys.word(f"model.{key}", f"model.config.{key}") or "").lower()

    activation = word("activation") or word("activation_func")
    draft.partial = not activation and not word("normalization")
    gated = "swiglu" in activation or "geglu" in activation or word("gated_linear_unit") == "true"
    norm = word("normalization")
    config.setdefault("intermediate_size", 4 * config["hidden_size"])
    config["model_type"] = "llama" if gated or "rms" in norm else "gpt2"
    config["gated_mlp"] = gated
    config["mlp_bias"] = (word("bias") or word("add_bias_linear") or "true") not in {"false", "no"}
    shared = word("share_embeddings_and_output_weights") or "true"
    config["tie_word_embeddings"] = shared not in {"false", "no"}
    config["max_position_embeddings"] = (
        keys.whole("model.max_position_embeddings", "model.config.max_position_embeddings") or 0
    )
    if (word("position_embedding_type") or "learned_absolute") != "learned_absolute":
        config["max_position_embeddings"] = 0
    tokenizer = Keys(
        {"tokenizer-model": " ".join(str(keys.raw(f"model.tokenizer.{name}") or "") for name in ("type", "model"))},
        keys.where,
    )
    vocabulary(draft, tokenizer)


def _precision(draft: Draft, keys: Keys) -> None:
    """Set the precision: FP8 where it is switched on, else the trainer's."""
    fp8 = keys.word("model.fp8", "model.config.fp8", "trainer.plugins.fp8", "mixed_precision.fp8")
    recipe = keys.word("mixed_precision.fp8_recipe", "model.fp8_recipe", "trainer.plugins.fp8_recipe")
    fp4 = keys.word("mixed_precision.fp4", "model.fp4")
    named = keys.word("mixed_precision", "trainer.precision", "trainer.plugins.precision", "precision")
    made = [str(keys.values.get(f"{place}.()", "")) for place in ("trainer.plugins", "mixed_precision")]
    named = named or next(
        (one.rpartition(".")[2] for one in made if one.endswith("_mixed")), None
    )  # bf16_with_fp8_mixed
    text = (named or "").lower()
    chosen = Keys({"fp8-format": fp8, "fp8-recipe": recipe, "fp4-format": fp4, "bf16": True}, keys.where)
    draft.precision = precision(chosen)
    draft.recipe("fp8_recipe", recipe)
    for key in ("model.fp8_hybrid", "model.fp8_e4m3", "model.transformer_engine"):
        keys.raw(key)
    if draft.precision != "bf16":
        return
    if named is None:
        half = [name for name in ("bf16", "fp16") if keys.switch(f"mixed_precision.{name}", f"model.{name}")]
        draft.precision = half[0] if half else "bf16"
        unread = keys.raw("mixed_precision.()")
        if not half and unread not in {None, "MixedPrecisionConfig"}:
            draft.assume(f"precision bf16: what {unread} returns is not known")
        elif not half:
            draft.assume("precision bf16: the files do not say it")
    elif "nvfp4" in text:
        draft.precision = "nvfp4"
    elif "fp8" in text:
        draft.precision = "mxfp8" if "mxfp8" in text else "fp8-block" if SUBCHANNEL in text else "fp8"
    elif "bf16" not in text:
        draft.precision = "fp16" if "16" in text else "fp32"


def _states(draft: Draft, keys: Keys) -> None:
    """Set ZeRO: the distributed optimizer, by its name or by the switch of a Megatron strategy."""
    places = ("model.optim.name", "optim.name", "optim._target_", "model.optim._target_", "optim.()")
    name = (keys.word(*places) or "").lower()
    said = [
        keys.switch(key)
        for key in (
            *("ddp.use_distributed_optimizer", "trainer.strategy.ddp.use_distributed_optimizer"),
            *("optim.config.use_distributed_optimizer", "optimizer.use_distributed_optimizer"),
            "model.optim.use_distributed_optimizer",
        )
    ]
    # one of the two switches on turns both on (Megatron-Bridge:src/megatron/bridge/training/config.py)
    distributed = True if True in said else False if False in said else None
    plain = Keys(
        {
            "use-distributed-optimizer": bool(distributed) if distributed is not None else "distributed" in name,
            "use-megatron-fsdp": keys.switch("ddp.use_megatron_fsdp", "ddp.use_custom_fsdp", "use_megatron_fsdp"),
            "data-parallel-sharding-strategy": keys.word("ddp.data_parallel_sharding_strategy"),
            "num-distributed-optimizer-instances": keys.whole("ddp.num_distributed_optimizer_instances"),
            "optimizer-cpu-offload": keys.switch(
                "optimizer.optimizer_cpu_offload", "optim.config.optimizer_cpu_offload"
            ),
            "optimizer-offload-fraction": keys.word("optimizer.optimizer_offload_fraction"),
        },
        keys.where,
    )
    for flag, names in OPTIMIZER.items():
        if (path := keys.find(*(f"{place}{name}" for name in names for place in OPTIMIZERS))) is not None:
            plain.values[flag], plain.aliases[flag] = keys.values[path], path
    states(draft, plain)
    whole = (keys.word("trainer.strategy.fsdp") or "").lower()  # of NeMo 2; mcore_fsdp is MLPerf's
    if whole in {"megatron", "pytorch"} or keys.switch("model.mcore_fsdp", default=False):
        draft.zero(3)
        return
    if keys.switch("model.fsdp", default=False):  # NeMo 1: torch's FSDP
        strategy = (keys.word("model.fsdp_sharding_strategy") or "full").lower()
        draft.zero(2 if strategy == "grad" else 3)
        if strategy not in {"full", "grad"}:
            draft.ignore(f"model.fsdp_sharding_strategy = {strategy}: priced as sharding over all data-parallel ranks")
        for part in ("fsdp_grad_reduce_dtype", "fsdp_sharded_checkpoint", "fsdp_use_orig_params"):
            keys.raw(f"model.{part}")
        return
    if distributed is None and not name:
        draft.zero(1)
        draft.assume("the distributed optimizer (ZeRO 1): the files do not name the optimizer")
