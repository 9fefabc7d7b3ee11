"""Patterns of sed and grep as Python writes them: one that could take long on a text is not followed."""

import re

from .marks import reasons

LONGEST_PATTERN, MOST_TRIES = 200, 20_000_000  # of one pattern on a text, by the worst that repetitions can do
CLASSES = {"space": r"\s", "digit": r"\d", "alpha": "A-Za-z", "alnum": "A-Za-z0-9", "blank": r" \t", "upper": "A-Z"}
CLASSES["lower"] = "a-z"
BRACKET = re.compile(r"\[(\^?)(\]?(?:\[:[a-z]+:\]|[^\]\[])*)\]")
FLIPPED = frozenset("+?|(){}")  # which a backslash gives their meaning, or takes it, in basic patterns
SAME = frozenset("wWsSbBnt123456789")  # letters and digits after a backslash that mean the same to Python


def line_pattern(
    pattern: str, text: str, kind: str, *, ignore_case: bool = False, replaces: bool = False
) -> re.Pattern[str] | None:
    """Return a pattern that is quick on every line of a text, None for one that may not be or is not followed.

    The kind is "basic", "extended", "python" or "fixed"; one that `replaces` what it finds must find the longest.
    """
    if reasons(pattern) or not 0 < len(pattern) <= LONGEST_PATTERN:
        return None
    plain: str | None = pattern
    if kind == "fixed":
        plain = re.escape(pattern)
    elif kind != "python":
        plain = _plain(pattern, basic=kind == "basic")
    if plain is None or not _quick(plain, text) or (replaces and not _longest_first(plain)):
        return None
    try:
        return re.compile(plain, re.IGNORECASE if ignore_case else 0)
    except (re.error, OverflowError, RecursionError):
        return None


def _plain(pattern: str, *, basic: bool) -> str | None:
    """Return a basic or extended pattern as Python writes it, None where it has what Python has not."""
    if not basic and "(?" in pattern:
        return None
    found: list[str] = []
    place = 0
    while place < len(pattern):
        one, after = pattern[place], pattern[place + 1 : place + 2]
        step = 1
        made: str | None = one
        if one == "[":
            made, step = _class(pattern[place:])
        elif one == "\\":
            made, step = _escaped(after, basic=basic), 2
        elif basic and one in FLIPPED:
            made = f"\\{one}"
        elif basic and one == "$" and after and pattern[place + 1 : place + 3] not in {r"\)", r"\|"}:
            made = r"\$"
        elif basic and one == "^" and place and pattern[place - 2 : place] not in {r"\(", r"\|"}:
            made = r"\^"
        if made is None:
            return None
        found.append(made)
        place += step
    return "".join(found)


def _escaped(after: str, *, basic: bool) -> str | None:
    if after in {"<", ">"}:
        return r"\b"
    if after in FLIPPED and after:
        return after if basic else f"\\{after}"
    return None if not after or (after.isalnum() and after not in SAME) or after in "`'" else f"\\{after}"


def _class(pattern: str) -> tuple[str | None, int]:
    """Return the bracket expression that a pattern starts with as Python writes it, and its length."""
    found = re.match(BRACKET, pattern)
    if found is None:
        return None, 1
    parts: list[str] = []
    for name, one in re.findall(r"\[:([a-z]+):\]|(.)", found[2]):
        if name and name not in CLASSES:
            return None, 1
        parts.append(CLASSES[name] if name else f"\\{one}" if one in r"\]&~|^" else one)
    return f"[{found[1]}{''.join(parts)}]", found.end()


def _quick(plain: str, text: str) -> bool:
    """Return whether the worst that a pattern's repetitions can do on a text's lines is little."""
    bare = re.sub(r"\\.", "x", plain)
    if re.search(r"\)[*+{]|[*+}][*+{]", bare):
        return False
    starts = 0 if bare.startswith("^") else 1
    repeats = len(re.findall(r"[*+{]", bare)) + starts
    tries: int = sum(max(len(line), 2) ** repeats for line in text.splitlines())
    return tries << len(re.findall(r"[?|]", bare)) <= MOST_TRIES


def _longest_first(plain: str) -> bool:
    """Return whether no choice of a pattern is a longer one's start: sed takes the longest, Python the first."""
    bare = re.sub(r"\\.", "x", plain)
    for group in re.findall(r"\(([^()]*\|[^()]*)\)", bare):
        words = group.split("|")
        if any(not re.fullmatch(r"[\w.-]+", word) for word in words):
            return False
        if any(one != other and other.startswith(one) for one in words for other in words):
            return False
    return "|" not in re.sub(r"\([^()]*\)", "", bare)
