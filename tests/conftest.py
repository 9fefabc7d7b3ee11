"""Fixtures that all tests share."""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from hypothesis import settings

from meshwright.bench.ranks.pool import RankPool
from meshwright.cluster.emulation import Emulation, EmulationSpec
from meshwright.errors import InputError

settings.register_profile("untimed", deadline=None)  # a busy machine is no fault
settings.load_profile("untimed")
# threads of torch that wait for each other would spin on processors that tests beside them need, for ten times as long
os.environ.setdefault("GOMP_SPINCOUNT", "0")  # read where torch is loaded, here and in processes that tests start
gc.disable()  # while tests are collected: all of them stay, and looking through them again and again takes a third


def pytest_collection_finish() -> None:
    """Leave what was collected out of every later collection of garbage."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def _pools() -> Iterator[dict[int, RankPool]]:
    pools: dict[int, RankPool] = {}
    yield pools
    for pool in pools.values():
        pool.close()


@pytest.fixture
def rank_pool(_pools: dict[int, RankPool]) -> Callable[[int], RankPool]:
    """Return a function from a rank count to a pool of that many live ranks, started on first use."""

    def get(world_size: int) -> RankPool:
        if world_size not in _pools or not _pools[world_size].alive:
            _pools[world_size] = RankPool(world_size)
        return _pools[world_size]

    return get


@pytest.fixture
def emulated() -> Iterator[Callable[..., Emulation]]:
    """Return a function from the fields of an EmulationSpec to a running emulation, taken down after the test.

    Mark the tests that use it `netns`: they are skipped where the kernel refuses namespaces.
    """
    with ExitStack() as stack:

        def start(**fields: object) -> Emulation:
            try:
                return stack.enter_context(Emulation(EmulationSpec(**fields)))
            except InputError as error:
                if "refuses" not in str(error):
                    raise
                pytest.skip(str(error))

        yield start
