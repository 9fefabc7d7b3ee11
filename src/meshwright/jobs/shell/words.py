"""Expansion of shell words: variables, defaults, arithmetic, quotes. What only a running shell knows stays unknown.

An unknown part of a text is kept as a mark with the reason in it (`unknown("$(nproc)")`), so that a number that depends
on it can be told apart from a number that is not there.
"""

import fnmatch
import re
from collections.abc import Sequence
from typing import Protocol

from ...errors import InputError
from ..arithmetic import NotArithmetic, evaluate
from .braces import braced
from .marks import CLOSE, OPEN, behind_mark, is_unknown, reasons, shown, unknown
from .printf import unescaped
from .syntax import closing, skip_quoted

NAME = re.compile(r"[A-Za-z_]\w*|[0-9]+|[@*#?$!-]")
PARTS = re.compile(f"(?:{OPEN}[^{CLOSE}]*{CLOSE}|[^ \t\n{OPEN}])+|[ \t\n]+|{OPEN}")  # words and the blanks between them
LONGEST = 2**20
DEEPEST = 40
OPERATOR = re.compile(r"(:?[-=+?]|##?|%%?|//?|\^\^?|,,?|:)", re.DOTALL)


class Variables(Protocol):
    """The shell as an expansion sees it."""

    where: str
    arguments: list[str]

    def value(self, name: str) -> str | list[str] | None:
        """Return the value of a variable, None where it is not set."""

    def assign(self, name: str, value: str) -> None:
        """Set a variable (`${NAME:=default}`)."""

    def default_taken(self, name: str, default: str) -> None:
        """Take note that a variable was not set and its default was used."""

    def unset_read(self, name: str) -> str:
        """Return what a variable that is not set stands for: a mark, or nothing where it is only compared."""

    def required(self, name: str, told: str) -> str:
        """Return a mark for a variable without which the script ends (`${NAME:?TOLD}`)."""

    def elements(self, name: str) -> dict[str, str]:
        """Return the elements of an array that have names."""

    def output_of(self, command: str) -> str:
        """Return what a command prints, or a mark that it is unknown."""


class _Fields:
    """Fields of one word while it is expanded."""

    def __init__(self, *, split: bool) -> None:
        self.split = split
        self.done: list[str] = []
        self.open: list[str] = []
        self.any = False  # the open field exists though it may be empty
        self.size = 0

    def literal(self, text: str) -> None:
        self.open.append(text)
        self.any = True

    def expanded(self, text: str) -> None:
        """Add an expansion that is not quoted: blanks in it end fields."""
        if not self.split:
            self.literal(text)
            return
        for part in PARTS.findall(text):
            if part[0] in " \t\n":
                self.end()
            else:
                self.literal(part)

    def listed(self, values: Sequence[str]) -> None:
        """Add the elements of "${ARRAY[@]}": a field each."""
        if not self.split:
            self.literal(" ".join(values))
            return
        for index, value in enumerate(values):
            if index:
                self.end()
            self.literal(value)

    def end(self) -> None:
        if self.any:
            self.done.append("".join(self.open))
        self.open, self.any = [], False

    def finish(self) -> list[str]:
        self.end()
        return self.done


def expand(word: str, shell: Variables, *, split: bool = True, depth: int = 0) -> list[str]:
    """Return the fields that a word as written becomes; with `split` off it is one text (an assignment's value)."""
    if depth > DEEPEST:
        raise InputError(f"{shell.where}: expansions are nested too deeply")
    found = []
    for part in braced(word, shell.where) if split else [word]:
        fields = _Fields(split=split)
        _walk(part, shell, fields, depth, quoted=False)
        found += fields.finish()
    if sum(map(len, found)) > LONGEST:
        raise InputError(f"{shell.where}: a word grows beyond {LONGEST} characters, refused")
    return found if split else ["".join(found)]


def undivided_text(word: str, shell: Variables, depth: int = 0) -> str:
    """Return what a word becomes where blanks do not divide it."""
    return expand(word, shell, split=False, depth=depth)[0]


