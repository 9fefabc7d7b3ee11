"""torchtitan: TOML of before 2026, the Python registry of after it, and `--section.key` overrides of either."""

import math
import re
from pathlib import PurePath
from typing import Any

from ...workload.engines import ENGINES
from ..draft import Draft
from ..emit.torch_engines import TITAN
from ..job import Job
from ..keys import Keys
from ..launch import flags_of
from ..models import by_flavor, catalogue_name
from ..optimizers import take_early, take_optimizer
from ..options import JobOptions
from ..python.values import PythonCall
from ..ranks import world_of
from ..savings import HALF, dtype_of
from ..shell.calls import RUN_TRAIN
from ..shell.marks import shown
from ..sources import Sources, plain_value
from .torchtitan_stages import pipeline

HARMLESS = (
    r"optimizer\.(?!early_step_in_backward).*",
    r"(?:job|profiling|metrics|lr_scheduler|checkpoint|comm|validation|validator|experimental\.custom_.*)\..*",
    r"(?:dataset|dataloader|loss|fault_tolerance|memory_estimation|debug|profiler|hf_assets_path|tokenizer)(?:\..*)?",
    r"(?:model)\.(?:tokenizer_path|hf_assets_path|print_after_conversion|norm_type|name|flavor)",
    r"training\.(?:steps|max_norm|warmup_steps|dataset|dataset_path|deterministic|seed|gc_.*|data_parallel_type)",
    r"(?:.*\.)?(?:\(\)|\[\])|parallelism\.save_parallelism_file|activation_checkpoint\.(?:early_stop|per_op_sac.*)",
    r"(?:comm|checkpointer|lr_scheduler|trainer|dump_folder|module|config|override)(?:\..*)?|comm_mode|env",
)
# flavors that are read by their sizes and not written
FLAVORS = TITAN | {
    "llama4-scout": ("llama4", "17bx16e"),
    "llama4-maverick": ("llama4", "17bx128e"),
    "deepseek-v2": ("deepseek_v3", "236B"),
}
SECTION = re.compile(r"((?:quantize\.\w+\.)?(?:float8|mx))\.")  # settings of a converter
EXPERTS = "parallelism.expert_parallel_degree"
# degrees that a TOML may set: their product is all of the ranks, or each is said
DEGREES = tuple(
    f"parallelism.{name}_degree"
    for name in (
        *("tensor_parallel", "context_parallel", "pipeline_parallel"),
        *("data_parallel_replicate", "data_parallel_shard"),
    )
)
# what a command says beside them where its TOML can change no figure of the split
SAID_OF_FILE = frozenset(
    {"model.name", "model.flavor", "training.seq_len", "training.local_batch_size", "training.global_batch_size"}
    | {"activation_checkpoint.mode"}
)
# torchtitan/distributed/fsdp.py, get_fsdp_reshard_after_forward_policy
KEPT = (
    "fsdp_reshard_after_forward default: in a pipeline torchtitan keeps gathered weights; priced as gathered again, "
    "--job parallelism.fsdp_reshard_after_forward=never prices them kept"
)


def read(sources: Sources, question: JobOptions) -> Job:
    """Return the job of a torchtitan configuration."""
    draft = Draft("torchtitan", sources.names, question)
    world_of(sources.launch, draft)
    absent = _absent(sources)
    keys = _keys(sources)
    if absent:
        _without_file(draft, keys, absent, sources)
    if sources.launch is not None:
        count = sources.launch.variables.get("NGPU")
        if draft.world is None and count is not None and count.isdecimal():
            draft.nodes_times((1, "run_train.sh on one node"), (int(count), f"NGPU {count}"))
    _model(draft, keys, sources)
    draft.degree("tp", keys, "parallelism.tensor_parallel_degree", "training.tensor_parallel_degree", default=1)
    draft.degree("cp", keys, "parallelism.context_parallel_degree", "experimental.context_parallel_degree", default=1)
    draft.degree("pp", keys, "parallelism.pipeline_parallel_degree", "experimental.pipeline_parallel_degree", default=1)
    draft.degree("ep", keys, "parallelism.expert_parallel_degree", default=1)
    experts_over = keys.whole("parallelism.expert_tensor_parallel_degree", least=1) or 1
    if draft.get("ep") > 1:
        draft.put("etp", experts_over, f"parallelism.expert_tensor_parallel_degree {experts_over}")
    _data_parallel(draft, keys)
    _batch(draft, keys, since_2026="training.max_context_length" in keys.values or _new_batch(keys))
    pipeline(draft, keys)
    _recompute(draft, keys)
    sequence = keys.switch("parallelism.enable_sequence_parallel", default=True)
    draft.switches["sp"] = int(bool(sequence)) if draft.get("tp") > 1 else 0
    words = _converters(draft, keys)
    draft.precision = _precision(keys, words)
    for key in ("quantize.linear.float8.recipe_name", "float8.recipe_name"):
        draft.recipe(key, keys.word(key))
    for key in [key for key in keys.values if key.startswith(("model_converters", "model_spec"))]:
        draft.recipe("recipe_name", _given(keys.values[key], "recipe_name"))
    if dtype_of(keys, "training.dtype") == HALF:
        draft.savings.weights = (HALF, keys.told("training.dtype"))
        if dtype_of(keys, "training.mixed_precision_reduce") != HALF:
            told = "gradients travel in single precision beside weights in half; priced in half"
            draft.ignore(f"training.mixed_precision_reduce float32: {told}")
    _optimizer(draft, keys)
    _loss(draft, keys, by_toml=sources.python is None)
    _kernels(draft, keys)
    job = draft.conclude(sources, keys, HARMLESS)
    if absent and job.architecture is not None and job.architecture.experts > 1 and EXPERTS not in keys:
        raise sources.absent(absent)  # which may split the experts
    return job


