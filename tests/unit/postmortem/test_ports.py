"""Ports of a host that failed: all its ranks are behind one that they share, one rank behind one of several."""

import pytest

from .made import judge, timed_out
from .test_hosts import broke

PORTS = [f"mlx5_{n}" for n in range(4)]
EVENT = "k2:45:99 [1] NCCL WARN NET/IB : {}:1 Got async event : port error"
DOWN = "Mar  2 08:15:{} k2 kernel: mlx5_core 0000:1{n}:00.0 mlx5_{n}: Port: 1 Link DOWN"
LOST = (
    "k1:41:91 [1] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<4712> with status=12 opcode=0 len=0 vendor err"
    " 129 (Send)"
)


def init(host, first, ranks=8):
    """NCCL's lines on the four ranks of a host."""
    return [
        f"{host}:{40 + first + gpu}:60 [{gpu}] NCCL INFO comm 0x5{gpu} rank {first + gpu} nranks {ranks} cudaDev {gpu}"
        f" nvmlDev {gpu} busId {gpu + 1}4000 commId 0x5a - Init COMPLETE"
        for gpu in range(4)
    ]


def uses(*ports):
    listed = " ".join(f"[{number}]{port}:1/IB" for number, port in enumerate(ports))
    return f"k2:44:44 [0] NCCL INFO NET/IB : Using {listed} [RO]; OOB eth0:10.0.0.2<0>"


def down(*ports, at=11):
    return [DOWN.format(at, n=n) for n in ports]


JOB = [*init("k1", 0), *init("k2", 4), LOST, broke(1)]
SHARED = {
    "the one that all use": ([uses("mlx5_0"), EVENT.format("mlx5_0")], []),
    "the one that all use, by the kernel too": ([uses("mlx5_0"), EVENT.format("mlx5_0")], down(0)),
    "all of several": ([uses(*PORTS), EVENT.format("mlx5_1")], down(0, 1, 2, 3)),
}


@pytest.mark.parametrize(("lines", "kernel"), SHARED.values(), ids=SHARED)
def test_all_ranks_of_a_host_are_behind_ports_that_they_share(lines, kernel, tmp_path):
    verdict = judge(tmp_path, {"job.out": [*JOB, *lines], "k2.log": kernel})

    assert (verdict.kind, verdict.blamed) == ("network", (4, 5, 6, 7))


OWN = {
    "one of several": ([uses(*PORTS), EVENT.format("mlx5_1")], []),
    "one of several, by the kernel too": ([uses(*PORTS), EVENT.format("mlx5_1")], down(1)),
    "of unknown ones": ([EVENT.format("mlx5_1")], down(1)),
    "another host has but one": ([uses("mlx5_0").replace("k2", "k1"), EVENT.format("mlx5_1")], []),
}


@pytest.mark.parametrize(("lines", "kernel"), OWN.values(), ids=OWN)
def test_a_rank_whose_process_tells_of_its_port_is_behind_that_alone(lines, kernel, tmp_path):
    verdict = judge(tmp_path, {"job.out": [*JOB, *lines], "k2.log": kernel})

    assert (verdict.kind, verdict.blamed) == ("network", (5,))


def half(ranks=8):
    """The log of one host of a job, whose ranks lost another."""
    return [*init("k1", 0, ranks), LOST, broke(1)]


def test_the_one_host_without_a_log_has_the_ranks_that_the_other_leaves(tmp_path):
    verdict = judge(tmp_path, {"job.out": half(), "k2.log": down(0)})

    assert (verdict.kind, verdict.blamed) == ("network", (4, 5, 6, 7))


OTHERS = {
    "of three hosts": {"job.out": half(12), "k2.log": down(0)},
    "of another name": {"job.out": half(), "x.log": [line.replace("k2", "rack-2") for line in down(0)]},
    "one of two that may be it": {
        "job.out": half(),
        "k2.log": down(0),
        "k3.log": ["Mar  2 08:15:11 k3 kernel: bond0: link down"],
    },
}


@pytest.mark.parametrize("files", OTHERS.values(), ids=OTHERS)
def test_a_host_that_may_be_none_of_the_jobs_has_none_of_the_ranks_that_are_left(files, tmp_path):
    assert judge(tmp_path, files).blamed == ()


def ended(host, tasks, how="Terminated"):
    return f"srun: error: {host}: tasks {tasks}: {how}"


@pytest.mark.parametrize(
    ("lists", "ranks"),
    [
        ([ended("k1", "0-3", "Aborted"), ended("k2", "4-7"), ended("k9", "32-35")], (4, 5, 6, 7)),
        ([ended("k1", "0-3"), ended("k2", "4-5,7"), "srun: error: k2: task 6: Aborted"], (4, 5, 6, 7)),
        ([ended("k1", "0-3"), ended("k2", "4-6")], ()),
        ([ended("k1", "0-3"), ended("k2", "8-11")], ()),
        ([ended("k1", "0-3"), ended("k2", "4-7"), "+ srun torchrun --nnodes 2 fit.py"], ()),
        ([ended("k1", "0-3"), ended("k2", "4-7"), "2: [rank5]: step 3 loss 1.0"], ()),
    ],
    ids=["all", "in two lists", "one is not listed", "with a gap", "of torchrun", "labels of other ranks"],
)
def test_the_tasks_that_srun_lists_of_a_host_are_the_ranks_behind_its_port(lists, ranks, tmp_path):
    lost = ["k1:41:91 [1] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>", LOST, broke(1)]

    verdict = judge(tmp_path, {"job.out": [*lost, *lists], "k2.log": down(1)})

    assert verdict.blamed == ranks


@pytest.mark.parametrize(
    ("event", "kind", "blamed"),
    [([EVENT.format("mlx5_1")], "network", (5,)), ([], "absent", (3,))],
    ids=["a port failed", "no port failed"],
)
def test_a_port_that_tells_of_its_fault_outweighs_the_silence_of_a_rank(event, kind, blamed, tmp_path):
    lines = [*init("k1", 0), *init("k2", 4), LOST, *event, *(timed_out(rank, 9) for rank in range(8) if rank != 3)]
    verdict = judge(tmp_path, lines)

    assert (verdict.kind, verdict.blamed) == (kind, blamed)


SHORTED = [
    "[88120.3] mlx5_core 0000:12:00.0: Port module event[error]: module 0, Cable error, Cable is shorted",
    "[88120.4] mlx5_core 0000:12:00.0 ibs2: Link down",
]


def test_the_lines_in_which_the_port_of_the_broken_end_tells_of_its_fault_are_shown(tmp_path):
    lost = LOST.replace("k1:41:91 [1]", "k2:45:99 [1]").replace("10.0.0.2", "10.0.0.1")
    lines = [*JOB, uses(*PORTS), EVENT.format("mlx5_1"), lost]

    verdict = judge(tmp_path, {"job.out": lines, "k2.dmesg": SHORTED})

    assert (verdict.kind, verdict.rank) == ("network", 5), str(verdict)
    assert verdict.because.startswith("InfiniBand event: port error of mlx5_1 on k2; ")
    shown = [line.text for line in verdict.evidence]
    assert all(any(told in text for text in shown) for told in ("port error", "Cable is shorted", "Link down"))
