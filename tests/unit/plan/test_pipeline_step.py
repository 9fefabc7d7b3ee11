"""What a pipeline is predicted to wait for and to copy, from figures that can be added up by hand."""

import msgspec
import pytest

from meshwright.layout import Layout
from meshwright.plan.pipeline_step import plan_cut, predict_pipeline_step
from meshwright.timeline import by_rank, step_parts
from tests.unit.plan.test_split_step import ALPHA_S, inputs

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


def test_what_stages_send_costs_what_neighbours_were_measured_to_take():
    message_s = 1.0  # longer than any computation
    layout = Layout.parse("dp=1,pp=2,mbs=1")
    given = inputs(layout, MICRO_BATCHES)
    fits = [
        msgspec.structs.replace(fit, alpha_s=message_s) if fit.collective == "blocking send_recv" else fit
        for fit in given.measured.collectives
    ]
    slow = msgspec.structs.replace(given, measured=msgspec.structs.replace(given.measured, collectives=tuple(fits)))

    quick_s, slow_s = (max(s.end_s for s in predict_pipeline_step(layout, i, 2**20).spans) for i in (given, slow))

    # 1F1B on two stages: the first holds two micro-batches, so that a message goes there and back for every two of them
    assert slow_s - quick_s == pytest.approx(MICRO_BATCHES / 2 * 2 * message_s, rel=0.02)


def test_sharded_stages_gather_weights_and_scatter_gradients_instead_of_summing_them_at_the_end():
    ends = 2 * ALPHA_S  # the norm, the loss
    once = {level: parts(f"dp=2,pp=2,mbs=1,zero={level}")[0][1]["exposed_comm_s"] - ends for level in (1, 2, 3)}

    layers, output = 1, 1  # of the last stage; what is no layer is gathered once
    assert once[1] == pytest.approx(ALPHA_S)  # a reduce-scatter and an all-gather, of half an all-reduce each
    assert once[2] == pytest.approx((layers + output) * (1 + MICRO_BATCHES) * ALPHA_S / 2)
    assert once[3] == pytest.approx(MICRO_BATCHES * (layers * 3 + output * 2) * ALPHA_S / 2)
