"""All settings of a job on Hugging Face, of its files and its command, each under the kind of file that it is of.

Kinds are those of TrainingArguments, of Accelerate and of DeepSpeed; axolotl's YAML becomes these.
"""

import itertools
from collections.abc import Callable, Sequence, Set
from pathlib import PurePath
from typing import Any

from ..documents import load_document
from ..keys import Keys, dotted_keys
from ..launch import Launch, assignments_of, flags_of
from ..objectives import named_program, objective_by_name
from ..own_launchers import COUNTED
from ..signs import kind_of_document
from ..sources import CONFIG_SUFFIXES, Sources, named_arguments, plain_value
from .accelerate_environment import accelerate_variables
from .llama_factory import second_form_settings
from .openrlhf import is_supervised, openrlhf_settings
from .stage_by_name import stage_by_name
from .swift import is_swifts, swift_settings
from .trainers import (
    axolotl_settings,
    full_name,
    is_axolotls,
    is_trls,
    llama_factory_settings,
    refuse_axolotl,
    trl_settings,
    trls_configuration,
)
from .verl import is_verls, verl_settings

CONFIGS = ("config", "config_file", "config_path", "recipe", "yaml")  # flags that name a file of arguments
# trainers with words of their own: whether a command is theirs, and the settings that the words are
OWN_WORDS = ((is_supervised, openrlhf_settings), (is_verls, verl_settings))
LAUNCH_PLACES = (
    ("fsdp_", "fsdp_config."),
    ("parallelism_config_", "parallelism_config."),
    ("megatron_lm_", "megatron_lm_config."),
    *((name, "deepspeed_config.") for name in ("zero_stage", "offload_", "deepspeed_config_file", "gradient_clipping")),
)


def settings_of(sources: Sources) -> Keys:
    """Return all settings, each under the kind of file that it belongs to."""
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}

    def add(kind: str, data: dict[str, Any], where: str) -> None:
        for key, value in dotted_keys(data).items():
            values[f"{kind}.{key}"], origin[f"{kind}.{key}"] = value, where

    launch = sources.launch
    by_axolotl = launch is not None and is_axolotls(launch.program)
    words = {} if launch is None or not by_axolotl else named_arguments(launch)  # its words are keys of its YAML
    if launch is not None:
        if is_trls(launch.program):
            _take_named(sources, launch.arguments, "config")
        else:
            _take_named(sources, launch.options, "config_file")
            _take_arguments(sources, launch)
    if (by_name := _trls_accelerate(sources)) is not None:
        add("accelerate", *by_name)
    for document in list(sources.documents):
        kind = kind_of_document(document)
        if kind == "axolotl":
            refuse_axolotl(document.data | words, document.name)
            settings, assumed = axolotl_settings(document.data | words)
            values |= settings
            origin |= dict.fromkeys(settings, document.name)
            sources.assumed += assumed
        elif kind == "factory":
            settings, assumed = second_form_settings(document.data, document.name)
            values |= settings
            origin |= dict.fromkeys(settings, document.name)
            sources.assumed += assumed
        elif kind:
            add(kind, document.data, document.name)
    if launch is None or is_trls(launch.program):  # words for `accelerate launch` in TRL's YAML
        for key in [name for name in COUNTED if isinstance(values.get(f"arguments.{name}"), int)]:
            values[f"accelerate.{key}"] = values.pop(f"arguments.{key}")
            origin[f"accelerate.{key}"] = origin[f"arguments.{key}"]
    if launch is not None and (own := next((read for known, read in OWN_WORDS if known(launch)), None)):
        settings, assumed = own(launch)
        values |= settings
        origin |= dict.fromkeys(settings, launch.where)
        sources.assumed += assumed
    elif launch is not None and not by_axolotl:
        add("arguments", _arguments(launch, {one.name for one in sources.documents}, sources.assumed), launch.where)
    if launch is not None and launch.launcher == "accelerate":
        add("accelerate", _launch_words(flags_of(launch.options, dashes=False)), launch.where)
    if launch is not None:
        _take_variables(values, origin, launch)
    _named_files(values, origin, add, sources)
    for key in list(values):  # a DeepSpeed configuration inside the arguments
        if key.startswith("arguments.deepspeed."):
            values["deepspeed." + key.removeprefix("arguments.deepspeed.")] = values.pop(key)
    for key, text in sources.given_keys.items():
        full = full_name(key, values)
        values[full], origin[full] = plain_value(text), "--job"
    return Keys(values, sources.names[0], sources=origin, kinds=True)


