"""Stages of a pipeline: which has how many layers, and which of them sets the pace."""

import numpy as np
import pytest

from meshwright.layout import Layout
from meshwright.plan.analytic.quantities import Grid, ModelQuantities
from meshwright.plan.analytic.step import paced_layers
from meshwright.workload.models import load_model
from tests.unit.plan.analytic.test_price import priced, setting

LARGE = load_model("llama3-405b").architecture  # 126 layers: with embedding and output 128


@pytest.mark.parametrize(
    ("layers", "pp", "vpp", "most", "last"),
    [
        (126, 8, 8, 16, 15),  # the first and the last rank give a slot each to embedding and output
        (126, 2, 8, 63, 63),  # both ranks do
        (126, 8, 1, 16, 14),  # without virtual stages the last one has what is left
        (128, 8, 8, 16, 16),
        (61, 4, 8, 16, 13),  # neither divides: some virtual stages have a layer less
        (80, 1, 1, 80, 80),
    ],
)
def test_embedding_and_output_take_a_layer_each_where_they_have_slots(layers, pp, vpp, most, last):
    model = ModelQuantities.of(LARGE.resized(num_hidden_layers=layers))
    schedule = "interleaved" if vpp > 1 else "1f1b"
    found = paced_layers(model, Grid.of([Layout(pp=pp, vpp=vpp, schedule=schedule)]))

    assert [float(np.ravel(each)[0]) for each in found] == [most, last]


def test_a_step_is_paced_by_the_rank_with_most_layers_or_by_the_last_with_its_output():
    small, large = (
        setting(LARGE.resized(num_hidden_layers=126, vocab_size=vocab), "dgx-h100", 64, stack="bridge")
        for vocab in (8, 1_000_000)
    )
    layout = Layout(tp=8, pp=8, vpp=8, sp=1, schedule="interleaved")
    even = setting(LARGE.resized(num_hidden_layers=128, vocab_size=8), "dgx-h100", 64, stack="bridge")

    work = [float(prices.forward_s[0] + prices.backward_s[0]) for prices in (priced(g, layout) for g in (small, even))]
    assert work[0] == pytest.approx(work[1], rel=5e-3)  # 16 layers on the fullest rank of both; one has the output too
    slow = priced(large, layout)
    assert float(slow.forward_s[0] + slow.backward_s[0]) > 1.2 * work[0]


def test_stages_in_a_v_give_the_first_rank_the_last_stage_and_the_output():
    model, stages = ModelQuantities.of(LARGE.resized(num_hidden_layers=15)), (3, 5, 4, 3)
    down = paced_layers(model, Grid.of([Layout(pp=2, vpp=2, schedule="interleaved")]), stages)
    folded = paced_layers(model, Grid.of([Layout(pp=2, vpp=2, schedule="zb")]), stages)

    assert [float(np.ravel(each)[0]) for each in down] == [8, 8]  # 3 + 4 and 5 + 3
    assert [float(np.ravel(each)[0]) for each in folded] == [9, 6]  # 3 + 3 and 5 + 4, the output with the first


def test_an_interleaved_schedule_hides_sends_beside_as_much_computation_as_there_is_and_no_more():
    layout = Layout(tp=8, pp=4, vpp=3, mbs=1, sp=1, schedule="interleaved")
    fast, slow = (
        priced(setting(node="dgx-h100", gpus=32, stack="bridge", inter_bytes_per_s=rate), layout)
        for rate in (400e9, 0.05e9)
    )
    layers_s = slow.forward_s[0] + slow.backward_s[0] + slow.tensor_comm_s[0]
    sent_s = slow.pipeline_comm_s[0] + slow.hidden_comm_s[0]

    assert fast.pipeline_comm_s[0] == 0.0 < fast.hidden_comm_s[0]
    assert sent_s > 2 * layers_s
    assert slow.step_time_s[0] > sent_s > 10 * fast.step_time_s[0]
