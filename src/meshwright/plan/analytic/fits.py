"""Whether a layout fits: what it is predicted to need, with a band, beside the memory that the driver shows."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from ...hardware import load_catalogue
from ...layout import FITS, Fits
from ...workload.conventions import OWN
from .coefficients import Book
from .quantities import Number

BAND = 0.05  # nine in ten of the measured peaks (tests/external/published/memory_rows.csv) are within it
PEAKS_OF = frozenset({"megatron", "bridge", "nemo", "torchtitan"})  # engines of which the table has peaks
UNSEEN_BAND = 0.31  # nine in ten of 30 other peaks, predicted before any fact was changed for them (memory_unseen.csv)
ABOVE = 0.03  # what may be more than predicted, of those engines: nine in ten of the allocated peaks
UNSEEN_ABOVE = 0.21  # the same of stacks that are left out whole (benchmarks/memory_rows.py, left_out)
GIVEN_BACK = 0.5  # of split blocks, what an allocator that runs short gets to use again
SURE, DOUBTFUL, OVER = range(3)  # indices of FITS


class Needed(Protocol):
    """What a layout needs: numbers, or arrays of them."""

    @property
    def allocated_bytes(self) -> Number:
        """Live tensors at the peak."""

    @property
    def reserved_bytes(self) -> Number:
        """Held by the allocator."""

    @property
    def card_bytes(self) -> Number:
        """What the driver shows as used."""


def fit_verdicts(needed: Needed, capacity_bytes: Number, *, seen: bool | npt.NDArray[np.bool_]) -> Number:
    """Return for each layout the index of its word in `layout.FITS`; `seen`: its stack is (`memory_seen`).

    It fits where live tensors and half of the split blocks do, at the far end of the band: an allocator that runs
    short gives blocks back and tries again. It does not where the live tensors alone do not, at the near end.
    """
    above, band = np.where(seen, ABOVE, UNSEEN_ABOVE), np.where(seen, BAND, UNSEEN_BAND)
    beside = needed.card_bytes - needed.reserved_bytes
    split = needed.reserved_bytes - needed.allocated_bytes
    most = (needed.allocated_bytes + (1.0 - GIVEN_BACK) * split) * (1.0 + above) + beside
    least = needed.allocated_bytes * (1.0 - band) + beside
    return np.where(most <= capacity_bytes, SURE, np.where(least <= capacity_bytes, DOUBTFUL, OVER))


def memory_seen(known: Book, stack: str) -> bool:
    """Return whether verdicts on a stack were held to something: peaks of its engine, or published runs of its own.

    Of our own engine every live tensor is known, and held to what autograd keeps (tests/unit/.../test_own_memory.py).
    """
    return stack == OWN or known.engine(stack) in PEAKS_OF or known.fitted(stack) in known.errors


def memory_band(engine: str) -> float:
    """Return the relative error that the memory of a stack on an engine is held to lie within, nine times in ten."""
    return BAND if engine in PEAKS_OF else UNSEEN_BAND


def word(verdict: Number) -> Fits:
    """Return the word of one verdict."""
    return FITS[int(verdict)]


def capacity_source(accelerator: str, capacity_bytes: float) -> str:
    """Return where a capacity comes from: a source of the catalogue, or the machine itself."""
    known = load_catalogue().accelerators.get(accelerator)
    if known is None or known.memory_bytes != capacity_bytes:
        return "the cluster's own figure"
    return f"{'the driver shows' if known.memory_shown else 'as sold'}: {known.capacity.source}"
