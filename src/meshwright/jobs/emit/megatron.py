"""Configurations of Megatron-LM, Megatron-Bridge and NeMo for a layout."""

import itertools

from ...errors import InputError
from ...units import counted
from ...workload.architecture import Architecture
from ...workload.kinds import Experts
from .environment import environment_comments, exported
from .model import biases, features_left_out
from .target import EmitTarget, commented, hugging_face_name, order_note, placement, slurm_head, torchrun

Lines = list[tuple[str, str]]


def megatron(target: EmitTarget) -> str:
    """Return a batch script that runs pretrain_gpt.py of Megatron-LM."""
    _refuse_unsaid(target, "megatron")
    groups = {
        "MODEL": _model_flags(target),
        "PARALLEL": _parallel_flags(target),
        "BATCH": [
            (f"--micro-batch-size {target.layout.mbs}", "sequences of a micro-batch"),
            (
                f"--global-batch-size {target.global_batch}",
                f"{counted(target.micro_batches, 'micro-batch')} a rank and step",
            ),
            (f"--seq-length {target.seq_len}", ""),
        ],
        "STATES": _state_flags(target),
        "PRECISION": [*_precision_flags(target.precision), *_sum_flags(target)],
        "RECOMPUTE": _recompute_flags(target),
    }
    lines = [*slurm_head(target), f"# {placement(target)}", *exported(target, "megatron")]
    for name, flags in groups.items():
        lines += [f"{name}=(", *commented(flags, indent="  "), ")"]
    lines += ["# DATA=(--data-path ... --tokenizer-type ... --train-iters ... --lr ...) is yours to add"]
    words = " ".join(f'"${{{name}[@]}}"' for name in groups)
    return "\n".join([*lines, f'{torchrun(target)} pretrain_gpt.py {words} "${{DATA[@]}}"', ""])


def _refuse_unsaid(target: EmitTarget, engine: str) -> None:
    """Raise InputError where the engine's sizes would make another model of this one."""
    told = features_left_out(target.architecture)
    if told:
        named = target.model or "the model"
        raise InputError(f"--emit {engine}: {named} is more than its sizes say ({'; '.join(told)}); use --emit bridge")


def _model_flags(target: EmitTarget) -> Lines:
    model = target.architecture
    flags: Lines = [
        (f"--num-layers {model.num_hidden_layers}", ""),
        (f"--hidden-size {model.hidden_size}", ""),
        (f"--num-attention-heads {model.num_attention_heads}", ""),
        (f"--kv-channels {model.head_dim}", ""),
        (f"--ffn-hidden-size {model.intermediate_size or model.expert_size}", ""),
        (f"--vocab-size {model.vocab_size}", ""),
        (f"--max-position-embeddings {max(target.seq_len, model.max_position_embeddings)}", ""),
    ]
    if model.kv_rank:
        flags += _latent_flags(target)
    elif model.num_key_value_heads != model.num_attention_heads:
        flags.append(("--group-query-attention", ""))
        flags.append((f"--num-query-groups {model.num_key_value_heads}", "key-value heads"))
    if model.head_norms:
        flags.append(("--qk-layernorm", "queries and keys are normalised"))
    if model.gated:
        flags.append(("--swiglu", ""))
    if model.norm == "rms":
        flags.append(("--normalization RMSNorm", ""))
    flags += _bias_flags(model)
    if not model.tied:
        flags.append(("--untie-embeddings-and-output-weights", ""))
    kind, why = _positions(model)
    flags.append((f"--position-embedding-type {kind}", why))
    if model.mtp_trained:
        flags.append((f"--mtp-num-layers {model.mtp_trained}", "modules that predict further tokens"))
    return flags + (_expert_flags(target) if model.experts else [])


def _bias_flags(model: Architecture) -> Lines:
    """Return which linear layers have a bias, by what a layer holds besides its matrices and norms."""
    biased = biases(model)
    if biased == "all":
        return []  # Megatron's default
    flags: Lines = [("--disable-bias-linear", "")]
    if biased == "qkv":
        flags.append(("--add-qkv-bias", "queries, keys and values alone have one"))
    return flags


