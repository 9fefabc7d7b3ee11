"""OpenRLHF: its supervised fine-tuning is read by its flags, its other programs are refused by its name."""

import pytest

from meshwright.errors import InputError
from tests.unit.jobs.test_strangers import job

START = "deepspeed --num_gpus 8 --module openrlhf.cli.train_sft --pretrain Qwen/Qwen3-8B --bf16 "


def layout(found) -> tuple:
    return found.layout.zero, found.layout.mbs, found.global_batch, found.seq_len


@pytest.mark.parametrize(
    ("start", "flags", "told"),
    [
        (START, "--max_len 4096 --train_batch_size 64 --micro_train_batch_size 2 --zero_stage 3", (3, 2, 64, 4096)),
        (START, "--max_len 1024", (2, 8, 128, 1024)),  # its defaults
        (START.replace("--module openrlhf.cli.train_sft", "../train_sft.py"), "--max_len 512", (2, 8, 128, 512)),
    ],
)
def test_supervised_fine_tuning_is_read_by_its_own_flags(tmp_path, start, flags, told):
    found = job(tmp_path, {"sft.sh": f"{start}{flags} --lora_rank 0 --dataset d --max_epochs 1\n"})

    assert layout(found) == told
    assert (found.engine, found.world, found.lora_rank, found.precision) == ("deepspeed", 8, 0, "bf16")
    assert not [text for text in found.ignored if "batch" in text or "len" in text]


def test_ranks_of_a_ring_and_of_tensor_parallelism_share_a_sequence(tmp_path):
    flags = "--ring_attn_size 2 --ds_tensor_parallel_size 2 --train_batch_size 16 --micro_train_batch_size 1"

    found = job(tmp_path, {"sft.sh": f"{START}{flags} --adam_offload --gradient_checkpointing --lora_rank 16"})

    assert (found.engine, found.layout.cp, found.layout.tp, found.layout.dp) == ("deepspeed", 2, 2, 2)
    assert found.global_batch == 16
    assert (found.layout.offload, found.layout.recompute, found.lora_rank) == ("optimizer", "full", 16)


def test_a_program_that_trains_beside_another_model_is_refused_by_name_wherever_it_lies(tmp_path):
    script = "deepspeed ../train_dpo.py --pretrain Qwen/Qwen3-8B --micro_train_batch_size 1 --zero_stage 3\n"

    with pytest.raises(InputError, match="this starts OpenRLHF, which is not read"):
        job(tmp_path, {"dpo.sh": script})


def test_flags_in_sections_are_those_without(tmp_path):
    text = """DS=${DS:-$(command -v deepspeed)}
cmd=("$DS" --num_gpus 8 --module openrlhf.cli.train_sft --model.model_name_or_path Qwen/Qwen3-8B
  --data.max_len 8192 --train.batch_size 32 --train.micro_batch_size 2 --ds.zero_stage 3 --ds.adam_offload
  --model.gradient_checkpointing_enable --logger.wandb.key k --ckpt.save_steps 10)
"${cmd[@]}"
"""

    found = job(tmp_path, {"sft.sh": text})

    assert layout(found) == (3, 2, 32, 8192)
    assert (found.world, found.precision, found.layout.recompute, found.layout.offload) == (
        8,
        "bf16",
        "full",
        "optimizer",
    )
    assert not [text for text in found.ignored if "wandb" in text or "save" in text]
