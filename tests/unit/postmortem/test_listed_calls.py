"""NCCL's list of calls (NCCL_DEBUG_SUBSYS=COLL): whose they are, and what a remark below it says."""

import pytest

from .made import called, judge, timed_out

RANKS = {81: 2, 82: 0, 83: 1, 91: 5, 92: 4, 93: 3}  # of processes, three in each of two pods
PODS = {8: "10.9.0.8", 9: "10.9.0.9"}


def listed(*, world=True):
    """Ray Train's list of its workers, printed by a process of one host."""
    word = "world_rank" if world else "rank"
    head = f"(TorchTrainer pid=40, ip={PODS[8]}) - "
    return [
        f"{head}(ip={PODS[pid // 10]}, pid={pid}) {word}={rank}, local_rank={rank % 3}, node_rank={rank // 3}"
        for pid, rank in RANKS.items()
    ]


def calls(other, *, counts=(5, 6)):
    """The calls of all processes by their pods' names, with another size in the last one of a process."""
    return [
        f"(RayTrainWorker pid={pid}, ip={PODS[pid // 10]}) ray-worker-{pid // 10}q:{pid}:60 [{pid % 10}] NCCL INFO"
        f" AllReduce: opCount {count:x} sendbuff 0x7 recvbuff 0x7 count {77 if (pid, count) == (other, 6) else 99}"
        f" datatype 7 op 0 root 0 comm 0x5{pid} [nranks=6] stream 0x4"
        for count in counts
        for pid in RANKS
    ]


@pytest.mark.parametrize("world", [True, False])
@pytest.mark.parametrize("waits", [[], [timed_out(3, 7, numel=99), timed_out(0, 7, numel=99)]])
def test_the_worker_whose_call_has_another_size_is_named_by_rays_list(waits, world, tmp_path):
    verdict = judge(tmp_path, {"driver.log": [*listed(world=world), *waits], "nccl.log": calls(91)})

    assert (verdict.kind, verdict.rank, verdict.unknown) == ("sizes", 5, False), str(verdict)


def test_a_list_without_the_workers_of_one_pod_names_nobody(tmp_path):
    verdict = judge(tmp_path, {"driver.log": listed()[:3], "nccl.log": calls(91)})

    assert verdict.blamed == (), str(verdict)


ALL_CALL = [called(rank, count) for count in (0, 1) for rank in range(4)]


REMARKS = [
    "(nothing more, for an hour)",
    "... hangs here forever",
    "<no further output>",
    "Freezes here. Both GPUs at 99%.",
]


@pytest.mark.parametrize("remark", REMARKS)
def test_a_log_that_ends_where_all_have_called_alike_hangs_where_somebody_says_so(remark, tmp_path):
    verdict = judge(tmp_path, [*ALL_CALL, remark])

    assert (verdict.kind, verdict.blamed, verdict.unknown, verdict.seq) == ("stuck", (), False, 1), str(verdict)


SAY_NOTHING = {
    "no remark": ALL_CALL,
    "of a program": [*ALL_CALL, "[rank0]: no output directory is given"],
    "of a program without a rank": [*ALL_CALL, "Stops at step 900, loss is frozen for a while"],
    "another remark": [*ALL_CALL, "(all fine so far)"],
    "above the last line": ["(nothing more to say)", *ALL_CALL],
    "a rank that has not called": [*ALL_CALL[:-1], "(nothing more)"],
}


@pytest.mark.parametrize("lines", SAY_NOTHING.values(), ids=SAY_NOTHING)
def test_a_log_of_calls_alone_shows_no_call_that_hangs(lines, tmp_path):
    assert judge(tmp_path, lines).kind != "stuck"


def test_ranks_of_one_process_are_told_apart_by_their_communicators(tmp_path):
    joins = [
        f"box:31:6{r} [{r}] NCCL INFO comm 0x9{r} rank {r} nranks 2 cudaDev {r} busId {r + 1}000 commId 0x7 -"
        " Init COMPLETE"
        for r in range(2)
    ]
    calls = [
        f"box:31:31 [{r}] NCCL INFO AllReduce: opCount 0 sendbuff 0x7 recvbuff 0x8 count 64 datatype 7 op 0 root 0"
        f" comm 0x9{r} [nranks=2] stream 0x4"
        for r in range(2)
    ]
    verdict = judge(tmp_path, [*joins, *calls, "# it hangs here"])

    assert (verdict.kind, verdict.waiting) == ("stuck", (0, 1)), str(verdict)


