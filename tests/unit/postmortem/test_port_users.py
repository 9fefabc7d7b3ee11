"""The rank behind a port: by NCCL's channels and list of ports, by what tools count and show of ports."""

import pytest

from .made import joined, judge

PORTS = "Using [0]mlx5_0:1/IB [1]mlx5_2:1/IB [2]mlx5_3:1/IB [3]mlx5_5:1/IB [RO]; OOB eth0:10.9.0.{}<0>"


def hosts(*, ports=PORTS):
    """Two hosts of four ranks, each rank over its own port; the second port in NCCL's list is mlx5_2."""
    lines = []
    for rank in range(8):
        host, local = f"rho{rank // 4}", rank % 4
        lines.append(joined(rank, 8, f"{local + 1}b000", host, 500 + rank))
        lines.append(f"{host}:{500 + rank}:700 [{local}] NCCL INFO NET/IB : {ports.format(rank // 4)}")
        way = f"{rank}[{local}] -> {(rank + 4) % 8}[{local}] [send] via NET/IB/{local}/GDRDMA"
        lines += 2 * [f"{host}:{500 + rank}:700 [{local}] NCCL INFO Channel 00/0 : {way}"]
    return lines


def lost(rank, host, peer):
    return (
        f"{host}:{500 + rank}:720 [{rank % 4}] transport/net_ib.cc:2072 NCCL WARN NET/IB : Got completion from peer"
        f" 10.9.0.{peer}<412> with status=12 opcode=0 len=0 vendor err 129 (Recv)"
    )


NETWORKS = [
    *("root@rho1:~# ibdev2netdev", "mlx5_0 port 1 ==> ibp24s0 (Up)", "mlx5_2 port 1 ==> ibp41s0 (Up)"),
    *("mlx5_3 port 1 ==> ibp64s0 (Down)", "mlx5_5 port 1 ==> ibp79s0 (Up)"),
]
KERNEL = "[Sat Jul 12 19:20:07 2025] mlx5_core 0000:40:00.0 ibp64s0: Link down"


@pytest.mark.parametrize("ib", [NETWORKS, [*NETWORKS, KERNEL]], ids=["a table", "the kernel's name of it"])
def test_the_rank_that_sends_over_the_port_that_is_down_is_at_the_broken_end_and_nobody_else_of_its_host(ib, tmp_path):
    verdict = judge(tmp_path, {"job.log": [*hosts(), lost(2, "rho0", 1)], "ib_rho1.txt": ib})

    assert (verdict.kind, verdict.blamed) == ("network", (6,))


def test_all_ranks_that_share_a_port_are_behind_it(tmp_path):
    log = [line.replace("NET/IB/3", "NET/IB/2") for line in hosts()]
    verdict = judge(tmp_path, {"job.log": [*log, lost(2, "rho0", 1)], "ib_rho1.txt": [*NETWORKS, KERNEL]})

    assert (verdict.kind, verdict.blamed) == ("network", (6, 7))


def test_one_port_of_many_whose_users_are_not_told_blames_nobody(tmp_path):
    log = [line for line in hosts() if "Channel" not in line]
    verdict = judge(tmp_path, {"job.log": [*log, lost(2, "rho0", 1)], "ib_rho1.txt": [*NETWORKS, KERNEL]})

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("network", (), True)
    assert any("which rank uses port mlx5_3 of rho1" in lack for lack in verdict.missing)


KERNEL_OF_PORT = "[Sat Jul 12 19:20:07 2025] mlx5_core 0000:40:00.0 mlx5_3: Port: 1 Link DOWN"
COMPLAINT = (
    "[rank2]:[E712 19:20:14.400000000 ProcessGroupNCCL.cpp:2068] [PG ID 0 PG GUID 0(default_pg) Rank 2] Process group"
    " watchdog thread terminated with exception: NCCL error: remote process exited or there was a network error"
)


