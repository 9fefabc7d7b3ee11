"""The training engines as data: what each can run, with a source for each fact; and the rules that follow.

The entries restrict a search (`--engine`), refuse an emission that the engine would refuse, and fill the page of
documentation. Versions are those whose source was read for the facts.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from ..errors import InputError, nearest
from ..layout import AXES, OFFLOADS, ORDERS, Layout, PipelineSchedule, Recompute

Mask = npt.NDArray[np.bool_]
# layouts as arrays of one length; names are indices into their lists, etp is the tensor parallelism inside an expert
Columns = Mapping[str, npt.NDArray[Any]]
NUMBERS = ("tp", "pp", "dp", "cp", "ep", "vpp", "zero", "sp", "replicas")
SCHEDULES: tuple[str, ...] = get_args(PipelineSchedule)
RECOMPUTES: tuple[str, ...] = get_args(Recompute)
EVERY_RECOMPUTE = ("none", "selective", "full")
DEFAULT_ORDER = "tp-cp-dp-pp"


class Engine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One engine: which axes, orders, schedules and states it can run.

    `zero` are the stages without a pipeline, `zero_in_pipelines` those with one; `sp` says whether sequence parallelism
    goes with every tensor parallelism (always), with none (never) or as one likes; `etp` the tensor parallelism inside
    experts (any, or one: experts are whole); `expert_ranks` the ranks that expert parallelism may take.
    """

    name: str
    title: str
    version: str
    stacks: tuple[str, ...]  # whose fitted constants price it, the nearest first
    axes: tuple[str, ...]
    schedules: tuple[str, ...] = ("1f1b",)
    virtual_only: tuple[str, ...] = ("interleaved",)  # schedules that need two or more stages a rank
    zero: tuple[int, ...] = (0, 1)
    zero_in_pipelines: tuple[int, ...] = (0, 1)
    zero_with_tensor: tuple[int, ...] | None = None  # where it differs
    sp: Literal["any", "always", "never"] = "any"
    experts_need_sp: bool = False
    etp: Literal["any", "one"] = "any"
    expert_ranks: Literal["dp-cp", "dp", "shard-cp-tp"] = "dp-cp"
    shares_over_context: bool = False  # weights are cut over the ranks of cp and ep as well
    replicas: bool = False
    orders: tuple[str, ...] = (DEFAULT_ORDER,)
    recompute: tuple[str, ...] = EVERY_RECOMPUTE
    offload: tuple[str, ...] = ("none",)
    offload_zero: Mapping[str, tuple[int, ...]] = {}  # the stages of ZeRO that each kind of offload goes with
    kv_heads: Literal["divides", "either"] = "divides"  # tp divides them, or they divide tp as well
    context: str = ""  # the kind of context parallelism
    sources: Mapping[str, str]  # fact: where it stands


