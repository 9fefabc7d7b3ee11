"""Messages of workers, coordinator and servers; tensors follow a message as its payload.

Every request has one reply, in order, on the connection that it came on; a `WorkerHeartbeat` has none.
"""

import msgspec


class Join(msgspec.Struct, frozen=True, tag=True):
    """A worker wants to be in; reply `Joined`, once the exchange that is under way has closed."""

    rank: int
    pid: int
    host: str


class Joined(msgspec.Struct, frozen=True, tag=True):
    """Read the weights, and the next exchange that this worker takes part in is `position`."""

    member: int  # a number that no other worker of the run has had
    position: int


class WorkerHeartbeat(msgspec.Struct, frozen=True, tag=True):
    """A worker's process is alive."""

    member: int


class LeaseRequest(msgspec.Struct, frozen=True, tag=True):
    """A worker has nothing to do; reply `Lease`, `Validate` or `Finish`."""

    member: int


class Lease(msgspec.Struct, frozen=True, tag=True):
    """Train on the shares `first` to `first + count - 1` of the data, then contribute.

    None at all: contribute what has not been yet, for the data are over.
    """

    first: int
    count: int
    position: int  # the exchange to contribute to
    read: bool = False  # others have gone on meanwhile: read the weights first


class Validate(msgspec.Struct, frozen=True, tag=True):
    """Evaluate every `parts`-th held-out sequence from `part` on with the weights of snapshot `step`; then `Scored`."""

    step: int
    part: int
    parts: int


class Scored(msgspec.Struct, frozen=True, tag=True):
    """The summed loss of the part of a `Validate`."""

    member: int
    step: int
    part: int
    loss: float


class Finish(msgspec.Struct, frozen=True, tag=True):
    """There is nothing left to do; send a `Record` and leave."""


class Contribute(msgspec.Struct, frozen=True, tag=True):
    """The result of a lease; the servers hold the tensors already. Reply `Closed` once they have been applied."""

    member: int
    position: int  # which exchange this belongs to, counted from 0
    first: int  # the lease's
    losses: list[float]  # summed loss of each share
    tokens: int  # that this contribution stands for, as its weight
    norm: float  # of the last gradient, before clipping
    seconds: float  # that the lease's computation took
    moved_bytes: int = 0  # over all connections of this worker since its last contribution, both ways


class Closed(msgspec.Struct, frozen=True, tag=True):
    """A contribution is in the weights; `read` says what for to ask."""

    position: int


class Record(msgspec.Struct, frozen=True, tag=True):
    """A worker's record, as JSON: its last message. Reply `Done`."""

    member: int
    record: str


class Put(msgspec.Struct, frozen=True, tag=True):
    """A contribution of a worker to one piece, as payload. Reply `Done`."""

    piece: int
    member: int
    position: int


class Read(msgspec.Struct, frozen=True, tag=True):
    """Reply `Done` with a piece as payload: "weights", "update" of the last exchange, or "snapshot"."""

    piece: int
    what: str


class Reduce(msgspec.Struct, frozen=True, tag=True):
    """Coordinator to server: add up contributions in this order, each times its weight. Reply `Norms`."""

    piece: int
    keys: list[tuple[int, int]]  # (member, position)
    weights: list[float]


class Norms(msgspec.Struct, frozen=True, tag=True):
    """The norm of each tensor of a sum follows as payload (the model's type)."""


class Step(msgspec.Struct, frozen=True, tag=True):
    """Coordinator to server: apply the sum with the optimiser. Reply `Done`."""

    piece: int
    rate: float
    scale: float  # of the gradient, 1 unless it is clipped


class Snapshot(msgspec.Struct, frozen=True, tag=True):
    """Coordinator to server: keep a copy of the weights for validation. Reply `Done`."""


class State(msgspec.Struct, frozen=True, tag=True):
    """Coordinator to server: reply `Done` with weights and optimiser state of a piece as safetensors."""

    piece: int


class Forget(msgspec.Struct, frozen=True, tag=True):
    """Coordinator to server: a worker has left; drop what it put for exchanges from `before` on. Reply `Done`."""

    member: int
    before: int


class Done(msgspec.Struct, frozen=True, tag=True):
    """The request has been carried out."""


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The request was not: the sender is not in (any more), or what it says makes no sense."""

    reason: str


Message = (
    Join
    | Joined
    | WorkerHeartbeat
    | LeaseRequest
    | Lease
    | Validate
    | Scored
    | Finish
    | Contribute
    | Closed
    | Record
    | Put
    | Read
    | Reduce
    | Norms
    | Step
    | Snapshot
    | State
    | Forget
    | Done
    | Refused
)
