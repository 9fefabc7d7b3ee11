"""Keys: the settings of a configuration file under dotted names, with a record of which were understood.

A key is read with a kind; a value that is not of that kind is an InputError naming file, key and value. What was not
read in the end is asked for with `left`, so that no setting is dropped without being named.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import InputError
from .shell.marks import reasons, shown, without_unknown

TRUE, FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})
NOTHING = frozenset({"none", "null", "~", ""})
LARGEST = 2**50
LONG_WORD, LIKE = 5, 0.8  # letters of a word that may hold a slip, and how like the right one it is then


class Unknown:
    """A value that only the running job knows, such as the output of a command."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __repr__(self) -> str:
        return self.reason


class Keys:
    """Values by dotted key of one configuration; every read is noted."""

    def __init__(
        self,
        values: Mapping[str, Any],
        where: str,
        *,
        sources: Mapping[str, str] | None = None,
        kinds: bool = False,
        flags: bool = False,
    ) -> None:
        self.values, self.where = dict(values), where
        self.flags = flags  # whether a switch is on by being there, so that an unknown word behind it is no value
        self.kinds = kinds  # whether the first part of a key is the kind of its file, which messages leave out
        self.aliases: dict[str, str] = {}  # names in the file of keys that are kept under others
        self.sources = dict(sources or {})  # the file of a key where it is not `where`
        self.read: set[str] = set()
        self.behind: dict[str, str] = {}  # what unknown words behind switches depend on

    def __contains__(self, key: str) -> bool:
        return self.raw(key) is not None

    def source(self, key: str) -> str:
        """Return the file that sets a key."""
        return self.sources.get(key, self.where)

    def raw(self, key: str) -> Any:
        """Return a value as the file has it, None where it is absent or null; the key counts as understood."""
        self.read.add(key)
        value = self.values.get(key)
        if isinstance(value, str) and value.strip().lower() in NOTHING:
            return None
        if isinstance(value, str) and reasons(value):
            return Unknown(", ".join(reasons(value)))
        return value

    def find(self, *keys: str) -> str | None:
        """Return the first of some keys that is set."""
        found = [key for key in keys if self.raw(key) is not None]
        return found[0] if found else None

    def whole(self, *keys: str, least: int = 0) -> int | None:
        """Return the whole number under the first of some keys that is set; None where none is, or it is "auto"."""
        key = self.find(*keys)
        if key is None:
            return None
        value = self.raw(key)
        if isinstance(value, Unknown) or (isinstance(value, str) and value.strip().lower() == "auto"):
            return None
        number = as_whole(value)
        if number is None or not least <= number <= LARGEST:
            raise self.wrong(key, f"a whole number of {least} or more")
        return number

    def switch(self, *keys: str, default: bool | None = None) -> bool | None:
        """Return the truth value under the first of some keys that is set."""
        key = self.find(*keys)
        if key is None:
            return default
        value = self.raw(key)
        if isinstance(value, bool):
            return value
        if isinstance(value, Unknown) and self.flags:
            self.behind[key] = value.reason
            return True
        text = str(value).strip().lower()
        if isinstance(value, Unknown) or text == "auto":
            return default
        if text in TRUE or text in FALSE:
            return text in TRUE
        raise self.wrong(key, "true or false")

    def word(self, *keys: str) -> str | None:
        """Return the text under the first of some keys that is set."""
        key = self.find(*keys)
        value = None if key is None else self.raw(key)
        if value is None or isinstance(value, Unknown):
            return None
        if isinstance(value, list | dict) or key is None:
            raise self.wrong(key or "", "a word")
        return str(value).strip()

    def choice(self, key: str) -> str | None:
        """Return the text under a key of which "none" is one of the choices, and what null means; None without one."""
        word = self.word(key)
        return "none" if word is None and key in self.values and self.doubtful(key) is None else word

    def known_part(self, key: str) -> str:
        """Return what is known of a text, such as the end of "$FOLDER/llama3-tokenizer"; empty where nothing is."""
        value = self.raw(key)
        text = self.values.get(key) if isinstance(value, Unknown) else value
        return without_unknown(text).strip() if isinstance(text, str) else ""

    def last_part(self, key: str) -> str:
        """Return the last part of a path whose folders are not known, as in "$MODELS/llama-7b"; empty for others."""
        text = self.values.get(key)
        folder, slash, name = text.rpartition("/") if isinstance(text, str) else ("", "", "")
        return name if slash and reasons(folder) and not reasons(name) else ""

    def doubtful(self, *keys: str) -> str | None:
        """Return what an unknown value under one of some keys depends on, None where the value is known."""
        for key in keys:
            value = self.raw(key)
            if isinstance(value, Unknown):
                return f"{self.name(key) if self.kinds else key} ({value.reason})"
        return None

    def told(self, key: str) -> str:
        """Return a key with its value and file, for messages."""
        return f"{self.name(key)} {_text(self.values.get(key))} ({self.source(key)})"

    def name(self, key: str) -> str:
        """Return a key as its file has it."""
        return key.partition(".")[2] if self.kinds else self.aliases.get(key, key)

    def wrong(self, key: str, expected: str) -> InputError:
        """Return the error for a value that is not what a key takes."""
        return InputError(
            f"{self.source(key)}: {self.name(key)}: expected {expected}, got {_text(self.values.get(key))[:80]!r}"
        )

    def left(self, harmless: Iterable[str]) -> list[str]:
        """Return the keys that nobody read and that match none of the patterns of keys without effect on a price."""
        pattern = re.compile("|".join(f"(?:{text})" for text in harmless) or r"(?!)")
        return [
            f"{self.name(key)} = {' '.join(_text(value).split())[:60]}{self._slip(key)}"
            for key, value in self.values.items()
            if key not in self.read and not pattern.fullmatch(key) and not _empty(value)
        ]

    def _slip(self, key: str) -> str:
        """Return which key was meant, as a hint: one that is read and not set, and differs by a slip in a long word.

        Short words (`dp`, `cp`) are no slips of each other.
        """
        words = _words_of(key)
        for known in sorted(self.read - self.values.keys()):
            others = _words_of(known)
            unlike = [pair for pair in zip(words, others, strict=False) if pair[0] != pair[1]]
            if len(words) != len(others) or len(unlike) != 1 or min(map(len, unlike[0])) < LONG_WORD:
                continue
            if difflib.SequenceMatcher(None, *unlike[0], autojunk=False).ratio() >= LIKE:
                return f"; did you mean {self.name(known)}?"
        return ""


def _words_of(key: str) -> list[str]:
    return re.split(r"[._-]", key)


def _text(value: Any) -> str:
    """Return a value for a message; words that follow a flag as they were written."""
    words = isinstance(value, list) and all(isinstance(word, str) for word in value) and any(map(reasons, value))
    return shown(" ".join(value) if words else str(value))


def _empty(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, str) and value.strip().lower() in NOTHING)


def as_whole(value: Any) -> int | None:
    """Return a whole number as engines take it (4, "4", 4.0, "1_024"), None if it is none: "8k" has two meanings."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if not isinstance(value, str) or len(value) > 30:
        return None
    text = value.strip().replace("_", "").replace(",", "")
    match = re.fullmatch(r"([-+]?\d+)(\.0*)?", text)
    return None if match is None else int(match.group(1))


def dotted_keys(data: Any, prefix: str = "", depth: int = 0) -> dict[str, Any]:
    """Return nested mappings as one mapping with dotted keys; lists stay values."""
    found: dict[str, Any] = {}
    if depth > 40:
        return found
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= dotted_keys(value, f"{name}.", depth + 1)
        else:
            found[name] = value
    return found
