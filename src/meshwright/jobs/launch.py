"""The training command among all commands of a script: its launcher's nodes and ranks, its program, its arguments."""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..units import counted
from .allocation import of_batch, of_slurm, slots
from .counts import COUNTS, STARTS_TASKS, Count, flagged_counts, is_count
from .engines.trainers import is_axolotls
from .keys import as_whole
from .own_launchers import COMMANDS as OWN_LAUNCHERS
from .own_launchers import own_launcher
from .shell.calls import PYTHON, RUN_TRAIN, component
from .shell.marks import is_unknown, reasons, shown
from .shell.state import Started
from .slurm import of_component

Owner = Callable[[str, Sequence[str]], str | None]  # the engine of a program and its arguments, None for no known one
MODULES = ("torch.distributed.run", "torch.distributed.launch")
# Determined AI's launchers start a rank on each slot of a trial (determined-ai/determined:harness/determined/launch)
OF_SLOTS = {"determined.launch.torch_distributed": "determined", "determined.launch.deepspeed": "determined"}
# what a launcher takes from variables of its own
VARIABLES = {
    "torchrun": (("PET_NNODES", "nodes"), ("PET_NPROC_PER_NODE", "per_node")),
    "composer": (("WORLD_SIZE", "world"),),
}
OF_PLACE = re.compile(r"rank|addr|port|(?:^|-)ip$|host|rdzv|log|tee")  # launchers' options of one machine, and of logs
SWIFT = "megatron"  # ms-swift's command, which starts a program of its package
SFT_OF_SWIFT = re.compile(r"^(?:.*/)?swift$|(?:^|[/.])swift[/.]cli[/.](?:sft|pt)(?:\.py)?$")
SWIFT_PROGRAM = re.compile(r"swift[/.]cli[/.]_megatron[/.](?:sft|pt)(?:\.py)?$")
TUNE_RECIPE = re.compile(r"[a-z]\w*_(?:distributed|single_device|kd|dpo|grpo|qat)\w*")  # as `tune ls` names them
# commands that start torchrun by themselves, with the words that may follow them
STARTERS = {
    SWIFT: frozenset({"sft", "pt"}),
    "swift": frozenset({"sft", "pt"}),  # ms-swift too, on Hugging Face's trainer
    "llamafactory-cli": frozenset({"train", "sft"}),
    **OWN_LAUNCHERS,
}
# commands that handle the files they name, and start none of them
OF_FILES = frozenset(
    {*("cp", "mv", "rm", "ln", "cat", "head", "tail", "sed", "awk", "grep", "ls", "find", "diff", "touch", "chmod")}
    | {*("chown", "wget", "curl", "scp", "rsync", "tar", "unzip", "git", "gsutil", "aws", "patch", "dos2unix")}
    | {"tee", "zip", "stat"}
)
OF_RANKS = frozenset({"torchrun", "deepspeed", "accelerate", "determined"})  # that start nothing but a training
# programs that start their ranks by themselves, or are all that a host starts: GPT-NeoX's, NeMo RL's, Levanter's
STARTS_RANKS = re.compile(r"(?:^|/)(?:deepy|run_(?:sft|dpo|rm))\.py$|(?:^|[./])levanter[./]main[./]")
LAUNCHERS = STARTS_TASKS | {"torchrun", "deepspeed"}
HANDED = LAUNCHERS | {"accelerate", "composer"}  # what a command of one's own hands on behind `--`
LITGPT = "litgpt"  # `litgpt pretrain MODEL ...`, `litgpt finetune_lora CHECKPOINT ...`, or the files of its package
LITGPT_FILE = re.compile(r"(?:^|/)(?:lit[-_]?gpt/)(?:pretrain|finetune/\w+)\.py$")
NEMO = frozenset({"nemo", "nemorun"})  # `nemo llm pretrain --factory RECIPE key=value ...`
# programs that by their name convert, merge, prepare, evaluate or serve: none trains, though the flags are a training's
BESIDE = re.compile(
    r"(?:^|[_-])(?:convert(?:er|ing)?|conversion|preprocess(?:ing)?|tokenize|merge|export(?:er)?|evaluat(?:e|ion)|eval"
    r"|infer(?:ence)?|generate|generation)(?:[_-]|$)|(?:hf|mcore|mg|megatron|megads|nemo|ckpt)(?:2|_to_)\w"
)
TRAINS = re.compile(r"train|tun(?:e|ing)|sft|dpo|rlhf|distill")
# what Megatron's own programs are started with at least
MEGATRON_FLAG = re.compile(
    r"--(?:(?:tensor|pipeline)-model-parallel-size|model-parallel-size|micro-batch-size|num-layers|yaml-cfg|use-mcore-models)"
)
PROGRAMS: tuple[tuple[str, str], ...] = (
    ("torchtitan", r"torchtitan|run_train\.sh$"),
    ("maxtext", r"(?i:maxtext)"),
    ("torchtune", r"^(?:full|lora|qat|knowledge_distillation|ppo_full|grpo_full)\w*_(?:distributed|single_device)$"),
    ("bridge", r"megatron[._-]bridge|run_recipe\.py|run_script\.py|setup_experiment\.py"),
    ("automodel", r"automodel"),
    ("picotron", r"(?:^|[./])picotron[./]train(?:\.py)?$"),
    ("huggingface", r"(?:^|[./])verl[./]trainer[./](?:fsdp_)?sft_trainer"),
    ("nemo", r"^megatron_(?:gpt_(?:pretraining|continue_training|finetuning)\w*|\w+\.py)|nemo_launcher|nemo[./]"),
    ("megatron", r"pretrain_\w+\.py|pretrain\.py|train_gpt\.py|pretrain_gpt|^megatron$"),
)
FLAGS: tuple[tuple[str, str], ...] = (
    ("torchtitan", r"--(job\.config[-_]file|training\.|parallelism\.|module=|config=)"),
    ("maxtext", r"(per_device_batch_size|ici_\w+_parallelism|dcn_\w+_parallelism)="),
    ("nemo", r"\+*(trainer\.num_nodes|model\.micro_batch_size|model\.tensor_model_parallel_size)="),
    ("megatron", r"--(?:tensor|pipeline)[-_]model[-_]parallel[-_]size(=|$)"),
    ("huggingface", r"--(per_device_train_batch_size|deepspeed|deepspeed_config)(=|$)"),
)


