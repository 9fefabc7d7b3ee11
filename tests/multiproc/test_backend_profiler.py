"""torch.profiler sees the collectives of the backend "meshwright", and `report` explains the trace."""

import json

import pytest
import torch
import torch.distributed as dist
from torch.profiler import profile

from meshwright.traces.intervals import length_s
from meshwright.traces.reading import read_traces
from tests.multiproc.test_backend_collectives import group

CALLS = ["all_reduce", "all_gather_single", "barrier", "broadcast", "send", "recv"]


def profiled(rank, world_size, store, folder, asynchronously):
    """Call one collective after the other under the profiler, which leaves a trace in `folder`."""
    with group(rank, world_size, store):
        dist.all_reduce(torch.ones(3))  # before the profiler: in no trace
        with profile(acc_events=True) as profiler:
            works = [
                dist.all_reduce(torch.ones(1000), async_op=asynchronously),
                dist.all_gather_into_tensor(torch.ones(4), torch.ones(2), async_op=asynchronously),
                dist.barrier(async_op=asynchronously),
                dist.broadcast(torch.ones(5), 0, async_op=asynchronously),
                *(dist.batch_isend_irecv([dist.P2POp((dist.isend, dist.irecv)[rank], torch.ones(9), 1 - rank)])),
            ]
            for work in works:
                if work is not None:
                    work.wait()
        profiler.export_chrome_trace(str(folder / f"rank{rank}.json"))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("asynchronously", [False, True], ids=["blocking", "asynchronous"])
def test_a_trace_holds_every_collective_once(rank_pool, tmp_path, asynchronously):
    rank_pool(2).run(profiled, tmp_path, asynchronously)

    paths = [tmp_path / f"rank{rank}.json" for rank in (0, 1)]
    for rank, path in enumerate(paths):
        events = [e for e in json.loads(path.read_text())["traceEvents"] if e["name"].startswith("meshwright:")]
        assert sorted(e["name"].partition(":")[2] for e in events) == sorted([*CALLS[:4], CALLS[4 + rank]])
        assert all(e["dur"] > 0 for e in events)
    calls = [(trace.rank, call.name) for cycles in read_traces(paths) for trace in cycles for call in trace.calls]
    assert set(calls) == {
        *((rank, name) for rank in (0, 1) for name in ("all_reduce", "all_gather", "barrier", "broadcast")),
        (0, "send"),
        (1, "recv"),
    }


def operators_in_a_trace(rank, world_size, store, backend):
    """Return the operators of c10d that the profiler names in a row of collectives."""
    dist.init_process_group(backend, rank=rank, world_size=world_size, store=store)
    one, four = torch.ones(2), torch.ones(4)
    with profile(acc_events=True) as profiler:
        dist.all_reduce(one)
        dist.all_reduce(torch.ones(1).to_sparse())
        dist.reduce(one, 0)
        dist.broadcast(one, 0, async_op=True).wait()
        dist.all_gather([torch.ones(2), torch.ones(2)], one)
        dist.all_gather_into_tensor(four, one)
        dist.reduce_scatter_tensor(one, four)
        dist.reduce_scatter(one, [one.clone(), one.clone()])
        dist.all_to_all_single(one, one.clone())
        dist.all_to_all([torch.ones(1), torch.ones(1)], [torch.ones(1), torch.ones(1)])
        dist.barrier()
        dist.gather(one, [torch.ones(2), torch.ones(2)] if rank == 0 else None)
        dist.scatter(one, [torch.ones(2), torch.ones(2)] if rank == 0 else None)
    dist.destroy_process_group()
    return sorted(event.name for event in profiler.events() if event.name.startswith("c10d::"))


@pytest.mark.timeout(200)
def test_operators_have_the_names_that_they_have_over_gloo(rank_pool):
    ours, gloo = (rank_pool(2).run(operators_in_a_trace, backend) for backend in ("meshwright", "gloo"))

    assert ours == gloo
    assert len(ours[0]) == 13


def named_by_the_caller(rank, world_size, store, backend):
    """Return the marks of collectives that the caller gives a name, and of the one after them."""
    dist.init_process_group(backend, rank=rank, world_size=world_size, store=store)
    one = torch.ones(2)
    with profile(acc_events=True) as profiler:
        with dist.record_comm("layer 1"):
            dist.all_reduce(one)
            dist.all_reduce(one, async_op=True).wait()
            dist.send(one, 1) if rank == 0 else dist.recv(one, 0)
        dist.all_reduce(one)
    dist.destroy_process_group()
    names = [event.name.replace(backend, "library") for event in profiler.events()]
    return sorted(name for name in names if name.startswith(("layer", "library:")))


@pytest.mark.timeout(200)
def test_collectives_bear_the_name_that_the_caller_gives_them(rank_pool):
    ours, gloo = (rank_pool(2).run(named_by_the_caller, backend) for backend in ("meshwright", "gloo"))

    assert [names.count("layer 1") for names in (*ours, *gloo)] == [3] * 4
    assert [names.count("library:all_reduce") for names in (*ours, *gloo)] == [3] * 4


def backward_with_a_slow_peer(rank, world_size, store, folder):
    """Reduce gradients of a tiny model where rank 1 comes late: rank 0 waits inside its backward."""
    with group(rank, world_size, store):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
        model(torch.ones(2, 4)).sum().backward()
        with profile(acc_events=True) as profiler:
            loss = model(torch.ones(2, 4)).sum()
            if rank == 1:
                a = torch.randn(700, 700)
                for _ in range(30):
                    a = (a @ a).tanh()
            loss.backward()
        profiler.export_chrome_trace(str(folder / f"rank{rank}.json"))


@pytest.mark.timeout(400)
def test_waiting_inside_backward_counts_as_communication_and_not_as_computation(rank_pool, tmp_path):
    rank_pool(2).run(backward_with_a_slow_peer, tmp_path)

    ((trace,),) = read_traces([tmp_path / "rank0.json"])
    assert length_s(trace.comm) > length_s(trace.compute)
