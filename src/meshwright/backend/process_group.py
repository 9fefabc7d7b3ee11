"""The process group "meshwright": torch.distributed's calls, translated into collectives over addresses.

A blocking call runs on the caller's thread. An asynchronous one goes to the group's own thread, in the order in which
they were issued, so that it runs beside the caller's work and groups do not wait for each other; where the ranks of a
host already fill its processors there is nothing to run beside, and the caller waits a little for it.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from torch import Tensor
from torch.autograd import profiler
from torch.distributed import ReduceOp, Work

from ..errors import InputError
from .group import GroupBase
from .lines import Parcel
from .mailbox import Letter
from .marks import mark_until_done
from .sparse import all_reduce_sparse, check_sparse
from .tensors import (
    Outputs,
    addresses_of,
    block_count,
    check_tensors,
    dense,
    operator_of,
    scale_,
    size_bytes,
    splits_bytes,
)


class _Defaults:
    """The options of a call that gives none."""

    reduceOp = ReduceOp(ReduceOp.SUM)
    rootRank = 0
    asyncOp = True
    timeout = timedelta(seconds=-1)


_DEFAULTS = _Defaults()


def _options(given: Any) -> Any:
    """Return the options of a call; a bare operator is the short form of the options of a reduction."""
    if given is None:
        return _DEFAULTS
    if hasattr(given, "asyncOp"):
        return given
    options = _Defaults()
    options.reduceOp = ReduceOp(given) if isinstance(given, ReduceOp.RedOpType) else given
    return options


def _one(tensors: Any) -> Any:
    """Return the only element of the lists of one in which torch hands over tensors."""
    if isinstance(tensors, Tensor):
        return tensors
    if len(tensors) != 1:
        raise InputError(f"expected one tensor a rank, got {len(tensors)}")
    return tensors[0]


class MeshwrightGroup(GroupBase):
    """One group of ranks, with the collectives of `torch.distributed` on tensors of the CPU."""

    # ---- reductions

    def allreduce(self, tensors: Any, opts: Any = None) -> Work:
        """Reduce a tensor over all ranks, in place."""
        if (work := self._usual.all_reduce(tensors, opts)) is not None:
            return work
        options = _options(opts)
        tensor = _one(tensors)
        if tensor.is_sparse:
            return self._all_reduce_sparse(tensor, options)
        return self._all_reduce("all_reduce", [tensor], options)

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        """Reduce several tensors over all ranks, in place."""
        return self._all_reduce("all_reduce_coalesced", tensors, _options(opts))

    def _all_reduce_sparse(self, tensor: Tensor, options: Any) -> Work:
        operator = operator_of(options.reduceOp)
        check_sparse(tensor, operator)

        def call() -> None:
            all_reduce_sparse(self._engine, tensor, self._size, average=operator == "avg")

        return self._start("all_reduce of a sparse tensor", size_bytes(tensor._values()), call, [tensor], options)

    def _all_reduce(self, name: str, tensors: Sequence[Tensor], options: Any) -> Work:
        code = options.reduceOp
        check_tensors(tensors, name)
        engine, kind = self._engine, self._kind(code, tensors[0].dtype)
        outputs = Outputs(tensors)
        work = [(address, memory.numel()) for address, memory in zip(outputs.addresses, outputs.memory, strict=True)]

        def call() -> None:
            if self._is_scaled(code):
                for memory in outputs.memory:
                    scale_(memory, code)
            for address, count in work:
                engine.all_reduce(address, count, kind)
            outputs.land()

        return self._start(name, sum(count for _, count in work) * kind.item_bytes, call, tensors, options)

    def reduce(self, tensors: Any, opts: Any = None) -> Work:
        """Reduce a tensor over all ranks into the root's; the others keep theirs."""
        options = _options(opts)
        tensor, code, root = _one(tensors), options.reduceOp, options.rootRank
        check_tensors([tensor], "reduce")
        engine, kind = self._engine, self._kind(code, tensor.dtype)
        outputs = Outputs([tensor])

        def call() -> None:
            memory = outputs.memory[0]
            if self._is_scaled(code):
                if self._rank != root:
                    memory = memory.clone()
                scale_(memory, code)
            engine.reduce(memory.data_ptr(), memory.numel(), kind, root)
            if self._rank == root:
                outputs.land()

        return self._start("reduce", size_bytes(tensor), call, [tensor], options)

    def reduce_scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Work:
        """Reduce the i-th of the input tensors of all ranks into the output of rank i; sizes may differ."""
        return self._reduce_scatter("reduce_scatter", [_one(output_tensors)], [_one(input_tensors)], _options(opts))

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        """Reduce the i-th block of the inputs of all ranks into the output of rank i."""
        if (work := self._usual.reduce_scatter_single(output, input, opts)) is not None:
            return work
        return self._reduce_scatter("reduce_scatter_single", [output], [input], _options(opts))

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        """Do several reduce_scatter_single in one call."""
        return self._reduce_scatter("reduce_scatter_single_coalesced", outputs, inputs, _options(opts))

    def _reduce_scatter(self, name: str, outputs: Sequence[Tensor], inputs: Sequence[Any], options: Any) -> Work:
        code, engine = options.reduceOp, self._engine
        kind = self._kind(code, outputs[0].dtype)
        landing = Outputs(outputs)
        jobs = []
        for memory, given in zip(landing.memory, inputs, strict=True):
            blocks = [given] if isinstance(given, Tensor) else list(given)
            check_tensors([memory, *blocks], name)
            if isinstance(given, Tensor):
                counts = [block_count(given, self._size, name)] * self._size
            elif len(blocks) == self._size:
                counts = [block.numel() for block in blocks]
            else:
                raise InputError(f"{name}: expected {self._size} input tensors, got {len(blocks)}")
            if memory.numel() != counts[self._rank]:
                raise InputError(f"{name}: expected {counts[self._rank]} output elements, got {memory.numel()}")
            jobs.append((memory.data_ptr(), [dense(block) for block in blocks], counts))

        def call() -> None:
            for target, blocks, counts in jobs:
                if self._is_scaled(code):
                    blocks = [block.clone() for block in blocks]
                    for block in blocks:
                        scale_(block, code)
                if len(blocks) == self._size:
                    sources = [block.data_ptr() for block in blocks]
                else:
                    sources = addresses_of(blocks[0], [count * kind.item_bytes for count in counts])
                engine.reduce_scatter(sources, target, counts, kind)
            landing.land()

        moved = sum(sum(counts) for _, _, counts in jobs) * kind.item_bytes
        return self._start(name, moved, call, outputs, options, [blocks for _, blocks, _ in jobs])

    # ---- copies

    def broadcast(self, tensors: Any, opts: Any = None) -> Work:
        """Copy the root's tensor to all ranks."""
        if (work := self._usual.broadcast(tensors, opts)) is not None:
            return work
        options = _options(opts)
        tensor, root, engine = _one(tensors), options.rootRank, self._engine
        check_tensors([tensor], "broadcast")
        outputs, size = Outputs([tensor]), size_bytes(tensor)

        def call() -> None:
            engine.broadcast(outputs.addresses[0], size, root)
            if self._rank != root:
                outputs.land()

        return self._start("broadcast", size, call, [tensor], options)

    def allgather(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Work:
        """Copy every rank's tensor to all ranks; sizes may differ between ranks."""
        if (work := self._usual.all_gather(output_tensors, input_tensors, opts)) is not None:
            return work
        outputs = output_tensors[0] if len(output_tensors) == 1 and not isinstance(output_tensors[0], Tensor) else None
        return self._all_gather(
            "all_gather", [output_tensors if outputs is None else outputs], [_one(input_tensors)], _options(opts)
        )

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        """Copy every rank's tensor into its block of one tensor on all ranks."""
        if (work := self._usual.all_gather_single(output, input, opts)) is not None:
            return work
        return self._all_gather("all_gather_single", [output], [input], _options(opts))

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        """Do several all_gather_single in one call."""
        return self._all_gather("all_gather_single_coalesced", outputs, inputs, _options(opts))

    def allgather_coalesced(self, output_lists: Any, input_list: Any, opts: Any = None) -> Work:
        """Do several allgather in one call: `output_lists[rank][i]` gets input i of that rank."""
        by_tensor = [[of_rank[i] for of_rank in output_lists] for i in range(len(input_list))]
        return self._all_gather("all_gather_coalesced", by_tensor, input_list, _options(opts))

    def _all_gather(self, name: str, outputs: Sequence[Any], inputs: Sequence[Tensor], options: Any) -> Work:
        engine, jobs = self._engine, []
        for given, tensor in zip(outputs, inputs, strict=True):
            targets = [given] if isinstance(given, Tensor) else list(given)
            check_tensors([tensor, *targets], name)
            landing, source = Outputs(targets), dense(tensor)
            if isinstance(given, Tensor):
                sizes = [block_count(given, self._size, name) * given.element_size()] * self._size
                addresses = addresses_of(landing.memory[0], sizes)
            elif len(targets) == self._size:
                sizes, addresses = [size_bytes(target) for target in targets], landing.addresses
            else:
                raise InputError(f"{name}: expected {self._size} output tensors, got {len(targets)}")
            if size_bytes(source) != sizes[self._rank]:
                raise InputError(f"{name}: input of {size_bytes(source)} bytes, output of {sizes[self._rank]}")
            jobs.append((source, addresses, sizes, landing))

        def call() -> None:
            for source, addresses, sizes, landing in jobs:
                engine.all_gather(source.data_ptr(), addresses, sizes)
                landing.land()

        return self._start(name, sum(sum(job[2]) for job in jobs), call, outputs, options)

    def gather(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Work:
        """Copy every rank's tensor to the root."""
        options = _options(opts)
        engine, root, source = self._engine, options.rootRank, dense(_one(input_tensors))
        targets = list(output_tensors[0]) if self._rank == root else []
        check_tensors([source, *targets], "gather")
        if self._rank == root and [size_bytes(target) for target in targets] != [size_bytes(source)] * self._size:
            raise InputError(f"gather: expected {self._size} output tensors of {size_bytes(source)} bytes")
        landing = Outputs(targets)

        def call() -> None:
            engine.gather(source.data_ptr(), landing.addresses, size_bytes(source), root)
            landing.land()

        return self._start("gather", size_bytes(source), call, [targets], options, [source])

    def scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Work:
        """Copy the root's i-th tensor to rank i."""
        options = _options(opts)
        engine, root, landing = self._engine, options.rootRank, Outputs([_one(output_tensors)])
        target = landing.memory[0]
        sources = [dense(tensor) for tensor in input_tensors[0]] if self._rank == root else []
        check_tensors([target, *sources], "scatter")
        if self._rank == root and [size_bytes(source) for source in sources] != [size_bytes(target)] * self._size:
            raise InputError(f"scatter: expected {self._size} input tensors of {size_bytes(target)} bytes")

        def call() -> None:
            addresses = [source.data_ptr() for source in sources]
            engine.scatter(addresses, target.data_ptr(), size_bytes(target), root)
            landing.land()

        return self._start("scatter", size_bytes(target), call, output_tensors, options)

    def all_to_all_single(
        self, output: Tensor, input: Tensor, output_splits: Any = (), input_splits: Any = (), opts: Any = None
    ) -> Work:
        """Send the i-th block of rows to rank i; blocks may differ in size."""
        if not (output_splits or input_splits):
            work = self._usual.all_to_all_single(output, input, opts)
            if work is not None:
                return work
        name, engine, landing, source = "all_to_all_single", self._engine, Outputs([output]), dense(input)
        check_tensors([output, input], name)
        sent = splits_bytes(source, input_splits, self._size, f"{name} input")
        received = splits_bytes(output, output_splits, self._size, f"{name} output")

        def call() -> None:
            targets = addresses_of(landing.memory[0], received)
            engine.all_to_all(addresses_of(source, sent), sent, targets, received)
            landing.land()

        return self._start(name, size_bytes(source), call, [output], _options(opts), [])

    def alltoall(self, output_tensors: Sequence[Tensor], input_tensors: Sequence[Tensor], opts: Any = None) -> Work:
        """Send the i-th tensor to rank i; tensors may differ in size."""
        name, engine, landing = "all_to_all", self._engine, Outputs(output_tensors)
        check_tensors([*output_tensors, *input_tensors], name)
        if len(output_tensors) != self._size or len(input_tensors) != self._size:
            raise InputError(f"{name}: expected {self._size} tensors")
        sources = [dense(tensor) for tensor in input_tensors]
        sent, received = [size_bytes(t) for t in sources], [size_bytes(t) for t in output_tensors]

        def call() -> None:
            engine.all_to_all([t.data_ptr() for t in sources], sent, landing.addresses, received)
            landing.land()

        return self._start(name, sum(sent), call, output_tensors, _options(opts), [])

    def barrier(self, opts: Any = None) -> Work:
        """Wait for all ranks."""
        if (work := self._usual.barrier(opts)) is not None:
            return work
        return self._start("barrier", 0, self._engine.barrier, [], _options(opts))

    # ---- messages

    def send(self, tensors: Any, dst: int, tag: int = 0) -> Work:
        """Send a tensor to one rank."""
        source = dense(_one(tensors))
        check_tensors([source], "send")
        mailbox, parcel = self._engine.mailbox, Parcel(tag, source.data_ptr(), size_bytes(source))
        letter = Letter(mailbox, f"send to rank {dst}", self._next_letter(), dst, parcel, [source])
        if profiler._is_profiler_enabled:
            mark_until_done("send", letter)
        mailbox.send(letter)
        return letter

    def recv(self, tensors: Any, src: int | None, tag: int = 0) -> Work:
        """Receive a tensor from one rank, or from any if `src` is None."""
        tensor = _one(tensors)
        check_tensors([tensor], "recv")
        landing = Outputs([tensor])
        name = f"recv from rank {src}" if src is not None else "recv from any rank"
        mailbox, parcel = self._engine.mailbox, Parcel(tag, landing.addresses[0], size_bytes(tensor))
        letter = Letter(mailbox, name, self._next_letter(), src, parcel, [tensor], landing.land)
        if profiler._is_profiler_enabled:
            mark_until_done("recv", letter)
        mailbox.receive(letter)
        return letter

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work:
        """Receive a tensor from the first rank that sends one."""
        return self.recv(tensors, None, tag)

    def _next_letter(self) -> int:
        self._letters += 1
        return self._letters

    # ---- the names of torch 2.11 and 2.12

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single
