"""Programs that hand a training on, to Ray's workers and Modal's containers: what is started, and where."""

import pytest

from meshwright.errors import InputError
from tests.unit.jobs.test_strangers import job

RAY = """from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments


def train(config):
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B")
    tokens = AutoTokenizer.from_pretrained("Qwen/Qwen3-8B")("text", truncation=True, max_length=2048)
    args = TrainingArguments("out", per_device_train_batch_size=config["batch"], bf16=True, fsdp="full_shard")
    Trainer(model=model, args=args).train()


scaling = ScalingConfig(num_workers=12, use_gpu=True{more})
TorchTrainer(train, train_loop_config={{"batch": 2}}, scaling_config=scaling).fit()
"""


def test_the_function_that_ray_s_trainer_is_handed_trains_on_its_workers(tmp_path):
    found = job(tmp_path, {"go.py": RAY.format(more="")})

    assert (found.world, found.layout.zero, found.layout.mbs, found.global_batch) == (12, 3, 2, 24)
    assert (found.model_name, found.seq_len) == ("Qwen/Qwen3-8B", 2048)


@pytest.mark.parametrize(
    ("asked", "loop", "passes"),
    [
        ('config.get("passes", 5)', '"passes": 3', 3),
        ('config.get("passes", 5)', '"other": 3', 5),
        ('config.copy().pop("passes")', '"passes": 3', 3),
        ('config.setdefault("passes", 6)', '"other": 3', 6),
        ('{**config, "passes": 4}.get("passes", 1)', '"passes": 3', 4),
        ("dict(config).get('passes', 1)", '"passes": 3', 3),
    ],
)
def test_what_a_program_asks_of_a_mapping_is_what_stands_in_it_or_the_default(tmp_path, asked, loop, passes):
    text = RAY.format(more="").replace("bf16=True,", f"bf16=True, gradient_accumulation_steps={asked},")

    found = job(tmp_path, {"go.py": text.replace('"batch": 2', f'"batch": 2, {loop}')})

    assert found.global_batch == 12 * 2 * passes


@pytest.mark.parametrize("loop", ['**elsewhere, "batch": 2', '"batch": 2, **elsewhere'])
def test_a_default_is_no_answer_where_a_mapping_may_hold_more(tmp_path, loop):
    text = RAY.format(more="").replace("bf16=True,", 'bf16=True, gradient_accumulation_steps=config.get("n", 1),')

    with pytest.raises(InputError, match=r"gradient_accumulation_steps \(config.get\('n', 1\)\): is not set"):
        job(tmp_path, {"go.py": text.replace('"batch": 2', loop)})


def test_settings_behind_which_unknown_ones_are_spread_are_said_to_stay(tmp_path):
    found = job(tmp_path, {"go.py": RAY.format(more="").replace('"batch": 2', '"batch": 2, **elsewhere')})

    assert found.layout.mbs == 2
    assert "go.py: **elsewhere sets none of batch" in found.assumed


@pytest.mark.parametrize("more", [', resources_per_worker={"GPU": 2}', ", resources_per_worker=per_worker()"])
def test_workers_with_other_than_one_gpu_leave_the_ranks_open(tmp_path, more):
    assert job(tmp_path, {"go.py": RAY.format(more=more)}).asked == ("--gpus", "--global-batch")


def test_a_loop_of_one_s_own_under_ray_is_refused_by_name(tmp_path):
    text = "from ray.train.torch import TorchTrainer\n\ndef loop():\n    step()\n\nTorchTrainer(loop).fit()\n"

    with pytest.raises(InputError, match="this starts Ray Train beyond TrainingArguments, which is not read"):
        job(tmp_path, {"go.py": text})


MODAL = """import subprocess

import modal

app = modal.App("tune")
GPUS = 4


@app.function(gpu="L40S")
def look():
    subprocess.run(["nvidia-smi"])


@app.function(gpu=f"H100:{{GPUS}}", timeout=3600){cluster}
def train():
    subprocess.run({command}, check=True)


@app.local_entrypoint()
def main():
    train.remote()
"""
WORDS = '["torchrun", "--nproc-per-node", str(GPUS), "tune.py", "--per_device_train_batch_size", "2", "--bf16", '
WORDS += '"--model_name_or_path", "Qwen/Qwen3-8B", "--max_length", "1024"]'


def test_a_function_of_modal_starts_its_command_on_the_gpus_that_it_asks_for(tmp_path):
    found = job(tmp_path, {"go.py": MODAL.format(command=WORDS, cluster="")})

    assert (found.world, found.layout.mbs, found.global_batch, found.machines) == (4, 2, 8, "H100")


def test_containers_of_a_cluster_are_nodes(tmp_path):
    cluster = "\n@modal.experimental.clustered(size=3)"

    assert job(tmp_path, {"go.py": MODAL.format(command=WORDS, cluster=cluster)}).world == 12


def test_a_function_of_modal_that_trains_without_a_command_is_refused_by_name(tmp_path):
    with pytest.raises(InputError, match="a function of Modal's that starts no command, which is not read"):
        job(tmp_path, {"go.py": MODAL.format(command="command()", cluster="").replace('["nvidia-smi"]', "look")})


def test_functions_that_ask_for_different_gpus_leave_them_open(tmp_path):
    text = MODAL.format(command=WORDS.replace("str(GPUS)", '"gpu"'), cluster="")
    text = text.replace('["nvidia-smi"]', '["python", "fetch.py"]')

    assert (job(tmp_path, {"go.py": text}).world, job(tmp_path, {"go.py": text}).machines) == (None, None)
