"""Sources: the files of one job, read once: documents, the training command, Python configurations, overrides.

Files that a file names (a DeepSpeed configuration, a sourced script) are taken from those given, or from beside it.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

from ..errors import InputError
from .documents import Document, kind_of, load_document, read_document
from .keys import Keys, dotted_keys
from .justfile import parse_justfile
from .kubernetes import is_kubernetes, parse_kubernetes
from .launch import (
    Launch,
    Owner,
    flags_of,
    on_machines,
    programs_of,
    read_command,
    starts_all,
    starts_ranks,
    training_command,
    without_flags,
)
from .makefile import parse_makefile
from .manifest import Machines, Manifest, command_of_other, launcher_manifest
from .notebook import parse_notebook
from .programs import PythonProgram, PythonPrograms
from .python_calls import Walk
from .python_script import program_config, trainer_settings
from .python_static import config_of
from .python_values import flattened
from .recipes import Recipes, markdown_blocks
from .sagemaker import estimator_scripts, is_sagemaker
from .shell import follow
from .shell_marks import shown
from .shell_state import ScriptOutcome
from .signs import of_document, of_python
from .unsupported import unread_command, unread_program, unread_trainer, yaml_of_command

OVERRIDE = re.compile(r"(?:--)?([A-Za-z_][\w.\-@/]*)=(.*)", re.DOTALL)
# a command line in place of a file: what it starts is a script, a program or a launcher
COMMAND = re.compile(r"(?:^|\s)(?:\S+\.(?:sh|py|bash)|torchrun|srun|mpirun|deepspeed|accelerate)(?=\s)")
BY_FILES = frozenset({"neox", "foundry"})  # engines whose command is known by the files that it names
HOSTS = re.compile(r"(?:\s*(?:#.*|\S+\s+slots\s*=\s*\d+.*)?\n)+")
CONFIG_SUFFIXES = (".json", ".yaml", ".yml", ".toml")


@dataclass(slots=True)
class Sources:
    """All that was given for one job."""

    names: list[str] = field(default_factory=list)
    documents: list[Document] = field(default_factory=list)
    python: tuple[str, str, dict[str, Any]] | None = None  # file, function, flattened values
    python_text: str = ""
    python_folder: str = ""
    launch: Launch | None = None
    variables: dict[str, str] = field(default_factory=dict)
    overrides: dict[str, str] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    folder: Path = Path()
    written: dict[str, str] = field(default_factory=dict)  # files that here-documents write
    programs: list[str] = field(default_factory=list)  # that are started and are no engine's that is known
    called_missing: list[str] = field(default_factory=list)  # scripts that are started and are not here
    wanted: tuple[str, str] | None = None  # a trainer that a script starts, and its YAML that is not here
    unread: str | None = None  # the trainer that a script starts, where it is one that is not read
    python_files: PythonPrograms = field(default_factory=PythonPrograms)
    machines: Machines | None = None  # of a manifest
    recipes: dict[str, tuple[Recipes, str | None]] = field(default_factory=dict)  # of files, and the target asked for
    hostfiles: dict[str, str] = field(default_factory=dict)
    blocks: set[str] = field(default_factory=set)  # names of the scripts that stand in a README

    def settings(self, *, inside: str = "") -> tuple[dict[str, Any], dict[str, str]]:
        """Return the settings of the Python configuration and the documents, and the file of each; the last one counts.

        With `inside`, what stands under that key counts as standing at the top. Files that differ are noted.
        """
        values: dict[str, Any] = {}
        origin: dict[str, str] = {}
        if self.python is not None:
            values |= self.python[2]
            origin |= dict.fromkeys(self.python[2], self.python[0])
        for document in self.documents:
            for path, value in dotted_keys(document.data).items():
                key = path.removeprefix(f"{inside}.") if inside else path
                if key in values and value != values[key]:
                    self.notes.append(f"{key}: {values[key]} ({origin[key]}) gives way to {value} ({document.name})")
                values[key], origin[key] = value, document.name
        return values, origin

    def overridden(self, values: dict[str, Any], sources: dict[str, str], where: str) -> Keys:
        """Return keys with the overrides that were given beside the files on top."""
        for key, text in self.given_keys.items():
            values[key] = plain_value(text)
            sources[key] = "--job"
        return Keys(values, where, sources=sources)

    @property
    def given_keys(self) -> dict[str, str]:
        """The overrides that name keys of a configuration, and not variables of a script (TP=4)."""
        return {key: text for key, text in self.overrides.items() if not re.fullmatch(r"[A-Z][A-Z0-9_]*", key)}

    def absent(self, path: str) -> InputError:
        """Return the error for a configuration that a file names and that is not at hand."""
        name = PurePath(shown(path)).name
        own = self.names[0]
        return InputError(f"{own}: names {name}, which is not here: give it too (--job {own} {name})")

    def need(self, what: str) -> InputError:
        """Return the error for settings that a launch line takes from somewhere that is not at hand."""
        return InputError(f"{self.names[0]}: takes its settings from {what}, which is not here: give it too")

    def document(self, path: str) -> Document | None:
        """Return the configuration that a file names by its path: given, written by the script, or beside it."""
        name = PurePath(path).name
        for document in self.documents:
            if document.name == name:
                return document
        for written, text in self.written.items():
            if PurePath(written).name == name:
                found = Document(name, kind_of(name, text), load_document(name, text, kind_of(name, text)))
                self.documents.append(found)
                return found
        beside = self.folder / name
        if PurePath(name).suffix in CONFIG_SUFFIXES and beside.is_file():
            _, text = read_document(str(beside))
            found = Document(name, kind_of(name, text), load_document(name, text, kind_of(name, text)))
            self.documents.append(found)
            self.names.append(name)
            return found
        return None


def plain_value(text: str) -> Any:
    """Return what a word on a command line means as a value: a number, a switch, nothing, or itself."""
    stripped = text.strip().strip("\"'")
    lowered = stripped.lower()
    if lowered in {"true", "false"}:
        return lowered == "true"
    if lowered in {"none", "null"}:
        return None
    if re.fullmatch(r"[-+]?\d{1,18}", stripped):
        return int(stripped)
    return stripped


def gather_sources(items: Sequence[str]) -> Sources:
    """Return the sources that the words of `--job` name.

    They are files, FILE.py:FUNCTION, NAME=VALUE overrides, or a command line in one word ("bash run.sh 8 4").
    """
    sources = Sources()
    scripts: list[tuple[str, str]] = []
    for item in items:
        override = OVERRIDE.fullmatch(item)
        if override and not COMMAND.search(item) and not Path(item).exists():
            sources.overrides[override.group(1)] = override.group(2)
    for item in items:
        override = OVERRIDE.fullmatch(item)
        command = COMMAND.search(item)
        if command and not Path(item).exists():
            if not sources.names:
                sources.folder = Path(command.group(0).strip()).parent
            sources.names.append("command line")
            scripts.append(("command line", item))
        elif not override or Path(item).exists():
            _take(item, sources, scripts)
    if not sources.names:
        raise InputError("--job: expected a file, such as --job train.sh")
    _follow(scripts, sources)
    _read_python(sources)
    return sources


def _take(item: str, sources: Sources, scripts: list[tuple[str, str]]) -> None:
    path, function = _function_of(item)
    name, text = read_document(path)
    if not sources.names:
        sources.folder = Path(path).parent
    sources.names.append(name)
    kind = kind_of(name, text)
    if kind == "shell" and "slots" in text and HOSTS.fullmatch(f"{text}\n"):
        sources.hostfiles[name] = text
    elif kind == "shell":
        scripts.append((name, text))
    elif kind == "python" and is_sagemaker(text):
        commands, assumed = estimator_scripts(text, name, Path(path), sources.overrides)
        scripts += [(name if not place else f"{name} ({place + 1})", one) for place, one in enumerate(commands)]
        sources.assumed += assumed
    elif kind == "python":
        sources.python_files.given.append(PythonProgram(name, text, Path(path), function))
    elif kind == "notebook":
        notebook = parse_notebook(text, name)
        scripts.append((name, notebook.commands))
        sources.written |= notebook.files
        sources.python_files.cells.append(PythonProgram(name, notebook.python, Path(path)))
    elif kind == "yaml" and (manifest := _manifest(name, text)) is not None:
        sources.written |= manifest.files
        sources.machines = manifest.machines or sources.machines
        scripts += manifest.scripts
    elif kind in {"makefile", "justfile"}:
        sources.recipes[name] = _recipes(name, kind, text, sources), function
        scripts.append((name, ""))  # the target is chosen where all files are known
    elif kind == "markdown":
        blocks = [(f"{name} line {line}", script) for line, script in markdown_blocks(text)]
        sources.blocks |= {block for block, _ in blocks}
        scripts += blocks
    else:
        document = Document(name, kind, load_document(name, text, kind))
        sources.documents.append(document)
        _take_commands(document, sources, scripts)


def _manifest(name: str, text: str) -> Manifest | None:
    """Return what a manifest of a launcher runs, None for another YAML."""
    return parse_kubernetes(name, text) if is_kubernetes(text) else launcher_manifest(name, text)


def _take_commands(document: Document, sources: Sources, scripts: list[tuple[str, str]]) -> None:
    """Take the commands in a YAML of no engine and of no launcher that is known; how many machines run them is open."""
    if of_document(document) is not None or unread_trainer(document.keys, dotted_keys(document.data)):
        return
    found = [text for text in command_of_other(document.name, document.data) if COMMAND.search(text)]
    for number, text in enumerate(dict.fromkeys(found), start=1):
        scripts.append((document.name if number == 1 else f"{document.name} ({number})", text))
    if found:
        sources.assumed.append(f"{document.name}: of a launcher that is not known: its command alone is read")


def _recipes(name: str, kind: str, text: str, sources: Sources) -> Recipes:
    """Return the targets of a Makefile or justfile."""
    if kind == "justfile":
        return parse_justfile(name, text, given=sources.overrides)

    def find(path: str) -> str | None:
        beside = sources.folder / PurePath(path).name
        return read_document(str(beside))[1] if beside.is_file() else None

    return parse_makefile(name, text, given=sources.overrides, find=find)


def _function_of(item: str) -> tuple[str, str | None]:
    """Split FILE.py:FUNCTION and Makefile:TARGET."""
    path, colon, function = item.rpartition(":")
    if colon and path.endswith(".py") and function.isidentifier():
        return path, function
    if colon and re.fullmatch(r"[\w.-]+", function) and kind_of(path, "") in {"makefile", "justfile"}:
        return path, function
    return item, None


@dataclass(slots=True)
class _Runs:
    """The scripts of a job, followed each by itself: what they would start, and which of it trains."""

    outcomes: dict[str, ScriptOutcome] = field(default_factory=dict)
    launches: dict[str, Launch | None] = field(default_factory=dict)
    stays: set[str] = field(default_factory=set)  # scripts that leave by an `exit` before their training starts
    broken: dict[str, InputError] = field(default_factory=dict)

    @property
    def called(self) -> set[str]:
        """The scripts that others start or source: they are followed in their place there."""
        return {name for outcome in self.outcomes.values() for name in outcome.called}

    def main(self, sources: Sources) -> str | None:
        """Return the script that starts the training; InputError where two start different ones.

        Of the commands in a README, one that alone names files that are given is the one.
        """
        found = {name: launch for name, launch in self.launches.items() if launch and name not in self.called}
        if len(found) > 1 and found.keys() <= sources.blocks:
            given = {*sources.names, *map(str, sources.written)}
            named = {
                name: launch
                for name, launch in found.items()
                if any(PurePath(word.rpartition("=")[2]).name in given for word in launch.arguments)
            }
            if len({(launch.program, launch.arguments) for launch in named.values()}) == 1:
                left = [name for name in found if name not in named]
                sources.assumed += [f"{name}: names files that are not given, and is passed over" for name in left]
                for name in left:
                    del self.outcomes[name]
                found = named
        if len({(launch.program, launch.arguments) for launch in found.values()}) > 1:
            raise InputError(f"{' and '.join(found)} both start a training; expected one")
        return next(iter(found), None)


def _follow(scripts: Sequence[tuple[str, str]], sources: Sources) -> None:
    """Follow the scripts: scripts that start no training set variables for the one that does."""
    find = _finder(scripts, sources)
    runs = _Runs()
    scripts = [one for name, text in scripts for one in _chosen(name, text, find, sources)]

    def tried(name: str, text: str, *, stay: bool = False) -> tuple[ScriptOutcome, Launch | None]:
        outcome = follow(text, where=name, given=sources.overrides, find=find, stay=stay)
        return outcome, training_command(outcome.started, name, _owner(sources, outcome))

    for name, text in scripts:
        try:
            outcome, launch = tried(name, text)
            runs.outcomes[name] = outcome
            if launch is None and not outcome.called_missing:
                _, launch = tried(name, text, stay=True)
                runs.stays |= {name} if launch is not None else set()
            runs.launches[name] = launch
        except InputError as error:
            runs.broken[name] = error
    for name, _ in scripts:
        if name in runs.broken and name not in runs.called | sources.blocks:
            raise runs.broken[name]
    main, owner = runs.main(sources), None
    if main is None and runs.broken.keys() & sources.blocks:
        raise next(iter(runs.broken.values()))
    if main is None and (adopted := _adopted(runs, sources)) is not None:
        main, owner = adopted
    settings = [(name, text) for name, text in scripts if name != main and name not in runs.called]
    if main is not None:
        stay = main in runs.stays
        alone = [one for one in settings if not runs.launches.get(one[0])]
        text = dict(scripts)[main]
        outcome = follow(text, where=main, given=sources.overrides, find=find, before=alone, stay=stay)
        sources.launch = training_command(outcome.started, main, owner or _owner(sources, outcome))
        _keep(outcome, sources)
    else:
        for name, _ in settings:
            if name in runs.outcomes:
                _keep(runs.outcomes[name], sources)
    if sources.launch is not None and sources.machines is not None:
        sources.launch = on_machines(sources.launch, sources.machines)
    _note_commands(runs, sources)


def _chosen(
    name: str, text: str, find: Callable[[str], str | None], sources: Sources
) -> list[tuple[str, str]]:
    """Return a script, of a file with several the one of the target that is asked for, else of the first that trains.

    Raises InputError where the first target starts no training and several others do.
    """
    if name not in sources.recipes:
        return [(name, text)]
    recipes, asked = sources.recipes[name]
    sources.assumed += recipes.assumed
    if asked is not None:
        if asked not in recipes.scripts:
            told = ", ".join(recipes.scripts) or "none"
            raise InputError(f"{name}: no target {asked!r} with commands (there are: {told})")
        return [(name, recipes.scripts[asked])]

    def trains(target: str) -> bool:
        outcome = follow(recipes.scripts[target], where=name, given=sources.overrides, find=find)
        owner = _owner(sources, outcome)
        return any(read_command(one, owner) is not None or starts_all(one) for one in outcome.started)

    if recipes.first in recipes.scripts and trains(recipes.first):
        return [(name, recipes.scripts[recipes.first])]
    found = [target for target in recipes.scripts if trains(target)]
    if len({recipes.scripts[target] for target in found}) > 1:
        raise InputError(f"{name}: targets {', '.join(found)} start trainings: say which, as --job {name}:{found[0]}")
    if found:
        sources.assumed.append(f"{name}: its target {found[0]}, the one that starts a training")
    return [(name, recipes.scripts[found[0] if found else recipes.first])] if found or recipes.first in recipes.scripts else []


def _finder(scripts: Sequence[tuple[str, str]], sources: Sources) -> Callable[[str], str | None]:
    """Return what finds a script by its path: among the given ones, the written ones, and the ones beside them."""

    def find(path: str) -> str | None:
        name = PurePath(shown(path)).name
        for known, text in [*scripts, *((PurePath(written).name, text) for written, text in sources.written.items())]:
            if known == name:
                return text
        beside = sources.folder / name
        if name.endswith((".sh", ".bash", ".env", ".slurm", ".sbatch")) and beside.is_file():
            if name not in sources.names:
                sources.names.append(name)
            return read_document(str(beside))[1]
        return None

    return find


def _owner(sources: Sources, outcome: ScriptOutcome) -> Owner:
    return sources.python_files.owner(sources.written | outcome.documents, sources.folder, sources.documents)


def _adopted(runs: _Runs, sources: Sources) -> tuple[str, Owner] | None:
    """Return the script whose program, of no engine by its name, runs the configuration given beside it, and that rule.

    None unless the files are of one engine and one program alone is started on all ranks.
    """
    given = sources.python_files.engine(sources.documents)
    if given is None:
        return None
    engine, file = given
    found = {
        (launch.program, launch.arguments): name
        for name, outcome in runs.outcomes.items()
        if name not in runs.called
        for one in outcome.started
        if (launch := read_command(one, lambda program, arguments: engine)) is not None
        and (starts_ranks(launch, one) or (sources.machines is not None and sources.machines.starts_ranks))
    }
    if len(found) != 1:
        return None
    (((program, _), name),) = found.items()
    sources.assumed.append(f"{shown(program)}, which {name} starts, is taken for what trains with {file}")
    return name, lambda own, arguments: engine if own == program else None


def _note_commands(runs: _Runs, sources: Sources) -> None:
    """Note what the scripts start beside a training that is known."""
    outcomes = runs.outcomes.values()
    sources.called_missing = [name for outcome in outcomes for name in outcome.called_missing]
    commands = [one.words for outcome in outcomes for one in outcome.started]
    if sources.launch is None or sources.launch.engine not in BY_FILES:
        sources.unread = next((told for words in commands if (told := unread_command(words))), None)
    for words in commands:
        found = yaml_of_command(words)
        flags_alone = found is not None and "." not in found[1] and any(word.startswith("--") for word in words)
        if found is not None and sources.document(found[1]) is None and not (sources.launch and flags_alone):
            sources.wanted = sources.wanted or found
    sources.programs = list(dict.fromkeys(name for outcome in outcomes for name in programs_of(outcome.started)))
    if sources.launch is None and sources.programs and (sources.documents or sources.python_files.given):
        told = ", ".join(sources.programs[:3])
        sources.assumed.append(f"{told}: started beside the configuration, and taken to change nothing of it")


def _keep(outcome: ScriptOutcome, sources: Sources) -> None:
    sources.variables |= {key: value for key, value in outcome.variables.items() if isinstance(value, str)}
    sources.written |= outcome.documents
    sources.assumed += outcome.assumed
    for path in dict.fromkeys(outcome.sourced_missing):
        sources.assumed.append(f"{path} is sourced but is not here: its variables are taken as not set")


def _read_python(sources: Sources) -> None:
    """Read the Python file of the job, as configuration or program: the one that is started, else the one given.

    Raises InputError where several are given, or where the one has no configuration that is known.
    """
    launch = sources.launch
    program = sources.python_files.chosen(None if launch is None else launch.program, sources.written, sources.folder)
    if program is None:
        return
    engine = of_python(program.text)
    if program not in sources.python_files.given and launch is not None and engine not in {None, launch.engine}:
        return
    alone = (launch is None and not sources.documents) or (launch is not None and launch.engine == "huggingface")
    if engine is None and alone and (other := unread_program(program.text)) is not None:
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
    place: dict[str, Any] = {"where": program.name, "path": program.path, "walk": walk}
    if engine == "huggingface":
        _read_trainer(program, sources, place)
    elif engine is not None or launch is None:
        own = None if function or engine is None else program_config(engine, program.text, **place)
        given = {key: plain_value(text) for key, text in sources.overrides.items()}
        name, value = own or config_of(program.text, function, given=given, **place)
        sources.python = (program.name, name, flattened(value))
        sources.python_text, sources.python_folder = program.text, program.path.resolve().parent.name
    if launch is not None and walk.taken:
        sources.launch = replace(launch, arguments=without_flags(launch.arguments, walk.taken))
    sources.assumed += walk.assumed


def _read_trainer(program: PythonProgram, sources: Sources, place: dict[str, Any]) -> None:
    """Add the TrainingArguments, or DeepSpeed's settings, of a program; InputError where the job has no settings."""
    found = trainer_settings(program.text, **place)
    if found is None and sources.launch is None and not sources.documents:
        raise InputError(f"{program.name}: makes no TrainingArguments; give the script that starts it")
    if found is not None:
        ranks = found.pop("num_processes", None)
        sources.documents.insert(0, Document(program.name, "python", found))
        if ranks is not None:
            sources.documents.append(Document(program.name, "python", {"num_machines": 1, "num_processes": ranks}))
