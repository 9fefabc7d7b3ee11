"""Messages between ranks: order, tags, any source, sizes beyond the line, both directions at once."""

import time

import pytest
import torch
import torch.distributed as dist

import meshwright  # noqa: F401  (registers the backend)
from meshwright.backend.faults.failures import CollectiveMismatch, RankFailure
from meshwright.backend.local.waiting import CHECK_S
from tests.multiproc.test_backend_collectives import group, values

SIZES = [0, 1, 1000, 4096 * 3, 100_003]  # elements of 4 bytes; a line holds four slots of 4096 bytes


def ring_of_every_size(rank, world_size, store):
    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    with group(rank, world_size, store, slot_bytes=4096):
        for count in SIZES:
            got = torch.empty(count)
            work = dist.isend(values(rank, count, torch.float32), after)
            dist.recv(got, before)
            work.wait()
            assert torch.equal(got, values(before, count, torch.float32))
        big = torch.full((50_000,), float(rank))
        got = torch.empty(50_000)
        ops = [dist.P2POp(dist.isend, big, after), dist.P2POp(dist.irecv, got, before)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        assert torch.equal(got, torch.full((50_000,), float(before)))


def tags_out_of_order(rank, world_size, store):
    with group(rank, world_size, store, slot_bytes=4096):
        if rank == 0:
            works = [dist.isend(torch.full((3000,), float(tag)), 1, tag=tag) for tag in range(5)]
            works += [dist.isend(torch.full((10,), float(10 * i)), 1, tag=7) for i in range(3)]
            for work in works:
                work.wait()
        elif rank == 1:
            for tag in (4, 0, 2, 3, 1):
                got = torch.empty(3000)
                assert dist.recv(got, 0, tag=tag) == 0
                assert torch.equal(got, torch.full((3000,), float(tag)))
            for i in range(3):
                got = torch.empty(10)
                dist.recv(got, 0, tag=7)
                assert got[0] == 10 * i


def any_source(rank, world_size, store):
    with group(rank, world_size, store, slot_bytes=4096):
        if rank:
            dist.send(torch.full((20_000,), float(rank)), 0)
        else:
            seen = set()
            for _ in range(world_size - 1):
                got = torch.empty(20_000)
                source = dist.recv(got)
                assert torch.equal(got, torch.full((20_000,), float(source)))
                seen.add(source)
            assert seen == set(range(1, world_size))
        dist.barrier()


def any_source_when_one_has_left(rank, world_size, store, per_host):
    with group(rank, world_size, store, per_host=per_host):
        if rank == 0:
            got = torch.empty(3)
            assert [dist.recv(got), dist.recv(got)] == [1, 2]
            told = {3: "rank 1 .* has left the group", 2: "rank 2 .* died or left", 1: "rank 1 .* died or left"}
            with pytest.raises(RankFailure, match=told[per_host]):  # all others have: the first one away
                dist.recv(got)
        elif rank == 1:
            dist.send(torch.ones(3), 0)  # and leave
        else:
            time.sleep(10 * CHECK_S)
            dist.send(torch.ones(3), 0)


def strided_and_objects(rank, world_size, store):
    with group(rank, world_size, store, slot_bytes=4096):
        base = torch.arange(600.0).view(20, 30)
        if rank == 0:
            dist.send(base.t(), 1)
            dist.send_object_list([{"a": 1}, "b" * 9000], 1)
        elif rank == 1:
            wide = torch.zeros(30, 40)
            dist.recv(wide[:, ::2], 0)
            assert torch.equal(wide[:, ::2], base.t())
            assert not wide[:, 1::2].any()
            objects = [None, None]
            dist.recv_object_list(objects, 0)
            assert objects == [{"a": 1}, "b" * 9000]


def wrong_size(rank, world_size, store):
    with group(rank, world_size, store, slot_bytes=4096):
        if rank == 0:
            dist.send(torch.zeros(10), 1)
        elif rank == 1:
            try:
                dist.recv(torch.zeros(11), 0)
            except RuntimeError as error:
                return str(error)
    return ""


def of_other_types(rank, world_size, store, per_host, comes_early):
    """Send twice in another type than is received, then in the same."""
    told = []
    with group(rank, world_size, store, per_host=per_host):
        if rank == 0:
            for dtype in (torch.int32, torch.float16, torch.float32):
                dist.send(torch.ones(4 if dtype != torch.float16 else 8, dtype=dtype), 1)
            dist.send(torch.ones(1), 1, tag=1)
        else:
            if comes_early:
                dist.recv(torch.ones(1), 0, tag=1)
            got = torch.zeros(4)
            for _ in range(2):
                with pytest.raises(CollectiveMismatch) as found:
                    dist.recv(got, 0)
                told.append(str(found.value))
            dist.recv(got, 0)
            assert got.tolist() == [1, 1, 1, 1]
        dist.barrier()
    return told


@pytest.mark.parametrize("comes_early", [False, True])
@pytest.mark.parametrize("per_host", [None, 1])
def test_a_message_of_another_element_type_is_told_and_the_next_is_received(rank_pool, per_host, comes_early):
    _, told = rank_pool(2).run(of_other_types, per_host, comes_early)

    for message, name in zip(told, ("int32", "float16"), strict=True):
        assert f"sent 16 bytes ({name}) with tag 0" in message
        assert "receives 16 (float32)" in message


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_a_ring_of_messages_of_every_size_does_not_block(rank_pool, world_size):
    rank_pool(world_size).run(ring_of_every_size)


def test_tags_choose_the_message_and_keep_its_order(rank_pool):
    rank_pool(2).run(tags_out_of_order)


def test_any_source_tells_who_sent(rank_pool):
    rank_pool(4).run(any_source)


@pytest.mark.parametrize("per_host", [3, 2, 1])
def test_a_message_from_any_rank_may_come_when_another_has_left(rank_pool, per_host):
    rank_pool(3).run(any_source_when_one_has_left, per_host)


def test_strided_tensors_and_objects_are_sent(rank_pool):
    rank_pool(2).run(strided_and_objects)


def test_a_message_of_another_size_names_both_sides(rank_pool):
    message = rank_pool(2).run(wrong_size)[1]

    assert "rank 0" in message
    assert "sent 40 bytes" in message
    assert "rank 1" in message
    assert "receives 44" in message
