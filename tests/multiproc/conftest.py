"""Ranks of these tests are forked with the parts of torch loaded that many of them need, each for seconds."""

import pytest

from meshwright.bench.ranks.pool import start_fork_server


@pytest.fixture(scope="session", autouse=True)
def _fork_server() -> None:
    start_fork_server("torch.distributed.tensor", "torch.distributed.fsdp", "torch.distributed.pipelining")
