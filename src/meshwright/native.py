"""Compile a C file of this package for the processor at hand, once, into the user's cache folder."""

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

HELPER_VARIABLE = "MESHWRIGHT_HELPER"  # 0: go without any C helper
_log = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Return the folder of built helpers, which only this user can write."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "meshwright"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"{folder} can be written by others")
    return folder


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
    path = _built(source, flags, included)
    if path is None:
        return None
    library = ctypes.CDLL(str(path), use_errno=True)
    if declare is not None:
        declare(library)
    return library


@functools.cache
def _load_extension(source: Path, flags: tuple[str, ...], included: tuple[Path, ...]) -> ModuleType | None:
    path = _built(source, flags, included)
    if path is None:
        return None
    loader = ExtensionFileLoader(source.stem, str(path))
    module = module_from_spec(ModuleSpec(source.stem, loader, origin=str(path)))
    loader.exec_module(module)
    return module


def _built(source: Path, flags: tuple[str, ...], included: tuple[Path, ...]) -> Path | None:
    try:
        return compiled(source, flags, cache_folder(), included)
    except (OSError, subprocess.SubprocessError) as error:
        _log.info("%s is not used: %s", source.name, error)
        return None


def compiled(source: Path, flags: Sequence[str], folder: Path, included: Sequence[Path] = ()) -> Path:
    """Return the shared library of `source` for this machine in `folder`, compiling it if it is not there.

    `included`: the headers of this package that it includes, and further C files that are part of it.
    OSError without a compiler or a place to write, CalledProcessError where the compiler refuses.
    """
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise FileNotFoundError("no C compiler on PATH")
    text = "".join(file.read_text() for file in (source, *included))
    parts = (text, compiler, " ".join(flags), platform.machine(), _processor())
    path = folder / f"{source.stem}-{hashlib.sha256('|'.join(parts).encode()).hexdigest()[:16]}.so"
    if not path.exists():
        handle, temporary = tempfile.mkstemp(dir=folder, suffix=".so")
        os.close(handle)
        try:
            sources = [str(file) for file in (source, *included) if file.suffix in {".c", ".cpp"}]
            command = [compiler, *flags, "-o", temporary, *sources, "-lm"]
            subprocess.run(command, check=True, capture_output=True, timeout=60)
            os.replace(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    return path


def _processor() -> str:
    """Return what the kernel says of the processor's model and features."""
    with open("/proc/cpuinfo") as file:
        keys = ("model name", "flags", "Features", "CPU part")
        lines = file.read().split("\n\n")[0].splitlines()
    return "|".join(line for line in lines if line.startswith(keys))
