"""The training engines as data: what each can run, with a source for each fact.

The entries restrict a search (`--engine`), refuse an emission that the engine would refuse (`jobs.emit.rules`), and
fill the page of documentation; what a stack does while it runs is in `conventions`. Versions are of the source that was
read.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from ..errors import InputError, nearest

EVERY_RECOMPUTE = ("none", "selective", "full")
DEFAULT_ORDER = "tp-cp-dp-pp"


class EngineFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One engine: which axes, orders, schedules and states it can run.

    `zero` are the stages without a pipeline, `zero_in_pipelines` those with one; `sp` says whether sequence parallelism
    goes with every tensor parallelism (always), with none (never) or as one likes; `etp` the tensor parallelism inside
    experts (any; one: experts are whole; tp: that of all else); `expert_ranks` the ranks that expert parallelism may
    take; `stages` how layers are cut into a pipeline's stages (any; even: equally; counted: equally, embedding and
    output as a layer each where that divides; by_length: by layers of a stage, rounded up to whole virtual stages).
    """

    name: str
    title: str
    through: str = ""  # that the facts are of, where an engine alone can do more
    version: str
    stacks: tuple[str, ...]  # whose fitted constants price it, the nearest first
    axes: tuple[str, ...]
    schedules: tuple[str, ...] = ("1f1b",)
    virtual_only: tuple[str, ...] = ("interleaved",)  # schedules that need two or more stages a rank
    uncompiled: tuple[str, ...] = ()  # schedules that do not go with layers that torch.compile joined
    zero: tuple[int, ...] = (0, 1)
    zero_in_pipelines: tuple[int, ...] = (0, 1)
    zero_with_tensor: tuple[int, ...] | None = None  # where it differs
    sp: Literal["any", "always", "never"] = "any"
    experts_need_sp: bool = False
    etp: Literal["any", "one", "tp"] = "any"
    expert_ranks: Literal["dp-cp", "dp", "shard-cp-tp"] = "dp-cp"
    shares_over_context: bool = False  # weights are cut over the ranks of cp and ep as well
    replicas: bool = False
    orders: tuple[str, ...] = (DEFAULT_ORDER,)
    recompute: tuple[str, ...] = EVERY_RECOMPUTE
    offload: tuple[str, ...] = ("none",)
    offload_zero: Mapping[str, tuple[int, ...]] = {}  # the stages of ZeRO that each kind of offload goes with
    stages: Literal["any", "even", "counted", "by_length"] = "any"
    kv_heads: Literal["divides", "either"] = "divides"  # tp divides them, or they divide tp as well
    context: str = ""  # the kind of context parallelism
    sources: Mapping[str, str]  # fact: where it stands

    @property
    def reached(self) -> str:
        """Return the engine's title, with what it is used through where the facts are of that."""
        return f"{self.title} through {self.through}" if self.through else self.title