def joined(rank, ranks=4):
    return (
        f"host-a:{45006 + rank}:{45006 + rank} [{rank}] NCCL INFO comm 0x55bef0{rank}01370 rank {rank} nranks {ranks}"
        f" cudaDev {rank} busId {rank + 1}000 commId 0x7a - Init COMPLETE"
    )


ALL_JOIN = [joined(rank) for rank in range(4)]
OTHERS_CALL = [called(rank, count) for count in (0, 1) for rank in (0, 1, 3)]


def test_who_joined_and_made_no_call_keeps_the_others_waiting(tmp_path):
    verdict = judge(tmp_path, [*ALL_JOIN, *OTHERS_CALL, REMARKS[0]])

    assert (verdict.kind, verdict.rank, verdict.seq, verdict.waiting) == ("absent", 2, 1, (0, 1, 3)), str(verdict)


@pytest.mark.parametrize(
    "lines",
    [[*ALL_JOIN, *OTHERS_CALL], [*ALL_JOIN, *OTHERS_CALL, "step 3 loss 2.0", REMARKS[0]]],
    ids=["no sign that they wait", "steps, which it must have called for"],
)
def test_a_rank_without_a_line_of_a_call_may_have_made_it(lines, tmp_path):
    assert judge(tmp_path, lines).blamed == ()


def test_a_rank_of_which_no_line_is_here_is_missing_and_not_blamed(tmp_path):
    verdict = judge(tmp_path, [*(joined(rank) for rank in (0, 1, 3)), *OTHERS_CALL, REMARKS[0]])

    assert (verdict.kind, verdict.blamed, verdict.unknown, verdict.seq) == ("absent", (), True, 1), str(verdict)
    assert "the calls of rank 2" in verdict.missing[0]


def test_a_rank_that_is_behind_is_named_though_the_log_of_another_one_is_missing(tmp_path):
    lines = [*(joined(rank, 5) for rank in range(4)), *ALL_CALL[:4], *(called(rank, 1) for rank in (0, 1, 3))]

    verdict = judge(tmp_path, lines)

    assert (verdict.kind, verdict.rank) == ("absent", 2), str(verdict)
    assert verdict.missing == ("the log of rank 4, which may be behind too",)


JOINED = [
    f"box:3{r}:6{r} [{r}] NCCL INFO comm 0x9{r} rank {r} nranks 3 cudaDev {r} busId {r + 1}000 commId 0x7 -"
    " Init COMPLETE"
    for r in range(3)
]
TABLE = ["# nThread 1 nGpus 3", *JOINED, "#       size         count      type   redop    root     time   algbw"]
ROW = "           8             2     float     sum      -1    16.57    0.00"
HANGS = "< it hangs here, GPUs at 100 %"
TESTS = {
    "no row": ([*TABLE, HANGS], ("stuck", (), False)),
    "some rows": ([*TABLE, ROW, HANGS], ("stuck", (), False)),
    "a rank that has not joined": ([line for line in TABLE if line != JOINED[1]] + [HANGS], ("none", (), True)),
    "a table that has ended": ([*TABLE, ROW, "# Avg bus bandwidth    : 20.0", HANGS], ("none", (), True)),
    "nobody's remark": ([*TABLE, ROW], ("none", (), True)),
}


@pytest.mark.parametrize(("lines", "expected"), TESTS.values(), ids=TESTS)
def test_a_test_of_nccl_hangs_on_all_ranks_where_somebody_says_that_its_table_did_not_go_on(lines, expected, tmp_path):
    verdict = judge(tmp_path, lines)

    assert (verdict.kind, verdict.blamed, verdict.unknown) == expected, str(verdict)


def test_types_of_elements_have_names_where_nccl_prints_their_numbers(tmp_path):
    lines = [
        called(rank, 1, "AllGather" if rank == 2 else "AllReduce", datatype=2 + 5 * (rank != 2)) for rank in range(4)
    ]

    verdict = judge(tmp_path, lines)

    assert "all_gather of 5 elements of Int" in verdict.because
    assert "all_reduce of 5 elements of Float" in verdict.because
