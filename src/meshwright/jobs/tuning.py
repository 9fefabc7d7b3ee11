"""Fine-tuning on Hugging Face, as Trainer, TRL, LLaMA-Factory and axolotl say it: adapters, weights, loss, optimiser.

Sources: huggingface/transformers:src/transformers/utils/quantization_config.py (BitsAndBytesConfig) and trainer.py
(apply_liger_kernel, create_optimizer); huggingface/trl:trl/trainer/model_config.py and sft_config.py;
hiyouga/LLaMA-Factory:src/llamafactory/model/model_utils/quantization.py, liger_kernel.py, adapter.py;
axolotl-ai-cloud/axolotl:src/axolotl/loaders/model.py and integrations; huggingface/peft:examples/sft/train.py.
"""

import re
from collections.abc import Mapping
from typing import Any

from .draft import Draft
from .engines.own_flags import ADAPTERS, FOUR_BITS, METHODS, PLAIN_RANKS, RANKS, of_arguments, own_adapters
from .keys import Keys
from .optimizers import momentum_of, read_optimizer, take_optimizer
from .savings import HALF, SINGLE, dtype_of
from .shell.marks import shown

FOUR = ("arguments.load_in_4bit", "arguments.use_4bit_quantization", *of_arguments(*FOUR_BITS))
EIGHT = ("arguments.load_in_8bit", "arguments.use_8bit_quantization")
NESTED = (  # whether the scales of four bits are in fewer bits too
    "arguments.bnb_4bit_use_double_quant",
    "arguments.use_bnb_nested_quant",
    "arguments.use_nested_quant",
    "arguments.double_quant",
    "axolotl.bnb_config_kwargs.bnb_4bit_use_double_quant",
)
# checkpoints in few bits, by what their names have
GPTQ, BITS_AND_BYTES = re.compile(r"(?<![a-z])(?:gptq|awq)(?![a-z])"), re.compile(r"bnb[-_]?(4|8)bit")
EIGHT_BITS = re.compile(r"(?:int|w)8|8[-_]?bit")
LIGER_OFF = re.compile(r"[\"']fused_linear_cross_entropy[\"']\s*:\s*false", re.IGNORECASE)
STAGES = frozenset({"pt", "sft"})  # of LLaMA-Factory, whose loss needs no logits (model/loader.py, require_logits)
WHOLE = (  # matrices that are trained whole beside adapters
    *("arguments.lora_modules_to_save", "arguments.modules_to_save", "arguments.additional_target"),
    "axolotl.lora_modules_to_save",
)
DORA = ("arguments.use_dora", "axolotl.peft_use_dora")  # arXiv 2402.09353: a magnitude beside each adapter
RANK = "--job lora_r=N"
KIND = "arguments.finetuning_type"
AS_ALL = "priced as if none were frozen, so time and memory are upper bounds"
KINDS = frozenset({"full", "freeze", "lora", "oft"})  # LLaMA-Factory's
# switches that leave layers or matrices of the decoder as they are, or name the ones that are trained
FROZEN = re.compile(
    r"arguments\.(?:tune_mm_mlp_adapter|pre_seq_len|num_virtual_tokens)|"  # a projector, or a prefix, alone is trained
    r"(?:arguments|axolotl)\.(?!\w*(?:vision|tower|vit|audio|multi_modal|mm_|projector|aligner))"
    r"(?:\w+_)?(?:un)?(?:freeze|frozen)(?:_\w+)?"
)
LOADED = ("arguments.dtype", "arguments.torch_dtype")  # the type that the model is loaded in
BY_ENGINE = "deepspeed"
# optimisers with a switch of their own: of Trainer before transformers 5, and of LLaMA-Factory
SWITCHED = {"arguments.adafactor": "adafactor", "arguments.use_muon": "muon"}


def read_tuning(draft: Draft, keys: Keys, engine: str, program: str = "") -> None:
    """Read what a job trains and holds; `engine` shards its states: "deepspeed", "fsdp", "megatron", "" for none.

    What no setting says the name of its `program` may.
    """
    words = set(re.split(r"[^a-z]+", shown(program).rpartition("/")[2].lower()))
    _adapters(draft, keys, shown(program) if words & {"lora", "qlora"} else "")
    _frozen(draft, keys)
    _type(draft, keys, engine)
    _few_bits(draft, keys)
    if draft.lora_rank and not draft.savings.weights[0] and "qlora" in words and not _says_bits(keys):
        draft.savings.weights = ("nf4-nested", shown(program))
        draft.assume(f"frozen weights as nf4-nested: by the name of {shown(program)}, and no setting says bits")
    _loss(draft, keys)
    _optimizer(draft, keys)


