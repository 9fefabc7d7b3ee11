"""Hostile files: each tries to run something, to read or write elsewhere, or to use up the machine."""

import gzip
import json
import os
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from testkit.pickles import Payload
from testkit.small_checkpoints import HUGGING_FACE
from tests.faults.hostile.formats import FORMATS, Format

BY_NAME = {chosen.name: chosen for chosen in FORMATS}
LAUGHS = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))
XML = {
    "billion laughs": f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY l0 "lol">{LAUGHS}]><x>&l9;</x>',
    "quadratic blow-up": f'<!DOCTYPE x [<!ENTITY a "{"a" * 50_000}">]><x>{"&a;" * 50_000}</x>',
    "an external entity": '<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]><x>&f;</x>',
    "an external entity over the network": '<!DOCTYPE x [<!ENTITY f SYSTEM "http://127.0.0.1:9/">]><x>&f;</x>',
    "a parameter entity": '<!DOCTYPE x [<!ENTITY % p SYSTEM "file:///etc/passwd"> %p;]><x/>',
    "an external DTD": '<!DOCTYPE x SYSTEM "file:///dev/zero"><x/>',
    "an entity in an attribute": '<!DOCTYPE x [<!ENTITY f "y">]><system version="&f;"/>',
    "an include": '<x xmlns:i="http://www.w3.org/2001/XInclude"><i:include href="/etc/passwd" parse="text"/></x>',
    "deep nesting": "<topology>" * 100_000,
    "a million elements": "<topology>" + "<a/>" * 1_000_000 + "</topology>",
    "a long attribute": f'<topology a="{"x" * 10_000_000}"/>',
    "many attributes": "<topology " + " ".join(f'a{i}="1"' for i in range(50_000)) + "/>",
    "an encoding that is not there": '<?xml version="1.0" encoding="x-evil"?><topology/>',
    "a stylesheet": '<?xml-stylesheet href="file:///etc/passwd"?><x/>',
}
JSON = {
    "a number without end": '{"step": ' + "9" * 1_000_000 + "}",
    "a key a hundred thousand times": "{" + ",".join(['"a":1'] * 100_000) + ', "a": 2}',
    "a deep list": '{"a":' + "[" * 500_000,
    "a lone surrogate": '{"name": "\\ud800", "schema": "\\udfff"}',
}


@dataclass(frozen=True)
class Hostile:
    """One attack: what it does to the folder of a good file of its format."""

    name: str
    victim: Format
    attack: Callable[[Path, Path], None]  # the folder, and the mark that a payload would leave


def written(file: str, content: str | bytes) -> Callable[[Path, Path], None]:
    data = content.encode() if isinstance(content, str) else content
    return lambda folder, mark: (folder / file).write_bytes(data) and None


def pickled(file: str) -> Callable[[Path, Path], None]:
    return lambda folder, mark: (folder / file).write_bytes(pickle.dumps(Payload(mark))) and None


def replaced(file: str, make: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
    def attack(folder: Path, mark: Path) -> None:
        (folder / file).unlink()
        make(folder / file, folder)

    return attack


def _header(size: int, text: bytes) -> bytes:
    return struct.pack("<Q", size) + text


def _everything():
    for name in ("lstopo", "msccl"):
        for what, text in XML.items():
            yield Hostile(f"{name}: {what}", BY_NAME[name], written(BY_NAME[name].file, text))
    for name in sorted(BY_NAME.keys() - {"lstopo", "hugging face"}):
        yield Hostile(f"{name}: a pickle", BY_NAME[name], pickled(BY_NAME[name].file))
    for name in ("cluster", "manifest", "model", "trace", "tokenizer"):
        for what, text in JSON.items():
            yield Hostile(f"{name}: {what}", BY_NAME[name], written(BY_NAME[name].file, text))
    outside = {
        "a link to a device": lambda path, folder: path.symlink_to("/dev/zero"),
        "a link out of the folder": lambda path, folder: path.symlink_to("/etc/passwd"),
        "a pipe that nobody writes": lambda path, folder: os.mkfifo(path),
        "a folder": lambda path, folder: path.mkdir(),
    }
    for name in ("shard", "manifest", "cluster", "lstopo", "tokenizer"):
        for what, make in outside.items():
            yield Hostile(f"{name}: {what}", BY_NAME[name], replaced(BY_NAME[name].file, make))
    for what, data in {
        "a header that claims an exabyte": _header(2**60, b"{}"),
        "a header of a negative size": _header(2**64 - 1, b"{}"),
    }.items():
        yield Hostile(f"shard: {what}", BY_NAME["shard"], written(BY_NAME["shard"].file, data))
    for what, change in {
        "more layers than memory": {"num_hidden_layers": 10**12},
        "a negative size": {"hidden_size": -5},
        "a size that is a formula": {"hidden_size": "=1+1"},
    }.items():
        yield Hostile(f"hugging face: {what}", BY_NAME["hugging face"],
                      written("config.json", json.dumps(HUGGING_FACE | change)))  # fmt: skip


ALL = tuple(_everything())
BOMB = gzip.compress(b"0" * 2**20) * 1024  # a gibibyte of one digit
