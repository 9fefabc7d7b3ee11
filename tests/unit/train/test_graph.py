"""The drawing of a step: every operator on its rank, messages at the cuts, gradients by bucket."""

import re
from collections import Counter
from xml.etree import ElementTree

import msgspec
import pytest

from meshwright.errors import InputError
from meshwright.layout import Layout, Plan
from meshwright.train.model.decoder_sizes import decoder_config
from meshwright.train.model.graph import config_lanes, decoder_graph, decoder_lanes, decoder_program
from meshwright.workload.architecture import Architecture
from meshwright.workload.stages import rank_of_stages
from testkit.train_jobs import UNMEASURED
from tests.multiproc.parallel.layouts import EXPERTS, FAST, SLOW, Case

SIZES = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8,
}  # fmt: skip


def drawn(layout, **changes):
    plan = Plan(
        layout=Layout.parse(layout),
        predicted=UNMEASURED,
        global_batch_sequences=8,
        seq_len=16,
        bucket_bytes=20_000,
    )
    svg = decoder_graph(Architecture(**(SIZES | changes)), plan)
    texts = [element.text for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    return svg, texts


def test_each_operator_is_once_in_forward_and_once_in_backward_of_one_stage():
    _, texts = drawn("pp=2,dp=1,mbs=1")

    assert [text for text in texts if text.startswith("stage")] == [
        "stage 0 on pipeline rank 0",
        "stage 1 on pipeline rank 1",
    ]
    for layer in range(4):
        assert texts.count(f"layers.{layer}.gate_up") == 2
    second = texts.index("stage 1 on pipeline rank 1")
    assert "embedding" in texts[:second]
    assert "embedding" not in texts[second:]


def test_send_and_receive_stand_at_the_cut_with_their_bytes():
    _, texts = drawn("pp=2,dp=1,mbs=1")

    links = [text for text in texts if re.match("send|receive", text)]
    assert links == ["send 2 KiB", "receive 2 KiB", "receive 2 KiB", "send 2 KiB"]  # 16 x 32 float32, there and back


def test_collectives_and_fused_buckets_are_there_only_where_the_layout_has_them():
    svg, texts = drawn("pp=2,dp=2,tp=2,mbs=1")
    alone_svg, alone = drawn("pp=2,dp=1,mbs=1")

    # of outputs forwards, of inputs backwards, of the loss
    assert texts.count("all-reduce tp=2") == (1 + 2 * 4) + (2 * 4 + 1) + 3
    assert any(re.match(r"all-reduce \d", text) for text in texts)
    assert "bucket 1" in svg
    assert [text for text in alone if "all-reduce" in text] == ["all-reduce world=2"] * 2
    assert "bucket 0" not in alone_svg


def test_a_model_that_is_no_such_decoder_is_refused():
    with pytest.raises(InputError, match="expected a decoder like Llama; its network has no gate"):
        drawn("pp=2,dp=1,mbs=1", gated=False)


ROUTED = {"experts": 4, "experts_per_token": 2, "expert_size": 48}


def test_rows_go_to_their_experts_before_these_compute_and_come_back_after_them_in_both_directions():
    plan = Plan(
        layout=Layout.parse("dp=2,tp=2,ep=2,mbs=2,sp=1"), predicted=UNMEASURED, global_batch_sequences=8, seq_len=16,
        bucket_bytes=20_000,
    )  # fmt: skip

    (lane,) = decoder_lanes(Architecture(**SIZES | ROUTED), plan)

    def around(boxes):
        """Return what stands around the experts of the first layer that is passed, by what it carries."""
        titles = [re.sub(r" of \S+, .*", "", box.title.partition(":")[0]) for box in boxes]
        at = next(place for place, title in enumerate(titles) if title.endswith(".bank"))
        return [re.sub(r"layers\.\d\.", "", title) for title in titles[at - 3 : at + 4]]

    assert around(lane.forward) == [
        "all-gather of the router's choices", "all-to-all of the numbers of rows",
        "all-to-all of the rows to their experts (dispatch)", "experts.bank",
        "all-to-all of the rows from their experts (combine)", "experts", "reduce-scatter of the output",
    ]  # fmt: skip
    assert around(lane.backward)[1:] == [
        "experts", "all-to-all of the gradients of the rows from their experts", "experts.bank",
        "all-to-all of the gradients of the rows to their experts",
        "reduce-scatter of the gradients of the router's weights", "reduce-scatter of the gradient of the input",
    ]  # fmt: skip


def test_gradients_of_experts_are_buckets_of_the_ranks_that_hold_the_same_ones():
    svg, _ = drawn("dp=4,ep=2,mbs=1", **ROUTED)

    assert "all-reduce of gradients of experts over 2 data-parallel ranks" in svg
    assert "all-reduce of gradients over 4 data-parallel ranks" in svg


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [({"shared_size": 48}, "a network beside its experts"), ({"dense_layers": 1}, "some of its layers have experts")],
)
def test_experts_that_train_does_not_have_are_refused(sizes, reason):
    with pytest.raises(InputError, match=reason):
        drawn("dp=2,ep=2,mbs=1", **ROUTED | sizes)


