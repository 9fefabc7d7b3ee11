"""The mesh of a running job: the process groups of this rank along the axes of its layout (`meshwright.mesh`)."""

import inspect
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from ..backend.hosts.placement import exchange_placements, hosts_of
from ..device import native_backend
from ..errors import InputError
from ..layout import Layout
from ..mesh import Axis, groups, position, ranks_by_place

KEEPS_ORDER = "sort_ranks" in inspect.signature(dist.new_group).parameters  # torch 2.13; 2.11 sorts the ranks


class Mesh:
    """The mesh of a running job, as one of its ranks sees it; made on all ranks at once.

    Groups are made when they are first asked for: all ranks ask for the same ones in the same order.
    """

    def __init__(self, layout: Layout, *, device_type: str = "cpu", timeout: timedelta | None = None) -> None:
        self.layout = layout
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self.hosts = _hosts(self.rank, layout.world_size)
        self._ranks = ranks_by_place(self.hosts)
        self._device_type = device_type
        self._timeout = timeout
        self._groups: dict[Axis, dist.ProcessGroup] = {}
        self._members: dict[Axis, list[int]] = {}  # the ranks of this rank's groups
        self._place = self._ranks.index(self.rank)
        self.position = position(layout, self._place)

    def ranks(self, axis: Axis) -> list[int]:
        """Return the ranks of this rank's group along `axis`, in the order of their positions."""
        if axis not in self._members:  # steps ask for every parameter
            places = next(places for places in groups(self.layout, axis).tolist() if self._place in places)
            self._members[axis] = [self._ranks[place] for place in places]
        return self._members[axis]

    def size(self, axis: Axis) -> int:
        """Return how many ranks a group of `axis` has."""
        return len(self.ranks(axis))

    def index(self, axis: Axis) -> int:
        """Return this rank's position along `axis`."""
        return self.ranks(axis).index(self.rank)

    def group(self, axis: Axis) -> dist.ProcessGroup:
        """Return this rank's process group along `axis`; blocks until all ranks ask for it the first time."""
        if axis not in self._groups:
            for places in groups(self.layout, axis).tolist():
                ranks = [self._ranks[place] for place in places]
                made = _new_group(ranks, self._timeout, f"{axis}{ranks}")
                if self.rank in ranks:
                    self._groups[axis] = made
        return self._groups[axis]

    def subgroup(self, axis: Axis, positions: Sequence[int]) -> dist.ProcessGroup | None:
        """Return the group of the ranks at these positions along `axis`, None if this rank is at none of them.

        A new group for each call, made on all ranks at once.
        """
        found = None
        for places in groups(self.layout, axis).tolist():
            ranks = [self._ranks[places[position]] for position in positions]
            made = _new_group(ranks, self._timeout, f"{axis}{ranks}")
            if self.rank in ranks:
                found = made
        return found

    def device_mesh(self, *axes: Axis) -> DeviceMesh:
        """Return torch's DeviceMesh along one axis, or along two of which the second is the inner one."""
        if not dist.is_initialized():  # on one rank, which FSDP2 wants to have a group all the same
            native = native_backend() if self._device_type != "cpu" else None
            dist.init_process_group(native or "gloo", rank=0, world_size=1, store=dist.HashStore())
        made = [self.group(axis) for axis in axes]
        if len(axes) == 1:
            return DeviceMesh.from_group(made[0], self._device_type, mesh_dim_names=axes)
        inner = [self._ranks[place] for places in self._peers(axes[1]) for place in places]
        mesh = torch.tensor(inner).view(self.size(axes[0]), self.size(axes[1]))
        return DeviceMesh.from_group(made, self._device_type, mesh=mesh, mesh_dim_names=axes)

    def _peers(self, axis: Axis) -> list[list[int]]:
        """Return the groups of `axis` that hold ranks of this rank's data group."""
        members = set(self.ranks("data"))
        return [places for places in groups(self.layout, axis).tolist() if self._ranks[places[0]] in members]


def _new_group(ranks: list[int], timeout: timedelta | None, description: str) -> dist.ProcessGroup:
    """Return the group of these ranks, numbered in their order; torch 2.11 numbers them in ascending order only."""
    kept: dict[str, Any] = {"sort_ranks": False} if KEEPS_ORDER else {}
    if not KEEPS_ORDER and ranks != sorted(ranks):
        raise InputError(
            f"torch {torch.__version__} cannot make the group {description}: number the ranks host by host, or "
            "take torch 2.13"
        )
    made: dist.ProcessGroup = dist.new_group(ranks, timeout=timeout, group_desc=description, **kept)
    return made


def _hosts(rank: int, size: int) -> list[tuple[int, ...]]:
    """Return the ranks of each host, as the ranks themselves say through the job's store.

    Near hosts are neighbours, but under torch 2.11, whose groups know only the order of the ranks.
    """
    if size == 1:
        return [(rank,)]
    store = dist.PrefixStore("meshwright/mesh", dist.distributed_c10d._get_default_store())
    hosts = hosts_of(exchange_placements(store, rank, size))
    return hosts if KEEPS_ORDER else sorted(hosts)
