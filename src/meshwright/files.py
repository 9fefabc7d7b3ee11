"""Nouns on disk: read a JSON or TOML file into a struct, or say in one line what is wrong with it; write atomically.

Every file comes in by `read_bytes` (or, streamed, by `opened`), which waits for no pipe and reads no device. What is
decoded has finite numbers of 64 bits, whole text and few levels; what each number may be says the struct (quantities).
"""

import codecs
import contextlib
import json
import math
import os
import re
import secrets
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from .errors import InputError, nearest

T = TypeVar("T")
MAX_BYTES = 512 * 2**20  # a file larger than this is not one of ours
WRITTEN_FIRST = "; what is piped is written to a file first: COMMAND > FILE"
DEEPEST = 100  # levels of lists and objects inside each other
LEAST, MOST = -(2**63), 2**64 - 1  # integers that others can read back
MOST_DIGITS = 100  # of a number in the text of other tools
_ENDLESS = re.compile(rf"\d{{{MOST_DIGITS + 1},}}")
_HALF = re.compile("[\ud800-\udfff]")  # of a pair of UTF-16: no text on its own


def opened(path: str | os.PathLike[str]) -> IO[bytes]:
    """Return an open regular file; InputError for a pipe, which would be waited for, a device or a folder, or if it
    cannot be opened.
    """
    try:
        file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # noqa: SIM115, for the caller
    except FileNotFoundError:
        raise InputError(f"{path}: no such file{WRITTEN_FIRST if str(path) == '-' else ''}") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder, expected a file") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise InputError(f"{path}: is a device or a pipe, expected a file{WRITTEN_FIRST}")
    return file


def read_bytes(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> bytes:
    """Return what a regular file holds; InputError if it is missing, unreadable or larger than `max_bytes`."""
    with opened(path) as file:
        try:
            size = os.fstat(file.fileno()).st_size
            data = file.read(max_bytes + 1) if size <= max_bytes else b""
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from None
    if max(size, len(data)) > max_bytes:
        raise InputError(f"{path}: larger than {max_bytes} bytes, refused")
    return data


def read_text(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> str:
    """Return the text of a file; InputError if it is missing, unreadable, not UTF-8 or larger than `max_bytes`."""
    try:
        return read_bytes(path, max_bytes=max_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start})") from None


def refuse_endless_numbers(text: str, *, where: str) -> None:
    """Raise InputError, naming the line, for a number of more digits than any size, time or rate has.

    Python converts no more than 4300 digits to an integer, and no float is above 1e308.
    """
    endless = _ENDLESS.search(text)
    if endless is not None:
        line = text.count("\n", 0, endless.start()) + 1
        raise InputError(f"{where}:{line}: a number of {len(endless[0])} digits: expected at most {MOST_DIGITS}")


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key that sorts rank2 before rank10, for names of files."""
    parts = re.findall(r"(\d+)|(\D+)", text)
    return tuple((0, int(number), "") if number else (1, 0, word) for number, word in parts)


def docker_line(line: str) -> str:
    """Return what a line of docker's json-file driver holds; other lines as they are."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return line
    text = str(value.get("log", "")) if isinstance(value, dict) else line
    return without_halves(text.rstrip("\r\n"))


def without_halves(text: str) -> str:
    """Return a text of a JSON value without halves of characters of UTF-16, which JSON may hold."""
    return text.encode("utf-8", "replace").decode()


def as_utf8(data: bytes) -> bytes:
    """Return text that a byte-order mark says to be UTF-16 (PowerShell writes it) as UTF-8, all other bytes as is."""
    if data[:2] not in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE} or b"\x00" not in data[2:200]:
        return data
    return data.decode("utf-16", errors="replace").encode("utf-8", errors="replace")


def read_struct(path: str | os.PathLike[str], kind: type[T]) -> T:
    """Read a `.toml` or `.json` file into `kind`; every fault is an InputError naming file, key and expectation."""
    return convert(read_data(path), kind, where=str(path))


def read_data(path: str | os.PathLike[str]) -> Any:
    """Return the value of a `.toml` or `.json` file; every fault is an InputError naming file and place.

    No TOML begins with a brace: what we saved under such a name is JSON.
    """
    text, where = read_text(path), str(path)
    if Path(path).suffix == ".toml" and not text.lstrip().startswith("{"):
        return parse_toml(text, where=where)
    if Path(path).suffix != ".json" and not text.lstrip().startswith(("{", "[")):
        raise InputError(f"{where}: neither JSON nor named .toml; expected one of both")
    return parse_json(text, where=where)


def parse_json(text: str | bytes, *, where: str) -> Any:
    """Return the value of strict JSON: no key twice, no NaN; every fault is an InputError that `where` opens."""
    try:
        return sound(json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse), where=where)
    except (ValueError, RecursionError) as error:  # JSONDecodeError, bytes that are not text, numbers without end
        raise InputError(f"{where}: {_unparsed(error)}") from None


def parse_toml(text: str, *, where: str) -> dict[str, Any]:
    """Return the table of a TOML text; every fault is an InputError that `where` opens."""
    try:
        found: dict[str, Any] = sound(tomllib.loads(text), where=where)
        return found
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: {_unparsed(error)}") from None


def sound(data: T, *, where: str) -> T:
    """Return plain data unchanged; InputError names the first number, text or depth that no noun can hold."""
    pending: list[tuple[Any, Any, int]] = [(data, None, 0)]  # a value, the way to it and its depth
    seen: set[int] = set()  # what a pickle holds in several places, or in itself, is looked at once
    while pending:
        value, way, depth = pending.pop()
        fault = _unsound(value) or (_unsound(way[1]) if way else "")
        if fault:
            raise InputError(f"{where}: {_way(way)}{fault}")
        if isinstance(value, dict | list) and id(value) not in seen:
            seen.add(id(value))
            if depth >= DEEPEST:
                raise InputError(f"{where}: nested deeper than {DEEPEST} levels")
            named = value.items() if isinstance(value, dict) else enumerate(value)
            for key, inner in named:
                if isinstance(inner, dict | list) or _unsound(inner) or _unsound(key):
                    pending.append((inner, (way, key), depth + 1))
    return data


