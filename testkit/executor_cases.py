"""The programs of live ranks in the tests of the executor, and the plain reference for each result.

Every rank makes everyone's input from the same seed, so it can compute the reference by itself, with NumPy.
"""

import itertools
import os
import random
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from meshwright.backend.wire.executor import Executor
from meshwright.backend.wire.executor_reduce import OPERATORS
from meshwright.backend.wire.transport import Incoming, Outgoing, TransportError
from meshwright.backend.wire.transport_device import CudaMemory, DeviceTransport
from meshwright.backend.wire.transport_shm import SharedMemoryTransport
from meshwright.backend.wire.transport_tcp import TcpTransport
from meshwright.backend.wire.transport_torch import TorchTransport
from meshwright.collectives.catalogue import algorithm_names, build_schedule
from meshwright.collectives.msccl.importer import load_msccl_xml
from testkit.host_memory import HostMemoryTransport

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 1e-5, torch.float64: 1e-13}


def open_transport(kind, store, rank, ranks, timeout_s=20.0):
    if kind == "torch":
        dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
        return TorchTransport()
    make = {"tcp": TcpTransport, "shm": SharedMemoryTransport, "device": HostMemoryTransport}[kind]
    return make(store, rank, ranks, prefix=kind, timeout_s=timeout_s)


def inputs(ranks, elements, dtype, seed=0):
    """Return one tensor for each rank, in a range where float products stay small and integer ones wrap."""
    generator = torch.Generator().manual_seed(seed + elements)
    if dtype == torch.bool:
        return [torch.randint(0, 2, (elements,), generator=generator).bool() for _ in range(ranks)]
    if dtype.is_floating_point:
        values = [torch.rand(elements, generator=generator, dtype=torch.float64) + 0.5 for _ in range(ranks)]
        return [(v * (1 - 2 * (torch.arange(elements) % 3 == 0))).to(dtype) for v in values]
    low, high = torch.iinfo(dtype).min, min(torch.iinfo(dtype).max, 2**62)
    return [torch.randint(max(low, -(2**62)), high, (elements,), generator=generator).to(dtype) for _ in range(ranks)]


