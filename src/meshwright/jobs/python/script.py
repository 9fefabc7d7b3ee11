"""Python programs that start a training themselves: followed from their first line to the call that trains.

Nothing is executed. A NeMo or Megatron-Bridge program hands its configuration to a call (`run.run(recipe)`,
`llm.train(model, data, trainer)`, `pretrain(config, step)`), as does one of Lightning's (`lightning_fit`); a program on
Hugging Face makes TrainingArguments, and one on DeepSpeed hands its settings to `deepspeed.initialize`.
"""

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import InputError
from ..engines.trainers import LENGTHS, trl_settings
from ..shell.marks import unknown
from .calls import Walk
from .imports import package_of
from .lightning_fit import of_lightning
from .static import PythonModule
from .values import Opaque, PythonCall, flattened

TRAINS = frozenset({"train", "pretrain", "finetune"})
STARTS = frozenset({"run", "add"})  # of NeMo-Run, with a recipe
RAYS = "TorchTrainer"  # of Ray Train: it calls a function on each of its workers
STARTERS = frozenset({"Fire", "run", "notebook_launcher", "spawn", RAYS})  # that call a function of the file
NEMO_ARGUMENTS = ("model", "data", "trainer", "log", "resume", "optim", "peft")
OF_TRLS_TRAINERS = frozenset({"SFTConfig", "DPOConfig", "KTOConfig", "ORPOConfig", "CPOConfig", "RewardConfig"})
ARGUMENTS = frozenset({"TrainingArguments", "Seq2SeqTrainingArguments"}) | OF_TRLS_TRAINERS
OWN_TRAINER = re.compile(
    r"(?:SFT|DPO|KTO|ORPO|CPO|BCO|PRM|PPO|GRPO|RLOO|GKD|Reward)Trainer$"
)  # one's own over them too
# packages whose classes of these names are Hugging Face's own, or made of them
TRANSFORMERS = frozenset({"transformers", "trl", "unsloth", "alignment", "llamafactory", "swift", "axolotl"})
MESH = "ParallelismConfig"  # of Accelerate, handed to TrainingArguments
OF_TRL = frozenset({"max_length", "max_seq_length"})  # lengths of a sequence, in its releases
FROM_HUB = ("from_pretrained", "from_config")
UNSLOTH = re.compile(r"(?:^|\.)Fast(?:Language|Vision)?Model\.")


def program_calls(text: str, where: str, path: Path, walk: Walk) -> tuple[PythonModule, list[PythonCall]]:
    """Return a program's file and the calls that it makes, in their order; InputError for what is no Python."""
    module = PythonModule(text, where, path, walk)
    module.names["__name__"] = "__main__"
    walk.calls = []
    try:
        module.block(module.tree.body, module.names)
        for call in list(walk.calls):
            _started(call, module)
    except RecursionError:
        raise InputError(f"{where}: nested too deeply") from None
    calls, walk.calls = walk.calls, None
    return module, calls


def _started(call: PythonCall, module: PythonModule) -> None:
    """Follow a function of the file that a starter is given (`fire.Fire(main)`, `notebook_launcher(train, ...)`)."""
    first = call.args[0] if call.args else call.fields.get("function", call.fields.get("train_loop_per_worker"))
    if call.last in STARTERS and isinstance(first, Opaque) and first.text in module.functions:
        given = call.fields.get("args")
        if call.last == RAYS:
            given = [call.fields["train_loop_config"]] if "train_loop_config" in call.fields else []
        module.call(module.functions[first.text], given if isinstance(given, list) else [], {})


def program_config(engine: str, text: str, where: str, path: Path, walk: Walk) -> tuple[str, Any] | None:
    """Return the configuration that a program of NeMo, Megatron-Bridge or Lightning trains with and a name, else None.

    Raises InputError where it trains with several.
    """
    module, calls = program_calls(text, where, path, walk)
    readers: dict[str, Callable[[PythonCall], PythonCall | None]] = {
        "nemo": _of_nemo,
        "bridge": _of_bridge,
        "lightning": lambda call: of_lightning(call, module),
    }
    of_engine = readers.get(engine)
    found = [config for call in calls if of_engine is not None and (config := of_engine(call)) is not None]
    if not found:
        return None
    if any(config != found[0] for config in found[1:]):
        raise InputError(f"{where}: starts {len(found)} different trainings; expected one")
    named = module.configs()
    return (named[0] if len(named) == 1 else path.stem), found[0]