def document_of(body: str, shell: Variables) -> str:
    """Return the body of a here-document with its expansions made."""
    fields = _Fields(split=False)
    _walk(body, shell, fields, 0, quoted=True, document=True)
    return "".join(fields.finish())


def _walk(word: str, shell: Variables, fields: _Fields, depth: int, *, quoted: bool, document: bool = False) -> None:
    at = 0
    while at < len(word):
        char = word[at]
        if char == "\\":
            following = word[at + 1 : at + 2]
            if following == "\n":
                pass
            elif quoted and following not in set('$`"\\'):
                fields.literal(char + following)
            else:
                fields.literal(following)
            at += 2
        elif char == "'" and not quoted:
            end = word.find("'", at + 1)
            fields.literal(word[at + 1 : end])
            at = end + 1
        elif char == '"' and not document:
            end = skip_quoted(word, at, shell.where)
            if '"${' not in word[at : at + 3] and '"$@' not in word[at : at + 3]:
                fields.literal("")
            _walk(word[at + 1 : end - 1], shell, fields, depth, quoted=True)
            at = end
        elif word.startswith('$"', at) and not quoted:
            at += 1  # a text for translation, which is the text itself
        elif char == "$" and at + 1 < len(word):
            at = _dollar(word, at, shell, fields, depth, quoted=quoted)
        elif char == "`":
            end = skip_quoted(word, at, shell.where)
            _add(shell.output_of(word[at + 1 : end - 1]), fields, quoted)
            at = end
        elif char == OPEN:
            end = behind_mark(word, at)
            fields.literal(word[at:end])
            at = end
        else:
            stop = re.compile(rf"[\\'\"$`{OPEN}]").search(word, at + 1)
            end = stop.start() if stop else len(word)
            fields.literal(word[at:end])
            at = end


def _add(value: str, fields: _Fields, quoted: bool) -> None:
    if quoted:
        fields.literal(value)
    else:
        fields.expanded(value)


def _dollar(word: str, at: int, shell: Variables, fields: _Fields, depth: int, *, quoted: bool) -> int:
    """Expand what a dollar sign opens; return the place behind it."""
    if word.startswith("$((", at):
        end = closing(word, at + 2, "(", ")", shell.where)
        if word[end - 2 : end] == "))":
            fields_text = arithmetic_value(word[at + 3 : end - 2], shell, depth)
            _add(fields_text, fields, quoted)
            return end
    if word.startswith("$(", at):
        end = closing(word, at + 2, "(", ")", shell.where)
        _add(shell.output_of(word[at + 2 : end - 1]), fields, quoted)
        return end
    if word.startswith("${", at):
        end = closing(word, at + 2, "{", "}", shell.where)
        _braced(word[at + 2 : end - 1], shell, fields, depth, quoted=quoted)
        return end
    if word.startswith("$'", at) and not quoted:
        end = skip_quoted(word, at, shell.where)
        fields.literal(unescaped(word[at + 2 : end - 1]))
        return end
    match = NAME.match(word, at + 1)
    if match is None:
        fields.literal("$")
        return at + 1
    name = match.group(0)
    if name.isdecimal():
        match = re.compile(r"[0-9]").match(word, at + 1)
        name = match.group(0) if match else name
    _value(shell.value(name), name, shell, fields, quoted=quoted)
    return at + 1 + len(name)


def _value(value: str | list[str] | None, name: str, shell: Variables, fields: _Fields, *, quoted: bool) -> None:
    if value is None:
        _add(shell.unset_read(name), fields, quoted)
        return
    if isinstance(value, list):
        if name in {"@", "*"}:
            _all(value, name, fields, quoted)
            return
        value = value[0] if value else ""
    _add(value, fields, quoted)


