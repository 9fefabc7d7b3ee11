"""Where servers and workers of a run find each other: a file for each server in the run folder, for its owner's eyes.

A worker that is started by hand at any time, on any machine that sees the folder, reads the same files.
"""

import shutil
import time
from pathlib import Path

import msgspec

from ...errors import InputError, MeshwrightError
from ...files import convert, parse_json, write_atomic
from ..run.secret import read_private

LOOK_S = 0.05
MAX_BYTES = 2**16


class Address(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a server listens, the word that it expects, and the text that it has read."""

    address: str  # HOST:PORT
    word: str
    corpus: str = ""  # checksum of its tokens


def forget_servers(folder: Path) -> None:
    """Remove what an earlier start of the run left; before any server starts."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)


def announce(folder: Path, server: int, address: Address) -> None:
    """Write down where a server listens."""
    path = folder / f"{server}.json"
    write_atomic(path, msgspec.json.encode(address), mode=0o600)


def find_servers(folder: Path, servers: int, timeout_s: float) -> list[Address]:
    """Return where all servers listen, once they do."""
    end = time.monotonic() + timeout_s
    paths = [folder / f"{server}.json" for server in range(servers)]
    while not all(path.exists() for path in paths):
        if time.monotonic() > end:
            missing = next(path for path in paths if not path.exists())
            raise MeshwrightError(f"{missing}: no server has written it within {timeout_s:g} s")
        time.sleep(LOOK_S)
    found = [_read(path) for path in paths]
    if len({item.word for item in found}) != 1:
        raise InputError(f"{folder}: the files of its servers are of different runs")
    return found


def _read(path: Path) -> Address:
    try:
        text = read_private(path, MAX_BYTES)
    except OSError as error:  # another start has removed it
        raise InputError(f"{path}: {error.strerror or error}") from None
    return convert(parse_json(text, where=str(path)), Address, where=str(path))
