"""The shell's own commands: declare, local, unset, set, read, printf, getopts, test."""

import re
from collections.abc import Mapping

from .conditions import ShellCondition
from .marks import OF_PROCESS, is_unknown, reasons, unknown
from .printf import printed
from .state import ScriptState
from .syntax import Command, Token
from .words import arithmetic_value, document_of, expand, undivided_text

NAME = re.compile(r"[A-Za-z_]\w*")
LOCAL = {"local", "declare", "typeset"}
ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=")
DECLARING = frozenset({"export", "declare", "local", "readonly", "typeset"})


class Builtins(ScriptState):
    """Commands that change nothing but the shell itself."""

    def tested(self, word: str) -> str:
        """Return a word that is compared: variables that are not set are empty."""
        outer, self.testing = self.testing, True
        try:
            return undivided_text(word, self)
        finally:
            self.testing = outer

    def test(self, words: list[str], line: int) -> bool:
        """Return whether a condition holds; where only a machine knows, it does not, and that is assumed."""
        condition = ShellCondition(self, [word for word in words if word])
        found = condition.either()
        if condition.of_gpus:
            self.outcome.assume(f"{self.where} line {line}: more than one GPU ({condition.of_gpus})")
        if found is None:
            self.undecided = plain = " ".join(words)
            self.outcome.assume(f"{self.where} line {line}: [ {plain} ] is known only on the machine, taken as false")
        return bool(found)

    def assignment(self, token: Token, assigned: dict[str, str], *, alone: bool, whole: bool = False) -> None:
        """Set what NAME=VALUE says; into `assigned` where it may hold for one command alone. `whole`: as a number."""
        match = ASSIGNED.match(token.text)
        if match is None:
            return
        name, index, more = match.group(1), match.group(2), bool(match.group(3))
        if token.kind == "array":
            self._array(name, token, more=more)
            return
        outer, self.assigning = self.assigning, name
        value = undivided_text(token.text[match.end() :], self)
        if whole:
            value = arithmetic_value(value, self)
        self.assigning = outer
        old = self.value(name)
        if index is not None:
            self.element(name, index[1:-1], value)
        elif more:
            if isinstance(old, list):
                self.set[name] = [(old[0] if old else "") + value, *old[1:]]
            else:
                self.assign(name, (old or "") + value)
        elif alone:
            self.assign(name, value)
        else:
            assigned[name] = value

    def _array(self, name: str, token: Token, *, more: bool) -> None:
        if token.items and all(re.match(r"\[[^\]]+\]=", item) for item in token.items):
            for item in token.items:
                key, _, value = item[1:].partition("]=")
                self.element(name, key, undivided_text(value, self))
            return
        values = [value for item in token.items for value in expand(item, self)]
        old = self.value(name)
        before = old if isinstance(old, list) else [old] if isinstance(old, str) and old else []
        if name not in self.given:
            self.set[self.refers.get(name, name)] = [*before, *values] if more else values

    def element(self, name: str, index: str, value: str) -> None:
        """Set an element of an array: by its number, or by its name where it has one."""
        name = self.refers.get(name, name)
        old = self.value(name)
        values = list(old) if isinstance(old, list) else []
        number = arithmetic_value(index, self) if f"{name}[]" not in self.set else ""
        if not number.isdecimal():
            self.set[f"{name}[{undivided_text(index, self)}]"] = value
        elif int(number) <= len(values) + 1000:
            values += [""] * (int(number) + 1 - len(values))
            values[int(number)] = value
            self.set[name] = values

    def quiet(self, name: str, words: list[Token]) -> None:
        """Follow a command that prints nothing and changes variables or arguments."""
        if name == "shift":
            count = undivided_text(words[0].text, self) if words else "1"
            del self.arguments[: int(count) if count.isdecimal() else 1]
        elif name == "unset":
            for word in words:
                self._unset(undivided_text(word.text, self))
        elif name == "set":
            self._set(words)
        elif name in DECLARING:
            self._declared(name, words)
        else:
            for word in words:  # `: ${NAME:=default}`
                expand(word.text, self)

    def _set(self, words: list[Token]) -> None:
        fields = [value for word in words for value in expand(word.text, self)]
        if "--" in fields:
            self.arguments = fields[fields.index("--") + 1 :]
        elif fields and fields[0][:1] not in {"-", "+"}:
            self.arguments = fields

    def _unset(self, word: str) -> None:
        match = re.fullmatch(r"(\w+)\[(.+)\]", word)
        if match is None:
            for key in [key for key in self.set if key == word or key.startswith(f"{word}[")]:
                del self.set[key]
            return
        name, index = match.groups()
        values = self.value(name)
        if isinstance(values, list) and index.isdecimal() and int(index) < len(values):
            self.set[name] = [*values[: int(index)], *values[int(index) + 1 :]]
        else:
            self.set.pop(f"{name}[{index}]", None)

    def _declared(self, command: str, words: list[Token]) -> None:
        flags = "".join(word.text[1:] for word in words if re.fullmatch(r"-[A-Za-z]+", word.text))
        names = [self._named(word) for word in words]
        names = [word for word in names if NAME.match(word.text)]
        if command == "export" or "x" in flags:
            self.exported |= {re.split(r"\+?=", word.text)[0] for word in names}
        for word in names:
            found = NAME.match(word.text)
            name = found.group(0) if found else ""
            if self.frames and command in LOCAL and "g" not in flags and name not in self.given:
                self.frames[-1].setdefault(name, self.set.get(name))
                if word.kind != "array" and "=" not in word.text:
                    self.set.pop(name, None)
            if "A" in flags:
                self.set[f"{name}[]"] = ""  # elements have names
            if "n" in flags and "=" in word.text:
                self.refers[name] = undivided_text(word.text.partition("=")[2], self)
            elif word.kind == "array" or "=" in word.text:
                self.assignment(word, {}, alone=True, whole="i" in flags)

    def _named(self, word: Token) -> Token:
        """Return a word to declare; one whose name is itself a variable's value (`export "$KEY"="$VALUE"`) expanded."""
        if word.kind == "array" or NAME.match(word.text) or word.text.startswith("-"):
            return word
        name, equals, value = undivided_text(word.text, self).partition("=")
        quoted = value.replace("'", "'\\''")
        return Token(f"{name}{equals}'{quoted}'" if equals else name, word.line)

    def read(self, fields: list[str], command: Command, assigned: Mapping[str, str]) -> None:
        """Set the names of `read` or `mapfile` from a here-string, a here-document or what a loop is fed with.

        Words are divided at blanks or IFS; with `-d ''` all of a document is read, else its next line. Names whose
        text is not known are unknown, and whether there is a line is undecided.
        """
        reader, *words = fields
        flags = "".join(word[1:] for word in words if re.fullmatch(r"-[A-Za-z]+", word))
        names = [word for word in words if NAME.fullmatch(word)] or ["REPLY"]
        whole = reader != "read" or "d" in flags
        line = self._line(command, whole=whole)
        if line is not None and reasons(line) and (reader != "read" or "a" in flags or len(names) > 1):
            one = [line.strip()] if reader != "read" and is_unknown(line) else None  # lines that another counts
            self.set |= {name: one or unknown(f"${name}") for name in names if name not in self.given}
            return
        if line is None:
            for name in names:
                self.assign(name, unknown(f"${name}"))
            if self.lines is None:
                self.undecided = f"{reader} {names[0]}"
            else:
                self.status = False  # the last line was read before
            return
        if reader != "read":
            self.set[names[-1]] = line.removesuffix("\n").split("\n")
        elif "a" in flags:
            self.set[names[-1]] = _divided(line, assigned.get("IFS"), None)
        else:
            parts = _divided(line, assigned.get("IFS"), len(names) - 1)
            for name, part in zip(names, [*parts, *[""] * len(names)], strict=False):
                self.assign(name, part)

    def handed(self, word: str) -> str:
        """Return the text that a command is handed: a here-string, or what the commands in `<(...)` print."""
        return self.output_of(word[2:-1]) if word.startswith(OF_PROCESS) else undivided_text(word, self)

    def _line(self, command: Command, *, whole: bool) -> str | None:
        """Return what the next reading gets, None where there is no more or nobody knows it."""
        if command.given or command.source.startswith(OF_PROCESS):
            text = self.handed(command.given or command.source)
        elif command.documents:
            document = command.documents[-1]
            text = document.text if document.quoted else document_of(document.text, self)
        elif self.lines:
            text = "\n".join(self.lines) if whole else self.lines[0]
            del self.lines[: None if whole else 1]
            return text
        else:
            return None
        return text if whole else text.partition("\n")[0]

    def printf(self, words: list[str]) -> str:
        """Return what `printf` prints; `-v NAME` sets a variable instead."""
        target = ""
        if words[:1] == ["-v"] and len(words) > 1:
            target, words = words[1], words[2:]
        text = printed(words)
        if not target:
            return text
        match = re.fullmatch(r"(\w+)\[(.+)\]", target)
        if match:
            self.element(match.group(1), match.group(2), text)
        else:
            self.assign(target, text)
        return ""

    def getopts(self, words: list[str]) -> None:
        """Take the next flag of the arguments, as `getopts "t:p:" NAME` does."""
        wanted, name = words[0].lstrip(":"), words[1]
        arguments = words[2:] or self.arguments
        place = self.set.get("OPTIND", "1")
        at = int(place) - 1 if isinstance(place, str) and place.isdecimal() else 0
        word = arguments[at] if at < len(arguments) else ""
        if not re.match(r"-[A-Za-z]", word) or reasons(word):
            self.assign(name, "?")
            self.status = False
            return
        letter, rest = word[1], word[2:]
        self.set["OPTIND"] = str(at + 2)
        if f"{letter}:" in wanted:
            self.set["OPTARG"] = rest or (arguments[at + 1] if at + 1 < len(arguments) else "")
            self.set["OPTIND"] = str(at + (2 if rest else 3))
        self.assign(name, letter if letter in wanted else "?")


def _divided(line: str, separators: str | None, most: int | None) -> list[str]:
    """Return the parts of a line, cut at most `most` times (None: as often as possible)."""
    if separators == "" or most == 0:
        return [line.strip() if separators is None else line]
    if separators:
        return re.split(f"[{re.escape(separators)}]", line, maxsplit=most or 0)
    return line.split(maxsplit=-1 if most is None else most)
