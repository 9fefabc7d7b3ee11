"""Containers: what Docker starts by entry point and command, the GPUs that it is given, and parts of GPUs."""

import pytest

from meshwright.cli import main
from meshwright.jobs.partitions import part_of_gpu
from tests.unit.jobs.test_strangers import job

WORDS = (
    "tune.py --model_name_or_path Qwen/Qwen2.5-1.5B --do_train --block_size 512 --per_device_train_batch_size 2 --bf16"
)
COMPOSE = """services:
  board: {image: board, command: board --port 6006}
  train:
    build: BUILD
    command: COMMAND
    GPUS
"""
RESERVED = "deploy: {resources: {reservations: {devices: [{driver: nvidia, WHICH, capabilities: [gpu]}]}}}"
LAUNCHED = COMPOSE.replace("BUILD", ".").replace("COMMAND", f"torchrun --standalone --nproc_per_node=gpu {WORDS}")


def compose(which: str) -> str:
    return LAUNCHED.replace("GPUS", RESERVED.replace("WHICH", which))


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        (compose('device_ids: ["0", "2", "3"]'), 3),
        (compose("count: 3"), 3),
        (compose("count: all"), None),
        (LAUNCHED.replace("GPUS", "gpus: [{driver: nvidia, count: 3}]"), 3),
        (LAUNCHED.replace("GPUS", 'gpus: [{driver: nvidia, device_ids: ["1", "2"]}]'), 2),
        (LAUNCHED.replace("GPUS", "gpus: all"), None),
        (LAUNCHED.replace("GPUS", "ipc: host"), None),
    ],
)
def test_the_gpus_of_a_service_are_as_many_as_it_names_or_counts(tmp_path, text, gpus):
    assert job(tmp_path, {"compose.yml": text}).world == gpus


def test_ranks_up_to_the_gpus_that_a_service_names_are_no_contradiction(tmp_path):
    text = compose('device_ids: ["0", "1"]').replace("=gpu", "=2")

    assert job(tmp_path, {"compose.yml": text}).world == 2


DOCKERFILE = """FROM base AS build
CMD ["make"]
FROM base
ENV LENGTH=2048 STEPS="10"
ENTRYPOINT ["torchrun", \\
  # of one machine
  "--standalone"]
CMD ["--nproc_per_node=8", "tune.py"]
"""


def images(command: str, file: str = DOCKERFILE) -> dict[str, str]:
    text = COMPOSE.replace("BUILD", "{context: ., dockerfile: Dockerfile}").replace("    GPUS\n", "")
    return {"compose.yml": text.replace("COMMAND", command), "Dockerfile": file}


def of_image(tmp_path, files):
    return job(tmp_path, files, str(tmp_path / "compose.yml"))


def test_the_command_of_a_service_stands_behind_the_entry_point_of_its_image(tmp_path):
    found = of_image(tmp_path, images(f"--nproc_per_node=2 {WORDS}"))

    assert (found.world, found.seq_len) == (2, 512)


def test_an_entry_point_of_the_service_stands_in_place_of_that_of_its_image(tmp_path):
    files = images(f"tune.py {WORDS}\n    entrypoint: [torchrun, --standalone, --nproc_per_node=4]")

    assert of_image(tmp_path, files).world == 4


def test_a_service_without_a_command_starts_that_of_its_image(tmp_path):
    words = ", ".join(f'"{word}"' for word in f"--nproc_per_node=2 {WORDS}".split())
    file = DOCKERFILE.replace('"--nproc_per_node=8", "tune.py"', words)
    files = images("x", file)
    files["compose.yml"] = files["compose.yml"].replace("    command: x\n", "")

    assert of_image(tmp_path, files).world == 2


def test_a_dockerfile_is_a_job_of_its_last_stage_with_its_variables(tmp_path):
    line = f"CMD torchrun --nproc_per_node=2 {WORDS} --max_length $LENGTH".replace("--block_size 512 ", "")
    file = DOCKERFILE.partition("ENTRYPOINT")[0] + line

    found = job(tmp_path, {"Dockerfile": file})

    assert (found.world, found.seq_len) == (2, 2048)


# --- parts of GPUs


@pytest.mark.parametrize(
    "text",
    [
        "limits: {nvidia.com/mig-3g.40gb: 2}",
        "nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB-MIG-1g.10gb}",
        "nodeSelector:\n  nvidia.com/gpu.product: Tesla-T4-SHARED",
        "limits: {nvidia.com/gpu.shared: 2}",
        'annotations: {gpu-fraction: "0.5"}',
        "#SBATCH --gres=gpu:a100_3g.20gb:2",
        "#SBATCH --gres=gpu:1g.5gb:1",
        "export CUDA_VISIBLE_DEVICES=MIG-5c89852c-d268-c3f3-1b07-005d5ae1dc3f",
    ],
)
def test_a_part_of_a_gpu_is_known_however_it_is_asked_for(text):
    assert part_of_gpu(text).endswith("of a GPU")


@pytest.mark.parametrize(
    "text",
    [
        "limits: {nvidia.com/gpu: 2}",
        "# once nvidia.com/mig-3g.40gb",
        "#SBATCH --gres=gpu:a100:2",
        "limits: {x: 1} # 3g.40gb",
    ],
)
def test_a_whole_gpu_is_no_part_of_one(text):
    assert part_of_gpu(text) == ""


def test_parts_of_gpus_are_not_priced_as_whole_ones_and_what_was_read_is_told(tmp_path, capsys):
    file = tmp_path / "a.sh"
    file.write_text(f"#SBATCH --gres=gpu:a100_3g.20gb:2\ntorchrun --standalone --nproc_per_node=2 {WORDS}\n")

    with pytest.raises(SystemExit) as left:
        main(["plan", "--job", str(file), "--cluster", "dgx-a100-80g"])
    told = capsys.readouterr().err

    assert left.value.code == 2
    assert "a.sh: asks for gpu:a100_3g.20gb, an instance of MIG of a GPU: only whole GPUs are priced" in told
    assert "read so far: Qwen/Qwen2.5-1.5B, 2 GPUs" in told
