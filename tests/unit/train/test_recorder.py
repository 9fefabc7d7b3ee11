"""The recorder of a rank: what it keeps of a run of any length."""

from meshwright.train.measure.recorder import PARTS_KEPT, Recorder, measured_steps


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


def test_the_last_step_stands_for_a_run_that_ends_in_its_warm_up():
    assert list(measured_steps(record(3), 5)) == [2]
    assert list(measured_steps(record(8), 5)) == [5, 6, 7]
