"""The short way of a group's usual calls: blocking ones on dense tensors, where microseconds count.

Each method returns the Work of a call that it has done, and None, with nothing done, for one that needs more thought.
What is here in Python calls.c does in C, for groups on one host, and asynchronous calls too where they run at once.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed import Work

from .engine import Engine
from .reductions import Reduction
from .work import Worker


class PythonWay:
    """The short way in Python, for every engine.

    It calls only while `worker` is idle; `kinds` are the reductions that have been asked for, by the hash of torch's
    operator and the element type; `now(name, moved_bytes, options, call, *arguments)` runs a call of the engine.
    """

    def __init__(
        self,
        engine: Engine,
        worker: Worker,
        kinds: dict[tuple[int, torch.dtype], Reduction],
        now: Callable[..., Work],
    ) -> None:
        self._engine = engine
        self._ranks = len(engine.members)
        self._worker = worker
        self._kinds = kinds
        self._now = now

    def all_reduce(self, tensors: Any, options: Any) -> Work | None:
        """Reduce a tensor over all ranks, in place."""
        if not self._is_usual(options, tensors) or len(tensors) != 1:
            return None
        (tensor,) = tensors
        kind = self._kinds.get((hash(options.reduceOp), tensor.dtype))
        if kind is None:
            return None
        address, count = tensor.data_ptr(), tensor.numel()
        return self._now("all_reduce", tensor.nbytes, options, self._engine.all_reduce, address, count, kind)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, options: Any) -> Work | None:
        """Reduce the i-th block of the inputs of all ranks into the output of rank i."""
        count, ranks = output.numel(), self._ranks
        if not self._is_usual(options, (output, input)) or input.numel() != ranks * count:
            return None
        kind = self._kinds.get((hash(options.reduceOp), output.dtype))
        if kind is None:
            return None
        sources, call = _blocks(input, ranks), self._engine.reduce_scatter
        target, counts = output.data_ptr(), [count] * ranks
        return self._now("reduce_scatter_single", input.nbytes, options, call, sources, target, counts, kind)

    def broadcast(self, tensors: Any, options: Any) -> Work | None:
        """Copy the root's tensor to all ranks."""
        if not self._is_usual(options, tensors) or len(tensors) != 1:
            return None
        (tensor,) = tensors
        size, address, call = tensor.nbytes, tensor.data_ptr(), self._engine.broadcast
        return self._now("broadcast", size, options, call, address, size, options.rootRank)

    def all_gather(self, output_tensors: Any, input_tensors: Any, options: Any) -> Work | None:
        """Copy every rank's tensor to all ranks."""
        if len(output_tensors) != 1 or len(output_tensors[0]) != self._ranks or len(input_tensors) != 1:
            return None
        (source,), (targets,) = input_tensors, output_tensors
        if not self._is_usual(options, (source, *targets)):
            return None
        sizes, addresses = [target.nbytes for target in targets], [target.data_ptr() for target in targets]
        call = self._engine.all_gather
        return self._now("all_gather", sum(sizes), options, call, source.data_ptr(), addresses, sizes)

    def all_gather_single(self, output: Tensor, input: Tensor, options: Any) -> Work | None:
        """Copy every rank's tensor into its block of one tensor on all ranks."""
        ranks = self._ranks
        if not self._is_usual(options, (output, input)) or output.numel() != ranks * input.numel():
            return None
        targets, sizes, call = _blocks(output, ranks), [input.nbytes] * ranks, self._engine.all_gather
        return self._now("all_gather_single", output.nbytes, options, call, input.data_ptr(), targets, sizes)

    def all_to_all_single(self, output: Tensor, input: Tensor, options: Any) -> Work | None:
        """Send the i-th block of rows to rank i; all blocks are of one size."""
        ranks = self._ranks
        if not self._is_usual(options, (output, input)) or output.numel() != input.numel():
            return None
        if not (input.dim() and output.dim()) or input.size(0) % ranks or output.size(0) % ranks:
            return None
        sizes, sources, targets = [input.nbytes // ranks] * ranks, _blocks(input, ranks), _blocks(output, ranks)
        call = self._engine.all_to_all
        return self._now("all_to_all_single", input.nbytes, options, call, sources, sizes, targets, sizes)

    def barrier(self, options: Any) -> Work | None:
        """Wait for all ranks."""
        if not self._is_usual(options, ()):
            return None
        return self._now("barrier", 0, options, self._engine.barrier)

    def _is_usual(self, options: Any, tensors: Iterable[Tensor]) -> bool:
        """Return whether a call blocks and its tensors, all of one type, can be taken as they are."""
        if getattr(options, "asyncOp", True) or not self._worker.idle:
            return False
        dtype = None
        for tensor in tensors:
            if not (tensor.is_cpu and tensor.layout == torch.strided and tensor.is_contiguous()) or tensor.is_neg():
                return False
            if dtype is None:
                dtype = tensor.dtype
                if dtype.is_complex:  # it may have its conjugation still to do
                    return False
            elif tensor.dtype != dtype:
                return False
        return True


class LongWay:
    """Leaves every call to more thought, where the ranks compare what they call."""

    def _leave(self, *_: object) -> None:
        return None

    all_reduce = broadcast = all_gather = all_gather_single = _leave
    reduce_scatter_single = all_to_all_single = barrier = _leave


def _blocks(tensor: Tensor, parts: int) -> Sequence[int]:
    """Return the addresses of equal parts of a tensor."""
    address, step = tensor.data_ptr(), tensor.nbytes // parts
    return [address + i * step for i in range(parts)]
