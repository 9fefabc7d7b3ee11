"""Filters of text, as far as plain patterns decide them: sed, grep, awk, head, tail, tr, cut, wc.

Patterns are read as sed and grep read them. One that could take long on a line is not followed.
"""

import re
import string
from collections.abc import Iterable, Sequence

from .patterns import BRACKET, line_pattern

CUT = re.compile(r"-d ?(.) -f ?(\d{1,3})|-f ?(\d{1,3}) -d ?(.)")


def filtered(text: str, words: Sequence[str]) -> str | None:
    """Return what a filter makes of a text, None for one that is not followed."""
    match list(words):
        case ["cat"]:
            return text
        case ["wc", "-l"]:
            return f"{text.count(chr(10))}\n"
        case ["tr", *rest]:
            return _tr(text, rest)
        case ["cut", *flags] if place := re.fullmatch(CUT, " ".join(flags)):
            between, number = place.group(1) or place.group(4), int(place.group(2) or place.group(3))
            return _lines(_field(line, between, number) for line in text.splitlines())
        case ["awk", *rest]:
            return _awk(text, rest)
        case ["grep", *rest]:
            return _grep(text, rest)
        case ["head" | "tail" as end, *rest] if said := re.fullmatch(r"(?:-n ?)?-?(\d{1,4})", " ".join(rest)):
            lines, count = text.splitlines(), int(said[1])
            return _lines(lines[:count] if end == "head" else lines[len(lines) - count :] if count else [])
        case ["sed", *rest]:
            return sed(text, rest)
        case _:
            return None


