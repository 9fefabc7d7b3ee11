"""Choices of a group that a user may make: which backend for which device, and options of its own."""

import os
import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, ProcessGroup

import meshwright  # noqa: F401  (registers the backend)
from meshwright.backend.faults.failures import RankFailure
from meshwright.backend.group.device_types import MixedGroup
from meshwright.backend.group.options import GroupOptions
from meshwright.backend.hosts import network as hosts_network
from meshwright.backend.hosts.choice import MessageCost
from meshwright.backend.hosts.links import LinkCache
from meshwright.backend.hosts.placement import GroupMember
from meshwright.errors import InputError, MeshwrightError
from tests.multiproc.test_backend_collectives import group


def all_reduce_named(rank, world_size, store, name):
    dist.init_process_group(name, rank=rank, world_size=world_size, store=store)
    tensor = torch.full((5,), rank + 1.0)
    dist.all_reduce(tensor)
    dist.all_reduce(tensor, group=dist.new_group())
    dist.destroy_process_group()
    return tensor.tolist()


@pytest.mark.parametrize("name", ["cpu:meshwright,cuda:nccl", "cpu:meshwright,cuda:gloo", "cpu:meshwright"])
def test_the_backend_serves_the_cpu_part_of_a_pair(rank_pool, name):
    assert rank_pool(2).run(all_reduce_named, name) == [[6.0] * 5] * 2


def gloo_group(store, rank, size):
    made = ProcessGroup(PrefixStore("other", store), rank, size)
    backend = dist.ProcessGroupGloo(PrefixStore("gloo", store), rank, size)
    made._set_default_backend(ProcessGroup.BackendType.GLOO)
    made._register_backend(torch.device("cpu"), ProcessGroup.BackendType.GLOO, backend)
    return made


def handed_over(rank, world_size, store):
    """Let Gloo stand for the group of the other device: no call may reach our own engine."""
    with group(rank, world_size, store):
        world = dist.group.WORLD
        mixed = MixedGroup(store, rank, world_size, 30.0, world._engine)
        mixed.hand_over("cpu", lambda: gloo_group(store, rank, world_size))
        before = world._engine.flight.sequence
        mine = torch.full((4,), rank + 1.0)
        mixed.allreduce([mine]).wait()
        parts = [torch.zeros(4) for _ in range(world_size)]
        mixed.allgather([parts], [mine + rank]).wait()
        single = torch.zeros(8)
        name = "all_gather_single" if hasattr(ProcessGroup, "all_gather_single") else "_allgather_base"  # torch 2.11
        getattr(mixed, name)(single, mine + rank).wait()
        received = torch.zeros(2)
        if rank == 0:
            mixed.send([torch.ones(2)], 1, 7).wait()
        else:
            mixed.recv([received], 0, 7).wait()
        assert world._engine.flight.sequence == before
        mixed.barrier()
        assert world._engine.flight.sequence == before + 1
        dist.barrier()
        return mine.tolist(), single.tolist(), [p.tolist() for p in parts], received.tolist()


def test_tensors_of_another_device_go_to_the_other_group(rank_pool):
    first, second = rank_pool(2).run(handed_over)

    assert first[0] == second[0] == [3.0] * 4
    assert first[1] == second[1] == [3.0] * 4 + [4.0] * 4
    assert first[2] == second[2] == [[3.0] * 4, [4.0] * 4]
    assert (first[3], second[3]) == ([0.0, 0.0], [1.0, 1.0])


def after_shutdown(rank, world_size, store, per_host):
    """Call a group that was shut down, in each of the ways of a call."""
    found = []
    with group(rank, world_size, store, per_host=per_host):
        made = dist.new_group(timeout=timedelta(seconds=20))
        tensor = torch.ones(2)
        dist.all_reduce(tensor, group=made)
        dist.barrier(group=made, async_op=True).wait()
        dist.barrier()
        made.shutdown()
        dist.barrier()
        for call in (
            lambda: dist.all_reduce(tensor, group=made),
            lambda: dist.all_reduce(tensor, group=made, async_op=True).wait(timedelta(seconds=10)),
            lambda: dist.barrier(group=made, async_op=True).wait(timedelta(seconds=10)),
        ):
            try:
                call()
                found.append(tensor.tolist())
            except MeshwrightError as error:
                found.append(str(error).partition(": ")[2])
        dist.barrier()
    return found


def test_calls_on_a_group_that_was_shut_down_end_as_those_of_gloo_inside_a_host(rank_pool):
    assert rank_pool(2).run(after_shutdown, None) == [[[4.0, 4.0], [8.0, 8.0], [8.0, 8.0]]] * 2


def test_calls_on_a_group_between_hosts_that_was_shut_down_say_so(rank_pool):
    assert rank_pool(2).run(after_shutdown, 1) == [["this group is broken: it was shut down"] * 3] * 2


