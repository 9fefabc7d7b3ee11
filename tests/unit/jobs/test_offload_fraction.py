"""Optimiser states of which a part alone is offloaded: the memory that is told is the most, and never too little."""

import pytest

from tests.unit.jobs.test_strangers import MEGATRON, job

RUN = f"torchrun --nproc_per_node 8 pretrain_gpt.py {MEGATRON} --use-distributed-optimizer --optimizer-cpu-offload"
MORE = "--use-precision-aware-optimizer"


@pytest.mark.parametrize(
    ("fraction", "offload", "listed"),
    [
        ("", "optimizer", False),
        ("--optimizer-offload-fraction 1.0", "optimizer", False),
        ("--optimizer-offload-fraction 0.5", None, True),
        ("--optimizer-offload-fraction 0.0", None, True),
    ],
)
def test_states_that_leave_the_gpu_in_part_are_priced_on_it(tmp_path, fraction, offload, listed):
    found = job(tmp_path, {"run.sh": f"{RUN} {MORE} {fraction}\n"})

    assert found.layout.offload == offload
    assert any("priced with all states on the GPU: the most memory" in text for text in found.ignored) is listed
