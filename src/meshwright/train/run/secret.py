"""The secret of a run: random bytes in a file of its folder, which all its machines read and no other user can."""

import contextlib
import errno
import os
import secrets
import stat
import tempfile
from pathlib import Path

from ...errors import InputError

SECRET = "secret"  # its file
SECRET_BYTES = 32


def secret_in(folder: Path) -> bytes:
    """Return the secret of a run folder, made if there is none.

    InputError if it cannot be written, or if what is there is no secret: a link, open to others, or not whole.
    """
    path = folder / SECRET
    try:
        with contextlib.suppress(FileNotFoundError):  # a disk that is full by now is no reason to end
            return _read(path)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".secret-") as fresh:  # for its owner alone
            fresh.write(secrets.token_bytes(SECRET_BYTES))
            fresh.flush()
            os.fsync(fresh.fileno())  # a name without its bytes would be an empty secret after a power loss
            with contextlib.suppress(FileExistsError):  # of two that begin at once, one wins
                os.link(fresh.name, path)
        return _read(path)
    except OSError as error:
        raise InputError(f"{folder}: cannot write the run folder: {error.strerror or error}") from None


def read_private(path: Path, max_bytes: int) -> bytes:
    """Return at most `max_bytes` of a file that only its owner can read; InputError for a link or an open file."""
    expected = "expected a file that only its owner can read (mode 600)"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise InputError(f"{path}: is a link, {expected}") from None
    with open(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode) or mode & 0o077:
            what = f"is open to others (mode {mode & 0o777:o})" if stat.S_ISREG(mode) else "is no file"
            raise InputError(f"{path}: {what}, {expected}")
        return file.read(max_bytes)


def _read(path: Path) -> bytes:
    try:
        data = read_private(path, SECRET_BYTES + 1)
    except InputError as error:
        raise InputError(f"{error}; remove it, and the next start makes a new one") from None
    if len(data) != SECRET_BYTES:
        size = str(len(data)) if len(data) < SECRET_BYTES else f"more than {SECRET_BYTES}"
        raise InputError(
            f"{path}: holds {size} bytes, expected {SECRET_BYTES} random ones; remove it, and the next start makes a "
            "new one"
        )
    return data
