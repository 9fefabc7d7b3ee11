"""Every algorithm, executed on live ranks over each transport, equals a plain reference."""

from pathlib import Path

import pytest
import torch

from meshwright.bench.ranks.pool import RankFailedError, RankPool
from meshwright.collectives.catalogue import algorithm_names
from meshwright.collectives.msccl.importer import load_msccl_xml
from testkit import executor_cases as cases

OWN = ("shm", "tcp", "device")
KINDS = (*OWN, "torch")
SLOW_S = 280.0
UP_TO_8 = [n if n == 3 else pytest.param(n, marks=pytest.mark.soak) for n in range(1, 9)]  # ranks
MSCCL = sorted((Path(__file__).parents[1] / "unit" / "collectives" / "msccl").glob("*.xml"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_algorithm_gives_the_exact_result(rank_pool, ranks, kind):
    rank_pool(ranks).run(cases.all_algorithms, kind, (1, 13))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranks", UP_TO_8)
def test_every_algorithm_gives_the_exact_result_on_up_to_8_ranks(rank_pool, ranks, kind):
    rank_pool(ranks).run(cases.all_algorithms, kind, (0, 1, 7, 1021))


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_and_operator(rank_pool, kind):
    rank_pool(3).run(cases.all_types, kind, ("ring", "partitioned"), 37)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranks", UP_TO_8)
def test_every_type_and_operator_with_every_algorithm(rank_pool, ranks, kind):
    rank_pool(ranks).run(cases.all_types, kind, tuple(algorithm_names("all_reduce")), 37, timeout_s=SLOW_S)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranks", UP_TO_8)
def test_every_type_and_operator_in_every_other_collective(rank_pool, ranks, kind):
    rank_pool(ranks).run(cases.all_types_elsewhere, kind, 13, timeout_s=SLOW_S)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", MSCCL, ids=lambda path: path.stem)
def test_programs_of_msccl_tools_run(rank_pool, path, kind):
    rank_pool(load_msccl_xml(path).ranks).run(cases.msccl_file, kind, str(path))


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_of_any_shape_and_stride(rank_pool, kind):
    rank_pool(3).run(cases.shapes, kind)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_tensors_beyond_2_gib(rank_pool, kind):
    rank_pool(2).run(cases.beyond_2_gib, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_uneven_parts(rank_pool, ranks, kind):
    rank_pool(ranks).run(cases.uneven, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", algorithm_names("barrier"))
def test_nobody_leaves_a_barrier_before_all_have_entered(rank_pool, name, kind):
    times = rank_pool(4).run(cases.barriers, kind, name, 1)

    for entered_and_left in zip(*times, strict=True):
        assert max(entered for entered, _ in entered_and_left) <= min(left for _, left in entered_and_left)


@pytest.mark.parametrize("kind", KINDS)
def test_signals_go_to_and_fro(rank_pool, kind):
    events = sorted(event for rank in rank_pool(2).run(cases.ping_pong, kind) for event in rank)

    words = [word for _, word in events]
    assert words == [f"{what} {turn}" for turn in range(6) for what in ("signal", "wait", "signal", "wait")]


@pytest.mark.parametrize("kind", OWN)
def test_a_message_of_another_size_is_an_error_that_names_both_ranks(rank_pool, kind):
    messages = rank_pool(2).run(cases.mismatch, kind)

    assert messages[1] == "rank 0 sent 400 B where rank 1 expects 360 B"


@pytest.mark.parametrize("kind", OWN)
def test_a_missing_peer_is_an_error_that_names_it(rank_pool, kind):
    message = rank_pool(3).run(cases.lost_peer, kind)[0]

    assert message.startswith(("rank 0 waited 0.5 s for rank 1 to send", "rank 0 lost rank"))


@pytest.mark.alone
@pytest.mark.parametrize("kind", OWN)
def test_a_peer_whose_process_ends_is_named_within_2_s(tmp_path, kind):
    pool = RankPool(2)
    with pytest.raises(RankFailedError, match="rank 1: its process has ended"):
        pool.run(cases.die, kind, str(tmp_path / "told"))
    pool.close()
    seconds, _, message = (tmp_path / "told").read_text().partition(" ")

    assert message.startswith("rank 0 lost rank 1: ")
    assert float(seconds) < 2


def test_the_torch_transport_posts_receives_before_sends(rank_pool):
    for first, last in rank_pool(2).run(cases.order_of_posting):
        assert (first, last) == ("irecv", "isend")


@pytest.mark.parametrize("kind", KINDS)
def test_a_narrow_wire_leaves_all_ranks_with_the_same_result(rank_pool, kind):
    results = rank_pool(4).run(cases.wire_types, kind)

    assert all(result == results[0] for result in results)


def test_half_precision_sums_are_rounded_once(rank_pool):
    """256 + 1 + 1 + 1 is 256 in bfloat16 when every addition rounds, and 259 -> 260 when only the last one does."""
    assert rank_pool(4).run(half_sum, "shm") == [260.0] * 4


def half_sum(rank, ranks, store, kind):
    executor = cases.Executor(cases.open_transport(kind, store, rank, ranks))
    value = torch.tensor([256.0 if rank == 0 else 1.0], dtype=torch.bfloat16)
    executor.all_reduce(value, cases.build_schedule("all_reduce", "ring", ranks))
    executor.transport.close()
    return value.item()
