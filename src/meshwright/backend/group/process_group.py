"""The process group "meshwright": torch.distributed's calls, translated into collectives over addresses.

A blocking call runs on the caller's thread. An asynchronous one goes to the group's own thread, in the order in which
they were issued, so that it runs beside the caller's work and groups do not wait for each other; where the ranks of a
host already fill its processors there is nothing to run beside, and the caller waits a little for it.

Each method tries the short way of usual calls first. What that leaves is bound to one of torch's overloads
(overloads.py), shown to dispatch modes where there are any (dispatch_modes.py), checked (arguments.py), and started
with the signature that the ranks compare (signature.py).
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.distributed import Work

from ..faults.failures import ArgumentError
from . import overloads
from .arguments import (
    check_targets,
    check_tensors,
    inner_list,
    may_overlap,
    only_tensor,
    root_of,
    splits_of,
    tensor_list,
)
from .base import refusable
from .dispatch_modes import called_as
from .send_receive import MessagesGroup
from .signature import BARRIER, signature
from .sparse import NAME as SPARSE
from .sparse import all_reduce_sparse, complex_of, sparse_entries, sparse_signature
from .tensors import Outputs, addresses_of, block_count, dense, factor_of, operator_of, scale_, size_bytes


class MeshwrightGroup(MessagesGroup):
    """One group of ranks, with the collectives of `torch.distributed` on tensors of the CPU."""

    # ---- reductions

    def allreduce(self, tensors: Any = None, opts: Any = None, *more: Any, **named: Any) -> Work:
        """Reduce a tensor over all ranks, in place."""
        if not named and (work := self._usual.all_reduce(tensors, opts)) is not None:
            return work
        return self._asked_all_reduce(tensors, opts, *more, **named)

    @refusable
    @called_as(overloads.ALL_REDUCE)
    def _asked_all_reduce(self, tensors: Any, options: Any) -> Work:
        tensor = only_tensor(tensors, "all_reduce")
        if tensor.is_sparse:
            return self._all_reduce_sparse(tensor, options)
        return self._all_reduce("all_reduce", [tensor], options)

    @refusable
    @called_as(overloads.ALL_REDUCE_COALESCED)
    def allreduce_coalesced(self, tensors: Any, options: Any) -> Work:
        """Reduce several tensors over all ranks, in place."""
        return self._all_reduce("all_reduce_coalesced", tensor_list(tensors, "all_reduce_coalesced"), options)

    def _all_reduce_sparse(self, given: Tensor, options: Any) -> Work:
        tensor, operator = complex_of(given), operator_of(options.reduceOp)
        own = sparse_entries(tensor, operator)

        def call() -> None:
            all_reduce_sparse(self._engine, tensor, own, self._size, average=operator == "avg")

        asked, moved = sparse_signature(tensor, operator), size_bytes(own.values())
        return self._start(SPARSE, asked, moved, call, [tensor], options)

    def _all_reduce(self, name: str, tensors: Sequence[Tensor], options: Any) -> Work:
        code = options.reduceOp
        check_tensors(tensors, name)
        check_targets(tensors, name)
        if not tensors:
            raise ArgumentError(f"{name}: expected at least one tensor")
        engine, kind, factor = self._engine, self._kind(code, tensors[0].dtype), factor_of(code, tensors[0].dtype)
        outputs = Outputs(tensors)
        work = [(address, memory.numel()) for address, memory in zip(outputs.addresses, outputs.memory, strict=True)]
        sizes = [count * kind.item_bytes for _, count in work]

        def call() -> None:
            if factor is not None:
                for memory in outputs.memory:
                    scale_(memory, factor)
            for address, count in work:
                engine.all_reduce(address, count, kind)

        asked = signature(name, tensors[0].dtype, sizes if len(sizes) > 1 else sizes[0], operator=operator_of(code))
        return self._start(name, asked, sum(sizes), call, tensors, options, land=outputs.land)

    @refusable
    @called_as(overloads.REDUCE)
    def reduce(self, tensors: Any, options: Any) -> Work:
        """Reduce a tensor over all ranks into the root's; the others keep theirs."""
        tensor, code, root = only_tensor(tensors, "reduce"), options.reduceOp, root_of(options, self._size, "reduce")
        check_tensors([tensor], "reduce")
        if root == self._rank:
            check_targets([tensor], "reduce")
        engine, kind, factor = self._engine, self._kind(code, tensor.dtype), factor_of(code, tensor.dtype)
        outputs = Outputs([tensor])

        def call() -> None:
            memory = outputs.memory[0]
            if factor is not None:
                if self._rank != root:
                    memory = memory.clone()
                scale_(memory, factor)
            engine.reduce(memory.data_ptr(), memory.numel(), kind, root)

        asked = signature("reduce", tensor.dtype, size_bytes(tensor), operator=operator_of(code), root=root)
        land = outputs.land if self._rank == root else None
        return self._start("reduce", asked, size_bytes(tensor), call, [tensor], options, land=land)

    @refusable
    @called_as(overloads.REDUCE_SCATTER)
    def reduce_scatter(self, outputs: Any, inputs: Any, options: Any) -> Work:
        """Reduce the i-th of the input tensors of all ranks into the output of rank i; sizes may differ."""
        name = "reduce_scatter"
        return self._reduce_scatter(name, [only_tensor(outputs, name)], [inner_list(inputs, name)], options)

    def reduce_scatter_single(
        self, output: Any = None, input: Any = None, opts: Any = None, *more: Any, **named: Any
    ) -> Work:
        """Reduce the i-th block of the inputs of all ranks into the output of rank i."""
        if not named and (work := self._usual.reduce_scatter_single(output, input, opts)) is not None:
            return work
        return self._asked_reduce_scatter_single(output, input, opts, *more, **named)

    @refusable
    @called_as(overloads.REDUCE_SCATTER_SINGLE)
    def _asked_reduce_scatter_single(self, output: Any, input: Any, options: Any) -> Work:
        check_tensors([output, input], "reduce_scatter_single")
        return self._reduce_scatter("reduce_scatter_single", [output], [input], options)

    @refusable
    @called_as(overloads.REDUCE_SCATTER_COALESCED)
    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, options: Any) -> Work:
        """Do several reduce_scatter_single in one call."""
        name = "reduce_scatter_coalesced"
        return self._reduce_scatter(name, tensor_list(outputs, name), tensor_list(inputs, name), options)

    def _reduce_scatter(self, name: str, outputs: Sequence[Tensor], inputs: Sequence[Any], options: Any) -> Work:
        _check_pairs(outputs, inputs, name)
        code, engine = options.reduceOp, self._engine
        check_tensors(outputs, name)
        check_targets(outputs, name)
        kind, factor = self._kind(code, outputs[0].dtype), factor_of(code, outputs[0].dtype)
        landing = Outputs(outputs)
        jobs = []
        for memory, given in zip(landing.memory, inputs, strict=True):
            blocks = [given] if isinstance(given, Tensor) else given
            check_tensors([memory, *blocks], name)
            if isinstance(given, Tensor):
                counts = [block_count(given, self._size, name)] * self._size
            elif len(blocks) == self._size:
                counts = [block.numel() for block in blocks]
            else:
                raise ArgumentError(f"{name}: expected {self._size} input tensors, got {len(blocks)}")
            if memory.numel() != counts[self._rank]:
                raise ArgumentError(f"{name}: expected {counts[self._rank]} output elements, got {memory.numel()}")
            jobs.append((memory.data_ptr(), self._apart_from(memory, blocks, counts, kind.item_bytes), counts))

        def call() -> None:
            for target, blocks, counts in jobs:
                if factor is not None:
                    blocks = [block.clone() for block in blocks]
                    for block in blocks:
                        scale_(block, factor)
                if len(blocks) == self._size:
                    sources = [block.data_ptr() for block in blocks]
                else:
                    sources = addresses_of(blocks[0], [count * kind.item_bytes for count in counts])
                engine.reduce_scatter(sources, target, counts, kind)

        sizes = [count * kind.item_bytes for _, _, counts in jobs for count in counts]
        asked = signature(_plain(name), outputs[0].dtype, sizes, operator=operator_of(code))
        blocks_of_all = [blocks for _, blocks, _ in jobs]
        return self._start(name, asked, sum(sizes), call, outputs, options, blocks_of_all, land=landing.land)

    def _apart_from(
        self, memory: Tensor, blocks: Sequence[Tensor], counts: Sequence[int], item_bytes: int
    ) -> list[Tensor]:
        """Return inputs as contiguous memory that the output does not change, unless it is the rank's own block."""
        inputs = [dense(block) for block in blocks]
        for i, block in enumerate(inputs):
            starts = [block.data_ptr()]
            if len(inputs) < len(counts):
                starts = addresses_of(block, [count * item_bytes for count in counts])
            is_own = starts[min(self._rank, len(starts) - 1)] == memory.data_ptr() and i in {0, self._rank}
            if may_overlap(block, memory) and not is_own:
                inputs[i] = block.clone()
        return inputs

    # ---- copies

    def broadcast(self, tensors: Any = None, opts: Any = None, *more: Any, **named: Any) -> Work:
        """Copy the root's tensor to all ranks."""
        if not named and (work := self._usual.broadcast(tensors, opts)) is not None:
            return work
        return self._asked_broadcast(tensors, opts, *more, **named)

    @refusable
    @called_as(overloads.BROADCAST)
    def _asked_broadcast(self, tensors: Any, options: Any) -> Work:
        tensor, engine = only_tensor(tensors, "broadcast"), self._engine
        root = root_of(options, self._size, "broadcast")
        check_tensors([tensor], "broadcast")
        check_targets([tensor], "broadcast")
        outputs, size = Outputs([tensor]), size_bytes(tensor)
        asked = signature("broadcast", tensor.dtype, size, root=root)

        def call() -> None:
            engine.broadcast(outputs.addresses[0], size, root)

        land = outputs.land if self._rank != root else None
        return self._start("broadcast", asked, size, call, [tensor], options, land=land)

    def allgather(self, outputs: Any = None, inputs: Any = None, opts: Any = None, *more: Any, **named: Any) -> Work:
        """Copy every rank's tensor to all ranks; sizes may differ between ranks."""
        if not named and (work := self._usual.all_gather(outputs, inputs, opts)) is not None:
            return work
        return self._asked_all_gather(outputs, inputs, opts, *more, **named)

    @refusable
    @called_as(overloads.ALL_GATHER)
    def _asked_all_gather(self, outputs: Any, inputs: Any, options: Any) -> Work:
        given = inner_list(outputs, "all_gather")
        return self._all_gather("all_gather", [given], [only_tensor(inputs, "all_gather")], options)

    def all_gather_single(
        self, output: Any = None, input: Any = None, opts: Any = None, *more: Any, **named: Any
    ) -> Work:
        """Copy every rank's tensor into its block of one tensor on all ranks."""
        if not named and (work := self._usual.all_gather_single(output, input, opts)) is not None:
            return work
        return self._asked_all_gather_single(output, input, opts, *more, **named)

    @refusable
    @called_as(overloads.ALL_GATHER_SINGLE)
    def _asked_all_gather_single(self, output: Any, input: Any, options: Any) -> Work:
        check_tensors([output, input], "all_gather_single")
        return self._all_gather("all_gather_single", [output], [input], options)

    @refusable
    @called_as(overloads.ALL_GATHER_SINGLE_COALESCED)
    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, options: Any) -> Work:
        """Do several all_gather_single in one call."""
        name = "all_gather_coalesced"
        return self._all_gather(name, tensor_list(outputs, name), tensor_list(inputs, name), options)

    @refusable
    @called_as(overloads.ALL_GATHER_COALESCED)
    def allgather_coalesced(self, outputs: Any, inputs: Any, options: Any) -> Work:
        """Do several allgather in one call: `outputs[rank][i]` gets input i of that rank."""
        name = "all_gather_coalesced"
        inputs = tensor_list(inputs, name)
        lists = [tensor_list(of_rank, name) for of_rank in outputs]
        for of_rank in lists:
            _check_pairs(of_rank, inputs, name)
        by_tensor = [[of_rank[i] for of_rank in lists] for i in range(len(inputs))]
        return self._all_gather(name, by_tensor, inputs, options)

    def _all_gather(self, name: str, outputs: Sequence[Any], inputs: Sequence[Tensor], options: Any) -> Work:
        _check_pairs(outputs, inputs, name)
        engine, jobs, all_sizes = self._engine, [], []
        for given, tensor in zip(outputs, inputs, strict=True):
            targets = [given] if isinstance(given, Tensor) else given
            check_tensors([tensor, *targets], name)
            check_targets(targets, name)
            landing, source = Outputs(targets), dense(tensor)
            if isinstance(given, Tensor):
                sizes = [block_count(given, self._size, name) * given.element_size()] * self._size
                addresses = addresses_of(landing.memory[0], sizes)
            elif len(targets) == self._size:
                sizes, addresses = [size_bytes(target) for target in targets], landing.addresses
            else:
                raise ArgumentError(f"{name}: expected {self._size} output tensors, got {len(targets)}")
            if size_bytes(source) != sizes[self._rank]:
                raise ArgumentError(f"{name}: input of {size_bytes(source)} bytes, output of {sizes[self._rank]}")
            if source.data_ptr() != addresses[self._rank] and any(may_overlap(source, target) for target in targets):
                source = source.clone()
            jobs.append((source, addresses, sizes, landing))
            all_sizes += sizes

        def call() -> None:
            for source, addresses, sizes, _ in jobs:
                engine.all_gather(source.data_ptr(), addresses, sizes)

        def land() -> None:
            for *_, landing in jobs:
                landing.land()

        asked = signature(_plain(name), inputs[0].dtype, all_sizes)
        return self._start(name, asked, sum(all_sizes), call, outputs, options, land=land)

    @refusable
    @called_as(overloads.GATHER)
    def gather(self, outputs: Any, inputs: Any, options: Any) -> Work:
        """Copy every rank's tensor to the root."""
        engine, root, source = self._engine, root_of(options, self._size, "gather"), only_tensor(inputs, "gather")
        targets = inner_list(outputs, "gather") if self._rank == root else []
        check_tensors([source, *targets], "gather")
        check_targets(targets, "gather")
        source = dense(source)
        if self._rank == root and [size_bytes(target) for target in targets] != [size_bytes(source)] * self._size:
            raise ArgumentError(f"gather: expected {self._size} output tensors of {size_bytes(source)} bytes")
        landing = Outputs(targets)
        if (
            targets
            and source.data_ptr() != landing.addresses[root]
            and any(may_overlap(source, each) for each in targets)
        ):
            source = source.clone()

        def call() -> None:
            engine.gather(source.data_ptr(), landing.addresses, size_bytes(source), root)

        asked = signature("gather", source.dtype, size_bytes(source), root=root)
        return self._start("gather", asked, size_bytes(source), call, targets, options, [source], land=landing.land)

    @refusable
    @called_as(overloads.SCATTER)
    def scatter(self, outputs: Any, inputs: Any, options: Any) -> Work:
        """Copy the root's i-th tensor to rank i."""
        engine, root, output = self._engine, root_of(options, self._size, "scatter"), only_tensor(outputs, "scatter")
        given = inner_list(inputs, "scatter") if self._rank == root else []
        check_tensors([output, *given], "scatter")
        check_targets([output], "scatter")
        landing, sources = Outputs([output]), [dense(tensor) for tensor in given]
        target = landing.memory[0]
        if self._rank == root and [size_bytes(source) for source in sources] != [size_bytes(target)] * self._size:
            raise ArgumentError(f"scatter: expected {self._size} input tensors of {size_bytes(target)} bytes")
        for i, source in enumerate(sources):
            if i != root and may_overlap(source, target):
                sources[i] = source.clone()

        def call() -> None:
            addresses = [source.data_ptr() for source in sources]
            engine.scatter(addresses, target.data_ptr(), size_bytes(target), root)

        asked = signature("scatter", target.dtype, size_bytes(target), root=root)
        return self._start("scatter", asked, size_bytes(target), call, [output], options, land=landing.land)

    def all_to_all_single(
        self,
        output: Any = None,
        input: Any = None,
        output_splits: Any = None,
        input_splits: Any = None,
        *more: Any,
        **named: Any,
    ) -> Work:
        """Send the i-th block of rows to rank i; blocks may differ in size."""
        if not named and _is_unset(output_splits) and _is_unset(input_splits):
            work = self._usual.all_to_all_single(output, input, more[0] if more else None)
            if work is not None:
                return work
        return self._asked_all_to_all_single(output, input, output_splits, input_splits, *more, **named)

    @refusable
    @called_as(overloads.ALL_TO_ALL_SINGLE)
    def _asked_all_to_all_single(
        self, output: Any, input: Any, output_splits: Any, input_splits: Any, options: Any
    ) -> Work:
        name = "all_to_all_single"
        check_tensors([output, input], name)
        check_targets([output], name)
        landing, source = Outputs([output]), dense(input.clone() if may_overlap(output, input) else input)
        sent = splits_of(source, input_splits, self._size, f"{name} input")
        received = splits_of(output, output_splits, self._size, f"{name} output")
        sources, targets = addresses_of(source, sent), addresses_of(landing.memory[0], received)
        return self._all_to_all(name, [source], sources, sent, targets, received, [output], options, landing)

    @refusable
    @called_as(overloads.ALL_TO_ALL)
    def alltoall(self, outputs: Any, inputs: Any, options: Any) -> Work:
        """Send the i-th tensor to rank i; tensors may differ in size."""
        name, outputs, inputs = "all_to_all", tensor_list(outputs, "all_to_all"), tensor_list(inputs, "all_to_all")
        check_tensors([*outputs, *inputs], name)
        check_targets(outputs, name)
        if len(outputs) != self._size or len(inputs) != self._size:
            raise ArgumentError(
                f"{name}: expected {self._size} tensors, got {len(inputs)} inputs, {len(outputs)} outputs"
            )
        landing = Outputs(outputs)
        kept = [dense(t.clone() if any(may_overlap(t, target) for target in outputs) else t) for t in inputs]
        sent, received = [size_bytes(t) for t in kept], [size_bytes(t) for t in outputs]
        sources = [t.data_ptr() for t in kept]
        return self._all_to_all(name, kept, sources, sent, landing.addresses, received, outputs, options, landing)

    def _all_to_all(
        self,
        name: str,
        kept: Sequence[Tensor],
        sources: Sequence[int],
        sent: Sequence[int],
        targets: Sequence[int],
        received: Sequence[int],
        outputs: Sequence[Tensor],
        options: Any,
        landing: Outputs,
    ) -> Work:
        """Exchange blocks between addresses; `kept` are the tensors that hold the sources."""
        me, engine = self._rank, self._engine
        if sent[me] != received[me]:
            raise ArgumentError(f"{name}: this rank sends itself {sent[me]} bytes and expects {received[me]}")

        def call() -> None:
            assert kept
            engine.all_to_all(sources, sent, targets, received)

        asked = signature("all_to_all", outputs[0].dtype, 0)
        return self._start(name, asked, sum(sent), call, outputs, options, [], land=landing.land)

    def barrier(self, opts: Any = None, *more: Any, **named: Any) -> Work:
        """Wait for all ranks."""
        if not named and (work := self._usual.barrier(opts)) is not None:
            return work
        return self._asked_barrier(opts, *more, **named)

    @refusable
    @called_as(overloads.BARRIER)
    def _asked_barrier(self, options: Any) -> Work:
        return self._start("barrier", BARRIER, 0, self._engine.barrier, [], options)

    # ---- the names of torch 2.11 and 2.12

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single


def _is_unset(splits: Any) -> bool:
    """Return whether splits leave it to the blocks to be equal; an array has no truth value, and goes the long way."""
    return splits is None or (isinstance(splits, list | tuple) and not splits)


def _plain(name: str) -> str:
    """Return the name of a collective without how its memory is given: the ranks may differ in that."""
    return name.removesuffix("_single")


def _check_pairs(outputs: Sequence[Any], inputs: Sequence[Any], what: str) -> None:
    if not inputs or len(outputs) != len(inputs):
        raise ArgumentError(f"{what}: expected as many outputs as inputs, got {len(outputs)} and {len(inputs)}")
