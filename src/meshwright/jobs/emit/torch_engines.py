"""Configurations of torchtitan, NeMo Automodel, DeepSpeed and Accelerate for a layout."""

import json
from typing import Any

from ...errors import InputError
from ...units import counted
from .environment import environment_comments, exported
from .target import (
    FIRST_NODE,
    EmitTarget,
    commented,
    hugging_face_name,
    on_nodes,
    order_note,
    placement,
    slurm_head,
    torchrun,
)

Lines = list[tuple[str, str]]
# the catalogue's models in torchtitan: module and flavor
TITAN = {
    "llama3-8b": ("llama3", "8B"),
    "llama3-70b": ("llama3", "70B"),
    "llama3-405b": ("llama3", "405B"),
    "qwen3-30b-a3b": ("qwen3", "30B-A3B"),
    "qwen3-235b-a22b": ("qwen3", "235B-A22B"),
    "deepseek-v3": ("deepseek_v3", "671B"),
    "deepseek-v2-lite": ("deepseek_v3", "16B"),  # the same sizes
    "gpt-oss-120b": ("gpt_oss", "120b"),
    "gpt-oss-20b": ("gpt_oss", "20b"),
    "llama3.2-1b": ("llama3", "1B"),
    "llama3.2-3b": ("llama3", "3B"),
    "qwen3-0.6b": ("qwen3", "0.6B"),
    "qwen3-1.7b": ("qwen3", "1.7B"),
    "qwen3-4b": ("qwen3", "4B"),
    "qwen3-8b": ("qwen3", "8B"),
    "qwen3-14b": ("qwen3", "14B"),
    "qwen3-32b": ("qwen3", "32B"),
}
TITAN_SCHEDULES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "zb": "InterleavedZeroBubble",
}
AUTOMODEL_SCHEDULES = {
    "gpipe": "gpipe",
    "1f1b": "1f1b",
    "interleaved": "interleaved1f1b",
    "zb": "interleavedzerobubble",
}
AUTOMODEL_RECIPES = {"fp8": "tensorwise", "fp8-row": "rowwise"}  # of torchao, by our name of the precision
KEPT = {"none": "false", "selective": "selective", "full": "true"}
AGAIN = {"none": "None", "selective": "SelectiveAC.Config()", "full": "FullAC.Config()"}


def torchtitan(target: EmitTarget) -> str:
    """Return a configuration function for torchtitan's registry, with the command that runs it."""
    if target.model not in TITAN:
        named = target.model or "model of these sizes"
        raise InputError(f"--emit torchtitan: it has no {named}; expected one of {', '.join(TITAN)}")
    if target.precision not in {"bf16", "fp32"}:
        raise InputError(f"--emit torchtitan: precision {target.precision}: expected bf16 or fp32")
    family, flavor = TITAN[target.model]
    layout = target.layout
    local = layout.mbs * (target.micro_batches if layout.pp > 1 else 1)
    training: Lines = [
        (f"local_batch_size={local},", "sequences of a data-parallel rank in a pass"),
        (
            f"global_batch_size={target.global_batch},",
            f"{counted(target.global_batch // (local * layout.dp), 'pass')} a step",
        ),
        (f"seq_len={target.seq_len},", ""),
        (f'mixed_precision_param="{"float32" if target.precision == "fp32" else "bfloat16"}",', ""),
        (f"enable_cpu_offload={target.offload == 'parameters'},", ""),
    ]
    compiled: Lines = [("compile=CompileConfig(enable=True),", "")] if target.compiled else []
    lines = [
        *([f"# {target.reason}"] if target.reason else []),
        *environment_comments(target, "torchtitan"),
        f"# {torchrun(target)} -m torchtitan.train --module MODULE_OF_THIS_FILE --config job",
        f"# {placement(target)}",
        *(f"# {note}" for note in target.notes),
        f"from torchtitan.config import {'CompileConfig, ' * target.compiled}ParallelismConfig, TrainingConfig",
        "from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC",
        f"from torchtitan.models.{family} import model_registry",
        "from torchtitan.trainer import Trainer",
        "",
        "",
        "def job() -> Trainer.Config:",
        "    return Trainer.Config(",
        *commented([(f'model_spec=model_registry("{flavor}"),', "")], indent=" " * 8),
        "        training=TrainingConfig(  # batch and precision",
        *commented(training, indent=" " * 12),
        "        ),",
        "        parallelism=ParallelismConfig(  # how ranks divide the work",
        *commented(_titan_parallelism(target), indent=" " * 12),
        "        ),",
        *commented([(f"activation_checkpoint={AGAIN[layout.recompute]},", ""), *compiled], indent=" " * 8),
        "    )",
        "",
    ]
    return "\n".join(lines)


