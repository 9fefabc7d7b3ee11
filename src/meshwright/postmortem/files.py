"""Files and folders of a job: which are read, what their paths say, and the text or bytes that are in them."""

import functools
import gzip
import os
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from msgspec.structs import replace

from ..errors import InputError
from ..files import WRITTEN_FIRST, as_utf8, natural, opened
from .archives import is_archive
from .text.lines import FileHint, hint_of

MOST_BYTES = 64 * 2**20  # of one file; of a larger one the head and the end are read, where identities and faults are
HEAD_BYTES = 4 * 2**20
MOST_FILES = 20_000
_CHUNK_BYTES = 2**20
_COUNTED = re.compile(
    r"(?P<head>.*?(?<![a-z])(?:gpu|proc|process|trainer|worker|task|err|out|stderr|stdout)[._-]?)(?P<number>\d{1,4})"
    r"(?P<tail>(?:\.[a-z]+)*)",
    re.IGNORECASE,
)
_LOCAL_IN_NAME = re.compile(r"local[_-]?rank[_-]?(?P<number>\d+)", re.IGNORECASE)
_LOCAL_LABEL = re.compile(rb"^\[(?:default|trainer|worker)(\d+)\]:", re.MULTILINE)
_VARIABLE = re.compile(rb"(?<![A-Z_])(RANK|LOCAL_RANK|WORLD_SIZE)(?:=|: ?)[\"']?(\d{1,6})\b", re.IGNORECASE)
_OWN_RANK = re.compile(rb"(?<![A-Z_])RANK(?:=|: ?)[\"']?(\d{1,6})\b")
_Head = Callable[[Path], bytes]  # the first bytes of a log, which several questions read
_ENVIRONMENT = re.compile(rb"(?:[A-Za-z_][\w%()]*=[^\0]*\0)+")
_BEGINNING_BYTES = 2**16
_MOST_LABELLED = 256
_MASTER = re.compile(r"master|chief|launcher|head", re.IGNORECASE)
_FEW = 2  # files of which none may be left out
_SKIPPED = {
    *(".html", ".png", ".pt", ".pth", ".bin", ".safetensors", ".so", ".py", ".pyc", ".nsys-rep", ".sqlite"),
}


def files_of(paths: Sequence[Path]) -> list[Path]:
    """Return the files of paths, those of folders with all that is below them but hidden ones; each once."""
    found: dict[Path, Path] = {}
    for path in paths:
        for file in _below(path):
            found.setdefault(file.resolve(), file)
    return list(found.values())


def _below(path: Path) -> list[Path]:
    if not path.exists():
        piped = WRITTEN_FIRST if str(path) == "-" else ""
        raise InputError(f"{path}: no such file or folder{piped}; expected logs, stacks or flight records")
    if not path.is_dir():
        return [path]
    found = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted((name for name in folders if not name.startswith(".")), key=natural)
        found += [Path(folder) / name for name in sorted(names, key=natural) if not name.startswith(".")]
        if len(found) > MOST_FILES:
            raise InputError(f"{path}: more than {MOST_FILES} files; expected the folder of one job's logs")
    return [file for file in found if is_log(file) and not (is_archive(file) and file.stat().st_size > MOST_BYTES)]


def is_log(path: Path) -> bool:
    """Whether a file of a folder may be a log, by its name."""
    return path.suffix not in _SKIPPED


def short_names(files: Sequence[Path]) -> dict[Path, str]:
    """Return the files' names without the folders that all share."""
    if not files:
        return {}
    shared = Path(os.path.commonpath([file.absolute().parent for file in files]))
    return {file: str(file.absolute().relative_to(shared)) for file in files}


def hints_of(files: Sequence[Path]) -> dict[Path, FileHint]:
    """Return what each path says; torchrun's folders count ranks on each host, so those of several hosts say none."""
    hints, head = {file: hint_of(file) for file in files}, functools.cache(beginning)
    alike: dict[tuple[int | None, int | None, str], list[Path]] = defaultdict(list)
    for file, hint in hints.items():
        if hint.rank is not None and file.parent.name == str(hint.rank):
            alike[hint.attempt, hint.rank, file.name].append(file)
    if any(len(found) > 1 for found in alike.values()):
        for found in alike.values():
            hints |= {file: replace(hints[file], rank=None, is_local=True) for file in found}
    silent = [file for file, hint in hints.items() if hint.rank is None and not hint.is_local]
    environments = _environments(silent, head)
    hints |= {file: replace(hints[file], rank=rank) for file, rank in _own_ranks(environments).items()}
    for file in _counted_on_hosts(hints):
        hints[file] = replace(hints[file], rank=None, is_local=True)
    guessed = {} if any(hint.rank is not None or hint.is_local for hint in hints.values()) else _guessed(files)
    several = _with_several_ranks([file for file in files if hints[file].rank is not None or file in guessed], head)
    hints |= {file: replace(hints[file], rank=None, has_several=True) for file in several}
    for file in _with_local_labels([file for file, hint in hints.items() if hint.rank is None], head):
        hints[file] = replace(hints[file], is_local=True)
    is_known = bool(several) or any(hint.rank is not None or hint.is_local for hint in hints.values())
    if not is_known and all(guessed.get(file, one.rank) == one.rank for file, one in environments.items()):
        hints |= {file: replace(hints[file], rank=rank, is_guess=True) for file, rank in guessed.items()}
    return hints


