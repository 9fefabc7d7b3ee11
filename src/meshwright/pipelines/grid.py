"""Action and PipelineGrid: a pipeline schedule as data, which is checked when it is made.

A model is cut into stages 0 .. S-1; each rank holds one or more of them. An action is one pass of one micro-batch
through one stage. It prints as three parts and parses back:

    2F0   stage 2, forward, micro-batch 0
    1B3   stage 1, backward (gradients of the input and of the weights), micro-batch 3
    0I2   stage 0, the part of backward that gives the input's gradient, which the stage before waits for
    0W2   stage 0, the rest of backward: the weights' gradients, which nobody waits for
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, cast

from ..errors import InputError

Kind = Literal["F", "B", "I", "W"]
_ACTION = re.compile(r"(\d+)([FBIW])(\d+)")


class Action(NamedTuple):
    """One pass of one micro-batch through one stage."""

    stage: int
    kind: Kind
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.micro_batch}"

    @classmethod
    def parse(cls, text: str) -> "Action":
        """Return the action that `text` names, such as "2F0"; InputError for anything else."""
        match = _ACTION.fullmatch(text)
        if match is None:
            raise InputError(f"{text!r}: expected STAGE, one of F B I W, MICRO-BATCH, such as 2F0")
        return cls(int(match[1]), cast(Kind, match[2]), int(match[3]))


@dataclass(frozen=True)
class PipelineGrid:
    """The order of actions of each rank. A grid that exists is complete and ends: see `_check`.

    Raises InputError where an action is missing, twice or out of place, where a stage is on two ranks, or where the
    ranks would wait for each other for ever.
    """

    rows: tuple[tuple[Action, ...], ...]  # by rank

    def __post_init__(self) -> None:
        _check(self)

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.rows)

    @cached_property
    def rank_of_stage(self) -> tuple[int, ...]:
        """The rank that holds each stage."""
        places = {action.stage: rank for rank, row in enumerate(self.rows) for action in row}
        return tuple(places[stage] for stage in sorted(places))

    @property
    def stages(self) -> int:
        """Number of stages over all ranks."""
        return len(self.rank_of_stage)

    @cached_property
    def micro_batches(self) -> int:
        """Number of micro-batches."""
        return 1 + max(action.micro_batch for row in self.rows for action in row)

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """Return the stages that a rank holds, in the order of the forward pass."""
        return tuple(stage for stage, holder in enumerate(self.rank_of_stage) if holder == rank)

    @cached_property
    def by_rank(self) -> Mapping[int, tuple[Action, ...]]:
        """The rows as a dictionary."""
        return dict(enumerate(self.rows))

    def needs(self, action: Action) -> tuple[Action, ...]:
        """Return the actions that must have ended, on any rank, before `action` can start."""
        stage, kind, micro_batch = action
        if kind == "F":
            return (Action(stage - 1, "F", micro_batch),) if stage else ()
        if kind == "W":
            return (Action(stage, "I", micro_batch),)
        own = Action(stage, "F", micro_batch)
        if stage + 1 == self.stages:
            return (own,)
        return (own, Action(stage + 1, self._gradient_kind(stage + 1, micro_batch), micro_batch))

    def consumer(self, action: Action) -> Action | None:
        """Return the action of a neighbouring stage that waits for what `action` gives, None if nobody does."""
        stage, kind, micro_batch = action
        if kind == "F":
            return Action(stage + 1, "F", micro_batch) if stage + 1 < self.stages else None
        if kind == "W" or not stage:
            return None
        return Action(stage - 1, self._gradient_kind(stage - 1, micro_batch), micro_batch)

    def in_order(self) -> Iterator[tuple[int, Action]]:
        """Return (rank, action) in an order in which every action comes after all that it needs.

        Raises InputError at a deadlock, naming the rank that waits longest.
        """
        done: set[Action] = set()
        waiting: dict[Action, int] = {}
        position = [0] * self.ranks
        ready = deque(range(self.ranks))
        while ready:
            rank = ready.popleft()
            row = self.rows[rank]
            while position[rank] < len(row):
                action = row[position[rank]]
                missing = next((need for need in self.needs(action) if need not in done), None)
                if missing is not None:
                    waiting[missing] = rank  # nobody else can wait for it: see `needs`
                    break
                done.add(action)
                position[rank] += 1
                if action in waiting:
                    ready.append(waiting.pop(action))
                yield rank, action
        stuck = [rank for rank in range(self.ranks) if position[rank] < len(self.rows[rank])]
        if stuck:
            rank = min(stuck, key=lambda r: position[r])
            action = self.rows[rank][position[rank]]
            missing = next(need for need in self.needs(action) if need not in done)
            raise InputError(f"deadlock: rank {rank} waits in {action} for {missing}, which never comes")

    def __str__(self) -> str:
        """Return one line a rank; `parse_grid` is the inverse."""
        return "\n".join(" ".join(map(str, row)) for row in self.rows)

    @cached_property
    def _split_backward(self) -> frozenset[tuple[int, int]]:
        return frozenset((a.stage, a.micro_batch) for row in self.rows for a in row if a.kind == "I")

    def _gradient_kind(self, stage: int, micro_batch: int) -> Kind:
        return "I" if (stage, micro_batch) in self._split_backward else "B"


def parse_grid(text: str) -> PipelineGrid:
    """Return the grid whose ranks are the lines of `text`, such as "0F0 0B0\\n1F0 1B0"."""
    return PipelineGrid(tuple(tuple(Action.parse(word) for word in line.split()) for line in text.strip().splitlines()))


def _check(grid: PipelineGrid) -> None:
    """Raise InputError unless each stage is on one rank, does each micro-batch once each way, and all ranks end."""
    if not grid.rows or not all(grid.rows):
        raise InputError("a grid needs one rank or more, each with an action")
    places: dict[int, int] = {}
    seen: set[Action] = set()
    for rank, row in enumerate(grid.rows):
        for action in row:
            if places.setdefault(action.stage, rank) != rank:
                raise InputError(f"stage {action.stage} is on rank {places[action.stage]} and on rank {rank}")
            if action in seen:
                raise InputError(f"rank {rank} does {action} twice")
            seen.add(action)
    if set(places) != set(range(len(places))):
        raise InputError(f"stages must be 0 to {len(places) - 1}, got {sorted(places)}")
    for stage, rank in places.items():
        for micro_batch in range(grid.micro_batches):
            kinds = {kind for kind in "FBIW" if (stage, kind, micro_batch) in seen}
            if kinds not in ({"F", "B"}, {"F", "I", "W"}):
                raise InputError(
                    f"rank {rank}: stage {stage}, micro-batch {micro_batch}: expected F and B, or F, I and W; "
                    f"got {' '.join(sorted(kinds)) or 'nothing'}"
                )
    for _ in grid.in_order():
        pass
