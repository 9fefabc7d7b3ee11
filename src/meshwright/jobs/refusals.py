"""Refusals of engines: jobs whose degrees do not fit their model, their sequence or their passes are not priced.

Only what no engine can run is refused here: shares of a head or of an expert, half a round over the stages. What a
release of one engine merely does not offer is for `emit.rules`.
"""

from collections.abc import Mapping, Sequence

from ..units import counted
from .job import DEEPSPEED_INSIDE, Job

MEGATRONS = frozenset({"megatron", "bridge", "nemo"})
# whose tensor parallelism gives each rank whole heads; DeepSpeed's automatic one cuts unevenly
WHOLE_HEADS = MEGATRONS | {"torchtitan", "automodel", "maxtext", "accelerate"}
PAIRS = MEGATRONS | {"torchtitan"}  # whose context parallelism gives each rank two pieces of a sequence
RECIPES = frozenset({"bridge", "nemo"})  # whose recipes set account_for_embedding/loss_in_pipeline_split themselves
# engines that cut a model into stages of unequal length by themselves
UNEVEN = frozenset({"torchtitan", "automodel", "deepspeed", "accelerate"})


def impossible(job: Job, told: Mapping[str, str], batch: Mapping[str, tuple[int, str]]) -> str | None:
    """Return why no engine can run a job, with both sides named; None for one that can be run.

    `told` has the words for each degree, `batch` the numbers that the files say of batches: among them the `group` of
    micro-batches that a stage takes before its next virtual stage, and the `ramp` of a batch that grows.
    """
    split, engine = job.layout, job.engine
    cp, vpp, pp = split.cp or 1, split.vpp or 1, split.pp or 1
    if (why := _cut_model(job, told)) is not None:
        return why
    if engine in PAIRS and cp > 1 and job.seq_len and job.seq_len % (2 * cp):
        return f"{job.seq_len:,} tokens do not divide by 2 x {told['cp']}: each rank takes two pieces of a sequence"
    if engine not in MEGATRONS or not (job.global_batch and split.mbs and split.dp):
        return None
    if (why := _ramp(batch, job.global_batch, split.mbs * split.dp)) is not None or vpp == 1:
        return why
    passes, group = job.global_batch // (split.mbs * split.dp), batch.get("group", (pp, ""))[0]
    if interleaves(passes, group, pp):
        return None
    near = near_batches(job.global_batch, split.mbs, split.dp, pp, group)
    return f"{passes} micro-batches a step over {told['pp']}, interleaved: expected a multiple of {group}; {near}"


def interleaves(passes: int, group: int, pp: int) -> bool:
    """Return whether the micro-batches go round virtual stages (megatron/core/pipeline_parallel/schedules.py)."""
    return not passes % group or passes % group >= pp


def near_batches(total: int, each: int, dp: int, pp: int, group: int, *, passes: int = 1) -> str:
    """Return in words the nearest batches, and micro-batches of the same batch, that are whole passes of all ranks.

    `each` is a rank's sequences in `passes` micro-batches; `group` of these go round the virtual stages at once, 1
    without any.
    """
    whole = each * dp * group
    below = total // whole * whole
    batches = [f"{batch:,}" for batch in (below, below + whole) if batch]
    said = f"nearest: a batch of {' or '.join(batches)}"
    of_rank = total // dp
    passing = [] if total % dp or passes > 1 else [size for size in range(1, of_rank + 1) if not of_rank % size]
    good = [size for size in passing if group == 1 or interleaves(of_rank // size, group, pp)]
    sizes = _beside(good or passing, each)
    if not sizes:
        return said
    said += f", or a micro-batch of {' or '.join(map(str, sizes))}"
    if good:
        return said
    odd = " and ".join(str(of_rank // size) for size in sizes)
    return f"{said} without virtual stages ({odd} micro-batches do not go round pp {pp} by {group})"


def _beside(sizes: Sequence[int], each: int) -> list[int]:
    """Return the next smaller and the next larger of some numbers in their order; no more than twice as large."""
    smaller, larger = [size for size in sizes if size < each], [size for size in sizes if each < size <= 2 * each]
    return [*smaller[-1:], *larger[:1]]


def _ramp(batch: Mapping[str, tuple[int, str]], full: int, each: int) -> str | None:
    """Return why a batch cannot grow as it is told to, of steps that are each whole passes; None where it can.

    `each` is micro-batch times data parallelism.
    Source: NVIDIA/Megatron-LM:megatron/core/num_microbatches_calculator.py.
    """
    if "ramp" not in batch:
        return None
    (start, told), (more, _) = batch["ramp"], batch["ramp-step"]
    if start > full or (more and (full - start) % more) or (start < full and not more):
        return f"{told}: from {start} to {full} expected whole steps of {more}"
    wrong = next((size for size in (start, start + more) if size <= full and size % each), None)
    if wrong is None:
        return None
    return f"{told}: a batch of {wrong} on the way is not a multiple of micro-batch x dp = {counted(each, 'sequence')}"


def _cut_model(job: Job, told: Mapping[str, str]) -> str | None:
    """Return why tensor parallelism would cut heads, or expert parallelism experts; None where neither does."""
    model, tp, ep = job.architecture, job.layout.tp or 1, job.layout.ep or 1
    if model is None:
        return None
    heads, whole = model.num_attention_heads, job.engine in WHOLE_HEADS and job.engine_version != DEEPSPEED_INSIDE
    if whole and heads and heads % tp:
        return f"{heads} attention heads do not divide by {told['tp']}"
    if ep == 1 or job.engine not in MEGATRONS:
        return None
    if not model.experts:
        return f"{told['ep']}: the model has no experts"
    return f"{model.experts} experts do not divide by {told['ep']}" if model.experts % ep else None
