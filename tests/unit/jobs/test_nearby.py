"""Files that a script names by a path are found by the end of that path, below the folder of the job or above it."""

import pytest

from meshwright.errors import InputError
from meshwright.jobs.nearby import nearby
from tests.unit.jobs.test_strangers import MEGATRON, job

TRAINER = "--per_device_train_batch_size 2 --gradient_accumulation_steps 4 --model_name_or_path Qwen/Qwen3-8B"
SHARDED = "distributed_type: FSDP\nmixed_precision: bf16\nfsdp_config:\n  fsdp_version: 2\nnum_processes: 16\n"


def test_a_configuration_is_found_in_the_folder_that_a_script_names(tmp_path):
    text = f"accelerate launch --config_file ./conf/fsdp/two.yaml tune.py {TRAINER} --max_length 2048\n"
    files = {"run.sh": text, "conf/fsdp/two.yaml": SHARDED}

    found = job(tmp_path, files, str(tmp_path / "run.sh"))

    assert (found.world, found.layout.zero, found.global_batch, found.precision) == (16, 3, 128, "bf16")
    assert found.files == ("run.sh", "two.yaml")


@pytest.mark.parametrize(
    "place", ['"$(dirname "$0")/../shared/sizes.sh"', '"$ROOT/shared/sizes.sh"', "../shared/sizes.sh"]
)
def test_a_script_that_is_sourced_is_found_beside_the_folder_of_the_one_that_sources_it(tmp_path, place):
    launch = f"torchrun --nnodes 2 --nproc_per_node $RANKS pretrain_gpt.py {MEGATRON}\n"
    files = {"launch/run.sh": f"source {place}\n{launch}", "shared/sizes.sh": "RANKS=4\n"}

    found = job(tmp_path, files, str(tmp_path / "launch/run.sh"))

    assert found.world == 8


def test_a_file_of_the_same_name_in_another_folder_is_not_taken(tmp_path):
    text = f"accelerate launch --config_file conf/two.yaml tune.py {TRAINER} --max_length 2048\n"
    files = {"jobs/run.sh": text, "two.yaml": SHARDED, "other/two.yaml": SHARDED}

    with pytest.raises(InputError, match=r"names two\.yaml, which is not here"):
        job(tmp_path, files, str(tmp_path / "jobs/run.sh"))


def test_no_file_is_taken_from_above_the_root_of_a_repository(tmp_path):
    inner = tmp_path / "repository" / "jobs"
    inner.mkdir(parents=True)
    (inner.parent / ".git").mkdir()
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "a.yaml").touch()

    assert nearby(inner, "conf/a.yaml") is None
    assert nearby(tmp_path, "/srv/elsewhere/conf/a.yaml") == tmp_path / "conf" / "a.yaml"


def test_a_name_that_no_file_can_have_is_not_here(tmp_path):
    assert nearby(tmp_path, f"conf/{'x' * 300}.yaml") is None
    assert nearby(tmp_path, "conf/a\x00b.yaml") is None
    assert nearby(tmp_path, "../..") is None


@pytest.mark.parametrize("words", ["--config recipes/small.yaml", "recipes/small.yaml"])
def test_the_arguments_of_a_program_are_in_the_file_that_its_command_names(tmp_path, words):
    recipe = (
        "model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 2\nmax_length: 1024\nlora_r: 8\nbf16: true\n"
    )
    files = {"run.sh": f"accelerate launch --num_processes 4 tune.py {words}\n", "recipes/small.yaml": recipe}

    found = job(tmp_path, files, str(tmp_path / "run.sh"))

    assert (found.model_name, found.world, found.seq_len, found.lora_rank) == ("Qwen/Qwen3-8B", 4, 1024, 8)


def test_arguments_that_are_not_here_are_named(tmp_path):
    with pytest.raises(InputError, match=r"names small\.yaml, which is not here"):
        job(tmp_path, {"run.sh": "accelerate launch --num_processes 4 tune.py --config recipes/small.yaml\n"})