CORE = "NVIDIA/Megatron-LM:megatron/core"
MEGATRON_SOURCES = {
    "axes, sp, experts_need_sp": f"{CORE}/model_parallel_config.py, __post_init__ (0.16.1)",
    "etp": f"{CORE}/model_parallel_config.py, expert_tensor_parallel_size (0.16.1)",
    "schedules, virtual_only": f"{CORE}/pipeline_parallel/schedules.py, get_forward_backward_func (0.16.1)",
    "stages": f"{CORE}/transformer/transformer_config.py, pipeline_model_parallel_layout (0.16.1)",
    "zero, replicas": f"{CORE}/distributed/distributed_data_parallel_config.py (0.16.1)",
    "zero_in_pipelines": "NVIDIA/Megatron-LM:docs, Megatron-FSDP user guide (recipes use it without a pipeline)",
    "expert_ranks, shares_over_context": f"{CORE}/parallel_state.py, initialize_model_parallel (0.16.1)",
    "orders": f"{CORE}/parallel_state.py, use_tp_pp_dp_mapping (0.16.1)",
    "kv_heads": f"{CORE}/transformer/transformer_config.py, __post_init__ (0.16.1)",
    "recompute": f"{CORE}/transformer/transformer_config.py, recompute_granularity (0.16.1)",
    "context": f"{CORE}/transformer/transformer_config.py, cp_comm_type (0.16.1)",
    "offload": f"{CORE}/optimizer/optimizer_config.py, optimizer_cpu_offload (0.16.1)",
}
NEMO_SOURCES = {
    **MEGATRON_SOURCES,
    "stages": f"{CORE}/transformer/transformer_config.py, account_for_embedding_in_pipeline_split (0.16.1)",
}
MEGATRON: dict[str, Any] = {
    "axes": ("tp", "pp", "cp", "ep"),
    "schedules": ("1f1b", "interleaved"),
    "zero": (0, 1, 2, 3),
    "zero_in_pipelines": (0, 1),
    "experts_need_sp": True,
    "orders": (DEFAULT_ORDER, "tp-cp-pp-dp"),
    "offload": ("none", "optimizer"),
    "kv_heads": "either",
    "context": "ring over pairs of chunks (p2p), all-gather or all-to-all",
    "sources": MEGATRON_SOURCES,
}
AUTOMODEL = "NVIDIA-NeMo/Automodel:nemo_automodel/components"
TITAN = "pytorch/torchtitan:torchtitan"
ACCELERATE = "huggingface/accelerate:src/accelerate"
NANOTRON = "huggingface/nanotron:src/nanotron"
CONFIG_JSON = "https://www.deepspeed.ai/docs/config-json/"
BASE_YML = "AI-Hypercomputer/maxtext:src/MaxText/configs/base.yml"
PIPELINING = "pytorch/pytorch:torch/distributed/pipelining/schedules.py"
ENGINES: dict[str, EngineFacts] = {
    engine.name: engine
    for engine in (
        EngineFacts(
            name="megatron",
            title="Megatron-LM and megatron-core",
            version="core 0.16",
            stacks=("megatron", "bridge", "since-2024"),
            **MEGATRON,
        ),
        EngineFacts(
            name="bridge",
            title="Megatron-Bridge",
            version="0.3, core 0.16",
            stacks=("bridge", "since-2024"),
            **MEGATRON,
        ),
        EngineFacts(
            name="nemo",
            title="NeMo 1 and 2",
            version="2.x",
            stacks=("nemo", "dgxc", "since-2024"),
            **{**MEGATRON, "zero": (0, 1), "offload": ("none",), "stages": "counted", "sources": NEMO_SOURCES},
        ),
        EngineFacts(
            name="automodel",
            title="NeMo Automodel",
            version="0.7",
            stacks=("automodel", "since-2024"),
            axes=("tp", "pp", "cp", "ep"),
            schedules=("gpipe", "1f1b", "interleaved", "zb"),
            virtual_only=("interleaved", "zb"),
            stages="by_length",
            zero=(2, 3),
            zero_in_pipelines=(2, 3),
            etp="one",
            expert_ranks="shard-cp-tp",
            replicas=True,
            offload=("none", "parameters"),
            context="ring of DTensor's context parallelism",
            sources={
                "axes, orders": f"{AUTOMODEL}/distributed/mesh.py (0.7.0)",
                "zero, zero_in_pipelines, replicas, sp, offload": f"{AUTOMODEL}/distributed/config.py (0.7.0)",
                "shares_over_context": f"{AUTOMODEL}/distributed/fsdp2.py (0.7.0)",
                "etp, expert_ranks, experts_need_sp": f"{AUTOMODEL}/moe/parallelizer.py (0.7.0)",
                "stages": f"{AUTOMODEL}/distributed/pipelining/functional.py, layers_per_stage (0.7.0)",
                "schedules, virtual_only": f"{PIPELINING}; {AUTOMODEL}/distributed/pipelining/autopipeline.py (0.7.0)",
                "kv_heads": f"{AUTOMODEL}/distributed/optimized_tp_plans.py (0.7.0)",
                "context": f"{AUTOMODEL}/distributed/context_parallel (0.7.0)",
                "recompute": f"{AUTOMODEL}/distributed/activation_checkpointing.py (0.7.0)",
            },
        ),
        EngineFacts(
            name="torchtitan",
            title="torchtitan",
            version="0.3",
            stacks=("torchtitan", "titan", "since-2024"),
            axes=("tp", "pp", "cp", "ep"),
            schedules=("gpipe", "1f1b", "interleaved", "zb"),
            virtual_only=("interleaved", "zb"),
            uncompiled=("zb",),
            zero=(0, 2, 3),
            zero_in_pipelines=(0, 2, 3),
            zero_with_tensor=(2, 3),
            etp="one",
            expert_ranks="shard-cp-tp",
            replicas=True,
            offload=("none", "parameters"),
            context="ring of DTensor's context parallelism",
            sources={
                "axes, replicas, sp, zero": f"{TITAN}/config/configs.py, ParallelismConfig (0.3.0)",
                "etp, expert_ranks, experts_need_sp": f"{TITAN}/config/configs.py, expert_parallel_degree (0.3.0)",
                "stages": f"{TITAN}/distributed/pipeline_parallel.py, module_fqns_per_model_part (0.3.0)",
                "uncompiled": f"{PIPELINING}, _check_torch_compile_compatibility (torch 2.13)",
                "schedules, virtual_only": f"{PIPELINING}; {TITAN}/distributed/pipeline_parallel.py (0.3.0)",
                "zero_in_pipelines": f"{TITAN}/distributed/fsdp.py, reshard_after_forward (0.3.0)",
                "zero_with_tensor, orders, shares_over_context": f"{TITAN}/distributed/parallel_dims.py (0.3.0)",
                "kv_heads": f"{TITAN}/distributed/tensor_parallel.py (0.3.0)",
                "context": f"{TITAN}/distributed/context_parallel (0.3.0)",
                "recompute": f"{TITAN}/distributed/activation_checkpoint.py (0.3.0)",
                "offload": f"{TITAN}/config/configs.py, enable_cpu_offload (0.3.0)",
            },
        ),
        EngineFacts(
            name="deepspeed",
            title="DeepSpeed",
            through="Hugging Face's Trainer or Accelerate",
            version="0.18",
            stacks=("deepspeed", "since-2024"),
            axes=("tp",),
            zero=(0, 1, 2, 3),
            zero_with_tensor=(0, 1, 2),
            sp="never",
            recompute=("none", "full"),
            offload=("none", "optimizer", "parameters"),
            offload_zero={"optimizer": (1, 2, 3), "parameters": (3,)},
            sources={
                "zero, offload, offload_zero": f"{CONFIG_JSON}#zero-optimizations-for-fp16-training",
                "replicas, shares_over_context": f"{CONFIG_JSON}#zero-optimizations-for-fp16-training",
                "axes, zero_with_tensor, sp, orders, kv_heads": "https://www.deepspeed.ai/tutorials/autotp-training/",
                "recompute": "https://huggingface.co/docs/transformers/main_classes/trainer (gradient_checkpointing)",
            },
        ),
        EngineFacts(
            name="accelerate",
            title="Accelerate and plain FSDP",
            version="1.15",
            stacks=("accelerate", "fsdp", "since-2024"),
            axes=("tp", "cp"),
            zero=(0, 2, 3),
            zero_with_tensor=(2, 3),
            sp="never",
            replicas=True,
            recompute=("none", "full"),
            offload=("none", "parameters"),
            context="ring of DTensor's context parallelism",
            sources={
                "axes, replicas, zero_with_tensor, orders, shares_over_context": f"{ACCELERATE}/parallelism_config.py",
                "sp, kv_heads": "https://huggingface.co/docs/transformers/perf_train_gpu_many (tp_plan)",
                "context": "https://huggingface.co/docs/accelerate/concept_guides/context_parallelism",
                "zero": "https://huggingface.co/docs/accelerate/concept_guides/fsdp1_vs_fsdp2",
                "recompute, offload": f"{ACCELERATE}/utils/dataclasses.py (1.15.0)",
            },
        ),
        EngineFacts(
            name="maxtext",
            title="MaxText",
            version="2026",
            stacks=("maxtext", "pax", "since-2024"),
            axes=("tp", "pp", "cp", "ep"),
            schedules=("gpipe", "interleaved"),
            stages="even",
            zero=(0, 1, 3),
            zero_in_pipelines=(0, 1, 3),
            sp="always",
            etp="tp",
            expert_ranks="dp",
            shares_over_context=True,
            replicas=True,
            offload=("none", "optimizer", "parameters"),
            context="all-gather of keys and values, load balanced",
            sources={
                "axes, sp, shares_over_context, orders": f"{BASE_YML} (mesh_axes, logical_axis_rules)",
                "etp, expert_ranks, experts_need_sp, kv_heads": f"{BASE_YML} (logical_axis_rules)",
                "zero, zero_in_pipelines, replicas": f"{BASE_YML} (shard_optimizer_over_data)",
                "schedules, virtual_only, stages": "AI-Hypercomputer/maxtext:src/MaxText/layers/pipeline.py",
                "context": f"{BASE_YML} (context_parallel_load_balance)",
                "recompute, offload": f"{BASE_YML} (remat_policy)",
            },
        ),
    )
}
VARIANTS: dict[str, EngineFacts] = {  # of engines, that published stacks ran: they do more
    "megascale": msgspec.structs.replace(
        ENGINES["megatron"],
        title="MegaScale",
        zero_in_pipelines=(0, 1, 2),
        sources=MEGATRON_SOURCES | {"zero_in_pipelines": "Jiang et al. 2024, arXiv 2402.15627"},
    ),
    "fms": msgspec.structs.replace(
        ENGINES["accelerate"],
        title="fms-fsdp",
        recompute=EVERY_RECOMPUTE,
        sources={
            **ENGINES["accelerate"].sources,
            "recompute, offload": "foundation-model-stack/fms-fsdp:fms_fsdp/policies/ac_handler.py",
        },
    ),
    "unsloth": msgspec.structs.replace(
        ENGINES["accelerate"],
        title="Unsloth",
        axes=(),
        sources={
            **ENGINES["accelerate"].sources,
            "axes": "https://unsloth.ai/docs/basics/multi-gpu-training-with-unsloth (DDP and FSDP)",
        },
    ),
    "torchtune": msgspec.structs.replace(
        ENGINES["accelerate"],
        title="torchtune",
        sp="any",
        sources={
            **ENGINES["accelerate"].sources,
            "axes, sp": "pytorch/torchtune:recipes/full_finetune_distributed.py (tensor_parallel_dim)",
        },
    ),
    "nanotron": EngineFacts(
        name="nanotron",
        title="nanotron",
        version="2025",
        stacks=("nanotron",),
        axes=("tp", "pp", "cp", "ep"),
        schedules=("gpipe", "1f1b"),
        orders=(DEFAULT_ORDER, "tp-cp-pp-dp"),
        recompute=("none", "full"),
        sources={
            "axes, sp, schedules, virtual_only, stages, recompute": f"{NANOTRON}/config/parallelism_config.py",
            "zero, zero_in_pipelines, replicas, offload": f"{NANOTRON}/config/config.py, OptimizerArgs.zero_stage",
            "orders, etp, expert_ranks, kv_heads, context": f"{NANOTRON}/parallel/context.py, _init_parallel_groups",
        },
    ),
}
# stacks that are no engine of the list: the pipeline schedules that they had, and where that stands
BEFORE_ZERO_BUBBLE = (
    ("gpipe", "1f1b", "interleaved"),
    "zero-bubble schedules were published in 2024, arXiv 2401.10241",
)
STACK_SCHEDULES: dict[str, tuple[tuple[str, ...], str]] = {
    "before-2023": BEFORE_ZERO_BUBBLE,
    "in-2023": BEFORE_ZERO_BUBBLE,
    "llama3paper": (("1f1b", "interleaved"), "Llama 3, arXiv 2407.21783, section 3.3.2"),
}
# engines that take a pipeline whose stages hold unlike numbers of layers only where an option of theirs says so
UNEVEN_BY = {
    "megatron": "--pipeline-model-parallel-layout",
    "bridge": "pipeline_model_parallel_layout",
    "nemo": "account_for_embedding_in_pipeline_split",
}
ITSELF: dict[str, EngineFacts] = {  # engines as programs that are written for them use them, where others reach less
    "deepspeed": msgspec.structs.replace(
        ENGINES["deepspeed"],
        title="DeepSpeed's PipelineModule",
        through="",
        axes=("tp", "pp"),
        zero_in_pipelines=(0, 1),
        sources={
            **ENGINES["deepspeed"].sources,
            "schedules, virtual_only": "deepspeedai/DeepSpeed:deepspeed/runtime/pipe/schedule.py, TrainSchedule",
            "zero_in_pipelines": "deepspeedai/DeepSpeed:deepspeed/runtime/pipe/engine.py, PipelineEngine",
            "stages": "deepspeedai/DeepSpeed:deepspeed/runtime/pipe/module.py, partition_method",
        },
    ),
    "nemo": msgspec.structs.replace(
        ENGINES["nemo"],
        zero=(0, 1, 2, 3),
        sources={
            **ENGINES["nemo"].sources,
            "zero": "docs.nvidia.com, NeMo performance summary of 25.04, column FSDP; trainer.strategy.fsdp",
        },
    ),
}
ALIASES = {"fsdp": "accelerate", "megatron-lm": "megatron", "megatron-bridge": "bridge"}


