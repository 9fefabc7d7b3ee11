"""Messages between the ranks of a pipeline: what an action gives, sent to the action of a neighbour that waits for it.

A message is one or more tensors. Between two ranks messages match in the order in which they are sent, so the receiver
posts its receives in the order of the sender's row, whatever order it needs them in. Shapes are said once, in front of
the first message of their kind.
"""

import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor

from ...device import is_accelerator
from ...pipelines import Action, PipelineGrid
from ..device_mesh import Mesh
from ..engine import Notes

HEADER_BYTES = 4096
Routes = Mapping[tuple[int, int], dist.ProcessGroup]


class Meta(NamedTuple):
    """Form of a tensor in a message."""

    shape: tuple[int, ...]
    dtype: str  # such as "float32"
    requires_grad: bool

    @classmethod
    def of(cls, tensor: Tensor) -> "Meta":
        """Return the form of a tensor."""
        return cls(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), tensor.requires_grad)

    def empty(self, device: torch.device) -> Tensor:
        """Return a tensor of this form with any content."""
        return torch.empty(self.shape, dtype=getattr(torch, self.dtype), device=device)


class Sent(NamedTuple):
    """A message under way; `read_at` is the position in the receiver's row of the action that takes it."""

    read_at: int
    works: list[dist.Work]
    tensors: list[Tensor]  # kept alive until they have left


class Posted(NamedTuple):
    """A message that is expected."""

    works: list[dist.Work]
    tensors: list[Tensor]
    metas: list[Meta]


class Wire:
    """The messages of one rank in a pipeline, for one step after another.

    `rank` is its position in the pipeline, `ranks` the global rank at each position; `routes` are the groups over which
    messages go, by the positions of sender and receiver.
    """

    def __init__(
        self,
        grid: PipelineGrid,
        rank: int,
        routes: Routes,
        ranks: Sequence[int],
        device: torch.device,
        notes: Notes,
    ) -> None:
        self._grid, self._rank, self._routes, self._device, self._notes = grid, rank, routes, device, notes
        self._peers = ranks
        self._position = {action: index for row in grid.rows for index, action in enumerate(row)}
        self._metas: dict[tuple[int, object], list[Meta]] = {}  # by the stage that sends forward, and the batch's form
        self._form: object = None
        self._to_come: dict[int, deque[Action]] = {}
        self._posted: dict[Action, Posted] = {}
        self._sent: dict[int, deque[Sent]] = {}

    def begin(self, form: object) -> None:
        """Begin a step of micro-batches of this form (anything hashable that shapes depend on)."""
        self._form = form
        others = [peer for peer in range(self._grid.ranks) if peer != self._rank]
        self._to_come = {peer: deque(a for a in self._grid.rows[peer] if self._comes_here(a)) for peer in others}
        self._sent = {peer: deque() for peer in others}

    def send(self, action: Action, tensors: Sequence[Tensor]) -> None:
        """Send what `action` gives, without waiting."""
        consumer = self._grid.consumer(action)
        assert consumer is not None
        peer = self._grid.rank_of_stage[consumer.stage]
        works = []
        start = self._notes.now()
        if action.kind == "F" and (action.stage, self._form) not in self._metas:
            metas = [Meta.of(tensor) for tensor in tensors]
            self._metas[action.stage, self._form] = metas
            header = _header(metas, self._device)
            works.append(self._isend(header, peer))
            tensors = [*tensors, header]
        flat = [_flat(tensor) for tensor in tensors]
        payload = flat[:-1] if works else flat
        works += [self._isend(tensor, peer) for tensor in payload]
        self._sent[peer].append(Sent(self._position[consumer], works, flat))
        name = "send_activation" if action.kind == "F" else "send_gradient"
        size = sum(tensor.numel() for tensor in payload)
        self._notes.note("comm", name, start, self._notes.now(), size, f"{action} to {self._peers[peer]}")

    def expect(self, action: Action) -> None:
        """Post the receive of the output of `action` if its shape is known already, so that it can arrive early."""
        if self._known(action):
            self._post(action)

    def receive(self, action: Action) -> list[Tensor]:
        """Wait for what `action` on another rank gives: leaf tensors, which require gradients as the sender's do."""
        start = self._notes.now()
        self._post(action)
        posted = self._posted.pop(action)
        for work in posted.works:
            work.wait()
        name = "recv_activation" if action.kind == "F" else "recv_gradient"
        size = sum(tensor.numel() * tensor.element_size() for tensor in posted.tensors)
        source = self._peers[self._grid.rank_of_stage[action.stage]]
        self._notes.note("comm", name, start, self._notes.now(), size, f"{action} from {source}")
        self._release(self._grid.rank_of_stage[action.stage], self._position[action])
        if action.kind != "F":
            return posted.tensors
        return [t.requires_grad_(meta.requires_grad) for t, meta in zip(posted.tensors, posted.metas, strict=True)]

    def end(self) -> None:
        """Wait until all that was sent has left."""
        for peer in self._sent:
            self._release(peer, len(self._grid.rows[peer]))

    def _comes_here(self, action: Action) -> bool:
        consumer = self._grid.consumer(action)
        return consumer is not None and self._grid.rank_of_stage[consumer.stage] == self._rank

    def _known(self, action: Action) -> bool:
        return (self._boundary(action), self._form) in self._metas

    @staticmethod
    def _boundary(action: Action) -> int:
        return action.stage if action.kind == "F" else action.stage - 1

    def _post(self, action: Action) -> None:
        """Post every receive from the same rank up to that of `action`."""
        peer = self._grid.rank_of_stage[action.stage]
        while action not in self._posted:
            coming = self._to_come[peer].popleft()
            key = (self._boundary(coming), self._form)
            if key not in self._metas:
                self._metas[key] = self._receive_header(peer)
            metas = self._metas[key]
            if coming.kind != "F":
                metas = [meta for meta in metas if meta.requires_grad]
            tensors = [meta.empty(self._device) for meta in metas]
            works = [self._irecv(_flat(tensor), peer) for tensor in tensors]
            self._posted[coming] = Posted(works, tensors, metas)

    def _receive_header(self, peer: int) -> list[Meta]:
        header = torch.empty(HEADER_BYTES, dtype=torch.uint8, device=self._device)
        self._irecv(header, peer).wait()
        return msgspec.json.decode(bytes(header.tolist()).rstrip(b"\0"), type=list[Meta])

    def _release(self, peer: int, position: int) -> None:
        """Let go of what the peer must have read before it did the action at `position` of its row."""
        sent = self._sent[peer]
        while sent and sent[0].read_at < position:
            for work in sent.popleft().works:
                work.wait()

    def _isend(self, tensor: Tensor, peer: int) -> dist.Work:
        work = dist.isend(tensor, self._peers[peer], group=self._routes[self._rank, peer])
        assert work is not None
        return work

    def _irecv(self, tensor: Tensor, peer: int) -> dist.Work:
        work = dist.irecv(tensor, self._peers[peer], group=self._routes[peer, self._rank])
        assert work is not None
        return work