def _says_bits(keys: Keys) -> bool:
    """Whether some setting says in how many bits weights are loaded."""
    return any(key in keys for key in ("arguments.bits", "arguments.quantization_bit", *FOUR, *EIGHT))


def _says_none(keys: Keys) -> bool:
    """Whether some setting says that there are no adapters: a rank of 0, a switch that is off, training of all."""
    named = (key.removeprefix("arguments.") for key in keys.values if key.startswith("arguments."))
    switches = [f"arguments.{name}" for name in named if ADAPTERS.fullmatch(name)]
    ranks = any(key in keys.values for key in of_arguments(*RANKS))
    return ranks or bool(switches) or bool(keys.switch("arguments.full_finetune", default=False))


def _adapters(draft: Draft, keys: Keys, program: str) -> None:
    """Have adapters alone trained where the files say so; their rank has the default of TRL or LLaMA-Factory.

    A `program` that is named after them ("": none is), and is given no rank, is not priced as training of all weights.
    """
    rank = keys.whole(*of_arguments(*RANKS)) or None
    kind = (keys.word(KIND) or "").lower()
    kind = "" if kind in METHODS - KINDS else kind  # of a program of its own
    uses_peft = bool(keys.switch("arguments.use_peft", default=False))
    mine = None if kind or uses_peft else own_adapters(keys)
    if not (uses_peft or mine or kind in {"lora", "oft"} or (rank and not kind)):
        if program and not kind and not _says_none(keys):
            told = f"{program}, by its name, trains adapters, of a rank that is in none of the files"
            raise draft.refused(f"{told}: {RANK}")
        return
    if mine and rank is None and (rank := keys.whole(*of_arguments(*PLAIN_RANKS)) or None) is None:
        raise draft.refused(f"{keys.told(mine)}: trains adapters of a rank that is in none of the files: {RANK}")
    if rank is None and kind != "oft" and (uses_peft or "arguments.template" in keys):
        rank = 16 if uses_peft else 8
        draft.assume(f"adapters of rank {rank} (the default of {'TRL' if uses_peft else 'LLaMA-Factory'})")
    if whole := keys.find(*WHOLE):
        draft.ignore(f"{keys.told(whole)}: trained whole; their gradients and moments are not priced")
    if keys.switch(*DORA, default=False):
        said = keys.told(keys.find(*DORA) or DORA[0])
        draft.ignore(f"{said}: its magnitudes, one a row of a matrix, and its slower pass are not priced")
    if mine and "expert" in mine:
        draft.ignore(f"{keys.told(mine)}: adapters of routed experts are not priced")
    named = keys.find("arguments.lora_target_modules", "arguments.lora_target", "axolotl.lora_target_modules")
    targets = "" if named is None else str(keys.raw(named))
    draft.adapters(kind or (keys.told(mine) if mine else "use_peft"), None if kind == "oft" else rank, targets)


def _frozen(draft: Draft, keys: Keys) -> None:
    """Say where some layers or matrices alone are trained, which is priced as training them all."""
    kind = (keys.word(KIND) or "").lower()
    if kind and kind not in KINDS | METHODS:
        draft.ignore(f"{keys.told(KIND)}: not known; priced as if all weights were trained")
    off = {"", "0", "0.0", "false", "no", "none", "[]"}
    named = [
        key for key, value in keys.values.items() if FROZEN.fullmatch(key) and str(value).strip().lower() not in off
    ]
    said = [keys.told(key) for key in ([KIND] if kind == "freeze" else []) + named if keys.raw(key) is not None]
    if said:
        draft.ignore(f"{', '.join(said)}: some weights alone are trained; {AS_ALL}")


