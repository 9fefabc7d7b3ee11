"""A worker's side of a parameter server and of local SGD: lease, compute, contribute, over and over.

What a mode does to the weights is here; what a share of the data comes to is the `Task`'s.
"""

import threading
import time
from collections.abc import Sequence
from typing import Protocol

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor

from ...plan.search.asynchronous import Wire
from .client import Client, DroppedError, FragmentChannel
from .messages import Finish, Lease, Validate
from .pieces import cut_pieces, shaped


class Task(Protocol):
    """The task of a worker."""

    @property
    def parameters(self) -> Sequence[Tensor]:
        """Return the weights, in the order of the model."""

    def train(self, share: int) -> tuple[float, float]:
        """Compute the gradient of a share of the data (and, in local SGD, step); return summed loss and norm."""

    def evaluate(self, part: int, parts: int) -> float:
        """Return the summed loss over a part of the held-out sequences."""

    def record(self) -> str:
        """Return what was recorded, as JSON."""

    def note(self, name: str, start_s: float, end_s: float, size_bytes: int = 0) -> None:
        """Record communication, from `start_s` to `end_s` on `time.monotonic`."""

    def end(self, share: int) -> None:
        """Take note that a share, with the communication that belongs to it, is over."""


class WorkerTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The mode as a worker sees it."""

    fragments: int
    wire: Wire
    stream: bool  # go on training while an exchange is under way
    tokens_per_share: int


class Island:
    """The ranks that train as one worker: the default process group, or this process alone. The leader is rank 0."""

    def __init__(self) -> None:
        self.size = dist.get_world_size() if dist.is_initialized() else 1
        self.is_leader = self.size == 1 or dist.get_rank() == 0

    def tell(self, text: bytes) -> bytes:
        """Return the leader's text on all ranks."""
        if self.size == 1:
            return text
        length = torch.tensor([len(text)])
        dist.broadcast(length, 0)
        data = torch.zeros(int(length), dtype=torch.uint8)
        if self.is_leader:
            data.copy_(torch.frombuffer(bytearray(text), dtype=torch.uint8))
        dist.broadcast(data, 0)
        return data.numpy().tobytes()

    def share(self, vector: Tensor) -> Tensor:
        """Return the leader's vector on all ranks; elsewhere it is written over."""
        if self.size > 1:
            dist.broadcast(vector, 0)
        return vector


class Worker:
    """The common part of both modes: join, do what one is told, join again when one was taken for dead."""

    def __init__(self, task: Task, client: Client | None, terms: WorkerTerms, *, rank: int, island: Island) -> None:
        self.task, self.terms, self.island = task, terms, island
        self._client, self._rank = client, rank
        parameters = list(task.parameters)
        sizes = [p.numel() for p in parameters]
        servers = client.servers if client is not None else 1
        pieces = cut_pieces(sizes, terms.fragments, servers)
        self.channels: list[FragmentChannel | None] = []
        self.tensors: list[list[Tensor]] = []  # of each fragment
        for fragment in range(terms.fragments):
            mine = range(fragment * servers, (fragment + 1) * servers)
            self.tensors.append([parameters[i] for piece in mine for i in pieces[piece]])
            lengths = [sum(sizes[i] for i in pieces[piece]) for piece in mine]
            self.channels.append(None if client is None else FragmentChannel(client, mine, lengths, terms.wire))

    def run(self) -> None:
        """Work until there is nothing left to do. All ranks of an island call it; only the leader has a client."""
        while True:
            try:
                if self._client is not None:
                    self._client.join(self._rank)
                self.enter()
                while not isinstance(work := self._ask(), Finish):
                    if isinstance(work, Validate):
                        self._validate(work)
                    else:
                        self.work(work)
                if self._client is not None:
                    self._client.record(self.task.record())
                return
            except DroppedError:
                if self.island.size > 1:  # the others are in the middle of something: start the island again
                    raise

    def enter(self) -> None:
        """Take the newest weights."""
        raise NotImplementedError

    def work(self, lease: Lease) -> None:
        """Train on a lease and contribute."""
        raise NotImplementedError

    def vector(self, fragment: int) -> Tensor:
        """Return a copy of a fragment's weights, end to end."""
        return torch.cat([t.detach().reshape(-1) for t in self.tensors[fragment]])

    def write(self, fragment: int, vector: Tensor) -> None:
        """Put a vector into a fragment's weights."""
        with torch.no_grad():
            for tensor, part in zip(self.tensors[fragment], shaped(vector, self.tensors[fragment]), strict=True):
                tensor.copy_(part)

    def read(self, what: str) -> list[Tensor]:
        """Return the weights of all fragments as the servers hold them, or the snapshot, on all ranks."""
        found = []
        for fragment, channel in enumerate(self.channels):
            local = self.vector(fragment)
            found.append(self.island.share(local if channel is None else channel.read(what, local.dtype)))
        return found

    def _ask(self) -> Lease | Validate | Finish:
        start = time.monotonic()
        text = b"" if self._client is None else msgspec.json.encode(self._client.next())
        self.task.note("wait", start, time.monotonic())
        work: Lease | Validate | Finish = msgspec.json.decode(self.island.tell(text), type=Lease | Validate | Finish)
        return work

    def _validate(self, task: Validate) -> None:
        mine = [self.vector(fragment) for fragment in range(self.terms.fragments)]
        for fragment, vector in enumerate(self.read("snapshot")):
            self.write(fragment, vector)
        loss = self.task.evaluate(task.part, task.parts)
        for fragment, vector in enumerate(mine):
            self.write(fragment, vector)
        if self._client is not None:
            self._client.scored(task, loss)


