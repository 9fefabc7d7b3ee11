"""Gathering: the words of `--job` become the sources of one job, each file read by its kind.

The scripts among them are followed by `runs`, the Python file that is started is read last.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from ..errors import InputError
from .documents import Document, kind_of, load_document, read_document
from .files.dockerfile import parse_dockerfile
from .files.hydra import compose, named_tree, tree_finder
from .files.justfile import parse_justfile
from .files.kubernetes import is_kubernetes, parse_kubernetes
from .files.makefile import parse_makefile
from .files.manifest import LauncherManifest, command_of_other, launcher_manifest
from .files.modal import is_modal, modal_functions
from .files.notebook import parse_notebook, quoted
from .files.python_launcher import launcher_script
from .files.recipes import Recipes, markdown_blocks
from .files.sagemaker import estimator_scripts, is_sagemaker
from .files.template import fill_template, name_of_filled
from .files.vertex import is_vertex, parse_vertex
from .hosts import on_hosts
from .keys import dotted_keys
from .launch import LITGPT, NEMO, STARTERS, flags_of, without_flags
from .nearby import nearby
from .partitions import part_of_gpu
from .programs import PythonProgram
from .python.calls import Walk
from .python.defaults import defaults_of_flags
from .python.functions import makes_configs
from .python.script import program_config, trainer_settings
from .python.static import PythonModule, config_of
from .python.values import PythonCall, flattened
from .runs import follow_scripts
from .shell.calls import APPLIES
from .shell.marks import shown
from .shell.script import follow
from .signs import of_document, of_python
from .sources import Sources, named_arguments, plain_value
from .unsupported import COMMANDS, WITH_YAML, unread_configuration, unread_program, unread_trainer

OVERRIDE = re.compile(r"(?:--)?([A-Za-z_][\w.\-@/]*)=(.*)", re.DOTALL)
# commands that train, with the words that may follow them
TRAINING = (
    *((own, "|".join(sorted(then))) for own, then in STARTERS.items()),
    *((own, then) for _, own, then in (*COMMANDS, *WITH_YAML)),
    *((own, "llm") for own in sorted(NEMO)),
    *((own, rf"(?:-n\s+\S+\s+)?(?:{then})") for own, then in APPLIES.items()),
    *(("tune", "run"), (LITGPT, r"pretrain|finetune\w*"), ("automodel", r"\w+"), (r"python[\d.]*", "-m")),
)
# a command line in place of a file: what it starts is a script, a program, a launcher or a training
COMMAND = re.compile(
    r"(?:^|\s)(?:(?P<first>\S+\.(?:sh|py|bash|slurm|sbatch|pbs))|torchrun|srun|mpirun|deepspeed|accelerate|(?:\S*/)?(?:"
    + "|".join(rf"{own}\s+(?:{then})" for own, then in TRAINING)
    + r"))(?=\s)|(?<=\s)(?P<last>\S+\.(?:sh|py|bash|slurm|sbatch|pbs))$"
)
HOSTS = re.compile(r"(?:\s*(?:#.*|\S+\s+slots\s*=\s*\d+.*)?\n)+")


def gather_sources(items: Sequence[str], *, place: int = 0) -> Sources:
    """Return the sources that the words of `--job` name; of several trainings of a script those of the one at `place`.

    They are files, FILE.py:FUNCTION, Makefile:TARGET, FILE.yaml:NAME of an object, FILE.sh:LINE, NAME=VALUE overrides,
    or a command line in one word ("bash run.sh 8 4", "trl sft --config sft.yaml").
    """
    sources = Sources(place=place)
    scripts: list[tuple[str, str]] = []
    manifests: list[tuple[str, str, str | None]] = []
    for item in items:
        override = OVERRIDE.fullmatch(item)
        if override and not COMMAND.search(item) and not _is_there(item):
            sources.overrides[override.group(1)] = override.group(2)
    for item in items:
        override = OVERRIDE.fullmatch(item)
        command = COMMAND.search(item)
        if command and not _is_there(item):
            if not sources.names:
                sources.folder = Path(command["first"] or command["last"] or "").parent
            sources.names.append("command line")
            scripts.append(("command line", item))
        elif not override or _is_there(item):
            _take(item, sources, scripts, manifests)
    for name in sources.filled:  # they are of the template alone
        del sources.overrides[name]
    beside = list(scripts)
    for name, text, asked in manifests:
        _take_manifest(parse_kubernetes(name, text, _variables_of(beside, sources), asked), sources, scripts)
    if not sources.names:
        raise InputError("--job: expected a file, such as --job train.sh")
    follow_scripts(scripts, sources)
    if sources.launch is None and sources.applied:
        _follow_applied(sources)
    if sources.launch is not None:
        sources.launch = on_hosts(sources.launch, sources.hostfiles, sources.folder)
    _read_python(sources)
    return sources


def _is_there(item: str) -> bool:
    """Whether a word names something on this machine; a command line may be longer than any name."""
    try:
        return Path(item).exists()
    except OSError:
        return False


def _variables_of(scripts: Sequence[tuple[str, str]], sources: Sources) -> dict[str, str]:
    """Return the variables that scripts set, those given beside the files on top."""
    found: dict[str, str] = {}
    for name, text in scripts:
        outcome = follow(text, where=name, given=sources.overrides, find=lambda path: None)
        found |= {key: value for key, value in outcome.variables.items() if isinstance(value, str)}
    return found | sources.overrides


def _take(
    item: str, sources: Sources, scripts: list[tuple[str, str]], manifests: list[tuple[str, str, str | None]]
) -> None:
    """Take what a file is; manifests of Kubernetes are left for when the scripts beside them are known."""
    path, function = _function_of(item)
    name, text = read_document(path)
    if not sources.names:
        sources.folder = Path(path).parent
    sources.names.append(name)
    kind = kind_of(name_of_filled(name), text)
    if kind in {"shell", "yaml"}:
        if kind == "shell" or is_kubernetes(text) or name_of_filled(name) != name:
            text = _filled(name, text, sources, yaml=kind == "yaml")
        sources.part_of_gpu = sources.part_of_gpu or part_of_gpu(text)
    if kind == "shell" and "slots" in text and HOSTS.fullmatch(f"{text}\n"):
        sources.hostfiles[name] = text
    elif kind == "shell":
        scripts.append((name, text))
        if function is not None:
            sources.lines[name] = int(function)
    elif kind == "python" and is_sagemaker(text):
        commands, sources.machine_type, assumed, notes = estimator_scripts(text, name, Path(path), sources.overrides)
        scripts += [(name if not place else f"{name} ({place + 1})", one) for place, one in enumerate(commands)]
        sources.assumed += assumed
        sources.notes += notes
    elif kind == "python" and _take_starter(name, text, path, sources, scripts):
        pass
    elif kind == "python":
        sources.python_files.given.append(PythonProgram(name, text, Path(path), function))
    elif kind == "notebook":
        notebook = parse_notebook(text, name)
        scripts.append((name, notebook.commands))
        sources.written |= notebook.files
        sources.python_files.cells.append(PythonProgram(name, notebook.python, Path(path)))
    elif kind == "yaml" and is_kubernetes(text):
        manifests.append((name, text, function))
    elif kind in {"yaml", "json"} and is_vertex(text):
        _take_manifest(parse_vertex(name, text, kind), sources, scripts)
    elif kind == "yaml" and (manifest := launcher_manifest(name, text, sources.text_of)) is not None:
        _take_manifest(manifest, sources, scripts)
    elif kind == "dockerfile":
        image = parse_dockerfile(text)
        lines = [f"export {key}={quoted(value)}" for key, value in image.variables.items()]
        scripts.append((name, "\n".join([*lines, image.line(), ""])))
    elif kind in {"makefile", "justfile"}:
        sources.recipes[name] = _recipes(name, kind, text, sources), function
        scripts.append((name, ""))  # the target is chosen where all files are known
    elif kind == "markdown":
        blocks = [(f"{name} line {line}", script) for line, script in markdown_blocks(text)]
        sources.blocks |= {block for block, _ in blocks}
        scripts += blocks
    else:
        document = Document(name, kind, load_document(name, text, kind), path)
        if not _take_commands(document, sources, scripts):
            sources.documents.append(document)


def _filled(name: str, text: str, sources: Sources, *, yaml: bool) -> str:
    """Return a text with the places of a template filled in; what nothing fills in is kept, to be asked for."""
    template = fill_template(name, text, sources.overrides, yaml=yaml)
    sources.assumed += template.assumed
    sources.filled |= template.used
    if template.open:
        sources.unfilled = name, tuple(template.open)
    return template.text


def _take_manifest(manifest: LauncherManifest, sources: Sources, scripts: list[tuple[str, str]]) -> None:
    sources.written |= manifest.files
    sources.machines = manifest.machines or sources.machines
    sources.machine_type = None if sources.machines is None else sources.machines.type
    sources.assumed += manifest.assumed
    if manifest.folder and not PurePath(manifest.folder).is_absolute() and (sources.folder / manifest.folder).is_dir():
        sources.folder = sources.folder / manifest.folder
    scripts += manifest.scripts


def _follow_applied(sources: Sources) -> None:
    """Follow what manifests run that a script hands to a cluster; pods see none of the script's variables."""
    scripts: list[tuple[str, str]] = []
    for path, text in sources.applied.items():
        name = PurePath(shown(path)).name
        if is_kubernetes(text):
            _take_manifest(parse_kubernetes(name, text, sources.variables | sources.overrides), sources, scripts)
        elif (manifest := launcher_manifest(name, text, sources.text_of)) is not None:
            _take_manifest(manifest, sources, scripts)
    if scripts:
        follow_scripts(scripts, sources)