@dataclass(frozen=True, slots=True)
class Launch:
    """One training command; counts with the words that say where they were found."""

    engine: str
    program: str
    arguments: tuple[str, ...]
    launcher: str = ""  # torchrun, deepspeed, accelerate, srun, python
    options: tuple[str, ...] = ()  # of the launcher
    counts: dict[str, Count] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()  # counts that depend on something unknown
    where: str = ""
    line: int = 0
    variables: dict[str, str] = field(default_factory=dict)  # that the script sets
    environment: dict[str, str] = field(default_factory=dict)  # those of them that the program sees
    before: tuple[str, ...] = ()  # words in front of the launcher
    around: dict[str, Count] = field(default_factory=dict)  # of what starts the launcher: `srun`, a wrapper, machines

    @property
    def nodes(self) -> Count | None:
        """Nodes, where the command says them."""
        return self.counts.get("nodes")

    @property
    def per_node(self) -> Count | None:
        """Ranks of a node: torchrun's, or the tasks of a node where each task is a rank."""
        if "per_node" in self.counts or self.launcher in OF_RANKS:
            return self.counts.get("per_node")
        return self.counts.get("tasks_per_node")

    @property
    def each_gpu(self) -> str:
        """The launcher that starts a rank on each GPU that it sees, where nothing says how many those are; else ""."""
        takes_all = _takes_all(self.launcher, self.program, self.options)
        known = {"per_node", "world", "tasks"} & self.counts.keys()
        return self.launcher or self.program if takes_all and not known else ""

    @property
    def training(self) -> tuple[object, ...]:
        """What tells one training from another: program, arguments, counts, and options that say no machine's place."""
        options = tuple((key, str(value)) for key, value in flags_of(self.options).items() if not OF_PLACE.search(key))
        return self.program, self.arguments, tuple(sorted((key, one[0]) for key, one in self.counts.items())), options


def no_owner(program: str, arguments: Sequence[str]) -> str | None:
    """Return None: nothing but its name and flags says what a program is."""


def training_commands(started: Sequence[Started], owner: Owner = no_owner) -> list[Launch]:
    """Return the different training commands of a script.

    `owner` knows programs that are at hand: what stands in them decides before their names do.
    """
    found: dict[tuple[object, ...], Launch] = {}
    for one in started:
        launch = read_command(one, owner)
        if launch is not None:
            found.setdefault(launch.training, launch)
    return list(found.values())


