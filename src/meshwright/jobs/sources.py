"""Sources: the files of one job, read once: documents, the training command, Python configurations, overrides.

Files that a file names (a DeepSpeed configuration, a sourced script) are taken from those given, or from beside it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from ..errors import InputError
from .documents import kind_of, load_document, read_document
from .keys import Keys, dotted_keys
from .launch import Launch, programs_of, training_command
from .python_static import config_of, flattened
from .shell import follow
from .shell_marks import shown
from .shell_state import ScriptOutcome
from .unsupported import unread_command, yaml_of_command

OVERRIDE = re.compile(r"(?:--)?([A-Za-z_][\w.\-@/]*)=(.*)", re.DOTALL)
# a command line in place of a file: what it starts is a script, a program or a launcher
COMMAND = re.compile(r"(?:^|\s)(?:\S+\.(?:sh|py|bash)|torchrun|srun|mpirun|deepspeed|accelerate)(?=\s)")
CONFIG_SUFFIXES = (".json", ".yaml", ".yml", ".toml")


@dataclass(frozen=True, slots=True)
class Document:
    """One configuration file as plain data."""

    name: str
    kind: str  # yaml, json, toml
    data: dict[str, Any]

    @property
    def keys(self) -> frozenset[str]:
        """The names of its first level."""
        return frozenset(self.data)


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
    return sources


def _take(item: str, sources: Sources, scripts: list[tuple[str, str]]) -> None:
    path, function = _function_of(item)
    name, text = read_document(path)
    if not sources.names:
        sources.folder = Path(path).parent
    sources.names.append(name)
    kind = kind_of(name, text)
    if kind == "shell":
        scripts.append((name, text))
    elif kind == "python":
        if sources.python is not None:
            raise InputError(f"{name}: a second Python configuration beside {sources.python[0]}; expected one")
        given = {key: plain_value(text) for key, text in sources.overrides.items()}
        found, value, assumed = config_of(text, function, where=name, path=Path(path), given=given)
        sources.python = (name, found, flattened(value))
        sources.python_text, sources.python_folder = text, Path(path).resolve().parent.name
        sources.assumed += assumed
    else:
        sources.documents.append(Document(name, kind, load_document(name, text, kind)))


def _function_of(item: str) -> tuple[str, str | None]:
    """Split FILE.py:FUNCTION."""
    path, colon, function = item.rpartition(":")
    if colon and path.endswith(".py") and function.isidentifier():
        return path, function
    return item, None


def _follow(scripts: Sequence[tuple[str, str]], sources: Sources) -> None:
    """Follow the scripts: scripts that start no training set variables for the one that does."""

    def find(path: str) -> str | None:
        name = PurePath(shown(path)).name
        for known, text in scripts:
            if known == name:
                return text
        beside = sources.folder / name
        if name.endswith((".sh", ".bash", ".env", ".slurm", ".sbatch")) and beside.is_file():
            if name not in sources.names:
                sources.names.append(name)
            return read_document(str(beside))[1]
        return None

    outcomes: dict[str, ScriptOutcome] = {}
    launches: dict[str, Launch | None] = {}
    broken: dict[str, InputError] = {}
    stays: set[str] = set()  # scripts that leave by an `exit` before their training starts
    for name, text in scripts:
        try:
            outcomes[name] = follow(text, where=name, given=sources.overrides, find=find)
            launches[name] = training_command(outcomes[name].started, name)
            if launches[name] is None and not outcomes[name].called_missing:
                further = follow(text, where=name, given=sources.overrides, find=find, stay=True)
                launches[name] = training_command(further.started, name)
                stays |= {name} if launches[name] is not None else set()
        except InputError as error:
            broken[name] = error
    called = {name for outcome in outcomes.values() for name in outcome.called}
    for name, _ in scripts:
        if name in called:  # followed by the script that starts or sources it, in its place there
            launches.pop(name, None)
        elif name in broken:
            raise broken[name]
    main = [name for name, launch in launches.items() if launch is not None]
    if len(main) > 1:
        raise InputError(f"{' and '.join(main)} both start a training; expected one")
    settings = [(name, text) for name, text in scripts if name not in main and name not in called]
    sources.called_missing = [name for outcome in outcomes.values() for name in outcome.called_missing]
    commands = [one.words for outcome in outcomes.values() for one in outcome.started]
    sources.unread = next((told for words in commands if (told := unread_command(words))), None)
    for words in commands:
        if (found := yaml_of_command(words)) is not None and sources.document(found[1]) is None:
            sources.wanted = sources.wanted or found
    sources.programs = list(
        dict.fromkeys(name for outcome in outcomes.values() for name in programs_of(outcome.started))
    )
    if main:
        text = dict(scripts)[main[0]]
        stay = main[0] in stays
        outcome = follow(text, where=main[0], given=sources.overrides, find=find, before=settings, stay=stay)
        sources.launch = training_command(outcome.started, main[0])
        _keep(outcome, sources)
    else:
        for name, _ in settings:
            _keep(outcomes[name], sources)


def _keep(outcome: ScriptOutcome, sources: Sources) -> None:
    sources.variables |= {key: value for key, value in outcome.variables.items() if isinstance(value, str)}
    sources.written |= outcome.documents
    sources.assumed += outcome.assumed
    for path in dict.fromkeys(outcome.sourced_missing):
        sources.assumed.append(f"{path} is sourced but is not here: its variables are taken as not set")