def _of_nemo(call: PythonCall) -> PythonCall | None:
    """Return what NeMo trains with: the arguments of `llm.train` and its like, or the recipe that NeMo-Run starts."""
    if call.last in TRAINS:
        fields = dict(zip(NEMO_ARGUMENTS, call.args, strict=False)) | call.fields
        return _with_names(fields) if isinstance(fields.get("trainer"), PythonCall) else None
    if call.last not in STARTS:
        return None
    given = [one for one in [*call.args, *call.fields.values()] if isinstance(one, PythonCall)]
    recipe = next((one for one in given if "trainer" in one.fields or one.last.endswith("_recipe")), None)
    executor = call.fields.get("executor")
    if recipe is None or not isinstance(executor, PythonCall):
        return recipe
    return PythonCall(recipe.name, recipe.args, {**recipe.fields, "executor": executor})


def _with_names(fields: dict[str, Any]) -> PythonCall:
    """Return NeMo's parts with the names of what they take by its place: a configuration, one plugin of a list."""
    for part in ("model", "optim"):
        made = fields.get(part)
        if isinstance(made, PythonCall) and made.args and isinstance(made.args[0], PythonCall):
            made.fields.setdefault("config", made.args[0])
    trainer = fields["trainer"]
    for key in ("strategy", "plugins"):
        value = trainer.fields.get(key)
        if isinstance(value, list) and len(value) == 1:
            trainer.fields[key] = value[0]
    return PythonCall("", [], fields)


def _of_bridge(call: PythonCall) -> PythonCall | None:
    """Return the configuration of Megatron-Bridge's `pretrain` and `finetune`."""
    if call.last not in TRAINS - {"train"}:
        return None
    given = [call.fields.get("config"), call.fields.get("cfg"), *call.args[:1]]
    config = next((one for one in given if isinstance(one, PythonCall)), None)
    while config is not None and not config.fields.keys() - {"cli_overrides", "overrides"} and config.args:
        inner = config.args[0]  # of what lays words of the command line over it
        if not isinstance(inner, PythonCall):
            break
        config = inner
    return config


def trainer_settings(text: str, where: str, path: Path, walk: Walk) -> dict[str, Any] | None:
    """Return the TrainingArguments of a program on Hugging Face, or DeepSpeed's settings of one; None without either.

    Sequence length and model come from where the program loads them. Raises InputError where it makes several.
    """
    module, calls = program_calls(text, where, path, walk)
    made = [call for call in calls if call.last in ARGUMENTS]
    if not made:
        return _of_deepspeed(calls)
    if any(call != made[0] for call in made[1:]):
        raise InputError(f"{where}: makes {len(made)} different {made[0].last}; expected one")
    if (package := package_of(module.tree, made[0].name)) and package not in TRANSFORMERS:
        walk.assume(f"{made[0].last} of {package} has the settings of Hugging Face's ({where})")
    if unknown_ones := made[0].fields.get("**"):
        told = f"{made[0].last} takes **{unknown_ones.text}, which only the running program knows"
        raise InputError(f"{where}: {told}: give these settings as YAML or JSON")
    found = _plain({key: value for key, value in made[0].fields.items() if key != "_target_"})
    model = _model(calls)
    found["model_name_or_path"] = found.get("model_name_or_path") or model
    for told, length in (
        ("the max_seq_length of the trainer", _trainers_length(calls)),
        ("the max_seq_length of Unsloth's loader", _unsloths_length(calls)),
        ("the max_length of the tokenizer", _length(module)),
        ("the model_max_length of the tokenizer", _tokenizer_length(calls)),
        ("a length in Hydra's tree", _length_of_tree(walk)),
    ):
        if not found.keys() & OF_TRL and length is not None:
            found["max_length"] = length
            walk.assume(f"sequences of {length}: {told} in {where}")
    if any(call.last == "gradient_checkpointing_enable" for call in calls):
        found["gradient_checkpointing"] = True
    _by_the_library(found, calls, walk)
    for call in calls:
        if call.last == "LoraConfig" or (call.last == "get_peft_model" and "r" in call.fields):  # PEFT's, Unsloth's
            found |= {"use_peft": True} | _plain(
                {f"lora_{key}": call.fields.get(key) for key in ("r", "target_modules")}
            )
        found |= _held(call)
        if call.last == "notebook_launcher" and isinstance(ranks := call.fields.get("num_processes"), int):
            found |= {"num_machines": 1, "num_processes": ranks}
        elif (ranks := _rays_workers(call)) is not None:
            found |= {"num_machines": None, "num_processes": ranks}  # Ray spreads them as it likes
    return found


