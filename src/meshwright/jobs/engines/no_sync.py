"""Gradients between the passes of a step under Accelerate's FSDP: they add up whole on each rank, and are not priced.

Sources: huggingface/accelerate:src/accelerate/accelerator.py (no_sync; of FSDP 2 set_requires_gradient_sync) and
utils/dataclasses.py (GradientAccumulationPlugin.sync_each_batch); huggingface/transformers:src/transformers/trainer.py.
"""

from msgspec.structs import replace

from ...units import format_bytes
from ..job import Job
from ..keys import Keys

BYTES = {"fp32": 4}  # of a gradient that is not yet reduced; else in half precision
SWITCH = "sync_each_batch"


def with_whole_gradients(job: Job, keys: Keys) -> Job:
    """Return a job that says what whole gradients between its passes take beside what is priced."""
    split, model = job.layout, job.architecture
    key = next((key for key in keys.values if key.rpartition(".")[2] == SWITCH), "")
    reduced = bool(key) and keys.switch(key)
    sharded = (job.engine_version or "").startswith("FSDP") and (split.zero or 0) >= 2
    if not sharded or reduced or job.lora_rank or model is None or not (job.global_batch and split.mbs and split.dp):
        return job
    passes = job.global_batch // (split.mbs * split.dp)
    if passes < 2:
        return job
    held = format_bytes(model.parameters * BYTES.get(job.precision or "", 2) / (split.tp or 1))
    whole = f"{passes} passes a step: Accelerate adds their gradients up whole on each rank (no_sync of FSDP)"
    told = f"{whole}, up to {held} more than is priced; {SWITCH} keeps them sharded"
    return replace(job, notes=(*job.notes, told))
