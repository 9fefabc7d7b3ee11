import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.layout import Layout, micro_batches
from meshwright.plan.layouts.legality import (
    check_runnable,
    illegal,
    legal_layout,
    most_tensor_parallel,
    nearest_legal,
    stages_fit,
)
from meshwright.workload.engines import ENGINES, shares_key_heads
from meshwright.workload.models import load_model
from meshwright.workload.transformer import ModelConfig


class Sizes(msgspec.Struct, frozen=True):
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    intermediate_size: int
    experts: int = 0


LLAMA3_405B = Sizes(126, 128, 8, 53248)
MIXTRAL = Sizes(32, 32, 8, 14336, 8)


def broken(text, model=LLAMA3_405B, global_batch=512, seq_len=8192, ranks=None):
    return illegal(Layout.parse(text), model, global_batch=global_batch, seq_len=seq_len, ranks=ranks)


@pytest.mark.parametrize(
    "text",
    [
        "tp=8,pp=16,dp=4",  # uneven by one layer
        "tp=8,pp=16,vpp=8,schedule=interleaved,dp=4,mbs=2,sp=1",  # 128 slots
        "tp=8,cp=16,dp=2,pp=1",
        "tp=4,pp=8,dp=4,mbs=16,schedule=zb",
    ],
)
def test_layouts_that_people_ran_are_legal(text):
    assert broken(text) == []


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("tp=16,dp=1", "tp: 16 does not divide num_key_value_heads = 8"),
        ("pp=128,dp=1", "pp: pp x vpp = 128 stages are more than the 126 layers"),
        ("pp=6,vpp=4,schedule=interleaved,dp=1", "vpp: pp x vpp = 24 divides neither 126 layers nor 128"),
        ("pp=14,vpp=10,schedule=interleaved,dp=1", "are more than the 126 layers"),
        ("cp=3,dp=1", "cp: 2 x 3 does not divide the sequence of 8192 tokens"),
        ("ep=2,dp=2", "ep: 2, but the model has no experts"),
        ("dp=3", "mbs: dp x mbs = 3 x 1 does not divide the global batch of 512"),
        ("dp=512,mbs=2", "mbs: dp x mbs = 512 x 2 does not divide the global batch of 512"),
        ("pp=6,vpp=3,schedule=interleaved,dp=1", "512 micro-batches are not a multiple of pp=6"),
        ("pp=8,schedule=zb,dp=128", "needs pp = 8 micro-batches or more, got 4"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_named(text, rule):
    assert any(rule in line for line in broken(text)), broken(text)


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("tp=16,dp=1", 0),
        ("tp=12,dp=1", 3),  # key-value heads do not divide it, nor does it divide query heads or the inner width
        ("tp=256,dp=1", 1),  # more than the query heads
    ],
)
def test_ranks_share_a_key_value_head_only_where_an_engine_has_that_and_all_else_divides(text, rules):
    layout, job = Layout.parse(text), {"global_batch": 512, "seq_len": 8192}
    shared = illegal(layout, LLAMA3_405B, **job, shared_heads=True)

    assert len(shared) == rules
    assert any("num_key_value_heads = 8" in line for line in illegal(layout, LLAMA3_405B, **job))


def test_the_engines_whose_core_lets_ranks_share_a_head_are_those_of_megatron():
    names = [name for name in (*ENGINES, "meshwright", "since-2024", "bloom", "llama3paper") if shares_key_heads(name)]

    assert names == ["megatron", "bridge", "nemo"]


def test_tensor_parallelism_divides_the_heads_and_groups_of_every_kind_of_layer():
    mamba, delta = (load_model(name).architecture for name in ("mamba2-2.7b", "qwen3-next-80b-a3b"))

    assert any("16 does not divide Mamba groups = 1" in line for line in broken("tp=16,dp=1", mamba))
    assert any("tp: 4 does not divide num_key_value_heads = 2" in line for line in broken("tp=4,dp=1", delta))
    assert not any("linear attention" in line for line in broken("tp=2,dp=1", delta))
    assert most_tensor_parallel(mamba) == 1


