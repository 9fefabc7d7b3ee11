"""A configuration emitted for DeepSpeed has only keys of DeepSpeed's own configuration classes, from a list of them."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from meshwright.hardware import load_catalogue
from meshwright.jobs.emit.config import emitted
from meshwright.jobs.emit.target import EmitTarget
from meshwright.jobs.gather import gather_sources
from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, price_layouts
from meshwright.plan.request import PlanRequest, setting_of
from meshwright.plan.search.explore import row_of
from meshwright.report.planning import host_text
from meshwright.workload.models import load_model

KNOWN = json.loads((Path(__file__).parent / "deepspeed_keys.json").read_text())
LAYOUTS = (
    *("dp=8,zero=0", "dp=8,zero=1", "dp=8,zero=2,recompute=full", "dp=8,zero=3", "tp=2,dp=4,zero=1", "dp=8,zero=3"),
    *("dp=8,zero=2,offload=optimizer", "dp=8,zero=3,offload=parameters"),
)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_every_emitted_key_is_one_of_deepspeed_s(layout, precision, tmp_path):
    target = EmitTarget(
        layout=Layout.parse(layout),
        architecture=load_model("llama3-8b").architecture,
        model="llama3-8b",
        global_batch=64,
        seq_len=4096,
        precision=precision,
    )
    script = tmp_path / "job.sh"
    script.write_text(emitted("deepspeed", target))

    (text,) = gather_sources([str(script)]).written.values()
    config = json.loads(text)

    assert config.keys() <= set(KNOWN["top"])
    for key, value in config.items():
        if isinstance(value, dict):
            assert value.keys() <= set(KNOWN[key]), key
    zero = config["zero_optimization"]
    for part in ("offload_param", "offload_optimizer"):
        assert zero.get(part, {}).keys() <= set(KNOWN[part])


def test_the_list_refuses_a_key_that_deepspeed_does_not_have():
    assert "zero_stage" not in KNOWN["zero_optimization"]
    assert "stage3_prefetch_bucket_size" in KNOWN["zero_optimization"]


@pytest.mark.parametrize(("stage", "expected"), [(3, "parameters"), (2, "optimizer")])
def test_weights_go_to_host_memory_in_stage_3_alone_and_the_layout_carries_what_does(tmp_path, stage, expected):
    zero = {"stage": stage, "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}}
    file = tmp_path / "ds_config.json"
    file.write_text(json.dumps({"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero}))

    job = read_job([str(file)])

    assert job.layout.offload == expected
    assert any("offload_param has no effect" in note for note in job.notes) == (stage == 2)
    assert job.unpriced() == ()


@pytest.mark.parametrize("name", ["cpu_offload_param", "cpu_offload_params"])
def test_the_older_names_of_what_lies_in_host_memory_are_read(tmp_path, name):
    zero = {"stage": 3, "cpu_offload": True, name: True}
    file = tmp_path / "ds_config.json"
    file.write_text(json.dumps({"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero}))

    job = read_job([str(file)])

    assert job.layout.offload == "parameters"
    assert not any(name in text for text in job.ignored)


def test_weights_that_go_to_host_memory_without_the_states_leave_the_states_on_the_gpus(tmp_path):
    zero = {"stage": 3, "offload_param": {"device": "cpu"}}
    file = tmp_path / "ds_config.json"
    file.write_text(json.dumps({"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero}))

    job = read_job([str(file)])

    assert job.layout.offload == "none"
    assert any("offload_param without offload_optimizer: states stay on the GPUs" in text for text in job.ignored)


@pytest.mark.parametrize("device", ["cpu", "nvme"])
def test_states_on_nvme_are_priced_with_the_word_that_a_step_takes_longer_and_against_no_hosts_memory(tmp_path, device):
    zero = {"stage": 3, "offload_param": {"device": device}, "offload_optimizer": {"device": device}}
    (tmp_path / "ds.json").write_text(json.dumps({"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero}))
    job = read_job([str(tmp_path / "ds.json")], JobOptions(gpus=1, seq_len=2048))
    request = PlanRequest(
        model=load_model("llama3-70b"), cluster="1xGH200", gpus=1, global_batch=8, seq_len=2048, stack="deepspeed"
    )
    setting = replace(setting_of(request, load_catalogue()), traits=job.traits)
    layout = Layout(zero=3, recompute="full", offload="parameters")
    grid = Grid.of([layout])
    row = row_of(setting, grid, price_layouts(setting, grid), 0)

    told = any("offload to NVMe" in text and "takes longer" in text for text in row.predicted.not_modelled)
    assert told == ("NVMe" in host_text(row)) == (device == "nvme")
    assert row.fits == ("fits" if device == "nvme" else "does not fit")  # 1 TiB is more than a GH200's host has