def starts_ranks(launch: Launch, one: Started) -> bool:
    """Whether a command starts its program on all ranks, and not once beside the training."""
    return launch.launcher in OF_RANKS or starts_all(one)


def starts_all(one: Started) -> bool:
    """Whether a command has the name of a launcher of ranks among its words."""
    before = itertools.takewhile(lambda word: not word.endswith(".py"), one.words)
    return bool({word.rpartition("/")[2] for word in before} & LAUNCHERS)


def trains_nothing(engine: str, program: str) -> bool:
    """Whether a program, by its name, works on weights or data beside a training and is none itself.

    Readers of engines with programs of their own know those by name.
    """
    if engine not in {"megatron", "huggingface"}:
        return False
    name = re.split(r"[/.]", program.removesuffix(".py"))[-1].lower()
    return bool(BESIDE.search(name)) and not TRAINS.search(name)


def programs_of(started: Sequence[Started]) -> list[str]:
    """Return the names of the Python programs that commands start."""
    found = []
    for one in started:
        words = _with_interpreter(one.words)
        place, launcher = _launcher(words)
        at = _program(words, place, launcher) if launcher else None
        if at is not None:
            found.append(shown(words[at]).rpartition("/")[2])
    return list(dict.fromkeys(found))


def read_command(one: Started, owner: Owner = no_owner) -> Launch | None:
    """Return a command as a launch, None where it is no training of an engine that is known."""
    if one.words[0].rpartition("/")[2] in OF_FILES:
        return None
    words = _with_interpreter(component(one.words, STARTS_TASKS, OF_RANKS))
    place, launcher = _launcher(words)
    program_at = _program(words, place, launcher)
    if program_at is None:
        return None
    program, arguments = words[program_at], [*_of_run_train(words[program_at], one), *words[program_at + 1 :]]
    program = SWIFT if SWIFT_PROGRAM.search(program) else program
    engine = _engine_by(owner, program, arguments, launcher)
    if engine is None or (engine == "huggingface" and is_unknown(program)) or trains_nothing(engine, program):
        return None
    options = words[place + 1 : program_at]
    if not launcher and (own_words := own_launcher(program.rpartition("/")[2], arguments)) is not None:
        launcher, options, arguments = own_words
    options = ["--nproc" if (launcher, word) == ("composer", "-n") else word for word in options]  # its cli/launcher.py
    around, doubts = flagged_counts(words[:place])
    mine, more = flagged_counts(options)
    if launcher == "deepspeed" and "nodes" not in mine and "per_node" in mine and "hostfile" not in " ".join(options):
        mine["nodes"] = (1, "no --num_nodes")
    counts = around | mine
    gpus = as_whole(one.variables.get("SLURM_GPUS_PER_NODE"))
    if "per_node" not in mine and gpus and any(doubt.startswith(("nproc", "num_gpus")) for doubt in more):
        counts["per_node"] = (gpus, f"#SBATCH {counted(gpus, 'GPU')} a node ({one.where})")  # it asks its machine
        more = [doubt for doubt in more if not doubt.startswith(("nproc", "num_gpus"))]
    around = {**of_batch(words[:place], one.variables, one.where), **around}
    flags = flags_of(words[:place])
    group = str(flags.get("het-group", flags.get("pack-group", ""))).removeprefix("0")  # the first one's are plain
    taken = of_slurm(words[:place], one.variables, one.where, group)
    if group and "nodes" not in taken | mine:
        more = [*more, f"nodes of het-group {group}"]
    taken |= slots(words[:place], one.variables, one.where)
    counts, around = taken | counts, {**taken, **_asked_gpus(words[:place], one, group), **around}
    if words[program_at].rpartition("/")[2] in STARTERS:
        said, open_ones = of_environment(one.variables)
        counts, more = counts | said, [*more, *open_ones]
    if not {"per_node", "world"} & counts.keys():
        counts |= _of_visible(launcher, words[program_at], options, one)
    for name, key in VARIABLES.get(launcher, ()):
        if (value := as_whole(one.variables.get(name))) and not any(is_count(doubt, key) for doubt in more):
            counts.setdefault(key, (value, f"{name} {value}"))
    if "tasks" in counts and launcher in {"python", "srun"}:
        counts.setdefault("world", counts["tasks"])
    return Launch(
        engine=engine,
        program=program,
        arguments=tuple(arguments),
        launcher=launcher,
        options=tuple(options),
        counts=counts,
        unknown=tuple(dict.fromkeys([*doubts, *more, *further_words(arguments)])),
        where=one.where,
        line=one.line,
        variables=dict(one.variables),
        environment=dict(one.environment),
        before=tuple(words[: max(place, 0)]),
        around=around,
    )