def routes(mesh: Mesh, grid: PipelineGrid, device: torch.device) -> Routes:
    """Return the groups over which the messages of a pipeline go; called on all ranks of the job at once.

    On CPUs that is the pipeline's own group. On an accelerator a group does one thing after another: two ranks that
    post a receive each before they send what the other waits for would never end. There each direction of each pair
    has a group of its own, in which one rank only sends and the other only receives, in the same order. The first
    message connects them, so that no rank waits for a connection later.
    """
    stages = grid.rank_of_stage
    pairs = sorted({pair for a, b in itertools.pairwise(stages) if a != b for pair in ((a, b), (b, a))})
    if not is_accelerator(device):
        return dict.fromkeys(pairs, mesh.group("pp"))
    found = {}
    ranks, mine = mesh.ranks("pp"), mesh.index("pp")
    for source, target in pairs:
        group = mesh.subgroup("pp", sorted((source, target)))
        if group is None:
            continue
        found[source, target] = group
        first = torch.zeros(1, device=device)
        if mine == source:
            dist.send(first, ranks[target], group=group)
        else:
            dist.recv(first, ranks[source], group=group)
    return found


def _flat(tensor: Tensor) -> Tensor:
    """Return the bytes of a tensor, so that every dtype travels on every backend; of a contiguous one, a view."""
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


def _header(metas: list[Meta], device: torch.device) -> Tensor:
    text = msgspec.json.encode(metas)
    assert len(text) <= HEADER_BYTES, f"{len(metas)} tensors cross one cut"
    return torch.tensor(list(text.ljust(HEADER_BYTES, b"\0")), dtype=torch.uint8, device=device)
