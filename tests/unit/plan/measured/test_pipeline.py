"""Predicted waits and copies of a pipeline, from figures that can be added up by hand."""

import msgspec
import pytest

from meshwright.cluster.graph import Straggling, blocking, on_link
from meshwright.layout import Layout
from meshwright.pipelines import bubble_share
from meshwright.plan.measured.pipeline import plan_cut, predict_pipeline_step
from meshwright.plan.measured.spmd import RESUMING
from meshwright.timeline import by_rank, step_parts
from tests.unit.plan.measured.test_spmd import ALPHA_S, MODEL, inputs

MICRO_BATCHES = 4


def parts(text, bandwidth=None):
    """Return the parts of the step of each rank of a pipeline, and the parameters that each holds."""
    layout = Layout.parse(text)
    given = inputs(layout, layout.dp * layout.mbs * MICRO_BATCHES)
    measured = msgspec.structs.replace(given.measured, memory_bandwidth_bytes_per_s=bandwidth)
    given = msgspec.structs.replace(given, measured=measured)
    each = [layer.parameters for layer in given.workload.layers for _ in range(layer.count)]
    bounds = plan_cut(layout, given).bounds
    held = [sum(each[bounds[rank] : bounds[rank + 1]]) for rank in range(layout.pp)]
    spans = by_rank(predict_pipeline_step(layout, given, 2**20).spans)
    return [step_parts(of_rank) for of_rank in spans], held


def test_gradients_of_all_micro_batches_but_the_first_are_added_to_those_before():
    bandwidth = 1e9  # of both ranks together; a value is read twice and written once
    free, held = parts("dp=1,pp=2,mbs=1")
    slow, _ = parts("dp=1,pp=2,mbs=1", bandwidth)

    for before, after, parameters in zip(free, slow, held, strict=True):
        added_s = (MICRO_BATCHES - 1) * 3 * 4 * parameters * 2 / bandwidth
        assert after["backward_s"] - before["backward_s"] == pytest.approx(added_s)


LAYOUT = Layout.parse("dp=1,pp=2,mbs=1")


def step_s(measured):
    given = msgspec.structs.replace(inputs(LAYOUT, MICRO_BATCHES), measured=measured)
    return max(span.end_s for span in predict_pipeline_step(LAYOUT, given, 2**20).spans)


def with_messages(work_s=0.0, link_s=0.0):
    """Return what is measured, with other figures of the messages between stages."""
    measured = inputs(LAYOUT, MICRO_BATCHES).measured
    seconds = {blocking("send_recv"): work_s, on_link("send_recv"): link_s}
    fits = [
        msgspec.structs.replace(fit, alpha_s=seconds.get(fit.collective, fit.alpha_s)) for fit in measured.collectives
    ]
    return msgspec.structs.replace(measured, collectives=tuple(fits))


def with_link(measured, **figures):
    """Return what is measured, with other figures of what messages take on their link."""
    fits = [
        msgspec.structs.replace(fit, **figures) if fit.collective == on_link("send_recv") else fit
        for fit in measured.collectives
    ]
    return msgspec.structs.replace(measured, collectives=tuple(fits))


def test_what_stages_send_travels_one_message_after_the_other():
    message_s = 1.0  # longer than any computation

    added_s = step_s(with_messages(link_s=message_s)) - step_s(with_messages())

    # 1F1B on two stages: forwards follow each other over the link, the last gradient comes back alone, and the stages
    # sum the gradient of the matrix that both use
    assert added_s == pytest.approx((MICRO_BATCHES + 1 + 1) * message_s, rel=0.02)


def test_pipelines_with_one_link_send_in_turn_and_compute_while_others_send():
    message_s = 5.0  # alone on the link; much longer than any computation
    layout = Layout.parse("dp=2,pp=2,mbs=1")

    def step_s(at_once):
        given = inputs(layout, layout.dp * MICRO_BATCHES)
        measured = with_link(given.measured, alpha_s=at_once * message_s, at_once=at_once)
        spans = predict_pipeline_step(layout, msgspec.structs.replace(given, measured=measured), 2**20).spans
        return max(span.end_s for span in spans)

    # forwards of both fill the link; the last gradient of the later comes back alone, and so do its sums
    assert step_s(2) - step_s(1) == pytest.approx(MICRO_BATCHES * message_s, rel=0.02)


