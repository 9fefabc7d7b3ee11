"""picotron's JSON: its degrees, plain copies of the states, and a model whose output has weights of its own."""

import json
from typing import Any

import pytest

from meshwright.errors import InputError
from tests.unit.jobs.test_strangers import job

CONFIG: dict[str, Any] = {
    "distributed": {"tp_size": 2, "cp_size": 2, "pp_size": 2, "dp_size": 2, "pp_engine": "afab", "backend": "nccl"},
    "model": {"name": "HuggingFaceTB/SmolLM-1.7B", "num_hidden_layers": 25, "dtype": "bfloat16"},
    "training": {"seq_length": 1024, "micro_batch_size": 3, "gradient_accumulation_steps": 5, "total_train_steps": 9},
}
LAUNCH = "torchrun --nnodes {nodes} --nproc_per_node 8 train.py --config own.json\n"


def test_degrees_batch_and_states_are_picotrons_own(tmp_path):
    found = job(tmp_path, {"own.json": json.dumps(CONFIG)})

    layout = found.layout
    assert (found.world, layout.tp, layout.cp, layout.pp, layout.dp) == (16, 2, 2, 2, 2)
    assert (layout.mbs, found.global_batch, found.seq_len, found.precision) == (3, 30, 1024, "bf16")
    assert (layout.zero, layout.sp, layout.recompute, layout.schedule) == (0, 0, "none", "gpipe")
    assert found.stack == "picotron"
    assert found.stages == (13, 12)


def test_its_output_has_weights_of_its_own_whatever_the_published_model_ties(tmp_path):
    found = job(tmp_path, {"own.json": json.dumps(CONFIG)})

    assert found.architecture is not None
    assert (found.architecture.num_hidden_layers, found.architecture.hidden_size) == (25, 2048)
    assert not found.architecture.tied
    assert any("output and embedding are two" in text for text in found.assumed)


def test_ranks_of_its_launch_that_its_degrees_do_not_multiply_to_are_a_contradiction(tmp_path):
    files = {"run.sh": LAUNCH.format(nodes=2), "own.json": json.dumps(CONFIG)}
    assert job(tmp_path, files, str(tmp_path / "run.sh")).world == 16

    files["run.sh"] = LAUNCH.format(nodes=4)
    with pytest.raises(InputError, match=r"tp_size 2 .* = 16 on nnodes 4 x nproc_per_node 8 = 32"):
        job(tmp_path, files, str(tmp_path / "run.sh"))


def test_a_file_that_its_command_names_is_asked_for(tmp_path):
    with pytest.raises(InputError, match=r"names own\.json, which is not here"):
        job(tmp_path, {"run.sh": "torchrun --nproc_per_node 8 picotron/train.py --config own.json\n"})


def test_a_schedule_that_picotron_does_not_have_is_refused(tmp_path):
    other = CONFIG | {"distributed": CONFIG["distributed"] | {"pp_engine": "zb"}}

    with pytest.raises(InputError, match="pp_engine zb: expected one of 1f1b, afab"):
        job(tmp_path, {"own.json": json.dumps(other)})
