"""Files and extensions that one rank was to make for all: a rank that lacks them then has no fault of its own."""

import pytest

from .made import judge, raised

LIBRARY = (
    "ImportError: /tmp/torch_extensions/py311/quick_norm/quick_norm.so: cannot open shared object file: No such file"
)
INDEX = "FileNotFoundError: [Errno 2] No such file or directory: '/cache/wiki_7_shuffle_idx.npy'"
MADE = {
    "an extension that does not compile": ("RuntimeError: Error building extension 'quick_norm'", LIBRARY),
    "one that is imported by its name": (
        "RuntimeError: Error compiling objects for extension quick_norm",
        "ModuleNotFoundError: No module named 'kernels.quick_norm'",
    ),
    "an index that cannot be written": (
        "PermissionError: [Errno 13] Permission denied: '/cache/wiki_7_shuffle_idx.npy'",
        INDEX,
    ),
    "a conversion that fails": ("ValueError: cannot convert wiki_7_shuffle_idx to int32", INDEX),
}


@pytest.mark.parametrize("order", [(2, 0, 1, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize(("failed", "lacks"), MADE.values(), ids=MADE)
def test_the_rank_that_failed_to_make_it_is_named_in_any_order_of_print(failed, lacks, order, tmp_path):
    lines = [line for rank in order for line in raised(rank, lacks if rank else failed)]
    verdict = judge(tmp_path, lines)

    assert (verdict.kind, verdict.rank, verdict.unknown) == ("exception", 0, False), str(verdict)


@pytest.mark.parametrize(
    "failed", ["RuntimeError: Error building extension 'other_norm'", "ValueError: quick_norm is not a norm"]
)
def test_a_rank_that_lacks_a_file_which_no_other_was_to_make_has_its_own_fault(failed, tmp_path):
    verdict = judge(tmp_path, [*raised(2, LIBRARY), *raised(0, failed)])

    assert verdict.blamed == (2,), str(verdict)
