"""Python programs of a job: the files given, the ones that its scripts or notebooks write, and the ones beside it."""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from ..errors import InputError
from .documents import Document, kind_of, load_document, read_document
from .nearby import nearby
from .shell.marks import shown
from .signs import is_fit, of_document, of_python

CONFIGURATIONS = frozenset({".yaml", ".yml", ".json", ".toml"})


@dataclass(frozen=True, slots=True)
class PythonProgram:
    """A Python file, with the function that the reader asks for."""

    name: str
    text: str
    path: Path
    function: str | None = None

    def defines(self, name: object) -> bool:
        """Whether the file has a function of this name."""
        return isinstance(name, str) and re.search(rf"^def {re.escape(name)}\(", self.text, re.MULTILINE) is not None


@dataclass(slots=True)
class PythonPrograms:
    """The Python files of a job, and which of them a command starts."""

    given: list[PythonProgram] = field(default_factory=list)
    cells: list[PythonProgram] = field(default_factory=list)  # of notebooks: read where nothing else is started

    def started_by(self, program: str, written: Mapping[str, str], folder: Path) -> PythonProgram | None:
        """Return the file that a command starts, None where it is not at hand."""
        name = PurePath(shown(program)).name
        if not name.endswith(".py"):
            return None
        for one in self.given:
            if one.name == name:
                return one
        for path, text in written.items():
            if PurePath(shown(path)).name == name:
                return PythonProgram(name, text, folder / name)
        beside = nearby(folder, program)
        if beside is not None:
            with contextlib.suppress(InputError):  # too large, or no text: nobody asked for it
                return PythonProgram(name, read_document(str(beside))[1], beside)
        return None

    def chosen(self, started: str | None, written: Mapping[str, str], folder: Path) -> PythonProgram | None:
        """Return the file to read: the one that is started, else the one that is given; None where there is none.

        Raises InputError where several are given and none of them is started.
        """
        program = None if started is None else self.started_by(started, written, folder)
        known = [one for one in self.given if of_python(one.text) is not None]
        if program is not None and (of_python(program.text) is not None or not known):
            return program
        if len(self.given) > 1 and len(known) != 1:
            raise InputError(
                f"{self.given[1].name}: a second Python configuration beside {self.given[0].name}; expected one"
            )
        return next(iter([*known, *self.given, *(self.cells if started is None else [])]), None)

    def owner(
        self, written: Mapping[str, str], folder: Path, documents: Sequence[Document]
    ) -> Callable[[str, Sequence[str]], str | None]:
        """Return what knows the engine of a command: by the program that it starts, else by a file that it names.

        A file that nobody gave counts where the command is a launcher of ranks, which the rule gets as the program:
        what prepares data reads the configuration too.
        """

        def engine(program: str, arguments: Sequence[str]) -> str | None:
            if is_fit(arguments):
                return "lightning"
            file = self.started_by(program, written, folder)
            own = None if file is None else of_python(file.text)
            if own is not None:
                return own
            named = {PurePath(shown(word.rpartition("=")[2])).name for word in arguments}
            named |= {f"{word}.yml" for word in named}  # as GPT-NeoX takes them
            found = [of_document(one) for one in documents if one.name in named]
            found += [_engine_of(text, path) for path, text in written.items() if PurePath(path).name in named]
            beside = _beside(folder, arguments) if program else ()
            return next(filter(None, [*found, *beside]), None)

        return engine

    def engine(self, documents: Sequence[Document]) -> tuple[str, str] | None:
        """Return the one engine of the files that are given and one of them, None where they are of none or several."""
        found = {one.name: of_python(one.text) for one in self.given}
        found |= {one.name: of_document(one) for one in documents}
        engines = {engine for engine in found.values() if engine is not None}
        if len(engines) != 1:
            return None
        return engines.pop(), next(name for name, engine in found.items() if engine is not None)


def _beside(folder: Path, words: Sequence[str]) -> Iterator[str | None]:
    """Yield the engine of each configuration that words of a command name and that is at hand.

    GPT-NeoX's may stand in a folder that a flag says, and lack their suffix.
    """
    places = [words[at + 1] for at, word in enumerate(words[:-1]) if word in {"-d", "--conf_dir"}]
    paths = [shown(word.rpartition("=")[2]) for word in words]
    inside = [f"{place}/{path.removesuffix('.yml')}.yml" for place in places for path in paths]
    for path in [*paths, *inside]:
        if PurePath(path).suffix in CONFIGURATIONS and (file := nearby(folder, path)) is not None:
            with contextlib.suppress(InputError):  # too large, or no text: nobody asked for it
                yield _engine_of(read_document(str(file))[1], file.name)


def _engine_of(text: str, path: str) -> str | None:
    """Return the engine of a configuration that a job writes, None for a file of another kind or a broken one."""
    name = PurePath(path).name
    kind = kind_of(name, text)
    if kind not in {"yaml", "json", "toml"}:
        return None
    with contextlib.suppress(InputError):
        return of_document(Document(name, kind, load_document(name, text, kind)))
    return None
