"""Output of NCCL's `ncclras` about a running job, as text and as JSON (NCCL 2.24 to 2.30)."""

import json
from collections import Counter

import pytest

from meshwright.errors import InputError
from meshwright.postmortem.inputs import examine_files
from testkit.hanging_jobs import planted

from .made import answer, judge, timed_out, told

NAMES = {"all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter"}
HEAD = [
    "NCCL version 2.28.3 compiled with CUDA 12.9",
    "CUDA runtime version 12090, driver version 13000",
    "",
    "Job summary",
    "===========",
    "",
    "  Nodes  Processes         GPUs  Processes     GPUs",
    "(total)   per node  per process    (total)  (total)",
    "      4          8            1         32       32",
    "",
]
COLUMNS = [
    "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors",
    "    #  in group  per comm  per node  per comm  in group",
]


def status(rows, errors=(), warnings=()):
    """A whole report; a row is comms, nodes, ranks per node, ranks per comm, status, errors."""
    lines = [*HEAD, "Communicators... (0.00s)", "=============", "", *COLUMNS]
    for number, (comms, nodes, per_node, ranks, state, wrong) in enumerate(rows):
        lines.append(
            f"{number:5d}  {comms:8d}  {nodes:8d}  {per_node:8d}  {ranks:8d}  {ranks:8d}  {state:>8}  {wrong:>6}"
        )
    return [*lines, "", "Errors", "======", "", *errors, "Warnings", "========", "", *warnings]


def place(rank, node=0):
    """Where a rank runs."""
    return f"GPU {rank % 8} managed by process {4000 + rank} on node 10.1.0.{20 + node}"


def ran(rows=((1, 4, 8, 32, "RUNNING", "MISMATCH"),), *lines, errors=()):
    """A report whose warnings are these lines about its first communicator."""
    return status(rows, errors, ["#0-0 (cf264af53edbe986) MISMATCH", *lines, ""])


def behind(operation, *lines):
    return ran(
        ((1, 4, 8, 32, "RUNNING", "MISMATCH"),),
        f"  Communicator ranks have different {operation} operation counts",
        *lines,
    )


SIX = [f"  Rank {rank} -- {place(rank)}" for rank in range(6)]
DEAD = [
    "DEAD",
    "  1 job process is considered dead (unreachable via the RAS network)",
    "  Process 4005 on node 10.1.0.20 managing GPU 5",
    "",
    "#0-0 (cf264af53edbe986) INCOMPLETE",
    "  Missing communicator data from 1 rank",
    f"  Rank 5 -- {place(5)}",
    "",
]
SILENT = [
    "INCOMPLETE",
    "  Missing communicator data from 1 job process",
    "  Process 4011 on node 10.1.0.21 managing GPU 3",
    "",
    "#0-0 (cf264af53edbe986) INCOMPLETE",
    "  Missing communicator data from 1 rank",
    f"  Rank 11 -- {place(11, 1)}",
    "",
]
LOST = [
    "DEAD",
    "  8 job processes are considered dead (unreachable via the RAS network)",
    *(f"  Process {4000 + rank} on node 10.1.0.24 managing GPU {rank % 8}" for rank in range(32, 40)),
    "",
    "#0-0 (cf264af53edbe986) INCOMPLETE",
    "  Missing communicator data from 8 ranks",
    *(f"  Rank {rank} -- {place(rank, 4)}" for rank in range(32, 40)),
    "",
]
INCOMPLETE = ((1, 4, 8, 32, "RUNNING", "INCOMPLETE"),)


def error(*lines):
    return status(((1, 4, 8, 32, "RUNNING", "ERROR"),), ["#0-0 (cf264af53edbe986) ERROR", *lines, ""])


def laggards(rows):
    """A report in which half of the second host is behind in the communicator of all."""
    return ran(
        rows,
        "  Communicator ranks have different AllReduce operation counts",
        "  28 ranks have launched up to operation 650",
        "  4 ranks have launched up to operation 649",
        *(f"  Rank {rank} -- {place(rank, 1)}" for rank in range(8, 12)),
    )


def behind_in_four(rank):
    """The part of a report on a communicator of one rank of each host, whose second rank is behind."""
    return [
        "",
        f"#1-{rank % 8} (7a10be22c04f9d{rank}) MISMATCH",
        "  Communicator ranks have different ReduceScatter operation counts",
        "  3 ranks have launched up to operation 61452",
        f"  Rank 1 has launched up to operation 61440 -- {place(rank, 1)}",
    ]


