"""Errors of a rank whose numbers are wrong, and how the launcher reads them."""

import re
from collections.abc import Sequence

from ...errors import MeshwrightError
from ...units import first_few

NAMED = 3  # tensors that a message names
_WITHOUT = re.compile(r"going on without rank (\d+)$")


class CorruptionError(MeshwrightError):
    """Ranks hold or compute different numbers where they must be the same; the job ends."""


class CorruptionRestart(CorruptionError):
    """The same, where the ranks are to be started again from the last good checkpoint."""


def first_names(tensors: Sequence[str]) -> str:
    """Return the first few names of tensors, and how many more there are."""
    return first_few(tensors, NAMED)


def corruption(text: str, on_corruption: str, culprit: int | None) -> CorruptionError:
    """Return the error for `train.on_corruption`; a rank that is not known cannot be left out."""
    if on_corruption == "end":
        return CorruptionError(text)
    if on_corruption == "exclude" and culprit is not None:
        return CorruptionRestart(f"{text}; going on without rank {culprit}")
    return CorruptionRestart(f"{text}; going on from the last good checkpoint")


def excluded_rank(text: str) -> int | None:
    """Return the rank that an error of a rank, "TypeName: text", says to leave out."""
    found = _WITHOUT.search(text) if text.startswith(f"{CorruptionRestart.__name__}: ") else None
    return int(found[1]) if found else None
