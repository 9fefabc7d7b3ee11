"""Sizes that ranks print of their tensors, beside an error that two of them differ."""

import pytest

from .made import judge

ERROR = (
    "RuntimeError: [enforce fail at third_party/gloo/gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes."
    " {} vs {}"
)
CLOSED = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:51"
SAID = {
    "a number": "reducing embed.weight, numel={}",
    "in words": "bucket 3: {} elements",
    "a shape": "head.weight grad shape ({}, 2)",
    "parameters": "model built, {} parameters",
}


def logs(said, sizes, *, width=4, told=(0, 1, 2, 3)):
    """The logs of four ranks, the first of which received more than it expected."""
    by = 2 if "2)" in said else 1
    came, expected = max(sizes) * by * width, min(sizes) * by * width
    files = {f"rank{rank}.log": ["setup, world size 16"] for rank in range(4)}
    for rank in told:
        files[f"rank{rank}.log"].append(said.format(sizes[rank]))
    for rank in range(4):
        files[f"rank{rank}.log"].append(ERROR.format(came, expected) if rank == 0 else CLOSED)
    return files


def named(verdict):
    return verdict.kind, verdict.blamed, verdict.unknown


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_the_rank_that_printed_another_size_than_all_others_is_named(said, width, tmp_path):
    assert named(judge(tmp_path, logs(said, [640, 640, 640, 648], width=width))) == ("sizes", (3,), False)


@pytest.mark.parametrize("said", ["flat buffer: {:,} bytes in 2 buckets", "nbytes={}", "outer gradient {} B"])
def test_a_size_in_bytes_counts_as_the_error_counts(said, tmp_path):
    start = [f"09:14:0{rank} [INFO] [Rank {rank}] {said.format(7168 if rank == 2 else 7040)}" for rank in range(4)]
    steps = [f"09:15:00,125 [INFO] [Rank {rank}] step 7, loss 2.1" for rank in range(4)]
    verdict = judge(tmp_path, {"all.log": [*start, *steps, ERROR.format(7168, 7040)]})
    assert named(verdict) == ("sizes", (2,), False)
    assert "7168 bytes where the others print 7040" in verdict.because


@pytest.mark.parametrize(
    "files",
    [
        logs(SAID["a number"], [640, 640, 648, 648]),
        logs(SAID["a number"], [640, 640, 640, 648], told=(0, 2, 3)),
        logs(SAID["a number"], [640, 640, 640, 648], width=3),
    ],
    ids=["two of four", "one did not say", "other numbers"],
)
def test_sizes_that_do_not_tell_who_differs_name_nobody(files, tmp_path):
    assert named(judge(tmp_path, files)) == ("sizes", (), True)
