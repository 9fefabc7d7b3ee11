"""Errors that a program logs in one line of its own, without a traceback, and for which it says that it gives up."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from ..nouns.facts import Failure
from ..text.lines import LogMessage
from ..text.steps import is_of_error, is_step
from .endings import is_of_others, was_handled

_ERROR = re.compile(
    r"(?<![\w.])(?:[A-Za-z_]\w*\.){0,6}(?P<name>[A-Z]\w{0,60}(?:Error|Exception|StopIteration))"
    r"(?:\((?P<called>.{0,300}?)\)(?=\W|$)|: (?P<told>.{1,300}))"
)
_GIVES_UP = re.compile(
    r"\b(?:leaving|aborting|exiting|quitting|terminating|bailing|cleaning|shutting|tearing|stopping|shutdown)\b"
    r"|\bgiv(?:es|ing) up\b"
    r"|\b(?:train\w*|run|job|loop|worker|process|rank|main) (?:\d+ )?(?:has )?(?:failed|died|crashed|aborted|stopped)\b"
    r"|\b(?:[Uu]nhandled|[Uu]ncaught) (?:exception|error)\b",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    r"\b(?:skip|retr[iy]|ignor|continu|fall(?:s|ing)? ?back|again|dropp|recover|resum)", re.IGNORECASE
)


def read(messages: Sequence[LogMessage]) -> Iterator[Failure]:
    """Yield which ranks of one file log an error and give up; it is over where the job trained on."""
    went_on: dict[int | None, list[int]] = defaultdict(list)
    told = []
    for index, message in enumerate(messages):
        if is_step(message.text):
            went_on[message.rank].append(index)
        if message.rank is not None and not message.is_of_library and (found := _given_up(message)):
            told.append((index, message, found))
    for index, message, error in told:
        said = error["called"] or error["told"] or ""
        gives_up = _GIVES_UP.search(said)
        said = said[: gives_up.start() if gives_up else None].strip("'\",; ")
        what = f"{error['name']}: {said[:160]}" if said else error["name"]
        handled = was_handled(index, message.rank, went_on)
        yield Failure(
            kind="exception",
            what=what,
            rank=message.rank,
            where=message.where,
            follows=handled or is_of_others(error["name"], said),
            is_over=handled,
        )


def _given_up(message: LogMessage) -> re.Match[str] | None:
    """Return the error of a line that says that its program gives up for it, None for any other line."""
    text = message.text
    if "rror" not in text and "xception" not in text:
        return None
    if not is_of_error(message.where.text) or _GOES_ON.search(text) or not _GIVES_UP.search(text):
        return None
    return _ERROR.search(text)
