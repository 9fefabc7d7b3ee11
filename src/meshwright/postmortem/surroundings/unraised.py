"""Errors that are printed and not raised: of destructors, finalisers, functions at exit and handlers of a log.

Python, multiprocessing and Weights & Biases catch what comes out of these, print it, and go on.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..text.lines import LogMessage

_HEADING = re.compile(r"Exception ignored (?:in|on|while)\b|^Error in atexit\._run_exitfuncs:|^--- Logging error ---")
_CATCHES = re.compile(  # the outermost frame of a traceback that was printed where it was caught
    r'(?:multiprocessing/util\.py", line \d+, in _run_finalizers|weakref\.py", line \d+, in _exitfunc'
    r"|, in (?:__del__|_atexit_cleanup))$"
)
_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")


@dataclass(slots=True)
class _Run:
    """Tracebacks of one speaker that are chained, or mixed since several processes write at once."""

    is_headed: bool = False
    tracebacks: int = 0
    links: int = 0  # of chains
    open: int = 0  # tracebacks whose error has not come yet
    begun: int = 0  # tracebacks whose outermost frame has not come yet
    caught: int = 0  # outermost frames that catch
    is_chained: bool = False  # the line above says that another traceback follows from this one
    errors: list[int] = field(default_factory=list)

    def add_traceback(self) -> None:
        """Take the heading of a traceback."""
        self.tracebacks += 1
        self.open += 1
        self.begun += 1
        self.links += self.is_chained
        self.is_chained = False

    def add_frame(self, text: str) -> None:
        """Take a line of a traceback."""
        if not self.begun or not text.lstrip().startswith('File "'):
            return
        if _CATCHES.search(text.rstrip()):
            self.caught += 1
            self.begun -= 1
        elif self.open == 1 and not self.caught:
            self.begun -= 1

    def was_caught(self) -> bool:
        """Return whether every error of the run was caught where it was printed."""
        return self.is_headed or 0 < self.tracebacks - self.links <= self.caught


def unraised(messages: Sequence[LogMessage]) -> set[int]:
    """Return the places of the messages that are errors which were printed and not raised."""
    found: set[int] = set()
    runs: dict[tuple[int | None, int | None], _Run] = {}

    def end(key: tuple[int | None, int | None]) -> None:
        if (run := runs.pop(key, None)) and run.was_caught():
            found.update(run.errors)

    for index, message in enumerate(messages):
        key, text = (message.rank, message.pid), message.text
        if ("ignored" in text[-160:] or text[:1] in "E-") and _HEADING.search(text):
            end(key)
            runs[key] = _Run(is_headed=True)
            continue
        if text.startswith(_TRACEBACK) or text.endswith(_TRACEBACK):
            if (run := runs.get(key)) and run.tracebacks and not run.open and not run.is_chained:
                end(key)
            runs.setdefault(key, _Run()).add_traceback()
        elif run := runs.get(key):
            if text[:1].isspace():
                run.add_frame(text)
            elif text.startswith(_CHAINED):
                run.is_chained = True
            elif run.open or (run.is_headed and not run.tracebacks):
                run.errors.append(index)
                run.open = max(run.open - 1, 0)
                run.tracebacks = max(run.tracebacks, 1)
            else:
                end(key)
    for key in list(runs):
        end(key)
    return found
