"""Compile a C file of this package for the processor at hand, once, into the user's cache folder."""

import contextlib
import ctypes
import fcntl
import functools
import hashlib
import logging
import os
import platform
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from .errors import InputError

HELPER_VARIABLE = "MESHWRIGHT_HELPER"  # 0: go without any C helper
TOLD_VARIABLE = "MESHWRIGHT_TOLD"  # checksums of the lines that this process or one above it has logged already
COMPILE_S = 300.0  # at most; the longest takes 11 s of a processor, which many may share
UNFINISHED = "tmp"  # how the name of a library begins that is being compiled
SEAL_BYTES = hashlib.sha256().digest_size  # at the end of a library: the checksum of what is before
LOOK_S = 0.05  # between two looks at whether another process still compiles
_log = logging.getLogger(__name__)


@functools.cache
def warn_once(text: str) -> None:
    """Log a line about a comfort that is missed, once in a process."""
    _log.warning("meshwright: %s", text)


def warn_on_first(text: str) -> None:
    """Log such a line once for this process and all that it starts, of torchrun's ranks by the first of a node."""
    told = os.environ.get(TOLD_VARIABLE, "").split()
    key = hashlib.sha256(os.fsencode(text)).hexdigest()[:16]
    if os.environ.get("LOCAL_RANK", "0") == "0" and key not in told:
        os.environ[TOLD_VARIABLE] = " ".join([*told, key])  # inherited by ranks and by what measures
        warn_once(text)


def cache_folder() -> Path | None:
    """Return the first of `cache_folders`, None where there is none."""
    return next(cache_folders(), None)


def kept_folder(name: str) -> Path:
    """Return a folder in the cache that this user alone can look into, made if need be; InputError without a cache."""
    cache = cache_folder()
    if cache is None:
        raise InputError("no cache folder can be had: set XDG_CACHE_HOME to a folder that you alone can write to")
    folder = cache / name
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_mode & 0o077:  # an earlier version left it open
            folder.chmod(0o700)
    except OSError as error:
        raise InputError(f"{folder}: cannot be kept private: {error.strerror or error}") from None
    return folder


def cache_folders() -> Iterator[Path]:
    """Yield the folders that keep what takes time to make again: the user's cache, then one among temporary files.

    This user alone can write to them. One that cannot be had is told of and passed over.
    """
    for place in (_user_cache, _temporary_cache):
        try:
            yield _own_folder(place())
        except (OSError, RuntimeError) as error:  # Path.home() has no other error for a user without a home
            warn_on_first(f"a cache folder is passed over: {_plain(error)}")


def _plain(error: OSError | RuntimeError) -> str:
    """Return which file an error is about and what it says, without its number."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "meshwright"


def _temporary_cache() -> Path:
    base = Path(tempfile.gettempdir())
    folder, mode = base / f"meshwright-{os.getuid()}", base.stat().st_mode
    if folder.is_symlink() or (mode & 0o022 and not mode & stat.S_ISVTX):
        raise PermissionError(f"{folder} can be replaced by others")
    return folder


def _own_folder(folder: Path) -> Path:
    """Return a folder, made if need be; PermissionError unless this user can write to it, and nobody else."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"{folder} can be written by others")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{folder} cannot be written")
    return folder


Loaded = TypeVar("Loaded")
Declare = Callable[[ctypes.CDLL], None]  # says which arguments a library's functions take


def load_compiled(
    source: Path, flags: tuple[str, ...], included: tuple[Path, ...] = (), declare: Declare | None = None
) -> ctypes.CDLL | None:
    """Return the library of a C file, always the same, built if need be; None where it is off or cannot be built."""
    return None if os.environ.get(HELPER_VARIABLE) == "0" else _load(source, flags, included, declare)


def load_extension(source: Path, flags: tuple[str, ...], included: tuple[Path, ...] = ()) -> ModuleType | None:
    """Return the extension module of a C file, named as the file, like `load_compiled`."""
    return None if os.environ.get(HELPER_VARIABLE) == "0" else _load_extension(source, flags, included)


@functools.cache
def _load(
    source: Path, flags: tuple[str, ...], included: tuple[Path, ...], declare: Declare | None
) -> ctypes.CDLL | None:
    library = _first_loaded(source, flags, included, lambda path: ctypes.CDLL(str(path), use_errno=True))
    if library is not None and declare is not None:
        declare(library)
    return library


@functools.cache
def _load_extension(source: Path, flags: tuple[str, ...], included: tuple[Path, ...]) -> ModuleType | None:
    folders = [Path(flag.removeprefix("-I")) for flag in flags if flag.startswith("-I")]
    if not any((folder / "Python.h").exists() for folder in folders):
        _log.info("%s is not used: no headers of Python", source.name)
        return None
    return _first_loaded(source, flags, included, lambda path: _import_extension(source.stem, path))


