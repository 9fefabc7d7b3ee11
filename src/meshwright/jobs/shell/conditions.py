"""Conditions of shell scripts: [ ... ] and [[ ... ]], as far as the script itself decides them."""

import fnmatch
import re
from collections.abc import Callable
from operator import eq, ge, gt, le, lt, ne
from typing import Literal, Protocol

from ..arithmetic import NotArithmetic, evaluate
from .marks import is_unknown, reasons, shown

NUMERIC: dict[str, Callable[[int, int], bool]] = {
    "-eq": eq,
    "-ne": ne,
    "-lt": lt,
    "-le": le,
    "-gt": gt,
    "-ge": ge,
}
GPUS = re.compile(r"nvidia-smi|device_count|rocm-smi|amd-smi")  # in commands that count a machine's GPUs
MOST_GPUS = 10**6


class Shell(Protocol):
    """The shell as a condition sees it."""

    def value(self, name: str) -> str | list[str] | None:
        """Return the value of a variable, None where it is not set."""

    def tested(self, word: str) -> str:
        """Return a word that is compared: variables that are not set are empty."""

    def matched(self, groups: list[str]) -> None:
        """Keep what a pattern matched."""


class ShellCondition:
    """The words of [ ... ] or [[ ... ]]; None stands for what only a machine knows."""

    def __init__(self, shell: Shell, words: list[str]) -> None:
        self.shell, self.words, self.at = shell, words, 0
        self.of_gpus = ""  # what was taken for a number of several GPUs

    def _peek(self, ahead: int = 0) -> str:
        return self.words[self.at + ahead] if self.at + ahead < len(self.words) else ""

    def either(self) -> bool | None:
        """Return whether the rest of the words holds, up to a closing bracket."""
        left = self._both()
        while self._peek() in {"||", "-o"}:
            self.at += 1
            right = self._both()
            left = True if left or right else None if left is None or right is None else False
        return left

    def _both(self) -> bool | None:
        left = self._one()
        while self._peek() in {"&&", "-a"}:
            self.at += 1
            right = self._one()
            left = False if left is False or right is False else None if left is None or right is None else True
        return left

    def _one(self) -> bool | None:
        word = self._peek()
        if word == "!":
            self.at += 1
            found = self._one()
            return None if found is None else not found
        if word == "(":
            self.at += 1
            found = self.either()
            self.at += 1
            return found
        if re.fullmatch(r"-[a-zA-Z]", word) and self._peek(1) and self._peek(1) not in {"&&", "||"}:
            self.at += 2
            return self._unary(word, self.shell.tested(self.words[self.at - 1]))
        if self._peek(1) in {"==", "=", "!=", "=~", "<", ">", *NUMERIC}:
            self.at += 3
            return self._compared(self.words[self.at - 3], self.words[self.at - 2], self.words[self.at - 1])
        self.at += 1
        value = self.shell.tested(word)
        return None if reasons(value) else bool(value)

    def _unary(self, operator: str, value: str) -> bool | None:
        if operator == "-v":
            return self.shell.value(value) is not None
        if operator in {"-z", "-n"} and self._absent(value):
            value = ""
        if reasons(value):
            return None
        return {"-z": not value, "-n": bool(value)}.get(operator)  # -f, -d and the rest ask the machine

    def _compared(self, left: str, sign: str, right: str) -> bool | None:
        a, b = self.shell.tested(left), self.shell.tested(right)
        if sign in {"==", "=", "!="} and "" in {a, b}:
            a, b = ("" if self._absent(text) else text for text in (a, b))
        if reasons(a) or reasons(b):
            return self._several(a, sign, b) if sign in NUMERIC else None
        if sign in {"==", "=", "!="}:
            same = fnmatch.fnmatchcase(a, b)
            return same == (sign != "!=")
        if sign == "=~":
            found = _matches(a, b)
            if found:
                self.shell.matched([group or "" for group in (found.group(0), *found.groups())])
            return None if found is None else bool(found)
        if sign in {"<", ">"}:
            return a < b if sign == "<" else a > b
        try:
            x, y = evaluate(a or "0", self._named), evaluate(b or "0", self._named)
        except NotArithmetic:
            return None
        return NUMERIC[sign](x, y)

    def _several(self, left: str, sign: str, right: str) -> bool | None:
        """Return whether what holds of any number of GPUs but one holds; None where that is not decided so.

        The left is such a number where it is all that a command about a machine's GPUs prints.
        """
        if not GPUS.search(" ".join(reasons(left))) or shown(left) != " ".join(reasons(left)) or not right.isdecimal():
            return None
        found = {NUMERIC[sign](number, int(right)) for number in (2, MOST_GPUS)}
        if len(found) > 1:
            return None
        self.of_gpus = shown(left)
        return found.pop()

    def _absent(self, text: str) -> bool:
        """Whether a text is that of variables or arguments that are not set, and of nothing else."""
        names = [match.group(1) if (match := re.fullmatch(r"\$(\w+)", reason)) else "" for reason in reasons(text)]
        if not is_unknown(text) or any(not name or self.shell.value(name) is not None for name in names):
            return False
        return not any(self.shell.tested(f"${{{name}}}") for name in names)

    def _named(self, name: str) -> str:
        value = self.shell.value(name)
        return value if isinstance(value, str) else ""


def _matches(text: str, pattern: str) -> "re.Match[str] | Literal[False] | None":
    """Return what a short and plain pattern matches; None for one whose matching could take long."""
    if len(pattern) > 100 or len(text) > 1000 or re.search(r"[*+}]\)*[*+{]", pattern):
        return None
    try:
        return re.search(pattern, text) or False
    except (re.error, OverflowError):
        return None