class GradientWorker(Worker):
    """A worker of a parameter server: read the weights, push the gradient of a share."""

    def enter(self) -> None:
        """Nothing: the weights are read before each share."""

    def work(self, lease: Lease) -> None:
        """Train on a share."""
        start = time.monotonic()
        self.write(0, self.read("weights")[0])
        self.task.note("read", start, time.monotonic())
        start = time.monotonic()
        loss, norm = self.task.train(lease.first)
        end = time.monotonic()
        channel = self.channels[0]
        assert channel is not None
        assert self._client is not None
        gradients = [torch.zeros_like(t) if t.grad is None else t.grad for t in self.tensors[0]]
        channel.put(lease.position, torch.cat([g.reshape(-1) for g in gradients]))
        tokens = self.terms.tokens_per_share
        self._client.contribute(lease, [loss], tokens=tokens, norm=norm, seconds=end - start)
        self.task.note("contribute", end, time.monotonic())
        self.task.end(lease.first)


class _Exchange(threading.Thread):
    """A contribution on its way, and what came of it."""

    def __init__(
        self, client: Client, channel: FragmentChannel, published: Tensor, delta: Tensor, told: "_Told"
    ) -> None:
        super().__init__(daemon=True)
        self._client, self._channel, self._published, self._delta, self._told = client, channel, published, delta, told
        self._result: Tensor | BaseException | None = None
        self.end_s: float | None = None
        self.start()

    def run(self) -> None:
        try:
            self._channel.put(self._told.lease.position, self._delta)
            told = self._told
            self._client.contribute(told.lease, told.losses, tokens=told.tokens, norm=told.norm, seconds=told.seconds)
            self._result = self._channel.follow(self._published)
        except BaseException as error:
            self._result = error
        self.end_s = time.monotonic()

    def result(self) -> Tensor:
        """Wait for the new weights."""
        self.join()
        if isinstance(self._result, BaseException):
            raise self._result
        assert self._result is not None
        return self._result


class _Told(msgspec.Struct):
    """A worker's report of a finished lease."""

    lease: Lease
    losses: list[float]
    tokens: int
    norm: float
    seconds: float


class _Travelling(msgspec.Struct):
    """A fragment whose exchange is under way: its weights when it was sent."""

    fragment: int
    sent: Tensor
    exchange: _Exchange | None  # on the leader
    start_s: float

    def note(self, task: Task, since_s: float) -> None:
        """Record the part of the exchange that went on while the rank computed, from `since_s` to now."""
        end_s = self.exchange.end_s if self.exchange is not None else None
        start_s = max(self.start_s, since_s)
        task.note("exchange", start_s, max(start_s, end_s or time.monotonic()))


class LocalWorker(Worker):
    """A worker of local SGD or DiLoCo (Douillard et al. 2023, arXiv 2311.08105; streaming: 2025, arXiv 2501.18512).

    Its weights diverge from the servers' between exchanges; after each lease the change of one fragment is
    contributed, and the fragment goes on from what comes back. While an exchange is under way training goes on if
    `stream` is set: what was gained meanwhile is added to what comes back.
    """

    def enter(self) -> None:
        """Take the newest weights."""
        self._travelling: _Travelling | None = None
        self._published = self.read("weights")
        self._tokens = [0] * self.terms.fragments  # trained on since each fragment was contributed
        for fragment, vector in enumerate(self._published):
            self.write(fragment, vector)

    def work(self, lease: Lease) -> None:
        """Train on the shares of a lease, then contribute a fragment."""
        if lease.read:
            self.enter()
        losses, norm = [], 0.0
        start = time.monotonic()
        last = lease.first + lease.count - 1
        for share in range(lease.first, last + 1):
            share_start = time.monotonic()
            loss, norm = self.task.train(share)
            losses.append(loss)
            self._tokens = [tokens + self.terms.tokens_per_share for tokens in self._tokens]
            if self._travelling is not None:
                self._travelling.note(self.task, share_start)
            self._land(wait=False)
            if share < last:
                self.task.end(share)
        seconds = time.monotonic() - start
        self._land(wait=True)
        fragment = lease.position % self.terms.fragments
        told = _Told(lease, losses, self._tokens[fragment], norm, seconds)
        self._tokens[fragment] = 0
        sent = self.vector(fragment)
        exchange = None
        if self._client is not None:
            channel = self.channels[fragment]
            assert channel is not None
            published = self._published[fragment]
            exchange = _Exchange(self._client, channel, published, published - sent, told)
        self._travelling = _Travelling(fragment, sent, exchange, time.monotonic())
        if not self.terms.stream or not lease.count:
            self._land(wait=True)
        if lease.count:
            self.task.end(last)

    def _land(self, *, wait: bool) -> None:
        """Take in what came of the exchange under way, if it is there or is waited for."""
        flight = self._travelling
        if flight is None:
            return
        arrived = flight.exchange is not None and not flight.exchange.is_alive()
        if not wait and self.island.tell(b"1" if arrived else b"0") == b"0":
            return
        start = time.monotonic()
        published = torch.empty_like(flight.sent) if flight.exchange is None else flight.exchange.result()
        if wait:
            self.task.note("exchange", start, time.monotonic())
        published = self._published[flight.fragment] = self.island.share(published)
        now = self.vector(flight.fragment)
        self.write(flight.fragment, published + (now - flight.sent) if self.terms.stream else published)
        self._travelling = None