SETS = {"[:upper:]": string.ascii_uppercase, "[:lower:]": string.ascii_lowercase, "[:digit:]": string.digits}
SETS |= {"[:space:]": " \t\n\r\v\f", "[:blank:]": " \t", "[:alpha:]": string.ascii_letters}
OF_SET = re.compile(r"\[:\w+:\]|\\.|[^\\]-[^\\]|.", re.DOTALL)
ESCAPED = {r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\\": "\\"}


def _tr(text: str, words: Sequence[str]) -> str | None:
    """Return a text with characters of one set made those of another, left out (`-d`) or not repeated (`-s`)."""
    flags = {word for word in words if re.fullmatch(r"-[a-zA-Z]+", word)}
    sets = [_characters(word) for word in words if word not in flags]
    if flags - {"-d", "-s"} or len(flags) > 1 or None in sets or not 1 <= len(sets) <= 2:
        return None
    old, new = sets[0] or "", sets[-1] or ""
    if flags == {"-d"}:
        return text.translate(dict.fromkeys(map(ord, old))) if len(sets) == 1 else None
    if len(sets) == 2 and new:
        pairs = zip(old, new + new[-1] * len(old), strict=False)
        text = text.translate({ord(one): other for one, other in pairs})
    elif not flags:
        return None
    return re.sub(f"([{re.escape(new)}])\\1+", r"\1", text) if flags and new else text


def _characters(word: str) -> str | None:
    """Return the characters of a set as `tr` reads it: ranges, classes and escapes; None for others."""
    found = ""
    for part in OF_SET.findall(word):
        if len(part) == 1:
            found += part
        elif part in SETS or part in ESCAPED:
            found += SETS.get(part) or ESCAPED[part]
        elif part[1] == "-" and part[0] <= part[2]:
            found += "".join(map(chr, range(ord(part[0]), ord(part[2]) + 1)))
        else:
            return None
    return found


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _field(line: str, between: str, number: int) -> str:
    parts = line.split(between)
    return line if len(parts) == 1 else parts[number - 1] if 0 < number <= len(parts) else ""


def _awk(text: str, words: Sequence[str]) -> str | None:
    """Return one field of each line: `awk '{print $2}'`, with `-F:` in front or not."""
    found = re.fullmatch(r"(?:-F ?([^\s']) )?\{ ?print \$(\d{1,3}|NF);? ?\}", " ".join(words))
    if found is None:
        return None
    rows = [line.split(found[1]) if found[1] else line.split() for line in text.splitlines()]
    place = -1 if found[2] == "NF" else int(found[2]) - 1
    return _lines([row[place] if -len(row) <= place < len(row) else "" for row in rows])


def _grep(text: str, words: Sequence[str]) -> str | None:
    flags = [word for word in words if re.fullmatch(r"-[A-Za-z]+", word)]
    rest = [word for word in words if word not in flags]
    letters = set("".join(flag[1:] for flag in flags))
    if len(rest) != 1 or letters - set("EiFPm"):
        return None
    kind = "fixed" if "F" in letters else "python" if "P" in letters else "extended" if "E" in letters else "basic"
    pattern = line_pattern(rest[0], text, kind, ignore_case="i" in letters)
    return None if pattern is None else _lines([line for line in text.splitlines() if pattern.search(line)])


def sed(text: str, words: Sequence[str]) -> str | None:
    """Return what `sed` with substitutions and deletions of lines makes of a text, None for other commands of it."""
    commands: list[str] = []
    extended = False
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in {"-E", "-r"}:
            extended = True
        elif word in {"-e", "--expression"} and rest:
            commands.append(rest.pop(0))
        elif word.startswith("--expression="):
            commands.append(word.partition("=")[2])
        elif word.startswith("-") or commands:
            return None
        else:
            commands.append(word)
    made: str | None = text if commands else None
    for part in [part.strip() for command in commands for part in command.split("\n")]:
        made = None if made is None else _edited(made, part, "extended" if extended else "basic")
    return made


def _edited(text: str, command: str, kind: str) -> str | None:
    """Return a text after commands such as `s|old|new|g;/gone/d`, None for others."""
    while command:
        if deleted := re.match(r"/((?:[^/\\]|\\.)+)/d\s*(?:;|$)\s*", command):
            pattern = line_pattern(deleted[1], text, kind)
            if pattern is None:
                return None
            text = _lines(line for line in text.splitlines() if not pattern.search(line))
            command = command[deleted.end() :]
            continue
        parts, after = _substitution(command)
        flags = re.match(r"([gIi]*)\s*(?:;|$)\s*", after)
        if len(parts) != 3 or flags is None:
            return None
        pattern = line_pattern(parts[0], text, kind, ignore_case=bool(set(flags[1]) & {"I", "i"}), replaces=True)
        if pattern is None or ("g" in flags[1] and pattern.search("")):
            return None
        text = _replaced(text, pattern, parts[1], every="g" in flags[1])
        command = after[flags.end() :]
    return text


def _substitution(command: str) -> tuple[list[str], str]:
    """Return the two parts of `s/old/new/`, with a third, empty one where both end, and what follows."""
    parts = [""]
    if not re.match(r"s[^\w\s\\]", command):
        return parts, ""
    place = 2
    while len(parts) < 3 and place < len(command):
        one = command[place]
        pair = command[place : place + 2]
        if bracket := re.match(BRACKET, command[place:]) if len(parts) == 1 else None:
            parts[-1] += bracket[0]
            place += bracket.end() - 1
        elif one == command[1]:
            parts.append("")
        elif one == "\\":
            parts[-1] += command[1] if pair[1:] == command[1] else pair
            place += 1
        else:
            parts[-1] += one
        place += 1
    return parts, command[place:]


def _replaced(text: str, pattern: re.Pattern[str], new: str, *, every: bool) -> str:
    """Return a text with what each line has of a pattern made new: `&` and `\\1` stand for what was found."""

    def part(inner: re.Match[str], match: re.Match[str]) -> str:
        name = inner[0].removeprefix("\\")
        if inner[0] == "&":
            return match[0]
        if name.isdecimal():
            return (match[int(name)] or "") if int(name) <= match.re.groups else ""
        return {"n": "\n", "t": "\t"}.get(name, name)

    def made(match: re.Match[str]) -> str:
        return re.sub(r"\\.|&", lambda inner: part(inner, match), new)

    ends = "\n" if text.endswith("\n") else ""
    lines = text.removesuffix("\n").split("\n")
    return "\n".join(pattern.sub(made, line, count=0 if every else 1) for line in lines) + ends
