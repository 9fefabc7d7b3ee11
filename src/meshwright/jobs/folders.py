"""Folders in place of a file: the one file in it that starts a training, else the one configuration of an engine."""

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

from ..errors import InputError
from .documents import KINDS, Document, kind_of, load_document, read_document
from .programs import CONFIGURATIONS
from .signs import kind_of_document, of_document
from .sources import Sources

SCRIPTS = frozenset({".sh", ".bash", ".slurm", ".sbatch", ".pbs", ".oar", ".lsf"})
# the first line of a script whatever its name, or what it asks a batch system for
OF_SCRIPT = re.compile(rb"#!\S*[/ ](?:env +)?(?:ba|z|k|da)?sh\b|#(?:SBATCH|PBS|BSUB|OAR|FLUX|COBALT)[ \t:]")
HEAD_BYTES = 4096
SETTINGS = re.compile(r"env_vars(?:\.sh)?|(?:[\w.-]*\.)?env")
MOST_FILES = 200
MOST_NAMED = 4  # configurations in a message


def is_folder(item: str) -> bool:
    """Whether a word of `--job` names a folder; a command line may be longer than any name."""
    try:
        return Path(item).is_dir()
    except OSError:
        return False


def settings_of_folder(folder: str) -> list[str]:
    """Return the files of a folder that hold variables alone, by their names."""
    return [str(path) for path in sorted(Path(folder).iterdir()) if path.is_file() and SETTINGS.fullmatch(path.name)]


def configurations_of_folder(folder: Path) -> list[str]:
    """Return the first configurations of trainings in a folder and those in it, by their paths from there.

    Files of DeepSpeed and of Accelerate, which others name, are none.
    """
    found: list[str] = []
    paths = [path for pattern in ("*", "*/*") for path in sorted(folder.glob(pattern)) if path.suffix in CONFIGURATIONS]
    for path in paths[:MOST_FILES]:
        with contextlib.suppress(InputError, OSError):  # broken, too large, or no text: nobody asked for it
            name, text = read_document(str(path))
            document = Document(name, kind_of(name, text), load_document(name, text, kind_of(name, text)))
            if of_document(document) and kind_of_document(document) not in {"deepspeed", "accelerate"}:
                found.append(path.relative_to(folder).as_posix())
    return found[:MOST_NAMED]


def file_of_folder(folder: str, gather: Callable[[str], Sources], is_engines: Callable[[Sources], bool]) -> str:
    """Return the path of the file in a folder that is its job; InputError where none is, or several are.

    `gather` reads the sources of a file, `is_engines` says whether a reader knows them. What another file calls or
    names is no job of its own; a file that starts a program of no engine is told as the job that it would be.
    """
    found: dict[str, Sources] = {}
    broken: dict[str, InputError] = {}
    for path in _files(Path(folder)):
        try:
            found[str(path)] = gather(str(path))
        except InputError as error:
            broken[path.name] = error
    starting = {path: sources for path, sources in found.items() if sources.launch is not None}
    known = starting or {path: sources for path, sources in found.items() if is_engines(sources)}
    known = known or {path: sources for path, sources in found.items() if sources.unread or sources.programs}
    named = {name for path, sources in known.items() for name in sources.names if name != Path(path).name}
    left = [path for path in known if Path(path).name not in named]
    if len(left) == 1:
        return left[0]
    if left:
        told = ", ".join(Path(path).name for path in left)
        what = "start trainings" if starting else "are configurations"
        raise InputError(f"{folder}: is a folder, in which {told} {what}: expected one of them")
    if broken:
        raise InputError(f"{folder}: is a folder, expected a file; of those in it, {next(iter(broken.values()))}")
    told = ", ".join(Path(path).name for path in found) or "none"
    raise InputError(f"{folder}: is a folder, and none of its files starts a training that is known ({told})")


def _is_script(path: Path) -> bool:
    """Whether a file of any name begins as a script of a shell, or asks a batch system for nodes."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return False
    return any(OF_SCRIPT.match(line) for line in head.splitlines())


def _files(folder: Path) -> list[Path]:
    """Return the files of a folder that may be or may start a training, those of folders in it left out."""
    kinds = {*KINDS, *SCRIPTS}
    found = [
        path
        for path in sorted(folder.iterdir())
        if path.is_file()
        and not path.name.startswith(".")
        and ({path.suffix.lower(), path.name.lower()} & kinds or _is_script(path))
        and not SETTINGS.fullmatch(path.name)
    ]
    if len(found) > MOST_FILES:
        raise InputError(f"{folder}: is a folder of more than {MOST_FILES} files, expected one of them")
    return found