def _import_extension(name: str, path: Path) -> ModuleType:
    loader = ExtensionFileLoader(name, str(path))
    module = module_from_spec(ModuleSpec(name, loader, origin=str(path)))
    loader.exec_module(module)
    return module


def _first_loaded(
    source: Path, flags: tuple[str, ...], included: tuple[Path, ...], load: Callable[[Path], Loaded]
) -> Loaded | None:
    """Return what `load` makes of the library in the first folder where it can be built and loaded."""
    if c_compiler() is None:
        warn_on_first("no C compiler on PATH: Python code takes the place of all C helpers, which is slower")
        return None
    reason = "no folder to build it in"
    for folder in _program_folders():
        try:
            return load(compiled(source, flags, folder, included))
        except (OSError, ImportError, subprocess.SubprocessError) as error:
            reason = _reason(error)
    warn_on_first(f"{source.name} is not used, Python code takes its place: {reason}")
    return None


def _program_folders() -> Iterator[Path]:
    """Yield those of `cache_folders` from which libraries can be loaded."""
    for folder in cache_folders():
        if os.statvfs(folder).f_flag & os.ST_NOEXEC:
            warn_on_first(f"a cache folder is passed over: {folder} is on a file system mounted noexec")
        else:
            yield folder


def _reason(error: Exception) -> str:
    """Return an error in one line; of a compiler the first that says so."""
    said = error.stderr.decode(errors="replace") if isinstance(error, subprocess.CalledProcessError) else ""
    return next((line for line in said.splitlines() if "error" in line), str(error))


def c_compiler() -> str | None:
    """Return the C compiler that builds the helpers: $CC, cc, gcc or clang on PATH; None without one."""
    return shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")


def compiled(source: Path, flags: Sequence[str], folder: Path, included: Sequence[Path] = ()) -> Path:
    """Return the shared library of `source` for this machine in `folder`, compiling it if it is not there.

    `included`: the headers of this package that it includes, and further C files that are part of it.
    OSError without a compiler or a place to write, CalledProcessError where the compiler refuses.
    """
    compiler = c_compiler()
    if compiler is None:
        raise FileNotFoundError("no C compiler on PATH")
    text = "".join(file.read_text() for file in (source, *included))
    parts = (text, compiler, " ".join(flags), platform.machine(), _processor())
    path = folder / f"{source.stem}-{hashlib.sha256('|'.join(parts).encode()).hexdigest()[:16]}.so"
    if not _is_as_made(path):  # it comes there whole: who finds it need not wait for anybody
        with _alone(folder):
            if not _is_as_made(path):
                sources = [file for file in (source, *included) if file.suffix in {".c", ".cpp"}]
                _compile([compiler, *flags], sources, path)
    return path


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process of this user compile into a folder at a time: the others then find what it has made.

    Where it takes longer than a compiler may (it was stopped, say), or the file system has no locks, several compile.
    """
    give_up_s = time.monotonic() + COMPILE_S
    with open(folder / ".lock", "w") as file:
        while time.monotonic() < give_up_s:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(LOOK_S)
                continue
            except OSError:
                pass  # a file system without locks
            break
        yield


def _compile(command: Sequence[str], sources: Sequence[Path], path: Path) -> None:
    """Make a library at `path`, at once."""
    _sweep(path.parent)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=UNFINISHED, suffix=".so")
    os.close(handle)
    try:
        whole = [*command, "-o", temporary, *map(str, sources), "-lm"]
        subprocess.run(whole, check=True, capture_output=True, timeout=COMPILE_S)
        with open(temporary, "rb+") as file:
            file.write(_seal(file.read()))  # behind all that a loader looks at
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _is_as_made(path: Path) -> bool:
    """Return whether a library is whole: a part of one would end the process that loads it, by SIGBUS."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return False
    return data[-SEAL_BYTES:] == _seal(data[:-SEAL_BYTES])


def _seal(library: bytes) -> bytes:
    return hashlib.sha256(library).digest()


def _sweep(folder: Path) -> None:
    """Remove what processes left that were killed while they compiled: by age, as they may be of another machine."""
    oldest_s = time.time() - 2 * COMPILE_S
    for left in folder.glob(f"{UNFINISHED}*.so"):
        with contextlib.suppress(OSError):  # another process sweeps as well
            if left.stat().st_mtime < oldest_s:
                left.unlink()


def _processor() -> str:
    """Return what the kernel says of the processor's model and features."""
    with open("/proc/cpuinfo") as file:
        keys = ("model name", "flags", "Features", "CPU part")
        lines = file.read().split("\n\n")[0].splitlines()
    return "|".join(line for line in lines if line.startswith(keys))
