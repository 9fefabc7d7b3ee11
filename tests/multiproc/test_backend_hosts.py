"""The backend over several hosts, pretended on this one: shared memory inside, TCP between."""

import os
import signal
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import meshwright  # noqa: F401  (registers the backend)
from meshwright.backend.faults.failures import ArgumentError, RankFailure
from meshwright.errors import MeshwrightError
from tests.multiproc import test_backend_collectives as collectives
from tests.multiproc import test_backend_faults as faults
from tests.multiproc.test_backend_collectives import group, group_of_all

SLOW = pytest.mark.slow
SHAPES = [(2, 1), (4, 2), *(pytest.param(*shape, marks=SLOW) for shape in ((3, 2), (6, 2), (5, 3)))]  # ranks, a host


@pytest.mark.parametrize(("ranks", "per_host"), SHAPES)
def test_reductions_equal_a_plain_one_for_every_type_and_operator(rank_pool, ranks, per_host):
    assert rank_pool(ranks).run(collectives.reductions_of_every_type, "1", per_host) == [[]] * ranks


@pytest.mark.parametrize(("ranks", "per_host"), SHAPES)
def test_moves_put_every_byte_in_its_place(rank_pool, ranks, per_host):
    assert rank_pool(ranks).run(collectives.moves_of_every_size, "1", per_host) == [[]] * ranks


def on_scattered_leaves(rank, world_size, store, per_host):
    """Every reduction, where the hosts hang on two leaves in turn: the order of the hosts is not that of the ranks."""
    os.environ["MESHWRIGHT_SWITCHES"] = f"spine.leaf{rank // per_host % 2}"
    try:
        return collectives.reductions_of_every_type(rank, world_size, store, "1", per_host)
    finally:
        del os.environ["MESHWRIGHT_SWITCHES"]


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "per_host"), [(6, 2), (5, 1)])
def test_reductions_are_right_where_neighbours_in_rank_are_not_near(rank_pool, ranks, per_host):
    assert rank_pool(ranks).run(on_scattered_leaves, per_host) == [[]] * ranks


def messages(rank, world_size, store, per_host):
    with group(rank, world_size, store, slot_bytes=4096, per_host=per_host):
        works, got = [], []
        for count in (0, 1, 1000, 300_000):
            for peer in range(world_size):
                if peer != rank:
                    works.append(dist.isend(torch.full((count,), float(rank)), peer, tag=count))
                    got.append((peer, count, torch.empty(count)))
        for peer, count, tensor in reversed(got):
            dist.recv(tensor, peer, tag=count)
            assert torch.equal(tensor, torch.full((count,), float(peer)))
        for work in works:
            work.wait()
        if rank == 0:
            seen = [dist.recv(torch.empty(3)) for _ in range(world_size - 1)]
            assert sorted(seen) == list(range(1, world_size))
        else:
            dist.send(torch.ones(3), 0)
        dist.barrier()


@pytest.mark.parametrize(("ranks", "per_host"), [(2, 1), (4, 2), (3, 2)])
def test_messages_cross_hosts_in_any_order(rank_pool, ranks, per_host):
    rank_pool(ranks).run(messages, per_host)


def large(rank, world_size, store, per_host):
    """Sum more than one segment, with odd sizes, and go on with a small one."""
    with group(rank, world_size, store, per_host=per_host):
        for count in (3_000_001, 5_000_003, 7):
            tensor = (torch.arange(count) % 97 + rank).float()
            dist.all_reduce(tensor)
            want = (torch.arange(count) % 97).float() * world_size + sum(range(world_size))
            assert torch.equal(tensor, want)


@pytest.mark.parametrize(("ranks", "per_host"), [(4, 2), (3, 2)])
def test_large_sums_overlap_network_and_memory_and_come_out_right(rank_pool, ranks, per_host):
    rank_pool(ranks).run(large, per_host)


def chosen(rank, world_size, store, name, wire):
    os.environ.update({"MESHWRIGHT_ALGORITHM": name, "MESHWRIGHT_WIRE": wire})
    try:
        with group(rank, world_size, store, per_host=1):
            tensor = torch.linspace(0, 1, 50_000) + rank
            dist.all_reduce(tensor)
            return tensor
    finally:
        del os.environ["MESHWRIGHT_ALGORITHM"], os.environ["MESHWRIGHT_WIRE"]


@pytest.mark.parametrize("name", ["ring", "halving_doubling", "tree", "one_shot", ""])
def test_any_algorithm_can_be_forced(rank_pool, name):
    want = torch.linspace(0, 1, 50_000) * 3 + 3

    for tensor in rank_pool(3).run(chosen, name, "fp32"):
        assert torch.allclose(tensor, want, rtol=1e-6)


def test_bfloat16_on_the_wire_rounds_and_leaves_all_ranks_equal(rank_pool):
    results = rank_pool(3).run(chosen, "ring", "bf16")
    want = torch.linspace(0, 1, 50_000) * 3 + 3

    assert torch.allclose(results[0], want, rtol=2**-6)
    assert not torch.allclose(results[0], want, rtol=1e-6)
    assert all(torch.equal(result, results[0]) for result in results)


def reduced(rank, world_size, store, count, wire, per_host):
    """Return what the reduction that is chosen makes of numbers whose sum depends on its order."""
    os.environ["MESHWRIGHT_WIRE"] = wire
    try:
        with group(rank, world_size, store, per_host=per_host):
            tensor = torch.randn(count, generator=torch.Generator().manual_seed(rank))
            dist.all_reduce(tensor)
            return tensor
    finally:
        del os.environ["MESHWRIGHT_WIRE"]


