"""Groups over a mesh of ranks: who else is in the group whose call timed out, by lines that print the mesh."""

import pytest

from .made import answer, failed_at, judge, timed_out, told

TP, DP = "PG ID 2 PG GUID {}(mesh_tp)", "PG ID 1 PG GUID {}(mesh_dp)"
MESHES = {
    "an array": "mesh: DeviceMesh('cuda', [[0, 1], [2, 3]], mesh_dim_names=('dp', 'tp'))",
    "sizes": "DeviceMesh((dp=2, tp=2), 'cuda', stride=(2, 1)) on 4 ranks",
    "sizes behind words": "using DeviceMesh((dp=2, tp=2), device: 'cuda', stride: (2, 1))",
    "torchtitan's": "[titan] 2026-11-20 09:01:02 - root - INFO - Building 2-D device mesh with ['dp', 'tp'], [2, 2]",
    "lists side by side": "[mesh] tp=2 dp=2: tp groups [0,1] [2,3]; dp groups [0,2] [1,3]",
    "lists in words": "tensor model parallel groups: (0, 1), (2, 3); data parallel groups: (0, 2), (1, 3)",
    "lists": "tensor-parallel groups: [[0, 1], [2, 3]]; data-parallel groups: [[0, 2], [1, 3]]",
}


def waits(rank, group, guid, seq, operation, place):
    """A rank whose watchdog ran out in one group."""
    name = group.format(guid)
    return [
        timed_out(rank, seq, operation, place=place),
        failed_at(rank, name, seq, seq, seq - 1, place=place),
    ]


AROUND = [
    *waits(0, TP, 3, 97, "ALLREDUCE", 0),
    *waits(1, DP, 2, 26, "ALLREDUCE", 0),
    *waits(2, DP, 1, 26, "ALLREDUCE", 1),
    *waits(3, TP, 4, 97, "ALLREDUCE", 1),
]


@pytest.mark.parametrize("mesh", MESHES.values(), ids=MESHES)
def test_groups_of_a_mesh_of_which_each_waits_for_a_rank_in_another_are_a_circle(tmp_path, mesh):
    verdict = judge(tmp_path, {"job.out": [mesh, *AROUND]})

    assert told(verdict, answer("circle", seq=97)) == answer("circle", seq=97)


BY_GUID = [
    "TENSOR_MODEL_PARALLEL_GROUP (PG GUID 3): [0, 1]",
    "TENSOR_MODEL_PARALLEL_GROUP (PG GUID 4): [2, 3]",
    "DATA_PARALLEL_GROUP (PG GUID 1): [0, 2]",
    "DATA_PARALLEL_GROUP (PG GUID 2): [1, 3]",
]


def test_groups_that_lines_list_by_their_own_names_are_a_circle_where_each_waits_for_a_rank_in_another(tmp_path):
    verdict = judge(tmp_path, {"job.out": [*BY_GUID, *AROUND]})

    assert told(verdict, answer("circle", seq=97)) == answer("circle", seq=97)


@pytest.mark.parametrize(
    "listed",
    [
        [line.replace("GUID 3", "GUID 5") for line in BY_GUID],
        [line.replace("[0, 1]", "[1, 0]") for line in BY_GUID],
        [*BY_GUID, "DATA_PARALLEL_GROUP (PG GUID 2): [3, 1]"],
        [*BY_GUID, "of some script: (PG GUID 0): [0, 1]"],
        [line.replace("): ", ") timed out on: ") for line in BY_GUID],
    ],
    ids=["another group's", "other places", "two lists", "a count of its own", "what befell some"],
)
def test_lists_by_names_that_do_not_fit_the_groups_make_no_circle(listed, tmp_path):
    verdict = judge(tmp_path, {"job.out": ["WORLD_SIZE=4", *listed, *AROUND]})

    assert (verdict.kind == "circle", verdict.blamed) == (False, ())


