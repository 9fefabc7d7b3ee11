"""A seeded generator of malformed files: takes a good one and breaks it in one of many ways."""

import random
import re

DEEP = 100_000
VALUES = (
    *("-1", "1e999", "NaN", "9" * 400, "9" * 5000, "0", "-0.0", "1e-400"),
    *('"x"', "[]", "{}", "null", "true", '"\\ud800"'),
)


def malformed(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Return what was done to a file, and the result."""
    name = rng.choice(sorted(WAYS))
    return name, WAYS[name](data, rng)


def _cut(data, rng):
    return data[: rng.randrange(len(data))]


def _flip(data, rng):
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _insert(data, rng):
    at = rng.randrange(len(data))
    return data[:at] + rng.choice((b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\x1b[2J", "\u202e".encode())) + data[at:]


def _number(data, rng):
    found = list(re.finditer(rb"-?\d+(\.\d+)?", data))
    if not found:
        return b""
    chosen = rng.choice(found)
    return data[: chosen.start()] + rng.choice(VALUES).encode() + data[chosen.end() :]


def _word(data, rng):
    found = list(re.finditer(rb"[A-Za-z_]{3,}", data))
    chosen = rng.choice(found) if found else None
    if chosen is None:
        return b""
    return data[: chosen.start()] + rng.choice((b"", b"nonsense", b"__class__", b"../x")) + data[chosen.end() :]


def _twice(data, rng):
    lines = data.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    return b"".join([*lines[: at + 1], lines[at], *lines[at + 1 :]])


def _without(data, rng):
    found = [m.start() for m in re.finditer(rb"[\"'{}\[\]<>=:,/]", data)]
    at = rng.choice(found) if found else 0
    return data[:at] + data[at + 1 :]


def _shuffled(data, rng):
    lines = data.splitlines(keepends=True)
    rng.shuffle(lines)
    return b"".join(lines)


WAYS = {
    "cut": _cut,
    "a bit flipped": _flip,
    "bytes put in": _insert,
    "another number": _number,
    "another word": _word,
    "a line twice": _twice,
    "a mark left out": _without,
    "lines shuffled": _shuffled,
    "empty": lambda data, rng: b"",
    "a byte order mark alone": lambda data, rng: b"\xef\xbb\xbf",
    "random bytes": lambda data, rng: rng.randbytes(rng.randrange(1, 4000)),
    "nested lists": lambda data, rng: b"[" * DEEP,
    "nested objects": lambda data, rng: b'{"a":' * DEEP,
    "nested elements": lambda data, rng: b"<a>" * DEEP,
    "another form": lambda data, rng: rng.choice((b"[]", b"{}", b"null", b"3", b'"x"', b"<a/>", b"a = 1\n", b"\n")),
}