def _unsound(value: Any) -> str:
    """Return what is wrong with one value, in words."""
    if isinstance(value, str):
        half = _HALF.search(value)
        return f"character {half.start() + 1} is half of a pair of UTF-16, expected text" if half else ""
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"{value} is no finite number"
    if isinstance(value, int):
        return "" if LEAST <= value <= MOST else f"a number of {value.bit_length()} bits, expected at most 64"
    return ""


def _way(way: Any) -> str:
    words: list[str] = []
    while way is not None:
        way, key = way
        words.append(f"[{key}]" if isinstance(key, int) else f".{readable(key)}")
    return f"{''.join(reversed(words)).removeprefix('.')}: " if words else ""


def _unparsed(error: Exception) -> str:
    """Return what a parser says, without the advice of Python's that no user of a file can follow."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return "a number of more than 4,300 digits" if "integer string conversion" in str(error) else str(error)


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
    write_atomic(path, msgspec.json.format(_encoded(value), indent=2) + b"\n")


def write_atomic(path: str | os.PathLike[str], data: bytes, *, mode: int = 0o666) -> None:
    """Write `data` beside `path`, flush it to disk and rename it into place; OSError if the disk refuses.

    The file has the permissions `mode`, less those of the umask. A link stays, and what it points at is written; a
    device or a pipe (`/dev/stdout`) is written to, never replaced.
    """
    if is_device(path):
        with open(path, "wb") as stream:
            stream.write(data)
        return
    path = Path(os.path.realpath(path))
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


def is_device(path: str | os.PathLike[str]) -> bool:
    """Return whether something is there that no file may take the place of: a device, a pipe or a socket."""
    try:
        kind = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(kind) or stat.S_ISDIR(kind))


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an error of the system, in writing a file that was asked for, into an InputError that names the file."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def to_json(value: Any) -> str:
    """Return a struct (or a list or dict of them) as one line of JSON."""
    return _encoded(value).decode()


def _encoded(value: Any) -> bytes:
    """Return a value as JSON, in which the bytes of a file name that are no UTF-8 are escapes (`readable`)."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_as_text(msgspec.to_builtins(value)))


def _as_text(value: Any) -> Any:
    if isinstance(value, str):
        return readable(value)
    if isinstance(value, dict):
        return {_as_text(key): _as_text(inner) for key, inner in value.items()}
    return [_as_text(inner) for inner in value] if isinstance(value, list | tuple) else value


def readable(name: str) -> str:
    """Return a file name as text that anything can hold: its bytes that are no UTF-8 as escapes."""
    return name.encode("utf-8", "backslashreplace").decode()


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
    text = _in_words(message[: match.start()] if match else message)
    unknown = re.match(r"Object contains unknown field `([^`]*)`", text)
    if unknown:
        fields = _fields_at(kind, key)
        full = f"{key}.{unknown.group(1)}" if key else unknown.group(1)
        return f"unknown key {full} ({nearest(unknown.group(1), fields)})"
    value = re.fullmatch(r"Invalid enum value (?:'(.*)'|(-?\d+))", text)
    if value:
        named, known = value[1] or value[2] or "", _values_at(kind, key)
        text = f"{named!r} is none of its values ({nearest(named, known, cutoff=SLIP)})" if known else text
    return f"{key}: {text}" if key else text


SLIP = 0.75  # of a value and the nearest of a few, from which on one is taken for the other misspelt


_BOUND = re.compile(r"Expected `(int|float)` (>=|>|<=|<) (-?[\d.e+]+)")


def _in_words(text: str) -> str:
    """Return what msgspec says of a number out of its bounds as a person says it."""
    match = _BOUND.fullmatch(text)
    if match is None:
        return text
    bound = f"{float(match[3]):.15g}" if match[1] == "float" else match[3]
    words = {">=": f"{bound} or more", ">": f"more than {bound}", "<=": f"at most {bound}", "<": f"less than {bound}"}
    return f"expected a {'whole number' if match[1] == 'int' else 'finite number'}, {words[match[2]]}"


def _fields_at(kind: Any, path: str) -> list[str]:
    """Return the field names of the struct that a dotted path leads to."""
    return [field.encode_name for field in getattr(_unwrap(_type_at(kind, path)), "fields", ())]


def _values_at(kind: Any, path: str) -> list[str]:
    """Return the values of the closed set that a dotted path leads to; none where it leads to something else."""
    info = _type_at(kind, path)
    literals = [t for t in getattr(info, "types", (info,)) if isinstance(t, msgspec.inspect.LiteralType)]
    return [str(value) for literal in literals for value in literal.values]


def _type_at(kind: Any, path: str) -> Any:
    """Return what msgspec knows of the type that a dotted path leads to."""
    info = msgspec.inspect.type_info(kind)
    for name in [part.split("[")[0] for part in path.split(".") if part]:
        info = _unwrap(info)
        fields = {field.encode_name: field.type for field in getattr(info, "fields", ())}
        if name and name in fields:
            info = fields[name]
    return info


def _unwrap(info: Any) -> Any:
    """Look through optionals and sequences to the struct inside."""
    while True:
        if isinstance(info, msgspec.inspect.UnionType):
            info = next((t for t in info.types if isinstance(t, msgspec.inspect.StructType)), None)
        elif hasattr(info, "item_type"):
            info = info.item_type
        else:
            return info
