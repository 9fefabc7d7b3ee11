"""Gradients that travel in buckets during backward: summed on every rank, or (ZeRO 1) each rank keeps its part.

One bucket after another, in the order in which backward fills them:

1. a parameter's gradient is there: it moves into the flat buffer of its bucket (`_ready`)
2. in the last micro-batch, when all of a bucket are there: its all-reduce or reduce-scatter starts
3. `finish` starts what is left (parameters without a gradient) and waits for all
4. ZeRO 1 only, after the optimiser's update of each rank's part: `spread` gathers the new weights

With ZeRO 1 weights live in flat buffers too. The optimiser then updates `pieces`, runs of the flattened parameters.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch.distributed as dist
from torch import Tensor, nn

from ...backend.group.torch_compat import all_gather_single, reduce_scatter_single
from ..engine import Notes, Probe
from .channel import AxisChannel, bytes_of, when_done


class OwnedRun(NamedTuple):
    """A run of a flattened parameter that this rank updates."""

    owner: nn.Parameter
    start: int  # in the flattened parameter
    tensor: nn.Parameter  # the run: shares the parameter's memory


class _Bucket:
    def __init__(self, parameters: Sequence[nn.Parameter], channel: AxisChannel, *, scatter: bool) -> None:
        self.parameters = parameters
        size = sum(p.numel() for p in parameters)
        padded = -(-size // channel.size) * channel.size if scatter else size
        self.flat = parameters[0].new_zeros(padded)
        self.views: dict[nn.Parameter, Tensor] = {}
        self.starts: dict[nn.Parameter, int] = {}
        start = 0
        for parameter in parameters:
            self.views[parameter] = self.flat[start : start + parameter.numel()].view(parameter.shape)
            self.starts[parameter] = start
            start += parameter.numel()
        self.missing: set[nn.Parameter] = set(parameters)
        self.work: Any = None
        self.not_noted: tuple[str, float] | None = None  # a collective under way, and when it started
        if scatter:
            self.share = padded // channel.size
            self.part = self.flat.new_zeros(self.share)  # of the summed gradient
            self.weights = self._flat_weights(padded)
            self.first = channel.index * self.share

    def _flat_weights(self, padded: int) -> Tensor:
        weights = self.flat.new_zeros(padded)
        for parameter in self.parameters:
            place = weights[self.starts[parameter] :][: parameter.numel()].view(parameter.shape)
            place.copy_(parameter.detach())
            parameter.data = place
        return weights

    def pieces(self) -> list[OwnedRun]:
        """Return the runs of this rank's part, each with its gradient."""
        found = []
        for parameter in self.parameters:
            begin = max(self.first, self.starts[parameter])
            end = min(self.first + self.share, self.starts[parameter] + parameter.numel())
            if begin < end:
                run = nn.Parameter(self.weights[begin:end])
                run.grad = self.part[begin - self.first : end - self.first]
                found.append(OwnedRun(parameter, begin - self.starts[parameter], run))
        return found


class Buckets:
    """The gradients of some parameters of this rank, reduced over one channel."""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        channel: AxisChannel,
        notes: Notes,
        *,
        bucket_bytes: int,
        scatter: bool,
    ) -> None:
        self.parameters = parameters
        self._channel, self._notes, self._scatter = channel, notes, scatter
        self._buckets = [_Bucket(some, channel, scatter=scatter) for some in _filled(parameters, bucket_bytes)]
        self._of = {p: bucket for bucket in self._buckets for p in bucket.parameters}
        self._next = len(self._buckets)  # bucket to start next; none while gradients only add up
        self._armed: set[nn.Parameter] = set()
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self._ready)  # type: ignore[no-untyped-call]
        self._probe: Probe | None = None
        self._names: Mapping[nn.Parameter, str] = {}

    def watch(self, probe: Probe, names: Mapping[nn.Parameter, str]) -> None:
        """Show the gradients of each bucket to a probe before they travel."""
        self._probe, self._names = probe, names

    def arm(self, parameters: Iterable[nn.Parameter] | None = None) -> None:
        """Let gradients (of some parameters) travel in the backward pass that follows, their last of the step."""
        if self._next == len(self._buckets):
            self._next = 0
            self._armed = set()
            for bucket in self._buckets:
                bucket.missing = set(bucket.parameters)
        self._armed |= set(self._of if parameters is None else parameters)

    def finish(self) -> None:
        """Start what has not started, and wait until every gradient is summed."""
        while self._next < len(self._buckets):
            self._start(self._buckets[self._next])
        for bucket in self._buckets:
            bucket.work.wait()
            bucket.work = None
            if bucket.not_noted is not None:
                self._note(bucket.not_noted[0], bucket.flat, bucket.not_noted[1])
                bucket.not_noted = None

    def pieces(self) -> list[OwnedRun]:
        """Return the runs that this rank updates (ZeRO 1)."""
        return [piece for bucket in self._buckets for piece in bucket.pieces()]

    def spread(self) -> None:
        """Gather the weights that each rank has updated (ZeRO 1)."""
        for bucket in self._buckets:
            mine = bucket.weights[bucket.first : bucket.first + bucket.share].clone()
            gather = functools.partial(all_gather_single, bucket.weights, mine, group=self._channel.group)
            self._channel.run("all_gather", bucket.weights, gather)

    def buffers(self) -> list[Tensor]:
        """Return the memory that the buckets hold throughout."""
        held = [bucket.flat for bucket in self._buckets]
        return held + [bucket.part for bucket in self._buckets if self._scatter]

    def _ready(self, parameter: Tensor) -> None:
        assert isinstance(parameter, nn.Parameter)
        bucket = self._of[parameter]
        view = bucket.views[parameter]
        if parameter.grad is not view:
            assert parameter.grad is not None
            view.copy_(parameter.grad)
            parameter.grad = view
        if parameter in self._armed:
            bucket.missing.discard(parameter)
        while self._next < len(self._buckets) and not self._buckets[self._next].missing:
            self._start(self._buckets[self._next])

    def _start(self, bucket: _Bucket) -> None:
        """Start a bucket's collective; what has no gradient counts as 0."""
        for parameter in bucket.missing:
            if parameter.grad is None:
                bucket.views[parameter].zero_()
                parameter.grad = bucket.views[parameter]
        if self._probe is not None:
            self._probe.sent((self._names[parameter], view) for parameter, view in bucket.views.items())
        self._next += 1
        start, group = self._notes.now(), self._channel.group
        if self._scatter:
            bucket.work = reduce_scatter_single(bucket.part, bucket.flat, group=group, async_op=True)
            name = "reduce_scatter"
        else:
            bucket.work = dist.all_reduce(bucket.flat, group=group, async_op=True)
            name = "all_reduce"
        if not when_done(bucket.work, lambda: self._note(name, bucket.flat, start)):
            bucket.not_noted = (name, start)  # it is noted when it is waited for

    def _note(self, name: str, buffer: Tensor, start_s: float) -> None:
        self._notes.note("comm", name, start_s, self._notes.now(), bytes_of(buffer), self._channel.members)


def _filled(parameters: Sequence[nn.Parameter], bucket_bytes: int) -> list[list[nn.Parameter]]:
    """Cut the parameters, last first as backward comes to them, into buckets of at least `bucket_bytes`."""
    found: list[list[nn.Parameter]] = [[]]
    size = 0
    for parameter in reversed(parameters):
        if size >= bucket_bytes or (found[-1] and found[-1][0].dtype != parameter.dtype):
            found.append([])
            size = 0
        found[-1].append(parameter)
        size += parameter.numel() * parameter.element_size()
    return [some for some in found if some]
