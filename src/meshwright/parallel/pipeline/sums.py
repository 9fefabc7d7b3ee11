"""Sums of gradients: between pipelines as soon as a stage is done, and over the ranks that share a parameter."""

import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.distributed.device_mesh import DeviceMesh

from ..engine import Notes


class Bucket(NamedTuple):
    """Gradients that travel together."""

    gradients: list[Tensor]
    flat: Tensor
    work: dist.Work
    start_s: float


class Sums:
    """The sums of one rank's gradients.

    `shared` names the parameters that several ranks of a pipeline use, with these ranks; `parameters` are those of
    this rank. Made by all ranks at once: it makes groups.
    """

    def __init__(
        self,
        mesh: DeviceMesh,
        shared: Mapping[str, tuple[int, ...]],
        parameters: Mapping[str, nn.Parameter],
        bucket_bytes: int,
        notes: Notes,
    ) -> None:
        self._notes, self._bucket_bytes = notes, bucket_bytes
        self._data = mesh.get_group("dp") if mesh["dp"].size() > 1 else None
        self._shared = [
            (group, [parameters[name] for name, ranks in shared.items() if ranks == sharers])
            for sharers, group in _groups(mesh, sorted(set(shared.values()))).items()
        ]
        self._late = {id(p) for _, members in self._shared for p in members}
        self._under_way: list[Bucket] = []
        self._started: set[int] = set()

    def start(self, piece: nn.Module) -> None:
        """Start summing the gradients of a finished stage over the pipelines; shared ones come last."""
        if self._data is None:
            return
        ready = [p for p in piece.parameters() if id(p) not in self._late | self._started and p.grad is not None]
        self._started |= {id(p) for p in ready}
        self._send([p.grad for p in ready if p.grad is not None], self._data)

    def finish(self) -> None:
        """Wait until every gradient is the sum over all that contributed to it."""
        self._collect()
        for group, members in self._shared:
            self._send([p.grad for p in members if p.grad is not None], group)
            self._collect()
        if self._data is not None:
            self._send([p.grad for _, members in self._shared for p in members if p.grad is not None], self._data)
            self._collect()
        self._started = set()

    def _send(self, gradients: list[Tensor], group: dist.ProcessGroup) -> None:
        for members in _buckets(gradients, self._bucket_bytes):
            flat = _flatten_dense_tensors(members)
            start = time.monotonic()
            work = dist.all_reduce(flat, group=group, async_op=True)
            assert work is not None
            self._under_way.append(Bucket(members, flat, work, start))

    def _collect(self) -> None:
        for bucket in self._under_way:
            bucket.work.wait()
            for gradient, summed in zip(
                bucket.gradients, _unflatten_dense_tensors(bucket.flat, bucket.gradients), strict=True
            ):
                gradient.copy_(summed)
            size = bucket.flat.numel() * bucket.flat.element_size()
            self._notes.note("comm", "all_reduce", bucket.start_s, time.monotonic(), size)
        self._under_way = []


def _buckets(gradients: Iterable[Tensor], bucket_bytes: int) -> list[list[Tensor]]:
    """Cut gradients into runs of one dtype and at least `bucket_bytes`, the last one excepted."""
    found: list[list[Tensor]] = []
    filled = 0
    for gradient in gradients:
        if not found or filled >= bucket_bytes or found[-1][0].dtype != gradient.dtype:
            found.append([])
            filled = 0
        found[-1].append(gradient)
        filled += gradient.numel() * gradient.element_size()
    return found


def _groups(mesh: DeviceMesh, sharers: list[tuple[int, ...]]) -> dict[tuple[int, ...], dist.ProcessGroup]:
    """Return this rank's group for each set of pipeline ranks that it is in; every rank makes every group."""
    names = mesh.mesh_dim_names
    assert names is not None
    pipelines = mesh.mesh.movedim(names.index("pp"), -1).flatten(0, -2)  # [pipelines, ranks of one]
    found = {}
    for ranks in sharers:
        for pipeline in pipelines.tolist():
            members = [pipeline[rank] for rank in ranks]
            group = dist.new_group(members)
            if dist.get_rank() in members:
                found[ranks] = group
    return found