def reduced(tensors, op, dtype):
    """Reduce tensors with NumPy, one after another: floats in float64, integers wrapping in their own type."""
    wide = [t.double().numpy() if dtype.is_floating_point else t.numpy() for t in tensors]
    functions = {
        "sum": np.logical_or if dtype == torch.bool else np.add,
        "avg": np.add,
        "product": np.logical_and if dtype == torch.bool else np.multiply,
        "min": np.minimum,
        "max": np.maximum,
        "band": np.bitwise_and,
        "bor": np.bitwise_or,
        "bxor": np.bitwise_xor,
    }
    total = wide[0].copy()
    for value in wide[1:]:
        total = functions[op](total, value)
    if op == "avg" and dtype.is_floating_point:
        total = total / len(tensors)
    elif op == "avg":
        exact = [int(v) for v in total]
        total = np.array([abs(v) // len(tensors) * (1 if v >= 0 else -1) for v in exact], dtype=total.dtype)
    return torch.from_numpy(np.asarray(total))


def check_equal(got, wanted, dtype, what):
    if dtype.is_floating_point:
        torch.testing.assert_close(
            got.double(), wanted.double(), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype], msg=what
        )
    else:
        assert torch.equal(got.view(torch.uint8), wanted.to(dtype).view(torch.uint8)), what


def allowed(op, dtype):
    if dtype.is_floating_point:
        return op not in {"band", "bor", "bxor"}
    return not (dtype == torch.bool and op == "avg")


def all_algorithms(rank, ranks, store, kind, elements):
    """Run every algorithm of every collective on odd sizes, with integers, and compare exactly."""
    executor = Executor(open_transport(kind, store, rank, ranks))
    try:
        for n in elements:
            everyone = inputs(ranks, n, torch.int64)
            parts = [inputs(ranks, ranks * n, torch.int64, seed=7)[r] for r in range(ranks)]
            for name in algorithm_names("all_reduce"):
                got = everyone[rank].clone()
                executor.all_reduce(got, build_schedule("all_reduce", name, ranks))
                assert torch.equal(got, sum(everyone)), (name, n)
            for root in {0, ranks // 2, ranks - 1}:
                rooted(executor, rank, ranks, n, root, everyone, parts)
            for name in algorithm_names("all_gather"):
                got = torch.empty(ranks * n, dtype=torch.int64)
                executor.all_gather(got, everyone[rank], build_schedule("all_gather", name, ranks))
                assert torch.equal(got, torch.cat(everyone)), (name, n)
            for name in algorithm_names("reduce_scatter"):
                got = torch.empty(n, dtype=torch.int64)
                executor.reduce_scatter(got, parts[rank], build_schedule("reduce_scatter", name, ranks))
                assert torch.equal(got, sum(parts)[rank * n : (rank + 1) * n]), (name, n)
            for name in algorithm_names("all_to_all"):
                got = torch.empty(ranks * n, dtype=torch.int64)
                executor.all_to_all(got, parts[rank], build_schedule("all_to_all", name, ranks))
                assert torch.equal(got, torch.cat([p[rank * n : (rank + 1) * n] for p in parts])), (name, n)
    finally:
        executor.transport.close()


def rooted(executor, rank, ranks, n, root, everyone, parts, *, reducing=True):
    is_root, dtype = rank == root, everyone[rank].dtype
    for name in algorithm_names("broadcast"):
        got = everyone[rank].clone()
        executor.broadcast(got, build_schedule("broadcast", name, ranks, root=root))
        assert torch.equal(got, everyone[root]), (name, n, root)
    for name in algorithm_names("reduce") if reducing else ():
        got = everyone[rank].clone()
        executor.reduce(got, build_schedule("reduce", name, ranks, root=root))
        assert torch.equal(got, sum(everyone) if is_root else everyone[rank]), (name, n, root)
    for name in algorithm_names("scatter"):
        got = torch.empty(n, dtype=dtype)
        executor.scatter(
            got, parts[root].clone() if is_root else None, build_schedule("scatter", name, ranks, root=root)
        )
        assert torch.equal(got, parts[root][rank * n : (rank + 1) * n]), (name, n, root)
    for name in algorithm_names("gather"):
        got = torch.empty(ranks * n, dtype=dtype) if is_root else None
        executor.gather(got, everyone[rank], build_schedule("gather", name, ranks, root=root))
        assert got is None or torch.equal(got, torch.cat(everyone)), (name, n, root)
    target = (root + 1) % ranks
    got = everyone[rank].clone()
    executor.send(got, build_schedule("send", "direct", ranks, root=root, target=target))
    assert torch.equal(got, everyone[root] if rank == target else everyone[rank])


def all_types(rank, ranks, store, kind, algorithms, elements):
    """Run every operator on every type, over some algorithms."""
    executor = Executor(open_transport(kind, store, rank, ranks))
    try:
        schedules = [build_schedule("all_reduce", name, ranks) for name in algorithms]
        for dtype, op in itertools.product((*INTEGERS, *FLOATS, torch.bool), OPERATORS):
            if not allowed(op, dtype):
                continue
            everyone = inputs(ranks, elements, dtype)
            wanted = reduced(everyone, op, dtype)
            for schedule in schedules:
                got = everyone[rank].clone()
                executor.all_reduce(got, schedule, op)
                check_equal(got, wanted, dtype, f"{dtype} {op} {schedule.name}")
    finally:
        executor.transport.close()


def all_types_elsewhere(rank, ranks, store, kind, elements):
    """Run every operator on every type in all algorithms of reduce and reduce-scatter, every type where data only move.

    The root is the last rank.
    """
    executor = Executor(open_transport(kind, store, rank, ranks))
    root, mine = ranks - 1, slice(rank * elements, (rank + 1) * elements)
    try:
        reduces = [build_schedule("reduce", name, ranks, root=root) for name in algorithm_names("reduce")]
        scatters = [build_schedule("reduce_scatter", name, ranks) for name in algorithm_names("reduce_scatter")]
        for dtype, op in itertools.product((*INTEGERS, *FLOATS, torch.bool), OPERATORS):
            if not allowed(op, dtype):
                continue
            everyone = inputs(ranks, ranks * elements, dtype)
            wanted = reduced(everyone, op, dtype)
            for schedule in reduces:
                got = everyone[rank].clone()
                executor.reduce(got, schedule, op)
                check_equal(got, wanted if rank == root else everyone[rank], dtype, f"{dtype} {op} {schedule.name}")
            for schedule in scatters:
                got = torch.empty(elements, dtype=dtype)
                executor.reduce_scatter(got, everyone[rank], schedule, op)
                check_equal(got, wanted[mine], dtype, f"{dtype} {op} {schedule.name}")
        for dtype in (*INTEGERS, *FLOATS, torch.bool):
            everyone = inputs(ranks, elements, dtype)
            parts = inputs(ranks, ranks * elements, dtype, seed=7)
            rooted(executor, rank, ranks, elements, root, everyone, parts, reducing=False)
            for name in algorithm_names("all_gather"):
                got = torch.empty(ranks * elements, dtype=dtype)
                executor.all_gather(got, everyone[rank], build_schedule("all_gather", name, ranks))
                check_equal(got, torch.cat(everyone), dtype, f"{dtype} {name}")
            for name in algorithm_names("all_to_all"):
                got = torch.empty(ranks * elements, dtype=dtype)
                executor.all_to_all(got, parts[rank], build_schedule("all_to_all", name, ranks))
                check_equal(got, torch.cat([p[mine] for p in parts]), dtype, f"{dtype} {name}")
    finally:
        executor.transport.close()


def shapes(rank, ranks, store, kind):
    """Run on tensors that are empty, transposed, strided, of no dimension, and larger than a transport's buffers."""
    executor = Executor(open_transport(kind, store, rank, ranks))
    schedule = build_schedule("all_reduce", "ring", ranks)
    try:
        for cut in (
            lambda base: base.t(),
            lambda base: base[:, ::3],
            lambda base: base[1:4, 2:9],
            lambda base: base.view(-1)[5::7],
            lambda base: base[:0],
            lambda base: base.view(1, 5, 3, 4).permute(0, 3, 1, 2),
        ):
            base = torch.arange(60.0).view(5, 12) + rank
            executor.all_reduce(cut(base), schedule)
            wanted = torch.arange(60.0).view(5, 12) + rank
            cut(wanted).copy_(cut(torch.arange(60.0).view(5, 12) * ranks + sum(range(ranks))))
            assert torch.equal(base, wanted)  # and what is not part of the tensor is as it was
        large = torch.arange(3_000_001) % 977 + rank
        executor.all_reduce(large, schedule)
        assert torch.equal(large, ranks * (torch.arange(3_000_001) % 977) + sum(range(ranks)))
        scalar = torch.tensor(float(rank))
        executor.all_reduce(scalar, schedule, "max")
        assert scalar.item() == ranks - 1
    finally:
        executor.transport.close()


def beyond_2_gib(rank, ranks, store, kind):
    """Sum and broadcast a tensor of more than 2**31 bytes; look at its ends and at one element in each MiB."""
    executor = Executor(open_transport(kind, store, rank, ranks, timeout_s=60.0))
    size = 2**31 + 12_345
    try:
        data = torch.full((size,), rank + 1, dtype=torch.uint8)
        data[-1] = 7
        executor.all_reduce(data, build_schedule("all_reduce", "ring", ranks))
        assert data[-1] == 7 * ranks
        assert bool((data[: -1 : 2**20] == ranks * (ranks + 1) // 2).all())
        if rank == 0:
            data.fill_(9)
        executor.broadcast(data, build_schedule("broadcast", "linear", ranks))
        assert bool((data[:: 2**20] == 9).all())
        assert data[-1] == 9
    finally:
        executor.transport.close()


def uneven(rank, ranks, store, kind):
    """Run all-to-all, all-gather, reduce-scatter, gather and scatter with a different size for each rank."""
    executor = Executor(open_transport(kind, store, rank, ranks))
    try:
        counts = [[(3 * i + 2 * j) % 5 for j in range(ranks)] for i in range(ranks)]
        given = [torch.arange(sum(counts[r])) + 1000 * r for r in range(ranks)]
        wanted = torch.cat([given[i].split(counts[i])[rank] for i in range(ranks)])
        for name in algorithm_names("all_to_all"):
            got = torch.empty(wanted.numel(), dtype=torch.int64)
            executor.all_to_all(got, given[rank], build_schedule("all_to_all", name, ranks), counts=counts)
            assert torch.equal(got, wanted), name
        sizes = [(r * 5 + 1) % 4 for r in range(ranks)]
        parts = [torch.arange(sizes[r]) + 100 * r for r in range(ranks)]
        for name in algorithm_names("all_gather"):
            got = torch.empty(sum(sizes), dtype=torch.int64)
            executor.all_gather(got, parts[rank], build_schedule("all_gather", name, ranks), counts=sizes)
            assert torch.equal(got, torch.cat(parts)), name
        for name in algorithm_names("reduce_scatter"):
            got = torch.empty(sizes[rank], dtype=torch.int64)
            source = torch.arange(sum(sizes)) + rank
            executor.reduce_scatter(got, source, build_schedule("reduce_scatter", name, ranks), counts=sizes)
            total = ranks * torch.arange(sum(sizes)) + sum(range(ranks))
            assert torch.equal(got, total.split(sizes)[rank]), name
    finally:
        executor.transport.close()


def msccl_file(rank, ranks, store, kind, path):
    """Run a program of msccl-tools and compare with the plain reference."""
    schedule = load_msccl_xml(path)
    executor = Executor(open_transport(kind, store, rank, ranks))
    parts = [torch.arange(ranks * 13) + 1000 * r for r in range(ranks)]
    try:
        if schedule.collective == "all_reduce":
            got = parts[rank].clone()
            executor.all_reduce(got, schedule)
            assert torch.equal(got, sum(parts))
        elif schedule.collective == "all_gather":
            got = torch.empty(ranks * parts[0].numel(), dtype=torch.int64)
            executor.all_gather(got, parts[rank], schedule)
            assert torch.equal(got, torch.cat(parts))
        else:
            got = torch.empty_like(parts[rank])
            executor.all_to_all(got, parts[rank], schedule)
            assert torch.equal(got, torch.cat([p.chunk(ranks)[rank] for p in parts]))
    finally:
        executor.transport.close()


def barriers(rank, ranks, store, kind, name, seed):
    """Enter a barrier after a random delay, three times; return when this rank entered and left, on one clock."""
    executor = Executor(open_transport(kind, store, rank, ranks))
    schedule = build_schedule("barrier", name, ranks)
    rng = random.Random(seed * 100 + rank)
    times = []
    try:
        for _ in range(3):
            time.sleep(rng.random() * 0.03)  # the delay under test
            entered = time.monotonic()
            executor.barrier(schedule)
            times.append((entered, time.monotonic()))
        return times
    finally:
        executor.transport.close()


def ping_pong(rank, ranks, store, kind):
    """Signal to and fro between ranks 0 and 1 under random delays; return when this rank signalled and was signalled.

    Even turns call `signal` and `wait`, odd ones run the schedule that does the same.
    """
    executor = Executor(open_transport(kind, store, rank, ranks))
    schedules = [build_schedule("signal", "direct", ranks, root=a, target=b) for a, b in ((0, 1), (1, 0))]
    rng, events = random.Random(rank), []
    try:
        for turn in range(6):
            for schedule in schedules:
                time.sleep(rng.random() * 0.01)  # the delay under test
                if rank == schedule.root:
                    events.append((time.monotonic(), f"signal {turn}"))
                if turn % 2:
                    executor.run_signal(schedule)
                elif rank == schedule.root:
                    executor.signal(schedule.target)
                else:
                    executor.wait(schedule.root)
                if rank == schedule.target:
                    events.append((time.monotonic(), f"wait {turn}"))
        return events
    finally:
        executor.transport.close()


def mismatch(rank, ranks, store, kind):
    """Send more than the other side expects; return the message of the error."""
    executor = Executor(open_transport(kind, store, rank, ranks, timeout_s=2.0))
    try:
        executor.broadcast(torch.zeros(100 if rank == 0 else 90), build_schedule("broadcast", "linear", ranks))
    except Exception as error:
        return str(error)
    finally:
        executor.transport.close()
    return "no error"


def lost_peer(rank, ranks, store, kind):
    """Leave rank 0 alone in a collective; return the message of its error."""
    transport = open_transport(kind, store, rank, ranks, timeout_s=0.5)
    try:
        if rank:
            return None
        Executor(transport).all_reduce(torch.zeros(10), build_schedule("all_reduce", "parameter_server", ranks))
    except Exception as error:
        return str(error)
    finally:
        transport.close()
    return "no error"


def die(rank, ranks, store, kind, path):
    """End the process of rank 1 while rank 0 waits for it; rank 0 writes what it is told, and after how long."""
    transport = open_transport(kind, store, rank, ranks, timeout_s=20.0)
    if rank == 1:
        os._exit(1)
    begun = time.monotonic()
    try:
        Executor(transport).all_reduce(torch.zeros(10), build_schedule("all_reduce", "ring", ranks))
    except TransportError as error:
        Path(path).write_text(f"{time.monotonic() - begun:.3f} {error}")


def order_of_posting(rank, ranks, store):
    """Exchange vectors of many pieces with the other rank; return the first and the last operation posted."""
    transport = open_transport("torch", store, rank, ranks)
    post, posted = dist.batch_isend_irecv, []

    def noting(operations):
        posted.extend(operation.op.__name__ for operation in operations)
        return post(operations)

    mine, theirs = torch.full((2**20,), float(rank)), torch.empty(2**20)
    dist.batch_isend_irecv = noting
    try:
        transport.exchange([Outgoing(1 - rank, mine)], [Incoming(1 - rank, theirs)])
    finally:
        dist.batch_isend_irecv = post
    assert bool((theirs == 1 - rank).all())
    return posted[0], posted[-1]


def wire_types(rank, ranks, store, kind):
    """All-reduce float32 with bfloat16 on the wire: close to the exact sum, and the same on every rank."""
    executor = Executor(open_transport(kind, store, rank, ranks))
    everyone = [t.abs() for t in inputs(ranks, 1001, torch.float32)]
    got = everyone[rank].clone()
    try:
        executor.all_reduce(got, build_schedule("all_reduce", "ring", ranks), wire=torch.bfloat16)
    finally:
        executor.transport.close()
    torch.testing.assert_close(got, sum(everyone), rtol=2**-8 * ranks, atol=0)
    return got.tolist()


def nothing_to_move(rank, ranks, store, kind):
    """Send the other rank a message without elements, and then one of one element; return what came."""
    transport, came = open_transport(kind, store, rank, ranks), torch.zeros(1)
    try:
        transport.exchange([Outgoing(1 - rank, torch.empty(0))], [Incoming(1 - rank, torch.empty(0))])
        transport.exchange([Outgoing(1 - rank, torch.tensor([7.0 + rank]))], [Incoming(1 - rank, came)])
        return came.item()
    finally:
        transport.close()


def on_one_gpu(rank, ranks, store):
    """Run every algorithm of the collectives between all ranks through the memory of one GPU, and compare."""
    device = torch.device("cuda", 0)
    check_everything(rank, ranks, DeviceTransport(CudaMemory(device), store, rank, ranks, timeout_s=60.0), device)


def check_everything(rank, ranks, transport, device, sizes=(1, 13, 1_000_003)):
    """Run every algorithm of the collectives over a transport, and compare with the plain reference."""
    executor = Executor(transport)
    try:
        for n in sizes:
            everyone = inputs(ranks, ranks * n, torch.int64)
            mine, total = everyone[rank].to(device), sum(everyone)
            for name in algorithm_names("all_reduce"):
                got = mine.clone()
                executor.all_reduce(got, build_schedule("all_reduce", name, ranks))
                assert torch.equal(got.cpu(), total), (name, n)
            for name in algorithm_names("reduce_scatter"):
                part = torch.empty(n, dtype=torch.int64, device=device)
                executor.reduce_scatter(part, mine, build_schedule("reduce_scatter", name, ranks))
                assert torch.equal(part.cpu(), total.split(n)[rank]), (name, n)
            for name in algorithm_names("all_gather"):
                whole = torch.empty(ranks * n, dtype=torch.int64, device=device)
                executor.all_gather(whole, mine[:n], build_schedule("all_gather", name, ranks))
                assert torch.equal(whole.cpu(), torch.cat([each[:n] for each in everyone])), (name, n)
            for name in algorithm_names("all_to_all"):
                whole = torch.empty(ranks * n, dtype=torch.int64, device=device)
                executor.all_to_all(whole, mine, build_schedule("all_to_all", name, ranks))
                assert torch.equal(whole.cpu(), torch.cat([each.split(n)[rank] for each in everyone])), (name, n)
            for name in algorithm_names("broadcast"):
                got = mine.clone()
                executor.broadcast(got, build_schedule("broadcast", name, ranks, root=ranks - 1))
                assert torch.equal(got.cpu(), everyone[-1]), (name, n)
    finally:
        executor.transport.close()
