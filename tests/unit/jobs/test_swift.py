"""ms-swift's `swift sft`: Hugging Face's trainer with names, defaults and a launcher of its own."""

import pytest

from meshwright.errors import InputError
from tests.unit.jobs.test_strangers import job

COMMAND = "swift sft --model Qwen/Qwen2.5-7B --dataset own --max_length 2048"


def test_its_variables_say_the_ranks_and_its_names_are_the_trainers(tmp_path):
    words = " --train_type full --deepspeed zero2 --per_device_train_batch_size 2 --gradient_accumulation_steps 4"
    words += " --gradient_checkpointing false --torch_dtype bfloat16 --use_liger true"

    found = job(tmp_path, {"go.sh": f"NNODES=2 NPROC_PER_NODE=8 {COMMAND}{words}\n"})

    layout = found.layout
    assert (found.engine, found.world, layout.dp, layout.zero, layout.recompute) == ("deepspeed", 16, 16, 2, "none")
    assert (layout.mbs, found.global_batch, found.seq_len, found.precision) == (2, 128, 2048, "bf16")
    assert (found.lora_rank, found.loss) == (0, "fused")


def test_what_its_command_leaves_out_is_its_own_default_and_listed(tmp_path):
    found = job(tmp_path, {"go.sh": f"NPROC_PER_NODE=4 {COMMAND}\n"})

    layout = found.layout
    assert (found.world, found.lora_rank, found.stack, layout.zero) == (4, 8, "ms-swift", 0)
    assert (layout.mbs, found.global_batch, layout.recompute) == (1, 16, "full")  # 16 / (1 x 4 ranks) = 4 passes
    for text in ("finetuning_type lora", "gradient_checkpointing true", "gradient_accumulation_steps 4", "lora_rank 8"):
        assert any(text in said for said in found.assumed)


def test_copies_stay_whole_where_sequences_are_split(tmp_path):
    found = job(tmp_path, {"go.sh": f"NPROC_PER_NODE=4 {COMMAND} --sequence_parallel_size 2\n"})

    assert (found.layout.cp, found.layout.dp, found.layout.zero) == (2, 2, 0)


def test_passes_that_depend_on_unknown_ranks_are_asked_for(tmp_path):
    with pytest.raises(InputError, match="say gradient_accumulation_steps=N"):
        job(tmp_path, {"go.sh": f"{COMMAND}\n"})


@pytest.mark.parametrize(
    ("words", "weights"),
    [
        ("--quant_bits 4", "nf4-nested"),
        ("--quant_bits 4 --bnb_4bit_use_double_quant false", "nf4"),
        ("--quant_bits 8", "int8"),
    ],
)
def test_frozen_weights_in_few_bits_are_read_beside_adapters(tmp_path, words, weights):
    found = job(tmp_path, {"go.sh": f"NPROC_PER_NODE=2 {COMMAND} --quant_method bnb {words} --lora_rank 16\n"})

    assert (found.lora_rank, found.weights) == (16, weights)
    assert not found.ignored
