"""Gradients computed twice in some steps, before the optimiser sees them: a rank whose results are not its last ones.

In a checked step all micro-batches run again from the same state of the random generators. Loss, token count, the
random generators, each gradient as this rank computed it, and each as its sum came back must have the same bits. A
difference in the rank's own gradient is a fault of computation, one in the sum alone a fault of communication; with
ZeRO 2 and 3 PyTorch sums internally, so only sums are compared. A unit that errs in the same way twice is not found.

A step whose gradient is not finite is run once more as well, checked or not: where it is finite then, a bit has
flipped on the rank whose own gradient was not finite before, and else the run has diverged.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ...device import generator_states, set_generator_state
from ...parallel.engine import Batch, Engine
from ..data.feed import NOT_COUNTED
from ..job.config import TrainConfig
from ..run.events import Event, EventLog
from .checksums import checksum
from .corruption import corruption, first_names
from .flips import Flips
from .rank_context import RankContext

COMPUTED, RECEIVED = 1.0, 2.0  # what differs on a rank: what it computed, or only the sums that it received


class GradientPrint(NamedTuple):
    """The result of one computation of a step's gradients on one rank, as bits and checksums."""

    facts: dict[str, int]  # loss, tokens, random generators
    sent: dict[str, int]  # by parameter
    received: dict[str, int]


