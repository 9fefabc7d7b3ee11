"""Keys that nobody reads: a slip of the pen is told from a key of another meaning."""

import pytest

from meshwright.jobs.keys import Keys


def left(read, **values):
    keys = Keys(values, "job.toml")
    for key in read:
        keys.raw(key)
    return keys.left(())


@pytest.mark.parametrize(
    ("typed", "known"),
    [
        ("parallelism.tensor_paralel_degree", "parallelism.tensor_parallel_degree"),
        ("trainig.local_batch_size", "training.local_batch_size"),
        ("tensor-model-parralel-size", "tensor-model-parallel-size"),
    ],
)
def test_a_slip_in_a_long_word_is_asked_about(typed, known):
    assert left([known], **{typed: 8}) == [f"{typed} = 8; did you mean {known}?"]


@pytest.mark.parametrize(
    ("typed", "known"),
    [
        ("distributed.dp_size", "distributed.cp_size"),  # each is a word of its own
        ("model.pipeline_parallel_degree", "model.context_parallel_degree"),
        ("training.sequence_len", "training.seq_len"),
        ("training.batch", "training.batch_size"),
    ],
)
def test_a_key_of_another_meaning_is_no_slip(typed, known):
    assert left([known], **{typed: 8}) == [f"{typed} = 8"]


def test_a_key_that_is_set_as_well_was_not_meant():
    assert left(["training.steps"], **{"trainning.steps": 8, "training.steps": 9}) == ["trainning.steps = 8"]