def _few_bits(draft: Draft, keys: Keys) -> None:
    """Set the type of frozen weights in few bits; it holds beside adapters alone."""
    bits = keys.whole("arguments.quantization_bit")
    own_bits = keys.whole("arguments.bits")  # of QLoRA's own program, and of others with its flags
    method = (keys.word("arguments.quantization_method") or "bnb").lower()
    four, eight = keys.find(*FOUR), keys.find(*EIGHT)
    if bits:
        told = keys.told("arguments.quantization_bit")
        name = {("bnb", 4): "nf4", ("bnb", 8): "int8", ("eetq", 8): "int8"}.get((method, bits))
        if name is None:
            what = "frozen weights in fewer bits; memory is priced in the precision of the job"
            draft.ignore(f"{told} by {method}: {what}")
            return
        nested = keys.switch("arguments.double_quantization", default=True)  # of LLaMA-Factory
        kind = keys.word("arguments.quantization_type") or "nf4"
    elif own_bits in {4, 8}:
        told, name = keys.told("arguments.bits"), "nf4" if own_bits == 4 else "int8"
        nested = keys.switch("arguments.double_quant", default=True)  # artidoro/qlora:qlora.py
        kind = keys.word("arguments.quant_type") or "nf4"
        if name == "nf4" and "arguments.double_quant" not in keys.values:
            draft.assume("scales of the four bits in eight bits (the default of --double_quant, as QLoRA has it)")
    elif four and keys.switch(four):
        told, name, nested = keys.told(four), "nf4", keys.switch(*NESTED, default=False)
        kind = keys.word("arguments.bnb_4bit_quant_type", "axolotl.bnb_config_kwargs.bnb_4bit_quant_type") or "nf4"
    elif eight and keys.switch(eight):
        told, name, nested, kind = keys.told(eight), "int8", False, "nf4"
    elif doubt := keys.doubtful(*FOUR, *EIGHT):
        draft.ignore(f"{doubt}: known only where the job runs; priced in the precision of the job")
        return
    else:
        _checkpoint(draft, keys)
        return
    if name == "nf4" and kind.lower() != "nf4":  # fp4 has the same bits and scales
        draft.assume(f"{told}: {kind} is as large as nf4, and priced as it")
    draft.savings.weights = (f"{name}-nested" if name == "nf4" and nested else name, told)


def _checkpoint(draft: Draft, keys: Keys) -> None:
    """Set the type of a checkpoint in few bits by its config.json, its name, as publishers give it, or `gptq`."""
    model = draft.own_model()
    if model is not None and (bits := _bits_of(model.quantization)):
        draft.savings.weights = (bits, f"quantization_config of {model.file}")
        return
    name = draft.model_name or ""
    plain = name.lower()
    own = BITS_AND_BYTES.search(plain)
    if keys.switch("axolotl.gptq", default=False) or GPTQ.search(plain):
        draft.savings.weights = ("int8" if EIGHT_BITS.search(plain) else "int4", name)
    elif own:
        draft.savings.weights = ("nf4" if own[1] == "4" else "int8", name)
    else:
        return
    draft.assume(f"frozen weights as {draft.savings.weights[0]}: by the name {name}")


def _bits_of(quantization: Mapping[str, Any]) -> str:
    """Return the type of frozen weights that a config.json says a checkpoint has, "" for none that is priced."""
    method, bits = str(quantization.get("quant_method")), str(quantization.get("bits"))
    if method == "bitsandbytes" and quantization.get("load_in_4bit"):
        return "nf4-nested" if quantization.get("bnb_4bit_use_double_quant") else "nf4"
    if method == "bitsandbytes" and quantization.get("load_in_8bit"):
        return "int8"
    return f"int{bits}" if method in {"gptq", "awq"} and bits in {"4", "8"} else ""


def _type(draft: Draft, keys: Keys, engine: str) -> None:
    """Set the type of the weights: half precision without a master copy where a model is loaded so and stays so.

    Trainer leaves the weights as they are loaded. Accelerate lifts them to single precision for FSDP wherever mixed
    precision is on (huggingface/accelerate:src/accelerate/utils/fsdp_utils.py, fsdp2_prepare_model; accelerator.py of
    FSDP 1). DeepSpeed keeps master copies, unless two switches say otherwise (deepspeed/runtime/precision_config.py).
    """
    said = [key for key in ("arguments.pure_bf16", "axolotl.bf16", *LOADED) if keys.raw(key)]
    told = "".join(map(keys.told, said[:1]))
    loaded = "axolotl.bf16" in keys or dtype_of(keys, *LOADED) == HALF
    own = [f"deepspeed.bf16.{name}" for name in ("bf16_master_weights_and_grads", "bf16_optimizer_states")]
    on = [name for name in own if keys.switch(name, default=False)]
    if len(on) == len(own):
        draft.savings.weights = (HALF, " and ".join(map(keys.told, own)))
    elif on:
        draft.ignore(f"{keys.told(on[0])}: priced with master copies and moments in single precision")
    elif keys.switch("deepspeed.fp16.fp16_master_weights_and_grads", default=False):
        draft.ignore("fp16_master_weights_and_grads: priced with master copies in single precision")
    elif engine == BY_ENGINE and (keys.word("axolotl.bf16") == "full" or keys.switch("arguments.pure_bf16")):
        draft.ignore(f"{told}: priced with the master copies that DeepSpeed keeps under bf16")
    elif engine == "fsdp" and (lifted := _mixed(keys)):
        draft.savings.weights = (SINGLE, lifted)
    elif loaded and (not engine or engine == "fsdp"):
        draft.savings.weights = (HALF, told)


