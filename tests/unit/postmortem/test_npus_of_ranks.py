"""NPUs and their ranks: HCCL's table of ranks, what npu-smi tells of their health, CANN's own logs of processes."""

import json

import pytest

from .made import judge

SERVERS = {"10.7.0.11": (0, 1, 2, 3), "10.7.0.12": (7, 6, 4, 5)}
TABLE = {
    "status": "completed",
    "server_list": [
        {"server_id": server, "device": [{"device_id": str(n), "rank_id": str(rank)} for n, rank in enumerate(ranks)]}
        for server, ranks in SERVERS.items()
    ],
}
WAITS = [
    "[rank0]: EI0002: [PID: 21] 2025-08-14-06:33:10.586.187 The wait execution of the Notify register times out."
    " Reason: The Notify register has not received the Notify record from remote rank: [unknown]."
]
HEALTH = [
    "[root@10.7.0.12 ~]# npu-smi info -t health -i 2",
    "        Health Status                  : Critical",
    "        Error Code                     : 0x80E01801",
    "        Error Information              : node type=HBM, sensor type=Memory, event state=HBM multi-bit ECC error",
]
ALL = [
    *("# hostname -I ; npu-smi info", "10.7.0.12"),
    "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|",
    "| 1     910B3               | OK            | 101.2       45                0    / 0             |",
    "| 0                         | 0000:81:00.0  | 0           0    / 0          3402 / 65536         |",
    "| 2     910B3               | Critical      | 99.8        44                0    / 0             |",
    "| 0                         | 0000:41:00.0  | 0           0    / 0          3399 / 65536         |",
]


@pytest.mark.parametrize("indent", [None, 1], ids=["one line", "many lines"])
@pytest.mark.parametrize("health", [HEALTH, ALL], ids=["of one", "of all"])
def test_an_unhealthy_npu_is_of_the_rank_that_hccls_table_gives_it(health, indent, tmp_path):
    files = {"hccl.json": json.dumps(TABLE, indent=indent), "train.log": WAITS, "npu.txt": health}
    verdict = judge(tmp_path, files)

    assert (verdict.kind, verdict.blamed) == ("device", (4,))


def test_an_unhealthy_npu_of_a_server_that_the_table_calls_otherwise_is_nobodys(tmp_path):
    health = [line.replace("root@10.7.0.12", "root@atlas-2") for line in HEALTH]
    verdict = judge(tmp_path, {"hccl.json": json.dumps(TABLE), "train.log": WAITS, "npu.txt": health})

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("device", (), True)
    assert any("the address of atlas-2" in lack for lack in verdict.missing)


PLOG = [
    "[INFO] HCCL(3040,python3):2025-11-14-12:10:12.720.110 [op_base.cc:1292] [3040]Entry-HcclCommInitRootInfoInner:"
    "ranks[8], rank[5], rootinfo: host ip[10.7.0.11] port[60000], deviceLogicId[1]",
    "[ERROR] RUNTIME(3040,python3):2025-11-14-12:42:38.110.090 [task_info.cc:1188]3100 PrintErrorInfo: device_id=1,"
    " stream_id=27, task_id=8302, the error reason is: HBM multi-bit ECC error. retCode=0x7bc8796",
]


def test_an_error_in_the_log_of_a_process_is_of_the_rank_that_began_its_communicator(tmp_path):
    verdict = judge(tmp_path, {"train.log": WAITS, "plog/plog-3040_20251114121002110.log": PLOG})

    assert (verdict.kind, verdict.blamed) == ("device", (5,))


def waiting(rank):
    return f"[rank{rank}]: {WAITS[0].removeprefix('[rank0]: ')}"


def started(node, given):
    command = f"+ torchrun --nproc_per_node 2 --nnodes 2 --node_rank {node} --master_addr 10.7.0.11 train.py"
    return [f"[INFO] export ASCEND_RT_VISIBLE_DEVICES={given}", command]


KERNEL = [
    "[245490.8] {6}[Hardware Error]:  section_type: memory error",
    "[245490.9] {6}[Hardware Error]: multi-bit ECC",
]


@pytest.mark.parametrize(
    ("folder", "ranks"), [("device-3", (2,)), ("device-2", (3,)), ("device-0", ()), ("disk-3", ())], ids=str
)
def test_an_error_in_the_folder_of_an_npu_is_of_the_rank_to_which_its_host_gives_that_npu(folder, ranks, tmp_path):
    logs = {"node0.log": [*started(0, "0,1"), waiting(0)], "node1.log": started(1, "3,2")}
    verdict = judge(tmp_path, {**logs, f"collected-node1/hisi_logs/{folder}/kernel.txt": KERNEL})

    assert (verdict.kind, verdict.blamed) == ("device", ranks)
