from types import SimpleNamespace

import pytest
import torch

from meshwright import device
from meshwright.bench.machine import copy_sizes, gpu_shapes
from meshwright.bench.operators import COLD_BYTES, _cold_bytes

GPU = torch.device("cuda", 0)


def of_properties(monkeypatch, **properties):
    module = SimpleNamespace(get_device_properties=lambda _: SimpleNamespace(**properties))
    monkeypatch.setattr(device, "_module", lambda _: module)


@pytest.mark.parametrize(
    ("variables", "shown"),
    [
        ({}, False),
        ({"SLURM_LOCALID": "2"}, False),  # tasks that share the one GPU
        ({"SLURM_LOCALID": "2", "SLURM_GPUS_PER_TASK": "1"}, True),
        ({"SLURM_LOCALID": "2", "SLURM_TRES_PER_TASK": "gres/gpu=1"}, True),
        ({"SLURM_LOCALID": "2", "SLURM_TRES_PER_TASK": "cpu=4"}, False),
        ({"SLURM_LOCALID": "2", "SLURM_GPU_BIND": "single:1"}, True),
        ({"SLURM_LOCALID": "2", "SLURM_GPU_BIND": "verbose,per_task:1"}, True),
        ({"SLURM_LOCALID": "2", "SLURM_GPU_BIND": "none"}, False),
        ({"SLURM_LOCALID": "0", "SLURM_GPUS_PER_TASK": "1", "TORCHELASTIC_RUN_ID": "job"}, False),
    ],
)
def test_a_launcher_that_shows_each_rank_one_device_is_known(monkeypatch, variables, shown):
    monkeypatch.setattr(device, "count", lambda: 1)

    assert device.shows_one_each(variables) is shown


def test_a_task_that_sees_several_devices_counts_them_by_its_local_rank(monkeypatch):
    monkeypatch.setattr(device, "count", lambda: 8)

    assert not device.shows_one_each({"SLURM_LOCALID": "2", "SLURM_GPUS_PER_TASK": "8"})


@pytest.mark.parametrize(("lone", "index"), [(True, 0), (False, 2)])
def test_a_rank_computes_on_the_device_that_it_is_shown(monkeypatch, lone, index):
    monkeypatch.setattr(device, "uses_accelerators", lambda _: True)
    monkeypatch.setattr(device, "accelerator_type", lambda: "cuda")
    monkeypatch.setattr(device, "shows_one_each", lambda _: lone)

    assert device.of_rank(2, "nccl") == torch.device("cuda", index)


@pytest.mark.parametrize(
    ("properties", "side"),
    [
        ({"multi_processor_count": 132}, 8192),  # H100
        ({"multi_processor_count": 108}, 4096),  # A100
        ({"multi_processor_count": 14}, 2048),  # a seventh of an A100
        ({"gpu_subslice_count": 64}, 4096),  # torch's name on XPU
        ({}, 4096),
    ],
)
def test_the_product_that_rates_are_held_against_follows_the_device(monkeypatch, properties, side):
    of_properties(monkeypatch, **properties)

    assert device.product_side(GPU) == side
    assert gpu_shapes(side)[3:] == [(side, side, side), (side, side * 7 // 2, side)]


def test_copies_and_operators_are_larger_than_the_cache_of_the_device(monkeypatch):
    of_properties(monkeypatch, L2_cache_size=126 * 2**20)  # B200

    assert copy_sizes(device.cache_bytes(GPU))[-1] == 2**30
    assert _cold_bytes(GPU) == 252 * 2**20 > COLD_BYTES


def test_what_is_timed_on_a_cpu_or_a_device_of_unknown_cache_keeps_its_size(monkeypatch):
    of_properties(monkeypatch)

    assert device.cache_bytes(GPU) is None
    assert copy_sizes(None) == [2**k for k in range(14, 29, 2)]
    assert _cold_bytes(GPU) == _cold_bytes(device.CPU) == COLD_BYTES


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"get_device_capability": lambda index: (9, 0)}, ""),
        ({"get_device_capability": lambda index: (8, 9)}, ""),
        ({"get_device_capability": lambda index: (8, 0)}, "One multiplies no fp8"),
        ({"get_device_capability": lambda index: {"has_fp16": True}}, "torch does not tell whether One multiplies fp8"),
        ({}, "torch does not tell whether One multiplies fp8"),
    ],
)
def test_a_device_says_whether_it_multiplies_fp8_and_no_guess_is_made(monkeypatch, told, reason):
    module = SimpleNamespace(get_device_name=lambda index: "One", **told)
    monkeypatch.setattr(device, "_module", lambda _: module)
    monkeypatch.setattr(torch.version, "hip", None)

    assert device.lacks_fp8(GPU) == reason


@pytest.mark.parametrize(("built", "lacks"), [("gfx942:sramecc+", False), ("gfx950", False), ("gfx90a", True)])
def test_accelerators_of_amd_are_told_by_what_their_code_is_built_for(monkeypatch, built, lacks):
    module = SimpleNamespace(
        get_device_name=lambda index: "One",
        get_device_properties=lambda index: SimpleNamespace(gcnArchName=built),
        get_device_capability=lambda index: (9, 4),
    )
    monkeypatch.setattr(device, "_module", lambda _: module)
    monkeypatch.setattr(torch.version, "hip", "7.0")

    assert bool(device.lacks_fp8(GPU)) is lacks