def _asked_gpus(words: Sequence[str], one: Started, group: str) -> dict[str, Count]:
    """Return the GPUs of a node that `srun`'s script, or a command of one's own before `--`, asks for."""
    if "--" in words:
        gpus, told = as_whole(flags_of(words[: list(words).index("--")]).get("gpus")), "gpus {}"
    else:
        name = "SLURM_GPUS_PER_NODE"
        gpus, told = as_whole(one.variables.get(of_component(name, group) if group else name)), "{} GPUs a node"
    return dict.fromkeys(("per_node", "gpus"), (gpus, told.format(gpus))) if gpus else {}


def _of_run_train(program: str, one: Started) -> list[str]:
    """Return the flags that torchtitan's run_train.sh makes of variables, where it is not at hand to be followed."""
    if not program.endswith(RUN_TRAIN):
        return []
    return [f"--{name.lower()}={one.variables[name]}" for name in ("MODULE", "CONFIG") if one.variables.get(name)]


def of_environment(variables: Mapping[str, str], name: str = "NPROC_PER_NODE") -> tuple[dict[str, Count], list[str]]:
    """Return the ranks of a node and the nodes that variables of a command give, and what they leave unknown.

    Where only the ranks are given, there is one node.
    """
    per_node, nodes = as_whole(variables.get(name)), as_whole(variables.get("NNODES"))
    found = {} if not per_node else {"per_node": (per_node, f"{name} {per_node}")}
    if not nodes and is_unknown(variables.get("NNODES", "")):
        return found, [f"NNODES ({', '.join(map(shown, reasons(variables['NNODES'])))})"]
    if nodes or per_node:
        found["nodes"] = (nodes or 1, f"NNODES {nodes}" if nodes else "no NNODES, so one node")
    return found, []


def _takes_all(launcher: str, command: str, options: Sequence[str]) -> bool:
    """Whether a launcher starts a rank for each GPU that it sees: no flag of it counts them."""
    flags = flags_of(options)
    if launcher == "torchrun":
        return str(flags.get("nproc-per-node")) in {"gpu", "auto"}
    starts = launcher in {"accelerate", "deepspeed"} or command.rpartition("/")[2] == "llamafactory-cli"
    return starts and not flags.keys() & {*COUNTS, "include", "exclude", "hostfile", "H", "config-file"}


def _of_visible(launcher: str, command: str, options: Sequence[str], one: Started) -> dict[str, Count]:
    """Return the ranks of a launcher that starts one for each GPU that it sees, where the script says which those are.

    They are the numbers in CUDA_VISIBLE_DEVICES, else what one node of SLURM's is asked for.
    """
    if not _takes_all(launcher, command, options):
        return {}
    named = one.variables.get("CUDA_VISIBLE_DEVICES", "").replace(" ", "")
    if re.fullmatch(r"\d{1,2}(?:,\d{1,2})*", named):
        per_node = (named.count(",") + 1, f"CUDA_VISIBLE_DEVICES {named}")
    elif gpus := as_whole(one.variables.get("SLURM_GPUS_PER_NODE")):
        per_node = (gpus, f"#SBATCH {counted(gpus, 'GPU')} a node ({one.where})")
    else:
        return {}
    if launcher == "torchrun" or (command.rpartition("/")[2] in STARTERS and "NNODES" in one.variables):
        return {"per_node": per_node}  # the nodes are its own, or its environment's
    if (as_whole(one.variables.get("SLURM_NNODES")) or 1) > 1 or "NNODES" in one.variables:
        return {}
    return {"nodes": (1, "one node"), "per_node": per_node}