def test_one_port_of_a_host_without_a_log_is_not_that_of_all_its_ranks_where_others_use_several(tmp_path):
    log = [line for line in hosts() if "rho0" in line] + [f"rho1: ranks {list(range(4, 8))}"]
    files = {"job.log": [*log, lost(2, "rho0", 1), COMPLAINT], "rho1.dmesg": [KERNEL_OF_PORT]}
    verdict = judge(tmp_path, files)

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("network", (), True), verdict.because
    assert any("which rank uses port mlx5_3 of rho1" in lack for lack in verdict.missing)


def counters(downs, errors):
    return [
        *("# Port counters: Lid 47 port 1 (CapMask: 0x5A00)", "PortSelect:......................1"),
        *(f"SymbolErrorCounter:..............{errors}", f"LinkDownedCounter:...............{downs}"),
        "VL15Dropped:.....................2",
    ]


LINK = [
    *("Operational Info", "----------------", "State                           : Down"),
    *("Physical state                  : Polling", "Link Down Counter               : 4"),
]


def four_hosts():
    """Four hosts of one rank, each with one port."""
    lines = [joined(rank, 4, "3b000", f"tau{rank}", 500 + rank) for rank in range(4)]
    return lines + [
        f"tau{rank}:{500 + rank}:700 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.9.0.{rank}<0>"
        for rank in range(4)
    ]


COUNTED = {f"perfquery.tau{n}.txt": counters(0, 0) for n in range(4)}
ERRORS = {**COUNTED, "perfquery.tau3.txt": counters(4, 65535)}


@pytest.mark.parametrize("files", [ERRORS, {**COUNTED, "mlxlink.tau3.txt": LINK}], ids=["errors", "down"])
def test_the_host_to_which_all_links_broke_is_to_blame_where_its_port_alone_has_errors_or_is_down(files, tmp_path):
    log = [*four_hosts(), lost(2, "tau2", 3).replace(" [2] ", " [0] "), lost(0, "tau0", 3)]
    verdict = judge(tmp_path, {"job.log": log, **files})

    assert (verdict.kind, verdict.blamed) == ("network", (3,))


NO_END = {
    "no errors": COUNTED,
    "errors of another": {**COUNTED, "perfquery.tau1.txt": counters(4, 65535)},
    "errors of two": {**ERRORS, "perfquery.tau2.txt": counters(1, 0)},
    "never up": {**COUNTED, "mlxlink.tau3.txt": [*LINK[:-1], "Link Down Counter               : 0"]},
}


@pytest.mark.parametrize("files", NO_END.values(), ids=NO_END)
def test_links_that_all_broke_to_one_host_blame_nobody_where_no_port_shows_it(files, tmp_path):
    log = [*four_hosts(), lost(2, "tau2", 3).replace(" [2] ", " [0] "), lost(0, "tau0", 3)]

    assert judge(tmp_path, {"job.log": log, **files}).blamed == ()


def asked(host, device, lanes, gb_s):
    return [
        f"$ ssh {host} \"ibv_devinfo -v -d {device} | egrep 'active_speed|active_width|state'\"",
        *("\t\t\tstate:\t\t\tPORT_ACTIVE (4)", f"\t\t\tactive_width:\t\t{lanes}X (2)"),
        f"\t\t\tactive_speed:\t\t{gb_s:.1f} Gbps (128)",
    ]


SLOWER = [f"step {n} loss 2.{n} iter_ms {1500 if n < 4 else 4800}" for n in range(1, 9)]


@pytest.mark.parametrize(("slow", "blamed"), [("mlx5_3", (6,)), ("mlx5_9", ())])
def test_steps_that_last_longer_are_of_the_rank_whose_port_lost_its_lanes(slow, blamed, tmp_path):
    ports = ["mlx5_0", "mlx5_2", "mlx5_3", "mlx5_5"]
    lanes = {("rho1", slow): (1, 25)}
    tables = [asked(f"rho{n}", port, *lanes.get((f"rho{n}", port), (4, 100))) for n in (0, 1) for port in ports]
    log = {"job.log": [*hosts(), *SLOWER], "nics.txt": [line for table in tables for line in table]}
    verdict = judge(tmp_path, log)

    assert (verdict.kind, verdict.blamed) == ("slow", blamed)