MADE = "[2026-11-20 09:01:02,100] [INFO] [Rank 0] {} parallel process group named ep_size_2 with ranks: {}"
DEEPSPEEDS = [
    *(MADE.format("Creating expert data", ranks) for ranks in ([0, 2], [1, 3])),
    *(MADE.format("creating expert", ranks) for ranks in ([0, 1], [2, 3])),
]


def numbered(first):
    """The waits of a circle in groups that have only numbers, of which the first of DeepSpeed's is this one."""
    group = "PG ID 1 PG GUID {}"
    return [
        *waits(0, group, first + 2, 97, "ALLTOALL_BASE", 0),
        *waits(1, group, first + 1, 26, "ALLREDUCE", 0),
        *waits(2, group, first, 26, "ALLREDUCE", 1),
        *waits(3, group, first + 3, 97, "ALLTOALL_BASE", 1),
    ]


@pytest.mark.parametrize("first", [1, 4])
def test_groups_that_have_only_numbers_are_the_ones_made_in_that_order(first, tmp_path):
    verdict = judge(tmp_path, {"job.out": [*DEEPSPEEDS, *numbered(first)]})

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("circle", (), False)


@pytest.mark.parametrize(
    "made", [DEEPSPEEDS[:3], DEEPSPEEDS[::-1], [*DEEPSPEEDS[2:], *DEEPSPEEDS[:2]], [*DEEPSPEEDS, MADE.format("a", [5])]]
)
def test_a_list_of_groups_that_does_not_fit_their_numbers_tells_nothing_of_them(made, tmp_path):
    verdict = judge(tmp_path, {"job.out": [*made, *numbered(1)]})

    assert (verdict.kind == "circle", verdict.blamed) == (False, ())


def test_without_a_mesh_it_is_not_known_who_else_is_in_the_groups(tmp_path):
    verdict = judge(tmp_path, {"job.out": ["WORLD_SIZE=4", *AROUND]})

    assert (verdict.blamed, verdict.unknown) == ((), True)


def test_a_rank_of_a_mesh_in_no_call_breaks_the_circle_and_one_other_alone_does_not_name_it(tmp_path):
    others = [line for line in AROUND if not line.startswith("[rank2]")]

    verdict = judge(tmp_path, {"job.out": ["[rank2]: step 11 loss 7.79", MESHES["an array"], *others]})

    assert (verdict.kind, verdict.unknown, "rank 2" in verdict.because) == ("absent", True, True)


@pytest.mark.parametrize(
    "mesh",
    [
        "DeviceMesh('cuda', [[0, 1], [4, 5]], mesh_dim_names=('dp', 'tp'))",  # a part of a larger one
        "DeviceMesh((dp=2, tp=2), 'cuda', stride=(1, 2))",
        "tp groups [[0, 2], [1, 3]] dp groups [[0, 1], [2, 3]]",  # the places are others
        "DeviceMesh('cuda', [[0, 1], [2]], mesh_dim_names=('dp', 'tp'))",
    ],
)
def test_a_mesh_that_does_not_fit_the_groups_tells_nothing_of_them(tmp_path, mesh):
    verdict = judge(tmp_path, {"job.out": ["WORLD_SIZE=4", mesh, *AROUND]})

    assert (verdict.kind == "circle", verdict.blamed) == (False, ())


def of_guid(place, seq):
    return (
        f"[E506 11:31:20.325414305 ProcessGroupNCCL.cpp:2268] [PG ID 3 PG GUID 21(DATA_PARALLEL_GROUP) Rank {place}]"
        f"  failure detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {seq}, last"
        f" completed work: {seq - 1}"
    )


DUMPED = (
    "[E506 11:31:25.431000100 ProcessGroupNCCL.cpp:1774] [PG ID 3 PG GUID 21(DATA_PARALLEL_GROUP) Rank 2] Received a"
    " dump signal due to a collective timeout from  rank 5 and we will try our best to dump the debug info. Last"
    " enqueued NCCL work: 8, last completed NCCL work: 8."
)
LISTED = [f"data-parallel group {n}: ranks [{n}, {4 + n}, {8 + n}, {12 + n}]   (PG GUID {20 + n})" for n in range(4)]


