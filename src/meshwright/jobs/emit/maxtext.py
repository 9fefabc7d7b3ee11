"""The YAML of MaxText for a layout: which axes lie inside a slice (ici) and which between slices (dcn)."""

import math

from ...errors import InputError
from ...units import counted
from .environment import environment_comments
from .target import EmitTarget, commented, order_note

# the catalogue's models in MaxText
NAMES = {
    "llama2-7b": "llama2-7b",
    "llama2-13b": "llama2-13b",
    "llama2-70b": "llama2-70b",
    "llama3-8b": "llama3-8b",
    "llama3-70b": "llama3-70b",
    "llama3-405b": "llama3.1-405b",
    "mistral-7b": "mistral-7b",
    "mixtral-8x7b": "mixtral-8x7b",
    "qwen3-30b-a3b": "qwen3-30b-a3b",
    "qwen3-235b-a22b": "qwen3-235b-a22b",
    "deepseek-v3": "deepseek3-671b",
    "gpt-oss-120b": "gpt-oss-120b",
    "gpt3-175b": "gpt3-175b",
    "gpt-oss-20b": "gpt-oss-20b",
    "mixtral-8x22b": "mixtral-8x22b",
    "qwen2.5-7b": "qwen2.5-7b",
    "qwen3-0.6b": "qwen3-0.6b",
    "qwen3-4b": "qwen3-4b",
    "qwen3-8b": "qwen3-8b",
    "qwen3-14b": "qwen3-14b",
    "qwen3-32b": "qwen3-32b",
}
AXES = ("tensor", "expert", "context", "fsdp", "data", "pipeline")  # the nearest first
POLICIES = {"none": "none", "selective": "minimal_with_context", "full": "full"}  # of recomputation


def maxtext(target: EmitTarget) -> str:
    """Return the YAML of a MaxText run on GPUs."""
    layout = target.layout
    if target.model not in NAMES:
        named = target.model or "model of these sizes"
        raise InputError(f"--emit maxtext: it has no {named}; expected one of {', '.join(NAMES)}")
    if target.precision not in {"bf16", "fp8", "fp32"}:
        raise InputError(f"--emit maxtext: precision {target.precision}: expected bf16, fp8 or fp32")
    inside, between = degrees_by_network(target)
    passes = 1 if layout.pp > 1 else target.micro_batches
    share = layout.mbs * (target.micro_batches if layout.pp > 1 else 1) * layout.dp / target.world
    lines = [
        ('base_config: "base.yml"', target.reason or order_note(target)),
        (f"model_name: {NAMES[target.model]}", ""),
        ("hardware: gpu", f"{counted(target.nodes, 'slice')} of {counted(target.per_node, 'device')}"),
        *((f"dcn_{axis}_parallelism: {between[axis]}", "") for axis in AXES),
        *((f"ici_{axis}_parallelism: {inside[axis]}", "") for axis in AXES),
        (f"per_device_batch_size: {share!r}", "sequences of a device and pass, tensor-parallel devices counted too"),
        (f"gradient_accumulation_steps: {passes}", ""),
        (f"max_target_length: {target.seq_len}", ""),
        (f"remat_policy: {POLICIES[layout.recompute]}", "what is computed again"),
        (f"dtype: {'float32' if target.precision == 'fp32' else 'bfloat16'}", ""),
        (f"quantization: '{'fp8' if target.precision == 'fp8' else ''}'", ""),
        (f"shard_optimizer_over_data: {str(layout.zero == 1).lower()}", f"ZeRO {layout.zero}"),
        (f"optimizer_memory_host_offload: {str(target.offload == 'optimizer').lower()}", ""),
        (f"parameter_memory_host_offload: {str(target.offload == 'parameters').lower()}", ""),
    ]
    if layout.pp > 1:
        per_stage = target.architecture.num_hidden_layers // (layout.pp * layout.vpp)
        lines += [
            (f"num_pipeline_microbatches: {target.micro_batches}", ""),
            (f"num_layers_per_pipeline_stage: {per_stage}", ""),
            (f"num_pipeline_repeats: {layout.vpp}", "stages of a rank"),
        ]
    return "\n".join([*environment_comments(target, "maxtext"), *commented(lines), ""])


def degrees_by_network(target: EmitTarget) -> tuple[dict[str, int], dict[str, int]]:
    """Return the degrees of each axis inside a slice and between slices, the innermost axes inside first."""
    layout = target.layout
    rest = layout.dp // layout.ep
    copies = layout.replicas if layout.zero == 3 else rest
    degrees = {
        "tensor": layout.tp,
        "expert": layout.ep,
        "context": layout.cp,
        "fsdp": rest // copies,
        "data": copies,
        "pipeline": layout.pp,
    }
    left, inside = target.per_node, {}
    for axis in AXES:
        inside[axis] = math.gcd(left, degrees[axis])
        left //= inside[axis]
    if left != 1 or math.prod(degrees.values()) != target.world:
        raise InputError(f"--emit maxtext: {layout} does not fill slices of {counted(target.per_node, 'device')}")
    return inside, {axis: degrees[axis] // inside[axis] for axis in AXES}
