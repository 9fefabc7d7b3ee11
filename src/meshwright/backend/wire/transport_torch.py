"""Transport over torch.distributed point-to-point: the same schedules on Gloo, NCCL or any other backend.

On a CUDA backend nothing waits on the host: sends, receives and reductions are ordered on the current stream. That
part has run on no GPU yet.
"""

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist

from .transport import Incoming, Outgoing

PIECE_BYTES = (
    1 << 20
)  # a multiple of any element; pieces arrive one after another, each is reduced while the next comes


class TorchTransport:
    """The ranks of a process group; the default one if none is given. Sizes of both ends must agree."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self._group = group
        self.rank = dist.get_rank(group)
        self.ranks = dist.get_world_size(group)
        self._global = dist.get_process_group_ranks(group or dist.group.WORLD)

    def exchange(self, sends: Sequence[Outgoing], receives: Sequence[Incoming]) -> None:
        """Post all these messages at once; return when they are done (on CUDA: are queued on the stream).

        Receives are posted first: Gloo announces a receive behind the data that it sends, so that the two directions
        of a pair would take turns.
        """
        operations: list[dist.P2POp] = []
        staged = []
        for receive in receives:
            is_stored = receive.combine is None and receive.dtype == receive.data.dtype
            whole = receive.data if is_stored else receive.data.new_empty(receive.data.numel(), dtype=receive.dtype)
            pieces = _pieces(whole)
            staged.append((receive, None if is_stored else whole, pieces))
            operations += [dist.P2POp(dist.irecv, piece, self._global[receive.peer], self._group) for piece in pieces]
        received = len(operations)
        operations += [
            dist.P2POp(dist.isend, piece, self._global[send.peer], self._group)
            for send in sends
            for piece in _pieces(send.data)
        ]
        handles = list(dist.batch_isend_irecv(operations)) if operations else []
        if len(handles) == len(operations):  # one for each operation
            arrivals, handles = iter(handles[:received]), handles[received:]
        else:  # one for all of them, as NCCL does
            arrivals = iter(())
            _wait(handles)
        for receive, apart, pieces in staged:
            start = 0
            for piece in pieces:
                _wait([next(arrivals, None)])
                count = piece.numel() // receive.dtype.itemsize
                if apart is not None:
                    receive.apply(start, apart[start : start + count])
                start += count
        _wait(handles)

    def close(self) -> None:
        """Nothing to let go of: the process group is its owner's."""


def _pieces(data: torch.Tensor) -> list[torch.Tensor]:
    """Cut a message in pieces of bytes; both ends cut alike, since they agree on its size."""
    return list(torch.split(data.view(torch.uint8), PIECE_BYTES))


def _wait(handles: Iterable[dist.Work | None]) -> None:
    for handle in handles:
        if handle is not None:
            handle.wait()
