"""Properties of the transport through device memory alone; test_executor.py runs it over host memory."""

import pytest
import torch

from testkit import executor_cases as cases


def test_a_message_without_elements_needs_no_buffer(rank_pool):
    assert rank_pool(2).run(cases.nothing_to_move, "device") == [8.0, 7.0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_every_algorithm_gives_the_exact_result_between_four_ranks_of_one_gpu(rank_pool):
    rank_pool(4).run(cases.on_one_gpu)
