"""Jobs that no engine starts: both sides of the contradiction are named, and nothing is priced."""

import pytest

from meshwright.errors import InputError
from tests.unit.jobs.test_strangers import MEGATRON, job

RUN = "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py "
EXPERTS = " --num-experts 6 --moe-router-topk 2"
STATES = " --use-distributed-optimizer"
INTERLEAVED = (
    " --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2 --tensor-model-parallel-size 2"
)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (
            " --tensor-model-parallel-size 16 --num-attention-heads 40 --hidden-size 2560",
            "40 attention heads do not divide by .*-size 16",
        ),
        (f"{EXPERTS} --expert-model-parallel-size 4", "6 experts do not divide by expert-model-parallel-size 4"),
        (" --expert-model-parallel-size 2", "expert-model-parallel-size 2: the model has no experts"),
        (" --context-parallel-size 4 --seq-length 1028", r"1,028 tokens do not divide by 2 x context-parallel-size 4"),
        (f"{INTERLEAVED} --global-batch-size 12", "6 micro-batches a step over .* expected a multiple of 4"),
        (" --rampup-batch-size 8 8 1000", "-size 8 8 1000: a batch of 8 .* micro-batch x dp = 16 sequences"),
        (" --rampup-batch-size 16 32 1000", "16 32 1000: from 16 to 64 expected whole steps of 32"),
        (" --rampup-batch-size 16 16", "rampup-batch-size: expected three whole numbers"),
        (" --fp16", "bf16 contradicts fp16"),
        (" --fp8-format hybrid --fp4-format e2m1", "fp8-format contradicts fp4-format"),
        (" --max-position-embeddings 512", "max-position-embeddings 512 is less than seq-length 1024"),
        (" --use-torch-fsdp2 --pipeline-model-parallel-size 2", "use-torch-fsdp2 contradicts pipeline-model"),
        (" --context-parallel-size 8 --hierarchical-context-parallel-sizes 2 2", "sizes 2 x 2 contradicts context-par"),
        (" --tensor-model-parallel-size 2 --data-parallel-size 4", "-size 2 x data-parallel-size 4 = 8 on"),
        (
            " --overlap-grad-reduce --overlap-param-gather",
            "overlap-param-gather needs use-distributed-optimizer or use-megatron-fsdp",
        ),
        (f"{STATES} --overlap-param-gather", "overlap-param-gather needs overlap-grad-reduce"),
        (" --fp8-format hybrid --fp8-param-gather", "fp8-param-gather needs use-distributed-optimizer or"),
        (f"{STATES} --optimizer-cpu-offload", "optimizer-cpu-offload needs use-precision-aware-optimizer"),
        (f" --use-torch-fsdp2{STATES}", "use-torch-fsdp2 contradicts use-distributed-optimizer"),
        (" --recompute-granularity full --recompute-num-layers 1", "granularity full needs recompute-method block or"),
        (
            " --recompute-granularity selective --recompute-method uniform",
            "recompute-granularity selective contradicts recompute-method",
        ),
        (
            f"{EXPERTS} --expert-model-parallel-size 2 --tensor-model-parallel-size 2",
            "expert-model-parallel-size 2 .* beside tensor-model-parallel-size 2 .* needs sequence-parallel",
        ),
    ],
)
def test_what_megatron_cannot_start_is_refused_with_both_sides(tmp_path, more, why):
    with pytest.raises(InputError, match=why):
        job(tmp_path, {"run.sh": RUN + MEGATRON + more})


@pytest.mark.parametrize(
    "more",
    [
        " --tensor-model-parallel-size 4",
        f"{EXPERTS.replace('6', '8')} --expert-model-parallel-size 4",
        " --context-parallel-size 4",
        " --rampup-batch-size 16 16 1_000",
        " --rampup-batch-size $START 8 1000",
        " --rampup-batch-size 8 8 1000 --decrease-batch-size-if-needed",
        f"{INTERLEAVED} --global-batch-size 16",
        f"{INTERLEAVED} --global-batch-size 20 --microbatch-group-size-per-virtual-pipeline-stage 5",
        " --context-parallel-size 4 --hierarchical-context-parallel-sizes 2 2",
        " --max-position-embeddings 2048",
        f"{STATES} --overlap-grad-reduce --overlap-param-gather",
        " --overlap-grad-reduce --overlap-param-gather --use-megatron-fsdp",
        " --overlap-grad-reduce --overlap-param-gather $(cat more.txt)",  # the words of the file may switch it on
        " --recompute-granularity full --recompute-method block --recompute-num-layers 2",
        f"{EXPERTS} --expert-model-parallel-size 2 --tensor-model-parallel-size 2 --sequence-parallel",
    ],
)
def test_what_megatron_starts_is_read(tmp_path, more):
    assert job(tmp_path, {"run.sh": RUN + MEGATRON + more}).world == 16