MEGATRON_SOURCES = {
    "axes, etp": "NVIDIA/Megatron-LM:megatron/core/model_parallel_config.py (0.16.1)",
    "schedules": "NVIDIA/Megatron-LM:megatron/core/pipeline_parallel/schedules.py (0.16.1)",
    "zero": "NVIDIA/Megatron-LM:megatron/core/distributed/distributed_data_parallel_config.py (0.16.1)",
    "zero_in_pipelines": "NVIDIA/Megatron-LM:docs, Megatron-FSDP user guide (recipes use it without a pipeline)",
    "experts_need_sp": "NVIDIA/Megatron-LM:megatron/core/model_parallel_config.py, __post_init__ (0.16.1)",
    "orders": "NVIDIA/Megatron-LM:megatron/core/parallel_state.py, use_tp_pp_dp_mapping (0.16.1)",
    "kv_heads": "NVIDIA/Megatron-LM:megatron/core/transformer/transformer_config.py, __post_init__ (0.16.1)",
    "recompute": "NVIDIA/Megatron-LM:megatron/core/transformer/transformer_config.py (0.16.1)",
    "context": "NVIDIA/Megatron-LM:megatron/core/transformer/transformer_config.py, cp_comm_type (0.16.1)",
    "offload": "NVIDIA/Megatron-LM:megatron/core/optimizer/optimizer_config.py, optimizer_cpu_offload (0.16.1)",
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
BASE_YML = "AI-Hypercomputer/maxtext:src/MaxText/configs/base.yml"
PIPELINING = "pytorch/pytorch:torch/distributed/pipelining/schedules.py"
ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        Engine(
            name="megatron",
            title="Megatron-LM and megatron-core",
            version="core 0.16",
            stacks=("megatron", "bridge", "since-2024"),
            **MEGATRON,
        ),
        Engine(
            name="bridge",
            title="Megatron-Bridge",
            version="0.3, core 0.16",
            stacks=("bridge", "since-2024"),
            **MEGATRON,
        ),
        Engine(
            name="nemo",
            title="NeMo 1 and 2",
            version="2.x",
            stacks=("nemo", "dgxc", "since-2024"),
            **{**MEGATRON, "zero": (0, 1)},
        ),
        Engine(
            name="automodel",
            title="NeMo Automodel",
            version="0.2",
            stacks=("automodel", "since-2024"),
            axes=("tp", "pp", "cp", "ep"),
            schedules=("gpipe", "1f1b", "interleaved", "zb"),
            virtual_only=("interleaved", "zb"),
            zero=(2, 3),
            zero_in_pipelines=(2, 3),
            etp="one",
            expert_ranks="shard-cp-tp",
            replicas=True,
            recompute=("none", "full"),
            offload=("none", "parameters"),
            context="ring of DTensor's context parallelism",
            sources={
                "axes, zero, replicas": "NVIDIA-NeMo/Automodel:nemo_automodel/components/distributed/fsdp2.py",
                "etp, expert_ranks": "NVIDIA-NeMo/Automodel:nemo_automodel/components/moe/parallelizer.py",
                "schedules, virtual_only": f"{PIPELINING}; NVIDIA-NeMo/Automodel:components/distributed/pipelining",
                "recompute": "NVIDIA-NeMo/Automodel:examples/benchmark/configs (activation_checkpointing)",
            },
        ),
        Engine(
            name="torchtitan",
            title="torchtitan",
            version="0.3",
            stacks=("torchtitan", "titan", "since-2024"),
            axes=("tp", "pp", "cp", "ep"),
            schedules=("gpipe", "1f1b", "interleaved", "zb"),
            virtual_only=("interleaved", "zb"),
            zero=(0, 2, 3),
            zero_in_pipelines=(0, 2, 3),
            zero_with_tensor=(2, 3),
            etp="one",
            expert_ranks="shard-cp-tp",
            replicas=True,
            offload=("none", "parameters"),
            context="ring of DTensor's context parallelism",
            sources={
                "axes, replicas, zero, sp": "pytorch/torchtitan:torchtitan/config/configs.py (0.3.0)",
                "etp, expert_ranks": "pytorch/torchtitan:torchtitan/config/configs.py, expert_parallel_degree (0.3.0)",
                "schedules, virtual_only": f"{PIPELINING}; torchtitan/distributed/pipeline_parallel.py (0.3.0)",
                "orders": "pytorch/torchtitan:torchtitan/distributed/parallel_dims.py (0.3.0)",
                "recompute": "pytorch/torchtitan:torchtitan/distributed/activation_checkpoint.py (0.3.0)",
                "offload": "pytorch/torchtitan:torchtitan/config/configs.py, enable_cpu_offload (0.3.0)",
            },
        ),
        Engine(
            name="deepspeed",
            title="DeepSpeed",
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
                "zero, offload": "https://www.deepspeed.ai/docs/config-json/#zero-optimizations-for-fp16-training",
                "axes, zero_with_tensor": "https://www.deepspeed.ai/tutorials/autotp-training/",
                "recompute": "https://huggingface.co/docs/transformers/main_classes/trainer (gradient_checkpointing)",
            },
        ),
        Engine(
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
                "axes, replicas, zero_with_tensor": "huggingface/accelerate:src/accelerate/parallelism_config.py",
                "zero": "https://huggingface.co/docs/accelerate/concept_guides/fsdp1_vs_fsdp2",
                "recompute, offload": "huggingface/accelerate:src/accelerate/utils/dataclasses.py (1.15.0)",
            },
        ),
        Engine(
            name="maxtext",
            title="MaxText",
            version="2026",
            stacks=("maxtext", "pax", "since-2024"),
            axes=("tp", "pp", "cp", "ep"),
            schedules=("gpipe", "interleaved"),
            zero=(0, 1, 3),
            zero_in_pipelines=(0, 1, 3),
            sp="always",
            expert_ranks="dp",
            shares_over_context=True,
            replicas=True,
            recompute=("selective", "full"),
            offload=("none", "optimizer", "parameters"),
            context="all-gather of keys and values, load balanced",
            sources={
                "axes, sp, shares_over_context": f"{BASE_YML} (mesh_axes, logical_axis_rules)",
                "zero, replicas": f"{BASE_YML} (shard_optimizer_over_data)",
                "schedules": "AI-Hypercomputer/maxtext:src/MaxText/layers/pipeline.py",
                "recompute, offload": f"{BASE_YML} (remat_policy)",
            },
        ),
    )
}
ALIASES = {"fsdp": "accelerate", "megatron-lm": "megatron", "megatron-bridge": "bridge"}


