import torch.distributed as dist

from meshwright.train.measure.records import agreed_steps


def test_all_ranks_take_the_parts_of_the_steps_that_rank_0_chooses():
    store = dist.HashStore()
    of_rank_0 = {step: {"step_time_s": 1.0 if step < 4 else 9.0} for step in range(7)}
    of_rank_1 = {step: {"step_time_s": 1.0 if step > 2 else 9.0} for step in range(1, 7)}

    assert agreed_steps(of_rank_0, 0, store) == [0, 1, 2, 3]
    assert agreed_steps(of_rank_1, 1, store) == [1, 2, 3]
    assert agreed_steps(of_rank_1, 0, None) == [4, 5, 6]
