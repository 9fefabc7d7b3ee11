"""Reports of `ncclras` beside other files: tables of processes, stacks, GPUs; exporters that rename its keys."""

import json

import pytest

from .made import judge
from .test_ras import COLUMNS, HEAD, alike, member
from .test_whose_stacks import LOADS, REDUCES, dump

BEHIND = [
    *HEAD,
    "Communicators... (0.00s)",
    *COLUMNS,
    "    0         1         4         8        32        32   RUNNING        OK",
    "    1         2         4         4        16        32   RUNNING  MISMATCH",
    "Warnings",
    "========",
    "#1-0 (7a10be22c04f9d11) MISMATCH",
    "  Communicator ranks have different AllGather operation counts",
    "  15 ranks have launched up to operation 77",
    "  1 rank has launched up to operation 76",
    "  Rank 5 -- GPU 2 managed by process 6002 on node 10.1.0.21",
]


def table(pid, host="10.1.0.2{node}"):
    """What rank 0 prints of all ranks, of which each host has eight."""
    rows = [
        f"place: rank={rank} host={host.format(node=rank // 8)} pid={pid(rank)} tp_rank={rank % 2} dp_rank={rank // 2}"
        for rank in range(32)
    ]
    return ["launch world_size=32 tp=2 dp=16", *rows[7:], *rows[:7]]


TABLES = {
    "each its own process": (table(lambda rank: 6002 if rank == 10 else 7000 + rank), (10,)),
    "on hosts that count alike": (table(lambda rank: 6000 + rank % 8), (10,)),
    "on hosts that are called otherwise": (table(lambda rank: 6000 + rank % 8, "box{node}"), ()),
    "half of the ranks": (table(lambda rank: 6000 + rank % 8)[:17], ()),
}


