"""The text or script that a command hands to another shell, and the words before it."""

import itertools
import re
import shlex
from collections.abc import Sequence

from ...errors import InputError

SHELLS = frozenset({"bash", "sh", "zsh"})
PYTHON = re.compile(r"python[\d.]*$")
LAUNCHERS = frozenset({"torchrun", "deepspeed", "accelerate"})


def split_words(text: str) -> list[str]:
    """Return the words of a command as written, with their quotes."""
    try:
        lexer = shlex.shlex(text, posix=False, punctuation_chars=False)
        lexer.whitespace_split, lexer.commenters = True, ""
        return list(lexer)
    except ValueError:
        raise InputError("a quotation is not closed") from None


def called_script(fields: Sequence[str]) -> tuple[tuple[str, ...], str, list[str]] | None:
    """Return the words before a script that a command starts, the script's path and its arguments; None for others.

    A script of its own name (`./run.sh`), or the first word after a shell, `sbatch` or `qsub` that is no flag.
    """
    for place, word in enumerate(fields):
        name = word.rpartition("/")[2]
        if PYTHON.match(name) or name in LAUNCHERS or name.endswith(".py"):
            return None
        if name in SHELLS or name in {"sbatch", "qsub"}:
            for at in range(place + 1, len(fields)):
                if re.search(r"\.(sh|bash|slurm|sbatch|pbs)$", fields[at]) and not fields[at].startswith("-"):
                    return tuple(fields[:place]), fields[at], list(fields[at + 1 :])
            return None
    if re.search(r"\.(sh|bash)$", fields[0]) and not fields[0].endswith("run_train.sh"):
        return (), fields[0], list(fields[1:])
    return None


def inner_script(fields: Sequence[str]) -> tuple[tuple[str, ...], str, list[str]] | None:
    """Return the words before `bash -c TEXT NAME WORD ...`, the text and its words; None for other commands."""
    for place, word in enumerate(fields):
        if word.rpartition("/")[2] not in SHELLS:
            continue
        flags = list(itertools.takewhile(lambda later: later.startswith("-"), fields[place + 1 :]))
        if any(re.fullmatch(r"-[a-z]*c[a-z]*", flag) for flag in flags):
            rest = list(fields[place + 1 + len(flags) :])
            return (tuple(fields[:place]), rest[0], rest[2:]) if rest else None
    flags_of_text = {"--wrap"} if fields[0].rpartition("/")[2] == "sbatch" else {"--command", "--COMMAND"}
    for place, word in enumerate(fields):
        name, equals, text = word.partition("=")
        if name in flags_of_text:  # of `sbatch`, and of what starts a text on other machines (xpk, gcloud, MaxText's)
            text = text if equals else "".join(fields[place + 1 : place + 2])
            return ((), text, []) if " " in text else None
    return None