def _with_interpreter(words: Sequence[str]) -> list[str]:
    """Return the words of a command, with `python` before a program that is started by its own name (`./train.py`)."""
    found = list(words)
    at = next((place for place, word in enumerate(found) if word.endswith(".py")), None)
    alone = at == 0 or found[:2] == ["uv", "run"] or found[0].rpartition("/")[2] in STARTS_TASKS
    if at is not None and alone and _launcher(found)[0] < 0:
        found.insert(at, "python")
    return found


def _launcher(words: Sequence[str]) -> tuple[int, str]:
    """Return the place and name of what starts the ranks; (-1, "") where nothing does."""
    last = (-1, "")
    begin = _handed_on(words)
    for place, word in enumerate(words[begin:], begin):
        name = word.rpartition("/")[2]
        if place and words[place - 1] == "--launcher":  # a value, of axolotl's command
            continue
        if name in {"torchrun", "deepspeed"} or word in MODULES:
            return place, "deepspeed" if name == "deepspeed" else "torchrun"
        if name == "composer" or name in OF_SLOTS:
            return place, OF_SLOTS.get(name, name)
        if name == "tune" and words[place + 1 : place + 2] == ["run"]:  # torchtune's: torchrun, with its options
            return place + 1, "torchrun"
        if name == "accelerate" and words[place + 1 : place + 2] == ["launch"]:
            return place + 1, "accelerate"
        runs_module = name == "-m" and place + 1 < len(words) and words[place + 1] not in {*MODULES, *OF_SLOTS}
        if name.endswith(".py") or runs_module:
            break
        if PYTHON.match(name):
            last = (place, "python")
    return last


def _handed_on(words: Sequence[str]) -> int:
    """Return where the command begins that another hands on behind `--` (`submit.py -- torchrun ...`), else 0."""
    for place, word in enumerate(words[:-1]):
        name = words[place + 1].rpartition("/")[2]
        if word == "--" and (name in HANDED or PYTHON.match(name)):
            return place + 1
    return 0


def _program(words: Sequence[str], place: int, launcher: str) -> int | None:
    of_tune = words[max(place - 1, 0) : place + 1] == ["tune", "run"]
    for at in range(place + 1, len(words)):
        word = words[at]
        if of_tune and TUNE_RECIPE.fullmatch(word):
            return at
        if word in {"-m", "--module"} and at + 1 < len(words) and words[at + 1] not in MODULES:
            return at + 1
        if word.endswith(".py") or re.search(r"(^|/)run_train\.sh$", word):
            return at
    if not launcher:
        for at, word in enumerate(words):
            name = word.rpartition("/")[2]
            if name == "automodel" or (name in STARTERS and set(words[at + 1 : at + 2]) & STARTERS[name]):
                return at
            if name in NEMO and words[at + 1 : at + 2] == ["llm"]:
                return at
            if name == LITGPT and re.match("pretrain$|finetune", "".join(words[at + 1 : at + 2])):
                return at
    return None


def _engine_by(owner: Owner, program: str, arguments: Sequence[str], launcher: str) -> str | None:
    """Return the engine of a program by what stands in it, its name, its flags and the files that it names."""
    own = owner(program, ())
    of_megatron = not is_axolotls(program) and any(MEGATRON_FLAG.match(word.replace("_", "-")) for word in arguments)
    if of_megatron or own in {None, "huggingface"}:  # a program on the latter may be another engine's too
        alone = launcher in OF_RANKS or launcher == "composer" or STARTS_RANKS.search(program)
        return _engine(program, arguments, launcher) or own or owner(launcher if alone else "", arguments)
    return own


def _engine(program: str, arguments: Sequence[str], launcher: str) -> str | None:
    name = program.rpartition("/")[2]
    if name == LITGPT or LITGPT_FILE.search(program):
        return "litgpt"
    of_trainer = name in {"llamafactory-cli", *OWN_LAUNCHERS} or SFT_OF_SWIFT.search(program)
    if of_trainer or name in NEMO or is_axolotls(program):
        return "nemo" if name in NEMO else "huggingface"
    for engine, pattern in PROGRAMS:
        if re.search(pattern, name) and not (engine == "megatron" and _by_deepspeed_alone(arguments)):
            return engine
    for engine, pattern in FLAGS:
        if any(re.match(pattern, word) for word in arguments):
            return engine
    if _has_megatrons(arguments):
        return "megatron"
    for engine, pattern in PROGRAMS:  # by the folders that the program is in
        if re.search(pattern, program):
            return engine
    return "huggingface" if launcher in {"deepspeed", "accelerate"} else None