def _config_file(sources: Sources) -> str:
    """Return the path of the TOML that a command names, "" where it names none."""
    if sources.launch is None:
        return ""
    arguments = flags_of(sources.launch.arguments, dashes=False)
    path = str(arguments.get("job.config_file", arguments.get("job.config-file", "")))
    return path or sources.launch.variables.get("CONFIG_FILE", "")


def _absent(sources: Sources) -> str:
    """Return the path of a TOML that the command names and that is not here, "" where it is, or another stands in."""
    path = _config_file(sources)
    here = sources.python is not None or sources.documents or (path and sources.document(path) is not None)
    return "" if here else path


def _without_file(draft: Draft, keys: Keys, path: str, sources: Sources) -> None:
    """Take torchtitan's defaults for a TOML that is not here where the command says model, batch and split itself.

    Raises InputError where it leaves one of them open.
    """
    degrees = [keys.whole(name, least=-1) for name in DEGREES]
    world = draft.question.gpus or (None if draft.world is None else draft.world[0])
    whole = world is not None and math.prod(one for one in degrees if one and one > 0) == world
    if not (whole or None not in degrees) or not keys.values.keys() >= SAID_OF_FILE:
        raise sources.absent(path)
    told = "compile, converters to Float8, offload and when weights are gathered again"
    draft.assume(f"{PurePath(shown(path)).name}, which is not here, leaves {told} as torchtitan has them by default")


def _keys(sources: Sources) -> Keys:
    arguments = flags_of(sources.launch.arguments, dashes=False) if sources.launch is not None else {}
    path = _config_file(sources)
    for name in ("job.config_file", "job.config-file"):
        arguments.pop(name, None)
    module, config = arguments.pop("module", None), arguments.pop("config", None)
    if config is not None and sources.python is None:
        raise sources.need(f"{config} of the registry of {module} (as config_registry.py:{config})")
    of_script = sources.launch is not None and sources.launch.program.endswith(RUN_TRAIN)
    if of_script and not (path or sources.documents or sources.python is not None or "model.flavor" in arguments):
        raise sources.need("CONFIG_FILE, or MODULE and CONFIG of a registry")
    values, origin = sources.settings()
    where = sources.launch.where if sources.launch is not None else sources.names[0]
    for key, value in arguments.items():
        values[key] = plain_value(value) if isinstance(value, str) else value
        origin[key] = where
    return sources.overridden(values, origin, sources.names[0])


def _model(draft: Draft, keys: Keys, sources: Sources) -> None:
    """Set the model: name and flavor of a TOML, or the flavor that a registry function asks for."""
    name, flavor = keys.word("model.name"), keys.word("model.flavor")
    arguments = keys.values.get("model_spec.[]")
    if isinstance(arguments, list) and arguments and isinstance(arguments[0], str):
        flavor = arguments[0]
    flavor = flavor or keys.word("model_spec.flavor")
    if keys.values.get("model_spec.()"):
        keys.raw("model_spec.()")
    tries = [f"{name}-{flavor}", f"{name} {flavor}"] if name and flavor else []
    families = _families(sources)
    own = [model for model, place in FLAVORS.items() if place in {(part, flavor) for part in [name, *families[:1]]}]
    if own:
        draft.model_name = own[0]
        if name is None and sources.python is not None and _family_of_function(sources) == FLAVORS[own[0]][0]:
            draft.assume(f"the model {own[0]}: by the name of the function {sources.python[1]}")
        return
    if sources.python is not None:
        tries += [f"{part}-{flavor}" for part in families]
        tries += [str(keys.values.get("hf_assets_path", "")), sources.python[1]]
    for text in tries:
        found = catalogue_name(text)
        if found is not None and (flavor is None or _size(flavor) in found.replace("_", "-")):
            draft.model_name = found
            return
    alike = by_flavor(flavor, families) if flavor else []
    if len(alike) == 1 and not name:
        draft.model_name = alike[0]
        draft.assume(f"the model {alike[0]}: the only one of size {flavor} in the catalogue")
    else:
        draft.model_name = f"{name or (families or ['flavor'])[0]} {flavor}" if flavor else name


