"""The one family of errors: what the command line prints in one line, and the exit code that goes with it."""

import difflib
import re
from collections.abc import Iterable


class MeshwrightError(Exception):
    """Something that was asked for failed; the message is one line for a person."""

    exit_code = 1


class InputError(MeshwrightError):
    """Bad input: the message says what is wrong, where, and what was expected."""

    exit_code = 2


MOST_CHARACTERS = 1500  # of a message
MOST_WITH_ALL_WORDS = 4
_ENDLESS = re.compile(r"[^\s/]{300,}")  # longer than a file's name can be


def one_line(message: str) -> str:
    """Return a message as one line that every terminal prints: what is endless is cut, what is no text is escaped."""
    shorter = _ENDLESS.sub(lambda word: f"{word[0][:100]}...{word[0][-20:]}", " ".join(message.split()))
    if len(shorter) > MOST_CHARACTERS:
        shorter = f"{shorter[: MOST_CHARACTERS - 200]}...{shorter[-150:]}"
    return shorter.encode("utf-8", "backslashreplace").decode()


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.lower()))


def nearest(word: str, known: Iterable[str], *, cutoff: float = 0.5) -> str:
    """Return `known` as a hint: a few names of all its words or that go on from it, the closest, or all of them.

    `cutoff`: how like the word the closest has to be, from 0 to 1.
    """
    names = sorted(known)
    words = _words(word)
    whole = [name for name in names if name.startswith(f"{word}-") or (len(words) > 1 and words <= _words(name))]
    if 0 < len(whole) <= MOST_WITH_ALL_WORDS:
        return f"did you mean {' or '.join(whole)}?"
    close = difflib.get_close_matches(word, names, n=1, cutoff=cutoff)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(names)}"