def engine_named(name: str, *, flag: str = "--engine") -> EngineFacts:
    """Return an engine by its name; InputError with the nearest for one that is not known."""
    plain = ALIASES.get(name.lower(), name.lower())
    if plain not in ENGINES:
        raise InputError(f"{flag} {name}: no such engine ({nearest(name, [*ENGINES, 'fsdp'])})")
    return ENGINES[plain]


def itself_with(engine: EngineFacts, axes: Iterable[str], *, zero: int | None = None) -> EngineFacts:
    """Return an engine as its own programs use it where an axis or the stage of ZeRO is missing otherwise, or as is."""
    wider = ITSELF.get(engine.name)
    if wider is None:
        return engine
    axis = not set(axes).isdisjoint(set(wider.axes) - set(engine.axes))
    return wider if axis or zero in set(wider.zero) - set(engine.zero) else engine


def uneven_note(engine: EngineFacts, layers: int, pp: int, vpp: int) -> str:
    """Return what has to be said to an engine for stages that hold unlike numbers of layers; "" where they do not."""
    option = UNEVEN_BY.get(engine.name)
    if option is None or pp == 1 or layers % (pp * vpp) == 0:
        return ""
    slots = f"pp x vpp = {pp * vpp}" if vpp > 1 else f"pp = {pp}"
    return (
        f"{slots} does not divide {layers} layers, which {engine.name} refuses unless {option} says what each stage "
        "holds; the longest is priced"
    )


def shares_key_heads(stack: str) -> bool:
    """Return whether several tensor-parallel ranks may share a key-value head, as Megatron-LM has it from core 0.16 on.

    So may the stacks that are named after such an engine; published stacks ran what was there before.
    """
    return stack in ENGINES and ENGINES[stack].kv_heads == "either"


def applicable(engine: EngineFacts) -> list[str]:
    """Return the facts of an engine that concern an axis it has; each has a source."""
    of_axis = {
        "pp": {"schedules", "virtual_only", "zero_in_pipelines", "stages"},
        "ep": {"experts_need_sp", "etp", "expert_ranks"},
        "cp": {"context"},
    }
    without = {name for axis, names in of_axis.items() if axis not in engine.axes for name in names}
    said = {"name", "title", "through", "version", "stacks", "sources"} | without
    names = [name for name in engine.__struct_fields__ if name not in said]
    return [name for name in names if getattr(engine, name) not in (None, "", {}, ())]


def fact_sources(engine: EngineFacts, fact: str) -> list[str]:
    """Return where a fact of an engine stands."""
    return [where for key, where in engine.sources.items() if fact in [part.strip() for part in key.split(",")]]