def _latent_flags(target: EmitTarget) -> Lines:
    model = target.architecture
    return [
        ("--multi-latent-attention", ""),
        *([(f"--q-lora-rank {model.q_rank}", "")] if model.q_rank else []),
        (f"--kv-lora-rank {model.kv_rank}", ""),
        (f"--qk-head-dim {model.head_dim - model.rope_dim}", ""),
        (f"--qk-pos-emb-head-dim {model.rope_dim}", ""),
        (f"--v-head-dim {model.values}", ""),
    ]


def _expert_flags(target: EmitTarget) -> Lines:
    model, layout = target.architecture, target.layout
    flags: Lines = [
        (f"--num-experts {model.experts}", ""),
        (f"--moe-router-topk {model.experts_per_token}", "experts that a token visits"),
        (f"--moe-ffn-hidden-size {model.expert_size}", ""),
        ("--moe-grouped-gemm", "one product for the experts of a rank"),
        (f"--moe-token-dispatcher-type {'alltoall' if layout.ep > 1 or layout.tp > 1 else 'allgather'}", ""),
    ]
    if model.shared_size:
        flags.append((f"--moe-shared-expert-intermediate-size {model.shared_size}", ""))
    if model.dense_layers:
        why = f"1 for each of {model.moe_layers} layers with experts"
        flags.append((f"--moe-layer-freq '{_pattern(model)}'", why))
    return flags


def _pattern(model: Architecture) -> str:
    """Return which layers have experts as Megatron's list, such as "([0]*3+[1]*58)"."""
    routed = (isinstance(run.layer.network, Experts) for run in model.runs for _ in range(run.count))
    return "(" + "+".join(f"[{int(kind)}]*{len(list(layers))}" for kind, layers in itertools.groupby(routed)) + ")"


def _parallel_flags(target: EmitTarget) -> Lines:
    layout = target.layout
    flags: Lines = [
        (f"--tensor-model-parallel-size {layout.tp}", f"of {counted(target.per_node, 'GPU')} in a node"),
        (
            f"--pipeline-model-parallel-size {layout.pp}",
            f"with {counted(target.micro_batches, 'micro-batch')} to fill it",
        ),
        (f"--context-parallel-size {layout.cp}", ""),
    ]
    if target.architecture.experts:
        flags.append(
            (f"--expert-model-parallel-size {layout.ep}", f"of {counted(target.architecture.experts, 'expert')}")
        )
        flags.append((f"--expert-tensor-parallel-size {layout.expert_tp}", "cuts inside an expert"))
    if layout.sp:
        flags.append(("--sequence-parallel", "norms and dropout hold a part of the sequence"))
    if layout.pp > 1 and not target.even:
        flags.append((f"--pipeline-model-parallel-layout '{layout_string(target)}'", "layers of each stage"))
    elif layout.vpp > 1:
        per_stage = target.architecture.num_hidden_layers // (layout.pp * layout.vpp)
        why = f"{counted(layout.vpp, 'virtual stage')} a rank make the bubble {layout.vpp} times shorter"
        flags.append((f"--num-layers-per-virtual-pipeline-stage {per_stage}", why))
    active = [axis for axis in layout.order.split("-") if getattr(layout, axis) > 1]
    if active.index("pp") < active.index("dp") if {"pp", "dp"} <= set(active) else False:
        flags.append(("--use-tp-pp-dp-mapping", "stages on neighbouring nodes, data parallelism outermost"))
    return flags


def layout_string(target: EmitTarget) -> str:
    """Return Megatron's layout of stages, such as "Et*3|t*4|t*3,L"."""
    stages = ["t" * count for count in target.stages]
    stages[0] = "E" + stages[0]
    stages[-1] += "m" * target.architecture.mtp_trained + "L"
    return "|".join(
        "".join(letter if count == 1 else f"{letter}*{count}" for letter, count in _runs(stage)) for stage in stages
    )


def _runs(text: str) -> list[tuple[str, int]]:
    return [(letter, len(list(group))) for letter, group in itertools.groupby(text)]