def _take_variables(values: dict[str, Any], origin: dict[str, str], launch: Launch) -> None:
    """Add what Accelerate takes from the environment where no file and no word says it."""
    said = accelerate_variables(launch.environment, launched=launch.launcher == "accelerate")
    strategy = launch.environment.get("FSDP_SHARDING_STRATEGY")  # which it heeds beside the arguments' `fsdp` too
    if strategy and "arguments.fsdp" in values:
        values.pop("arguments.fsdp_config.sharding_strategy", None)
        said["arguments.fsdp_config.sharding_strategy"] = strategy, "FSDP_SHARDING_STRATEGY"
    for key, (value, name) in said.items():
        if key not in values:
            values[key], origin[key] = value, f"{name} of {launch.where}"


def _take_named(sources: Sources, words: Sequence[str], flag: str) -> None:
    """Have the file that a flag names among the documents; InputError where it is not here."""
    name = flags_of(words, dashes=False).get(flag)
    if isinstance(name, str) and sources.document(name) is None:
        raise sources.absent(name)


def _trls_accelerate(sources: Sources) -> tuple[dict[str, Any], str] | None:
    """Return the configuration of Accelerate that TRL's command or its YAML takes by TRL's name for it, and its file.

    One that is a file is among the documents afterwards. Raises InputError for a name that is neither.
    """
    launch = sources.launch
    if launch is not None and not is_trls(launch.program):
        return None
    said = [document.data.get("accelerate_config") for document in sources.documents]
    if launch is not None:
        said.append(flags_of(launch.options, dashes=False).get("config_file"))
    names = [name for name in said if isinstance(name, str)]
    if not names or sources.document(names[-1]) is not None:
        return None
    if (found := trls_configuration(names[-1])) is None:
        raise sources.absent(names[-1])
    sources.assumed.append(f"accelerate_config {names[-1]}: the one that TRL has by this name")
    return found, f"TRL's {names[-1]}.yaml"


def _take_arguments(sources: Sources, launch: Launch) -> None:
    """Have the YAML or JSON of TrainingArguments among the documents that a program's command names.

    It is its first word, or the value of a flag such as --config. Raises InputError where such a file is not here, and
    the command has no batch itself.
    """
    flags = flags_of(launch.arguments, dashes=False)
    words = [flags.get(name) for name in CONFIGS]
    for word in (*launch.arguments[:1], *words):
        if not isinstance(word, str) or not word.endswith((".yaml", ".yml", ".json")) or word.startswith("-"):
            continue
        found, names = list(sources.documents), list(sources.names)
        named = sources.document(word)
        said = any(one.kind == "python" or kind_of_document(one) == "arguments" for one in found)
        if named is None and not said and "per_device_train_batch_size" not in flags:
            raise sources.absent(word)
        if (
            named is not None
            and named not in found
            and kind_of_document(named) not in {"arguments", "axolotl", "factory"}
        ):
            sources.documents[:], sources.names[:] = found, names


def _arguments(launch: Launch, read: Set[str], remarks: list[str]) -> dict[str, Any]:
    """Return the words of a command as arguments, without flags that name files which are read; add to the remarks."""
    found = named_arguments(launch)
    for name in CONFIGS:
        if isinstance(found.get(name), str) and PurePath(found[name]).name in read:
            del found[name]
    if is_trls(launch.program):
        found.pop("config", None)  # a file, which is among the documents
    if is_swifts(launch):
        found, assumed = swift_settings(found, launch)
        remarks += assumed
    return found | _bare_words(launch)


