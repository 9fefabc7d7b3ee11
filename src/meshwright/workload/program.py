"""StepProgram: what one training step sends, computes and holds, stage by stage, for the engines that time it.

`workload.assembly` and `workload.held` fill it in; the planner prices it from measured figures or closed formulas,
`simulate.step` replays it, `plan --graph` draws it. Sizes and numbers of calls are plain numbers, or arrays for many
layouts at once.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ..layout import Layout
from ..mesh import Axis
from .elements import HALF_BYTES, SINGLE_BYTES, TYPE_NAMES

Number = float | npt.NDArray[Any]  # of one layout, or an array of many
Flag = bool | npt.NDArray[np.bool_]  # of one layout, or of many
ADDED_UP = frozenset({"all_reduce", "reduce_scatter"})  # what they take depends on the type, not on bytes alone
FLOAT = "float"  # as nccl-tests name types
DTYPES = {HALF_BYTES: TYPE_NAMES[HALF_BYTES], SINGLE_BYTES: FLOAT}  # by the bytes of an element


class Comm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One collective of every group of an axis; `bytes` is its payload, as collectives.figures defines it.

    It is called `calls` times in each micro-batch and `once` times more in a step: in the first micro-batch where it
    comes ahead of computation, in the last where it comes behind.
    """

    axis: Axis
    collective: str
    bytes: Number
    calls: Number = 1
    once: Number = 0
    element_bytes: Number = SINGLE_BYTES  # of what it carries
    leaving: Number = 1.0  # of an all-to-all's bytes for other nodes, the share that is sent there
    algorithm: str = "auto"  # ring, hierarchical where groups have several ranks in each node, pairwise all-to-all

    @property
    def size_bytes(self) -> int:
        """The payload, of one layout."""
        return int(self.bytes)

    @property
    def dtype(self) -> str:
        """The type whose measured times hold for it: float where nothing is added up and bytes alone count."""
        return DTYPES.get(int(self.element_bytes), FLOAT) if self.collective in ADDED_UP else FLOAT

    def in_step(self, micro_batches: Number) -> Number:
        """Return how often it is called in a step."""
        return self.calls * micro_batches + self.once

    def in_pass(self, *, special: bool) -> int:
        """Return how often it is called in a micro-batch, in that of `once` if `special`."""
        return int(self.calls + self.once * special)


def called_in(comms: Iterable[Comm], *, special: bool = False) -> tuple[Comm, ...]:
    """Return the calls of one micro-batch one by one, with those of once a step if `special`."""
    return tuple(comm for comm in comms for _ in range(comm.in_pass(special=special)))