def _state_flags(target: EmitTarget) -> Lines:
    stage, layout = target.layout.zero, target.layout
    if stage >= 2:
        strategy = {2: "optim_grads", 3: "optim_grads_params"}[stage]
        flags: Lines = [
            ("--use-megatron-fsdp", f"ZeRO {stage}"),
            (f"--data-parallel-sharding-strategy {strategy}", "what data-parallel ranks share"),
            ("--ckpt-format fsdp_dtensor", "the only format of Megatron-FSDP"),
        ]
    elif stage == 1:
        ranks = layout.dp * layout.cp
        flags = [
            ("--use-distributed-optimizer", f"ZeRO 1: states shared by {counted(ranks, 'rank')}"),
            ("--overlap-grad-reduce", "gradients travel beside the backward pass"),
            ("--overlap-param-gather", "weights are gathered beside the forward pass"),
        ]
    else:
        flags = [("--overlap-grad-reduce", "gradients travel beside the backward pass")]
    if target.offload == "optimizer":
        flags.append(("--optimizer-cpu-offload", "states and update in host memory"))
        flags.append(("--use-precision-aware-optimizer", "what offloading asks for"))
        if target.offload_share < 1:
            flags.append(
                (f"--optimizer-offload-fraction {target.offload_share:g}", "of the states; the GPU has the rest")
            )
    return flags


def _precision_flags(precision: str) -> Lines:
    if precision == "fp32":
        return []
    if precision == "fp16":
        return [("--fp16", "")]
    flags: Lines = [("--bf16", "")]
    if precision == "fp8":
        flags += [("--fp8-format hybrid", "e4m3 forward, e5m2 backward"), ("--fp8-recipe tensorwise", "")]
    elif precision == "fp8-block":
        flags += [("--fp8-format e4m3", ""), ("--fp8-recipe blockwise", "a scale for each block of 128")]
    elif precision == "mxfp8":
        flags += [("--fp8-format e4m3", ""), ("--fp8-recipe mxfp8", "a scale for each block of 32")]
    elif precision == "nvfp4":
        flags += [("--fp4-format e2m1", "a scale for each block of 16")]
    elif precision != "bf16":
        raise InputError(
            f"--emit megatron: precision {precision}: expected bf16, fp16, fp8, fp8-block, mxfp8, nvfp4, fp32"
        )
    return flags


def _sum_flags(target: EmitTarget) -> Lines:
    return [("--grad-reduce-in-bf16", "gradients add up in bf16, not fp32")] if target.half_sums else []


def _recompute_flags(target: EmitTarget) -> Lines:
    if target.layout.recompute == "selective":
        return [
            ("--recompute-granularity selective", "what is cheap to compute again"),
            ("--recompute-modules core_attn", "attention's scores"),
        ]
    if target.layout.recompute == "full":
        return [
            ("--recompute-granularity full", "a layer keeps its input alone"),
            ("--recompute-method uniform", ""),
            ("--recompute-num-layers 1", ""),
        ]
    return []


def bridge(target: EmitTarget) -> str:
    """Return a batch script that runs a recipe of Megatron-Bridge with overrides."""
    layout = target.layout
    overrides: Lines = [
        (f"model.tensor_model_parallel_size={layout.tp}", ""),
        (f"model.pipeline_model_parallel_size={layout.pp}", f"{counted(target.micro_batches, 'micro-batch')} fill it"),
        (f"model.virtual_pipeline_model_parallel_size={layout.vpp if layout.vpp > 1 else 'null'}", ""),
        (f"model.context_parallel_size={layout.cp}", ""),
        (f"model.sequence_parallel={bool(layout.sp)}", ""),
        (f"model.expert_model_parallel_size={layout.ep}", ""),
        *_bridge_experts(target),
        *_bridge_further(target),
        (f"model.seq_length={target.seq_len}", ""),
        (f"dataset.sequence_length={target.seq_len}", ""),
        *_recompute_keys(target, "model."),
        *_stage_keys(target, "model."),
        (f"train.micro_batch_size={layout.mbs}", ""),
        (f"train.global_batch_size={target.global_batch}", ""),
        (f"mixed_precision={_mixed(target.precision)}", ""),
        (f"ddp.use_distributed_optimizer={layout.zero >= 1}", f"ZeRO {layout.zero}"),
        *_bridge_states(target),
    ]
    lines = [*slurm_head(target), f"# {placement(target)}", *exported(target, "bridge")]
    lines += ["OVERRIDES=(", *commented(overrides, indent="  "), ")"]
    run = f"{torchrun(target)} scripts/training/run_recipe.py --hf_path {hugging_face_name(target, 'bridge')}"
    return "\n".join([*lines, f'{run} "${{OVERRIDES[@]}}"', ""])