@pytest.mark.parametrize(("lines", "blamed"), TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("name", ["train_rank0.log", "train.log"])
def test_a_table_of_all_ranks_leads_from_a_place_in_a_group_to_the_rank(lines, blamed, name, tmp_path):
    verdict = judge(tmp_path, {"ras.txt": BEHIND, name: lines})

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("absent", blamed, not blamed)


def renamed(ranks, *, state="OK"):
    """A report of an exporter, with keys of its own and no status apart."""
    members = [
        {
            **{"rank": rank, "node": "10.1.0.20", "pid": 4000 + rank, "gpu": rank, "init_state": state},
            **{"async_error": 0, "coll_op_counts": {"AllReduce": calls}},
        }
        for rank, calls in enumerate(ranks)
    ]
    told = {"nccl_version": "2.28.9", "timestamp": "2026-11-20T10:20:30Z"}
    return json.dumps({**told, "communicators": [{"hash": "0x5a", "n_ranks": len(ranks), "ranks": members}]}).encode()


@pytest.mark.parametrize(
    ("report", "kind", "blamed"),
    [
        (renamed([9, 9, 8, 9]), "absent", (2,)),
        (renamed([9, 9, 9, 9]), "none", ()),
        (renamed([9, 9, 9, 9], state="ncclRemoteError"), "network", ()),
    ],
    ids=["behind", "alike", "errors"],
)
def test_other_names_of_the_keys_say_the_same(report, kind, blamed, tmp_path):
    verdict = judge(tmp_path, {"ras.json": report})

    assert (verdict.kind, verdict.blamed) == (kind, blamed)


def gpus(*percents):
    rows = [
        row
        for number, percent in enumerate(percents)
        for row in (
            f"|   {number}  NVIDIA H100 80GB HBM3    On  |   00000000:{number + 1}B:00.0 Off |                    0 |",
            f"| N/A   41C    P0     132W / 700W |  70211MiB / 81559MiB |    {percent:3d}%      Default |",
        )
    ]
    return ["| NVIDIA-SMI 580.82.07   Driver Version: 580.82.07   CUDA Version: 13.0 |", *rows]


def spies(inner):
    return [line for rank in range(8) for line in dump(4000 + rank, f"python fit.py --rank {rank}", inner(rank))]


APART = {"1.json": alike("10:00:00"), "2.json": alike("10:30:00")}
STOOD = {
    "all GPUs are busy": ({**APART, "smi.txt": gpus(*[100] * 8)}, "stuck"),
    "all stacks wait": ({**APART, "spy.txt": spies(lambda rank: REDUCES)}, "stuck"),
    "its device": (
        {**APART, "spy.txt": dump(9, "python fit.py", "__call__ (jax/_src/interpreters/pxla.py:1311)")},
        "stuck",
    ),
    "one GPU is idle": ({**APART, "smi.txt": gpus(*[100] * 7, 0)}, "none"),
    "nothing else": (APART, "none"),
    "one reads its data": ({**APART, "spy.txt": spies(lambda rank: LOADS if rank == 3 else REDUCES)}, "data"),
    "soon after": ({**APART, "2.json": alike("10:01:00"), "smi.txt": gpus(*[100] * 8)}, "none"),
    "more was launched": ({**APART, "2.json": alike("10:30:00", 42), "smi.txt": gpus(*[100] * 8)}, "none"),
}


@pytest.mark.parametrize(("files", "kind"), STOOD.values(), ids=STOOD)
def test_counts_that_stand_still_while_all_wait_show_that_all_are_in_a_call(files, kind, tmp_path):
    assert judge(tmp_path, files).kind == kind


def test_several_reports_of_one_file_are_compared_like_those_of_several(tmp_path):
    def polled(second):
        reports = alike("10:00:00").decode(), second.decode()
        return "\n".join(["$ date; ncclras -f json", reports[0], "Fri Nov 20 10:30:00 UTC 2026", reports[1]]).encode()

    gone = {"still.json": polled(alike("10:30:00")), "smi.txt": gpus(*[100] * 8)}

    assert judge(tmp_path / "still", gone).kind == "stuck"
    assert judge(tmp_path / "moved", {**gone, "still.json": polled(alike("10:30:00", 42))}).kind == "none"


def behind_by_one(ahead, *laggards, at=""):
    """A report in which a few ranks have launched one call less than the others."""
    rows = [f"  Rank {rank} -- GPU {rank} managed by process {6000 + rank} on node 10.1.0.20" for rank in laggards]
    return [
        *([f"{at} ras: polled"] if at else []),
        *HEAD,
        "Communicators... (0.00s)",
        *COLUMNS,
        "    0         1         4         8        32        32   RUNNING  MISMATCH",
        "Warnings",
        "========",
        "#0-0 (7a10be22c04f9d11) MISMATCH",
        "  Communicator ranks have different AllReduce operation counts",
        f"  {32 - len(laggards)} ranks have launched up to operation {ahead}",
        f"  {len(laggards)} ranks have launched up to operation {ahead - 1}",
        *rows,
    ]


RUNS = [behind_by_one(300, 1, 4), behind_by_one(372, 6, 7, 9), behind_by_one(441, 0, 2)]
MOVING = {
    "ranks take turns": (RUNS, "none"),
    "the same ranks each time": ([behind_by_one(ahead, 3, 5) for ahead in (300, 372, 441)], "none"),
    "in files of their own": ({f"{at}.txt": report for at, report in enumerate(RUNS)}, "none"),
    "by clocks": (
        [
            behind_by_one(300, 1, 4, at="2026-11-20 10:00:00"),
            behind_by_one(900, 6, 7, at="2026-11-20 10:05:00"),
            behind_by_one(1020, 0, 2, at="2026-11-20 10:06:00"),
        ],
        "none",
    ),
    "two reports": (RUNS[:2], "absent"),
    "it stops early in the last interval": ([*RUNS[:2], behind_by_one(376, 0, 2)], "absent"),
    "the last stands still": ([*RUNS, RUNS[-1]], "absent"),
    "the few have not moved": (
        [[line.replace(f" {n - 1}", " 299") for line in behind_by_one(n, 3)] for n in (300, 372, 441)],
        "absent",
    ),
}


@pytest.mark.parametrize(("reports", "kind"), MOVING.values(), ids=MOVING)
def test_ranks_one_call_behind_in_reports_that_move_on_evenly_are_no_fault(reports, kind, tmp_path):
    files = reports if isinstance(reports, dict) else [line for report in reports for line in report]
    verdict = judge(tmp_path, files)

    assert verdict.kind == kind
    assert kind == "absent" or [line.text for line in verdict.evidence if "have launched: " in line.text]


def test_a_time_out_after_reports_that_moved_is_still_a_hang(tmp_path):
    late = "[Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=500, OpType=ALLREDUCE, NumelIn=4, "
    late += "NumelOut=4, Timeout(ms)=600000) ran for 600011 milliseconds before timing out."

    assert judge(tmp_path, {"ras.txt": [line for one in RUNS for line in one], "train.log": [late]}).kind != "none"


def test_a_member_without_a_host_is_refused(tmp_path):
    bare = {key: value for key, value in member(0, {}).items() if key != "host"}
    report = {"nccl_version": "2.28.9", "communicators": [{"hash": "0x5a", "size": 1, "ranks": [bare]}]}

    verdict = judge(tmp_path, {"ras.json": json.dumps(report).encode(), "train.log": ["step 1 loss 2.0"]})

    assert any("not the report of ncclras" in what for what in verdict.missing)


NAMED = [f"# box{node}=10.1.0.2{node}" for node in range(4)]
ADDRESSES = {
    "a list": [" ".join(NAMED)],
    "a table of hosts": [f"10.1.0.2{node}   box{node}.mesh.example box{node}" for node in range(4)],
    "NCCL's own": [
        f"box{node}:{6000 + node}:6009 [0] NCCL INFO Bootstrap : Using eth0:10.1.0.2{node}<0>" for node in range(4)
    ],
}


@pytest.mark.parametrize("lines", ADDRESSES.values(), ids=ADDRESSES)
def test_a_process_that_a_report_names_by_an_address_is_that_of_the_host_that_has_it(lines, tmp_path):
    places = table(lambda rank: 6000 + rank % 8, "box{node}")
    stood = [REDUCES, REDUCES, "wait (subprocess.py:1264)", REDUCES]
    stacks = {
        f"stacks-{host}.txt": [f"# ssh {host}", *(row for n, at in enumerate(own) for row in dump(6000 + n, "run", at))]
        for host, own in (("box0", [REDUCES] * 4), ("box1", stood))
    }
    verdict = judge(tmp_path, {"ras.txt": BEHIND, "train.log": places, "hosts.txt": lines})

    assert (verdict.kind, verdict.blamed) == ("absent", (10,))
    verdict = judge(tmp_path, {"ras.txt": BEHIND, "train.log": places, "hosts.txt": lines, **stacks})

    assert (verdict.kind, verdict.blamed) == ("host", (10,))


def test_an_address_that_two_hosts_share_tells_of_neither(tmp_path):
    lines = ["10.1.0.21 box1", "10.1.0.21 box2"]
    places = table(lambda rank: 6000 + rank % 8, "box{node}")

    assert judge(tmp_path, {"ras.txt": BEHIND, "train.log": places, "hosts.txt": lines}).blamed == ()
