"""Sources: the files of one job, read once: documents, the training command, Python configurations, overrides.

Files that a file names (a DeepSpeed configuration, a sourced script) are taken from those given, or from near it.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from ..errors import InputError
from .documents import Document, kind_of, load_document, read_document
from .files.manifest import JobMachines
from .files.recipes import Recipes
from .interpolation import Interpolated
from .keys import Keys, dotted_keys
from .launch import Launch, assignments_of, flags_of, named_by
from .nearby import nearby
from .programs import PythonPrograms
from .shell.marks import shown

CONFIG_SUFFIXES = (".json", ".yaml", ".yml", ".toml", ".conf")


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
    lost: list[str] = field(default_factory=list)  # flags of a script that reach no program
    folder: Path = Path()
    written: dict[str, str] = field(default_factory=dict)  # files that here-documents write
    applied: dict[str, str] = field(default_factory=dict)  # manifests that a script hands to a cluster
    python_words: list[str] = field(default_factory=list)  # Python files that its commands name
    programs: list[str] = field(default_factory=list)  # that are started and are no engine's that is known
    ranks_told: str = ""  # nodes and ranks of the first of these that a launcher of ranks starts
    called_missing: list[str] = field(default_factory=list)  # scripts that are started and are not here
    sourced_missing: list[str] = field(default_factory=list)  # scripts that are sourced and are not here
    seen_by_missing: dict[str, str] = field(default_factory=dict)  # variables that the last of these would see
    wanted: tuple[str, str] | None = None  # a trainer that a script starts, and its YAML that is not here
    unread: str | None = None  # the trainer that a script starts, where it is one that is not read
    python_files: PythonPrograms = field(default_factory=PythonPrograms)
    machines: JobMachines | None = None  # of a manifest
    machine_type: str | None = None  # an instance type, or an accelerator, that a file names
    filled: set[str] = field(default_factory=set)  # names given beside the files that fill in a template
    unfilled: tuple[str, tuple[str, ...]] | None = None  # a template, and its names that nothing gives
    part_of_gpu: str = ""  # in a file's words, where its ranks have parts of GPUs
    recipes: dict[str, tuple[Recipes, str | None]] = field(default_factory=dict)  # of files, and the target asked for
    hostfiles: dict[str, str] = field(default_factory=dict)
    blocks: set[str] = field(default_factory=set)  # names of the scripts that stand in a README
    lines: dict[str, int] = field(default_factory=dict)  # of scripts, the line of the training that is asked for
    place: int = 0  # of the training to read where a script starts several
    trainings: tuple[str, ...] = ()  # in words, where a script starts several
    rounds: tuple[str, ...] = ()  # of loops, a training each: the words of --job that name it
    of_others: set[str] = field(default_factory=set)  # configurations that its other trainings name
    arguments: dict[str, str] = field(default_factory=dict)  # of the script, not given, and its words for them
    tasks: tuple[str, ...] = ()  # of a job array whose script asks which it is: its variable, and the values

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

    def with_words(self) -> Keys:
        """Return the settings with the `key=value` words of the command on top, interpolations resolved."""
        values, origin = self.settings()
        if self.launch is not None:
            for key, text in assignments_of(self.launch.arguments).items():
                values[key], origin[key] = plain_value(text), self.launch.where
        keys = self.overridden(values, origin, self.names[0])
        return Keys(Interpolated(keys.values, self.variables, keys.where).resolved(), keys.where, sources=keys.sources)

    def overridden(self, values: dict[str, Any], sources: dict[str, str], where: str) -> Keys:
        """Return keys with the overrides that were given beside the files on top."""
        for key, text in self.given_keys.items():
            values[key] = plain_value(text)
            sources[key] = "--job"
        return Keys(values, where, sources=sources)

    def named_settings(self, flag: str) -> Keys:
        """Return the settings of a job whose launch names its file by a flag; InputError where that is not here."""
        named = None if self.launch is None else named_by(self.launch.arguments, flag)
        if named is not None and self.document(named) is None:
            raise self.absent(named)
        values, origin = self.settings()
        return self.overridden(values, origin, self.names[0])

    @property
    def given_keys(self) -> dict[str, str]:
        """The overrides that name keys of a configuration, and not variables of a script (TP=4)."""
        return {key: text for key, text in self.overrides.items() if not re.fullmatch(r"[A-Z][A-Z0-9_]*", key)}

    def absent(self, path: str) -> InputError:
        """Return the error for a configuration that a file names and that is not at hand."""
        name = PurePath(shown(path)).name
        own = self.names[0]
        return InputError(f"{own}: names {name}, which is not here: give it too (--job {as_given(own)} {name})")

    def need(self, what: str) -> InputError:
        """Return the error for settings that a launch line takes from somewhere that is not at hand."""
        return InputError(f"{self.names[0]}: takes its settings from {what}, which is not here: give it too")

    def text_of(self, path: str) -> str | None:
        """Return the text of a file that another names by its path, from near the job; None where it is not here."""
        beside = nearby(self.folder, path)
        return None if beside is None else read_document(str(beside))[1]

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
        beside = nearby(self.folder, path) if PurePath(name).suffix in CONFIG_SUFFIXES else None
        if beside is not None:
            _, text = read_document(str(beside))
            found = Document(name, kind_of(name, text), load_document(name, text, kind_of(name, text)))
            self.documents.append(found)
            self.names.append(name)
            return found
        return None


def as_given(name: str) -> str:
    """Return the words that give a file or a command line to `--job`."""
    return '"COMMAND"' if name == "command line" else name


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


def named_arguments(launch: Launch) -> dict[str, Any]:
    """Return the flags of a command with their values, under names with underscores, as argparse takes both."""
    flags = flags_of(launch.arguments, dashes=False)
    return {key.replace("-", "_"): plain_value(one) if isinstance(one, str) else one for key, one in flags.items()}
