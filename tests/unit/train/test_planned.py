"""A plan that `plan --output` wrote is what `train` trains, on the machines that it was made for."""

import json

import pytest
from click.testing import CliRunner

from meshwright import cli, device
from meshwright.errors import InputError
from meshwright.train.planned import is_plan, planned_job
from meshwright.workload.transformer import ModelConfig

SIZES = {
    "model_type": "llama", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "tie_word_embeddings": True,
}  # fmt: skip
LAYOUT = "pp=2,dp=1,mbs=1"


def plan(folder, sizes):
    """Return the path of a plan of a model of these sizes."""
    model, path = folder / "model.json", folder / "plan.json"
    model.write_text(json.dumps(sizes))
    asked = ["--model", str(model), "--cluster", "dgx-h100", "--gpus", "2", "--global-batch", "8"]
    result = CliRunner().invoke(cli.group, ["plan", *asked, "--layout", LAYOUT, "--output", str(path)])
    assert result.exit_code == 0, result.output
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return plan(tmp_path_factory.mktemp("planned"), SIZES)


def test_the_job_of_a_plan_has_its_model_layout_and_batch_and_the_keys_that_are_set(path):
    job = planned_job(path, {"train.steps": 7}, replan=True)

    assert is_plan(path)
    assert job.model == ModelConfig(**{key: value for key, value in SIZES.items() if key != "model_type"})
    assert (job.launch.layout, job.launch.ranks) == ("pp=2,dp=1,mbs=1", 2)
    assert (job.train.global_batch, job.data.seq_len, job.train.steps) == (8, 128, 7)
    assert job.train.precision == "auto"


def test_experts_of_a_plan_are_trained_too(tmp_path):
    mixed = plan(tmp_path, SIZES | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2})

    assert planned_job(mixed, {}, replan=True).model.num_local_experts == 4


def test_a_plan_for_other_machines_is_refused_with_the_reason(path, monkeypatch):
    monkeypatch.setattr(device, "count", lambda: 0)
    with pytest.raises(InputError, match="made for 2 x h100 of dgx-h100, this machine has no GPU; --replan"):
        planned_job(path, {})


def test_the_same_gpus_take_it_and_others_or_too_few_do_not(path, monkeypatch):
    monkeypatch.setattr(device, "count", lambda: 2)
    monkeypatch.setattr(device, "name", lambda: "NVIDIA H100 80GB HBM3")
    assert planned_job(path, {}).launch.ranks == 2

    monkeypatch.setattr(device, "count", lambda: 1)
    with pytest.raises(InputError, match="here are 1 x 1 GPUs"):
        planned_job(path, {})
    monkeypatch.setattr(device, "name", lambda: "NVIDIA A100-SXM4-80GB")
    with pytest.raises(InputError, match="this machine has 1 x NVIDIA A100"):
        planned_job(path, {})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schema": "meshwright.plan/1", "model": {}}, "plan/1 does not say which model"),
        ({"precision": "mxfp8"}, "train runs bf16, fp8 and fp32, the plan is for mxfp8"),
        ({"model": {"hidden_size": 4}}, "model"),
    ],
)
def test_a_plan_that_cannot_be_trained_says_why(path, tmp_path, change, reason):
    changed = tmp_path / "plan.json"
    changed.write_text(json.dumps(json.loads(path.read_text()) | change))

    with pytest.raises(InputError, match=reason):
        planned_job(changed, {}, replan=True)


def test_a_configuration_is_no_plan(tmp_path):
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"train": {"steps": 3}}))

    assert not is_plan(job)
    assert not is_plan(tmp_path / "missing.json")
    assert not is_plan(None)