def _bare_words(launch: Launch) -> dict[str, Any]:
    """Return the `key=value` words of a command before its first flag: OmegaConf's, behind a YAML or a subcommand.

    argparse takes no such words, so a program that is started with them reads them itself, over its YAML
    (hiyouga/LLaMA-Factory:src/llamafactory/hparams/parser.py, read_args).
    """
    bare = itertools.takewhile(lambda word: not word.startswith("-"), launch.arguments)
    return {key: plain_value(text) for key, text in assignments_of(list(bare)).items()}


def _named_files(
    values: dict[str, Any], origin: dict[str, str], add: Callable[[str, dict[str, Any], str], None], sources: Sources
) -> None:
    """Add the configurations that arguments hold as JSON or name; InputError for one that is not here."""
    for key in (
        "fsdp_config",
        "accelerator_config",
        "deepspeed",
    ):  # as JSON on the command line, or in a file that it names
        text = values.get(f"arguments.{key}")
        if isinstance(text, str) and text.lstrip().startswith("{"):
            del values[f"arguments.{key}"]
            add("arguments", {key: load_document(f"{key} of {sources.names[0]}", text, "json")}, sources.names[0])
        elif isinstance(text, str) and key != "deepspeed" and text.endswith(CONFIG_SUFFIXES):
            if (named := sources.document(text)) is None:
                raise sources.absent(text)
            del values[f"arguments.{key}"]
            add("arguments", {key: named.data}, named.name)
    _trainers_defaults(values, origin, sources)
    for path in (
        "arguments.deepspeed",
        "arguments.deepspeed_config",
        "accelerate.deepspeed_config.deepspeed_config_file",
    ):
        name = values.get(path)
        if isinstance(name, str) and not any(key.startswith("deepspeed.") for key in values):
            found = sources.document(name)
            if found is not None:
                add("deepspeed", found.data, found.name)
            elif (told := stage_by_name(name)) is None or "arguments.per_device_train_batch_size" not in values:
                raise sources.absent(name)
            else:
                add("deepspeed", told[0], sources.names[0])
                sources.assumed.append(f"{told[1]}: by the name of {PurePath(name).name}, which is not here")


def _trainers_defaults(values: dict[str, Any], origin: dict[str, str], sources: Sources) -> None:
    """Add what a trainer on top of the arguments sets by itself; take `fsdp_` off the names in their fsdp_config."""
    own = {key.removeprefix("arguments."): value for key, value in values.items() if key.startswith("arguments.")}
    found, assumed = llama_factory_settings(own)
    by_name = values.pop("arguments.accelerate_config", None) is not None  # a key that TRL's command alone takes
    if by_name or (sources.launch is not None and is_trls(sources.launch.program)):
        kind = objective_by_name(named_program(sources.launch)) or "sft"
        more = trl_settings(own, "RewardConfig" if kind == "rm" else f"{kind.upper()}Config")
        found, assumed = found | more[0], assumed + more[1]
    sources.assumed += assumed
    for key, value in found.items():
        values[f"arguments.{key}"], origin[f"arguments.{key}"] = value, sources.names[0]
    for key in [key for key in values if key.startswith("arguments.fsdp_config.fsdp_")]:
        plain = key.replace(".fsdp_config.fsdp_", ".fsdp_config.")
        values[plain], origin[plain] = values.pop(key), origin[key]


def _launch_words(flags: dict[str, object]) -> dict[str, Any]:
    """Return the flags of `accelerate launch` under the names that its YAML has."""
    found: dict[str, Any] = {}
    for key, value in flags.items():
        place = next((place for start, place in LAUNCH_PLACES if key.startswith(start)), "")
        found[f"{place}{key}"] = plain_value(value) if isinstance(value, str) else value
    for flag, kind in (("use_fsdp", "FSDP"), ("use_deepspeed", "DEEPSPEED"), ("use_megatron_lm", "MEGATRON_LM")):
        if found.pop(flag, None):
            found["distributed_type"] = kind
    return found