def _braced(inside: str, shell: Variables, fields: _Fields, depth: int, *, quoted: bool) -> None:
    """Expand the inside of ${...}."""
    if inside.startswith("!"):
        _indirect(inside[1:], shell, fields, depth, quoted=quoted)
        return
    length = inside.startswith("#") and len(inside) > 1 and inside[1] not in "#%"
    rest = inside[1:] if length else inside
    match = NAME.match(rest)
    if match is None:
        raise _strange(shell, inside)
    name, rest = match.group(0), rest[match.end() :]
    value = shell.value(name)
    index = re.match(r"\[([^\]]*)\]", rest)
    every = index.group(1) if index else name
    if index:
        rest = rest[index.end() :]
        values = value if isinstance(value, list) else [value] if isinstance(value, str) and value else []
        if every in {"@", "*"}:
            values = values or list(shell.elements(name).values())
        if length and every in {"@", "*"}:
            _add(value if isinstance(value, str) and is_unknown(value) else how_many(values, shell), fields, quoted)
            return
        if every in {"@", "*"} and not rest:
            _all(values, every, fields, quoted)
            return
    if every in {"@", "*"} and re.match(r":[^-=+?]", rest):
        values = values if index else [shell.where, *shell.arguments]
        _all(_slice(values, rest[1:], shell, depth), every, fields, quoted)
        return
    if index:
        named = shell.value(f"{name}[{undivided_text(index.group(1), shell, depth + 1)}]")
        value = named if named is not None else _element(name, value, index.group(1), shell, depth)
    if isinstance(value, list):
        value = " ".join(value) if name in {"@", "*"} or index else (value[0] if value else "")
    if length:
        _add(unknown(reasons(value)[0]) if value and reasons(value) else str(len(value or "")), fields, quoted)
    elif not rest:
        _value(value, name, shell, fields, quoted=quoted)
    else:
        _changed(name, value, rest, shell, fields, depth, quoted=quoted)


def how_many(values: Sequence[str], shell: Variables) -> str:
    """Return how many elements an array has; what a command prints may be any number, unless that number is known."""
    printed = [one for value in values if is_unknown(value) for one in reasons(value) if one.startswith("$(")]
    if not printed:
        return str(len(values))
    known = [shell.output_of(f"{one[2:-1]} | wc -l") for one in printed]
    others = len(values) - len(printed)
    return known[0] if any(map(reasons, known)) else str(sum(map(int, known)) + others)


def _all(values: Sequence[str], how: str, fields: _Fields, quoted: bool) -> None:
    """Add all of some values: a field each where they stand as "${NAME[@]}"."""
    if how == "@" and quoted:
        fields.listed(values)
    else:
        _add(" ".join(values), fields, quoted)


def _slice(values: Sequence[str], text: str, shell: Variables, depth: int) -> Sequence[str]:
    """Return the values that ${NAME[@]:START:NUMBER} means."""
    start, _, size = text.partition(":")
    try:
        begin = int(arithmetic_value(start, shell, depth) or 0)
        return values[begin:][: int(arithmetic_value(size, shell, depth))] if size else values[begin:]
    except ValueError:
        return [unknown(f"{{...:{text}}}")]


def _indirect(pointer: str, shell: Variables, fields: _Fields, depth: int, *, quoted: bool) -> None:
    """Expand ${!NAME}, whose value is the name of another variable, and ${!NAME[@]}, the names of its elements."""
    keys = re.fullmatch(r"(\w+)\[[@*]\]", pointer)
    if keys:
        value = shell.value(keys.group(1))
        names = list(shell.elements(keys.group(1))) or [str(place) for place in range(len(value or ""))]
        _all(names, "@", fields, quoted)
        return
    match = NAME.match(pointer)
    pointed = shell.value(match.group(0)) if match else None
    if match and isinstance(pointed, str) and re.fullmatch(r"\w+(\[[^\]]*\])?", pointed):
        _braced(pointed + pointer[match.end() :], shell, fields, depth + 1, quoted=quoted)
    else:
        _add(unknown(f"${{!{pointer}}}"), fields, quoted)


def _strange(shell: Variables, inside: str) -> InputError:
    shown_in_a_line = " ".join(inside.split())[:60]
    return InputError(f"{shell.where}: ${{{shown_in_a_line}}}: is not understood")


def _element(
    name: str, value: str | list[str] | None, index: str, shell: Variables, depth: int
) -> str | list[str] | None:
    if index in {"@", "*"} or not isinstance(value, list):
        return value
    try:
        place = int(arithmetic_value(index, shell, depth))
    except ValueError:
        return unknown(f"{name}[{index}]")
    return value[place] if -len(value) <= place < len(value) else None


