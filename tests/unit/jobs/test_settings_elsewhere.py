"""Settings of Hugging Face's jobs that stand in neither words nor files: the environment, and defaults of flags."""

import pytest

from tests.unit.jobs.test_strangers import job

WORDS = "--model_name_or_path Qwen/Qwen3-1.7B --per_device_train_batch_size 3 --gradient_accumulation_steps 5 --bf16 1"
FLAGS = """from dataclasses import dataclass, field
import transformers

@dataclass
class Texts:
    train_file: str = None
    {texts}

@dataclass
class Settings(transformers.TrainingArguments):
    optim: str = field(default="adafactor")
    {settings}

def main():
    first, second = transformers.HfArgumentParser((Texts, Settings)).parse_args_into_dataclasses()
    transformers.Trainer(model=load(), args=second).train()

main()
"""


def launched(folder, exports, words=f"{WORDS} --block_size 1024", launcher="torchrun --nproc_per_node 8"):
    return job(folder, {"go.sh": f"{exports}\n{launcher} own.py {words}\n"})


@pytest.mark.parametrize(
    ("exports", "zero", "offload"),
    [
        ("export ACCELERATE_USE_FSDP=1", 3, "none"),
        ("export ACCELERATE_USE_FSDP=true FSDP_SHARDING_STRATEGY=2", 2, "none"),
        ("export ACCELERATE_USE_FSDP=true FSDP_VERSION=2 FSDP_RESHARD_AFTER_FORWARD=false", 2, "none"),
        ("export ACCELERATE_USE_FSDP=True FSDP_OFFLOAD_PARAMS=true", 3, "parameters"),
        ("export ACCELERATE_USE_FSDP=false FSDP_SHARDING_STRATEGY=FULL_SHARD", 0, "none"),
        ("ACCELERATE_USE_FSDP=true", 0, "none"),  # which no program sees
        ("export ACCELERATE_USE_DEEPSPEED=true ACCELERATE_DEEPSPEED_ZERO_STAGE=1", 1, "none"),
        (
            "export ACCELERATE_USE_DEEPSPEED=true ACCELERATE_DEEPSPEED_ZERO_STAGE=2 "
            "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE=cpu",
            2,
            "optimizer",
        ),
    ],
)
def test_what_accelerate_takes_from_the_environment_shards_the_states(tmp_path, exports, zero, offload):
    found = launched(tmp_path, exports)

    assert (found.layout.zero, found.layout.dp, found.layout.offload or "none") == (zero, 8, offload)


def test_a_word_of_the_launcher_counts_before_the_environment(tmp_path):
    launcher = "accelerate launch --num_processes 4 --use_fsdp --fsdp_sharding_strategy NO_SHARD"
    exports = "export ACCELERATE_USE_FSDP=true FSDP_SHARDING_STRATEGY=FULL_SHARD ACCELERATE_MIXED_PRECISION=fp8"

    found = launched(tmp_path, exports, launcher=launcher)

    assert (found.layout.zero, found.precision) == (0, "bf16")


def test_the_precision_of_the_environment_is_that_of_a_program_without_a_word_of_it(tmp_path):
    words = f"{WORDS} --block_size 1024".replace("--bf16 1", "")

    assert launched(tmp_path, "export ACCELERATE_MIXED_PRECISION=fp16", words).precision == "fp16"


def test_defaults_of_a_programs_own_flags_count_where_nothing_says_them(tmp_path):
    program = FLAGS.format(texts="max_seq_length: int = field(default=640)", settings="")
    found = job(tmp_path, {"go.sh": f"torchrun --nproc_per_node 8 own.py {WORDS}\n", "own.py": program})

    assert (found.seq_len, found.optimizer) == (640, "adafactor")
    assert "optim adafactor, max_seq_length 640 (the default of the flag in own.py)" in found.assumed


def test_a_word_counts_before_the_default_of_any_flag_for_the_length(tmp_path):
    program = FLAGS.format(texts="max_seq_length: int = 640", settings="")
    words = f"{WORDS} --model_max_length 2048 --optim adamw_torch"
    found = job(tmp_path, {"go.sh": f"torchrun --nproc_per_node 8 own.py {words}\n", "own.py": program})

    assert (found.seq_len, found.optimizer) == (2048, "")  # AdamW
    assert not any("default of the flag" in told for told in found.assumed)


def test_two_flags_for_the_length_with_different_defaults_are_asked_for(tmp_path):
    program = FLAGS.format(texts="max_seq_length: int = 640", settings="model_max_length: int = 512")
    found = job(tmp_path, {"go.sh": f"torchrun --nproc_per_node 8 own.py {WORDS}\n", "own.py": program})

    assert found.seq_len is None


def test_defaults_of_argparse_count_too(tmp_path):
    program = """import argparse
from transformers import Trainer, TrainingArguments
parser = argparse.ArgumentParser()
parser.add_argument("--max-seq-length", type=int, default=2 * 384)
parser.add_argument("--data", default="text")
words = parser.parse_args()
args = TrainingArguments(output_dir="out", per_device_train_batch_size=2)
Trainer(model=load(), args=args).train()
"""
    text = "torchrun --nproc_per_node 8 own.py --model_name_or_path Qwen/Qwen3-1.7B\n"
    found = job(tmp_path, {"go.sh": text, "own.py": program})

    assert found.seq_len == 768


@pytest.mark.parametrize("call", ['HfArg(default=640, help="of a row")', "Field(640)", "pydantic.Field(default=640)"])
def test_the_default_of_a_field_is_read_whatever_makes_the_field(tmp_path, call):
    program = FLAGS.format(texts=f"max_seq_length: int = {call}", settings="")
    found = job(tmp_path, {"go.sh": f"torchrun --nproc_per_node 8 own.py {WORDS}\n", "own.py": program})

    assert found.seq_len == 640
