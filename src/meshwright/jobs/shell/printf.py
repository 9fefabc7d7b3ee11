"""Text that `printf`, `seq` and `echo` would print."""

import re
from collections.abc import Sequence

from .marks import reasons, unknown

ESCAPES = {
    "n": "\n",
    "t": "\t",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "0": "\0",
}
SPECIFIED = re.compile(r"%%|%([-0 +#]*)(\d*)(?:\.(\d+))?([sdiuxXqbofFeEgGc])")
WHOLE_NUMBER = re.compile(r"(?<!%)(%[-0 +]*\d*)(?:\.0f|g)")  # as `seq` formats whole numbers
WIDEST = 200
MOST_NUMBERS = 10_000


def unescaped(text: str) -> str:
    r"""Return a text with \n, \t and their like made."""
    return re.sub(r"\\(.)", lambda match: ESCAPES.get(match.group(1), match.group(0)), text, flags=re.DOTALL)


def printed(words: Sequence[str]) -> str:
    """Return what `printf FORMAT WORD ...` prints: the format again until no word is left."""
    words = list(words[1:] if words[:1] == ["--"] else words)
    if not words:
        return ""
    form, rest = unescaped(words[0]), words[1:]
    wants = len([match for match in SPECIFIED.finditer(form) if match.group(0) != "%%"])
    found = []
    while True:
        taken, rest = rest[:wants], rest[wants:]
        found.append(_once(form, taken))
        if not rest or not wants:
            return "".join(found)


def _once(form: str, words: Sequence[str]) -> str:
    left = list(words)

    def one(match: re.Match[str]) -> str:
        if match.group(0) == "%%":
            return "%"
        flags, width, digits, kind = match.groups()
        word = left.pop(0) if left else ""
        if reasons(word):
            return word
        if kind in "ofFeEgGc":
            return unknown(f"printf {match.group(0)} {word}")
        if kind in "diuxX":
            if not re.fullmatch(r"\s*[-+]?\d{0,18}\s*", word):
                return unknown(f"printf {match.group(0)} {word}")
            word = format(int(word or 0), {"x": "x", "X": "X"}.get(kind, "d"))
        elif digits:
            word = word[: int(digits)]
        wide = min(int(width or 0), WIDEST)
        if "-" in flags:
            return word.ljust(wide)
        return word.zfill(wide) if "0" in flags and kind != "s" else word.rjust(wide)

    return SPECIFIED.sub(one, form)


def sequence(words: Sequence[str]) -> str | None:
    """Return what `seq [-w] [-f FORMAT] [-s BETWEEN] [FIRST [STEP]] LAST` prints, None where not of whole numbers.

    Of formats those are followed whose one number is printed whole (`gpu%02g`).
    """
    words, between, form, alike = list(words), "\n", "%d", False
    while words and (flag := re.match(r"-[wsf]", words[0])):
        text = words.pop(0)[2:]
        if flag[0] == "-w":
            alike = True
            continue
        text = text or (words.pop(0) if words else "")
        between, form = (text, form) if flag[0] == "-s" else (between, WHOLE_NUMBER.sub(r"\1d", text))
    if not words or len(words) > 3 or not all(re.fullmatch(r"-?\d{1,9}", word) for word in words):
        return None
    numbers = [int(word) for word in words]
    first, step = numbers[0] if len(numbers) > 1 else 1, numbers[1] if len(numbers) > 2 else 1
    if not step or abs(numbers[-1] - first) // abs(step) > MOST_NUMBERS:
        return None
    found = [_once(form, [str(one)]) for one in range(first, numbers[-1] + (1 if step > 0 else -1), step)]
    if not all(re.search(r"\d", one) and not reasons(one) for one in found):
        return None
    wide = max(map(len, found), default=0) if alike else 0
    return between.join(one.zfill(wide) for one in found)


def echoed(words: Sequence[str]) -> str:
    """Return what `echo` prints."""
    end = "" if "-n" in words[:1] else "\n"
    return " ".join(word for word in words if word not in {"-n", "-e"}) + end