def _counted_on_hosts(hints: Mapping[Path, FileHint]) -> list[Path]:
    """Return the files named after a rank on a host (`n0_local_rank3.txt`), where names show that of several hosts."""
    named = {file: found for file, hint in hints.items() if hint.rank is not None and (found := _local_in(file))}
    alike: dict[tuple[str, str, str], set[Path]] = defaultdict(set)
    for file, (head, number, tail) in named.items():
        alike[re.sub(r"\d+", "#", f"{file.parent}/{head}"), number, tail].add(file)
    return list(named) if any(len(found) > 1 for found in alike.values()) else []


def _local_in(file: Path) -> tuple[str, str, str] | None:
    """Return the name of a file before, in and behind the number of a rank on its host, None where it has none."""
    named = _LOCAL_IN_NAME.search(file.name)
    return (file.name[: named.start()], named["number"], file.name[named.end() :]) if named else None


def _with_local_labels(files: Sequence[Path], head: _Head) -> set[Path]:
    """Return the logs whose lines bear one rank of a host (`[default0]:`) that another log's bear too: of two hosts."""
    seen: dict[bytes, set[Path]] = defaultdict(set)
    for file in files if 1 < len(files) <= _MOST_LABELLED else ():
        for label in set(_LOCAL_LABEL.findall(head(file))):
            seen[label].add(file)
    return {file for found in seen.values() if len(found) > 1 for file in found}


def _with_several_ranks(files: Sequence[Path], head: _Head) -> list[Path]:
    """Return the logs that each print the RANK of several processes: the number in the name counts something else."""
    return [file for file in files[:_MOST_LABELLED] if len(set(_OWN_RANK.findall(head(file)))) > 1]


def beginning(file: Path) -> bytes:
    """Return the first bytes of a log, none of one that cannot be read: it is read again, and refused by name."""
    try:
        with opened(file) as log:
            return log.read(_BEGINNING_BYTES)
    except (OSError, InputError):
        return b""


class _Environment(NamedTuple):
    """The rank of a process by its variables, its number on its host, and how many ranks there are."""

    rank: int
    local: int
    world: int


def _environments(files: Sequence[Path], head: _Head) -> dict[Path, _Environment]:
    """Return the environments of the logs that each print that of one process."""
    found: dict[Path, _Environment] = {}
    for file in files if 1 < len(files) <= _MOST_LABELLED else ():
        values: dict[bytes, set[int]] = {b"RANK": set(), b"LOCAL_RANK": set(), b"WORLD_SIZE": set()}
        for one in _VARIABLE.finditer(head(file)):
            values[one[1].upper()].add(int(one[2]))
        if all(len(told) == 1 for told in values.values()):
            own = _Environment(*(told.pop() for told in values.values()))
            found |= {file: own} if own.rank < own.world else {}
    return found


def _own_ranks(environments: Mapping[Path, _Environment]) -> dict[Path, int]:
    """Return the ranks of logs that print the environment of one process, where each is a rank's own log.

    They are where all ranks of the job have one, or two first processes of hosts have ranks in a row: a host has one.
    """
    ranks = [one.rank for one in environments.values()]
    worlds = {one.world for one in environments.values()}
    firsts = {one.rank for one in environments.values() if one.local == 0}
    if len(worlds) != 1 or len(set(ranks)) < len(ranks):
        return {}
    is_own = len(ranks) in worlds or any(rank + 1 in firsts for rank in firsts)
    return {file: one.rank for file, one in environments.items()} if is_own else {}


def _guessed(files: Sequence[Path]) -> dict[Path, int]:
    """Return the ranks of files that are named alike but for a number, one for each from 0 on, one at most left out.

    Not where that one is 0: people count from 1, too.

    The folder of a job that has a master as well counts its workers from another rank; several folders of such files
    count on several hosts.
    """
    if any(_MASTER.search(file.name) for file in files):
        return {}
    alike: dict[tuple[str, str], dict[Path, int]] = defaultdict(dict)
    for file in files:
        if named := _COUNTED.fullmatch(file.name):
            alike[named["head"].lower(), named["tail"]][file] = int(named["number"])
    found: dict[Path, int] = {}
    for numbers in alike.values():
        size = max(numbers.values()) + 1
        alone = len({file.parent for file in numbers}) == 1 and len(set(numbers.values())) == len(numbers)
        if alone and len(numbers) > 1 and 0 in numbers.values() and size - len(numbers) <= (1 if size > _FEW else 0):
            found |= numbers
    return found


def _in_lines(data: bytes) -> bytes:
    """Return the environment of a process as the kernel has it (`/proc/PID/environ`), a variable a line."""
    return data.replace(b"\0", b"\n") if b"\0" in data and _ENVIRONMENT.fullmatch(data) else data


def content(path: Path) -> list[tuple[int, bytes]]:
    """Return the parts of a file, each after its first line's number: one, or the head and the end of a large one."""
    try:
        with opened(path) as file:
            if path.suffix == ".gz":
                with gzip.GzipFile(fileobj=file) as packed:
                    return [(1, as_utf8(packed.read(MOST_BYTES)))]
            size = os.fstat(file.fileno()).st_size
            if size <= MOST_BYTES:
                return [(1, _in_lines(as_utf8(file.read())))]
            head = file.read(HEAD_BYTES).rpartition(b"\n")[0] + b"\n"
            file.seek(len(head))
            skipped = sum(chunk.count(b"\n") for chunk in _until(file, size - MOST_BYTES + HEAD_BYTES))
            begun = file.readline()  # the rest of a line
            return [(1, head), (1 + head.count(b"\n") + skipped + begun.count(b"\n"), file.read())]
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _until(file: IO[bytes], end: int) -> Iterator[bytes]:
    while (left := end - file.tell()) > 0 and (chunk := file.read(min(_CHUNK_BYTES, left))):
        yield chunk
