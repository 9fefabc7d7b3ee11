"""Files of traces as streams of bytes: plain, .gz, members of a .zip, and the files of a folder in natural order.

The first bytes tell the compression. Files are unpacked as they are read; one that grows beyond `MOST_GROWTH` times
its packed size, or beyond `MOST_BYTES`, is refused at that point.
"""

import codecs
import contextlib
import gzip
import os
import re
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, cast

import msgspec

from ...errors import InputError
from ...files import natural, opened

MOST_GROWTH = 200  # times the packed size
MOST_BYTES = 64 * 2**30
CHUNK_BYTES = 4 * 2**20
MOST_FILES = 100_000
SUFFIXES = (".json", ".gz", ".zip", ".sqlite", ".et", "_results.db")
_OTHERS = re.compile(r"\.(?:tar|txt|log|out|err|csv|tsv|pkl|pickle|pt|np[yz]|xml|html|db|md|ya?ml|jsonl)\.gz$")
HANDLER = re.compile(r"\.pt\.trace\.json(?:\.gz)?$")  # what torch.profiler.tensorboard_trace_handler writes
_WORD = 4  # bytes
_SAME_AGAIN = "perfetto_trace.json.gz"  # what JAX writes for another viewer beside the trace of a host
_SESSIONS = ("plugins", "profile")  # folders of a log directory, in which each profile has one of its own
OWN_PAGES = ("-report.json", "-report.html")  # what `report` writes beside a trace
ZIP = b"PK\x03\x04"
_GZIP = b"\x1f\x8b"
_WIDE = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_MARK = b"\xef\xbb\xbf"  # of UTF-8


class NoTrace(InputError):
    """The file is whole, but holds no trace: one that was only found in a folder or an archive is set aside."""


class BesideTrace(NoTrace):
    """A file without times that a profiler writes beside its trace: set aside also where it was named with traces."""


class Source(msgspec.Struct, frozen=True):
    """One file, or one member of an archive."""

    path: Path
    member: str = ""
    folder: Path | None = None  # where it was found, when a folder was given

    def __str__(self) -> str:
        return f"{self.path}/{self.member}" if self.member else str(self.path)

    @property
    def is_named(self) -> bool:
        """Return whether the user named this very file."""
        return self.folder is None and not self.member

    @property
    def name(self) -> str:
        """Return what its rank may be told by: its path inside the folder or the archive."""
        if self.member:
            return f"{self.path.name}/{self.member}"
        return str(self.path.relative_to(self.folder)) if self.folder else str(self.path)


def trace_sources(paths: Sequence[Path]) -> list[Source]:
    """Return the files that paths mean: each folder's traces, each archive's members; InputError if there is none."""
    found: list[Source] = []
    for path in [path for path in paths if not path.name.endswith(OWN_PAGES)] or paths:
        try:
            if path.is_dir():
                inside = _of_folder(path)
                found += [source for inner in inside for source in _members(inner, path)]
            else:
                found += _members(path, None)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from None
    twice = {source for source in found if found.count(source) > 1} if len(found) < 1000 else set()
    if twice:
        raise InputError(f"{sorted(map(str, twice))[0]}: given twice")
    every = {str(source) for source in found}
    packed = sorted(name for name in every if f"{name}.gz" in every)
    if packed:
        raise InputError(f"{packed[0]} and {packed[0]}.gz: one trace, packed and not; expected one of them")
    return sorted(found, key=lambda source: natural(source.name))


def _of_folder(folder: Path) -> list[Path]:
    every: list[Path] = []
    for base, _, names in os.walk(folder):
        every += [Path(base, name) for name in names if name.endswith(SUFFIXES) and not _OTHERS.search(name)]
        if len(every) > MOST_FILES:
            raise InputError(f"{folder}: more than {MOST_FILES:,} files; expected a folder of traces")
    beside = {path.parent for path in every if path.name != _SAME_AGAIN}
    every = [path for path in every if path.name != _SAME_AGAIN or path.parent not in beside]
    _refuse_several_profiles(folder, every)
    handlers = [path for path in every if HANDLER.search(path.name)]
    kept = handlers or [path for path in every if not path.name.endswith(OWN_PAGES)]
    if not kept:
        raise NoTrace(f"{folder}: no trace in it; expected {', '.join(SUFFIXES)} or the folder of a run (plan.json)")
    return sorted(kept, key=lambda path: natural(str(path)))