class StepReplay:
    """The probe of one rank's engine, and the comparison."""

    def __init__(
        self,
        train: TrainConfig,
        events: EventLog,
        flips: Flips | None,
        host_of: Callable[[int], str],
        here: RankContext,
        *,
        summed_inside: bool = False,
    ) -> None:
        self._train, self._events, self._flips, self._host_of = train, events, flips, host_of
        self._here, self._rank, self._ranks = here, here.rank, here.ranks
        self._inside = summed_inside  # gradients are summed where they are not seen before
        self._listening = False
        self._sent: dict[str, int] = {}
        self._received: dict[str, int] = {}
        self._before: list[tuple[str, Tensor]] = []  # the random generators as the step began
        self._norms: tuple[dict[str, Tensor], dict[str, Tensor]] = ({}, {})  # of what was sent, and of the sums

    @property
    def is_needed(self) -> bool:
        """Whether the engine has to show its gradients."""
        return bool(self._train.replay) or self._flips is not None

    def sent(self, gradients: Iterable[tuple[str, Tensor]]) -> None:
        """Take the checksums of gradients before they travel."""
        gradients = list(gradients)
        if self._flips is not None:
            self._flips.sent(gradients)
        self._measure(0, gradients)
        if self._listening:
            self._sent |= _checksums(gradients)

    def received(self, gradients: Iterable[tuple[str, Tensor]]) -> None:
        """Take the checksums of the sums."""
        gradients = list(gradients)
        if self._flips is not None:
            self._flips.received(gradients)
        self._measure(1, gradients)
        if self._listening:
            self._received = _checksums(gradients)

    def accumulate(
        self,
        engine: Engine,
        draw: Callable[[], Iterable[Batch]],
        tokens: int,
        *,
        number: int,
        paused: Callable[[], AbstractContextManager[None]],
    ) -> Tensor:
        """Compute the gradients of a step, twice where it is checked; return its loss as the engine does.

        Raises CorruptionError on all ranks where the two differ on any.
        """
        self._norms = ({}, {})
        self._before = generator_states() if self._train.replay else []
        if not self._due(number):
            return engine.accumulate(draw(), tokens, number=number)
        loss, first = self._seen(engine, draw, tokens, number)
        engine.discard()
        _set_generators(self._before)
        with paused():
            loss, second = self._seen(engine, draw, tokens, number)
        self._compare(number, first, second)
        return loss

    def explain(
        self,
        engine: Engine,
        draw: Callable[[], Iterable[Batch]],
        tokens: int,
        *,
        number: int,
        paused: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """Compute a step again whose gradient is not finite and of which no update was made; called on all ranks.

        Raises CorruptionError on all ranks where what some rank computed or received is finite now.
        """
        if not self._train.replay:
            return
        sent, received = self._endless_of_step()
        engine.discard()
        _set_generators(self._before)
        self._norms = ({}, {})
        with paused():
            self._seen(engine, draw, tokens, number)
        computed, got = (
            sorted(before - now) for before, now in zip((sent, received), self._endless_of_step(), strict=True)
        )
        self._tell(number, [f"gradient of {name}" for name in computed or got], COMPUTED if computed else RECEIVED)

    def _endless_of_step(self) -> tuple[set[str], set[str]]:
        """Return the gradients of this step that were not finite: those this rank computed, and those it received."""
        sent, received = self._norms
        if not self._inside:  # what does not travel was computed here
            sent = {name: norm for name, norm in received.items() if name not in sent} | sent
        return _endless(sent), _endless(received)

    def _measure(self, place: int, gradients: Iterable[tuple[str, Tensor]]) -> None:
        """Keep the norms of gradients, which nobody waits for: they are looked at where the step's is not finite."""
        if self._train.replay and (named := dict(gradients)):
            norms = torch._foreach_norm([gradient.detach() for gradient in named.values()])
            self._norms[place].update(zip(named, norms, strict=True))

    def _due(self, step: int) -> bool:
        every = self._train.replay
        return every > 0 and ((step + 1) % every == 0 or self._train.saves_after(step))

    def _seen(
        self, engine: Engine, draw: Callable[[], Iterable[Batch]], tokens: int, number: int
    ) -> tuple[Tensor, GradientPrint]:
        self._listening, self._sent, self._received = True, {}, {}
        counted: list[int] = []
        loss = engine.accumulate(_counted(draw(), counted), tokens, number=number)
        if self._flips is not None:
            self._flips.end()
        self._listening = False
        facts = {
            "loss": checksum([loss.double() + 0.0]),
            "token count": sum(counted),
            "random generators": checksum(state for _, state in generator_states()),
        }
        if self._inside:
            return loss, GradientPrint(facts, {}, self._received)
        alone = {name: value for name, value in self._received.items() if name not in self._sent}  # nothing travels
        return loss, GradientPrint(facts, self._sent | alone, self._received)

    def _compare(self, step: int, first: GradientPrint, second: GradientPrint) -> None:
        facts, sent = _differing(first.facts, second.facts), _differing(first.sent, second.sent)
        received = _differing(first.received, second.received)
        names = [*facts, *(f"gradient of {name}" for name in sent or received)]
        self._tell(step, names, COMPUTED if facts or sent else RECEIVED)

    def _tell(self, step: int, mine: list[str], how: float) -> None:
        """Tell the others what differs on this rank, and raise on all where anything does on any."""
        codes = torch.zeros(self._ranks, dtype=torch.float64)
        codes[self._rank] = how if mine else 0.0
        if self._ranks > 1:
            codes = self._here.sum(codes)
        computed = [rank for rank, code in enumerate(codes.tolist()) if code == COMPUTED]
        got = [rank for rank, code in enumerate(codes.tolist()) if code == RECEIVED]
        if computed or got:
            self._found(step, computed, got, mine)

    def _found(self, step: int, computed: list[int], got: list[int], mine: list[str]) -> None:
        blamed = computed or (got if 2 * len(got) < self._ranks or len(got) == 1 else [])
        names = self._names_of((computed or got)[0], step, mine)
        if computed:
            cause = f"by the computation of rank {', '.join(map(str, computed))}"
        elif self._inside:
            cause = "by computation or communication, which ZeRO 2 and 3 do not tell apart"
            blamed = []
        else:
            whom = f"rank {', '.join(map(str, blamed))} received them so" if blamed else "of which rank is not known"
            cause = f"by communication: {whom}"
        culprit = blamed[0] if len(blamed) == 1 else None
        text = f"step {step}: run twice, {first_names(names)} differ, brought in {cause}"
        if self._rank == 0:
            host = self._host_of(culprit) if culprit is not None else ""
            self._events.record(Event(kind="corruption", message=text, culprit=culprit, host=host, step=step))
        raise corruption(text, self._train.on_corruption, culprit)

    def _names_of(self, rank: int, step: int, mine: list[str]) -> list[str]:
        """Return what differs on a rank, by what it says through the store."""
        if self._ranks == 1:
            return mine
        store = dist.PrefixStore(f"meshwright/replay/{step}", dist.distributed_c10d._get_default_store())
        if rank == self._rank:
            store.set("names", json.dumps(mine))
        found: list[str] = json.loads(store.get("names"))
        return found


def _checksums(gradients: Iterable[tuple[str, Tensor]]) -> dict[str, int]:
    """Return checksums by name; zeros of either sign are one: a gradient may have been added to zeros or not."""
    return {name: checksum([gradient.detach() + 0.0]) for name, gradient in gradients}


def _endless(norms: dict[str, Tensor]) -> set[str]:
    """Return the names of the values that are not finite."""
    return {name for name, norm in norms.items() if not math.isfinite(norm.item())}


def _differing(first: dict[str, int], second: dict[str, int]) -> list[str]:
    return [name for name in first | second if first.get(name) != second.get(name)]


def _counted(batches: Iterable[Batch], counts: list[int]) -> Iterator[Batch]:
    for inputs, targets in batches:
        counts.append(int((targets != NOT_COUNTED).sum()))
        yield inputs, targets


def _set_generators(states: list[tuple[str, Tensor]]) -> None:
    for kind, state in states:
        set_generator_state(kind, state)
