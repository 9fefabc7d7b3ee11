"""The short way of a group's usual calls: blocking ones on dense tensors, where microseconds count.

Each method returns the Work of a call that it has done, and None, with nothing done, for one that needs more thought.
What is here in Python calls.c does in C, for groups on one host, and asynchronous calls too where they run at once.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed import Work
from torch.nn import Parameter
from torch.utils import _python_dispatch as modes

from ..local.engine import GroupEngine
from ..local.reductions import Reduction
from .arguments import are_apart, may_overlap
from .signature import BARRIER, signature
from .work import CollectiveWorker


class PythonFastPath:
    """The short way in Python, for every engine.

    It calls only while `worker` is idle; `kinds` are the reductions that have been asked for, by the hash of torch's
    operator and the element type; `now(name, signature, moved_bytes, options, call, *arguments)` runs a call of the
    engine; `rank` is this one's.
    """

    def __init__(
        self,
        engine: GroupEngine,
        worker: CollectiveWorker,
        kinds: dict[tuple[int, torch.dtype], Reduction],
        now: Callable[..., Work],
        rank: int,
    ) -> None:
        self._engine = engine
        self._ranks = len(engine.members)
        self._rank = rank
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
        asked = signature("all_reduce", tensor.dtype, tensor.nbytes, operator=kind.operator)
        return self._now("all_reduce", asked, tensor.nbytes, options, self._engine.all_reduce, address, count, kind)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, options: Any) -> Work | None:
        """Reduce the i-th block of the inputs of all ranks into the output of rank i."""
        ranks = self._ranks
        if not self._is_usual(options, (output, input)) or input.numel() != ranks * output.numel():
            return None
        count = output.numel()
        kind = self._kinds.get((hash(options.reduceOp), output.dtype))
        if kind is None:
            return None
        sources, call = _blocks(input, ranks), self._engine.reduce_scatter
        target, counts = output.data_ptr(), [count] * ranks
        if may_overlap(output, input) and target != sources[self._rank]:
            return None
        asked = signature("reduce_scatter", output.dtype, output.nbytes, operator=kind.operator)
        return self._now("reduce_scatter_single", asked, input.nbytes, options, call, sources, target, counts, kind)

    def broadcast(self, tensors: Any, options: Any) -> Work | None:
        """Copy the root's tensor to all ranks."""
        if not self._is_usual(options, tensors) or len(tensors) != 1:
            return None
        (tensor,), root = tensors, options.rootRank
        if not 0 <= root < self._ranks:
            return None
        size, address, call = tensor.nbytes, tensor.data_ptr(), self._engine.broadcast
        asked = signature("broadcast", tensor.dtype, size, root=root)
        return self._now("broadcast", asked, size, options, call, address, size, root)

    def all_gather(self, output_tensors: Any, input_tensors: Any, options: Any) -> Work | None:
        """Copy every rank's tensor to all ranks."""
        if not (_is_list_of(input_tensors, 1) and _is_list_of(output_tensors, 1)):
            return None
        (source,), (targets,) = input_tensors, output_tensors
        if not _is_list_of(targets, self._ranks) or not self._is_usual(options, (source, *targets)):
            return None
        if source.nbytes != targets[self._rank].nbytes or not are_apart((source, *targets)):
            return None
        sizes, addresses = [target.nbytes for target in targets], [target.data_ptr() for target in targets]
        call, asked = self._engine.all_gather, signature("all_gather", source.dtype, sizes)
        return self._now("all_gather", asked, sum(sizes), options, call, source.data_ptr(), addresses, sizes)

    def all_gather_single(self, output: Tensor, input: Tensor, options: Any) -> Work | None:
        """Copy every rank's tensor into its block of one tensor on all ranks."""
        ranks = self._ranks
        if not self._is_usual(options, (output, input)) or output.numel() != ranks * input.numel():
            return None
        targets, sizes, call = _blocks(output, ranks), [input.nbytes] * ranks, self._engine.all_gather
        source, asked = input.data_ptr(), signature("all_gather", input.dtype, input.nbytes)
        if may_overlap(output, input) and source != targets[self._rank]:
            return None
        return self._now("all_gather_single", asked, output.nbytes, options, call, source, targets, sizes)

    def all_to_all_single(self, output: Tensor, input: Tensor, options: Any) -> Work | None:
        """Send the i-th block of rows to rank i; all blocks are of one size."""
        ranks = self._ranks
        if not self._is_usual(options, (output, input)) or output.numel() != input.numel():
            return None
        if not (input.dim() and output.dim()) or input.size(0) % ranks or output.size(0) % ranks:
            return None
        sizes, sources, targets = [input.nbytes // ranks] * ranks, _blocks(input, ranks), _blocks(output, ranks)
        if may_overlap(output, input):
            return None
        call, asked = self._engine.all_to_all, signature("all_to_all", input.dtype, 0)
        return self._now("all_to_all_single", asked, input.nbytes, options, call, sources, sizes, targets, sizes)

    def barrier(self, options: Any) -> Work | None:
        """Wait for all ranks."""
        if not self._is_usual(options, ()):
            return None
        return self._now("barrier", BARRIER, 0, options, self._engine.barrier)

    def _is_usual(self, options: Any, tensors: Any) -> bool:
        """Return whether a call blocks and its tensors, all of one type, can be taken as they are."""
        if getattr(options, "asyncOp", True) or not self._worker.idle:
            return False
        if not isinstance(tensors, list | tuple) or modes._is_in_torch_dispatch_mode:
            return False
        dtype = None
        for tensor in tensors:
            if type(tensor) is not Tensor and type(tensor) is not Parameter:
                return False
            if not torch._C._has_storage(tensor) or tensor._is_zerotensor():  # it holds another; it holds nothing
                return False
            if not (tensor.is_cpu and tensor.layout == torch.strided) or tensor.is_nested or tensor.is_quantized:
                return False
            if not tensor.is_contiguous() or tensor.is_neg():
                return False
            end = tensor.storage_offset() * tensor.itemsize + tensor.nbytes
            if tensor.nbytes and end > tensor.untyped_storage().nbytes():  # it was let go, or some of it
                return False
            if dtype is None:
                dtype = tensor.dtype
                if dtype.is_complex:  # it may have its conjugation still to do
                    return False
            elif tensor.dtype != dtype:
                return False
        return True


class NoFastPath:
    """Leaves every call to more thought, where the ranks compare what they call."""

    def _leave(self, *_: object) -> None:
        return None

    all_reduce = broadcast = all_gather = all_gather_single = _leave
    reduce_scatter_single = all_to_all_single = barrier = _leave


def _blocks(tensor: Tensor, parts: int) -> Sequence[int]:
    """Return the addresses of equal parts of a tensor."""
    address, step = tensor.data_ptr(), tensor.nbytes // parts
    return [address + i * step for i in range(parts)]


def _is_list_of(given: Any, count: int) -> bool:
    return isinstance(given, list | tuple) and len(given) == count