def _length_of_tree(walk: Walk) -> int | None:
    """Return the one length of a sequence that Hydra's tree has, None where it has none or several."""
    values = flattened(walk.composed) if walk.composed is not None else {}
    found = {value for key, value in values.items() if key.rpartition(".")[2] in LENGTHS and type(value) is int}
    return found.pop() if len(found) == 1 else None


def _rays_workers(call: PythonCall) -> int | None:
    """Return the processes that Ray starts for a training, None where they are not known or have no GPU each.

    Source: ray-project/ray:python/ray/air/config.py (ScalingConfig: a worker that uses GPUs has one by default).
    """
    scaling = call.fields.get("scaling_config") if call.last == RAYS else None
    fields = scaling.fields if isinstance(scaling, PythonCall) else {}
    resources = fields.get("resources_per_worker")
    gpus = resources.get("GPU", 1) if isinstance(resources, dict) else 1 if resources is None else None
    workers = fields.get("num_workers")
    known = type(workers) is int and gpus == 1 and fields.get("use_gpu") is True
    return workers if known else None


def _by_the_library(found: dict[str, Any], calls: list[PythonCall], walk: Walk) -> None:
    """Add to the settings of a program what Unsloth sets, and what is TRL's default and not TrainingArguments'.

    Unsloth repeats activations, and keeps those between layers on the host, unless its `use_gradient_checkpointing`
    says otherwise; it computes in half precision, and never has all logits (unslothai/unsloth:unsloth/models).
    """
    again = [call.fields.get("use_gradient_checkpointing", "unsloth") for call in calls if _is_unsloths(call)]
    if again:
        found["of_unsloth"] = True
        found |= _plain({"gradient_checkpointing": True if again[-1] == "unsloth" else again[-1]})
        if again[-1] == "unsloth":
            found["use_gradient_checkpointing"] = "unsloth"  # named: activations leave the GPU
            walk.assume("gradient checkpointing, which Unsloth switches on unless use_gradient_checkpointing is False")
        if not found.keys() & {"bf16", "fp16"}:
            found["bf16"] = True
            walk.assume("precision bf16, which Unsloth takes where the GPU has it")
        if "loss_type" not in found:
            found["loss_type"] = "chunked_nll"
            walk.assume("logits of some rows at a time, as Unsloth computes its loss")
    if any(map(_has_unsloths_kernels, calls)):
        found["unsloth_kernels"] = True
    trainer = next((told[0] for call in calls if (told := OWN_TRAINER.search(call.last))), None)
    if trainer is not None:
        found["trainer"] = trainer
    if (config := next((call.last for call in calls if call.last in OF_TRLS_TRAINERS), None)) is not None:
        own, assumed = trl_settings(found, config)
        found |= own
        for text in assumed:
            walk.assume(text)


def _is_unsloths(call: PythonCall) -> bool:
    """Whether a call loads a model with Unsloth, or puts adapters on one."""
    return call.last in {"from_pretrained", "get_peft_model"} and bool(UNSLOTH.search(call.name))


def _has_unsloths_kernels(call: PythonCall) -> bool:
    """Whether a call puts adapters on a model that Unsloth's own kernels multiply by: without dropout and biases.

    Others are PEFT's (unslothai/unsloth:unsloth/models/llama.py, patch_peft_model), as are those of FastModel.
    """
    if not _is_unsloths(call) or call.last != "get_peft_model" or "FastLanguageModel." not in call.name:
        return False
    return bool(call.fields.get("lora_dropout", 0) == 0 and call.fields.get("bias", "none") == "none")


def _trainers_length(calls: list[PythonCall]) -> int | None:
    """Return the tokens of a sequence that an SFTTrainer is given, as TRL had it before its SFTConfig; None without."""
    found = [call.fields.get("max_seq_length") for call in calls if call.last == "SFTTrainer"]
    return found[-1] if found and isinstance(found[-1], int) else None


def _unsloths_length(calls: list[PythonCall]) -> int | None:
    """Return the tokens of a sequence that Unsloth's loader is given, or its default; None without it."""
    found = [call.fields.get("max_seq_length", 2048) for call in calls if call.last in FROM_HUB and _is_unsloths(call)]
    return found[-1] if found and isinstance(found[-1], int) else None