@pytest.mark.parametrize(("made", "blamed"), [(LISTED, (9,)), (LISTED[2:], ())], ids=["told", "another group's"])
def test_places_in_a_group_are_the_ranks_that_a_line_lists_by_the_groups_own_name(made, blamed, tmp_path):
    waits = [line for place in (0, 1, 3) for line in (timed_out(0, 9, place=place, prefix=False), of_guid(place, 9))]
    verdict = judge(tmp_path, [*made, *waits, DUMPED])

    assert (verdict.kind, verdict.blamed, verdict.seq) == ("absent", blamed, 9)


NUMBERED = {
    "behind its number": "> data parallel group odd (PG 3): global ranks [1, 3, 5, 7]",
    "in front of it": "dp group ranks=(1, 3, 5, 7) -> PG 3",
    "with an arrow": "PG 3 -> ranks [1,3,5,7]",
    "in words": "made process group 3 with global ranks: [1, 3, 5, 7]",
}


def of_number(place, seq, *, numel=64, group=3):
    return [
        timed_out(place, seq, numel=numel, prefix=False),
        failed_at(place, f"PG {group}", seq, seq, seq - 1, prefix=False),
    ]


@pytest.mark.parametrize("line", NUMBERED.values(), ids=NUMBERED)
@pytest.mark.parametrize("others", [(), (8,)], ids=["alone", "beside another group"])
def test_places_in_a_group_that_has_only_a_number_are_the_ranks_that_a_script_lists_by_it(line, others, tmp_path):
    own = [part for place in range(4) for part in of_number(place, 9, numel=60 if place == 2 else 64)]
    beside = [part for seq in others for part in of_number(0, seq, group=5)]

    verdict = judge(tmp_path, ["PG 2: ranks [0, 2, 4, 6]", line, *own, *beside])

    assert (verdict.kind, verdict.blamed, verdict.seq) == ("sizes", (5,), 9)


@pytest.mark.parametrize(
    "told",
    [
        [NUMBERED["with an arrow"], failed_at(4, "PG 3", 9, 9, 8, place=1)],
        ["PG 3: ranks [1, 3]"],
        ["PG 3: ranks [1, 3, 5, 7]", "PG 3: ranks [0, 2, 4, 6]"],
        ["PG 3 timed out on ranks [1, 3, 5, 7]"],
        ["PG 0: ranks [0, 2, 4, 6]", "PG 3: ranks [1, 3, 5, 7]"],
    ],
    ids=["a rank's own place", "a part", "two lists", "what befell some", "a count of its own"],
)
def test_a_list_that_may_not_be_a_groups_tells_nothing_of_it(told, tmp_path):
    own = [part for place in range(4) for part in of_number(place, 9, numel=60 if place == 2 else 64)]

    assert judge(tmp_path, [*told, *own]).blamed == ()


def test_ranks_of_the_job_in_place_of_places_in_groups_are_seen_where_a_group_has_no_such_place(tmp_path):
    own = [
        *waits(0, TP, 3, 97, "ALLREDUCE", 0),
        *waits(1, DP, 2, 26, "ALLREDUCE", 1),
        *waits(2, DP, 1, 26, "ALLREDUCE", 2),
        *waits(3, TP, 4, 97, "ALLREDUCE", 3),
    ]
    verdict = judge(tmp_path, {"job.out": [MESHES["lists"], *own]})

    assert told(verdict, answer("circle", seq=97)) == answer("circle", seq=97)


def test_places_that_no_group_has_and_that_are_no_ranks_tell_of_no_group(tmp_path):
    own = [*waits(0, TP, 3, 97, "ALLREDUCE", 5), *waits(1, DP, 2, 26, "ALLREDUCE", 7)]

    assert judge(tmp_path, {"job.out": [MESHES["lists"], *own]}).blamed == ()
