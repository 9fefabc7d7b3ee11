"""The executor between threads of one process: every algorithm, schedules drawn at random, and clear errors."""

import random
import threading

import pytest
import torch

from meshwright.backend.wire.executor import Executor
from meshwright.backend.wire.executor_reduce import wire_reduction
from meshwright.backend.wire.transport import ThreadsHub, TransportError
from meshwright.collectives.catalogue import algorithm_names, build_schedule, hierarchical_of
from meshwright.collectives.proof.bitwise import leaves_equal_bits
from meshwright.collectives.proof.verify import ScheduleError, verify
from meshwright.collectives.schedules.schedule import Schedule
from meshwright.errors import InputError
from tests.unit.collectives import mutants


def on_threads(ranks, function, timeout_s=20.0):
    """Run `function(executor)` on every rank; return the results, or raise the first error."""
    hub = ThreadsHub(ranks, timeout_s)
    results, errors = [None] * ranks, []

    def run(rank):
        try:
            results[rank] = function(Executor(hub.transport(rank)))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


@pytest.mark.parametrize("name", algorithm_names("all_reduce"))
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_every_all_reduce_gives_the_exact_sum(name, ranks):
    schedule = build_schedule("all_reduce", name, ranks)
    for elements in (0, 1, 7, 1000):
        inputs = [torch.arange(elements) % 97 + rank for rank in range(ranks)]

        def sum_up(executor, inputs=inputs):
            data = inputs[executor.rank].clone()
            executor.all_reduce(data, schedule)
            return data

        assert all(torch.equal(result, sum(inputs)) for result in on_threads(ranks, sum_up))


@pytest.mark.parametrize("wire", [None, torch.bfloat16], ids=str)
@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 7])
@pytest.mark.parametrize("name", algorithm_names("all_reduce"))
def test_ranks_end_with_the_same_bits_where_the_replay_says_so_and_only_there(name, ranks, wire):
    schedule = build_schedule("all_reduce", name, ranks)

    def sum_up(executor):
        generator = torch.Generator().manual_seed(executor.rank)
        scales = 2.0 ** torch.randint(-20, 20, (1000,), generator=generator)  # every order of a sum rounds differently
        data = torch.randn(1000, generator=generator) * scales
        executor.all_reduce(data, schedule, wire=wire)
        return data

    first, *others = on_threads(ranks, sum_up)

    keeps_rounded = wire is not None and not leaves_equal_bits(schedule, rounded=True)
    alike = leaves_equal_bits(schedule, rounded=wire is not None, keeps_rounded=keeps_rounded)
    assert all(torch.equal(first, other) for other in others) == alike


def test_any_pair_of_hierarchical_algorithms_runs():
    rng = random.Random(3)
    for _ in range(25):
        inner, outer = (rng.choice(algorithm_names("all_reduce")[:-1]) for _ in range(2))
        schedule = hierarchical_of("all_reduce", 6, rng.choice([2, 3]), inner=inner, outer=outer)

        def sum_up(executor, schedule=schedule):
            data = torch.arange(50) + executor.rank
            executor.all_reduce(data, schedule, "max")
            return data

        assert all(torch.equal(result, torch.arange(50) + 5) for result in on_threads(6, sum_up)), schedule.name


def test_damaged_schedules_that_are_still_proved_still_give_the_result():
    rng, run = random.Random(4), 0
    while run < 60:
        schedule = mutants.mutated(rng, mutants.random_schedule(rng))
        if schedule is None or schedule.collective != "all_reduce":
            continue
        try:
            verify(schedule)
        except ScheduleError:
            continue
        run += 1

        def sum_up(executor, schedule=schedule):
            data = torch.arange(23) * (executor.rank + 1)
            executor.all_reduce(data, schedule)
            return data

        expected = torch.arange(23) * sum(range(1, schedule.ranks + 1))
        assert all(torch.equal(r, expected) for r in on_threads(schedule.ranks, sum_up)), schedule


