"""Lists of lists as flat arrays: which resources each activity uses, which activities each gate releases."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Lists(NamedTuple):
    """Row i holds items[start[i]:start[i + 1]]."""

    start: Ints  # rows + 1
    items: Ints

    def of(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return the items of some rows, one after the other, and for each item the place of its row in `rows`."""
        first, count = self.start[rows], self.start[rows + 1] - self.start[rows]
        place = np.repeat(np.arange(len(rows)), count)
        inside = np.arange(len(place)) - np.repeat(np.cumsum(count) - count, count)
        return first[place] + inside, place

    def counts(self) -> Ints:
        """Return the number of items of each row."""
        return np.diff(self.start)


def lists(row: Ints, item: Ints, rows: int) -> Lists:
    """Return the lists of pairs (row, item); items of a row keep their order."""
    order = np.argsort(row, kind="stable")
    return Lists(starts(row, rows), item[order])


def starts(row: Ints, rows: int) -> Ints:
    """Return where each row starts once its items are sorted by row."""
    return np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows))]).astype(np.int64)


def ints(values: Any) -> Ints:
    """Return an array of whole numbers."""
    return np.asarray(values, dtype=np.int64)