def test_ranks_of_tensor_parallelism_send_at_once_and_wait_for_the_last_message():
    layout = Layout.parse("dp=1,tp=4,pp=2,mbs=1")
    given = inputs(layout, MICRO_BATCHES)
    measured = [with_link(given.measured, alpha_s=20.0, at_once=at_once) for at_once in (1, 4)]

    alone, together = (
        predict_pipeline_step(layout, msgspec.structs.replace(given, measured=each), 2**20).spans for each in measured
    )

    assert together == alone


def test_the_first_and_the_last_stage_sum_the_gradient_of_the_matrix_that_both_use():
    layout = Layout.parse("dp=1,pp=3,mbs=1")
    given = inputs(layout, MICRO_BATCHES)
    given = msgspec.structs.replace(given, measured=with_link(given.measured, beta_s_per_byte=1e-6))

    spans = predict_pipeline_step(layout, given, 2**20).spans
    summed_s = [next(s.end_s - s.start_s for s in spans if s.rank == r and s.name == "all_reduce") for r in range(3)]

    sent_s, norm_s = 4 * MODEL.vocab_size * MODEL.hidden_size * 1e-6 + ALPHA_S / 2, ALPHA_S
    assert summed_s == [pytest.approx(sent_s), pytest.approx(norm_s), pytest.approx(sent_s)]


def test_the_work_of_a_message_keeps_both_ends_busy():
    message_s = 10.0  # much longer than any computation

    added_s = step_s(with_messages(work_s=message_s)) - step_s(with_messages())

    # each rank sends or receives once in every forward and backward, and idles for one of each; both sum the gradient
    # of the matrix that both use
    assert added_s == pytest.approx((MICRO_BATCHES + 1) * 2 * message_s / 2 + message_s, rel=0.02)


@pytest.mark.parametrize(("text", "late"), [("dp=1,pp=2,mbs=1", 0.0), ("dp=4,pp=2,mbs=1", 0.1 * 0.52)])
def test_the_slowest_of_several_pipelines_is_late_by_less_than_the_slowest_rank(text, late):
    layout = Layout.parse(text)
    given = inputs(layout, layout.dp * MICRO_BATCHES)
    uneven = msgspec.structs.replace(given.measured, straggling=(Straggling(ranks=layout.world_size, share=0.1),))

    drained = [
        max(span.end_s for span in predict_pipeline_step(layout, each, 2**20).spans if span.name == "drain")
        for each in (given, msgspec.structs.replace(given, measured=uneven))
    ]

    assert drained[1] / drained[0] - 1 == pytest.approx(late, abs=0.002)


def test_every_action_of_a_pipeline_begins_after_a_wait():
    measured = with_messages()
    again_s = 1.0
    operators = [
        msgspec.structs.replace(item, forward_s=item.forward_s + again_s) if item.operator == RESUMING.key else item
        for item in measured.operators
    ]
    slow = msgspec.structs.replace(measured, operators=tuple(operators))

    assert step_s(slow) - step_s(measured) == pytest.approx((MICRO_BATCHES + 1) * 2 * again_s, rel=0.02)


def test_ranks_that_share_processors_compute_faster_while_others_wait():
    measured = with_messages()
    operators = [msgspec.structs.replace(item, slowdown=2.0) for item in measured.operators]

    alone_s = step_s(measured)
    sharing_s = step_s(msgspec.structs.replace(measured, operators=tuple(operators)))

    idle_share = bubble_share("1f1b", 2, 1, MICRO_BATCHES)  # of equal stages; these are nearly so
    assert sharing_s == pytest.approx(alone_s * (1 - idle_share), rel=0.1)


def test_sharded_stages_gather_weights_and_scatter_gradients_instead_of_summing_them_at_the_end():
    ends = 2 * ALPHA_S + ALPHA_S / 2  # the norm, the loss, the matrix of both ends
    once = {level: parts(f"dp=2,pp=2,mbs=1,zero={level}")[0][1]["exposed_comm_s"] - ends for level in (1, 2, 3)}

    layers, output = 1, 1  # of the last stage; what is no layer is gathered once
    assert once[1] == pytest.approx(ALPHA_S)  # a reduce-scatter and an all-gather, of half an all-reduce each
    assert once[2] == pytest.approx((layers + output) * (1 + MICRO_BATCHES) * ALPHA_S / 2)
    assert once[3] == pytest.approx(MICRO_BATCHES * (layers * 3 + output * 2) * ALPHA_S / 2)
