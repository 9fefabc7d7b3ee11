"""Gradients between the passes of a step under Accelerate's FSDP: they add up whole on each rank, and travel once.

Sources: huggingface/accelerate:src/accelerate/accelerator.py (no_sync; of FSDP 2 set_requires_gradient_sync) and
utils/dataclasses.py (GradientAccumulationPlugin.sync_each_batch); huggingface/transformers:src/transformers/trainer.py.
"""

from msgspec.structs import replace

from ...units import format_bytes
from ..draft import Draft
from ..job import Job
from ..keys import Keys

BYTES = {"fp32": 4}  # of a gradient that is not yet reduced; else in half precision
SWITCH = "sync_each_batch"
TRAIT = "no-sync"  # as `plan.analytic.told_traits` names it


def sums_whole(draft: Draft, keys: Keys) -> bool:
    """Return whether gradients add up whole: FSDP shards them, and no switch has them reduced in each pass."""
    if not (draft.version or "").startswith("FSDP") or draft.switches.get("zero", 0) < 2:
        return False
    key = next((key for key in keys.values if key.rpartition(".")[2] == SWITCH), "")
    return not (key and keys.switch(key))


def with_whole_gradients(job: Job) -> Job:
    """Return a job that is priced with whole gradients between its passes, and says what they take at most."""
    split, model = job.layout, job.architecture
    job = replace(job, traits=(*job.traits, TRAIT))
    if job.lora_rank or model is None or not (job.global_batch and split.mbs and split.dp):
        return job
    passes = job.global_batch // (split.mbs * split.dp)
    if passes < 2:
        return job
    held = format_bytes(model.parameters * BYTES.get(job.precision or "", 2) / (split.tp or 1))
    whole = f"{passes} passes a step: Accelerate adds their gradients up whole on each rank (no_sync of FSDP)"
    told = f"{whole}, up to {held}, which is priced; {SWITCH} keeps them sharded"
    return replace(job, notes=(*job.notes, told))