def _titan_parallelism(target: EmitTarget) -> Lines:
    layout = target.layout
    copies = layout.dp if layout.zero == 0 else layout.replicas
    policy = {0: "default", 2: "never", 3: "always"}[layout.zero]
    lines: Lines = [
        (f"data_parallel_replicate_degree={copies},", "whole copies of the model"),
        (f"data_parallel_shard_degree={layout.dp // copies},", f"ZeRO {layout.zero}"),
        (f'fsdp_reshard_after_forward="{policy}",', "whether weights are given up after each pass"),
        (f"tensor_parallel_degree={layout.tp},", f"of {counted(target.per_node, 'GPU')} in a node"),
        (f"enable_sequence_parallel={bool(layout.sp) or layout.tp == 1},", ""),
        (f"context_parallel_degree={layout.cp},", ""),
        (f"expert_parallel_degree={layout.ep},", ""),
        (f"pipeline_parallel_degree={layout.pp},", ""),
    ]
    if layout.pp == 1:
        return lines
    lines += [
        (f'pipeline_parallel_schedule="{TITAN_SCHEDULES[layout.schedule]}",', f"{counted(layout.vpp, 'stage')} a rank"),
        (f"pipeline_parallel_microbatch_size={layout.mbs},", f"{counted(target.micro_batches, 'micro-batch')} a pass"),
    ]
    layers, slots = target.architecture.num_hidden_layers, layout.pp * layout.vpp
    if target.even or (layers % slots and (layers + 2) % slots == 0):
        less = 0 if target.even else 1
        per_stage = (layers + 2 * less) // slots
        lines += [
            (f"pipeline_parallel_first_stage_less_layers={less},", "what the embedding weighs"),
            (f"pipeline_parallel_last_stage_less_layers={less},", "what the output weighs"),
            (f"pipeline_parallel_layers_per_stage={per_stage},", ""),
        ]
    else:
        lines.append((f"module_fqns_per_model_part={json.dumps(_parts(target))},", "the layers of each stage"))
    return lines


def _parts(target: EmitTarget) -> list[list[str]]:
    """Return the modules of each stage by name."""
    parts, at = [], 0
    for count in target.stages:
        parts.append([f"layers.{number}" for number in range(at, at + count)])
        at += count
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "output"]
    return parts