def child_that_leaves(rank, world_size, store, per_host):
    """Let a forked child of each rank abort and destroy its groups; the ranks call theirs afterwards."""
    with group(rank, world_size, store, per_host=per_host):
        made = dist.new_group()
        tensor = torch.ones(2)
        dist.all_reduce(tensor, group=made)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                made.abort()
                dist.destroy_process_group()
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        dist.all_reduce(tensor, group=made)
        dist.all_reduce(tensor)
    return status, tensor.tolist()


@pytest.mark.parametrize("per_host", [None, 1])
def test_a_forked_child_that_destroys_its_groups_leaves_its_parents_alone(rank_pool, per_host):
    assert rank_pool(2).run(child_that_leaves, per_host) == [(0, [8.0, 8.0])] * 2


def child_that_calls(rank, world_size, store, per_host):
    """Let a forked child of rank 0 make calls of every kind; then sum on all ranks."""
    with group(rank, world_size, store, per_host=per_host):
        dist.all_reduce(torch.ones(3))
        heard, ours = os.pipe()
        child = os.fork() if rank == 0 else None
        if child == 0:
            try:
                os.write(ours, "\n".join(refusals_of_a_child()).encode())
            finally:
                os._exit(0)
        if child is not None:
            os.waitpid(child, 0)
        os.close(ours)
        said = os.read(heard, 10_000).decode().splitlines()
        os.close(heard)
        tensor = torch.full((3,), rank + 1.0)
        dist.all_reduce(tensor)
        dist.barrier()
        return said, tensor.tolist()


def refusals_of_a_child():
    """Make calls in a process that is no rank; return the errors."""
    refusals = []
    for call in (
        lambda: dist.all_reduce(torch.full((3,), 100.0)),
        lambda: dist.all_reduce(torch.full((3,), 100.0), async_op=True).wait(),
        lambda: dist.all_gather_object([None, None], "child"),
        lambda: dist.send(torch.ones(1), 1),
        dist.monitored_barrier,
    ):
        try:
            call()
            refusals.append("done")
        except MeshwrightError as error:
            refusals.append(str(error))
    return refusals


@pytest.mark.parametrize("per_host", [None, 1])
def test_a_forked_child_that_calls_its_parents_group_is_refused_and_no_sum_has_its_numbers(rank_pool, per_host):
    first, second = rank_pool(2).run(child_that_calls, per_host)

    assert len(first[0]) == 5
    assert all("was forked from rank 0" in refusal for refusal in first[0])
    assert first[1] == second[1] == [3.0] * 3


def aborted_by_another_thread(rank, world_size, store, per_host):
    """Abort groups on rank 0 while a thread of its own waits in a call of each; return what the calls raised."""
    refusals = []
    with group(rank, world_size, store, per_host=per_host):
        tensor = torch.ones(2)
        for call in (
            lambda made: dist.all_reduce(tensor, group=made),
            lambda made: dist.all_reduce(tensor, group=made, async_op=True).wait(),
            lambda made: dist.recv(tensor, 1, group=made),
        ):
            made = dist.new_group()
            dist.barrier(group=made)
            if rank == 0:
                watchdog = threading.Timer(0.2, made.abort)
                watchdog.start()
                try:
                    call(made)
                except RankFailure as error:
                    refusals.append(str(error).partition(" (")[0] + str(error).partition(")")[2])
                watchdog.join()
            dist.barrier()
    return refusals


@pytest.mark.parametrize("per_host", [None, 1])
def test_a_group_that_another_thread_aborts_lets_the_waiting_thread_go(rank_pool, per_host):
    found, _ = rank_pool(2).run(aborted_by_another_thread, per_host)

    assert len(found) == 3
    assert all(refusal.startswith("rank 0 aborted the group, in ") for refusal in found), found


def with_options(rank, world_size, store, options):
    with group(rank, world_size, store, per_host=1):
        made = dist.new_group(pg_options=options)
        tensor = torch.linspace(0, 1, 50_000) + rank
        dist.all_reduce(tensor, group=made)
        schedules = {name for collective, name, *_ in made._engine.network._schedules if collective == "all_reduce"}
        return tensor, schedules


@pytest.mark.parametrize("name", ["ring", "tree", "halving_doubling"])
def test_an_algorithm_can_be_forced_for_one_group(rank_pool, name):
    for tensor, schedules in rank_pool(3).run(with_options, GroupOptions(algorithm=name)):
        assert torch.allclose(tensor, torch.linspace(0, 1, 50_000) * 3 + 3, rtol=1e-6)
        assert name in schedules


