"""The transport through device memory: over memory of the host everywhere, and over a GPU's where there is one."""

import pytest
import torch

from meshwright.bench.pool import RankPool
from meshwright.collectives.algorithms import names
from tests.multiproc import executor_cases as cases


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_algorithm_gives_the_exact_result(rank_pool, ranks):
    rank_pool(ranks).run(cases.all_algorithms, "device", (1, 13))


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [5, 6, 7, 8])
def test_every_algorithm_gives_the_exact_result_on_up_to_8_ranks(rank_pool, ranks):
    rank_pool(ranks).run(cases.all_algorithms, "device", (0, 1, 1021))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_type_and_operator_in_every_collective(rank_pool):
    rank_pool(4).run(cases.all_types, "device", tuple(names("all_reduce")), 37, timeout_s=280.0)
    rank_pool(4).run(cases.all_types_elsewhere, "device", 13, timeout_s=280.0)


def test_every_type_and_operator(rank_pool):
    rank_pool(3).run(cases.all_types, "device", ("ring", "partitioned"), 37)


def test_tensors_of_any_shape_and_stride_and_of_growing_sizes(rank_pool):
    rank_pool(3).run(cases.shapes, "device")


def test_uneven_parts(rank_pool):
    rank_pool(4).run(cases.uneven, "device")


def test_a_message_without_elements_needs_no_buffer(rank_pool):
    assert rank_pool(2).run(cases.nothing_to_move, "device") == [8.0, 7.0]


def test_all_ranks_end_alike_with_a_narrower_type_on_the_wire(rank_pool):
    results = rank_pool(4).run(cases.wire_types, "device")

    assert all(result == results[0] for result in results)


@pytest.mark.parametrize("name", names("barrier"))
def test_nobody_leaves_a_barrier_before_all_have_entered(rank_pool, name):
    times = rank_pool(4).run(cases.barriers, "device", name, 1)

    for entered_and_left in zip(*times, strict=True):
        assert max(entered for entered, _ in entered_and_left) <= min(left for _, left in entered_and_left)


def test_a_message_of_another_size_is_an_error_that_names_both_ranks(rank_pool):
    messages = rank_pool(2).run(cases.mismatch, "device")

    assert messages[1] == "rank 0 sent 400 bytes where rank 1 expects 360"


def test_a_peer_whose_process_ends_is_named_within_2_s(tmp_path):
    pool = RankPool(2)
    with pytest.raises((EOFError, ConnectionResetError)):  # rank 1 has left the pool too
        pool.run(cases.die, "device", str(tmp_path / "told"))
    pool.close()
    seconds, _, message = (tmp_path / "told").read_text().partition(" ")

    assert message.startswith("rank 0 lost rank 1: ")
    assert float(seconds) < 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_every_algorithm_gives_the_exact_result_between_four_ranks_of_one_gpu(rank_pool):
    rank_pool(4).run(cases.on_one_gpu)
