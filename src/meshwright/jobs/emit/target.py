"""Target: a layout with all that an engine's configuration must say to run it; and what emitters share."""

import math

import msgspec

from ...errors import InputError
from ...layout import Layout, Offload, micro_batches
from ...pipelines import even_stages
from ...units import counted
from ...workload.architecture import Architecture
from ...workload.engines import engine_named
from .rules import refusals
from .why import why_set

# Hugging Face's names of the catalogue's models, for engines that load a model by it
HUGGING_FACE = {
    "deepseek-v3": "deepseek-ai/DeepSeek-V3",
    "gpt-oss-120b": "openai/gpt-oss-120b",
    "gpt2": "openai-community/gpt2",
    "bloom-176b": "bigscience/bloom",
    "llama2-7b": "meta-llama/Llama-2-7b-hf",
    "llama2-13b": "meta-llama/Llama-2-13b-hf",
    "llama2-70b": "meta-llama/Llama-2-70b-hf",
    "llama3-8b": "meta-llama/Meta-Llama-3-8B",
    "llama3-70b": "meta-llama/Meta-Llama-3-70B",
    "llama3-405b": "meta-llama/Llama-3.1-405B",
    "mistral-7b": "mistralai/Mistral-7B-v0.1",
    "mixtral-8x7b": "mistralai/Mixtral-8x7B-v0.1",
    "nemotron4-340b": "nvidia/Nemotron-4-340B-Base",
    "qwen3-30b-a3b": "Qwen/Qwen3-30B-A3B",
    "qwen3-235b-a22b": "Qwen/Qwen3-235B-A22B",
    "deepseek-v2-lite": "deepseek-ai/DeepSeek-V2-Lite",
    "gpt-oss-20b": "openai/gpt-oss-20b",
    "llama3.2-1b": "meta-llama/Llama-3.2-1B",
    "llama3.2-3b": "meta-llama/Llama-3.2-3B",
    "mixtral-8x22b": "mistralai/Mixtral-8x22B-v0.1",
    "qwen2.5-0.5b": "Qwen/Qwen2.5-0.5B",
    "qwen2.5-1.5b": "Qwen/Qwen2.5-1.5B",
    "qwen2.5-3b": "Qwen/Qwen2.5-3B",
    "qwen2.5-7b": "Qwen/Qwen2.5-7B",
    "qwen2.5-14b": "Qwen/Qwen2.5-14B",
    "qwen2.5-32b": "Qwen/Qwen2.5-32B",
    "qwen3-0.6b": "Qwen/Qwen3-0.6B",
    "qwen3-1.7b": "Qwen/Qwen3-1.7B",
    "qwen3-4b": "Qwen/Qwen3-4B",
    "qwen3-8b": "Qwen/Qwen3-8B",
    "qwen3-14b": "Qwen/Qwen3-14B",
    "qwen3-32b": "Qwen/Qwen3-32B",
}


class EmitTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The job to emit: the layout, the model, the batch in sequences, and the machines."""

    layout: Layout
    architecture: Architecture
    model: str  # name of the catalogue, or of the file that describes it
    global_batch: int
    seq_len: int
    precision: str = "bf16"
    half_sums: bool = False  # gradients add up in half precision where the engine would have fp32
    gpus_per_node: int = 8
    reason: str = ""  # why this layout, in a line
    compiled: bool = True  # where an engine says it: layers by torch.compile, as what was priced
    sums_whole: bool = False  # gradients add up whole between the passes of a step, as FSDP leaves them to
    offload_share: float = 1.0  # of the states that offload=optimizer leaves to the host
    notes: tuple[str, ...] = ()  # what else a reader of the configuration has to know

    @property
    def offload(self) -> Offload:
        """The states that live in the host's memory."""
        return self.layout.offload

    @property
    def world(self) -> int:
        """Ranks in all."""
        return self.layout.world_size

    @property
    def per_node(self) -> int:
        """Ranks of a node."""
        return min(self.gpus_per_node, self.world)

    @property
    def nodes(self) -> int:
        """Nodes; InputError where the ranks do not fill them."""
        count, rest = divmod(self.world, self.per_node)
        if rest:
            raise InputError(f"--emit: {counted(self.world, 'rank')} do not fill nodes of {self.per_node}")
        return count

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a data-parallel rank in one step."""
        return micro_batches(self.layout, self.global_batch)

    @property
    def stages(self) -> tuple[int, ...]:
        """Layers of each stage in the order of the model, virtual ones included."""
        layers, slots = self.architecture.num_hidden_layers, self.layout.pp * self.layout.vpp
        counted = layers % slots and (layers + 2) % slots == 0  # embedding and output take a slot each
        return even_stages(layers, slots, ends=(1, 1) if counted else (0, 0))

    @property
    def even(self) -> bool:
        """Whether all stages hold equally many layers."""
        return len(set(self.stages)) == 1


def check_engine_rules(target: EmitTarget, engine: str) -> None:
    """Raise InputError with every rule of the engine that the layout breaks."""
    facts = engine_named(engine, flag="--emit")
    model = target.architecture
    sizes = (model.num_key_value_heads, model.num_hidden_layers)
    told = refusals(facts, target.layout, *sizes, compiled=target.compiled)
    if target.layout.mode != "sync":
        told.append("it has no asynchronous data parallelism")
    if min(target.stages[1:-1], default=1) < 1:  # the first may hold the embedding alone, the last the output
        told.append("a stage would hold no layer")
    if told:
        raise InputError(f"--emit {engine}: {target.layout}: {'; '.join(told)}")


def hugging_face_name(target: EmitTarget, engine: str) -> str:
    """Return Hugging Face's name of the model; InputError where it is not known."""
    if target.model not in HUGGING_FACE:
        raise InputError(
            f"--emit {engine}: {target.model or 'the model'}: its name on Hugging Face is not known; "
            f"expected one of {', '.join(HUGGING_FACE)}"
        )
    return HUGGING_FACE[target.model]


def slurm_head(target: EmitTarget) -> list[str]:
    """Return the first lines of a batch script: nodes, a launcher on each, its GPUs."""
    return [
        "#!/bin/bash",
        f"#SBATCH --nodes={target.nodes}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --gpus-per-node={target.per_node}",
        f"# {target.layout}: {counted(target.global_batch, 'sequence')} of "
        f"{counted(target.seq_len, 'token')} on {counted(target.world, 'GPU')}",
        *([f"# {target.reason}"] if target.reason else []),
    ]


def order_note(target: EmitTarget) -> str:
    """Return the order in which ranks fill the axes, in words."""
    active = [axis for axis in target.layout.order.split("-") if getattr(target.layout, axis) > 1]
    inside = math.prod(getattr(target.layout, axis) for axis in active[:1]) if active else 1
    if not active:
        return "one rank"
    return f"ranks fill {', then '.join(active)}: {inside} neighbours share {active[0]}"


FIRST_NODE = '"$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"'


def on_nodes(target: EmitTarget, launcher: str, rank: str) -> str:
    """Return a launcher's words for every node: its number is SLURM's, so that ranks fill nodes in their order."""
    if target.nodes == 1:
        return launcher
    inner = f"'exec {launcher} --{rank}=$SLURM_NODEID \"$@\"'"
    return f"srun --nodes={target.nodes} --ntasks-per-node=1 --distribution=block bash -c {inner} {launcher.split()[0]}"


def torchrun(target: EmitTarget) -> str:
    """Return the launcher's words."""
    words = f"--nnodes {target.nodes} --nproc_per_node {target.per_node}"
    first = "" if target.nodes == 1 else f" --master_addr {FIRST_NODE} --master_port 29500"
    return f"{on_nodes(target, 'torchrun', 'node_rank')} {words}{first}"


def placement(target: EmitTarget) -> str:
    """Return which rank is where, in words."""
    return f"rank r is GPU r % {target.per_node} of node r // {target.per_node}: {order_note(target)}"


def commented(lines: list[tuple[str, str]], *, indent: str = "") -> list[str]:
    """Return settings with their comments beside them, aligned."""
    lines = [(text, reason or why_set(text)) for text, reason in lines]
    wide = max((len(text) for text, _ in lines), default=0)
    return [f"{indent}{text:<{wide}}  # {told}" if told else f"{indent}{text}" for text, told in lines]