def _take_functions(name: str, text: str, path: str, sources: Sources, scripts: list[tuple[str, str]]) -> bool:
    """Take the commands that functions of Modal's start; return whether there are any."""
    functions, assumed = modal_functions(text, name, Path(path), sources.overrides)
    _take_manifest(functions, sources, scripts)
    sources.assumed += assumed if functions.scripts else []
    return bool(functions.scripts)


def _take_starter(name: str, text: str, path: str, sources: Sources, scripts: list[tuple[str, str]]) -> bool:
    """Take the commands that a Python file starts on machines or ranks; return whether it starts any."""
    if is_modal(text) and _take_functions(name, text, path, sources, scripts):
        return True
    if of_python(text) is not None:
        return False
    found = launcher_script(text, name, Path(path), sources.overrides)
    if found is not None:
        scripts.append((name, found[0]))
        sources.assumed += found[1]
    return found is not None


def _take_commands(document: Document, sources: Sources, scripts: list[tuple[str, str]]) -> bool:
    """Take the commands in a YAML of no engine and of no launcher that is known; return whether it has any.

    How many machines run them is open.
    """
    if of_document(document) is not None or unread_trainer(document.keys, dotted_keys(document.data)):
        return False
    found = [text for text in command_of_other(document.name, document.data) if COMMAND.search(text)]
    for number, text in enumerate(dict.fromkeys(found), start=1):
        scripts.append((document.name if number == 1 else f"{document.name} ({number})", text))
    if found:
        sources.assumed.append(f"{document.name}: of a launcher that is not known: its command alone is read")
    return bool(found)