def test_the_degrees_multiply_to_the_ranks():
    assert broken("tp=8,pp=2,dp=2", ranks=64) == ["tp x cp x dp x pp = 8 x 1 x 2 x 2 = 32, but there are 64 ranks"]


def test_sequence_parallelism_divides_what_a_rank_holds():
    assert broken("tp=8,sp=1,cp=2,dp=1", seq_len=8200 - 8) == []
    assert "sp: tp = 8 does not divide the 2046 tokens" in broken("tp=8,sp=1,cp=2,dp=1", seq_len=4092)[0]


def test_expert_parallelism_divides_the_experts():
    assert broken("ep=4,dp=4", MIXTRAL) == []
    assert "3 does not divide the 8 experts" in broken("ep=3,dp=3", MIXTRAL, global_batch=9)[0]


def test_every_broken_rule_is_told_at_once():
    assert len(broken("tp=16,pp=128,dp=3")) == 3


def test_the_decoder_that_train_runs_is_judged_by_the_same_rules():
    assert illegal(Layout(tp=2), ModelConfig(), global_batch=4, seq_len=128) == [
        "tp: 2 does not divide num_key_value_heads = 1"
    ]


def test_the_nearest_legal_layouts_come_first():
    wrong = Layout.parse("tp=16,pp=4,dp=1")

    near = nearest_legal(wrong, LLAMA3_405B, global_batch=512, seq_len=8192, count=2)

    assert [str(layout) for layout in near] == ["tp=8,pp=4,dp=2,mbs=1", "tp=8,pp=8,dp=1,mbs=1"]


def test_too_few_micro_batches_for_zero_bubble_suggest_another_schedule():
    wrong = Layout.parse("pp=8,schedule=zb,dp=128")

    near = nearest_legal(wrong, LLAMA3_405B, global_batch=512, seq_len=8192)

    assert near[0] == Layout.parse("pp=8,schedule=1f1b,dp=128")


@given(
    tp=st.integers(1, 24), pp=st.integers(1, 16), dp=st.integers(1, 12), cp=st.integers(1, 4), mbs=st.integers(1, 6),
    schedule=st.sampled_from(["gpipe", "1f1b", "interleaved", "zb"]), batch=st.integers(1, 96),
)  # fmt: skip
def test_what_is_suggested_is_legal_and_keeps_the_ranks(tp, pp, dp, cp, mbs, schedule, batch):
    layout = Layout(tp=tp, pp=pp, dp=dp, cp=cp, mbs=mbs, schedule=schedule)

    for near in nearest_legal(layout, MIXTRAL, global_batch=batch, seq_len=1024):
        assert illegal(near, MIXTRAL, global_batch=batch, seq_len=1024, ranks=layout.world_size) == []
        assert micro_batches(near, batch) >= 1


def test_a_legal_layout_is_its_own_nearest():
    layout = Layout.parse("tp=8,pp=8,dp=2,sp=1,zero=1")

    assert nearest_legal(layout, LLAMA3_405B, global_batch=512, seq_len=8192)[0] == layout


def test_stages_are_plain_or_interleaved():
    assert stages_fit(106, 12, 1)  # uneven
    assert stages_fit(126, 8, 8)  # embedding and output take a slot each
    assert stages_fit(61, 4, 8)  # pp alone does not divide the layers either: uneven by one
    assert not stages_fit(80, 4, 7)  # 4 stages would be even
    assert not stages_fit(61, 8, 8)  # more stages than layers
    assert not stages_fit(4, 4, 2)


def test_an_uneven_cut_names_the_virtual_stages_that_are_even():
    told = broken("pp=4,vpp=7,schedule=interleaved,dp=1", Sizes(80, 64, 8, 28672), global_batch=16)

    assert told == [
        "vpp: pp x vpp = 28 divides neither 80 layers nor 82 (embedding and output as two); "
        "pp = 4 divides them with vpp = 2 or 4 or 5 or 10 or 20"
    ]


