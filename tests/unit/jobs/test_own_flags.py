"""Flags of programs of their own say adapters, recomputation, stages and split sequences by their names."""

import pytest

from meshwright.errors import InputError
from tests.unit.jobs.test_strangers import job

START = "torchrun --nproc_per_node 8 tune.py --model_name_or_path Qwen/Qwen3-8B --bf16 --max_length 2048 "
TRAINER = "--per_device_train_batch_size 2 "
STAGES = '{"train_micro_batch_size_per_gpu": 1, "train_batch_size": 32, "bf16": {"enabled": true}}'


@pytest.mark.parametrize(
    ("flags", "rank"),
    [
        ("--use_lora --lora_r 32", 32),
        ("--use_lora True --lora_dim 4", 4),
        ("--include_expert_lora true --rank 64 --alpha 128", 64),
        ("--tuning lora --rank 16", 16),
        ("--use_lora False --rank 64", 0),
        ("--rank 3", 0),  # of a process
        ("--run_name lora", 0),
        ("--output lora --merge_lora --no_lora --rank 3", 0),
        ("--lora_r 0", 0),
    ],
)
def test_adapters_are_read_by_the_names_of_a_programs_flags(tmp_path, flags, rank):
    assert job(tmp_path, {"run.sh": f"{START}{TRAINER}{flags}\n"}).lora_rank == rank


def test_adapters_of_no_rank_are_asked_for_and_not_priced_as_all_weights(tmp_path):
    files = {"run.sh": f"{START}{TRAINER}--use_lora\n"}

    with pytest.raises(InputError, match=r"use_lora True.*--job lora_r=N"):
        job(tmp_path, files)
    assert job(tmp_path, files, str(tmp_path / "run.sh"), "lora_r=8").lora_rank == 8


def test_adapters_of_experts_that_are_not_priced_are_said(tmp_path):
    found = job(tmp_path, {"run.sh": f"{START}{TRAINER}--include_expert_lora true --rank 64\n"})

    assert any("adapters of routed experts are not priced" in text for text in found.ignored)


@pytest.mark.parametrize(
    ("flag", "again", "told"),
    [
        ("--use_gradient_checkpointing", "full", ""),
        ("--grad_checkpoint true", "full", ""),
        ("--use_checkpointing", "none", "use_checkpointing may mean it"),
        ("--checkpointing_steps 100", "none", "no file switches it on"),
        ("--use_gradient_checkpointing false", "none", "no file switches it on"),
    ],
)
def test_recomputation_is_read_where_a_flag_leaves_no_doubt_of_it(tmp_path, flag, again, told):
    found = job(tmp_path, {"run.sh": f"{START}{TRAINER}{flag}\n"})

    assert found.layout.recompute == again
    assert any(told in text for text in found.assumed)


def test_stages_of_a_program_on_deepspeed_are_read_by_its_flag(tmp_path):
    text = f"{START.replace('torchrun', 'torchrun --nnodes 1')}--pipe_parallel_size 4 --deepspeed_config ds.json\n"

    found = job(tmp_path, {"run.sh": text, "ds.json": STAGES}, str(tmp_path / "run.sh"))

    assert (found.layout.pp, found.layout.dp, found.global_batch) == (4, 2, 32)
    assert any("by the name of the program's own flag" in text for text in found.assumed)


def test_sequences_that_are_split_among_ranks_of_no_number_are_asked_for(tmp_path):
    files = {"run.sh": f"{START}{TRAINER}--parallel_mode striped_ring_attention\n"}

    with pytest.raises(InputError, match="splits sequences among ranks"):
        job(tmp_path, files)
    assert job(tmp_path, files, str(tmp_path / "run.sh"), "sequence_parallel_size=8").layout.cp == 8
    files["run.sh"] = files["run.sh"].replace("striped_ring_attention", "data_parallel")
    assert job(tmp_path, files).layout.cp == 1


@pytest.mark.parametrize(
    ("start", "ranks"),
    [
        ("CUDA_VISIBLE_DEVICES=0,3 accelerate launch tune.py", 2),
        ("CUDA_VISIBLE_DEVICES=1 accelerate launch tune.py", 1),
        ("CUDA_VISIBLE_DEVICES=0,1,2 torchrun --nproc_per_node gpu tune.py", 3),
        ("CUDA_VISIBLE_DEVICES=0,1 deepspeed --num_gpus 4 tune.py --zero_stage 2", 4),  # which it then does not heed
        ("CUDA_VISIBLE_DEVICES=$FREE accelerate launch tune.py", None),
        ("CUDA_VISIBLE_DEVICES=0,1 accelerate launch --num_machines 2 tune.py", None),
    ],
)
def test_a_launcher_that_starts_a_rank_on_each_gpu_it_sees_has_the_visible_ones(tmp_path, start, ranks):
    words = "--model_name_or_path Qwen/Qwen3-8B --bf16 --max_length 2048 --per_device_train_batch_size 2"

    found = job(tmp_path, {"run.sh": f"{start} {words}\n"})

    assert found.world == ranks


@pytest.mark.parametrize("flag", ["--lora_modules_to_save lm_head", "--additional_target embed_tokens"])
def test_matrices_that_are_trained_whole_beside_adapters_are_said(tmp_path, flag):
    found = job(tmp_path, {"run.sh": f"{START}{TRAINER}--lora_r 8 {flag}\n"})

    assert [text for text in found.ignored if "their gradients and moments are not priced" in text]


