"""Archives of logs (.zip, .tar, .tar.gz, .tgz) as the files that are in them, unpacked for as long as they are read.

What is no regular file, is hidden, has a name that leads out of the archive, or is an archive itself, is left in it.
"""

import contextlib
import lzma
import re
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from ..errors import InputError
from ..files import opened
from ..temporary import process_folder

MOST_BYTES = 2**30  # of all that is unpacked
MOST_MEMBERS = 20_000
_SUFFIX = re.compile(r"\.(?:zip|tar|tgz|tbz2|txz|tar\.(?:gz|bz2|xz))$", re.IGNORECASE)
_CHUNK_BYTES = 2**20
# what readers raise of a damaged archive; zipfile's NotImplementedError is of a packing that it does not know
_BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, NotImplementedError)


def is_archive(path: Path) -> bool:
    """Whether a file's name is that of an archive."""
    return _SUFFIX.search(path.name) is not None


@dataclass(frozen=True, slots=True)
class Unpacked:
    """The files of a job with the members of its archives: what these are called, and which archives are broken."""

    files: list[Path]
    names: dict[Path, str]  # of members: the archive's name and the one inside it
    wrong: dict[Path, str]  # of archives

    def told(self, text: str) -> str:
        """Return a text that begins with the path of a member with its name instead."""
        path, colon, rest = text.partition(": ")
        return f"{self.names.get(Path(path), path)}{colon}{rest}"


@contextlib.contextmanager
def unpacked(files: Sequence[Path]) -> Iterator[Unpacked]:
    """Yield the files with the members of archives in place of these; the unpacked ones go with the context."""
    if not any(map(is_archive, files)):
        yield Unpacked(list(files), {}, {})
        return
    with tempfile.TemporaryDirectory(dir=process_folder()) as place:
        found = Unpacked([], {}, {})
        left = MOST_BYTES
        for number, file in enumerate(files):
            if not is_archive(file):
                found.files.append(file)
                continue
            folder = Path(place).resolve() / str(number) / _SUFFIX.sub("", file.name)  # rank3.zip is as good as rank3/
            try:
                members, left = _members(file, folder, left)
            except InputError as error:
                found.wrong[file] = str(error)
                continue
            found.files.extend(members)
            found.names.update({member: f"{file.name}/{member.relative_to(folder)}" for member in members})
        yield found


def _members(archive: Path, folder: Path, left: int) -> tuple[list[Path], int]:
    """Unpack an archive, and return its files, and how many bytes more may be unpacked."""
    found: list[Path] = []
    try:
        with contextlib.closing(_files(archive)) as files:
            for name, file in files:
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with open(target, "wb") as copy:
                    while chunk := file.read(_CHUNK_BYTES):
                        left -= len(chunk)
                        if left < 0 or len(found) >= MOST_MEMBERS:
                            raise InputError(
                                f"{archive}: more than {MOST_MEMBERS:,} files or {MOST_BYTES // 2**20} MiB unpacked;"
                                " expected the logs of one job"
                            )
                        copy.write(chunk)
                found.append(target)
    except RuntimeError:  # zipfile's word for a password
        raise InputError(f"{archive}: needs a password; unpack it first") from None
    except _BROKEN as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise InputError(f"{archive}: not a whole archive: {getattr(error, 'strerror', None) or error}") from None
    return found, left


def _files(archive: Path) -> Generator[tuple[PurePosixPath, IO[bytes]], None, None]:
    """Yield the regular files of an archive with their names inside it."""
    with opened(archive) as file:
        if archive.name.lower().endswith(".zip"):
            with zipfile.ZipFile(file) as packed:
                for info in packed.infolist():
                    if not info.is_dir() and (name := _inside(info.filename)):
                        with packed.open(info) as member:
                            yield name, member
            return
        with tarfile.open(fileobj=file, mode="r:*") as taped:
            for one in taped:
                if one.isreg() and (name := _inside(one.name)) and (held := taped.extractfile(one)):
                    yield name, held


def _inside(name: str) -> PurePosixPath | None:
    """Return the name of a member, None for one that is hidden, leads out of the archive, or is an archive itself."""
    path = PurePosixPath(name.replace("\\", "/"))
    parts = [part for part in path.parts if part != "."]
    if not parts or path.is_absolute() or any(part.startswith(".") for part in parts) or is_archive(Path(parts[-1])):
        return None
    return PurePosixPath(*parts)