def _held(call: PythonCall) -> dict[str, Any]:
    """Return what a call says of the type of weights: in few bits, by bitsandbytes, or as a model is loaded.

    BitsAndBytesConfig has fp4 and no nested scales by default (transformers/utils/quantization_config.py), Unsloth's
    loader nf4, nested, and four bits unless it is told otherwise (unslothai/unsloth:unsloth/models/llama.py).
    """
    fields, unsloths = call.fields, call.last == "from_pretrained" and bool(UNSLOTH.search(call.name))
    types = [fields[key] for key in ("dtype", "torch_dtype") if fields.get(key) is not None]
    found: dict[str, Any] = {}
    if call.last in FROM_HUB and types and not unsloths:
        found |= _plain({"torch_dtype": types[0]})
    if fields.get("load_in_8bit"):
        found |= _plain({"load_in_8bit": fields["load_in_8bit"]})
    elif fields.get("load_in_4bit", unsloths):
        found |= _plain({"load_in_4bit": fields.get("load_in_4bit", True)})
        default = ("nf4", True) if unsloths else ("fp4", False)
        for key, value in zip(("bnb_4bit_quant_type", "bnb_4bit_use_double_quant"), default, strict=True):
            found |= _plain({key: fields.get(key, value)})
    return found


def _of_deepspeed(calls: list[PythonCall]) -> dict[str, Any] | None:
    """Return the settings that a program hands to DeepSpeed, None where it hands it none that are in the file."""
    for call in calls:
        if call.name == "deepspeed.initialize":
            config = call.fields.get("config", call.fields.get("config_params"))
            if isinstance(config, dict | str):
                settings = _plain(config) if isinstance(config, dict) else config
                return {"deepspeed": settings, "model_name_or_path": _model(calls)}
    return None


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    """Return keywords as settings; what only running the program tells is marked as not known."""
    found: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, dict):
            found[key] = _plain(inner)
        elif isinstance(inner, PythonCall) and inner.last == MESH and "**" not in inner.fields and not inner.args:
            degrees = {name: value for name, value in inner.fields.items() if name != "_target_"}
            found[key] = {f"{key}_{name}": value for name, value in _plain(degrees).items()}  # as in its YAML
        elif isinstance(inner, PythonCall):
            found[key] = unknown(f"{inner.name}()")
        elif isinstance(inner, list):
            found[key] = [_word(one) if isinstance(one, Opaque) else one for one in inner]
        else:
            found[key] = _word(inner) if isinstance(inner, Opaque) else inner
    return found


def _word(value: Opaque) -> str:
    """Return the word that a member of an enumeration stands for (FSDPOption.FULL_SHARD), else that it is unknown."""
    member = re.fullmatch(r"(?:\w+\.)*[A-Z]\w*\.([A-Z][A-Z\d_]*)", value.text)
    return member[1].lower() if member else unknown(value.text)


def _model(calls: list[PythonCall]) -> str | None:
    """Return the name of the model that a program loads; None where it makes one of other sizes, or two."""
    names = set()
    for call in calls:
        owner = call.name.rpartition(".")[0]
        first = call.fields.get("pretrained_model_name_or_path", call.fields.get("model_name"))
        first = call.args[0] if call.args and first is None else first
        if call.last in FROM_HUB and ("Model" in owner or owner.endswith("LM")):
            while isinstance(first, PythonCall) and first.last in FROM_HUB and first.args and not first.fields:
                first = first.args[0]
            names.add(first if isinstance(first, str) else None)
        elif call.last.endswith("Trainer") and isinstance(given := call.fields.get("model", first), str):
            names.add(given)
    return names.pop() if len(names) == 1 else None


def _tokenizer_length(calls: list[PythonCall]) -> int | None:
    """Return the most tokens that the tokenizers of a program take, None where they do not say the same."""
    lengths = {call.fields.get("model_max_length") for call in calls if call.last in FROM_HUB} - {None}
    length = lengths.pop() if len(lengths) == 1 else None
    return length if isinstance(length, int) else None


def _length(module: PythonModule) -> int | None:
    """Return the length to which a program cuts or fills its sequences, None where it is not the same everywhere."""
    found = set()
    for node in ast.walk(module.tree):
        keywords = {one.arg: one.value for one in node.keywords} if isinstance(node, ast.Call) else {}
        if "max_length" in keywords and keywords.keys() & {"truncation", "padding"}:
            value = module.value(keywords["max_length"], module.names)
            found.add(value if isinstance(value, int) else None)
    return found.pop() if len(found) == 1 else None