def _families(sources: Sources) -> list[str]:
    """Return the families of models that a registry is of: its folder where it imports from it, and what it imports.

    Where the folder is called otherwise than a family of torchtitan's, the name of the function says the family.
    """
    if sources.python is None:
        return []
    imported = re.findall(r"torchtitan\.models\.(\w+)", sources.python_text)
    beside = [sources.python_folder] if re.search(r"^from \.\w* import", sources.python_text, re.MULTILINE) else []
    told = [by_function] if (by_function := _family_of_function(sources)) else []
    return [part for part in dict.fromkeys([*told, *beside, *imported]) if part not in {"common", "utils"}]


def _family_of_function(sources: Sources) -> str | None:
    """Return the family that a registry's function is named for ("llama3_8b"), None where its folder says the family.

    A copy of a registry may lie in a folder of any name; the size must follow ("qwen3_vl_8b" is another family).
    """
    if sources.python is None or not re.search(r"^from \.\w* import", sources.python_text, re.MULTILINE):
        return None
    known, function = {family for family, _ in FLAVORS.values()}, sources.python[1]
    if sources.python_folder in known:
        return None
    return next((family for family in sorted(known) if re.match(rf"{family}_\d", function)), None)


def _size(flavor: str) -> str:
    match = re.search(r"\d+(?:\.\d+)?b", flavor.lower())
    size = match.group(0) if match else flavor.lower()
    return "v3" if size == "671b" else size


def _data_parallel(draft: Draft, keys: Keys) -> None:
    """Set dp, its copies and ZeRO from the replicate and shard degrees; -1 is what is left of the ranks."""
    places = ("parallelism.", "training.")
    copies = draft.degree("replicas", keys, *(f"{place}data_parallel_replicate_degree" for place in places), default=1)
    shard_key = keys.find(*(f"{place}data_parallel_shard_degree" for place in places), "training.data_parallel_degree")
    shard = -1 if shard_key is None else keys.whole(shard_key, least=-1)
    draft.zero(3)
    if shard is not None and shard > 0 and shard_key is not None:
        told = keys.told(shard_key)
        origin = f"{draft.origin('replicas')} x {told}" if copies and copies > 1 else told
        draft.put("dp", (copies or 1) * shard, origin)
        if shard == 1 and draft.get("cp") == 1:
            draft.zero(0)
            draft.degrees.pop("replicas", None)
    policy = keys.word("parallelism.fsdp_reshard_after_forward")
    if policy == "never" and draft.switches["zero"] == 3:
        draft.zero(2)
    elif policy != "always" and draft.get("pp") > 1 and draft.switches["zero"] == 3:
        draft.note(KEPT)
    if keys.switch("training.enable_cpu_offload", "experimental.enable_cpu_offload", default=False):
        draft.offload("parameters")


def _new_batch(keys: Keys) -> bool:
    return "training.num_tokens_per_microbatch_per_dp_rank" in keys.values


