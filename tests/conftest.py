"""Fixtures that all tests share."""

from collections.abc import Callable, Iterator

import pytest

from meshwright.bench.pool import RankPool


@pytest.fixture(scope="session")
def _pools() -> Iterator[dict[int, RankPool]]:
    pools: dict[int, RankPool] = {}
    yield pools
    for pool in pools.values():
        pool.close()


@pytest.fixture
def rank_pool(_pools: dict[int, RankPool]) -> Callable[[int], RankPool]:
    """Return a function from a rank count to a pool of so many live ranks, started on first use."""

    def get(world_size: int) -> RankPool:
        if world_size not in _pools or not _pools[world_size].alive:
            _pools[world_size] = RankPool(world_size)
        return _pools[world_size]

    return get
