"""Labels that say a rank's place along the axes of a mesh, and the rank that stands there."""

import pytest

from .made import answer, judge, out_of_memory, told

SIZES = (
    "using world size: 8, data-parallel size: 2, context-parallel size: 1, hierarchical context-parallel sizes: None,"
    " tensor-model-parallel size: 2, pipeline-model-parallel size: 2"
)
ORDER = " > rank order: tp-cp-ep-dp-pp"
MAPPING = "  use_tp_pp_dp_mapping ............................ {}"
OUT = out_of_memory(3).removeprefix("[rank3]: ")
LABEL = "(pp=1, dp=0, tp=1) "


def found(tmp_path, told_by, label=LABEL, more=()):
    verdict = judge(tmp_path, [*told_by, "step 1 loss 2.1", label + OUT, *more])
    return verdict.kind, verdict.blamed


TOLD = {
    "Megatron's order": ([SIZES, ORDER], 5),
    "Megatron's default": ([SIZES, MAPPING.format("False")], 5),
    "pipelines inside replicas": ([SIZES, MAPPING.format("True")], 3),
    "a mesh": (["built DeviceMesh((pp=2, dp=2, tp=2), device: 'cuda', stride: (4, 2, 1))"], 5),
    "a mesh with stages inside": (["built DeviceMesh((dp=2, pp=2, tp=2), device: 'cuda', stride: (4, 2, 1))"], 3),
}


@pytest.mark.parametrize(("told_by", "rank"), TOLD.values(), ids=TOLD)
def test_a_place_along_all_axes_is_the_rank_by_the_order_in_which_these_are_counted(told_by, rank, tmp_path):
    assert found(tmp_path, told_by) == ("device_memory", (rank,))


@pytest.mark.parametrize("label", ["[PP1 DP0 TP1] ", "[tp:1, pp:1, dp:0]: ", "(tp 1/dp 0/pp 1) "])
def test_places_are_read_in_any_order_and_spelling(label, tmp_path):
    assert found(tmp_path, [SIZES, ORDER], label) == ("device_memory", (5,))


UNKNOWN = {
    "no order": ([SIZES], LABEL),
    "no sizes": ([ORDER], LABEL),
    "sizes that are not all": ([SIZES.replace("size: 8", "size: 16"), ORDER], LABEL),
    "a place without an axis": ([SIZES, ORDER], "(pp=1, tp=1) "),
    "a place beyond the end": ([SIZES, ORDER], "(pp=2, dp=0, tp=1) "),
    "two meshes": (["DeviceMesh((pp=2, dp=2, tp=2))", "DeviceMesh((dp=2, pp=2, tp=2))"], LABEL),
}


@pytest.mark.parametrize(("told_by", "label"), UNKNOWN.values(), ids=UNKNOWN)
def test_a_place_that_may_be_several_ranks_names_none(told_by, label, tmp_path):
    assert found(tmp_path, told_by, label) == ("device_memory", ())


def test_places_that_c10d_gives_otherwise_are_counted_in_another_way(tmp_path):
    other = "(pp=0, dp=1, tp=1) [E1120 10:20:00.1 ProcessGroupNCCL.cpp:1] [PG ID 9 PG GUID 53(dp) Rank 0] failure"

    assert found(tmp_path, [SIZES, ORDER], more=[other]) == ("device_memory", ())


def test_a_place_whose_rank_is_the_same_in_every_order_is_that_rank(tmp_path):
    verdict = judge(tmp_path, [SIZES, "step 1 loss 2.1", "(pp=1, dp=1, tp=0) " + OUT])

    assert told(verdict, answer("device_memory", 6)) == answer("device_memory", 6)
