"""Dispatchers of experts: what a job says of them is priced, and no doubt of it is left."""

import pytest

from tests.unit.jobs.test_strangers import job

MOE = """torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py --num-layers 8 --hidden-size 1024 \\
  --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --num-experts 8 --moe-router-topk 2 \\
  --expert-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 64 --vocab-size 32000 --bf16 {more}
"""


@pytest.mark.parametrize(
    ("more", "once", "waits"),
    [
        ("--moe-token-dispatcher-type alltoall", False, True),
        ("--moe-token-dispatcher-type alltoall --moe-pad-expert-input-to-capacity", False, False),
        ("--moe-token-dispatcher-type flex --moe-enable-deepep", True, False),
        ("", None, False),
    ],
)
def test_a_host_waits_for_counts_of_rows_where_the_job_sends_them_all_to_all(tmp_path, more, once, waits):
    found = job(tmp_path, {"go.sh": MOE.format(more=more)})

    assert found.routed_once is once
    assert ("counted" in found.traits) is waits


def test_a_padded_input_of_experts_is_still_listed_as_not_priced(tmp_path):
    found = job(tmp_path, {"go.sh": MOE.format(more="--moe-pad-expert-input-to-capacity")})

    assert any("moe-pad-expert-input-to-capacity" in text for text in found.ignored)


def test_the_type_of_summed_gradients_is_read_beside_the_type_that_they_travel_in(tmp_path):
    found = job(tmp_path, {"go.sh": MOE.format(more="--grad-reduce-in-bf16 --main-grads-dtype bf16")})

    assert found.half_sums
    assert not any("main-grads-dtype" in text for text in found.ignored)
