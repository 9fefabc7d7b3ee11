"""The state of a shell script that is followed: its findings, and its variables (`words.Variables`)."""

import os.path
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..slurm import ARRAY
from .marks import is_unknown, shown, unknown, without_unknown
from .syntax import Script
from .words import how_many

# variables whose default changes neither time nor memory: places, names and ports
PLACES = re.compile(
    r"ADDR|PORT|PATH|DIR|HOME|NAME|LOG|DATA|FILE|WANDB|TOKEN|HOST|CKPT|CHECKPOINT|SAVE|LOAD|SEED|RDZV|RANK$|IMAGE|USER|"
    r"PARTITION|ACCOUNT|CACHE|ROOT|JOB_ID|EXP|TAG|URL|SCRIPT|BIN|PYTHON",
    re.IGNORECASE,
)


class Leave(Exception):
    """`exit`, `return`, `break` or `continue` of the script; the last two leave that number of loops."""

    def __init__(self, kind: str, number: int = 1) -> None:
        self.kind, self.number = kind, number


@dataclass(frozen=True, slots=True)
class Started:
    """A command that the script would start: its words, expanded, the variables set for it and those it would see."""

    words: tuple[str, ...]
    line: int
    where: str
    variables: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""  # that the script went into, from where it began; "" where it went nowhere known
    submitted: bool = False  # by a script that was handed to a batch system


@dataclass(slots=True)
class ScriptOutcome:
    """The findings of following a script."""

    started: list[Started] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    sourced_missing: list[str] = field(default_factory=list)
    called: list[str] = field(default_factory=list)  # scripts that it starts or sources and that were followed
    called_missing: list[str] = field(default_factory=list)
    seen_by_missing: dict[str, str] = field(default_factory=dict)  # variables that the last of these would see
    documents: dict[str, str] = field(default_factory=dict)  # files that here-documents write
    manifests: dict[str, str] = field(default_factory=dict)  # that it hands to a cluster, by file or line
    variables: dict[str, str | list[str]] = field(default_factory=dict)
    loops: dict[str, None] = field(default_factory=dict)  # names of variables of `for` loops, in their order
    tasks: tuple[str, ...] = ()  # where the script asks which task of an array it is: that variable, and its values
    arguments: dict[str, str] = field(default_factory=dict)  # that it reads and is not given, and its words for them
    changed: set[str] = field(default_factory=set)  # names of files that were there before and are changed

    def assume(self, text: str) -> None:
        """Add to what was assumed, once."""
        if text not in self.assumed:
            self.assumed.append(text)


