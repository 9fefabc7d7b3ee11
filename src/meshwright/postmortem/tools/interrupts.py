"""Tracebacks of ranks that a person interrupted: where each stood as its KeyboardInterrupt came."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from ..nouns.facts import Frame, StackTrace
from ..text.lines import LogMessage
from ..text.steps import MANY_STEPS, is_step
from .stacks import SERVES_A_RANK

_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r"^\s{2,}File \"(?P<file>[^\"]+)\", line (?P<line>\d{1,9}), in (?P<function>\S+)")
_INTERRUPT = "KeyboardInterrupt"
_NOTICE = re.compile(r"\bReceived \S+ death signal\b|^KeyboardInterrupt\b|^Traceback ")
_LONG_S = 60.0
_TIMES = 10  # the longest time between two steps
_AT_THE_END = ("Exception ignored in", "Error in atexit", "Error in sys.excepthook")


def read(messages: Sequence[LogMessage]) -> Iterator[StackTrace]:
    """Yield the stack of each rank by the first traceback of its own that a KeyboardInterrupt ends.

    What the end of the process itself interrupts again, and its threads and children, say nothing of where it stood.
    """
    if not any(message.text.startswith(_INTERRUPT) for message in messages):
        return
    is_momentary = not _stood_for_long(messages)
    open_in: dict[int, list[tuple[Frame, LogMessage]]] = {}
    done: set[int] = set()
    last: dict[int, str] = {}
    for message in messages:
        rank, text = message.rank, message.text
        if rank is None or rank in done:
            continue
        if text.startswith(_TRACEBACK):
            open_in.pop(rank, None)
            if not last.get(rank, "").startswith(_AT_THE_END):
                open_in[rank] = []
        elif rank in open_in and (frame := _FRAME.match(text)):
            told = Frame(frame["function"], frame["file"], int(frame["line"]))
            open_in[rank].append((told, message))
        elif rank in open_in and text[:1].strip():
            own = open_in.pop(rank)
            if text.startswith(_INTERRUPT) and own and (stack := _stack(rank, own, is_momentary=is_momentary)):
                done.add(rank)
                yield stack
        last[rank] = text


def _stood_for_long(messages: Sequence[LogMessage]) -> bool:
    """Whether the clock shows that the last step of a log was far longer ago than steps are apart as it ended."""
    steps = [
        index for index, message in enumerate(messages) if message.where.time_s is not None and is_step(message.text)
    ]
    if len(steps) < MANY_STEPS:
        return False
    times_s = [messages[index].where.time_s or 0.0 for index in steps]
    behind = (message for message in messages[steps[-1] + 1 :] if _NOTICE.search(message.text))
    end_s = next((message.where.time_s for message in behind if message.where.time_s is not None), None)
    longest_s = max(later - earlier for earlier, later in pairwise(times_s))
    return end_s is not None and end_s - times_s[-1] > max(_LONG_S, _TIMES * longest_s)


def _stack(rank: int, own: Sequence[tuple[Frame, LogMessage]], *, is_momentary: bool) -> StackTrace | None:
    """Return the stack of the main thread, None of a child or of a thread."""
    frames = tuple(frame for frame, _ in reversed(own))
    if frames[-1].function != "<module>" or any(SERVES_A_RANK.search(f"{one.file}:{one.function}") for one in frames):
        return None
    return StackTrace(rank=rank, frames=frames, where=own[-1][1].where, is_momentary=is_momentary)