CASES = {
    "one rank has launched one call less": (
        behind(
            "AllReduce",
            "  31 ranks have launched up to operation 650",
            f"  Rank 3 has launched up to operation 649 -- {place(3)}",
        ),
        answer("absent", 3, 650),
    ),
    "one rank is counted like several and named below": (
        behind(
            "ReduceScatter",
            "  31 ranks have launched up to operation 650",
            "  1 rank has launched up to operation 649",
            f"  Rank 3 -- {place(3)}",
        ),
        answer("absent", 3, 650),
    ),
    "six ranks have launched one call less": (
        behind(
            "AllReduce",
            "  26 ranks have launched up to operation 650",
            "  6 ranks have launched up to operation 649",
            *SIX,
        ),
        answer("absent", None, 650, ranks=range(6)),
    ),
    "a rank that has launched nothing": (
        behind(
            "AllGather",
            "  31 ranks have launched up to operation 12",
            f"  Rank 30 has not launched any operations -- {place(30, 3)}",
        ),
        answer("absent", 30, 1),
    ),
    "most are behind two, and are not named": (
        behind(
            "AllGather",
            "  30 ranks have launched up to operation 640",
            "  2 ranks have launched up to operation 641",
            f"  Rank 12 -- {place(12, 1)}",
            f"  Rank 13 -- {place(13, 1)}",
        ),
        answer("absent", unknown=True),
    ),
    "halves whose ranks are not printed": (
        behind(
            "ReduceScatter", "  16 ranks have launched up to operation 8", "  16 ranks have launched up to operation 7"
        ),
        answer("absent", unknown=True),
    ),
    "one rank has made another call than all others": (
        behind(
            "Broadcast",
            "  31 ranks have launched up to operation 70",
            f"  Rank 9 has launched up to operation 71 -- {place(9, 1)}",
            "",
            "  Communicator ranks have different AllReduce operation counts",
            "  31 ranks have launched up to operation 650",
            f"  Rank 9 has launched up to operation 649 -- {place(9, 1)}",
        ),
        answer("desync", 9, 650),
    ),
    "all is well by the report": (
        status([(1, 4, 8, 32, "RUNNING", "OK"), (8, 1, 4, 4, "RUNNING", "OK")]),
        answer("none", unknown=True),
    ),
    "a time-out of one rank, and a report of whatever time without a fault": (
        [*status([(1, 32, 8, 256, "RUNNING", "OK")]), timed_out(118, 2398459)],
        answer("absent", seq=2398459, unknown=True),
    ),
    "a process is dead": (status(INCOMPLETE, DEAD), answer("killed", 5)),
    "a dead process whose rank is printed alone": (
        status(INCOMPLETE, [*DEAD[:-2], "  The missing rank: 5", ""]),
        answer("killed", 5),
    ),
    "the processes of a host are dead, and counted no more": (
        status([(1, 3, 8, 40, "RUNNING", "INCOMPLETE")], LOST),
        answer("killed", ranks=range(32, 40)),
    ),
    "a process does not answer": (status(INCOMPLETE, SILENT), answer("absent", 11)),
    "a dead process of which no communicator is left": (
        status([(1, 4, 8, 32, "RUNNING", "OK")], DEAD[:4]),
        answer("killed", unknown=True),
    ),
    "a rank whose peer broke": (
        error("  Asynchronous error on 1 rank", f"  Rank 7 reported Remote process error -- {place(7)}"),
        answer("network", unknown=True),
    ),
    "a rank whose GPU raised": (
        error("  Asynchronous error on 1 rank", f"  Rank 7 reported Unhandled CUDA error -- {place(7)}"),
        answer("exception", 7),
    ),
    "errors of peers beside one of a GPU": (
        error(
            "  Asynchronous errors on 3 ranks",
            "  2 ranks reported Remote process error",
            f"  Rank 6 -- {place(6)}",
            f"  Rank 8 -- {place(8, 1)}",
            f"  Rank 7 reported Unhandled CUDA error -- {place(7)}",
        ),
        answer("exception", 7),
    ),
    "who has left the communicator": (
        ran(
            ((1, 4, 8, 32, "RUNNING", "MISMATCH"),),
            "  Communicator ranks have different status",
            "  31 ranks have status RUNNING",
            f"  Rank 2 has status NOCOMM -- {place(2)}",
        ),
        answer("absent", 2),
    ),
    "a rank that aborted may have waited for another before": (
        ran(
            ((1, 4, 8, 32, "ABORT", "MISMATCH"),),
            "  Communicator ranks have different status",
            "  31 ranks have status RUNNING",
            f"  Rank 2 has status ABORT -- {place(2)}",
        ),
        answer("none", unknown=True),
    ),
    "who has not ended its initialization": (
        ran(
            ((1, 4, 8, 32, "RUNNING", "MISMATCH"),),
            "  Communicator ranks have different status",
            "  31 ranks have status RUNNING",
            f"  Rank 21 has status INIT -- {place(21, 2)}",
        ),
        answer("absent", 21),
    ),
    "a rank of a smaller communicator counts inside it": (
        status(
            [(1, 4, 8, 32, "RUNNING", "OK"), (8, 1, 4, 4, "RUNNING", "MISMATCH")],
            warnings=[
                "#1-3 (52e9b4a12c0011f0) MISMATCH",
                "  Communicator ranks have different AllReduce operation counts",
                "  3 ranks have launched up to operation 120",
                f"  Rank 1 has launched up to operation 119 -- {place(13, 1)}",
                "",
            ],
        ),
        answer("absent", unknown=True),
    ),
    "a rank of a smaller communicator whose process the logs know": (
        {
            "ras.txt": status(
                [(1, 4, 8, 32, "RUNNING", "OK"), (8, 1, 4, 4, "RUNNING", "MISMATCH")],
                warnings=[
                    "#1-3 (52e9b4a12c0011f0) MISMATCH",
                    "  Communicator ranks have different AllReduce operation counts",
                    "  3 ranks have launched up to operation 120",
                    f"  Rank 1 has launched up to operation 119 -- {place(13, 1)}",
                    "",
                ],
            ),
            "node.log": [
                f"node-b:{4000 + rank}:{5000 + rank} [{rank % 8}] NCCL INFO comm 0x55d{rank} rank {rank} nranks 32"
                f" cudaDev"
                f" {rank % 8} nvmlDev {rank % 8} busId {rank % 8 + 1}000 commId 0xcf26 - Init COMPLETE"
                for rank in range(32)
            ],
        },
        answer("absent", 13, 120),
    ),
    "half of a host, each also in a communicator of one rank of each host": (
        laggards([(1, 4, 8, 32, "RUNNING", "MISMATCH"), (4, 1, 8, 8, "RUNNING", "OK"), (8, 4, 1, 4, "RUNNING", "OK")]),
        answer("absent", None, 650, ranks=range(8, 12)),
    ),
    "half of a host, in a communicator of which these may be all ranks": (
        laggards([(1, 4, 8, 32, "RUNNING", "MISMATCH"), (8, 1, 4, 4, "RUNNING", "OK")]),
        answer("absent", unknown=True),
    ),
    "lines of one width behind which an empty line comes were not wrapped": (
        2
        * status(
            [(1, 4, 8, 32, "RUNNING", "MISMATCH"), (8, 4, 1, 4, "RUNNING", "MISMATCH")],
            warnings=[
                "#0-0 (cf264af53edbe986) MISMATCH",
                "  Communicator ranks have different AllReduce operation counts",
                "  28 ranks have launched up to operation 650",
                "  4 ranks have launched up to operation 649",
                *(f"  Rank {rank} -- {place(rank, 1)}" for rank in range(12, 16)),
                *(line for rank in range(12, 16) for line in behind_in_four(rank)),
                "",
            ],
        ),
        answer("absent", None, 650, ranks=range(12, 16)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_ncclras_tells(name, tmp_path):
    files, wanted = CASES[name]
    verdict = judge(tmp_path, files)
    assert told(verdict, wanted) == wanted, str(verdict)


def member(rank, counts, *, error=0, abort=False, destroyed=False):
    return {
        "rank": rank,
        "host": "10.1.0.20",
        "pid": 4000 + rank,
        "cuda_dev": rank,
        "nvml_dev": rank,
        "status": {
            "init_state": 0,
            "async_error": error,
            "finalize_called": False,
            "destroy_flag": destroyed,
            "abort_flag": abort,
        },
        "collective_counts": {
            "Broadcast": 2,
            "Reduce": 0,
            "AllGather": 0,
            "ReduceScatter": 0,
            "AllReduce": 0,
            **counts,
        },
    }


def missing(rank, *, dead):
    return {
        **{"rank": rank, "host": "10.1.0.20", "pid": 4000 + rank, "cuda_dev": rank, "nvml_dev": rank},
        "status": {"unresponsive": True, "considered_dead": dead},
    }


def as_json(ranks, absent=(), size=None):
    """The report of `ncclras -f json` with one communicator."""
    told = {
        "nccl_version": "2.28.9",
        "cuda_runtime_version": 12090,
        "cuda_driver_version": 13000,
        "timestamp": "2026-11-20 10:20:30",
        "communicators_count": 1,
        "communicators": [
            {
                "hash": "0xcf264af53edbe986",
                "secondary_hash": "0x1:0x2",
                "size": size or len(ranks) + len(absent),
                "ranks_count": len(ranks),
                "missing_ranks_count": len(absent),
                "ranks": list(ranks),
                "missing_ranks": list(absent),
            }
        ],
        "ras": {"collection_time_sec": 0.004, "timeouts_count": 0},
    }
    return {"ras.json": json.dumps(told, indent=2).encode()}


JSON_CASES = {
    "one rank is behind": (
        as_json([member(rank, {"AllReduce": 41 - (rank == 3)}) for rank in range(8)]),
        answer("absent", 3, 41),
    ),
    "most are behind one": (
        as_json([member(rank, {"AllReduce": 41 + (rank == 3)}) for rank in range(8)]),
        answer("absent", unknown=True),
    ),
    "one rank calls something else": (
        as_json(
            [member(rank, {"AllGather": 9} if rank == 1 else {"AllGather": 8, "AllReduce": 1}) for rank in range(4)]
        ),
        answer("desync", 1, 1),
    ),
    "a rank is dead": (
        as_json([member(rank, {"AllReduce": 41}) for rank in range(7)], [missing(7, dead=True)]),
        answer("killed", 7),
    ),
    "a rank does not answer": (
        as_json([member(rank, {"AllReduce": 41}) for rank in range(7)], [missing(7, dead=False)]),
        answer("absent", 7),
    ),
    "all are alike": (as_json([member(rank, {"AllReduce": 41}) for rank in range(8)]), answer("none", unknown=True)),
    "an error of CUDA on one rank": (
        as_json([member(rank, {"AllReduce": 41}, error=int(rank == 2)) for rank in range(4)]),
        answer("exception", 2),
    ),
    "errors of peers": (
        as_json([member(rank, {"AllReduce": 41}, error=6 if rank in {1, 3} else 0) for rank in range(4)]),
        answer("network", unknown=True),
    ),
}


@pytest.mark.parametrize("name", JSON_CASES)
def test_what_the_json_of_ncclras_tells(name, tmp_path):
    files, wanted = JSON_CASES[name]
    verdict = judge(tmp_path, files)
    assert told(verdict, wanted) == wanted, str(verdict)


def test_counts_that_have_moved_between_two_reports_blame_nobody(tmp_path):
    earlier = behind(
        "AllReduce",
        "  31 ranks have launched up to operation 600",
        f"  Rank 3 has launched up to operation 599 -- {place(3)}",
    )
    later, wanted = CASES["one rank has launched one call less"]
    verdict = judge(tmp_path, {"1.txt": earlier, "2.txt": later})
    assert told(verdict, moved := answer("absent", unknown=True)) == moved
    assert any("minute later" in what for what in verdict.missing)
    assert told(judge(tmp_path / "same", {"1.txt": later, "2.txt": later}), wanted) == wanted
    assert told(judge(tmp_path / "one file", {"1.txt": [*later, *later]}), wanted) == wanted


def stepping(first, *, until):
    """Steps of a log, ten a minute, from a minute of the hour until another one."""
    return [
        f"2026-11-20 10:{step // 10:02d}:{step % 10 * 6:02d},000 INFO step {step} loss 2.1"
        for step in range(first * 10, until * 10)
    ]


def polled(minute, ahead):
    """A report that a script polled, with one rank that has launched one call less than the others."""
    lines = ["  31 ranks have launched up to operation {}", "  Rank 3 has launched up to operation {} -- {}"]
    told = [lines[0].format(ahead), lines[1].format(ahead - 1, place(3))]
    return [f"== Fri Nov 20 10:{minute}:00 UTC 2026", *behind("AllReduce", *told)]


@pytest.mark.parametrize(
    ("second", "until", "kind"),
    [
        (690, 40, "none"),  # the log goes on behind both
        (690, 20, "absent"),  # it ends with the second
        (600, 40, "absent"),  # the counts stand still, whatever a log of another zone shows
    ],
)
def test_ranks_that_are_behind_while_the_job_steps_on_are_no_fault(second, until, kind, tmp_path):
    files = {"ras.txt": [*polled(10, 600), *polled(20, second)], "train.log": stepping(0, until=until)}

    assert judge(tmp_path, files).kind == kind


def alike(at, calls=41):
    """A report as JSON in which all eight ranks have launched alike, taken at a time of the day."""
    data = as_json([member(rank, {"AllReduce": calls}) for rank in range(8)])["ras.json"]
    return data.replace(b"10:20:30", at.encode())


@pytest.mark.parametrize(
    ("reports", "wanted"),
    [
        ({"ras.json": alike("10:15:00")}, answer("stuck", None, 9)),  # while they waited
        ({"1.json": alike("09:15:00"), "2.json": alike("09:45:00")}, answer("stuck", None, 9)),  # nothing moved
        ({"ras.json": alike("09:15:00")}, answer("absent", None, 9, unknown=True)),
        ({"1.json": alike("09:15:00", 40), "2.json": alike("09:45:00")}, answer("absent", None, 9, unknown=True)),
    ],
)
def test_a_report_without_differences_during_the_wait_shows_that_all_are_in(reports, wanted, tmp_path):
    verdict = judge(tmp_path, {**reports, "train.log": [timed_out(rank, 9) for rank in (1, 6)]})

    assert told(verdict, wanted) == wanted


def test_a_report_does_not_count_the_sends_and_receives_of_which_torch_makes_an_all_to_all(tmp_path):
    lines = [timed_out(rank, 9, "ALLTOALL_BASE") for rank in (1, 6)]

    verdict = judge(tmp_path, {"ras.json": alike("10:15:00"), "train.log": lines})

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("absent", (), True)


def test_one_report_says_that_a_second_would_show_whether_the_job_runs(tmp_path):
    verdict = judge(tmp_path, CASES["one rank has launched one call less"][0])
    assert any("minute later" in what for what in verdict.missing)


def grouped(*communicators):
    """A report as JSON with several communicators of one job, each a list of (rank of the job, calls)."""
    data = json.loads(as_json([])["ras.json"])
    data["communicators"] = []
    for number, ranks in enumerate(communicators):
        members = [{**member(rank, {"AllReduce": calls}), "rank": place} for place, (rank, calls) in enumerate(ranks)]
        one = {"hash": f"0x{number}", "secondary_hash": "0x1:0x2", "size": len(members), "ranks_count": len(members)}
        data["communicators"].append({**one, "missing_ranks_count": 0, "ranks": members, "missing_ranks": []})
    return {"ras.json": json.dumps(data).encode()}


def test_who_waits_in_another_communicator_is_not_to_blame(tmp_path):
    world = [(rank, 40) for rank in range(8)]
    first = [(rank, 9 - (rank == 3)) for rank in range(4)]  # rank 3 is behind, for it waits for rank 7
    second = [(3, 5), (5, 5), (6, 5), (7, 4)]
    wanted = answer("absent", 7, 5)
    assert told(judge(tmp_path, grouped(world, first, second)), wanted) == wanted


def test_ranks_that_are_behind_each_other_in_two_communicators_are_nobody(tmp_path):
    world = [(rank, 40) for rank in range(6)]
    first = [(0, 9), (1, 9), (2, 8)]
    second = [(2, 5), (3, 5), (0, 4)]
    wanted = answer("absent", unknown=True)
    assert told(judge(tmp_path, grouped(world, first, second)), wanted) == wanted


def test_a_report_that_is_cut_off_or_has_other_keys_is_refused(tmp_path):
    (tmp_path / "ras.json").write_bytes(as_json([member(0, {})])["ras.json"][:300])
    with pytest.raises(InputError, match="not whole JSON"):
        examine_files([tmp_path / "ras.json"])
    (tmp_path / "ras.json").write_text('{"nccl_version": "2.28.9", "communicators": [{"size": 4}]}')
    with pytest.raises(InputError, match="not the report of ncclras"):
        examine_files([tmp_path / "ras.json"])


def test_a_report_with_an_infinite_number_is_refused(tmp_path):
    data = as_json([member(0, {})], size=float("inf"))["ras.json"]
    assert b"Infinity" in data
    (tmp_path / "ras.json").write_bytes(data)
    with pytest.raises(InputError, match="not the report of ncclras"):
        examine_files([tmp_path / "ras.json"])


def test_ranks_below_zero_of_a_report_as_json_are_not_named(tmp_path):
    ranks = [{**member(rank, {"AllReduce": 41}, error=int(rank == 2)), "rank": rank - 4} for rank in range(4)]
    verdict = judge(tmp_path, as_json(ranks))
    assert (verdict.kind, verdict.blamed) == ("exception", ())


def test_ranks_that_a_damaged_report_invents_are_not_named(tmp_path):
    errors = [
        "INCOMPLETE",
        "  Missing communicator data from 1 job process",
        "  Process 60004 on node 10.4.109.13 managing GPU 0",
        "",
        "#0-0 (93d7000200000001) INCOMPLETE",
        "  Missing communicator data from 255 ranks",
        "  Rank 1057455228 -- GPU 0 managed by process 60004 on node 10.4.109.13",
    ]
    wanted = answer("absent", unknown=True)
    assert told(judge(tmp_path, status(INCOMPLETE, errors)), wanted) == wanted


def report_of(job):
    """What `ncclras -f json` tells of a random job: how many calls of each kind each rank's host has launched."""
    data = json.loads(as_json([])["ras.json"])
    data["communicators"] = []
    for name, (_, ranks) in job.groups.items():
        members = []
        for place, rank in enumerate(ranks):
            counts = Counter(NAMES[step.operation] for step in job.launched[rank] if step.group == name)
            members.append({**member(rank, dict.fromkeys(NAMES.values(), 0) | counts), "rank": place})
        one = {"hash": f"0x{name}", "secondary_hash": "0x1:0x2", "size": len(members), "ranks_count": len(members)}
        data["communicators"].append({**one, "missing_ranks_count": 0, "ranks": members, "missing_ranks": []})
    return {"ras.json": json.dumps(data).encode()}


@pytest.mark.parametrize("seed", range(80))
def test_no_innocent_rank_is_blamed_for_the_counts_of_a_random_job(seed, tmp_path):
    job = planted(seed)

    verdict = judge(tmp_path, report_of(job))

    assert set(verdict.blamed) <= {job.culprit}, verdict.because


def test_of_the_random_jobs_most_whose_ranks_are_late_or_call_otherwise_are_told(tmp_path):
    jobs = [job for seed in range(80) if (job := planted(seed)).fault in {"absent", "desync"}]

    told = [bool(judge(tmp_path / str(at), report_of(job)).blamed) for at, job in enumerate(jobs)]

    assert sum(told) >= 0.5 * len(told)


def test_a_heading_of_counts_that_no_count_follows_says_nothing(tmp_path):
    verdict = judge(tmp_path, behind("AllGather", "  1e18 ranks have launched up to operation 12"))

    assert verdict.blamed == ()


def counted(last, rank=3):
    """The end of a report on one rank that is behind."""
    return [
        "#0-0 (cf264af53edbe986) MISMATCH",
        "  Communicator ranks have different AllReduce operation counts",
        f"  31 ranks have launched up to operation {last}",
        f"  1 rank has launched up to operation {last - 1}",
        f"  Rank {rank} -- {place(rank)}",
    ]


@pytest.mark.parametrize(("last", "blamed"), [(650, (3,)), (655, ())])
def test_the_end_of_a_later_report_shows_whether_the_counts_move(last, blamed, tmp_path):
    whole = status(((1, 4, 8, 32, "RUNNING", "MISMATCH"),), (), counted(650))

    verdict = judge(tmp_path, [*whole, "$ sleep 300; ncclras | tail -5", *counted(last)])

    assert (verdict.kind, verdict.blamed) == ("absent", blamed)