def test_states_that_some_ranks_share_are_read_by_the_names_of_a_programs_flags(tmp_path):
    flags = "--tensor_parallel_degree 2 --shard_degree 2 --num_replicas 2"

    found = job(tmp_path, {"run.sh": f"{START}{TRAINER}{flags}\n"})

    assert (found.layout.tp, found.layout.dp, found.layout.replicas, found.layout.zero) == (2, 4, 2, 3)
    assert any("states that 2 ranks share: by the name of" in text for text in found.assumed)


QLORA = f"{START}{TRAINER}--lora_r 16 "


@pytest.mark.parametrize(
    ("flags", "weights"),
    [
        ("--bits 4 --double_quant --quant_type nf4", "nf4-nested"),
        ("--bits 4", "nf4-nested"),  # by the default of the program that has these flags
        ("--bits 4 --double_quant False", "nf4"),
        ("--bits 8", "int8"),
        ("--bits 16", ""),
        ("--q_lora True --double_quant True", "nf4-nested"),
        ("--use_4bit True --use_nested_quant False", "nf4"),
    ],
)
def test_bits_of_frozen_weights_are_read_by_the_names_of_a_programs_flags(tmp_path, flags, weights):
    found = job(tmp_path, {"run.sh": f"{QLORA}{flags}\n"})

    assert (found.lora_rank, found.weights) == (16, weights)
    assert not any("bits" in text or "quant" in text for text in found.ignored)


@pytest.mark.parametrize(
    ("flags", "length"),
    [
        ("--source_max_len 100 --target_max_len 28", 128),
        ("--max_source_length 64 --max_target_length 128", 192),
        ("--source_max_len 100 --target_max_len 28 --model_max_length 512", 512),
        ("--max_target_length 128", None),
    ],
)
def test_a_prompt_and_its_answer_that_have_lengths_of_their_own_make_one_row(tmp_path, flags, length):
    start = START.replace("--max_length 2048 ", "")

    assert job(tmp_path, {"run.sh": f"{start}{TRAINER}{flags}\n"}).seq_len == length


@pytest.mark.parametrize(
    ("more", "precision", "assumed"),
    [("", "fp16", True), ("--dtype bf16", "bf16", False), ("--bf16", "bf16", False), ("--fp16", "fp16", False)],
)
def test_a_deepspeed_configuration_that_a_program_makes_itself_is_of_half_precision(tmp_path, more, precision, assumed):
    words = "--model_name_or_path facebook/opt-1.3b --per_device_train_batch_size 4 --max_seq_len 512 --zero_stage 3"

    found = job(tmp_path, {"run.sh": f"deepspeed --num_gpus 8 main.py {words} {more}\n"})

    assert found.precision == precision
    assert any("--precision says another" in text for text in found.assumed) is assumed


def test_a_tower_before_the_decoder_is_said_not_to_be_priced(tmp_path):
    found = job(tmp_path, {"run.sh": f"{START}{TRAINER}--vision_tower openai/clip-vit-large-patch14\n"})

    assert any("the tower before the decoder" in text for text in found.ignored)


def test_attention_that_a_program_wants_step_by_step_is_said_to_be_priced_as_one_kernel(tmp_path):
    eager = job(tmp_path, {"run.sh": f"{START}{TRAINER}--attn_implementation eager\n"})
    fused = job(tmp_path, {"run.sh": f"{START}{TRAINER}--attn_implementation sdpa\n"})

    assert any("scores lie in memory" in text for text in eager.ignored)
    assert not any("scores" in text for text in fused.ignored)


@pytest.mark.parametrize(
    ("program", "flags", "rank", "weights"),
    [
        ("tune_qlora.py", "--lora_r 16", 16, "nf4-nested"),
        ("qlora.py", "--lora_r 16 --bits 16", 16, ""),
        ("tune_lora.py", "--lora_r 16", 16, ""),
        ("qlora.py", "--full_finetune True", 0, ""),
        ("tune_lora.py", "--use_lora False", 0, ""),
        ("tune_lora.py", "--lora_r 0", 0, ""),
        ("explora.py", "", 0, ""),
    ],
)
def test_the_name_of_a_program_says_four_bits_where_no_setting_says_any(tmp_path, program, flags, rank, weights):
    found = job(tmp_path, {"run.sh": f"{START.replace('tune.py', program)}{TRAINER}{flags}\n"})

    assert (found.lora_rank, found.weights) == (rank, weights)
    assert any("by the name of" in text for text in found.assumed) is bool(weights)


@pytest.mark.parametrize("program", ["finetune_lora.py", "tools/qlora.py"])
def test_a_program_named_after_adapters_is_asked_for_their_rank(tmp_path, program):
    with pytest.raises(InputError, match=r"lora.py, by its name, trains adapters, of a rank .*--job lora_r=N"):
        job(tmp_path, {"run.sh": f"{START.replace('tune.py', program)}{TRAINER}\n"})


@pytest.mark.parametrize("flag", ["--tune_mm_mlp_adapter True", "--pre_seq_len 128"])
def test_a_projector_or_a_prefix_that_is_trained_alone_is_said_to_be_priced_as_the_whole_model(tmp_path, flag):
    found = job(tmp_path, {"run.sh": f"{START}{TRAINER}{flag}\n"})

    assert any("priced as if none were frozen" in text for text in found.ignored)