def automodel(target: EmitTarget) -> str:
    """Return the YAML of a NeMo Automodel recipe."""
    layout, slots = target.layout, target.layout.pp * target.layout.vpp
    if target.precision not in {"bf16", *AUTOMODEL_RECIPES}:
        raise InputError(
            f"--emit automodel: precision {target.precision}: expected bf16, {', '.join(AUTOMODEL_RECIPES)}"
        )
    layers = target.architecture.num_hidden_layers
    per_stage = -(-layers // slots)
    local = layout.mbs * (target.micro_batches if layout.pp > 1 else 1)
    lines: Lines = [
        ("step_scheduler:", target.reason or order_note(target)),
        (f"  global_batch_size: {target.global_batch}", ""),
        (f"  local_batch_size: {local}", "sequences of a data-parallel rank in a pass"),
        ("distributed:", ""),
        ("  strategy: fsdp2", ""),
        (f"  tp_size: {layout.tp}", ""),
        (f"  cp_size: {layout.cp}", ""),
        (f"  pp_size: {layout.pp}", ""),
        (f"  ep_size: {layout.ep}", ""),
        (f"  dp_replicate_size: {layout.replicas}", "whole copies of the model"),
        (f"  sequence_parallel: {str(bool(layout.sp)).lower()}", ""),
        (f"  activation_checkpointing: {KEPT[layout.recompute]}", ""),
        (f"  reshard_after_forward: {str(layout.zero == 3).lower()}", f"ZeRO {layout.zero}"),
        *([("  offload_policy: {_target_: torch.distributed.fsdp.CPUOffloadPolicy}", "")] if _offloads(target) else []),
    ]
    if layout.pp > 1:
        lines += [
            ("  pipeline:", f"{counted(target.micro_batches, 'micro-batch')} a pass"),
            (f"    pp_schedule: {AUTOMODEL_SCHEDULES[layout.schedule]}", ""),
            (f"    pp_microbatch_size: {layout.mbs}", ""),
            (f"    layers_per_stage: {per_stage}", f"{counted(layout.vpp, 'stage')} a rank"),
        ]
        if -(-layers // per_stage) != slots:
            lines.append(
                (
                    "    round_virtual_stages_to_pp_multiple: up",
                    f"{counted(slots, 'stage')} for {counted(layers, 'layer')}",
                )
            )
    name = hugging_face_name(target, "automodel")
    lines += [
        ("model:", ""),
        (f"  config: {{pretrained_model_name_or_path: {name}}}", ""),
        ("  torch_dtype: bfloat16", ""),
        (f"dataset: {{seq_len: {target.seq_len}}}", "your data goes here"),
        (f"slurm: {{nodes: {target.nodes}, ntasks_per_node: {target.per_node}}}", ""),
    ]
    if target.precision in AUTOMODEL_RECIPES:
        lines.append((f"fp8: {{enabled: true, recipe_name: {AUTOMODEL_RECIPES[target.precision]}}}", ""))
    run = f"automodel FILE.yaml --nproc-per-node {target.per_node}"
    return "\n".join(
        [*environment_comments(target, "automodel"), f"# {run}: {placement(target)}", *commented(lines), ""]
    )


def _offloads(target: EmitTarget) -> bool:
    return target.offload == "parameters"


JSON_WHY = {
    "train_batch_size": "sequences of a step",
    "train_micro_batch_size_per_gpu": "sequences of a micro-batch",
    "gradient_accumulation_steps": "micro-batches of a step",
    "zero_optimization": "what ranks share of the states, beside the backward pass, and what lives in host memory",
    "bf16": "type of the products",
    "fp16": "type of the products",
    "gradient_clipping": "as trainers have it",
    "tensor_parallel": "cuts every matrix, inside a node",
}


def deepspeed(target: EmitTarget) -> str:
    """Return a batch script with DeepSpeed's JSON, and the Hugging Face arguments that go with it."""
    layout = target.layout
    if target.precision not in {"bf16", "fp16", "fp32"}:
        raise InputError(f"--emit deepspeed: precision {target.precision}: expected bf16, fp16 or fp32")
    zero: dict[str, Any] = {"stage": layout.zero, "overlap_comm": True}
    if target.offload in {"optimizer", "parameters"}:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if target.offload == "parameters":
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    config: dict[str, Any] = {
        "train_batch_size": target.global_batch,
        "train_micro_batch_size_per_gpu": layout.mbs,
        "gradient_accumulation_steps": target.micro_batches,
        "zero_optimization": zero,
        "bf16": {"enabled": target.precision == "bf16"},
        "fp16": {"enabled": target.precision == "fp16"},
        "gradient_clipping": 1.0,
    }
    if layout.tp > 1:
        config["tensor_parallel"] = {"autotp_size": layout.tp}
    nodes = f"--num_nodes {target.nodes} --num_gpus {target.per_node}"
    hosts = f"scontrol show hostnames \"$SLURM_JOB_NODELIST\" | sed 's/$/ slots={target.per_node}/' > hostfile"
    if target.nodes > 1:
        nodes = f"--hostfile hostfile {nodes}"
    lines = [
        *slurm_head(target),
        f"# {placement(target)}",
        *exported(target, "deepspeed"),
        *([f"{hosts}  # nodes in SLURM's order"] if target.nodes > 1 else []),
        f"# ZeRO {layout.zero} over {counted(layout.dp, 'rank')}, "
        f"{counted(target.micro_batches, 'micro-batch')} of {layout.mbs} each",
        *(f"# {key}: {JSON_WHY[key]}" for key in config),  # JSON itself has no comments
        "cat > ds_config.json <<'EOF'",
        json.dumps(config, indent=1),
        "EOF",
        "ARGS=(",
        *commented(_arguments(target, "deepspeed"), indent="  "),
        ")",
        f'deepspeed {nodes} train.py --deepspeed ds_config.json "${{ARGS[@]}}"',
        "",
    ]
    return "\n".join(lines)


SYNCED = '{"gradient_accumulation_kwargs": {"sync_each_batch": true}}'


def _arguments(target: EmitTarget, engine: str) -> Lines:
    """Return the TrainingArguments that the layout decides."""
    layout = target.layout
    by_fsdp = engine == "accelerate" and layout.zero > 0 and layout.recompute == "full"  # the Trainer takes one alone
    again = "left to FSDP" if by_fsdp else "recomputation of every layer"
    lines: Lines = [
        (f"--model_name_or_path {hugging_face_name(target, engine)}", ""),
        (f"--per_device_train_batch_size {layout.mbs}", "sequences of a micro-batch"),
        (f"--gradient_accumulation_steps {target.micro_batches}", "micro-batches of a step"),
        (f"--gradient_checkpointing {layout.recompute == 'full' and not by_fsdp}", again),
        (f"--max_seq_length {target.seq_len}", ""),
    ]
    if target.precision in {"bf16", "fp16"}:
        lines.append((f"--{target.precision} True", ""))
    if engine == "accelerate" and layout.zero >= 2 and target.micro_batches > 1 and not target.sums_whole:
        lines.append((f"--accelerator_config '{SYNCED}'", "gradients stay sharded from one micro-batch to the next"))
    return lines


def accelerate(target: EmitTarget) -> str:
    """Return a batch script with Accelerate's YAML, and the Hugging Face arguments that go with it."""
    if target.precision not in {"bf16", "fp16", "fp8", "fp32"}:
        raise InputError(f"--emit accelerate: precision {target.precision}: expected bf16, fp16, fp8 or fp32")
    mixed = "no" if target.precision == "fp32" else target.precision
    lines: Lines = [
        ("compute_environment: LOCAL_MACHINE", ""),
        (f"distributed_type: {'FSDP' if target.layout.zero else 'MULTI_GPU'}", f"ZeRO {target.layout.zero}"),
        (f"num_machines: {target.nodes}", ""),
        (f"num_processes: {target.world}", "on all machines together"),
        (f"mixed_precision: '{mixed}'", ""),
        *(_fsdp(target) if target.layout.zero else []),
        *(_mesh(target) if target.layout.zero or target.layout.tp > 1 else []),
    ]
    launcher = on_nodes(target, "accelerate launch", "machine_rank")
    first = "" if target.nodes == 1 else f" --main_process_ip {FIRST_NODE} --main_process_port 29500"
    return "\n".join(
        [
            *slurm_head(target),
            f"# {placement(target)}",
            *exported(target, "accelerate"),
            "cat > accelerate.yaml <<'EOF'",
            *commented(lines),
            "EOF",
            "ARGS=(",
            *commented(_arguments(target, "accelerate"), indent="  "),
            ")",
            f'{launcher} --config_file accelerate.yaml{first} train.py "${{ARGS[@]}}"',
            "",
        ]
    )


def _fsdp(target: EmitTarget) -> Lines:
    layout = target.layout
    lines: Lines = [
        ("fsdp_config:", ""),
        ("  fsdp_version: 2", ""),
        (f"  fsdp_reshard_after_forward: {str(layout.zero == 3).lower()}", "whether weights are given up after a pass"),
        ("  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP", "a layer at a time"),
        (f"  fsdp_activation_checkpointing: {str(layout.recompute == 'full').lower()}", ""),
        (f"  fsdp_offload_params: {str(_offloads(target)).lower()}", ""),
        ("  fsdp_state_dict_type: SHARDED_STATE_DICT", ""),
    ]
    return lines


def _mesh(target: EmitTarget) -> Lines:
    layout = target.layout
    return [
        ("parallelism_config:", order_note(target)),
        (f"  parallelism_config_dp_replicate_size: {layout.replicas}", "whole copies of the model"),
        (f"  parallelism_config_dp_shard_size: {layout.dp // layout.replicas}", ""),
        (f"  parallelism_config_cp_size: {layout.cp}", ""),
        (f"  parallelism_config_tp_size: {layout.tp}", ""),
    ]
