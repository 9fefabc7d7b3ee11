"""Marks of what only a running shell knows: an unknown part of a text is kept with the reason in it."""

import re

OF_PROCESS = "<("  # begins a word that stands for what commands print
OPEN, CLOSE = "\ue000", "\ue001"


def unknown(reason: str) -> str:
    """Return the mark of a text that only a running shell knows."""
    return f"{OPEN}{reason.replace(OPEN, '').replace(CLOSE, '')}{CLOSE}"


def behind_mark(text: str, at: int) -> int:
    """Return the place behind the mark that opens at `at`; a text that is read again (`eval`) keeps its marks."""
    end = text.find(CLOSE, at)
    return end + 1 if end >= 0 else at + 1


def reasons(text: str) -> list[str]:
    """Return what the unknown parts of a text depend on."""
    return re.findall(f"{OPEN}([^{CLOSE}]*){CLOSE}", text)


def shown(text: str) -> str:
    """Return a text for a message: unknown parts as they were written."""
    return re.sub(f"{OPEN}([^{CLOSE}]*){CLOSE}", r"\1", text)


def without_unknown(text: str) -> str:
    """Return the known parts of a text."""
    return re.sub(f"{OPEN}[^{CLOSE}]*{CLOSE}", "", text)


def is_unknown(text: str) -> bool:
    """Whether nothing of a text is known."""
    return bool(reasons(text)) and not without_unknown(text).strip()
