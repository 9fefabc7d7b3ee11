"""Calls that a group hands over to the backend of a device, on machines that have neither."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch.distributed as dist

from meshwright.backend.group.device_types import native_group


@pytest.mark.parametrize("backend", ["nccl", "xccl"])
def test_a_group_for_gpus_waits_as_long_as_the_group_that_it_is_part_of(monkeypatch, backend):
    made = []

    class Native(dist.ProcessGroup):
        class Options:
            _timeout = timedelta(minutes=10)

        def __init__(self, store, rank, size, options):
            super().__init__(rank, size)
            made.append(options._timeout)

    monkeypatch.setattr(dist, f"ProcessGroup{backend.upper()}", Native, raising=False)
    native_group(backend, "cuda", dist.HashStore(), 0, 2, 90.0)

    assert made == [timedelta(seconds=90)]


@pytest.mark.parametrize("extended", [True, False])
def test_a_group_of_another_device_waits_as_long_too(monkeypatch, extended):
    asked = []

    def create(*given):
        asked.append(given[0].timeout if extended else given[3])
        return dist.ProcessGroup(0, 2)

    plugin = SimpleNamespace(creator_fn=create, extended_api=extended)
    monkeypatch.setitem(dist.Backend._plugins, "OTHERCCL", plugin)
    native_group("otherccl", "other", dist.HashStore(), 0, 2, 90.0)

    assert asked == [timedelta(seconds=90)]
