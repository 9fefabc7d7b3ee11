"""A worker's connections to the servers: one pair to each, and one by which the coordinator knows that it lives."""

import os
import socket
import threading
from collections.abc import Sequence

import torch
from torch import Tensor

from ...plan.search.asynchronous import Wire
from ..encoding import Feedback, decode
from .connection import Connection, ConnectionLost, RefusedError, connect
from .messages import (
    Closed,
    Contribute,
    Finish,
    Join,
    Joined,
    Lease,
    LeaseRequest,
    Put,
    Read,
    Record,
    Scored,
    Validate,
    WorkerHeartbeat,
)

BEATS_PER_SILENCE = 5  # heartbeats within the time after which a silent worker is out


class DroppedError(RefusedError):
    """The coordinator took this worker for dead: it has to join again."""


class Client:
    """A worker's requests. The ones that may wait for others go over connections of their own (`exchange`)."""

    def __init__(self, addresses: Sequence[str], word: str, silence_s: float) -> None:
        self._life = connect(addresses[0], word)
        self._control = [connect(address, word) for address in addresses]
        self._exchange = [connect(address, word) for address in addresses]
        self._silence_s = silence_s
        self._told_bytes = 0
        self._closed = threading.Event()
        self.servers = len(addresses)
        self.member = 0

    def join(self, rank: int) -> Joined:
        """Ask to be let in, which may take until the exchange under way is over; be heard from then on."""
        reply, _ = self._life.ask(Join(rank, os.getpid(), socket.gethostname()))
        assert isinstance(reply, Joined)
        self.member = reply.member
        threading.Thread(target=self._beat, args=(reply.member,), daemon=True).start()
        return reply

    def next(self) -> Lease | Validate | Finish:
        """Ask for work; waits until there is some."""
        reply, _ = self._ask(self._control[0], LeaseRequest(self.member))
        assert isinstance(reply, Lease | Validate | Finish)
        return reply

    def put(self, piece: int, position: int, data: Tensor) -> None:
        """Hand in an encoded contribution to one piece."""
        self._exchange[piece % self.servers].ask(Put(piece, self.member, position), data)

    def contribute(self, lease: Lease, losses: list[float], *, tokens: int, norm: float, seconds: float) -> None:
        """Say that all pieces of a contribution have been put; waits until it is in the weights."""
        moved_bytes = self.moved_bytes
        message = Contribute(
            self.member, lease.position, lease.first, losses, tokens, norm, seconds, moved_bytes - self._told_bytes
        )
        reply, _ = self._ask(self._exchange[0], message)
        self._told_bytes = moved_bytes
        assert isinstance(reply, Closed)

    def read_update(self, piece: int) -> Tensor:
        """Return the bytes of the last update of a piece, right after its exchange has closed."""
        return self._exchange[piece % self.servers].ask(Read(piece, "update"))[1]

    def read(self, piece: int, what: str, dtype: torch.dtype) -> Tensor:
        """Return the weights of a piece, or those of the snapshot."""
        return self._control[piece % self.servers].ask(Read(piece, what))[1].view(dtype)

    def scored(self, task: Validate, loss: float) -> None:
        """Hand in the summed loss of a part of the held-out sequences."""
        self._ask(self._control[0], Scored(self.member, task.step, task.part, loss))

    def record(self, text: str) -> None:
        """Hand in what this worker recorded."""
        self._ask(self._control[0], Record(self.member, text))

    def close(self) -> None:
        """Leave."""
        self._closed.set()
        for connection in (self._life, *self._control, *self._exchange):
            connection.close()

    @property
    def moved_bytes(self) -> int:
        """Bytes sent and received so far."""
        return sum(c.moved_bytes for c in (self._life, *self._control, *self._exchange))

    def _ask(
        self, connection: Connection, message: LeaseRequest | Contribute | Scored | Record
    ) -> tuple[object, Tensor]:
        try:
            return connection.ask(message)
        except RefusedError as error:
            if str(error) == "not in":
                raise DroppedError("the coordinator has let this worker go") from None
            raise

    def _beat(self, member: int) -> None:
        while member == self.member and not self._closed.wait(self._silence_s / BEATS_PER_SILENCE):
            try:
                self._life.send(WorkerHeartbeat(member))
            except ConnectionLost:
                return


class FragmentChannel:
    """The pieces of one fragment as a vector: contributed with what encodings lost before, read back whole."""

    def __init__(self, client: Client, pieces: Sequence[int], sizes: Sequence[int], wire: Wire) -> None:
        self._client, self._pieces, self._sizes, self._wire = client, pieces, list(sizes), wire
        self._feedback = [Feedback(wire) for _ in pieces]

    def put(self, position: int, vector: Tensor) -> None:
        """Hand in a contribution."""
        parts = torch.split(vector, self._sizes)
        for piece, part, feedback in zip(self._pieces, parts, self._feedback, strict=True):
            self._client.put(piece, position, feedback.encode(part))

    def read(self, what: str, dtype: torch.dtype) -> Tensor:
        """Return the weights, or those of the snapshot."""
        return torch.cat([self._client.read(piece, what, dtype) for piece in self._pieces])

    def follow(self, published: Tensor) -> Tensor:
        """Return the weights after an exchange, given those before it."""
        data = [self._client.read_update(piece) for piece in self._pieces]
        if self._wire == "full":
            return torch.cat([part.view(published.dtype) for part in data])
        updates = [
            decode(part, size, published.dtype, self._wire) for part, size in zip(data, self._sizes, strict=True)
        ]
        return published + torch.cat(updates)
