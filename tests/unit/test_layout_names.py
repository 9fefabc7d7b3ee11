"""Keys of a layout under other engines' names."""

import pytest

from meshwright.errors import InputError
from meshwright.layout import Layout
from meshwright.plan.analytic.conditions import parse_conditions


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("fsdp=8", "dp=8,zero=3"),
        ("dp_shard=8,tp=2,sequence_parallel=true", "dp=8,tp=2,sp=1,zero=3"),
        ("dp_replicate=2,dp_shard=8", "dp=16,replicas=2,zero=3"),
        ("data_parallel_replicate_degree=4,data_parallel_shard_degree=1", "dp=4"),
        ("dp_shard=8,zero=2", "dp=8,zero=2"),  # as with reshard_after_forward off
        ("dp_replicate=2,dp_shard=2,cp=4", "dp=4,cp=4,replicas=2,zero=3"),
        ("tensor-model-parallel-size=4,pipeline-model-parallel-size=2,dp=2", "tp=4,pp=2,dp=2"),
        ("tp_size=2,PP_SIZE=2,micro_batch_size=4", "tp=2,pp=2,mbs=4"),
        ("ddp=8", "dp=8"),
        ("--use-distributed-optimizer=true,dp=4", "dp=4,zero=1"),
        ("use_distributed_optimizer=false,dp=4", "dp=4,zero=0"),
        ("dp_shard=8,local_batch_size=2", "dp=8,mbs=2,zero=3"),
        ("pp=2,schedule=Interleaved1F1B,vpp=2", "pp=2,schedule=interleaved,vpp=2"),
        ("dp=8 mbs=2 zero=3", "dp=8,mbs=2,zero=3"),
        ("dp = 8; mbs = 2;", "dp=8,mbs=2"),
        ("TP4 PP2 DP8", "tp=4,pp=2,dp=8"),
        ("tp2-dp4", "tp=2,dp=4"),
        ("TP2/PP2/VP4/DP8", "tp=2,pp=2,vpp=4,dp=8"),
        ("t=8,p=2,d=4,v=3", "tp=8,pp=2,dp=4,vpp=3"),
        ("TP=2,Dp=4,ZeRO=1", "tp=2,dp=4,zero=1"),
    ],
)
def test_names_of_other_engines_are_read_as_what_they_are(theirs, ours):
    assert Layout.parse(theirs) == Layout.parse(ours)


def test_shards_of_torchtitan_take_the_ranks_that_are_left():
    assert Layout.parse("dp_shard=-1,tp=2", world_size=16) == Layout(dp=8, tp=2, zero=3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fsdp=8,dp=2", "dp is the product of fsdp"),
        ("fsdp=8,dp_shard=8", "fsdp and dp_shard say the same"),
        ("fsdp=8,zero=1", "zero=1 shards no weights; expected zero=2 or 3, or dp=8"),
        ("tp=2,tp_size=4", "tp is given twice, once as tp_size"),
        ("dp_shard=many", "dp_shard=many: expected a whole number"),
        ("dp_replicate=-1", "expected the copies as a number"),
        ("t=2,d=4,b=16", "mbs=N says the sequences of a micro-batch"),
        ("dq=2", "expected KEY=VALUE with a known key"),
        ("zero=true,dp=2", "zero: Expected `int`, got `str`"),
        ("local_batch_size=8,pp=2", "local_batch_size: a pipeline cuts it into micro-batches; expected mbs"),
        ("hsdp=4x8", "say dp_replicate=COPIES,dp_shard=RANKS"),
        ("ulysses_size=8", "cp=N prices a ring"),
        ("pp=4,num-layers-per-virtual-pipeline-stage=2", "say vpp, the stages of a pipeline rank: layers / pp"),
        ("tensor_paralell_size=2", r"did you mean tp\?"),
        ("fsdpp=8", r"did you mean fsdp\?"),
        ("dp_shards=8", r"did you mean dp_shard\?"),
        ("dp_replicates=2,dp_shard=4", r"did you mean dp_replicate\?"),
        ("dp=8 mbs", "'mbs': expected KEY=VALUE with a known key"),
        ("tp=two,dp=4", "tp: expected a whole number, got 'two'"),
        ("dp=8.0", r"dp: expected a whole number, got '8\.0'"),
        ("dp=-1", "dp: expected a whole number, got '-1'"),
        ("recompute=fully", r"recompute: 'fully' is none of its values \(did you mean full"),
        ("schedule=zerobubbly", r"none of its values \(known: 1f1b, gpipe, interleaved, zb\)"),
        ("schedule=DualPipe", r"schedule=DualPipe: .*--stack deepseek .*schedule=zb"),
        ("zero=4", r"zero: '4' is none of its values \(known: 0, 1, 2, 3\)"),
    ],
)
def test_what_is_said_twice_or_is_no_number_is_an_error_that_names_it(text, said):
    with pytest.raises(InputError, match=said):
        Layout.parse(text)


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("cp=4,dp_shard=1", "dp=1,cp=4,mbs=1,zero=3"),
        ("context_parallel_degree=2,data_parallel_shard_degree=1,dp_replicate=2", "dp=2,cp=2,mbs=1,zero=3,replicas=2"),
        ("cp=4,dp_shard_size=1,zero=2", "dp=1,cp=4,mbs=1,zero=2"),
        ("tp=4,dp_shard=1", "tp=4,dp=1,mbs=1"),
        ("cp=4,fsdp=1", "dp=1,cp=4,mbs=1"),
    ],
)
def test_a_mesh_of_one_shard_cuts_weights_over_the_ranks_of_a_sequence(text, own):
    assert str(Layout.parse(text)) == own


def test_conditions_know_the_names_too_and_say_how_shards_are_asked_for():
    assert parse_conditions(["tp_size=2"], [])[0].name == "tp"
    with pytest.raises(InputError, match="say it as dp, replicas and zero"):
        parse_conditions(["dp_shard=8"], [])