def _bridge_experts(target: EmitTarget) -> Lines:
    if target.layout.ep == 1:
        return []
    return [(f"model.expert_tensor_parallel_size={target.layout.expert_tp}", "cuts inside an expert")]


def _bridge_further(target: EmitTarget) -> Lines:
    count = target.architecture.mtp_trained
    return [(f"model.mtp_num_layers={count}", "modules that predict further tokens")] if count else []


def _bridge_states(target: EmitTarget) -> Lines:
    layout = target.layout
    lines: Lines = []
    if layout.zero >= 2:
        strategy = {2: "optim_grads", 3: "optim_grads_params"}[layout.zero]
        lines += [
            ("ddp.use_megatron_fsdp=True", f"ZeRO {layout.zero}"),
            (f"ddp.data_parallel_sharding_strategy={strategy}", ""),
        ]
    if target.offload == "optimizer":
        lines.append(("optimizer.optimizer_cpu_offload=True", "states and update in host memory"))
        if target.offload_share < 1:
            share = f"optimizer.optimizer_offload_fraction={target.offload_share:g}"
            lines.append((share, "of the states; the GPU has the rest"))
    if layout.pp > 1 and layout.dp > 1 and layout.order.index("pp") < layout.order.index("dp"):
        lines.append(("model.use_tp_pp_dp_mapping=True", "data parallelism outermost"))
    return lines


def _mixed(precision: str) -> str:
    named = {
        "bf16": "bf16_mixed",
        "fp16": "fp16_mixed",
        "fp8": "bf16_with_fp8_current_scaling_mixed",
        "fp8-block": "bf16_with_fp8_subchannel_scaling_mixed",
        "mxfp8": "bf16_with_mxfp8_mixed",
        "nvfp4": "bf16_with_nvfp4_mixed",
    }
    if precision not in named:
        raise InputError(f"--emit bridge: precision {precision}: expected one of {', '.join(named)}")
    return named[precision]


def _recompute_keys(target: EmitTarget, place: str) -> Lines:
    kind = target.layout.recompute
    if kind == "none":
        return [(f"{place}recompute_granularity=null", "nothing is computed again")]
    lines: Lines = [(f"{place}recompute_granularity={kind}", "")]
    if kind == "full":
        lines += [(f"{place}recompute_method=uniform", ""), (f"{place}recompute_num_layers=1", "")]
    else:
        lines += [(f"{place}recompute_modules=[core_attn]", "attention's scores")]
    return lines


def _stage_keys(target: EmitTarget, place: str) -> Lines:
    if target.layout.pp == 1 or target.even:
        return []
    return [(f"'{place}pipeline_model_parallel_layout={layout_string(target)}'", "layers of each stage")]