class Pass(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One micro-batch through `layers` equal layers in one direction: computation, and then `comms` in turn.

    `ahead`: collectives that a layer waits for, and that may run while the layer before it computes (the parameters
    that ZeRO-3 gathers). `behind`: collectives that start after a layer, and that only the update waits for (the
    gradients that ZeRO-3 scatters).
    """

    compute_s: float = 0.0  # of all layers
    layers: int = 1
    comms: tuple[Comm, ...] = ()  # of each layer
    ahead: tuple[Comm, ...] = ()  # of each layer
    behind: tuple[Comm, ...] = ()  # of each layer

    def __post_init__(self) -> None:
        if self.layers < 1 or not self.compute_s >= 0:
            raise ValueError("expected layers of 1 or more and compute_s of 0 or more")

    @property
    def sent(self) -> tuple[Comm, ...]:
        """All collectives of each layer."""
        return (*self.ahead, *self.comms, *self.behind)


class Unit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Equal layers in a row, forwards and backwards."""

    name: str = ""
    forward: Pass = Pass()
    backward: Pass = Pass()

    @property
    def both(self) -> tuple[Pass, Pass]:
        """Forward and backward."""
        return self.forward, self.backward


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The work of one (virtual) stage on one rank of it; backward goes through the units from the last to the first."""

    units: tuple[Unit, ...]
    output_bytes: int = 0  # that each rank sends to the next stage, and its gradient back
    weight_share: float = 0.5  # of backward's computation that a zero-bubble schedule puts off (W)
    gradients: tuple[Comm, ...] = ()  # in the order in which the last backward fills them, evenly over it
    sums: tuple[Comm, ...] = ()  # after the last backward, before the update: of gradients that ranks hold parts of
    parameters: tuple[Comm, ...] = ()  # after the update: what ZeRO-1 and 2 gather

    @classmethod
    def of(cls, forward: Pass, backward: Pass, **rest: Any) -> "Stage":
        """Return a stage of one unit."""
        return cls(units=(Unit(forward=forward, backward=backward),), **rest)

    @property
    def once(self) -> tuple[Comm, ...]:
        """The traffic once a step."""
        return (*self.gradients, *self.sums, *self.parameters)


class States(NamedTuple):
    """Bytes that one rank holds throughout a step, and what comes on top while it computes."""

    parameters: Number
    gradients: Number
    optimizer: Number
    passing: Number = 0  # gathered weights and whole gradients of the layers that are at work
    host: Number = 0  # in the memory of the rank's host
    pinned: Number = 0  # of that, what the device copies to and from


class Moment(NamedTuple):
    """Bytes that a rank holds at one time of a step beside its states."""

    activations: Number  # kept for backward
    logits: Number
    working: Number  # of the layer at work: gradients, what is computed again, weights that are gathered for it
    update: Number = 0  # what the optimiser makes while it steps
    gradients: Number = 0  # of the weights, what is not there throughout a step


class Held(NamedTuple):
    """The memory of a rank: its states, and the moments at which it may hold most."""

    states: States
    moments: tuple[Moment, ...]


class StepProgram(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One training step: stages 0 .. pp x vpp - 1, as `pipelines.schedule` puts them on ranks."""

    layout: Layout
    micro_batches: int  # of each rank of dp
    stages: tuple[Stage, ...]
    held: tuple[Held, ...] = ()  # by each rank of the pipeline, where that was asked
    optimizer_s: float = 0.0
    data_s: float = 0.0  # to draw a micro-batch, before each forward of the first stage
    cores: float | None = None  # cores that all ranks share, one busy core a rank; None: each rank has its own
    comm_cores: float = 0.0  # of a rank, busy while it communicates
    host_bytes_per_s: float | None = None  # of a device to the memory of its host and back, where something crosses

    def __post_init__(self) -> None:
        if len(self.stages) != self.layout.pp * self.layout.vpp:
            raise ValueError(f"stages: expected pp x vpp = {self.layout.pp * self.layout.vpp}, got {len(self.stages)}")
        if self.micro_batches < 1:
            raise ValueError(f"micro_batches: expected 1 or more, got {self.micro_batches}")

    def calls(self, stages: Iterable[int]) -> Counter[tuple[Axis, str, int]]:
        """Return how often a rank that holds these stages calls which collective, with how many bytes, in a step.

        A message to a neighbouring stage counts where it is sent, as "send_activation" or "send_gradient".
        """
        found: Counter[tuple[Axis, str, int]] = Counter()
        mine = set(stages)

        def add(comms: Iterable[Comm], times: Callable[[Comm], Number]) -> None:
            for comm in comms:
                if count := int(times(comm)):
                    found[comm.axis, comm.collective, comm.size_bytes] += count

        for number in mine:
            stage = self.stages[number]
            for unit in stage.units:
                for each in (unit.forward, unit.backward):
                    add(each.sent, lambda comm, n=each.layers: n * comm.in_step(self.micro_batches))  # type: ignore[misc]
            add(stage.once, lambda comm: comm.in_step(0))
            if number + 1 < len(self.stages) and number + 1 not in mine:
                found["pp", "send_activation", stage.output_bytes] += self.micro_batches
            if number and number - 1 not in mine:
                found["pp", "send_gradient", self.stages[number - 1].output_bytes] += self.micro_batches
        return found
