"""The state of a shell script that is followed: its findings, and its variables (`shell_words.Variables`)."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .shell_syntax import Script
from .shell_words import shown, unknown

# variables whose default changes neither time nor memory: places, names and ports
PLACES = re.compile(
    r"ADDR|PORT|PATH|DIR|HOME|NAME|LOG|DATA|FILE|WANDB|TOKEN|HOST|CKPT|CHECKPOINT|SAVE|LOAD|SEED|RDZV|RANK$|IMAGE|USER|"
    r"PARTITION|ACCOUNT|CACHE|ROOT|JOB_ID|EXP|TAG|URL|SCRIPT|BIN|PYTHON",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Started:
    """A command that the script would start: its words, expanded, and the variables set for it."""

    words: tuple[str, ...]
    line: int
    where: str
    variables: Mapping[str, str]


@dataclass(slots=True)
class Outcome:
    """What following a script found."""

    started: list[Started] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    sourced_missing: list[str] = field(default_factory=list)
    called: list[str] = field(default_factory=list)  # scripts that it starts and that were followed
    called_missing: list[str] = field(default_factory=list)
    documents: dict[str, str] = field(default_factory=dict)  # files that here-documents write
    variables: dict[str, str | list[str]] = field(default_factory=dict)

    def assume(self, text: str) -> None:
        """Add to what was assumed, once."""
        if text not in self.assumed:
            self.assumed.append(text)


class State:
    """Variables, functions and arguments of one script that is followed, and what was found."""

    def __init__(self, where: str, given: dict[str, str], find: Callable[[str], str | None]) -> None:
        self.where, self.find, self.given = where, find, given
        self.outcome = Outcome()
        self.set: dict[str, str | list[str]] = self.outcome.variables
        self.set.update(given)
        self.functions: dict[str, Script] = {}
        self.exported: set[str] = set(given)
        self.arguments: list[str] = []
        self.steps, self.depth, self.testing, self.status = 0, 0, False, True
        self.stay = False
        self.following: list[str] = [where]  # the script and, while one is followed into another, those in between
        self.printed: list[str] | None = None  # what `echo` wrote, while a command's output is asked for
        self.undecided = ""  # what only a machine knows of the condition that was asked last

    # --- what expansions ask

    def value(self, name: str) -> str | list[str] | None:
        """Return the value of a variable, of an argument by its number, or of a name such as # and @."""
        if name in {"@", "*"}:
            return list(self.arguments)
        if name == "#":
            return str(len(self.arguments))
        if name == "0":
            return self.where
        if name.isdecimal():
            place = int(name) - 1
            return self.arguments[place] if place < len(self.arguments) else None
        if name in {"?", "$", "!", "-"}:
            return "0" if name == "?" else unknown(f"${name}")
        return self.set.get(name)

    def assign(self, name: str, value: str) -> None:
        """Set a variable, unless it was set from outside."""
        if name not in self.given:
            self.set[name] = value

    def default_taken(self, name: str, default: str) -> None:
        """Note a default that may change time or memory."""
        if not PLACES.search(name) and not name.isdecimal():
            self.outcome.assume(f"{name}={shown(default)} (its default in {self.where})")

    def unset_read(self, name: str) -> str:
        """Return a mark for a variable that is not set; nothing where it is only compared, which is noted."""
        if not self.testing:
            return unknown(f"${name}")
        if name.isdecimal():
            self.outcome.assume(f"argument {name} of {self.where} is not given, taken as empty")
        elif not PLACES.search(name):
            self.outcome.assume(f"{name} is not set in {self.where}, taken as empty")
        return ""
