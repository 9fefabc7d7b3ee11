"""The recorder of a rank: what it keeps of a run of any length."""

import torch.distributed as dist

from meshwright.train.loop import measured_steps
from meshwright.train.recorder import PARTS_KEPT, Recorder
from meshwright.train.worker import agreed_steps


def record(steps):
    recorder = Recorder(0, keep_steps=2)
    for step in range(steps):
        recorder.note("compute", "forward", step, step + 0.25)
        recorder.note("compute", "optimizer", step + 0.25, step + 0.5)
        recorder.end_step(step)
    return recorder


def test_a_long_run_keeps_the_costs_of_its_last_steps_and_the_spans_of_fewer():
    recorder = record(3 * PARTS_KEPT)

    assert recorder.steps == 3 * PARTS_KEPT
    assert len(recorder.parts) == PARTS_KEPT
    assert {span.step for span in recorder.spans()} == {3 * PARTS_KEPT - 2, 3 * PARTS_KEPT - 1}


def test_the_warm_up_is_left_out_where_it_is_still_there():
    assert len(record(8).parts_after(5)) == 3
    assert record(5).parts_after(5) == []
    assert len(record(PARTS_KEPT + 3).parts_after(5)) == PARTS_KEPT - 2
    assert len(record(PARTS_KEPT + 9).parts_after(5)) == PARTS_KEPT


def test_what_belongs_to_no_step_is_not_recorded():
    recorder = Recorder(0, keep_steps=2)
    with recorder.paused():
        recorder.note("comm", "all_gather", 0.0, 9.0)
        with recorder.span("compute", "forward"):
            pass
    recorder.note("compute", "forward", 9.0, 10.0)
    recorder.end_step(0)

    assert [span.start_s for span in recorder.spans()] == [9.0]


def test_all_ranks_take_the_parts_of_the_steps_that_rank_0_chooses():
    store = dist.HashStore()
    of_rank_0 = {step: {"step_time_s": 1.0 if step < 4 else 9.0} for step in range(7)}
    of_rank_1 = {step: {"step_time_s": 1.0 if step > 2 else 9.0} for step in range(1, 7)}

    assert agreed_steps(of_rank_0, 0, store) == [0, 1, 2, 3]
    assert agreed_steps(of_rank_1, 1, store) == [1, 2, 3]
    assert agreed_steps(of_rank_1, 0, None) == [4, 5, 6]


def test_the_last_step_stands_for_a_run_that_ends_in_its_warm_up():
    assert list(measured_steps(record(3), 5)) == [2]
    assert list(measured_steps(record(8), 5)) == [5, 6, 7]