def _changed(
    name: str, value: str | None, rest: str, shell: Variables, fields: _Fields, depth: int, *, quoted: bool
) -> None:
    """Expand ${NAME} with an operator behind the name: a default, a cut, a replacement."""
    match = OPERATOR.match(rest)
    if match is None:
        raise _strange(shell, f"{name}{rest}")
    operator, argument = match.group(1), rest[match.end() :]
    if operator[-1] in "-=+?":
        missing = not value if operator[0] == ":" else value is None
        if operator[-1] == "+":
            if not missing:
                _walk(argument, shell, fields, depth + 1, quoted=quoted)
            return
        if not missing:
            _add(value or "", fields, quoted)
            return
        default = undivided_text(argument, shell, depth + 1)
        if operator[-1] == "?":
            _add(shell.required(name, default), fields, quoted)
            return
        if operator[-1] == "=":
            shell.assign(name, default)
        shell.default_taken(name, default)
        if quoted:
            fields.literal(default)
        else:
            _walk(argument, shell, fields, depth + 1, quoted=quoted)
        return
    if value is None:
        _add(shell.unset_read(name), fields, quoted)
        return
    if reasons(value):
        _add(unknown(f"${{{name}{rest}}}"), fields, quoted)
        return
    _add(_cut(value, operator, argument, shell, depth), fields, quoted)


def _cut(value: str, operator: str, argument: str, shell: Variables, depth: int) -> str:
    if operator in {"^^", ",,", "^", ","}:
        if len(operator) == 2:
            return value.upper() if operator == "^^" else value.lower()
        first = value[:1].upper() if operator == "^" else value[:1].lower()
        return first + value[1:]
    if operator == ":":
        return "".join(_slice(value, argument, shell, depth))
    if operator in {"/", "//"}:
        match = re.match(r"((?:\\.|.)(?:\\.|[^/\\])*)(?:/(.*))?$", argument, re.DOTALL)
        old, new = match.groups(default="") if match else ("", "")
        anchor = old[0] if operator == "/" and old[:1] in {"#", "%"} else ""
        glob = _glob(undivided_text(old[len(anchor) :], shell, depth + 1))
        pattern = re.compile({"#": rf"\A{glob}", "%": rf"{glob}\Z"}.get(anchor, glob), re.DOTALL)
        fresh = undivided_text(new, shell, depth + 1)
        return pattern.sub(lambda _: fresh, value, count=0 if operator == "//" else 1) if glob else value
    pattern_text = undivided_text(argument, shell, depth + 1)
    ends = range(len(value) + 1)
    places = ends if operator in {"#", "%%"} else reversed(ends)
    for place in places:
        part = value[:place] if operator[0] == "#" else value[place:]
        if fnmatch.fnmatchcase(part, pattern_text):
            return value[place:] if operator[0] == "#" else value[:place]
    return value


def _glob(pattern: str) -> str:
    """Return a glob as a regular expression without its anchors."""
    plain = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.sub(
        r"\\\[(\\\^|!)?((?:[^\\\]]|\\-)+)\\\]",
        lambda match: f"[{'^' if match.group(1) else ''}{match.group(2).replace(chr(92) + '-', '-')}]",
        plain,
    )


def arithmetic_value(text: str, shell: Variables, depth: int = 0) -> str:
    """Return the value of an arithmetic expression, or a mark where it depends on something unknown."""
    plain = undivided_text(text, shell, depth + 1)
    missing = reasons(plain)

    def named(name: str) -> str:
        value = shell.value(name)
        if value is None:
            missing.extend(reasons(shell.unset_read(name)))
        elif isinstance(value, str) and reasons(value):
            missing.extend(reasons(value))
        return value if isinstance(value, str) else ""

    if missing:
        return unknown(", ".join(dict.fromkeys(missing)))
    try:
        return str(evaluate(plain, named, shell.assign))
    except NotArithmetic:
        return unknown(", ".join(dict.fromkeys(missing)) or f"$(({shown(text).strip()}))")
