"""Ranks that meet as threads of one process, in a store that all of them see."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import torch.distributed as dist


def new_store(timeout_s=10.0):
    store = dist.HashStore()
    store.set_timeout(timedelta(seconds=timeout_s))
    return store


def on_ranks(size, function):
    """Return what `function(rank)` returns or raises for each rank, all at once."""

    def call(rank):
        try:
            return function(rank)
        except Exception as error:
            return error

    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(call, range(size)))