def nemo(target: EmitTarget) -> str:
    """Return the YAML of NeMo's megatron_gpt_pretraining.py."""
    layout, model = target.layout, target.architecture
    if model.experts or model.kv_rank:
        raise InputError("--emit nemo: NeMo 1's GPT has neither experts nor latent attention here; use --emit bridge")
    _refuse_unsaid(target, "nemo")
    if model.head_norms or biases(model) == "qkv":
        what = "norms of heads" if model.head_norms else "biases of queries, keys and values alone"
        raise InputError(f"--emit nemo: NeMo 1's GPT has no {what}; use --emit bridge")
    if target.precision not in {"bf16", "fp16", "fp8", "fp32"}:
        raise InputError(f"--emit nemo: precision {target.precision}: expected bf16, fp16, fp8 or fp32")
    lines: Lines = [
        ("trainer:", order_note(target)),
        (f"  num_nodes: {target.nodes}", ""),
        (f"  devices: {target.per_node}", "GPUs of a node"),
        (f"  precision: {'bf16' if target.precision == 'fp8' else _trainer_precision(target.precision)}", ""),
        ("model:", ""),
        (f"  micro_batch_size: {layout.mbs}", ""),
        (f"  global_batch_size: {target.global_batch}", f"{counted(target.micro_batches, 'micro-batch')} a rank"),
        (f"  tensor_model_parallel_size: {layout.tp}", ""),
        (f"  pipeline_model_parallel_size: {layout.pp}", ""),
        (f"  virtual_pipeline_model_parallel_size: {layout.vpp if layout.vpp > 1 else 'null'}", ""),
        (f"  context_parallel_size: {layout.cp}", ""),
        (f"  sequence_parallel: {str(bool(layout.sp)).lower()}", ""),
        (f"  use_tp_pp_dp_mapping: {str(_mapped(target)).lower()}", "order of ranks"),
        *_nemo_model(target),
        *((f"  account_for_{end}_in_pipeline_split: true", "counts as a layer where stages are cut")
          for end in ("embedding", "loss") if layout.pp > 1 and not target.even),
        *((f"  {text.replace('=', ': ').replace('recompute', 'activations_checkpoint')}", why)
          for text, why in _recompute_keys(target, "") if "modules" not in text),
        ("  megatron_amp_O2: true", "main weights in fp32"),
        (f"  fp8: {str(target.precision == 'fp8').lower()}", ""),
        (f"  fp8_hybrid: {str(target.precision == 'fp8').lower()}", ""),
        ("  optim:", ""),
        (f"    name: {'distributed_fused_adam' if layout.zero else 'fused_adam'}", f"ZeRO {layout.zero}"),
    ]  # fmt: skip
    if target.reason:
        lines.insert(0, (f"# {target.reason}", ""))
    return "\n".join([*environment_comments(target, "nemo"), *commented(lines), ""])


def _mapped(target: EmitTarget) -> bool:
    layout = target.layout
    return layout.pp > 1 and layout.dp > 1 and layout.order.index("pp") < layout.order.index("dp")


def _trainer_precision(precision: str) -> str:
    return {"bf16": "bf16", "fp16": "16", "fp32": "32"}[precision]


def _positions(model: Architecture) -> tuple[str, str]:
    """Return the kind of positions, and why: rotary ones where a table has no rows."""
    if model.positions in {"alibi", "none"}:
        return "none", "Megatron has no ALiBi" if model.positions == "alibi" else ""
    if model.positions == "learned" and not model.max_position_embeddings:
        return "rope", "there is no table of positions: those of your job, where they are others"
    if model.positions == "learned":
        return "learned_absolute", ""
    return "rope", "of base 10000: that of your model, and its scaling, are yours to add where they are others"


def _nemo_model(target: EmitTarget) -> Lines:
    model = target.architecture
    kind, why = _positions(model)
    norm = "rmsnorm" if model.norm == "rms" else "layernorm"
    return [
        (f"  encoder_seq_length: {target.seq_len}", ""),
        (f"  max_position_embeddings: {max(target.seq_len, model.max_position_embeddings)}", ""),
        (f"  num_layers: {model.num_hidden_layers}", ""),
        (f"  hidden_size: {model.hidden_size}", ""),
        (f"  ffn_hidden_size: {model.intermediate_size}", ""),
        (f"  num_attention_heads: {model.num_attention_heads}", ""),
        (f"  num_query_groups: {model.num_key_value_heads}", "key-value heads"),
        (f"  kv_channels: {model.head_dim}", ""),
        (f"  vocab_size: {model.vocab_size}", "of the tokenizer"),
        (f"  activation: {'fast-swiglu' if model.gated else 'gelu'}", ""),
        (f"  normalization: {norm}", ""),
        (f"  bias: {str(biases(model) == 'all').lower()}", ""),
        (f"  share_embeddings_and_output_weights: {str(model.tied).lower()}", ""),
        (f"  position_embedding_type: {kind}", why),
    ]
