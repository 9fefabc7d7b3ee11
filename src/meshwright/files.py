"""Nouns on disk: read a JSON or TOML file into a struct, or say in one line what is wrong with it; write atomically."""

import json
import os
import re
import secrets
import stat
import tomllib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from .errors import InputError, nearest

T = TypeVar("T")
MAX_BYTES = 512 * 2**20  # a file larger than this is not one of ours


def read_text(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> str:
    """Return the text of a file; InputError if it is missing, unreadable, not UTF-8 or larger than `max_bytes`."""
    path = Path(path)
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # no pipe is waited for
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InputError(f"{path}: is a device or a pipe, expected a file")
            data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise InputError(f"{path}: larger than {max_bytes} bytes, refused")
        return data.decode("utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder, expected a file") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def read_struct(path: str | os.PathLike[str], kind: type[T]) -> T:
    """Read a `.toml` or `.json` file into `kind`; every fault is an InputError naming file, key and expectation."""
    text = read_text(path)
    data = parse_toml(text, where=str(path)) if Path(path).suffix == ".toml" else parse_json(text, where=str(path))
    return convert(data, kind, where=str(path))


def parse_json(text: str | bytes, *, where: str) -> Any:
    """Return the value of strict JSON: no key twice, no NaN; every fault is an InputError that `where` opens."""
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:  # JSONDecodeError, bytes that are not text, numbers without end
        raise InputError(f"{where}: {error}") from None


def parse_toml(text: str, *, where: str) -> dict[str, Any]:
    """Return the table of a TOML text; every fault is an InputError that `where` opens."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: {error}") from None


def convert(data: Any, kind: type[T], *, where: str) -> T:
    """Convert plain data into the struct `kind`; `where` (a file, a flag) opens the message of the InputError."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {_explain(str(error), kind)}") from None
    except (ValueError, RecursionError) as error:  # raised by a struct's own checks
        raise InputError(f"{where}: {error}") from None


def write_struct(path: str | os.PathLike[str], value: Any) -> None:
    """Write a struct as indented JSON, atomically: the file is the old one or the new one, never a part."""
    write_atomic(path, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def write_atomic(path: str | os.PathLike[str], data: bytes, *, mode: int = 0o666) -> None:
    """Write `data` beside `path`, flush it to disk and rename it into place; OSError if the disk refuses.

    The file has the permissions `mode`, less those of the umask.
    """
    path = Path(path)
    temporary = path.parent / f".{path.name[:200]}.{secrets.token_hex(8)}"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def to_json(value: Any) -> str:
    """Return a struct (or a list or dict of them) as one line of JSON."""
    return msgspec.json.encode(value).decode()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        twice = next(key for index, (key, _) in enumerate(pairs) if any(key == other for other, _ in pairs[:index]))
        raise ValueError(f"key {twice!r} is given twice")
    return data


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def _explain(message: str, kind: Any) -> str:
    """Turn msgspec's message into ours: the dotted key first, and the nearest known key for an unknown one."""
    match = re.search(r" - at `\$\.?([^`]*)`$", message)
    key = match.group(1) if match else ""
    text = message[: match.start()] if match else message
    unknown = re.match(r"Object contains unknown field `([^`]*)`", text)
    if unknown:
        fields = _fields_at(kind, key)
        full = f"{key}.{unknown.group(1)}" if key else unknown.group(1)
        return f"unknown key {full} ({nearest(unknown.group(1), fields)})"
    return f"{key}: {text}" if key else text


def _fields_at(kind: Any, path: str) -> list[str]:
    """Return the field names of the struct that a dotted path leads to."""
    info = msgspec.inspect.type_info(kind)
    for name in [part.split("[")[0] for part in path.split(".") if part]:
        info = _unwrap(info)
        fields = {field.encode_name: field.type for field in getattr(info, "fields", ())}
        if name and name in fields:
            info = fields[name]
    return [field.encode_name for field in getattr(_unwrap(info), "fields", ())]


def _unwrap(info: Any) -> Any:
    """Look through optionals and sequences to the struct inside."""
    while True:
        if isinstance(info, msgspec.inspect.UnionType):
            info = next((t for t in info.types if isinstance(t, msgspec.inspect.StructType)), None)
        elif hasattr(info, "item_type"):
            info = info.item_type
        else:
            return info
