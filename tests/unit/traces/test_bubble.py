"""The bubble of a pipeline: a loss by its schedule, which is nobody's fault."""

from types import SimpleNamespace

import pytest

from meshwright.traces.model import TracedCall, Window
from meshwright.traces.stragglers.bubble import bubble_said, micro_batches_of

STEP_S = 0.110


def stages(sends, steps=2, name="send"):
    """Return the steps of stages that send so often in each."""
    found = []
    for count in sends:
        marked = [Window(number, number * STEP_S, (number + 1) * STEP_S) for number in range(steps)]
        begins = [window.start_s + place * 1e-3 for window in marked for place in range(count)]
        trace = SimpleNamespace(calls=[TracedCall(name, at, at + 1e-4, at) for at in begins])
        found.append([(trace, window) for window in marked])
    return found


@pytest.mark.parametrize(
    ("sends", "count"),
    [
        ((6, 12, 6), (6, 1)),
        ((4, 4), (4, 1)),
        ((8, 16, 16, 8), (8, 1)),
        ((24, 32, 32, 24), (8, 2)),  # two chunks a stage
        ((40, 48, 40), (8, 3)),
        ((6, 6, 6), (0, 1)),  # a ring
        ((6, 12, 0), (0, 1)),  # forward alone
        ((6, 14, 6), (0, 1)),
        ((8, 16, 12, 8), (0, 1)),
        ((0, 0), (0, 1)),
    ],
)
def test_sends_there_and_back_tell_the_micro_batches_of_of_a_plain_pipeline(sends, count):
    assert micro_batches_of(stages(sends)) == count


def test_a_step_at_the_end_of_a_trace_that_lost_a_send_does_not_hide_the_schedule():
    pipeline = stages((6, 12, 6), steps=3)
    pipeline[1][0][0].calls.pop()

    assert micro_batches_of(pipeline) == (6, 1)
    assert micro_batches_of([steps[:2] for steps in pipeline[:1]] + stages((12, 6))) == (6, 1)
    pipeline[1][0][0].calls.pop(12)
    assert micro_batches_of(pipeline) == (0, 1)  # in most steps it sends another number


def test_the_bubble_of_a_pipeline_is_said_where_it_explains_what_every_stage_loses():
    said = bubble_said(stages((6, 12, 6)), [0.080, 0.080, 0.081], 0.0, " a step")

    assert said.startswith("each stage waits or idles 30 ms a step, of which the bubble of a pipeline of 3 stages")
    assert "and 6 micro-batches is 26.7 ms: nobody" in said


def test_a_pipeline_that_loses_more_than_its_bubble_is_not_explained_by_it():
    assert bubble_said(stages((6, 12, 6)), [0.070, 0.070, 0.070], 0.0, " a step") == ""
    assert bubble_said(stages((6, 6, 6)), [0.080, 0.080, 0.080], 0.0, " a step") == ""


def test_transfers_between_stages_are_said_where_they_are_most_of_what_the_bubble_leaves():
    said = bubble_said(stages((6, 12, 6)), [0.070, 0.070, 0.070], 0.012, " a step")

    assert said.endswith("is 23.3 ms, and transfers between stages are 12 ms")
    assert bubble_said(stages((6, 12, 6)), [0.070, 0.070, 0.070], 0.004, " a step") == ""


def test_a_schedule_that_loses_much_less_than_the_bubble_is_another_one():
    assert bubble_said(stages((6, 12, 6)), [0.098, 0.098, 0.098], 0.0, " a step") == ""


def test_kernels_that_send_or_receive_count_half():
    assert micro_batches_of(stages((12, 24, 12), name="send_recv")) == (6, 1)
    assert micro_batches_of(stages((7, 24, 7), name="send_recv")) == (0, 1)