def test_a_wrong_schedule_is_not_run():
    wrong = Schedule.parse("all_reduce x ranks=2 chunks=1\n0: c0:0>+1\n")

    with pytest.raises(ScheduleError, match="without the contribution of rank 1"):
        on_threads(2, lambda executor: executor.all_reduce(torch.zeros(3), wrong))


def test_a_signal_lets_its_target_go_on_as_a_schedule_and_as_two_calls():
    order = []

    def as_a_schedule(executor):
        if executor.rank == 1:
            order.append("sent")
        executor.run_signal(build_schedule("signal", "direct", 3, root=1, target=2))

    def as_two_calls(executor):
        if executor.rank == 0:
            order.append("sent")
            executor.signal(2)
        if executor.rank == 2:
            executor.wait(0)
            order.append("heard")

    on_threads(3, lambda executor: (as_a_schedule(executor), as_two_calls(executor)))

    assert order == ["sent", "sent", "heard"]


def test_a_rank_that_does_not_come_is_named():
    def only_first(executor):
        if executor.rank == 0:
            executor.all_reduce(torch.zeros(3), build_schedule("all_reduce", "ring", 2))

    with pytest.raises(TransportError, match=r"rank 0 waited 0.1 s for rank 1 to send"):
        on_threads(2, only_first, timeout_s=0.1)


def test_half_precision_takes_less_on_the_wire_where_only_results_are_copied():
    sizes = []

    class Counting:
        def __init__(self, transport):
            self.transport, self.rank, self.ranks = transport, transport.rank, transport.ranks

        def exchange(self, sends, receives):
            sizes.extend((send.data.dtype, send.data.numel()) for send in sends)
            self.transport.exchange(sends, receives)

    def sum_up(executor):
        executor.transport = Counting(executor.transport)
        executor.all_reduce(torch.ones(8, dtype=torch.bfloat16), build_schedule("all_reduce", "ring", 2))

    on_threads(2, sum_up)

    assert sorted(sizes, key=str) == [(torch.bfloat16, 4)] * 2 + [(torch.float32, 4)] * 2


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (
            lambda e: e.all_reduce(torch.zeros(2), build_schedule("all_reduce", "ring", 3)),
            "schedule: expected 2 ranks, got 3",
        ),
        (
            lambda e: e.all_reduce(torch.zeros(2), build_schedule("all_gather", "ring", 2)),
            "schedule: expected all_reduce",
        ),
        (
            lambda e: e.all_reduce(torch.zeros(2), build_schedule("all_reduce", "ring", 2), "bor"),
            "operator bor: expected integers",
        ),
        (
            lambda e: e.all_reduce(torch.zeros(2), build_schedule("all_reduce", "ring", 2), "add"),
            "operator 'add': unknown",
        ),
        (
            lambda e: e.all_gather(torch.zeros(5), torch.zeros(2), build_schedule("all_gather", "ring", 2)),
            "output: expected 4",
        ),
        (
            lambda e: e.all_gather(torch.zeros(5), torch.zeros(2), build_schedule("all_gather", "ring", 2), counts=[2]),
            "counts: expected 2 sizes",
        ),
        (
            lambda e: e.all_to_all(
                torch.zeros(4), torch.zeros(4), build_schedule("all_to_all", "linear", 2), counts=[[1, 1]]
            ),
            "counts: expected a row for each of 2 ranks",
        ),
        (
            lambda e: e.scatter(torch.zeros(2), torch.zeros(4), build_schedule("scatter", "linear", 2, root=0)),
            "source: expected (None|a tensor)",
        ),
    ],
)
def test_calls_that_do_not_fit_say_what_was_expected(call, reason):
    with pytest.raises(InputError, match=reason):
        on_threads(2, call, timeout_s=0.2)


def test_there_is_no_average_of_bool_and_no_order_of_complex_numbers():
    with pytest.raises(InputError, match="avg"):
        wire_reduction("avg", torch.bool)
    with pytest.raises(InputError, match="order"):
        wire_reduction("max", torch.complex64)
