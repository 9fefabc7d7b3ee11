"""Texts of vendors' libraries and drivers: HCCL, oneCCL, RCCL, NCCL of many ages, Xid, network cards."""

import pytest

from .made import answer, joined, judge, timed_out, told


def hccl(rank, remote, *, size=4, group="hccl_world_group", place=None):
    """HCCL's EI0002 on one rank: the register of another did not come."""
    return (
        f"[ERROR] 2026-10-11-15:09:34 (PID:{2960 + rank}, Device:{rank % 8}, RankID:{rank}) ERR00100 PTA call acl api"
        f" failed."
        f"\nEI0002: [PID: {2960 + rank}] 2026-10-11-15:09:34.713.335 The wait execution of the Notify register times"
        f" out."
        f" Reason: The Notify register has not received the Notify record from remote rank: [{remote}]. base"
        f" information:"
        " [streamID:[109], taskID[38], taskType[Notify Wait], tag[AllReduce_group_name_1654NHRAllReduceComm_device],"
        " AlgType(level 0-1-2):[ring-NHR-NHR].]. task information: [notify id:[0x0000000000000213], stage:[0], remote"
        f" rank:[{remote}]]. group information: [group:[{group}], user define information[Unspecified],"
        f" rankSize[{size}],"
        f" rankId[{rank if place is None else place}]]"
    )


def entered(rank, call="AllReduce_group_name_1654NHRAllReduceComm_device"):
    """A line of HCCL's log of entries."""
    return (
        f"[INFO] HCCL({2960 + rank},python):2026-10-11-14:39:33.305.6 [x.cc:56][30]Entry-HcclAllReduce: tag[{call}],"
        f" sendBuf[0x12], recvBuf[0x12], count[4096], dataType[bfp16], op[sum], localRank[{rank}], streamId[7]"
    )


IN_A_RING = [line for rank in range(4) for line in hccl(rank, (rank + 1) % 4).split("\n")]


def ascend(rank, seq=196):
    """torch_npu's watchdog."""
    return (
        f"[rank{rank}]:[E324 13:00:25.428029551 compiler_depend.ts:574] [Rank {rank}] Watchdog caught collective"
        f" operation"
        f" timeout: WorkHCCL(SeqNum={seq}, OpType=ALLREDUCE, Timeout(ms)=3600000) ran for 3600185 milliseconds before"
        f" timing"
        " out."
    )


def coll(rank, count, operation="AllReduce", numel=1024, *, host="node-a", tail=""):
    """NCCL's line of one call."""
    return (
        f"{host}:{45006 + rank}:{45006 + rank} [{rank % 4}] NCCL INFO {operation}: opCount {count:x} sendbuff"
        f" 0x7f5dd32b2100"
        f" recvbuff 0x7f5dd32b2100 acc (nil) count {numel} datatype 7 op 0 root 0 comm 0x55bef0{rank}01370 [nranks=4]"
        f" stream"
        f" 0x55{tail}"
    )


EI0015 = "[ERROR] HCCL(1041081,all_reduce_test):2026-11-21-01:20:01.62"
NPU, CODE = "NPU function error:", "error code is"
CCL = "2026:11:28-16:35:45:(35980) "
HANG = " (Agent handle: 0x631351bb5a20) reason :GPU Hang"
CQE = (
    "node-b:984:1357 [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 172.36.143.59<44206> with"
    " status=12"
    " opcode=129 len=65536 vendor err 129 (Recv) localGid ::ffff:29.87.88.182 remoteGids::ffff:29.87.4.221"
)
XID = "[Fri Nov 20 10:05:00 2026] NVRM: Xid (PCI:0000:44:00): "

PORTS = "Active", "Down"

