"""Ranks of these tests are forked with torch's parts loaded that many of them need: each would take seconds for them."""

import pytest

from meshwright.bench.pool import start_fork_server


@pytest.fixture(scope="session", autouse=True)
def _fork_server() -> None:
    start_fork_server("torch.distributed.tensor", "torch.distributed.fsdp", "torch.distributed.pipelining")
