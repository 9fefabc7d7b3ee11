"""One configuration of each engine, and the job that it describes."""

from pathlib import Path

import msgspec
import pytest

from meshwright.errors import InputError
from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job

CASES = Path(__file__).parent / "cases"


def job(*names: str, gpus: int | None = None):
    return read_job([str(CASES / name) for name in names], JobOptions(gpus=gpus))


def holds(found, **expected) -> bool:
    """Whether the layout of a job has these keys at these values."""
    return expected.items() <= msgspec.to_builtins(found.layout).items()


def test_a_megatron_script_with_arrays_defaults_and_a_case_is_followed():
    found = job("megatron_llama_13b.sh")

    assert (found.engine, found.world, found.global_batch, found.seq_len) == ("megatron", 32, 128, 4096)
    assert holds(
        found, tp=4, pp=2, cp=1, dp=4, vpp=4, mbs=2, zero=1, sp=1, recompute="selective", schedule="interleaved"
    )
    assert found.precision == "bf16"
    assert found.architecture.num_hidden_layers == 40
    assert found.architecture.vocab_size == 32000


def test_every_default_that_a_script_took_is_listed():
    assumed = " ".join(job("megatron_llama_13b.sh").assumed)

    assert all(name in assumed for name in ("TP=4", "PP=2", "SLURM_NNODES=4", "FP8=0", "RECOMPUTE"))


def test_degrees_that_do_not_multiply_name_both_keys_and_the_file():
    words = (
        "megatron_degrees_do_not_multiply.sh: tensor-model-parallel-size 8 x pipeline-model-parallel-size 4 = 32 "
        "on nnodes 1 x nproc_per_node 8 = 8"
    )

    with pytest.raises(InputError, match=words):
        job("megatron_degrees_do_not_multiply.sh")


def test_gpus_of_the_command_line_take_the_place_of_those_of_the_script_and_it_is_said():
    found = job("megatron_degrees_do_not_multiply.sh", gpus=64)

    assert (found.world, found.layout.dp) == (64, 2)
    assert any("--gpus 64 in place of nnodes 1 x nproc_per_node 8 = 8" in text for text in found.assumed)


def test_a_deepspeed_file_alone_asks_for_what_it_does_not_say():
    found = job("deepspeed_zero2.json")

    assert (found.engine, found.world, found.global_batch, found.precision) == ("deepspeed", None, 256, "bf16")
    assert holds(found, zero=2, mbs=4, offload="optimizer")
    assert found.asked == ("--gpus", "--model", "--seq-len")


def test_training_arguments_and_their_deepspeed_file_are_one_job():
    found = job("hf_training_arguments.yaml", "deepspeed_zero2.json", gpus=16)

    assert (found.engine, found.world, found.global_batch, found.seq_len) == ("deepspeed", 16, 256, 8192)
    assert holds(found, zero=2, mbs=4, dp=16, recompute="full", offload="optimizer")


def test_the_deepspeed_file_beside_training_arguments_is_found_by_its_name():
    assert job("hf_training_arguments.yaml", gpus=16).layout == job(
        "hf_training_arguments.yaml", "deepspeed_zero2.json", gpus=16
    ).layout  # fmt: skip


def test_accelerate_with_two_copies_of_a_model_that_keeps_its_weights():
    found = job("accelerate_fsdp2_cp.yaml")

    assert (found.engine, found.world, found.precision) == ("accelerate", 16, "bf16")
    assert holds(found, tp=1, cp=4, replicas=2, zero=2, recompute="full", dp=4)
    assert found.asked == ("--model", "--seq-len", "--global-batch")


def test_torchtitan_of_2025_with_a_pipeline_and_passes():
    found = job("torchtitan_2025.toml", gpus=64)

    assert (found.engine, found.world, found.global_batch, found.seq_len) == ("torchtitan", 64, 64, 8192)
    assert holds(found, tp=4, pp=2, dp=8, zero=3, schedule="1f1b", recompute="selective")
    assert any("one layer of every 2" in note for note in found.notes)
    assert found.architecture.name == "llama3-70b"


def test_a_torchtitan_registry_is_read_and_nothing_in_it_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "torchtitan_2026_registry.py"
    file.write_text((CASES / "torchtitan_2026_registry.txt").read_text())

    found = read_job([f"{file}:moe_30b"], JobOptions(gpus=16))

    assert not (tmp_path / "executed").exists()
    assert (found.engine, found.world, found.global_batch, found.seq_len) == ("torchtitan", 16, 32, 4096)
    assert holds(found, ep=8, pp=1, dp=16, zero=3, mbs=2, recompute="full")
    assert any("pp is 1: it has no effect" in note for note in found.notes)


def test_automodel_has_micro_batches_of_its_pipeline_apart_from_the_local_batch():
    found = job("automodel_moe_pp.yaml")

    assert (found.engine, found.world, found.global_batch, found.seq_len) == ("automodel", 64, 1024, 4096)
    assert holds(found, pp=4, ep=16, dp=16, vpp=4, mbs=2, schedule="interleaved", recompute="none")


def test_nemo_takes_what_it_leaves_out_from_the_published_model_and_says_so():
    found = job("nemo_nemotron_15b.yaml")

    assert (found.engine, found.world, found.global_batch, found.precision) == ("nemo", 64, 256, "bf16")
    assert holds(found, tp=4, pp=1, dp=16, mbs=4, zero=1, sp=1, recompute="none")
    assert found.architecture.vocab_size == 256000
    assert any("nemotron4-15b" in text for text in found.assumed)


def test_maxtext_counts_sequences_of_a_device():
    found = job("maxtext_llama3_8b.yaml")

    assert (found.engine, found.world, found.global_batch, found.seq_len) == ("maxtext", 32, 128, 4096)
    assert holds(found, tp=2, replicas=4, dp=16, zero=3, recompute="selective")
    assert found.precision == "bf16"


@pytest.mark.parametrize("name", sorted(path.name for path in CASES.iterdir() if path.suffix != ".txt"))
def test_reading_a_case_twice_gives_the_same(name):
    def once():
        try:
            return job(name, gpus=64)
        except InputError as error:
            return str(error)

    assert once() == once()


@pytest.mark.parametrize(
    ("flags", "once", "told"),
    [
        ("--moe-token-dispatcher-type alltoall", False, []),
        ("--moe-token-dispatcher-type flex --moe-enable-deepep", True, []),
        ("--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep", True, []),
        ("--moe-token-dispatcher-type allgather", False, ["allgather"]),
        ("", None, []),
    ],
)
def test_a_dispatcher_says_whether_a_row_goes_once_to_each_node(tmp_path, flags, once, told):
    (tmp_path / "run.sh").write_text(
        "torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py --num-layers 8 --hidden-size 1024 "
        "--num-attention-heads 16 --seq-length 4096 --micro-batch-size 1 --global-batch-size 64 --num-experts 16 "
        f"--moe-router-topk 2 --expert-model-parallel-size 16 --moe-ffn-hidden-size 512 --vocab-size 32000 {flags}\n"
    )
    found = read_job([str(tmp_path / "run.sh")], JobOptions(gpus=None))

    assert found.routed_once is once
    assert [word for word in ("allgather", "alltoall") if any(f"= {word}" in line for line in found.ignored)] == told