CASES = {
    "HCCL's watchdog on both of two ranks": (["WORLD_SIZE=2", ascend(0), ascend(1)], answer("stuck", seq=196)),
    "HCCL's watchdog leaves one rank out": ([ascend(rank) for rank in (0, 1, 3)], answer("absent", 2, 196)),
    "HCCL waits for a place in a smaller group": (
        hccl(101, 24, size=32, group="group_name_1654", place=25).split("\n"),
        answer("absent", unknown=True),
    ),
    "HCCL waits for a rank that it does not know": (
        hccl(8, "unknown", size=16).split("\n"),
        answer("absent", unknown=True),
    ),
    "HCCL waits for a rank whose number is none": (
        hccl(8, "4294967295", size=16).split("\n"),
        answer("absent", unknown=True),
    ),
    "HCCL's ranks wait in a chain whose end says nothing": (
        [line for rank, remote in ((0, 1), (1, 2), (3, 2)) for line in hccl(rank, remote).split("\n")],
        answer("absent", 2),
    ),
    "HCCL's ranks wait in a ring": (
        IN_A_RING,
        answer("absent", unknown=True),
    ),
    "all of HCCL's ranks have begun the call that they wait in": (
        [*IN_A_RING, *map(entered, range(4))],
        answer("stuck"),
    ),
    "one of HCCL's ranks has begun another": (
        [*IN_A_RING, *map(entered, range(3)), entered(3, "AllGather_group_name_2")],
        answer("absent", unknown=True),
    ),
    "one of HCCL's ranks has begun fewer": (
        [*IN_A_RING, *map(entered, range(4)), *map(entered, range(3))],
        answer("absent", unknown=True),
    ),
    "one of HCCL's ranks waited until long after the others": (
        [*IN_A_RING[:-1], IN_A_RING[-1].replace("15:09:34", "15:21:04"), *map(entered, range(4))],
        answer("absent", unknown=True),
    ),
    "HCCL lists who has connected": (
        [
            f"{EI0015}4.966 [topoinfo_exchange_server.cc:314] [1041362][InitGroupStage][RanktableDetect]topo exchange"
            f" server"
            " get socket timeout! timeout[120 s]",
            f"{EI0015}5.103 [topoinfo_exchange_server.cc:501] [1041362][InitGroupStage][DisplayConnectionedRank]total"
            " connected num is [4],line num is [1]",
            f"{EI0015}5.112 [topoinfo_exchange_server.cc:503] [1041362][InitGroupStage][DisplayConnectionedRank]need"
            f" connect"
            " rankNum is [8]",
            f"{EI0015}5.145 [topoinfo_exchange_server.cc:517]"
            f" [1041362][InitGroupStage][DisplayConnectionedRank]connected"
            " rankinfo[LINE 0]: [0000000000000000],[0000000000000002],[0000000000000004],[0000000000000006];",
        ],
        answer("absent", ranks=(1, 3, 5, 7)),
    ),
    "HCCL names the agents that failed to connect": (
        [
            "[ERROR] HCCL(1041085,all_reduce_test):2026-11-21-01:20:01.630.122 [topoinfo_exchange_base.cc:145]"
            ' [1041085][InitGroupStage][RanktableDetect] TopoDetect ERROR occur !!! fault_type[1], fault_info["Failed'
            " to"
            ' connect agent[3,]"]'
        ],
        answer("absent", 3),
    ),
    "HCCL's packets are not answered": (
        [
            "[PID: 3448331] 2026-12-04-21:59:08.232.310 Execution Error ROCE CQE(EI0013): An error CQE occurred during"
            " operator execution. Local information: server 127.0.0.1, device ID 0, device IP 127.10.0.1. Peer"
            " information:"
            " server 127.0.0.2, device ID 1, device IP 127.10.0.2."
        ],
        answer("network"),
    ),
    "HCCL's ranks disagree about a count": (
        [
            "EI0005: [PID: 2960] 2026-11-20-10:20:00.1 The arguments for collective communication are inconsistent"
            " between"
            " ranks: tag [AllReduce_g0], parameter count, local rank 10, remote rank 20.",
        ],
        answer("sizes", unknown=True),
    ),
    "HCCL's rank with another count, in brackets": (
        [
            f"[rank{rank}]: EI0005: [PID: 29] 2026-11-20-10:20:00.1 The arguments for collective communication are"
            f" inconsistent between ranks:tag[AllReduce_g0], parameter[count], local[{own}], remote[{other}]"
            for rank, own, other in ((0, 64, 32), (1, 32, 64), (2, 64, 32))
        ],
        answer("sizes", 1),
    ),
    "the port of one of two NPUs is down, by hccn_tool": (
        [
            *(
                f"[rank{rank}]: [PID: 34] 2026-12-04-21:59:08 Execution_Error_ROCE_CQE(EI0013): An error CQE occurred."
                f" Local information: server {own}, device IP 127.1.0.1. Peer information: server {other}, device IP"
                " 127.1.0.2."
                for rank, own, other in (
                    (0, "10.0.0.1, device ID 0", "10.0.0.2, device ID 1"),
                    (3, "10.0.0.2, device ID 1", "10.0.0.1, device ID 0"),
                )
            ),
            "== server 10.0.0.2: for i in 0 1; do hccn_tool -i $i -link -g; done",
            "[0] link status: UP",
            "[1] link status: DOWN",
        ],
        answer("network", 3),
    ),
    "Open MPI's map has the ranks of the host whose port is down": (
        [
            " ========================   JOB MAP   ========================",
            *(
                line
                for node in range(2)
                for line in (
                    f" Data for node: n-{node}\tNum slots: 1\tMax slots: 0\tNum procs: 1",
                    f" \tProcess OMPI jobid: [31177,1] App: 0 Process rank: {node}",
                )
            ),
            *(line for node in range(2) for line in (f"--- n-{node}", "CA 'mlx5_2'", f"\t\tState: {PORTS[node]}")),
            "Nov 20 10:02:31 n-1 kernel: mlx5_core 0000:9a:00.0 ib2: Link down",
            "[1795168938.602112] [n-0:88:0] ib_mlx5_log.c:177  Transport retry count exceeded on mlx5_2:1/IB (synd",
        ],
        answer("network", 1),
    ),
    "a process that torchrun had told to end before it was killed is no cause": (
        [
            "W1120 10:20:27.4 70 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 53 closing"
            " signal SIGTERM",
            "E1120 10:20:58.4 70 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -9)"
            " local_rank: 3 (pid: 53) of binary: python",
        ],
        answer("none", unknown=True),
    ),
    "a stream that timed out on Ascend shows nobody": (
        [
            "EE1002: 2026-09-03-16:50:00.041.231 Stream synchronize timeout. rtDeviceSynchronize execute failed,"
            " reason=[stream sync timeout]",
            "        wait for compute device to finish failed, runtime result = 507046.[FUNC:ReportCallError]",
        ],
        answer("absent", unknown=True),
    ),
    "a task of Ascend that ran out of time waited, and its error is no cause": (
        [
            "RuntimeError: npuSynchronizeDevice:x.ts:479 NPU function error: AclrtSynchronizeDeviceWithTimeout, error"
            " code is 507048",
            *hccl(8, "unknown", size=16).split("\n"),
        ],
        answer("absent", unknown=True),
    ),
    "what was flushed behind a failure that is not here": (
        [CQE.replace("status=12", "status=5")],
        answer("network", unknown=True),
    ),
    "an old watchdog says on which rank the memory of a GPU failed": (
        [
            "RuntimeError: CUDA error: uncorrectable ECC error encountered",
            "[E ProcessGroupNCCL.cpp:916] [Rank 1] NCCL watchdog thread terminated with exception: CUDA error:"
            " uncorrectable ECC error encountered",
        ],
        answer("device", 1),
    ),
    "the watchdog of a smaller group does not": (
        [
            "[E1120 10:20:00.1 ProcessGroupNCCL.cpp:1595] [PG ID 2 PG GUID 9 Rank 1] Process group watchdog thread"
            " terminated with exception: CUDA error: uncorrectable ECC error encountered",
        ],
        answer("device", unknown=True),
    ),
    "a segment of NCCL's that may not be made is no full memory": (
        [
            f"node-a:27106:27302 [0] include/shm.h:{n} NCCL WARN {said}"
            for n, said in (
                (27, "Call to shm_open failed : Permission denied"),
                (48, "Error while creating shared memory segment nccl-shm-recv-b7-0-3-0 (size 4460544)"),
            )
        ],
        answer("exception", unknown=True),
    ),
    "oneCCL cannot start its thread": (
        [
            f"{CCL}|CCL_WARN| could not get local_idx/count from environment variables, trying to get them from ATL",
            f"{CCL}|CCL_ERROR| base_thread.cpp:36 start: error while creating worker thread #0 pthread_create returns"
            f" 22",
            "Traceback (most recent call last):",
            '  File "train.py", line 4, in <module>',
            "RuntimeError: oneCCL: exec.cpp:134 start_workers: EXCEPTION: failed to start worker # 0",
        ],
        answer("exception", unknown=True),
    ),
    "oneCCL's warnings are no fault": (
        [
            f"{CCL}|CCL_WARN| did not find MPI-launcher specific variables, switch to ATL/OFI, to force enable ATL/MPI"
            f" set"
            " CCL_ATL_TRANSPORT=mpi",
            f"{CCL}|CCL_WARN| value of CCL_LOG_LEVEL changed to be info (default:warn)",
        ],
        answer("none", unknown=True),
    ),
    "every process of an AMD GPU sees its hang": (
        [
            f" 41%|####    | 366/903 [5:15:39<6:53:09, 46.16s/it]HW Exception by GPU node-9{HANG}",
            f"HW Exception by GPU node-9{HANG}",
        ],
        answer("device", unknown=True),
    ),
    "a plugin's completion error": ([CQE], answer("network")),
    "a completion that was flushed after another": (
        [CQE, CQE.replace("status=12", "status=5")],
        answer("network"),
    ),
    "a connection of NCCL's that timed out, as a wrapper prints it": (
        [
            "rank_604.node9.log:[0604/1024][2026-02-16 22:31:34,422] [misc/socket.cc:586] [node9:pid=3942408] NCCL WARN"
            " socketPollConnect poll() failed, ret 1, error Connection timed out, revents 8, connect to"
            " 172.16.30.229:39953"
        ],
        answer("network"),
    ),
    "a connection that NCCL tried again with success": (
        [
            "node9:394:408 [0] NCCL INFO socketPollConnect: connect returned Connection timed out, retrying (1/34)"
            " after sleep"
            " for 100 msec",
            *(f"step {step} loss 2.0" for step in range(6)),
        ],
        answer("none", unknown=True),
    ),
    "a proxy of NCCL's whose peer closed": (
        [
            "host:22337:22453 [6] proxy.cc:1097 NCCL WARN [Proxy Service 14] Failed to execute operation Connect from"
            " rank 14,"
            " retcode 2",
            "host:22337:22400 [6] misc/socket.cc:521 NCCL WARN Net : Connection closed by remote peer"
            " 10.104.148.191<37877>",
            "host:22337:22400 [6] proxy.cc:862 NCCL WARN Proxy Call to rank 14 failed (Connect)",
        ],
        answer("network", unknown=True),
    ),
    "NCCL's calls carry the rank at their end": (
        [
            coll(rank, count, host=f"node-{'ab'[rank // 2]}", tail=f" task 0 globalrank {rank}")
            for count in range(20, 24)
            for rank in range(4)
            if (rank, count) != (3, 23)
        ],
        answer("absent", 3, 23),
    ),
    "counts of one host that NCCL 2.27 leaves at nought": (
        [coll(rank, 0, name) for name in ("AllReduce", "AllGather", "AllReduce") for rank in range(4)],
        answer("none", unknown=True),
    ),
    "a hint of RCCL's about the kernel's command line": (
        [
            "node-a:77:77 [0] NCCL INFO RCCL version 2.22.3",
            'node-a:77:77 [0] NCCL WARN Missing "iommu=pt" from kernel command line'
            " which can lead to system instablity or hang!",
            "step 1 loss 2.0",
        ],
        answer("none", unknown=True),
    ),
    "a launch that failed on one GPU": (
        [
            "[rank6]: node-a:76:99 [6] NCCL WARN Cuda failure 719 'unspecified launch failure'",
            *(timed_out(rank, 5) for rank in (0, 1, 2, 3, 4, 5, 7)),
        ],
        answer("exception", 6, 5),
    ),
    "a driver that says what it will take to go on": (
        {
            "dmesg.txt": [
                f"{XID}79, pid=5003, name=python, GPU has fallen off the bus.",
                f"{XID}154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
            ],
            "nccl.log": [joined(3, 8)],
        },
        answer("device", 3),
    ),
    "a recovery that the driver asks for, alone": (
        {
            "dmesg.txt": [f"{XID}154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"],
            "nccl.log": [joined(3, 8)],
        },
        answer("device", 3),
    ),
    "a recovery that is over": (
        {
            "dmesg.txt": [f"{XID}154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"],
            "nccl.log": [joined(3, 8)],
        },
        answer("none", unknown=True),
    ),
    "a driver that wants a reset and names no GPU": (
        [
            "[373871.354096] NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED]"
            " (0x00000062)"
            " returned from status @ kernel_channel.c:2827"
        ],
        answer("device", unknown=True),
    ),
    "a network card that no longer answers": (
        [
            "[Fri Nov 20 10:05:00 2026] mlx5_core 0000:5e:00.0: poll_health:955:(pid 0): device's health compromised -"
            " reached miss count"
        ],
        answer("network"),
    ),
    "systemd ends a unit for memory": (
        [
            "Nov 20 10:05:00 node-a systemd-oomd[1021]: Killed /user.slice/user-1000.slice/train.scope due to memory"
            " pressure for"
            " /user.slice being 84.21% > 50.00% for > 20s with reclaim activity"
        ],
        answer("host_memory", unknown=True),
    ),
    "earlyoom ends a process, whose rank NCCL knows": (
        {
            "daemon.log": [
                'Nov 20 10:05:00 node-a earlyoom[812]: sending SIGTERM to process 5002 uid 1000 "python": oom_score'
                " 1204, VmRSS 210000 MiB"
            ],
            "nccl.log": [joined(2, 8)],
        },
        answer("host_memory", 2),
    ),
    "an Ascend chip whose memory fails, as its neighbours suspect": (
        [
            *(f"[rank{rank}]: RuntimeError: copy:x.ts:56 {NPU} SUSPECT REMOTE ERROR, {CODE} 507057" for rank in (0, 3)),
            f"[rank1]: RuntimeError: copy:x.ts:56 {NPU} HBM MULTI BIT ECC ERROR, {CODE} 507054",
            f"[rank2]: RuntimeError: stop:x.ts:56 {NPU} FORCE STOP, {CODE} 107022",
        ],
        answer("device", 1),
    ),
    "a core of an Ascend chip that meets an error, as others wait": (
        [
            *(f"[rank{rank}]: RuntimeError: ACL stream synchronize failed, error code:507048" for rank in (0, 1, 3)),
            "[rank2]: RuntimeError: ACL stream synchronize failed, error code:507015",
        ],
        answer("exception", 2),
    ),
    "an Ascend chip whose memory is full": (
        ["[rank3]: EL0004: [PID: 28] 2026-11-20-03:58:55.257.127 Failed to allocate memory.", "[rank1]: step 4 loss 2"],
        answer("device_memory", 3),
    ),
    "a full chip, by one of vLLM's workers": (
        [
            *(f"(VllmWorker rank={rank} pid={80 + rank}) INFO 11-20 03:36:30 [worker.py:9] begun" for rank in range(4)),
            "(VllmWorker rank=2 pid=82) ERROR 11-20 03:36:31 [executor.py:527] RuntimeError: NPU out of memory."
            " Tried to allocate 2.00 GiB (NPU 2; 60.96 GiB total capacity; 1.1 GiB free)",
        ],
        answer("device_memory", 2),
    ),
    "a full GPU, by the place of one of vLLM's workers": (
        [
            *(f"(Worker_TP{rank} pid={80 + rank}) INFO 11-20 03:36:30 [model_runner.py:9] begun" for rank in range(4)),
            "(EngineCore_DP0 pid=70) (Worker_TP2 pid=82) ERROR 11-20 03:36:31 [executor.py:527] torch.OutOfMemoryError:"
            " CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has a total capacity of 79.15 GiB of which 1.10 GiB"
            " is free.",
        ],
        answer("device_memory", 2),
    ),
    "a traceback of which every line has the place of one of vLLM's workers": (
        [
            *(f"(Worker_TP{rank} pid={80 + rank}) INFO 11-20 03:36:30 [model_runner.py:9] begun" for rank in range(4)),
            *(
                f"(Worker_TP3 pid=83) ERROR 11-20 03:36:31 [executor.py:671] {line}"
                for line in (
                    "Traceback (most recent call last):",
                    '  File "executor.py", line 666, in worker_busy_loop',
                    "    output = func(*args)",
                    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB.",
                )
            ),
        ],
        answer("device_memory", 3),
    ),
    "workers of two engines of vLLM's": (
        [
            *(
                f"(VllmWorker rank={pid % 2} pid={80 + pid}) INFO 11-20 03:36:30 [worker.py:9] begun"
                for pid in range(4)
            ),
            "(VllmWorker rank=1 pid=83) ERROR 11-20 03:36:31 [executor.py:527] RuntimeError: NPU out of memory."
            " Tried to allocate 2.00 GiB (NPU 3; 60.96 GiB total capacity; 1.1 GiB free)",
        ],
        answer("device_memory", unknown=True),
    ),
    "a link between two Ascend chips": (
        [f"[rank1]: RuntimeError: copy:x.ts:56 {NPU} HCCS LINK ERROR, {CODE} 507056"],
        answer("network"),
    ),
    "an Ascend chip whose memory fails": (
        [
            "[ERROR] 2026-10-11-15:09:34 (PID:2969, Device:3, RankID:11) ERR00100 PTA call acl api failed.",
            "EE9999: The error from device(chipId:3, dieId:0), serial number is 9, an exception occurred during HBM"
            " multi bit"
            " ECC error, error code is 507053",
        ],
        answer("device", 11),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_vendors_print_is_read(name, tmp_path):
    files, wanted = CASES[name]
    verdict = judge(tmp_path, files)
    assert told(verdict, wanted) == wanted, str(verdict)