def engine_named(name: str, *, flag: str = "--engine") -> Engine:
    """Return an engine by its name; InputError with the nearest for one that is not known."""
    plain = ALIASES.get(name.lower(), name.lower())
    if plain not in ENGINES:
        raise InputError(f"{flag} {name}: no such engine ({nearest(name, [*ENGINES, 'fsdp'])})")
    return ENGINES[plain]


def broken(engine: Engine, layouts: Columns, kv_heads: int) -> dict[str, Mask]:
    """Return, for each rule of an engine in words, which of the layouts break it."""
    tp, pp, dp, cp, ep, vpp, zero, sp, copies = (layouts[name] for name in NUMBERS)
    schedule = layouts["schedule"]
    found: dict[str, Mask] = {}
    for name, degree in (("tp", tp), ("pp", pp), ("cp", cp), ("ep", ep)):
        if name not in engine.axes:
            found[f"{engine.title} has no {name}"] = degree > 1
    piped = pp > 1
    found[f"its schedules are {', '.join(engine.schedules)}"] = piped & ~_among(schedule, SCHEDULES, engine.schedules)
    looped = _among(schedule, SCHEDULES, engine.virtual_only)
    found["this schedule needs two or more virtual stages"] = piped & looped & (vpp < 2)
    sharded = dp * cp > 1
    alone, within = np.isin(zero, engine.zero), np.isin(zero, engine.zero_in_pipelines)
    found[f"its ZeRO stages are {_listed(engine.zero)}"] = sharded & ~piped & ~alone
    found[f"its ZeRO stages in a pipeline are {_listed(engine.zero_in_pipelines)}"] = sharded & piped & ~within
    offload = layouts["offload"]
    found[f"it offloads {', '.join(engine.offload)}"] = ~_among(offload, OFFLOADS, engine.offload)
    for kind, stages in engine.offload_zero.items():
        words = f"its offload={kind} goes with ZeRO stages {_listed(stages)}"
        found[words] = _among(offload, OFFLOADS, (kind,)) & ~np.isin(zero, stages)
    if engine.zero_with_tensor is not None:
        cut = (tp > 1) | (cp > 1)
        words = f"its ZeRO stages with tp or cp are {_listed(engine.zero_with_tensor)}"
        found[words] = sharded & cut & ~np.isin(zero, engine.zero_with_tensor)
    if engine.sp == "always":
        found["its tensor parallelism cuts the sequence too: sp=1"] = (tp > 1) & (sp == 0)
    elif engine.sp == "never":
        found["it has no sequence parallelism: sp=0"] = sp == 1
    if engine.experts_need_sp:
        found["experts with tp need sp=1"] = (ep > 1) & (tp > 1) & (sp == 0)
    if not engine.replicas:
        found["it keeps no copies of a sharded model: replicas=1"] = copies > 1
    else:
        found["copies divide dp"] = dp % np.maximum(copies, 1) != 0
    if engine.shares_over_context:
        found["ranks of cp and ep share the weights too: zero=3"] = ((cp > 1) | (ep > 1)) & (zero != 3)
    if engine.expert_ranks == "dp":
        found["copies divide dp / ep"] = dp // np.maximum(ep, 1) % np.maximum(copies, 1) != 0
    folded = tp // np.maximum(layouts["etp"], 1)
    ranks = {"dp": dp, "dp-cp": dp * cp * folded, "shard-cp-tp": dp // np.maximum(copies, 1) * cp * tp}
    if engine.etp == "one":
        found["its experts are not cut by tensor parallelism: etp=1"] = (ep > 1) & (layouts["etp"] > 1)
    found[f"ep divides {engine.expert_ranks.replace('-', ' x ')}"] = (ep > 1) & (
        ranks[engine.expert_ranks] % np.maximum(ep, 1) != 0
    )
    found[f"it recomputes {', '.join(engine.recompute)}"] = ~_among(layouts["recompute"], RECOMPUTES, engine.recompute)
    uneven = kv_heads % tp != 0
    found["tp does not fit the key-value heads"] = uneven & ((engine.kv_heads == "divides") | (tp % kv_heads != 0))
    found[f"its orders of ranks are {', '.join(engine.orders)}"] = misordered(engine.orders, layouts)
    return found


def allowed(engine: Engine, layouts: Columns, kv_heads: int) -> Mask:
    """Return which of the layouts an engine can run."""
    rules = list(broken(engine, layouts, kv_heads).values())
    refused = rules[0]
    for rule in rules[1:]:
        refused = refused | rule
    return ~refused


def refusals(engine: Engine, layout: Layout, kv_heads: int) -> list[str]:
    """Return the rules of an engine that a layout breaks, in words."""
    one = {name: np.array([getattr(layout, name)]) for name in NUMBERS} | {
        "etp": np.array([layout.expert_tp]),
        "schedule": np.array([SCHEDULES.index(layout.schedule)]),
        "recompute": np.array([RECOMPUTES.index(layout.recompute)]),
        "order": np.array([ORDERS.index(layout.order)]),
        "offload": np.array([layout.offloaded]),
    }
    return [rule for rule, mask in broken(engine, one, kv_heads).items() if mask[0]]


def _among(indices: Any, names: tuple[str, ...], wanted: tuple[str, ...]) -> Mask:
    found: Mask = np.isin(indices, [names.index(name) for name in wanted])
    return found


def _listed(stages: tuple[int, ...]) -> str:
    return ", ".join(map(str, stages))


def misordered(orders: Sequence[str], layouts: Columns) -> Mask:
    """Return which layouts place ranks in none of these orders; axes of degree 1 have no place."""
    pattern = layouts["order"] * 16 + sum((layouts[axis] > 1) * (1 << place) for place, axis in enumerate(AXES))
    values, places = np.unique(pattern, return_inverse=True)
    wrong = []
    for value in values:
        active = {axis for place, axis in enumerate(AXES) if int(value) >> place & 1}
        own = [axis for axis in ORDERS[int(value) // 16].split("-") if axis in active]
        wrong.append(all(own != [a for a in other.split("-") if a in active] for other in orders))
    found: Mask = np.array(wrong, dtype=bool)[places.reshape(-1)]
    return found
