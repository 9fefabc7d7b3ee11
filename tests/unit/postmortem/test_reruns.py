"""Megatron's rerun machine: a result that does not come out again is a GPU's, one that always does is nobody's."""

import pytest

from .made import judge

LOGGER = "megatron.core.rerun_state_machine:"
FAILED = "ERROR:" + LOGGER + "Rank {rank}, node plum-{rank}, device 1: {word}!"
FOUND = "ERROR:" + LOGGER + "Unexpected result inf on rank {rank} at iteration #77 invocation #1 (message='grad norm')"
TWICE = f"WARNING:{LOGGER}First rerun: unexpected result is reproducible within the tolerance (inf = inf). "
TWICE += "Need to rerun on a different GPU to verify correctness"
STEPS = [f" iteration {n}/ 500 | lm loss: 2.4E+00 |" for n in range(70, 76)]
TRANSIENT, PERSISTENT = "Possible transient error!", "Possible persistent error!"


@pytest.mark.parametrize("word", [TRANSIENT, PERSISTENT])
def test_the_gpu_whose_result_does_not_come_out_again_is_to_blame(word, tmp_path):
    verdict = judge(tmp_path, [*STEPS, FAILED.format(rank=9, word=word)])

    assert (verdict.kind, verdict.blamed) == ("device", (9,))


def test_a_verdict_without_a_rank_is_of_the_rank_whose_result_was_unexpected(tmp_path):
    verdict = judge(tmp_path, [*STEPS, FOUND.format(rank=6), TWICE, f"ERROR:{LOGGER}{PERSISTENT}"])

    assert (verdict.kind, verdict.blamed) == ("device", (6,))


def test_a_result_that_two_gpus_give_alike_is_no_ranks_fault(tmp_path):
    word = "Correct result (but possible Application error) (grad norm)"

    verdict = judge(tmp_path, [*STEPS, FOUND.format(rank=6), FAILED.format(rank=6, word=word)])

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("exception", (), False)


def test_before_the_rerun_on_another_gpu_nobody_is_named(tmp_path):
    verdict = judge(tmp_path, [*STEPS, FOUND.format(rank=6), TWICE])

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("exception", (), True)


def test_an_error_after_which_the_training_went_on_is_no_fault(tmp_path):
    assert judge(tmp_path, [FAILED.format(rank=9, word=TRANSIENT), *STEPS]).kind == "none"
