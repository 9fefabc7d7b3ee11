"""verl: its supervised fine-tuning under FSDP is read by its words, its other programs are refused by its name."""

import pytest

from meshwright.errors import InputError
from tests.unit.jobs.test_strangers import job

START = "torchrun --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer model.partial_pretrain=Qwen/Qwen3-8B "
LATER = "torchrun --nproc_per_node=8 -m verl.trainer.sft_trainer model.path=Qwen/Qwen3-8B engine=fsdp "


def layout(found) -> tuple:
    return found.layout.dp, found.layout.zero, found.layout.mbs, found.global_batch, found.seq_len


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (START, (8, 3, 4, 256, 1024)),  # its defaults
        (f"{START}data.train_batch_size=64 data.micro_batch_size_per_gpu=2 data.max_length=512", (8, 3, 2, 64, 512)),
        (f"{START}+ulysses_sequence_parallel_size=2 data.micro_batch_size_per_gpu=1", (4, 3, 1, 256, 1024)),
        (f"{LATER}data.use_dynamic_bsz=False data.max_length=2048", (8, 3, 4, 256, 2048)),
        (f"{LATER}data.max_length=2048", (8, 3, 4, 256, 2048)),  # 8192 tokens a pass
        (f"{LATER}data.max_length=4096 engine.ulysses_sequence_parallel_size=4", (2, 3, 8, 256, 4096)),
    ],
)
def test_supervised_fine_tuning_is_read_by_its_words(tmp_path, words, told):
    found = job(tmp_path, {"sft.sh": f"{words} trainer.total_epochs=2 optim.lr=1e-5 data.train_files=a.parquet\n"})

    assert layout(found) == told
    assert (found.engine, found.world, found.precision, found.weights) == ("accelerate", 8, "bf16", "fp32")
    assert not [text for text in found.ignored if "Ulysses" not in text]


def test_types_adapters_offload_and_recomputation_are_what_the_words_say(tmp_path):
    words = (
        "model.fsdp_config.model_dtype=bf16 model.lora_rank=32 model.target_modules=all-linear model.use_liger=True "
    )
    words += "model.enable_gradient_checkpointing=false model.fsdp_config.cpu_offload=True model.strategy=fsdp2 "

    found = job(tmp_path, {"sft.sh": f"{START}{words}model.fsdp_config.offload_params=True"})
    half = job(tmp_path, {"sft.sh": f"{START}{words}model.lora_rank=0"})

    assert (found.lora_rank, found.loss, found.layout.recompute, found.precision) == (32, "fused", "none", "bf16")
    assert (found.engine_version, found.layout.offload, half.layout.offload) == ("FSDP 2", "parameters", None)
    assert (half.lora_rank, half.weights, half.precision) == (0, "bf16", "bf16")


def test_a_batch_that_the_ranks_do_not_share_is_refused(tmp_path):
    with pytest.raises(InputError, match="batch_size 20 is not a multiple of .* x dp 8"):
        job(tmp_path, {"sft.sh": f"{START}data.train_batch_size=20 data.micro_batch_size_per_gpu=1\n"})


@pytest.mark.parametrize(
    "words",
    [
        "python3 -m verl.trainer.main_ppo data.train_batch_size=64",
        LATER.replace("engine=fsdp", "engine=megatron"),
        f"{START}--config-path /job --config-name ours.yaml",
    ],
)
def test_what_is_not_read_of_it_is_refused_by_its_name(tmp_path, words):
    with pytest.raises(InputError, match="this starts verl, which is not read"):
        job(tmp_path, {"run.sh": f"{words}\n"})
