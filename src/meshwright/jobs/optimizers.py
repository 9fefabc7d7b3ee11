"""Optimisers by the names that trainers give them, as the planner names them; of others it is said how they are priced.

Names: `OptimizerNames` of huggingface/transformers:src/transformers/training_args.py with their handlers in
trainer_optimizer.py; the schedules of classes in bitsandbytes, torchao and torch; deepspeedai/DeepSpeed:
deepspeed/runtime/config.py (DEEPSPEED_OPTIMIZERS); NVIDIA/Megatron-LM:megatron/core/optimizer/__init__.py;
mosaicml/llm-foundry:llmfoundry/optim; AI-Hypercomputer/maxtext:src/MaxText/optimizers.py;
axolotl-ai-cloud/axolotl:src/axolotl/core/builders/base.py.
"""

import re

from .draft import Draft
from .keys import Keys
from .savings import SINGLE_MOMENTS, dtype_of

# a name without case, folders and separators: words of who made it, the algorithm, words of how it is computed
ADAM = r"(?:ao|apex|cpu|decoupled|deepspeed|distributed|fused|megatron|paged|torch)*adamw?"
NAMES = (
    (r"adamwtorchfused", "adamw-fused"),  # torch's, which adamw_torch has work on lists of tensors
    (rf"{ADAM}(?:32bit|anyprecision|apex|bnb|fused|hf|npu|pax|torch|xla)*|mcoredistributedoptim|hybridadam", "adamw"),
    (rf"{ADAM}(?:bnb|torch)?8bit", "adam8bit"),
    (r"(?:cpu|decoupled|deepspeed|fused|paged)*lionw?(?:32bit|pytorch)?", "lion"),
    (r"(?:dist|distributed)?muon", "muon"),
    (r"(?:fused)?sgd", "sgd"),
    (r"adafactor", "adafactor"),
)
# names whose moments are in single precision whatever the weights are in: bitsandbytes of 32 bits
# (bitsandbytes-foundation/bitsandbytes:bitsandbytes/optim/optimizer.py, get_state_buffer), Apex and Transformer Engine
SINGLE = re.compile(r".*32bit|(?:.*apex)?fusedadamw?|adamwapexfused")
PAGED = frozenset({"adam8bit", "lion"})  # whose paged moments are priced as what moves to the host
BY_BITS = {"bf16": "adamw-bf16", "fp16": "adamw-bf16", "fp8": "adam8bit", "fp32": ""}

OF_TWO_TYPES = "moments of two types are priced in fp32"


def optimizer_named(name: str, *, momentum: float = 0.0) -> str | None:
    """Return the planner's name of an optimiser, "adamw" too, None for one that it has no moments of."""
    plain = _plain(name)
    found = next((ours for pattern, ours in NAMES if re.fullmatch(pattern, plain)), None)
    return "sgd-momentum" if found == "sgd" and momentum else found


def planner_name(name: str) -> str | None:
    """Return the planner's whole name of what a trainer calls an optimiser: "paged_adamw_32bit" is "paged-adamw-fp32".

    None for one that it has no moments of.
    """
    found, plain = optimizer_named(name), _plain(name)
    if found is None:
        return None
    single = "-fp32" if found == "adamw" and SINGLE.fullmatch(plain) else ""
    paged = "paged-" if plain.startswith("paged") and (single or found in PAGED) else ""
    return f"{paged}{found}{single}"


def read_optimizer(draft: Draft, keys: Keys, *names: str, momentum: float = 0.0) -> None:
    """Take the optimiser under the first of some keys that is set; one that only the running job knows is assumed."""
    key = keys.find(*names)
    if key is None:
        return
    name = keys.word(key)
    if name is None:
        draft.assume(f"AdamW: {keys.doubtful(key)} is known only where the job runs")
        return
    take_optimizer(draft, keys.name(key), name, momentum=momentum)


def take_optimizer(draft: Draft, key: str, name: str, *, momentum: float = 0.0) -> None:
    """Take an optimiser by its trainer's name; one that is not known is said to be priced as AdamW."""
    told, plain = f"{key} = {name}", _plain(name)
    found = optimizer_named(name, momentum=momentum)
    if found is None:
        draft.ignore(f"{told}: priced as AdamW with states in fp32")
        return
    paged = plain.startswith("paged")
    name = f"paged-{found}" if paged and found in PAGED else found
    draft.savings.optimizer = ("" if found == "adamw" else name, told)
    draft.savings.single = told if SINGLE.fullmatch(plain) else ""
    if paged and found not in PAGED:
        draft.savings.remarks.append(f"{told}: moments that leave the GPU where it is full are priced on it")


def take_early(draft: Draft, told: str) -> None:
    """Note that backward uses each gradient up as soon as it is there, whatever the optimiser; `told` are the words."""
    said = draft.savings
    name = said.optimizer[0] or (SINGLE_MOMENTS if said.single else "adamw")
    said.optimizer, said.single = (f"{name}-in-backward", f"{said.optimizer[1]}, {told}".removeprefix(", ")), ""


def take_moments(draft: Draft, keys: Keys, first: str, second: str) -> None:
    """Take the types of AdamW's two moments, where they are said; two types that differ are priced in fp32, and said.

    Source: NVIDIA/Megatron-LM:megatron/core/optimizer/optimizer_config.py (use_precision_aware_optimizer).
    """
    types = [dtype_of(keys, name) or "fp32" for name in (first, second)]
    told = " and ".join(keys.told(name) for name in (first, second) if keys.raw(name) is not None)
    if not told:
        return
    if draft.savings.optimizer[0]:
        draft.ignore(f"{told}: priced in fp32 beside {draft.savings.optimizer[1]}")
    elif types[0] != types[1]:
        draft.ignore(f"{told}: {OF_TWO_TYPES}")
    else:
        draft.savings.optimizer = (BY_BITS[types[0]], told)


def momentum_of(keys: Keys, *names: str, default: float = 0.0) -> float:
    """Return the momentum under the first of some keys that is set, else the engine's default."""
    text = keys.word(*names)
    try:
        return default if text is None else float(text)
    except ValueError:
        return default


def _plain(name: str) -> str:
    """Return a name without its module, case and separators (`bitsandbytes.optim.AdamW8bit`, `adamw_8bit`)."""
    return re.sub(r"[^a-z\d]", "", name.rpartition(".")[2].lower())
