"""Calls that torch or Accelerate compares: who brings another size, type, device or number of calls."""

import pytest

from .made import answer, judge, summary, told

OPTIONS = (
    "TensorDeviceTypes=TensorOptions(dtype=float (default), device={}, layout=Strided (default),"
    " requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt))"
)


def call(dtype="Half", *, device="cuda", seq=31, shape="[77]", operation="ALLREDUCE"):
    return (
        f"CollectiveFingerPrint(SequenceNumber={seq}, OpType={operation}, TensorShape={shape},"
        f" TensorDtypes={dtype}, {OPTIONS.format(device)})"
    )


def compared(rank, own, place, other, *, of=None):
    """What a rank prints whose call differs from that of another place in its group."""
    return (
        f"[rank{rank}]: RuntimeError: Detected mismatch between collectives on ranks. Rank"
        f" {rank if of is None else of} is running collective: {own}, but Rank {place} is running collective: {other}."
        "Collectives differ in the following aspects: \t Tensor"
    )


def all_but(odd, usual, other, world=4):
    """What all ranks print where one of them differs."""
    return [
        compared(rank, other, 1 if odd == 0 else 0, usual) if rank == odd else compared(rank, usual, odd, other)
        for rank in range(world)
    ]


CASES = {
    "a rank that brings another type": (all_but(1, call(), call("Float")), answer("sizes", 1, 31)),
    "a rank whose tensor is on another device": (
        all_but(3, call(), call(device="cpu")),
        answer("sizes", 3, 31),
    ),
    "a rank with several tensors of which one differs": (
        all_but(2, call("Long, Float"), call("Long, Half")),
        answer("sizes", 2, 31),
    ),
    "a rank that has made one call fewer": (all_but(2, call(seq=31), call(seq=30)), answer("desync", 2, 31)),
    "another operation counts before types": (
        all_but(2, call(), call("Float", operation="BROADCAST")),
        answer("desync", 2, 31),
    ),
    "of two ranks with unlike types neither is named": (
        all_but(1, call(), call("Float"), world=2),
        answer("sizes", None, 31, unknown=True),
    ),
    "two of four ranks with another type are not named": (
        [
            *(compared(rank, call(), 2, call("Float")) for rank in (0, 1)),
            *(compared(rank, call("Float"), 0, call()) for rank in (2, 3)),
        ],
        answer("sizes", None, 31, unknown=True),
    ),
    "in a smaller group the place is not the rank": (
        [
            compared(4, call(), 3, call("Float"), of=0),
            compared(5, call(), 3, call("Float"), of=1),
            compared(6, call(), 3, call("Float"), of=2),
            compared(7, call("Float"), 0, call(), of=3),
        ],
        answer("sizes", 7, 31),
    ),
    "nor where the one who differs says nothing": (
        [compared(rank, call(), 3, call("Float"), of=rank - 4) for rank in (4, 5, 6)],
        answer("sizes", None, 31, unknown=True),
    ),
    "nor where every second rank is of the group": (
        [compared(rank, call(), 3, call("Float"), of=rank // 2) for rank in (0, 2, 4)],
        answer("sizes", None, 31, unknown=True),
    ),
    "nor of one who speaks alone": (
        [compared(5, call(), 3, call("Float"), of=1)],
        answer("sizes", None, 31, unknown=True),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_calls_are_compared_by_operation_size_type_and_number(tmp_path, case):
    lines, expected = CASES[case]
    verdict = judge(tmp_path, lines)
    assert told(verdict, expected) == expected


def test_the_types_are_told(tmp_path):
    verdict = judge(tmp_path, all_but(1, call(), call("Float")))
    assert "rank 1 calls all_reduce [77] Float on cuda" in verdict.because


def checked(rank, shapes, operation="gather"):
    """What Accelerate prints on one rank before a call that it refuses."""
    return [
        f"[rank{rank}]: accelerate.utils.operations.DistributedOperationException: Cannot apply desired operation due"
        " to shape mismatches. All shapes across devices must be valid.",
        "",
        f"[rank{rank}]: Operation: `accelerate.utils.operations.{operation}`",
        f"[rank{rank}]: Input shapes:",
        *(f"[rank{rank}]:   - Process {place}: {shape}" for place, shape in enumerate(shapes)),
    ]


SHAPES = {
    "one differs": (["[4, 9]", "[4, 9]", "[3, 9]", "[4, 9]"], answer("sizes", 2)),
    "one of a dictionary differs": (["{'a': [4]}", "{'a': [5]}", "{'a': [4]}"], answer("sizes", 1)),
    "two of two differ": (["[4]", "[5]"], answer("sizes", unknown=True)),
    "each brings its own": (["[4]", "[5]", "[6]", "[7]"], answer("sizes", unknown=True)),
}


@pytest.mark.parametrize("case", SHAPES)
def test_the_shapes_that_accelerate_lists_tell_who_differs_and_not_who_ends_first(tmp_path, case):
    shapes, expected = SHAPES[case]
    last = len(shapes) - 1
    verdict = judge(tmp_path, [*checked(last, shapes), *checked(0, shapes), *summary(last, 1)])
    assert told(verdict, expected) == expected
    assert verdict.collective == "gather"
