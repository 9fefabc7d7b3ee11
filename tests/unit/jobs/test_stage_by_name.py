"""DeepSpeed configurations that are named and not at hand: what their names say, and what they do not."""

import pytest

from meshwright.errors import InputError
from meshwright.jobs.engines.stage_by_name import stage_by_name
from tests.unit.jobs.test_adapters import TRL
from tests.unit.jobs.test_strangers import job


@pytest.mark.parametrize(
    ("path", "stage", "offloaded"),
    [
        ("zero2.json", 2, []),
        ("a/ds_z3_config.json", 3, []),
        ("ds_z3_offload_config.json", 3, ["offload_optimizer", "offload_param"]),
        ("conf/stage2_offloading_accelerate.conf", 2, ["offload_optimizer"]),
        ("deepspeed-zero-3-cpu-offload.yaml", 3, ["offload_optimizer", "offload_param"]),
        ("stage3_no_offloading.conf", 3, []),
        ("ds_config_zero_stage_1.json", 1, []),
        ("zero3_cpuoffload_all.json", 3, ["offload_optimizer", "offload_param"]),
    ],
)
def test_a_name_of_stage_and_offload_alone_is_understood(path, stage, offloaded):
    settings, told = stage_by_name(path)

    states = settings["zero_optimization"]
    assert (states["stage"], sorted(states.keys() - {"stage"})) == (stage, offloaded)
    assert told == f"ZeRO {stage}" + (" with offload to host memory" if offloaded else "")


@pytest.mark.parametrize(
    ("path", "part", "told"),
    [
        (
            "zero3_bf16_cpuoffload_params.json",
            "offload_param",
            "ZeRO 3 in bf16 with offload of parameters to host memory",
        ),
        ("z3_offload_optimizer.json", "offload_optimizer", "ZeRO 3 with offload of optimizer states to host memory"),
    ],
)
def test_a_name_may_say_which_states_are_offloaded_and_the_precision(path, part, told):
    settings, words = stage_by_name(path)

    assert settings["zero_optimization"].keys() == {"stage", part}
    assert ("bf16" in settings, words) == ("bf16" in path, told)


@pytest.mark.parametrize("path", ["zero2_offload_params.json", "zero3_params.json", "zero3_all.json"])
def test_states_that_its_stage_does_not_move_or_without_an_offload_are_not_understood(path):
    assert stage_by_name(path) is None


@pytest.mark.parametrize(
    "path",
    ["ds.json", "ds_config.json", "z3_partial_offload.json", "zero3_fp8.json", "zero2_to_zero3.json", "zero5.json"],
)
def test_a_name_that_says_no_stage_or_more_than_that_is_not_understood(path):
    assert stage_by_name(path) is None


def test_a_job_whose_arguments_have_the_batch_takes_the_stage_and_says_from_where(tmp_path):
    found = job(tmp_path, {"sft.sh": f"{TRL} --deepspeed conf/zero3_offload.json"})

    assert (found.layout.zero, found.layout.offload, found.layout.mbs) == (3, "parameters", 4)
    assert "ZeRO 3 with offload to host memory: by the name of zero3_offload.json, which is not here" in found.assumed


def test_a_job_whose_batch_is_in_that_file_too_asks_for_it(tmp_path):
    yaml = "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: zero2.json}\nnum_processes: 8\n"

    with pytest.raises(InputError, match=r"names zero2\.json, which is not here"):
        job(tmp_path, {"accelerate.yaml": yaml})
