"""The weights on the servers: cut into pieces of whole tensors, each with an optimiser of its own.

`cut` numbers the pieces fragment by fragment, and within a fragment server by server: piece p is of fragment
p // servers and lies on server p % servers.
"""

import threading
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...plan.search.asynchronous import Wire
from ..encoding import decode, encode
from ..engine import OptimizerFactory, Shard, make_state, unsplit_shard

Key = tuple[int, int]  # the member that contributed, and the exchange (position)


def cut_pieces(sizes: Sequence[int], fragments: int, servers: int) -> list[range]:
    """Return which tensors each piece holds: neighbours, and about equally many elements everywhere.

    `sizes` are the elements of each tensor, in the order of the model. A piece may be empty.
    """
    pieces: list[range] = []
    for fragment in _even(range(len(sizes)), sizes, fragments):
        pieces += _even(fragment, sizes, servers)
    return pieces


def _even(tensors: range, sizes: Sequence[int], parts: int) -> list[range]:
    total = sum(sizes[i] for i in tensors)
    bounds, seen, at = [tensors.start], 0, tensors.start
    for part in range(1, parts):
        # a tensor belongs to the part in which its middle lies
        while at < tensors.stop and (seen + sizes[at] / 2) * parts < total * part:
            seen += sizes[at]
            at += 1
        bounds.append(at)
    return [range(a, b) for a, b in zip(bounds, [*bounds[1:], tensors.stop], strict=True)]


def shaped(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Return views of a vector with the shapes of `like`, one after the other."""
    parts = torch.split(vector, [t.numel() for t in like])
    return [part.view(t.shape) for part, t in zip(parts, like, strict=True)]


class ServerPiece:
    """Some tensors with their optimiser. Contributions are put, reduced in a given order, and applied in one step.

    With `wire` other than "full" and `published`, what workers hold is the sum of the updates that were encoded for
    them: `published` follows the weights, and what an update lost is part of the next.
    """

    def __init__(
        self,
        names: Sequence[str],
        tensors: Sequence[Tensor],
        make_optimizer: OptimizerFactory,
        *,
        wire: Wire,
        published: bool = False,
    ) -> None:
        self._names, self._wire = list(names), wire
        dtype = tensors[0].dtype if tensors else torch.get_default_dtype()
        self._weights = torch.cat([torch.empty(0, dtype=dtype), *(t.detach().reshape(-1) for t in tensors)])
        self._parameters = nn.ParameterList(nn.Parameter(view) for view in shaped(self._weights, tensors))
        self._sum = torch.zeros_like(self._weights)
        self._gradients = shaped(self._sum, tensors)
        self._optimizer = make_optimizer(self._parameters) if names else None
        self._published = self._weights.clone() if published and wire != "full" else None
        self._update = torch.empty(0, dtype=torch.uint8)
        self._snapshot = self._weights
        self._put: dict[Key, Tensor] = {}
        self._lock = threading.Lock()
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient

    def shards(self) -> list[Shard]:
        """Return weights and optimiser state, for a checkpoint to read or write; then call `reloaded`."""
        if self._optimizer is None:
            return []
        make_state(self._optimizer)
        named = zip(self._names, self._parameters, strict=True)
        return [unsplit_shard(name, parameter, self._optimizer, owner=True) for name, parameter in named]

    def reloaded(self) -> None:
        """Note that the weights have been written from outside."""
        if self._published is not None:
            self._published.copy_(self._weights)

    def put(self, key: Key, payload: Tensor) -> None:
        """Keep a contribution; ValueError if it has another size than this piece."""
        vector = decode(payload, self._weights.numel(), self._weights.dtype, self._wire)
        with self._lock:
            self._put[key] = vector

    def forget(self, member: int, before: int) -> None:
        """Drop what a member put for exchanges from `before` on, which it will not contribute to any more."""
        with self._lock:
            for key in [key for key in self._put if key[0] == member and key[1] >= before]:
                del self._put[key]

    def reduce(self, keys: Sequence[Key], weights: Sequence[float]) -> Tensor:
        """Add up contributions in the order of `keys`, each times its weight; return the norm of each tensor."""
        with self._lock:
            self._sum.zero_()
            for i, (key, weight) in enumerate(zip(keys, weights, strict=True)):
                vector = self._put.pop((key[0], key[1]))
                if weight != 1.0:
                    vector = vector * weight
                if i:
                    self._sum.add_(vector)
                else:
                    self._sum.copy_(vector)
            norms = [torch.linalg.vector_norm(g) for g in self._gradients]
            return torch.stack(norms) if norms else self._sum.new_empty(0)

    def step(self, rate: float, scale: float) -> None:
        """Apply the sum, times `scale`, at learning rate `rate`."""
        if self._optimizer is None:
            return
        with self._lock:
            if scale != 1.0:
                self._sum.mul_(scale)
            for group in self._optimizer.param_groups:
                group["lr"] = rate
            self._optimizer.step()
            if self._published is not None:
                self._update = encode(self._weights - self._published, self._wire)
                self._published += decode(self._update, self._weights.numel(), self._weights.dtype, self._wire)

    def snapshot(self) -> None:
        """Keep a copy of the weights, as workers see them."""
        self._snapshot = self.read("weights").view(self._weights.dtype)

    def read(self, what: str) -> Tensor:
        """Return a copy of the weights (as workers see them), the snapshot, or the last update, as bytes."""
        with self._lock:
            if what == "update" and self._published is not None:
                return self._update
            if what == "snapshot":
                return self._snapshot.view(torch.uint8)
            return (self._weights if self._published is None else self._published).clone().view(torch.uint8)

    def state(self) -> dict[str, Tensor]:
        """Return copies of weights by name and of the optimiser's state by NAME/KEY."""
        found: dict[str, Tensor] = {}
        with self._lock:
            for shard in self.shards():
                found[shard.name] = shard.parameter.clone()
                found |= {f"{shard.name}/{key}": value.clone() for key, value in shard.moments.items()}
        return found