def test_the_wire_type_can_be_set_for_one_group(rank_pool):
    tensor, _ = rank_pool(3).run(with_options, GroupOptions(wire="bf16"))[0]

    want = torch.linspace(0, 1, 50_000) * 3 + 3
    assert torch.allclose(tensor, want, rtol=2**-6)
    assert not torch.allclose(tensor, want, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (GroupOptions(algorithm="rin"), "did you mean ring"),
        (GroupOptions(wire="fp4"), "expected fp32, bf16, fp16"),
        ("ring", "expected meshwright's GroupOptions, got str"),
    ],
)
def test_wrong_options_are_an_error_when_the_group_is_made(rank_pool, options, text):
    with pytest.raises((AssertionError, InputError, MeshwrightError), match=text):
        rank_pool(2).run(with_options, options)


def measurements(rank, world_size, store, folder):
    """Make three groups over the same pretended hosts; return their links and how often links were measured."""
    os.environ["XDG_CACHE_HOME"] = folder
    measured, real = [], hosts_network.measure
    hosts_network.measure = lambda *arguments: measured.append(1) or real(*arguments)
    try:
        with group(rank, world_size, store, per_host=1):
            groups = [dist.group.WORLD, dist.new_group(), dist.new_group()]
            return [made._engine.network.links for made in groups], len(measured)
    finally:
        hosts_network.measure = real
        del os.environ["XDG_CACHE_HOME"]


def test_links_are_measured_once_and_remembered(rank_pool, tmp_path):
    found = rank_pool(2).run(measurements, str(tmp_path))

    (links, times), other = found[0], found[1]
    assert times == 1
    assert links[0] == links[1] == links[2]
    assert other == found[0]
    assert len(list(tmp_path.glob("meshwright/links/*.json"))) == 1


def links_of_a_job(rank, world_size, store, folder, known):
    """Return what a group of a job goes by; `known` is first written to the links that the job keeps."""
    os.environ["MESHWRIGHT_LINKS"] = folder
    try:
        with group(rank, world_size, store, per_host=1):
            network = dist.group.WORLD._engine.network
            if known and rank == 0:
                network._cache.put(known)
            return network.links
    finally:
        del os.environ["MESHWRIGHT_LINKS"]


def test_damaged_or_old_links_are_measured_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = LinkCache((), 1, "127.0.0.1")
    folder = tmp_path / "meshwright" / "links"
    folder.mkdir(parents=True, mode=0o700)
    (tmp_path / "meshwright").chmod(0o700)
    path = folder / cache._path().name

    for text in ("{", '{"alpha_s": 1e-4, "beta_s_per_byte": 1e-9, "unix_s": 0}'):
        path.write_text(text)
        assert cache.get() is None


def test_a_job_keeps_its_own_links_for_good_and_on_other_hosts(tmp_path, monkeypatch):
    monkeypatch.setenv("MESHWRIGHT_LINKS", str(tmp_path / "links"))
    LinkCache(placed("a", "a", "b", "b"), 2, "127.0.0.1").put(MessageCost(1e-4, 1e-9))
    (path,) = (tmp_path / "links").iterdir()
    path.write_text('{"alpha_s": 1e-4, "beta_s_per_byte": 1e-9, "unix_s": 0}')  # years ago

    assert LinkCache(placed("c", "c", "d", "d"), 2, "10.0.0.1").get() == MessageCost(1e-4, 1e-9)
    assert LinkCache(placed("a", "b", "b", "b"), 2, "127.0.0.1").get() is None
    assert LinkCache(placed("a", "a", "b", "b"), 1, "127.0.0.1").get() is None


def placed(*hosts):
    """Return ranks on hosts of these names."""
    return [GroupMember(rank, rank, host, identity=host, pid=1, cores=(0,)) for rank, host in enumerate(hosts)]


def test_a_job_that_starts_anew_chooses_by_the_links_that_it_has_kept(rank_pool, tmp_path):
    kept = MessageCost(2.5e-3, 1.5e-9)

    rank_pool(2).run(links_of_a_job, str(tmp_path), kept)

    assert rank_pool(2).run(links_of_a_job, str(tmp_path), None) == [kept] * 2


def keys_of_monitored_barriers(rank, world_size, store):
    """Return which of ten monitored barriers have left anything in the store."""
    with group(rank, world_size, store):
        for _ in range(10):
            dist.group.WORLD.monitored_barrier(timedelta(seconds=20))
        dist.barrier()  # rank 0 has tidied up
        store, parts = dist.group.WORLD.get_group_store(), [*range(world_size), "verdict"]
        keys = {number: [f"monitored-barrier/{number}/{part}" for part in parts] for number in range(1, 11)}
        return [number for number in keys if any(store.check([key]) for key in keys[number])]


def test_any_number_of_monitored_barriers_takes_the_same_memory_of_the_store(rank_pool):
    assert rank_pool(3).run(keys_of_monitored_barriers) == [[10]] * 3