def _mixed(keys: Keys) -> str:
    """Return the words that put mixed precision on under FSDP: Accelerate's, or arguments, which set it for Accelerate.

    "" where it is off.
    """
    named = (keys.word("accelerate.mixed_precision") or "").lower()
    whole = keys.word("axolotl.bf16") == "full"  # axolotl/utils/trainer.py, prepare_optim_env
    on = [f"arguments.{name}" for name in ("bf16", "fp16") if keys.switch(f"arguments.{name}", default=False)]
    if named not in {"", "no", "false"}:
        return keys.told("accelerate.mixed_precision")
    return keys.told(on[0]) if on and not whole else ""


def _loss(draft: Draft, keys: Keys) -> None:
    """Set the way to the loss: Liger and cut cross-entropy have output and loss of some rows at a time."""
    own = keys.find("arguments.use_liger_kernel", "arguments.use_liger")
    factory = "arguments.enable_liger_kernel"
    if own and keys.switch(own):
        kept = keys.switch("arguments.liger_kernel_config.fused_linear_cross_entropy", default=True)
        if kept and not LIGER_OFF.search(str(keys.raw("arguments.liger_kernel_config") or "")):
            draft.savings.loss = ("fused", keys.told(own))
            return
    elif keys.switch(factory, default=False):
        stage = (keys.word("arguments.stage") or "sft").lower()
        if stage in STAGES:
            draft.savings.loss = ("fused", keys.told(factory))
        else:
            draft.ignore(f"{keys.told(factory)}: of stage {stage} the logits are whole, and priced so")
        return
    kind = {"chunked_nll": "fused", "nll": "whole"}.get((keys.word("arguments.loss_type") or "").lower(), "")
    if kind:  # of TRL's SFTTrainer
        draft.savings.loss = (kind, keys.told("arguments.loss_type"))
    _axolotls_loss(draft, keys)


def _axolotls_loss(draft: Draft, keys: Keys) -> None:
    """Set the loss of one of axolotl's plugins: Liger's where its key is on, cut cross-entropy unless it is off."""
    plugins = _words(keys.raw("axolotl.plugins"))
    liger, cut = "axolotl.liger_fused_linear_cross_entropy", "axolotl.cut_cross_entropy"
    if "liger" in plugins and keys.switch(liger, default=False):
        draft.savings.loss = ("fused", keys.told(liger))
    elif "cutcrossentropy" in plugins and keys.switch(cut, default=True):
        draft.savings.loss = ("fused", keys.told(cut) if cut in keys.values else "CutCrossEntropyPlugin")


def _words(value: Any) -> str:
    """Return a list of names as one text in lower case."""
    return " ".join(map(str, value)).lower() if isinstance(value, list) else str(value or "").lower()


def _optimizer(draft: Draft, keys: Keys) -> None:
    """Set the optimiser: DeepSpeed's own where its file has one, else that of the arguments.

    The former takes the place of the latter (transformers/integrations/deepspeed.py, deepspeed_optim_sched).
    """
    own, name = "deepspeed.optimizer.type", keys.word("arguments.optim") or ""
    switched = [key for key in SWITCHED if keys.switch(key, default=False)]
    if own in keys:
        read_optimizer(draft, keys, own, momentum=momentum_of(keys, "deepspeed.optimizer.params.momentum"))
    elif switched:
        take_optimizer(draft, keys.name(switched[0]), SWITCHED[switched[0]])
    else:
        read_optimizer(draft, keys, "arguments.optim")
    if own not in keys and "8bit" in name and not re.search("torch|ao_", name) and draft.savings.optimizer[0]:
        draft.savings.remarks.append(f"optim = {name}: moments of the embedding stay in 32 bits; priced in 8")