def _recipes(name: str, kind: str, text: str, sources: Sources) -> Recipes:
    """Return the targets of a Makefile or justfile."""
    if kind == "justfile":
        return parse_justfile(name, text, given=sources.overrides)

    def find(path: str) -> str | None:
        beside = sources.folder / PurePath(path).name
        return read_document(str(beside))[1] if beside.is_file() else None

    return parse_makefile(name, text, given=sources.overrides, find=find)


def _function_of(item: str) -> tuple[str, str | None]:
    """Split FILE.py:FUNCTION, Makefile:TARGET, FILE.yaml:NAME of an object and, of a script, FILE:LINE."""
    path, colon, function = item.rpartition(":")
    if colon and path.endswith(".py") and function.isidentifier():
        return path, function
    if colon and re.fullmatch(r"[\w.-]+", function) and kind_of(path, "") in {"makefile", "justfile"}:
        return path, function
    if colon and re.fullmatch(r"\d{1,6}", function) and not _is_there(item) and kind_of(path, "") == "shell":
        return path, function
    if colon and path.lower().endswith((".yaml", ".yml")) and not _is_there(item):  # an object of a manifest
        return path, function
    return item, None


def _read_python(sources: Sources) -> None:
    """Read the Python file of the job, as configuration or program: the one that is started, else the one given.

    Raises InputError where several are given, or where the one has no configuration that is known.
    """
    launch = sources.launch
    program = sources.python_files.chosen(None if launch is None else launch.program, sources.written, sources.folder)
    program = program or _registry(sources)
    if launch is None and sources.programs and (program is None or of_python(program.text) is None):
        _name_started(sources)
        return
    if program is None:
        return
    engine = of_python(program.text)
    if program not in sources.python_files.given and launch is not None and engine not in {None, launch.engine}:
        return
    alone = (launch is None and not sources.documents) or (launch is not None and launch.engine == "huggingface")
    other = unread_program(program.text, engine) or (None if engine else unread_configuration(program.text))
    if alone and other is not None:
        sources.unread = sources.unread or other
        return
    if program.name not in sources.names and engine is not None:
        sources.names.append(program.name)
    environment = {} if launch is None else dict(launch.environment)
    words = {} if launch is None else flags_of(launch.arguments, dashes=False)
    flags = {key: plain_value(value) if isinstance(value, str) else value for key, value in words.items()}
    asked = next((str(flags[name]) for name in ("config", "recipe") if program.defines(flags.get(name))), None)
    function = program.function or asked
    walk = Walk(variables=environment | sources.overrides, flags=flags)
    walk.tree = _hydra(program, sources, walk)
    place: dict[str, Any] = {"where": program.name, "path": program.path, "walk": walk}
    started = launch is not None and program == sources.python_files.started_by(
        launch.program, sources.written, sources.folder
    )
    if started and launch is not None and launch.engine == "huggingface":
        _take_defaults(program, sources, place)
    if engine == "huggingface":
        _read_trainer(program, sources, place)
    elif engine is not None or launch is None:
        own = None if function or engine is None else program_config(engine, program.text, **place)
        if own is None and engine == "lightning":  # whose trainer is made where nothing follows it
            sources.unread = sources.unread or unread_program(program.text, None)
            return
        found = program not in sources.python_files.given and launch is not None
        if found and own is None and function is None and not makes_configs(program.text):
            return  # an engine's own program, which takes its configuration from the words of the command
        given = {key: plain_value(text) for key, text in sources.overrides.items()}
        name, value = own or config_of(program.text, function, given=given, **place)
        value = _inside(value, program.name, walk)
        sources.python = (program.name, name, _known(flattened(value), program.name))
        sources.python_text, sources.python_folder = program.text, program.path.resolve().parent.name
    if launch is not None and walk.taken:
        sources.launch = replace(launch, arguments=without_flags(launch.arguments, walk.taken))
    sources.assumed += walk.assumed


