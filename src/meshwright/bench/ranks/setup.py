"""Ranks for a measurement: started by torchrun, or a pool of our own; each bound to its device's NUMA node."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import Store

from ...cluster.discovery.binding import Binding, bind
from ...cluster.discovery.local import threads_per_rank
from ...device import CPU, count, native_backend, of_rank, set_current, uses_accelerators
from ...errors import InputError
from ...machine_load import Load, LoadCounters, busy_words
from .pool import RankPool
from .process import prepare_process

BACKENDS = ("gloo", "meshwright", "nccl", "mpi")
TIMEOUT_S = 3600.0


def under_torchrun() -> bool:
    """Return whether a launcher has set this process up as one rank of a job."""
    return {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= set(os.environ)


def check_backend(backend: str, ranks: int) -> None:
    """Raise InputError where the backend cannot run `ranks` ranks here, saying what is missing."""
    if backend not in BACKENDS and backend != native_backend():
        raise InputError(f"--backend {backend}: expected one of {', '.join(BACKENDS)}")
    if backend in ("nccl", "xccl", native_backend()):
        if native_backend() != backend or count() < ranks:
            raise InputError(f"--backend {backend}: needs a GPU for each of {ranks} ranks, found {count()}")
    elif backend == "mpi" and not dist.is_mpi_available():
        raise InputError("--backend mpi: this torch was built without MPI")
    elif backend == "meshwright" and "meshwright" not in dist.Backend.backend_list:
        raise InputError("--backend meshwright: the backend is not registered with torch.distributed")


@dataclass(frozen=True, slots=True)
class OnRanks:
    """The results of a function on each rank, in rank order, and the load of the processors meanwhile."""

    results: list[Any]
    loads: list[Load]

    @property
    def beside(self) -> str:
        """Say how other programs kept the processors busy; "" where they did not."""
        return busy_words(self.loads)


def on_ranks(
    function: Callable[..., Any], request: Any, *, backend: str, ranks: int, places: list[Binding | None]
) -> OnRanks | None:
    """Call `function(request)` on every rank with a process group made; return the results in the order of the ranks.

    Under torchrun this process is one of the ranks: only rank 0 gets the results, the others None.
    """
    if under_torchrun():
        return _as_one_rank(function, request, backend, places)
    with RankPool(ranks) as pool:
        return _together(
            pool.run(
                start_rank, function.__module__, function.__qualname__, request, backend, places, timeout_s=TIMEOUT_S
            )
        )


def _watched(function: Callable[..., Any], request: Any) -> tuple[Any, Load | None]:
    """Return the result of a function, and the load of the processors meanwhile."""
    begun = LoadCounters()
    return function(request), begun.until_now()


def _together(found: Sequence[tuple[Any, Load | None]]) -> OnRanks:
    return OnRanks([result for result, _ in found], [load for _, load in found if load is not None])


def start_rank(
    rank: int,
    world_size: int,
    store: Store,
    module: str,
    name: str,
    request: Any,
    backend: str,
    places: list[Binding | None],
) -> Any:
    """Set this rank up and run the function that module and name say; called by a pool on every rank."""
    import importlib

    function = getattr(importlib.import_module(module), name)
    place_rank(rank, world_size, backend, places)
    dist.init_process_group(backend, rank=rank, world_size=world_size, store=store)
    return _watched(function, request)


def place_rank(local_rank: int, local_ranks: int, backend: str, places: list[Binding | None]) -> None:
    """Bind this rank where `places` says, and give it its share of threads and its GPU."""
    place = places[local_rank] if local_rank < len(places) else None
    if place is not None:
        bind(place)
    prepare_process(threads_per_rank(local_ranks) if place is None else 1)
    set_current(of_rank(local_rank, backend))


def device_of(backend: str) -> torch.device:
    """Return where the payloads of a backend live."""
    return of_rank(torch.accelerator.current_device_index(), backend) if uses_accelerators(backend) else CPU


def _as_one_rank(
    function: Callable[..., Any], request: Any, backend: str, places: list[Binding | None]
) -> OnRanks | None:
    local_rank = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))
    local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]))
    place_rank(local_rank, local_ranks, backend, places)
    dist.init_process_group(backend)
    try:
        result = _watched(function, request)
        everything: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everything, result)
        return _together(everything) if dist.get_rank() == 0 else None
    finally:
        dist.destroy_process_group()
