"""Accumulation under Accelerate's FSDP: whole gradients between the passes of a step are priced, and said."""

import pytest

from tests.unit.jobs.test_strangers import job

YAML = """distributed_type: FSDP
mixed_precision: bf16
num_machines: 1
num_processes: 4
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: RESHARD
"""
RUN = "accelerate launch --config_file a.yaml tune.py --model_name_or_path Qwen/Qwen2.5-1.5B --bf16 --block_size 512"


@pytest.mark.parametrize(("steps", "more", "told"), [(4, "", True), (1, "", False), (4, "--use_peft", False)])
@pytest.mark.parametrize("reshard", ["true", "false"])
def test_gradients_that_add_up_whole_are_told_with_their_bytes(tmp_path, steps, more, told, reshard):
    run = f"{RUN} --per_device_train_batch_size 1 --gradient_accumulation_steps {steps} {more}\n"

    found = job(tmp_path, {"run.sh": run, "a.yaml": YAML.replace("RESHARD", reshard)}, str(tmp_path / "run.sh"))

    listed = [text for text in found.notes if "no_sync of FSDP" in text]
    assert bool(listed) is told
    assert not told or "up to 2.88 GiB, which is priced" in listed[0]
    assert "no-sync" in found.traits  # of adapters too, whose gradients are few, and of layouts with more passes


@pytest.mark.parametrize("value", ['{"gradient_accumulation_kwargs": {"sync_each_batch": true}}', "own.json"])
def test_a_switch_in_a_word_or_a_file_of_its_own_keeps_gradients_sharded(tmp_path, value):
    files = {
        "run.sh": f"{RUN} --gradient_accumulation_steps 4 --accelerator_config '{value}'\n",
        "a.yaml": YAML.replace("RESHARD", "true"),
        "own.json": '{"gradient_accumulation_kwargs": {"sync_each_batch": true}}',
    }

    found = job(tmp_path, files, str(tmp_path / "run.sh"))

    assert "no-sync" not in found.traits
    assert not [text for text in (*found.ignored, *found.notes) if "accelerator_config" in text or "no_sync" in text]


def test_a_program_that_reduces_after_each_pass_holds_no_whole_gradients(tmp_path):
    program = """from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
args = TrainingArguments(
    "out", per_device_train_batch_size=1, gradient_accumulation_steps=2, bf16=True, fsdp="full_shard", max_length=512,
    accelerator_config={"gradient_accumulation_kwargs": {"sync_each_batch": SYNC}},
)
Trainer(model=model, args=args).train()
"""
    found = [
        job(tmp_path, {"own.py": program.replace("SYNC", word)}, str(tmp_path / "own.py"), gpus=4).notes
        for word in ("False", "True")
    ]

    assert [any("no_sync of FSDP" in text for text in texts) for texts in found] == [True, False]