class ScriptState:
    """Variables, functions and arguments of one script that is followed, and what was found."""

    def __init__(self, where: str, given: dict[str, str], find: Callable[[str], str | None]) -> None:
        self.where, self.find, self.given = where, find, given
        self.outcome = ScriptOutcome()
        self.set: dict[str, str | list[str]] = self.outcome.variables
        self.set.update(given)
        self.functions: dict[str, Script] = {}
        self.exported: set[str] = set(given)
        self.arguments: list[str] = []
        self.folder = ""  # that it went into, from where it began
        self.left: list[str] = []  # folders that `popd` goes back to
        self.steps, self.depth, self.testing = 0, 0, False
        self.status = True  # whether this command succeeded
        self.stay = False
        self.following: list[str] = [where]  # the script and, while one is followed into another, those in between
        self.frames: list[dict[str, str | list[str] | None]] = []  # of functions: what their local names hide
        self.assigning = ""  # the variable whose value is expanded
        self.refers: dict[str, str] = {}  # names that stand for others (`declare -n`)
        self.lines: list[str] | None = None  # that `read` takes, where something known feeds it
        self.temporaries = 0  # files that `mktemp` made
        self.code = 0  # of the command before this one: $?
        self.printed: list[str] | None = None  # what `echo` wrote, while a command's output is asked for
        self.undecided = ""  # what only a machine knows of the condition that was asked last

    def go(self, command: str, words: Sequence[str]) -> None:
        """Follow `cd`, `pushd` and `popd`; from a place that only the machine knows, the rest of a path is followed."""
        if command == "popd":
            self.folder = self.left.pop() if self.left else ""
            return
        if command == "pushd":
            self.left.append(self.folder)
        path = next((word for word in words if not word.startswith("-")), "")
        known = without_unknown(path)
        if known != path or not path or path.startswith(("/", "~")):
            self.folder = known.strip("/") if known != path else ""
        else:
            self.folder = os.path.normpath(os.path.join(self.folder, path))
        self.folder = "" if self.folder == "." else self.folder

    def at_hand(self, path: str) -> str | None:
        """Return the text of a file that the script names from the folder that it is in; None where it is not here."""
        inside = self.folder and not path.startswith("/")
        found = self.find(f"{self.folder}/{path}") if inside else None
        return self.find(path) if found is None else found

    # --- what expansions ask

    def value(self, name: str) -> str | list[str] | None:
        """Return the value of a variable, of an argument by its number, or of a name such as # and @."""
        if name in {"@", "*"}:
            return list(self.arguments)
        if name == "#":
            return how_many(self.arguments, self)
        if name == "0":
            return self.where
        if name.isdecimal():
            place = int(name) - 1
            return self.arguments[place] if place < len(self.arguments) else None
        if name == "?":
            return str(self.code)
        if name in {"$", "!", "-"}:
            return unknown(f"${name}")
        array = self.set.get(ARRAY)
        if isinstance(array, str) and array.startswith(f"{name} ") and name not in self.given:
            self.outcome.tasks = tuple(array.split())
        return self.set.get(self.refers.get(name, name))

    def script(self, script: Script) -> None:
        """Follow the commands of a script."""
        raise NotImplementedError

    def output_of(self, command: str) -> str:
        """Return what a command prints, or a mark that it is unknown."""
        raise NotImplementedError

    def elements(self, name: str) -> dict[str, str]:
        """Return the elements of an array that have names, in the order in which they were set."""
        start = f"{name}["
        found = {key[len(start) : -1]: value for key, value in self.set.items() if key.startswith(start)}
        return {key: value for key, value in found.items() if key and isinstance(value, str)}

    def matched(self, groups: list[str]) -> None:
        """Keep what a pattern of a condition matched."""
        self.set["BASH_REMATCH"] = list(groups)

    def assign(self, name: str, value: str) -> None:
        """Set a variable, unless it was set from outside."""
        name = self.refers.get(name, name)
        if name not in self.given:
            self.set[name] = value

    def default_taken(self, name: str, default: str) -> None:
        """Note a default that may change time or memory; arguments of functions and of called scripts are known."""
        if name.isdecimal():
            own = not self.frames and len(self.following) == 1 and self.assigning not in self.given
            if own and default and not PLACES.search(self.assigning):
                told = f"{self.assigning}=" if self.assigning else ""
                self.outcome.assume(f"{told}{shown(default)} (the default of argument {name} of {self.where})")
        elif not PLACES.search(name):
            self.outcome.assume(f"{name}={shown(default)} (its default in {self.where})")

    def required(self, name: str, told: str) -> str:
        """Return a mark for a variable that must be set; an argument of the script is asked for."""
        if name.isdecimal() and len(self.following) == 1:
            self.outcome.arguments[name] = told or self.outcome.arguments.get(name, "")
        return unknown(f"${name}")

    def unset_read(self, name: str) -> str:
        """Return a mark for a variable that is not set; nothing where it is only compared, which is noted.

        A function or a called script has nothing behind the last argument that it is given.
        """
        if name.isdecimal() and self.arguments and (self.frames or len(self.following) > 1):
            return "" if not any(map(is_unknown, self.arguments)) else self.required(name, "")
        if not self.testing:
            return self.required(name, "")
        if name.isdecimal():
            self.outcome.assume(f"argument {name} of {self.where} is not given, taken as empty")
        elif not PLACES.search(name):
            self.outcome.assume(f"{name} is not set in {self.where}, taken as empty")
        return ""