def _batch(draft: Draft, keys: Keys, *, since_2026: bool) -> None:
    """Set the batch, in sequences before 2026 and in tokens of a data-parallel rank after it."""
    if not since_2026:
        draft.seq_len = keys.whole("training.seq_len", "training.seq_length", least=1)
        if draft.seq_len is None:
            draft.seq_len = 2048
            draft.assume("training.seq_len 2048 (the default of torchtitan)")
        if draft.take_batch("local", keys, "training.local_batch_size", "training.batch_size") is None:
            draft.batch["local"] = (8, "training.local_batch_size 8")
            draft.assume("training.local_batch_size 8 (the default of torchtitan)")
        total = keys.whole("training.global_batch_size", least=-1)
        if total is not None and total > 0:
            draft.batch["global"] = (total, keys.told("training.global_batch_size"))
        elif (steps := keys.whole("training.gradient_accumulation_steps", least=1)) is not None:
            draft.batch["steps"] = (steps, keys.told("training.gradient_accumulation_steps"))
        if draft.get("pp") > 1:
            micro = keys.whole("parallelism.pipeline_parallel_microbatch_size", least=1)
            count = keys.whole("experimental.pipeline_parallel_microbatches", least=1)
            if micro is None and count is not None:
                micro = max(1, draft.batch["local"][0] // count)
            if micro is None:
                draft.assume("micro-batches of 1 sequence in the pipeline (the default of torchtitan)")
            draft.batch["mbs"] = (micro or 1, f"parallelism.pipeline_parallel_microbatch_size {micro or 1}")
        return
    length = keys.whole("training.max_context_length", least=1)
    tokens = keys.whole("training.num_tokens_per_microbatch_per_dp_rank", least=1)
    if length is None:
        length = 2048
        draft.assume("training.max_context_length 2048 (the default of torchtitan)")
    if tokens is None:
        tokens = 16384
        draft.assume("training.num_tokens_per_microbatch_per_dp_rank 16384 (the default of torchtitan)")
    draft.seq_len = length
    told = f"training.num_tokens_per_microbatch_per_dp_rank {tokens}"
    if tokens % length:
        raise draft.refused(f"{told} is not a multiple of training.max_context_length {length}")
    draft.batch["mbs"] = (tokens // length, told)
    if draft.get("pp") > 1:
        count = keys.whole("parallelism.num_pp_microbatches", least=1) or 1
        draft.batch["passes"] = (count, f"parallelism.num_pp_microbatches {count}")
    total = keys.whole("training.num_tokens_per_train_step", least=-1)
    if total is not None and total > 0:
        if total % length:
            raise draft.refused(f"training.num_tokens_per_train_step {total} is not a multiple of {length} tokens")
        draft.batch["global"] = (total // length, keys.told("training.num_tokens_per_train_step"))


def _recompute(draft: Draft, keys: Keys) -> None:
    mode = keys.choice("activation_checkpoint.mode")
    option = keys.word("activation_checkpoint.selective_ac_option", "activation_checkpoint.selective_ac_type")
    called = str(keys.values.get("activation_checkpoint.()", ""))
    keys.raw("activation_checkpoint.()")
    if mode is None and called:
        for part in ("full", "selective", "memory"):
            if part in called.lower():
                mode = part
    if mode is None and (called or "activation_checkpoint" in keys.values):
        mode = "none" if not called else "selective"
    if mode is None:
        mode = "selective"
        draft.assume(f"activation_checkpoint {mode} (the default of torchtitan)")
    text = f"mode {mode}" + (f", option {option}" if option and mode == "selective" else "")
    if mode not in {"none", "full", "selective"}:
        draft.ignore(f"activation_checkpoint.mode = {mode}: priced as selective recomputation")
        mode = "selective"
    if mode == "selective" and option and option.isdecimal():
        which = "every layer" if option == "1" else f"one layer of every {option}"
        draft.note(f"selective_ac_option {option}: {which} is recomputed whole; priced as selective recomputation")
    draft.recompute("full" if mode == "full" else "selective" if mode == "selective" else "none", text)


def _converters(draft: Draft, keys: Keys) -> str:
    """Return the names of what changes the model's layers; what of it is not priced is said."""
    words = " ".join(str(keys.raw(key) or "") for key in ("model.converters", "model.quantization"))
    for key, value in list(keys.values.items()):
        if key.startswith(("model_converters", "model_spec", "float8", "quantize", "mx.")):
            keys.raw(key)
            words += f" {_names(value)}" if key.startswith(("model_converters", "model_spec")) else ""
            if _chosen(value):
                draft.ignore("a converter of some layers alone (fqns): priced as if it were of all")
    if keys.switch("float8.enable_float8_linear", default=False):  # of its first releases
        words += " float8"
    for section in dict.fromkeys(match[1] for key in keys.values if (match := SECTION.match(key))):
        if section not in words:
            draft.note(f"{section} is set, but model.converters does not name it: it has no effect")
    if "lora" in words.lower():
        rank = re.search(r"lora[^)]*\brank'?[=:] ?(\d{1,5})", words, re.IGNORECASE)
        draft.adapters("LoRA", int(rank[1]) if rank else None)
    return words


def _chosen(value: Any) -> bool:
    """Whether a converter among calls names the layers that it is for."""
    if isinstance(value, PythonCall):
        return bool(value.fields.get("fqns")) or any(map(_chosen, [*value.args, *value.fields.values()]))
    return isinstance(value, list) and any(map(_chosen, value))


def _precision(keys: Keys, words: str) -> str:
    plain = words.lower()
    if "nvfp4" in plain:
        return "nvfp4"
    if "mxfp8" in plain or "mx" in plain.split(".") or "quantize.linear.mx" in plain:
        return "mxfp8"
    if "float8" in plain:
        return "fp8"
    dtype = keys.word("training.mixed_precision_param")
    master = keys.word("training.dtype")
    return "fp32" if dtype == "float32" and master != "bfloat16" else "bf16"


def _optimizer(draft: Draft, keys: Keys) -> None:
    """Set the optimiser: of a TOML by its name, of a registry by what makes its groups of parameters.

    Source: pytorch/torchtitan:torchtitan/components/optimizer.py (OptimizersContainer, fused_opt_states_bf16).
    """
    made = [value for key, value in keys.values.items() if key.startswith("optimizer.") and isinstance(value, list)]
    words = " ".join(map(str, (keys.values.get("optimizer.()", ""), *map(_names, made)))).lower()
    named = [text for value in made if (text := _given(value, "optimizer_name")) is not None]
    name = "Muon" if "muon" in words else keys.word("optimizer.name") or next(iter(named), None)
    if name is not None:
        take_optimizer(draft, "optimizer.name", name)
    if keys.word("optimizer.implementation") == "fused_opt_states_bf16" and not draft.savings.optimizer[0]:
        draft.savings.optimizer = ("adamw-bf16", keys.told("optimizer.implementation"))
    if keys.switch("optimizer.early_step_in_backward", default=False):  # OptimizersInBackwardContainer
        take_early(draft, keys.told("optimizer.early_step_in_backward"))


def _kernels(draft: Draft, keys: Keys) -> None:
    """Set whether layers run operator by operator, and whether products hide what tensor parallelism sends.

    Both are off where nothing switches them on, and the second goes with the first alone. Source:
    pytorch/torchtitan:torchtitan/config/job_config.py (Compile, Parallelism.enable_async_tensor_parallel).
    """
    parts = re.findall(r"\w+", str(keys.raw("compile.components") or "model"))
    before = keys.switch("training.compile", default=False)  # of releases without a section for it
    on = before or (keys.switch("compile.enable", default=False) and "model" in parts)
    if on and draft.switches.get("schedule") in ENGINES["torchtitan"].uncompiled and draft.get("pp") > 1:
        draft.note("its pipeline schedule halves each backward, which torch.compile joins: they do not run together")
    if not on:
        draft.traits.append("eager")
        if not {"compile.enable", "training.compile"} & keys.values.keys():
            draft.assume("layers run operator by operator: nothing switches torch.compile on")
    switches = [f"{section}.enable_async_tensor_parallel" for section in ("parallelism", "experimental", "training")]
    said = [keys.switch(key, default=False) for key in (*switches, "compile.enable_async_tensor_parallel")]
    if not (any(said) and on):
        draft.traits.append("vanilla")


def _loss(draft: Draft, keys: Keys, *, by_toml: bool) -> None:
    """Set the way to the loss: of a registry that names one, and of TOML, whose releases have no loss in parts.

    Source: pytorch/torchtitan:torchtitan/components/loss.py (ChunkedLossWrapper, _maybe_compile), pull request 2937;
    before `compile.components` the loss was compiled with the model (build_cross_entropy_loss, training.compile).
    """
    made = str(keys.values.get("loss.()", ""))
    if "Chunked" in made:
        draft.savings.loss = ("chunked", made)
    elif "CrossEntropyLoss" in made or by_toml:
        parts = keys.values.get("compile.components", ["model", "loss"])
        compiled = keys.values.get("compile.enable") is True and isinstance(parts, list) and "loss" in parts
        compiled = compiled or keys.values.get("training.compile") is True
        draft.savings.loss = ("compiled" if compiled else "whole", made or "the loss of releases that read TOML")
        if not made:
            draft.assume("logits are made all at once, not in chunks, as in the releases of torchtitan that read TOML")


def _given(value: Any, name: str) -> str | None:
    """Return the first text that calls in a value are given under a name."""
    inside = [*value.args, *value.fields.values()] if isinstance(value, PythonCall) else value
    if isinstance(value, PythonCall) and isinstance(value.fields.get(name), str):
        return str(value.fields[name])
    found = [_given(one, name) for one in inside] if isinstance(inside, list) else []
    return next((text for text in found if text is not None), None)


def _names(value: Any) -> str:
    """Return the names of the calls in a value."""
    if isinstance(value, PythonCall):
        return " ".join([value.name, *(_names(inner) for inner in [*value.args, *value.fields.values()])])
    if isinstance(value, list):
        return " ".join(map(_names, value))
    return str(value)