def _name_started(sources: Sources) -> None:
    """Name the trainer that a program at hand is on, where commands start none that is read."""
    for name in sources.programs:
        program = sources.python_files.started_by(name, sources.written, sources.folder)
        engine = None if program is None else of_python(program.text)
        if program is not None and (other := unread_program(program.text, engine)) is not None:
            sources.unread = sources.unread or other
    for word in sources.python_words:
        named = sources.python_files.started_by(word, sources.written, sources.folder)
        if named is not None and sources.unread is None:
            sources.unread = unread_program(named.text, None) or unread_configuration(named.text)


def _inside(value: Any, where: str, walk: Walk) -> Any:
    """Return the configuration that a function from elsewhere is handed and returns changed; any other as it is."""
    while isinstance(value, PythonCall) and not value.fields and value.args:
        inner = value.args[0]
        if not isinstance(inner, PythonCall) or not inner.fields:
            break
        walk.assume(f"what {value.name} changes of the configuration is not known ({where})")
        value = inner
    return value


def _known(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the settings of a Python configuration; InputError where further ones come from what nobody knows."""
    if (further := values.get("**")) is not None:
        told = (
            f"{values.get('()', 'its configuration')} takes **{shown(str(further))}, which only running the file tells"
        )
        raise InputError(f"{where}: {told}: give these settings as NAME=VALUE in a file of their own")
    return values


def _registry(sources: Sources) -> PythonProgram | None:
    """Return the registry that torchtitan's `--module NAME` means, from a checkout beside the job; None where none is.

    Source: pytorch/torchtitan:torchtitan/config/manager.py (of its models, its experiments, or a module's full name).
    """
    launch = sources.launch
    module = None if launch is None or launch.engine != "torchtitan" else flags_of(launch.arguments).get("module")
    if not isinstance(module, str) or not re.fullmatch(r"[\w.]{1,200}", module):
        return None
    inner = module.replace(".", "/")
    for folder in (f"torchtitan/models/{inner}", f"torchtitan/experiments/{inner}", inner):
        file = nearby(sources.folder, f"{folder}/config_registry.py", whole=True)
        if file is not None:
            return PythonProgram(file.name, read_document(str(file))[1], file)
    return None


def _hydra(program: PythonProgram, sources: Sources, walk: Walk) -> Callable[[str, str], PythonCall | None]:
    """Return what composes the configuration that Hydra hands to a program; its files are no documents of their own."""

    def tree(folder: str, name: str) -> PythonCall | None:
        words = [] if sources.launch is None else list(sources.launch.arguments)
        other, own = named_tree(words)
        root, name = program.path.parent / (other or folder), own or name.removesuffix(".yaml")
        find = tree_finder(root)
        if find(name) is None:
            return None
        found, assumed = compose(name, words, find, walk.variables)
        walk.assumed += assumed
        walk.composed = found
        inside = root.resolve()
        sources.documents = [
            one for one in sources.documents if not (one.path and Path(one.path).resolve().is_relative_to(inside))
        ]
        return found

    return tree


def _take_defaults(program: PythonProgram, sources: Sources, place: dict[str, Any]) -> None:
    """Add the defaults of the flags that a started program has of its own, below all that is said."""
    if sources.launch is None:
        return
    said = {key.rpartition(".")[2] for one in sources.documents for key in dotted_keys(one.data)}
    found = defaults_of_flags(PythonModule(program.text, **place), said | named_arguments(sources.launch).keys())
    if found:
        sources.documents.insert(0, Document(program.name, "python", found))
        told = ", ".join(f"{key} {value}" for key, value in found.items())
        sources.assumed.append(f"{told} (the default of the flag in {program.name})")


def _read_trainer(program: PythonProgram, sources: Sources, place: dict[str, Any]) -> None:
    """Add the TrainingArguments, or DeepSpeed's settings, of a program; InputError where the job has no settings."""
    found = trainer_settings(program.text, **place)
    if found is None and sources.launch is None and not sources.documents:
        raise InputError(f"{program.name}: makes no TrainingArguments; give the script that starts it")
    if found is not None:
        of_launcher = ("num_machines", "num_processes", "parallelism_config")  # what Accelerate's YAML says elsewhere
        ranks: dict[str, Any] = {name: found.pop(name) for name in of_launcher if name in found}
        sources.documents.insert(0, Document(program.name, "python", found))
        if ranks:
            sources.documents.append(Document(program.name, "python", ranks))