@pytest.mark.parametrize("wire", ["fp32", "bf16"])
@pytest.mark.parametrize("count", [100, 50_000, 1_000_000])
@pytest.mark.parametrize(("ranks", "per_host"), [(2, 1), (3, 1), (4, 1), (4, 2), (4, None)])
def test_all_ranks_end_with_the_same_bits(rank_pool, ranks, per_host, count, wire):
    first, *others = rank_pool(ranks).run(reduced, count, wire, per_host)

    assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize(
    ("name", "wire", "text"), [("rin", "fp32", "did you mean ring"), ("ring", "f", "MESHWRIGHT_WIRE=f")]
)
def test_a_wrong_setting_is_an_error_at_start(rank_pool, name, wire, text):
    with pytest.raises((AssertionError, MeshwrightError), match=text):
        rank_pool(2).run(chosen, name, wire)


@pytest.mark.alone
@pytest.mark.parametrize("victim", [1, 3])
@pytest.mark.parametrize("elements", [10, 300_000])
def test_ranks_of_every_host_name_the_dead_rank(tmp_path, victim, elements):
    answers = faults.launch(faults.die_before, 4, tmp_path, victim, elements, per_host=2)

    assert answers[victim] is None
    for rank, answer in enumerate(answers):
        if rank != victim:
            kind, message, took_s = answer
            assert kind == "RankFailure"
            assert message.startswith(f"rank {victim} (host host{victim // 2}")
            assert message.count("(host ") == 1
            assert "in all_reduce #" in message
            assert took_s < faults.NOTICED_S


@pytest.mark.parametrize(("ranks", "per_host"), [(4, 2), (5, 4)])
def test_ranks_that_leave_because_of_a_dead_one_are_not_blamed_where_the_store_has_died_with_it(
    tmp_path, ranks, per_host
):
    answers = faults.launch(faults.die_with_the_store, ranks, tmp_path, 0, per_host=per_host)

    assert [message.partition(" (")[0] for _, message, _ in answers[1:]] == ["rank 0"] * (ranks - 1)


def shut_down_beside_a_collective(rank, world_size):
    if rank == 1:
        return signal.pause()
    group, raised = dist.distributed_c10d._get_default_group(), []

    def wait():
        try:
            dist.all_reduce(torch.ones(4))
        except RankFailure as error:
            raised.append(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    while group.current_call() != "all_reduce #2":
        time.sleep(0.01)
    time.sleep(0.2)  # it waits for what rank 1 sends
    group.shutdown()
    waiting.join()
    try:
        dist.send(torch.ones(4), 1)
    except RankFailure as error:
        raised.append(str(error))
    return raised


def test_a_rank_that_shuts_its_group_down_blames_itself_for_the_calls_that_this_ends(tmp_path):
    (kind, told, _), _ = faults.launch(shut_down_beside_a_collective, 2, tmp_path, silent={1}, per_host=1)

    assert kind == "fine"
    assert [text.partition(" (")[0] for text in told] == ["rank 0", "rank 0"]
    assert all("has left the group" in text for text in told)


def freeze_with_the_store(rank, world_size):
    """Stop rank 0, which holds the store of a second group, in the middle of that group's sums."""
    names = [None] * world_size
    port = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if rank == 0 else None
    dist.all_gather_object(names, port.port if port else 0)
    dist.destroy_process_group()
    store = port or dist.TCPStore("127.0.0.1", names[0], is_master=False)
    dist.init_process_group("meshwright", store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=2))
    dist.all_reduce(torch.ones(10))
    if rank == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    for _ in range(3):
        dist.all_reduce(torch.ones(300_000))


def test_a_frozen_rank_that_holds_the_store_is_named_on_every_host(tmp_path):
    answers = faults.launch(freeze_with_the_store, 4, tmp_path, silent={0}, per_host=2)

    assert [(kind, message.partition(" (")[0]) for kind, message, _ in answers[1:]] == [("RankFailure", "rank 0")] * 3


def behind_a_slow_cable(rank, world_size, store):
    """Rank 1's part of a sum does not leave its host. Return whom each rank blames; rank 2's patience ends first."""
    with group(rank, world_size, store, per_host=2):
        dist.all_reduce(torch.ones(300_000))
        engine = group_of_all()._engine
        engine.set_timeout(2.0 if rank == 2 else 20.0)
        if rank == 1:
            exchange = engine.network.transport.exchange
            engine.network.transport.exchange = lambda *parts: (time.sleep(5), exchange(*parts))
        try:
            dist.all_reduce(torch.ones(300_000))
        except RankFailure as error:
            return error.culprit.rank
        return None


def test_a_rank_that_waits_for_another_host_is_not_blamed_by_its_neighbour(rank_pool):
    assert rank_pool(4).run(behind_a_slow_cable)[2:] == [1, 1]


def float8_refused(rank, world_size, store):
    with group(rank, world_size, store, per_host=1):
        with pytest.raises(ArgumentError, match="not between hosts"):
            dist.all_reduce(torch.ones(3).to(torch.float8_e5m2))
        after = torch.ones(2)
        dist.all_reduce(after)
        return after.tolist()


def test_a_sum_that_is_not_made_between_hosts_is_refused_and_the_group_goes_on(rank_pool):
    assert rank_pool(2).run(float8_refused) == [[2.0, 2.0]] * 2
