"""All servers as the coordinator sees them: a fragment is reduced and stepped as one, wherever its pieces lie."""

from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
from safetensors.torch import load, save
from torch import Tensor

from .connection import EMPTY, Connection, RefusedError
from .messages import Done, Forget, Message, Norms, Put, Read, Reduce, Refused, Snapshot, State, Step
from .pieces import Key, ServerPiece

CLIP_EPS = 1e-6  # as torch.nn.utils.clip_grad_norm_ has it


class ServerShard:
    """The pieces of one server, and what can be asked of them."""

    def __init__(self, pieces: dict[int, ServerPiece]) -> None:
        self.pieces = pieces

    def handle(self, message: Message, payload: Tensor) -> tuple[Message, Tensor] | None:
        """Carry out a request that concerns tensors; None for any other."""
        try:
            match message:
                case Put(piece, member, position):
                    self.pieces[piece].put((member, position), payload)
                case Read(piece, what):
                    return Done(), self.pieces[piece].read(what)
                case Reduce(piece, keys, weights):
                    return Norms(), self.pieces[piece].reduce(keys, weights).view(torch.uint8)
                case Step(piece, rate, scale):
                    self.pieces[piece].step(rate, scale)
                case Snapshot():
                    for part in self.pieces.values():
                        part.snapshot()
                case State(piece):
                    data = save(self.pieces[piece].state())
                    return Done(), torch.frombuffer(bytearray(data), dtype=torch.uint8)
                case Forget(member, before):
                    for part in self.pieces.values():
                        part.forget(member, before)
                case _:
                    return None
        except (KeyError, ValueError) as error:
            return Refused(f"{type(message).__name__}: {error}"), EMPTY
        return Done(), EMPTY


class Server(Protocol):
    """One server, here or elsewhere."""

    def ask(self, message: Message, payload: Tensor = ...) -> tuple[Message, Tensor]:
        """Carry out a request; RefusedError if it makes no sense, ConnectionLost if the server has gone."""


class LocalServer:
    """The server that the coordinator lives in."""

    def __init__(self, vault: ServerShard) -> None:
        self._vault = vault

    def ask(self, message: Message, payload: Tensor = EMPTY) -> tuple[Message, Tensor]:
        """Carry out a request here."""
        reply = self._vault.handle(message, payload)
        assert reply is not None
        if isinstance(reply[0], Refused):
            raise RefusedError(reply[0].reason)
        return reply


class ServerGroup:
    """The servers together; `fragments` fragments lie on all of them, in the pieces of `pieces.cut_pieces`."""

    def __init__(self, servers: Sequence[Server | Connection], fragments: int, dtype: torch.dtype) -> None:
        self._servers = servers
        self.fragments = fragments
        self._dtype = dtype

    def apply(
        self, fragment: int, keys: list[Key], weights: list[float], *, rate: float, max_norm: float = 0.0
    ) -> float:
        """Add up contributions to a fragment, clip the sum to a global norm (0: never), step; return its norm."""
        norms = [
            server.ask(Reduce(piece, keys, weights))[1].view(self._dtype) for server, piece in self._pieces(fragment)
        ]
        norm = torch.linalg.vector_norm(torch.cat(norms))
        scale = torch.clamp(max_norm / (norm + CLIP_EPS), max=1.0).item() if max_norm else 1.0
        for server, piece in self._pieces(fragment):
            server.ask(Step(piece, rate, scale))
        return float(norm)

    def snapshot(self) -> None:
        """Keep a copy of all weights for validation."""
        for server in self._servers:
            server.ask(Snapshot())

    def forget(self, member: int, before: int) -> None:
        """Drop what a worker that has left put for exchanges from `before` on."""
        for server in self._servers:
            server.ask(Forget(member, before))

    def state(self) -> dict[str, Tensor]:
        """Return weights by name and the optimiser's state by NAME/KEY, of all pieces."""
        found: dict[str, Tensor] = {}
        for fragment in range(self.fragments):
            for server, piece in self._pieces(fragment):
                found |= load(server.ask(State(piece))[1].numpy().tobytes())
        return found

    def _pieces(self, fragment: int) -> Iterable[tuple[Server | Connection, int]]:
        return ((server, fragment * len(self._servers) + i) for i, server in enumerate(self._servers))