def _refuse_several_profiles(folder: Path, found: Sequence[Path]) -> None:
    """Raise InputError for a log directory with profiles of several times: one host is in two of them."""
    sessions: dict[str, list[Path]] = defaultdict(list)
    for path in found:
        if path.parts[-4:-2] == _SESSIONS:
            sessions[path.name].append(path.parent)
    most = max(sessions.values(), key=len, default=[])
    if len(most) > 1:
        raise InputError(f"{folder}: {len(most)} profiles in it; expected one of them: {max(most)}")


def _members(path: Path, folder: Path | None) -> list[Source]:
    if head_of(path, 4) != ZIP:
        return [Source(path, folder=folder)]
    with _named(str(path)), zipfile.ZipFile(path) as archive:
        names = [info.filename for info in archive.infolist() if info.filename.endswith((".json", ".gz"))]
    return [Source(path, name, folder) for name in names] or [Source(path, folder=folder)]


def head_of(path: Path, count: int) -> bytes:
    """Return the first bytes of a regular file; InputError if it cannot be read."""
    with _named(str(path)), opened(path) as file:
        return file.read(count)


@contextlib.contextmanager
def _named(where: str) -> Iterator[None]:
    """Turn what the system or an unpacker says into one line that names the file."""
    try:
        yield
    except EOFError:
        raise InputError(f"{where}: the packed file is cut off; copy or export it again") from None
    except (OSError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise InputError(f"{where}: {getattr(error, 'strerror', None) or error}") from None


def pieces(source: Source) -> Iterator[bytes]:
    """Yield the bytes of a source as UTF-8, unpacked, in pieces; InputError where that cannot be."""
    made = _unpacked(source)
    first = next(made, b"")
    if first[:2] in _WIDE:
        decoder = codecs.getincrementaldecoder(_WIDE[first[:2]])("replace")
        yield decoder.decode(first[2:]).encode()
        for piece in made:
            yield decoder.decode(piece).encode()
        return
    yield first.removeprefix(_MARK)
    yield from made


def _unpacked(source: Source) -> Iterator[bytes]:
    where = str(source)
    with _named(where), contextlib.ExitStack() as stack:
        file: IO[bytes] = stack.enter_context(opened(source.path))
        packed, size = False, os.fstat(file.fileno()).st_size
        told = _last_word(file) if size > _WORD else 0
        if source.member:
            archive = stack.enter_context(zipfile.ZipFile(file))
            entry = archive.getinfo(source.member)
            size, told, packed = entry.compress_size, entry.file_size, True
            file = stack.enter_context(archive.open(source.member))
        head = file.read(len(_GZIP))
        file.seek(0)
        if head == _GZIP:
            packed, file = True, cast(IO[bytes], stack.enter_context(gzip.GzipFile(fileobj=file)))
        most = min(MOST_BYTES, max(MOST_GROWTH * size, 1)) if packed else MOST_BYTES
        if packed and told > most:  # or it is cut off: looked at before anything of it is parsed
            for _ in _held(file, most, where):
                pass
            file.seek(0)
        yield from _held(file, most, where)


def _last_word(file: IO[bytes]) -> int:
    """Return the last four bytes of a file: how much a gzip file says that its last member unpacks to, modulo 2^32."""
    file.seek(-_WORD, os.SEEK_END)
    word = int.from_bytes(file.read(_WORD), "little")
    file.seek(0)
    return word


def _held(file: IO[bytes], most: int, where: str) -> Iterator[bytes]:
    """Yield what a file holds; InputError where that is more than `most` bytes."""
    total = 0
    while piece := file.read(CHUNK_BYTES):
        total += len(piece)
        if total > most:
            raise InputError(
                f"{where}: unpacks to more than {MOST_GROWTH} times its size, or to more than "
                f"{MOST_BYTES // 2**30} GiB: refused"
            )
        yield piece
