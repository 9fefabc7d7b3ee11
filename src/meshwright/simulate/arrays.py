"""Lists of lists as flat arrays: which resources each activity uses, which activities each gate releases."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Numbers = NDArray[Any]  # whole, of 64 bits; of 32 in a program, which has fewer than 2^31 of each thing


class Lists(NamedTuple):
    """Row i holds items[start[i]:start[i + 1]]."""

    start: Numbers  # rows + 1
    items: Numbers

    def of(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return the items of some rows, one after the other, and for each item the place of its row in `rows`."""
        first, count = self.start[rows], self.start[rows + 1] - self.start[rows]
        place = np.repeat(np.arange(len(rows)), count)
        inside = np.arange(len(place)) - np.repeat(np.cumsum(count) - count, count)
        return first[place] + inside, place

    def counts(self) -> Ints:
        """Return the number of items of each row."""
        return np.diff(self.start)


def lists(row: Numbers, item: Numbers, rows: int) -> Lists:
    """Return the lists of pairs (row, item), in numbers as wide as the items; items of a row keep their order."""
    start = starts(row, rows).astype(item.dtype, copy=False)
    in_order = bool((row[1:] >= row[:-1]).all())
    return Lists(start, item if in_order else item[np.argsort(row, kind="stable")])


def starts(row: Numbers, rows: int) -> Ints:
    """Return where each row starts once its items are sorted by row."""
    return np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows))]).astype(np.int64)


def ints(values: Any) -> Ints:
    """Return an array of whole numbers."""
    return np.asarray(values, dtype=np.int64)


class Pairs:
    """Pairs (row, item) that are collected in one place each, so that millions of them take eight bytes a pair."""

    def __init__(self) -> None:
        self._row, self._item = (np.empty(2**14, dtype=np.int32) for _ in range(2))
        self._count = 0

    def add(self, row: Ints, item: Ints) -> None:
        """Add the pairs of two arrays of numbers below 2^31."""
        end = self._count + len(row)
        if end > len(self._row):
            for kept in (self._row, self._item):
                kept.resize(max(end, 2 * len(kept)), refcheck=False)
        self._row[self._count : end] = row
        self._item[self._count : end] = item
        self._count = end

    def lists(self, rows: int) -> Lists:
        """Return the lists of all pairs; nothing can be added after it."""
        for kept in (self._row, self._item):
            kept.resize(self._count, refcheck=False)
        return lists(self._row, self._item, rows)
