"""Fit of a layout: the memory that it is predicted to need, with a band, beside what the driver shows."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from ...hardware import load_catalogue
from ...layout import FITS, Fits
from ...workload.conventions import OWN, conventions_of
from ...workload.elements import HALF_BYTES
from .coefficients import STRANGERS, Book
from .quantities import Number

BAND = 0.05  # nine in ten of the measured peaks (tests/external/published/memory_rows.csv) are within it
PEAKS_OF = frozenset({"megatron", "bridge", "nemo", "torchtitan"})  # engines of which the table has peaks
UNSEEN_BAND = 0.31  # nine in ten of 30 other peaks, predicted before any fact was changed for them (memory_unseen.csv)
ABOVE = 0.03  # what may be more than predicted, of those engines: nine in ten of the allocated peaks
UNSEEN_ABOVE = 0.21  # the same of stacks that are left out whole (benchmarks/memory_rows.py, left_out)
# engines of whose pipelines every measured peak was more than predicted: torchtitan's five of 405 B, by 11 to 25 %
LOW_IN_PIPELINES = frozenset({"torchtitan"})
GIVEN_BACK = 0.5  # of split blocks, what an allocator that runs short gets to use again
SURE, DOUBTFUL, OVER = range(3)  # indices of FITS


class MemoryTrust(NamedTuple):
    """How far a prediction of memory is trusted: numbers, or arrays of them, a stack each."""

    above: Number  # what live tensors may be more than predicted
    below: Number  # what they may be less
    given_back: Number  # of split blocks, what counts as free
    spared_states: Number = 0.0  # of gradients, moments and master copies, what may not be there
    spared_logits: Number = 0.0  # of logits likewise
    kept_gradients: Number = 0.0  # of gradients, what is there beside all moments at least: two bytes an element


SEEN = MemoryTrust(ABOVE, BAND, GIVEN_BACK)
UNSEEN = MemoryTrust(UNSEEN_ABOVE, UNSEEN_BAND, GIVEN_BACK)
# Stacks under which some runs hold master copies and others nothing but half precision, which is half of gradients,
# moments and copies, and some have all logits at once, others an eighth or less: facts of a run, not of the stack
UNSAID = frozenset({*STRANGERS, "accelerate", "trl", "unsloth"})
SPARED_STATES, SPARED_LOGITS = 0.5, 0.875
# NeMo 1 holds of a master copy the 16 bits that its weight in bf16 lacks (store_param_remainders, NVIDIA/NeMo:nemo/
# collections/nlp/models/language_modeling/megatron_base_model.py), NeMo 2 all 32: two bytes of 16 or 14 of the states
REMAINDERS = {"nemo": "NeMo 1 holds master copies in 2 bytes a parameter less"}
SPARED_REMAINDERS = HALF_BYTES / 16.0
HELD_ON_CPUS = MemoryTrust(ABOVE, BAND, 0.0)  # every live tensor is known, what an allocator makes of them is not


class Needed(Protocol):
    """The memory that a layout needs: numbers, or arrays of them."""

    @property
    def allocated_bytes(self) -> Number:
        """Live tensors at the peak."""

    @property
    def reserved_bytes(self) -> Number:
        """Held by the allocator."""

    @property
    def parameters_bytes(self) -> Number:
        """Of those, weights."""

    @property
    def gradients_bytes(self) -> Number:
        """Of those, sums of gradients."""

    @property
    def optimizer_bytes(self) -> Number:
        """Of those, moments and master copies."""

    @property
    def logits_bytes(self) -> Number:
        """Of those, logits, their copies and gradients."""

    @property
    def update_bytes(self) -> Number:
        """Of those, what the optimiser makes while it steps, which a fused one does not."""

    @property
    def card_bytes(self) -> Number:
        """The memory that the driver shows as used."""


def fit_verdicts(needed: Needed, capacity_bytes: Number, trust: MemoryTrust) -> Number:
    """Return for each layout the index of its word in `layout.FITS`.

    It fits where live tensors and what is left of the split blocks do, at the far end of the band: an allocator that
    runs short gives blocks back and tries again. It does not where the live tensors alone do not, at the near end and
    without what may not be there; the near end is never below weights, moments, master copies and gradients in half
    precision, whose bytes are a count: what a prediction may be too high by lies in activations and what runs beside.
    """
    beside = needed.card_bytes - needed.reserved_bytes
    split = needed.reserved_bytes - needed.allocated_bytes
    most = (needed.allocated_bytes + (1.0 - trust.given_back) * split) * (1.0 + trust.above) + beside
    spared = trust.spared_states * (needed.gradients_bytes + needed.optimizer_bytes)
    spared = spared + trust.spared_logits * needed.logits_bytes + needed.update_bytes
    least = np.minimum(needed.allocated_bytes * (1.0 - trust.below), needed.allocated_bytes - spared)
    kept = needed.parameters_bytes + (1.0 - trust.spared_states) * needed.optimizer_bytes
    kept = kept + np.minimum(1.0 - trust.spared_states, trust.kept_gradients) * needed.gradients_bytes
    least = np.maximum(least, kept) + beside
    return np.where(most <= capacity_bytes, SURE, np.where(least <= capacity_bytes, DOUBTFUL, OVER))


def surely_over(least_bytes: Number, capacity_bytes: Number, trust: MemoryTrust) -> Number:
    """Return for which layouts `fit_verdicts` says OVER, whatever they need beside these bytes."""
    return least_bytes * (1.0 - np.maximum(trust.below, trust.spared_states)) > capacity_bytes


def memory_trust(known: Book, stack: str) -> MemoryTrust:
    """Return how far the memory of a stack is trusted, by what it was held to.

    That is peaks of its engine, or published runs of its own; of our own engine what autograd keeps on CPUs
    (tests/unit/plan/analytic/test_own_memory.py).
    """
    gradient_bytes = conventions_of(known.described(stack)).held_gradient_bytes
    kept = np.minimum(1.0, HALF_BYTES / np.maximum(gradient_bytes, HALF_BYTES))
    if stack == OWN:
        return HELD_ON_CPUS._replace(kept_gradients=kept)
    seen = known.engine(stack) in PEAKS_OF or known.fitted(stack) in known.errors
    return (SEEN if seen else UNSEEN)._replace(kept_gradients=kept)


def in_pipelines(trust: MemoryTrust, known: Book, stack: str, pp: Number) -> MemoryTrust:
    """Return a trust with more room above for the pipelines of engines that need more there, and nobody knows why."""
    low = _is_low(known, stack, pp)
    return (
        trust._replace(above=np.where(low, np.maximum(trust.above, UNSEEN_ABOVE), trust.above))
        if np.any(low)
        else trust
    )


def _is_low(known: Book, stack: str, pp: Number) -> Number:
    """Return whether peaks of pipelines of these sizes were more than predicted."""
    return np.greater(pp, 1) & (known.engine(stack) in LOW_IN_PIPELINES)


def as_said(trust: MemoryTrust, stack: str, *, states: bool, loss: bool) -> MemoryTrust:
    """Return a trust less what may not be there, of stacks that leave it open where a run says nothing of it."""
    if stack in REMAINDERS and not states:
        return trust._replace(spared_states=SPARED_REMAINDERS)
    if stack not in UNSAID:
        return trust
    return trust._replace(spared_states=0.0 if states else SPARED_STATES, spared_logits=0.0 if loss else SPARED_LOGITS)


def trusts(known: Book, runs: Iterable[tuple[str, tuple[bool, bool], Number]]) -> MemoryTrust:
    """Return the same of many runs as arrays: each a stack, whether it says its states and its loss, and its pp."""
    found = [
        in_pipelines(as_said(memory_trust(known, stack), stack, states=said[0], loss=said[1]), known, stack, pp)
        for stack, said, pp in runs
    ]
    return MemoryTrust(*np.array(found).T)


def memory_basis(known: Book, stack: str, pp: int, unsaid: Sequence[str] = ()) -> tuple[float, str]:
    """Return the relative error that memory is held to lie within, nine times in ten, and what that lacks, in words.

    `unsaid`: options that say how a run holds its weights and logits, and are not given.
    """
    if stack == OWN:
        return BAND, "live tensors, on CPUs; no peak on a GPU was measured"
    if _is_low(known, stack, pp):
        return UNSEEN_ABOVE, "all measured peaks of its pipelines were more than predicted, by 11 to 25%"
    if known.engine(stack) in PEAKS_OF:
        return BAND, REMAINDERS.get(stack, "") if "--weights" in unsaid else ""
    lacks = "no peak of this stack was measured"
    if stack not in UNSAID or not unsaid:
        return UNSEEN_BAND, lacks
    return UNSEEN_BAND, f"{lacks}; {' and '.join(unsaid)} {'say' if len(unsaid) > 1 else 'says'} what it holds"


def word(verdict: Number) -> Fits:
    """Return the word of one verdict."""
    return FITS[int(verdict)]


def capacity_source(accelerator: str, capacity_bytes: float) -> str:
    """Return where a capacity comes from: a source of the catalogue, or the machine itself."""
    known = load_catalogue().accelerators.get(accelerator)
    if known is None or known.memory_bytes != capacity_bytes:
        return "the cluster's own figure"
    return f"{'the driver shows' if known.memory_shown else 'as sold'}: {known.capacity.source}"
