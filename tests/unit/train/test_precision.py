"""The precision of products: bf16 by default where a device has it, and jobs that may multiply in fp8."""

from types import SimpleNamespace

import pytest
import torch

from meshwright.errors import InputError
from meshwright.layout import Layout
from meshwright.plan.layouts.legality import check_runnable
from meshwright.train.job.config import JobConfig, with_overrides
from meshwright.train.job.precision import check_float8, narrow_type

CPU = torch.device("cpu")


def job(precision="fp8-emulated", **changes):
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128} | changes.pop("model", {})
    return with_overrides(JobConfig(), {"train": {"precision": precision}, "model": sizes, **changes}, {}, where="job")


def test_jobs_in_other_precisions_are_not_looked_at(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    check_float8(job("bf16"), CPU)


def test_without_torchao_the_package_to_install_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(InputError, match=r"torchao is not installed: pip install 'meshwright\[fp8\]'"):
        check_float8(job(), CPU)


def test_a_processor_multiplies_no_fp8_and_what_does_instead_is_said(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())

    with pytest.raises(InputError, match='a processor multiplies no fp8: "bf16" trains here, "fp8-emulated" imitates'):
        check_float8(job("fp8"), CPU)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": {"num_local_experts": 4}}, "products of experts are not offered in fp8"),
        ({"model": {"intermediate_size": 120}}, "multiples of 16, got model.intermediate_size = 120"),
        ({"data_parallel": {"mode": "diloco"}}, "trains in float32 on CPUs"),
    ],
)
def test_jobs_that_cannot_have_fp8_are_refused(changes, reason, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())

    with pytest.raises(InputError, match=reason):
        check_float8(job(**changes), CPU)


@pytest.mark.parametrize(
    "layout", ["tp=2", "ep=2,dp=2", "recompute=selective", "zero=3,dp=2,offload=parameters", "pp=2,schedule=zb"]
)
def test_layouts_without_an_engine_in_fp8_are_refused(layout):
    with pytest.raises(InputError, match="use precision bf16, or a layout of dp, cp, pp, zero and recompute=full"):
        check_runnable(Layout.parse(layout), precision="fp8")

    check_runnable(Layout.parse(layout), precision="bf16")


def test_a_job_runs_in_bf16_where_that_was_asked_for_and_by_default_on_gpus():
    assert narrow_type("bf16", torch.device("cpu")) == "bf16"
    assert narrow_type("auto", torch.device("cuda")) == "bf16"
    assert narrow_type("auto", torch.device("cpu")) == ""
    assert narrow_type("float32", torch.device("cuda")) == ""
    assert narrow_type("fp8", torch.device("cuda")) == "fp8"


@pytest.mark.parametrize(("multiplies", "expected"), [(True, "bf16"), (False, "")])
def test_an_accelerator_that_imitates_bf16_trains_in_float32_unless_asked(multiplies, expected, monkeypatch):
    told = SimpleNamespace(
        is_bf16_supported=lambda including_emulation: including_emulation or multiplies, device_count=lambda: 1
    )
    monkeypatch.setattr(torch, "get_device_module", lambda kind: told)

    assert narrow_type("auto", torch.device("cuda")) == expected

    told.is_bf16_supported = lambda: multiplies  # as packages of other vendors have it
    assert narrow_type("auto", torch.device("cuda")) == expected
    assert narrow_type("bf16", torch.device("cuda")) == "bf16"
