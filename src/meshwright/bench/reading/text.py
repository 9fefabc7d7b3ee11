"""The text of a file of measurements: unpacked, from UTF-16, out of docker's JSON, without launchers' tags."""

import gzip
import io
import re
import zlib

from ...errors import InputError
from ...files import as_utf8, docker_line, read_bytes
from .prefixes import without_prefix

MAX_BYTES = 64 * 2**20
_GZIP = b"\x1f\x8b"
_BOLD = re.compile(r"\*\*(\s*\d[^*\n]*?)\*\*")  # a figure, or a row, to which somebody points
_NUMBERED = re.compile(r"^ *(\d{1,6})(?:[\t:|] ?| |$)")
_INSTANCE = re.compile(r"\b(?:[a-z]\d\w*(?:-\w+)?\.\d+xlarge|a[23]-\w+-\d+g)\b", re.I)  # of AWS, of Google Cloud
_QUOTE = re.compile(r"^\s*(?:>\s?)+")


def file_text(path: str) -> str:
    """Return the text of a file, packed or not; InputError if it is missing, no text or too large."""
    data = read_bytes(path, max_bytes=MAX_BYTES)
    if data.startswith(_GZIP):
        data = _unpacked(data, path)
    try:
        text = as_utf8(data).decode("utf-8").lstrip("\ufeff")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start})") from None
    if text.startswith('{"log":'):
        text = "\n".join(map(docker_line, text.splitlines()))
    return text


def instances_in(text: str) -> tuple[str, ...]:
    """Return the instance types of clouds that a text names, in small letters."""
    return tuple(sorted({found.lower() for found in _INSTANCE.findall(text)}))


def without_bold(text: str) -> str:
    """Return a text without Markdown's marks around figures and rows."""
    return _BOLD.sub(r"\1", text)


def without_line_numbers(text: str) -> str:
    """Return a text without the numbers of its lines, as cat -n and editors show them: on each line, one by one."""
    lines = text.splitlines()
    found = [_NUMBERED.match(line) for line in lines if line.strip()]
    numbers = [int(match[1]) for match in found if match]
    if len(numbers) < max(4, len(found)) or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return text
    return "\n".join(_NUMBERED.sub("", line) for line in lines)


def without_prefixes(text: str) -> str:
    """Return the same lines without launchers' tags, colours and marks of a quotation."""
    return "\n".join(unquoted(line) for line in text.splitlines())


def unquoted(line: str) -> str:
    """Return a line without launchers' tags, colours and marks of a quotation, whichever of them comes first."""
    return _QUOTE.sub("", without_prefix(_QUOTE.sub("", line)))


def _unpacked(data: bytes, path: str) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            found = packed.read(MAX_BYTES + 1)
    except EOFError:
        raise InputError(f"{path}: is cut off: copy the whole file") from None
    except (OSError, zlib.error) as error:
        raise InputError(f"{path}: {error}") from None
    if len(found) > MAX_BYTES:
        raise InputError(f"{path}: unpacks to more than {MAX_BYTES} bytes")
    return found