def test_experts_folded_over_tensor_parallelism_are_legal():
    folded = Layout.parse("tp=2,dp=4,ep=8")

    assert (folded.expert_tp, folded.is_folded) == (1, True)
    assert broken("tp=2,dp=4,ep=8", MIXTRAL) == []
    assert broken("tp=4,dp=4,ep=8,etp=2", MIXTRAL) == []
    assert not Layout.parse("tp=2,dp=8,ep=8").is_folded
    with pytest.raises(InputError, match=r"ep: 8 does not divide dp x cp x tp / etp = 4"):
        Layout.parse("tp=4,dp=2,ep=8,etp=2")
    with pytest.raises(InputError, match="etp: expected a divisor of tp = 4, got 3"):
        Layout.parse("tp=4,etp=3")
    assert "etp: 1, but the model has no experts" in broken("tp=2,etp=1", LLAMA3_405B)


def test_our_own_engine_does_not_fold_experts():
    with pytest.raises(InputError, match="folded over tp"):
        check_runnable(Layout.parse("tp=2,dp=4,ep=8"))


def test_the_layouts_near_one_with_copies_have_as_many_copies_as_divide_their_ranks():
    near = nearest_legal(Layout(tp=3, dp=4, zero=3, replicas=2), MIXTRAL, global_batch=12, seq_len=128, count=20)

    assert {(layout.dp * layout.cp, layout.replicas) for layout in near} >= {(3, 1), (6, 2), (12, 2)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tp=3,dp=1", "tp x cp x dp x pp = 3, but there are 8 ranks; nearest legal: tp=4,dp=2,mbs=1"),
        ("tp=3", "tp x cp x pp = 3 does not divide the 8 ranks; nearest legal: tp=4,dp=2,mbs=1"),
        ("tp=16", "tp x cp x pp = 16 does not divide the 8 ranks; nearest legal: tp=8,dp=1,mbs=1"),
        ("mbs=4,dp=8", "does not divide the global batch of 16; nearest legal: "),
        ("tq=3", "did you mean tp"),
    ],
)
def test_a_text_that_names_no_legal_layout_is_refused_with_the_rule_and_the_nearest_legal_ones(text, message):
    with pytest.raises(InputError) as refused:
        legal_layout(text, MIXTRAL, global_batch=16, seq_len=128, ranks=8)

    assert message in str(refused.value)


def test_a_micro_batch_that_is_left_out_may_be_the_whole_share_but_for_pipelines():
    def chosen(text):
        return legal_layout(text, MIXTRAL, global_batch=16, seq_len=128, ranks=8, whole_share=True).mbs

    assert (chosen("dp=8"), chosen("dp=8,mbs=1"), chosen("pp=4,dp=2")) == (2, 1, 1)


@pytest.mark.parametrize(
    ("text", "batch", "told"),
    [
        ("dp=6,pp=2,mbs=2", 100, "; or as it is with a global batch of 96 or 108"),
        ("dp=6,pp=2,mbs=2", 5, "; or as it is with a global batch of 12"),
        # micro-batches that go round virtual stages come in multiples of the stages
        ("dp=3,pp=4,vpp=2,schedule=interleaved,mbs=1", 20, "; or as it is with a global batch of 12 or 24"),
    ],
)
def test_a_batch_that_a_layout_does_not_divide_is_refused_with_the_nearest_that_it_does(text, batch, told):
    with pytest.raises(InputError) as refused:
        legal_layout(text, MIXTRAL, global_batch=batch, seq_len=128, ranks=12)

    assert str(refused.value).endswith(told)


def test_no_other_batch_is_offered_where_a_layout_breaks_another_rule_too():
    with pytest.raises(InputError) as refused:
        legal_layout("tp=3,dp=4", MIXTRAL, global_batch=10, seq_len=128, ranks=12)

    assert "with a global batch of" not in str(refused.value)
