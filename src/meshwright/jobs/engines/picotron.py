"""picotron's JSON: tensor, pipeline, context and plain data parallelism of a Llama, all in half precision.

Sources: huggingface/picotron:train.py (the ranks, the model, AdamW over its weights), picotron/data.py (the batch),
picotron/data_parallel (sums of gradients in single precision), picotron/pipeline_parallel (how layers become stages).
"""

from ..draft import Draft
from ..job import Job
from ..keys import Keys
from ..options import JobOptions
from ..ranks import world_of
from ..sources import Sources

HARMLESS = (
    r"(?:dataset|checkpoint|logging|environment)(?:\..*)?",
    r"distributed\.(?:backend|use_cpu)|model\.(?:use_fused_adam|use_flash_attention|attention_backend)",
    r"training\.(?:seed|learning_rate|total_train_steps|num_samples|max_tokens)",
)
DEGREES = {"tp": "tp_size", "cp": "cp_size", "pp": "pp_size", "dp": "dp_size"}
SIZES = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads")  # that the file may change of its model
TYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
SCHEDULES = {"1f1b": "1f1b", "afab": "gpipe"}


def read(sources: Sources, question: JobOptions) -> Job:
    """Return the job of a picotron JSON; InputError where its degrees do not multiply to the ranks of its launch."""
    keys = sources.named_settings("config")
    draft = Draft("megatron", sources.names, question)
    draft.stack = "picotron"
    draft.note("picotron: other layouts are looked for among Megatron's")
    world_of(sources.launch, draft)
    for name, key in DEGREES.items():
        draft.degree(name, keys, f"distributed.{key}", default=1)
    _model(draft, keys)
    _states(draft, keys)
    draft.take_batch("mbs", keys, "training.micro_batch_size")
    draft.take_batch("steps", keys, "training.gradient_accumulation_steps")
    draft.seq_len = keys.whole("training.seq_length", least=1)
    return draft.conclude(sources, keys, HARMLESS)


def _model(draft: Draft, keys: Keys) -> None:
    """Set the model by its name, sizes that the file changes, and the layers of each stage: the first have one more."""
    draft.model_name = keys.word("model.name")
    for name in SIZES:
        value = keys.whole(f"model.{name}", least=1)
        if value is not None:
            draft.config[name] = value
    draft.config["tie_word_embeddings"] = False
    model = draft.named_model()
    if model is not None and model.tied:
        draft.assume(f"output and embedding are two: picotron's Llama ties none (picotron/model.py), {model.name} does")
    layers, pp = draft.said_layers(), draft.get("pp")
    if layers is not None and layers % pp and layers >= pp:
        draft.stages = tuple(layers // pp + (stage < layers % pp) for stage in range(pp))


def _states(draft: Draft, keys: Keys) -> None:
    """Set what picotron has one way of: whole states, no recomputation; its schedule and precision."""
    draft.zero(0)
    draft.switches["sp"] = 0
    draft.recompute("none", "picotron recomputes nothing")
    engine = (keys.word("distributed.pp_engine") or "1f1b").lower()
    if engine not in SCHEDULES:
        raise draft.refused(f"pp_engine {engine}: expected one of {', '.join(SCHEDULES)}")
    draft.switches["schedule"] = SCHEDULES[engine]
    named = (keys.word("model.dtype") or "bfloat16").lower()
    if named not in TYPES:
        raise draft.refused(f"model.dtype {named}: expected one of {', '.join(TYPES)}")
    draft.precision = TYPES[named]
    if draft.get("tp") > 1:
        draft.ignore(f"logits are gathered on all ranks of {draft.origin('tp')}: priced as cut over them")