def _has_megatrons(arguments: Sequence[str]) -> bool:
    """Whether a program of another name has Megatron's micro-batch, which others have too, and another flag of its own.

    Words that are not known may hold them.
    """
    words = [word.replace("_", "-").partition("=")[0] for word in arguments]
    own = sum(word in words for word in ("--num-layers", "--hidden-size", "--seq-length", "--use-mcore-models"))
    return "--micro-batch-size" in words and (own > 0 or any(is_unknown(word) for word in arguments))


def _by_deepspeed_alone(arguments: Sequence[str]) -> bool:
    """Whether a program has a DeepSpeed configuration and none of the flags that Megatron cannot do without."""
    words = [word.replace("_", "-") for word in arguments]
    said = any(word.startswith("--deepspeed") for word in words)
    return said and not any(MEGATRON_FLAG.match(word) or is_unknown(word) for word in words)


def further_words(arguments: Sequence[str]) -> list[str]:
    """Return what the words of a command that stand for no value depend on: variables that hold further flags."""
    found: list[str] = []
    for place, word in enumerate(arguments):
        before = arguments[place - 1] if place else ""
        if is_unknown(word) and not (before.startswith("--") and "=" not in before):
            found += reasons(word)
    return [f"{shown(reason)} (further flags)" for reason in found]


def flags_of(arguments: Sequence[str], *, dashes: bool = True) -> dict[str, object]:
    """Return `--flag value`, `--flag=value`, `--flag a b` and switches as a mapping; the last of a flag counts.

    With `dashes`, underscores in names become dashes. Words before the first flag are left out.
    """
    found: dict[str, object] = {}
    name = ""
    for word in arguments:
        if is_unknown(word) and not (name and found[name] is True):
            continue  # a variable that holds further flags, such as $EXTRA_ARGS
        if word.startswith("--") and len(word) > 2:
            key, equals, value = word[2:].partition("=")
            name = key.replace("_", "-") if dashes else key
            found[name] = value if equals else True
            name = "" if equals else name
        elif re.fullmatch(r"-[A-Za-z][A-Za-z_]{0,3}", word):
            name = word[1:]
            found[name] = True
        elif name:
            old = found[name]
            found[name] = word if old is True else [*old, word] if isinstance(old, list) else [old, word]
    return found


def replaced_flags(arguments: Sequence[str]) -> list[str]:
    """Return in words which numbers of flags do not count, since the command says another one behind them."""
    said: dict[str, list[str]] = {}
    for word, behind in itertools.pairwise([*arguments, "", ""]):
        name, equals, value = word.partition("=")
        value = value if equals else behind
        if name.startswith("--") and re.fullmatch(r"\d{1,12}", value):
            said.setdefault(name[2:].replace("_", "-"), []).append(value)
    return [
        f"{name} is said more than once: {values[-1]}, the last one, counts, "
        f"not {' or '.join(dict.fromkeys(value for value in values if value != values[-1]))}"
        for name, values in said.items()
        if len(set(values)) > 1
    ]


def named_by(arguments: Sequence[str], flag: str) -> str | None:
    """Return the word behind a flag, the first where others follow it (`--config own.yaml key=value`); None without."""
    value = flags_of(arguments).get(flag)
    first = value[0] if isinstance(value, list) else value
    return first if isinstance(first, str) else None


def without_flags(arguments: Sequence[str], taken: Mapping[str, bool]) -> tuple[str, ...]:
    """Return the words of a command without flags that its program reads itself; each says whether a value follows."""
    found: list[str] = []
    skip = False
    for word in arguments:
        if skip and not word.startswith("-"):
            skip = False
            continue
        name, equals, _ = word.lstrip("-").partition("=")
        known = word.startswith("-") and name in taken
        skip = known and taken[name] and not equals
        if not known:
            found.append(word)
    return tuple(found)


def assignments_of(arguments: Sequence[str]) -> dict[str, str]:
    """Return `key=value` words, Hydra's prefixes (+, ++, ~) taken off."""
    found = {}
    for word in arguments:
        match = re.fullmatch(r"[+~]*([A-Za-z_][\w.@/-]*)\s*[=:]\s*(.*)", word, re.DOTALL)
        if match and not word.startswith("-"):
            found[match.group(1)] = match.group(2)
    return found