def test_the_own_program_of_an_engine_takes_its_configuration_from_its_command(tmp_path):
    program = "from torchtitan.config import JobConfig\n\n\nclass Loop:\n    pass\n\n\nLoop()\n"
    toml = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\nseq_len = 4096\n'
    files = {
        "run.sh": "torchrun --nnodes 1 --nproc_per_node 8 torchtitan/train.py --job.config_file conf/own.toml\n",
        "torchtitan/train.py": program,
        "conf/own.toml": toml,
    }

    found = job(tmp_path, files, str(tmp_path / "run.sh"))

    assert (found.engine, found.world, found.seq_len, found.global_batch) == ("torchtitan", 8, 4096, 8)
    assert found.files == ("run.sh", "train.py", "own.toml")


def test_a_flag_whose_file_is_read_is_not_ignored(tmp_path):
    words = "--fsdp full_shard --fsdp_config conf/fsdp.json --model_name_or_path Qwen/Qwen3-8B --max_length 2048 --bf16"
    text = f"torchrun --nnodes 1 --nproc_per_node 8 tune.py {words} --per_device_train_batch_size 1\n"
    files = {"run.sh": text, "conf/fsdp.json": '{"activation_checkpointing": true}'}

    found = job(tmp_path, files, str(tmp_path / "run.sh"))

    assert found.layout.recompute == "full"
    assert not found.ignored


def test_settings_of_deepspeed_in_a_file_of_another_ending_are_read(tmp_path):
    text = "accelerate launch --use_deepspeed --deepspeed_config_file conf/zero3_own.conf tune.py "
    text += f"{TRAINER} --max_length 9\n"
    settings = '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}'

    found = job(tmp_path, {"run.sh": text, "conf/zero3_own.conf": settings}, str(tmp_path / "run.sh"), gpus=8)

    assert (found.layout.zero, found.layout.offload) == (3, "optimizer")


# --- a TOML that is not here

SAYS_ALL = (
    "torchrun --nnodes 2 --nproc_per_node 8 -m torchtitan.train --job.config_file configs/own.toml --model.name llama3 "
    "--model.flavor 8B --training.seq_len 4096 --training.local_batch_size 2 --training.global_batch_size 64 "
    "--activation_checkpoint.mode full "
)
WHOLE = "--parallelism.data_parallel_shard_degree 8 --parallelism.tensor_parallel_degree 2"


def test_a_toml_that_is_not_here_is_its_defaults_where_the_command_says_the_whole_split(tmp_path):
    found = job(tmp_path, {"go.sh": SAYS_ALL + WHOLE})

    assert (found.layout.tp, found.layout.dp, found.layout.mbs, found.global_batch) == (2, 8, 2, 64)
    assert any(text.startswith("own.toml, which is not here, leaves compile, ") for text in found.assumed)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("shard_degree 8", "shard_degree -1"),  # of ranks that a pipeline may divide too
        ("shard_degree 8", "shard_degree 4"),
        ("--training.seq_len 4096 ", ""),
        ("--training.global_batch_size 64 ", ""),
        ("--activation_checkpoint.mode full ", ""),
        ("--model.name llama3 --model.flavor 8B", "--model.name qwen3 --model.flavor 30B-A3B"),  # experts may be split
        ("--nnodes 2", "--nnodes $NODES"),
    ],
)
def test_a_toml_that_may_say_more_of_the_split_is_asked_for(tmp_path, before, after):
    script = (SAYS_ALL + WHOLE).replace(before, after)

    with pytest.raises(InputError, match=r"names own\.toml, which is not here: give it too"):
        job(tmp_path, {"go.sh": script})


def test_degrees_that_are_all_said_leave_nothing_to_a_toml_that_is_not_here(tmp_path):
    names = ("context_parallel", "pipeline_parallel", "data_parallel_replicate")
    said = " ".join(f"--parallelism.{name}_degree 1" for name in names)
    script = SAYS_ALL + WHOLE.replace("shard_degree 8", "shard_degree -1") + f" {said}"

    assert job(tmp_path, {"go.sh": script}).layout.dp == 8