def test_arguments_of_a_yaml_need_each_other_as_flags_do(tmp_path):
    settings = {"micro_batch_size": 1, "overlap_grad_reduce": "true", "overlap_param_gather": "true", "bf16": "true"}
    settings |= {"num_layers": 16, "hidden_size": 2048, "num_attention_heads": 16, "seq_length": 1024}
    text = "".join(f"{key}: {value}\n" for key, value in {**settings, "vocab_size": 32000}.items())
    script = "torchrun --nproc_per_node 8 pretrain_gpt.py --yaml-cfg all.yaml\n"

    with pytest.raises(InputError, match="overlap-param-gather needs use-distributed-optimizer"):
        job(tmp_path, {"run.sh": script, "all.yaml": text})
    assert job(tmp_path, {"run.sh": script, "all.yaml": f"{text}use_distributed_optimizer: true\n"}).layout.zero == 1


def test_an_overlap_that_needs_sequence_parallelism_is_not_priced_without_it(tmp_path):
    found = job(tmp_path, {"run.sh": RUN + MEGATRON + " --tensor-model-parallel-size 2 --tp-comm-overlap"})

    assert found.traits == ("dp-waits",)
    assert any("tp-comm-overlap" in note for note in found.notes)


def test_heads_are_whole_on_ranks_of_torchtitan_too(tmp_path):
    toml = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = 4096\n'
    toml += "[parallelism]\ntensor_parallel_degree = 3\n"
    with pytest.raises(InputError, match="32 attention heads do not divide by .*tensor_parallel_degree 3"):
        job(tmp_path, {"a.toml": toml}, gpus=6)


def test_a_batch_of_nemo_grows_by_whole_passes_too(tmp_path):
    yaml = "trainer: {devices: 8, num_nodes: 2}\nmodel: {micro_batch_size: 2, global_batch_size: 64, num_layers: 8,"
    yaml += " hidden_size: 512, num_attention_heads: 8, encoder_seq_length: 512, rampup_batch_size: [RAMP]}\n"

    assert job(tmp_path, {"a.yaml": yaml.replace("RAMP", "32, 32, 5000")}).global_batch == 64
    with pytest.raises(InputError, match="a batch of 16 on the way is not a multiple"):
        job(tmp_path, {"a.yaml": yaml.replace("RAMP", "16, 16, 5000")})


def test_groups_of_queries_need_their_switch_among_flags(tmp_path):
    alone = job(tmp_path, {"run.sh": f"{RUN}{MEGATRON} --num-query-groups 4"})
    both = job(tmp_path, {"run.sh": f"{RUN}{MEGATRON} --num-query-groups 4 --group-query-attention"})

    assert (alone.architecture.num_key_value_heads, both.architecture.num_key_value_heads) == (16, 4)
    assert any("num-query-groups 4 (run.sh) has no effect" in note for note in alone.notes)


def test_a_deepspeed_file_that_is_not_here_is_said(tmp_path):
    found = job(tmp_path, {"run.sh": f"{RUN}{MEGATRON} --deepspeed --zero-stage 1 --deepspeed_config a.json"})

    assert "a.json is not here: states and precision are what the flags say" in found.assumed


STAGED = (
    "torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16"
    " --seq-length 2048 --max-position-embeddings 2048 --bf16 --vocab-size 32000 --tensor-model-parallel-size 2"
    " --pipeline-model-parallel-size 4 --micro-batch-size 4"
)  # dp 4


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (
            " --global-batch-size 500",
            r"16 sequences a pass; nearest: a batch of 496 or 512, or a micro-batch of 1 or 5(;|$)",
        ),
        (" --global-batch-size 10", r"16 sequences a pass; nearest: a batch of 16(;|$)"),
        (
            " --global-batch-size 500 --num-layers-per-virtual-pipeline-stage 3",
            r"a batch of 448 or 512, or a micro-batch of 1 or 5 without virtual stages \(125 and 25 micro-",
        ),
        (
            " --global-batch-size 496 --num-layers-per-virtual-pipeline-stage 3",
            r"31 micro-batches .* expected a multiple of 4; nearest: a batch of 448 or 512, or a micro-batch of 1(;|$)",
        ),
    ],
)
def test_a_batch_that_is_no_whole_passes_has_the_nearest_that_are_beside_it(tmp_path, more, why):
    with pytest.raises(InputError, match=why):
        job(tmp_path, {"run.sh": STAGED + more})