OFFLOADED = (
    *("dp=1,mbs=4,offload=optimizer", "dp=2,mbs=2,zero=1,offload=optimizer", "dp=2,mbs=2,zero=3,offload=optimizer"),
    *("dp=2,mbs=2,zero=3,offload=parameters", "dp=2,mbs=2,zero=2,offload=parameters"),
    *("pp=2,dp=1,mbs=2,offload=optimizer", "pp=2,dp=2,mbs=1,zero=3,offload=parameters"),
)
EXPERTS_BESIDE = (
    Case("dp=2,tp=2,ep=2,mbs=2,sp=1,zero=3,recompute=full", EXPERTS),
    Case("dp=4,ep=2,mbs=1,zero=1", EXPERTS),
    Case("dp=2,ep=2,pp=2,mbs=1,zero=3,vpp=2,schedule=interleaved", EXPERTS),
)
FAST_ONES = [*map(Case, OFFLOADED), *FAST, *EXPERTS_BESIDE]
SLOW_ONES = [
    pytest.param(case, marks=[pytest.mark.slow, *([pytest.mark.soak] if at % 3 else [])])
    for at, case in enumerate(SLOW)
]


@pytest.mark.parametrize("case", [*FAST_ONES, *SLOW_ONES], ids=str)
def test_what_is_drawn_is_the_program_of_a_micro_batch_with_what_a_step_does_once(case):
    """Of the parity table all; what is dropped is said by no configuration that `plan` reads, but by the decoder's."""
    layout = Layout.parse(case.layout)
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 4}
    experts = case.model.get("num_local_experts", 0)
    sizes = SIZES | heads | {"tied": case.model.get("tie_word_embeddings", True)}
    sizes |= {"experts": experts, "experts_per_token": 2, "expert_size": 48} if experts else {}
    plan = Plan(layout=layout, predicted=UNMEASURED, global_batch_sequences=8, seq_len=16, bucket_bytes=20_000)
    dropped = case.model.get("hidden_dropout", 0.0)
    config = msgspec.structs.replace(decoder_config(Architecture(**sizes), 16), hidden_dropout=dropped)
    cut, program = decoder_program(config, plan)

    lanes = config_lanes(config, plan)

    holders = rank_of_stages(layout, plan.micro_batches)
    one = msgspec.structs.replace(program, micro_batches=1)
    for stage, lane in enumerate(lanes):
        called = Counter({call: n for call, n in one.calls([stage]).items() if not call[1].startswith("send")})
        drawn_calls = Counter((comm.axis, comm.collective, int(comm.bytes)) for comm in lane.calls)
        assert drawn_calls == called
        sent = [box.text for box in (*lane.forward, *lane.backward) if box.text.startswith("send")]
        beside = [other for other in (stage - 1, stage + 1) if 0 <= other < len(lanes)]
        assert len(sent) == sum(holders[other] != holders[stage] for other in beside)
    assert len(cut) == len(lanes) + 1
    if dropped:
        boxes = [box.title for lane in lanes for box in lane.forward if "dropout" in box.title]
        assert len(boxes) == 1 + 2 * config.num_hidden_layers  # the embedding, and what each half of a layer adds


def test_alike_layers_and_alike_stages_are_drawn_once_with_their_number():
    svg, texts = drawn("dp=1,mbs=1", num_hidden_layers=12)
    _, staged = drawn("pp=4,dp=1,mbs=1", num_hidden_layers=14)

    assert texts.count("x 12") == 2  # forward and backward
    assert texts.count("gate_up") == 2
    assert {"layers.0", "layers.11"} <= set(texts)  # the first that is passed, beside the number
    assert int(ElementTree.fromstring(svg).attrib["height"]) < 600
    assert "stage 1 on pipeline rank 1 to stage 2 on pipeline rank 2 (2 alike)" in staged


@pytest.mark.parametrize(("precision", "width"), [("", 4), ("fp32", 4), ("bf16", 2)])
def test_sums_of_products_are_drawn_with_the_bytes_of_the_plans_precision(precision, width):
    layout = Layout.parse("dp=1,tp=2,mbs=4")
    plan = Plan(
        layout=layout, predicted=UNMEASURED, global_batch_sequences=4, seq_len=16, bucket_bytes=20_000,
        precision=precision,
    )  # fmt: skip

    _, program = decoder_program(decoder_config(Architecture(**SIZES), 16), plan)

    layers = [unit for unit in program.stages[0].units if unit.name == "decoder layer"]
    elements = 4 * 16 * SIZES["hidden_size"]
    assert {comm.bytes for unit in layers for comm in unit.forward.comms} == {width * elements}
    assert {comm.bytes for unit in layers for comm in unit.backward.comms} == {4 * elements}  # of the residual stream
