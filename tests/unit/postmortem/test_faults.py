"""Faults that explain a hang: which came first, on which rank, and which only follow from it."""

import pytest

from .made import answer, joined, judge, out_of_memory, summary, timed_out, told

WAITING = [timed_out(rank, 9) for rank in (0, 1, 3)]
ALL = [timed_out(rank, 9) for rank in range(4)]
BUSES = ("1b000", "2c000", "3d000", "44000")
JOINED = [joined(rank, 4, bus) for rank, bus in enumerate(BUSES)]
IB = (
    "node-b:3468:3905 [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer"
    " 10.9.0.236<54862> with status={} opcode=0 len=0 vendor err 129 (Recv)"
)
KILLED = (
    "[ 8123.2] Out of memory: Killed process {} ({}) total-vm:9kB, anon-rss:61234567kB, file-rss:1kB, shmem-rss:0kB"
)
MADE = "CollectiveFingerPrint"
CANCELLED = "slurmstepd: error: *** JOB 123 ON node-a CANCELLED AT 2026-11-20T11:16:01 DUE TO {} ***"


def kernel(text, clock="10:09:58"):
    return f"Nov 20 {clock} node-a kernel: {text}"


CASES = {
    "out of memory before the time-outs is their cause": (
        [out_of_memory(2), *WAITING],
        answer("device_memory", 2, 9),
    ),
    "out of memory after the time-outs is their consequence": (
        [*ALL, out_of_memory(3, "20.00 MiB")],
        answer("stuck", None, 9),
    ),
    "an absurd allocation is the consequence of a broken gather": (
        [*ALL, "[rank3]: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory."],
        answer("stuck", None, 9),
    ),
    "a rank that ran out of memory before it waited itself is the cause": (
        [out_of_memory(2), *ALL],
        answer("device_memory", 2, 9),
    ),
    "two ranks that ran out of memory are both told": (
        [out_of_memory(2), out_of_memory(5), *(timed_out(rank, 9) for rank in (0, 1, 3, 4, 6, 7))],
        answer("device_memory", None, 9, ranks=(2, 5)),
    ),
    "on one host the GPU's number is the rank": (
        [
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 3; 79.15 GiB total"
            " capacity; 70 GiB already allocated; 1.1 GiB free; 72 GiB reserved in total by PyTorch)",
            *(timed_out(rank, 9) for rank in (0, 1, 2)),
        ],
        answer("device_memory", 3, 9),
    ),
    "every rank of one host that runs out of memory is nobody's fault": (
        [f"{out_of_memory(rank)}" for rank in range(4)],
        answer("device_memory"),
    ),
    "a process that calls its only GPU number 0 is not known to be rank 0": (
        [
            *(f"[rank{rank}]: step 1 loss 2.0" for rank in range(4)),
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of"
            " 79.15 GiB of which 141.25 MiB is free.",
        ],
        answer("device_memory", unknown=True),
    ),
    "a shell that saw a core dumped": (
        ["/var/spool/slurmd/job1/slurm_script: line 12: 4242 Bus error               (core dumped) python train.py"],
        answer("killed", unknown=True),
    ),
    "Kubernetes ends a container whose probe failed": (
        {
            "describe.txt": [
                "  Normal  Killing  3m  kubelet  Container trainer failed liveness probe, will be restarted"
            ]
        },
        answer("killed", unknown=True),
    ),
    "an exception before the time-outs is their cause": (
        ["[rank2]: KeyError: 'input_ids'", *WAITING],
        answer("exception", 2, 9),
    ),
    "exceptions after the time-outs are consequences": (
        [*WAITING, "[rank0]: RuntimeError: cannot unpickle", "[rank1]: torch.distributed.DistBackendError: NCCL error"],
        answer("absent", 2, 9),
    ),
    "an exception of every rank is nobody's": (
        [f"[rank{rank}]: FileNotFoundError: [Errno 2] No such file: '/data/x'" for rank in range(4)],
        answer("exception"),
    ),
    "an exception after which its rank trained on was caught": (
        ["[rank2]: ValueError: bad sample, next", "[rank2]: step 411 loss 2.3", *WAITING],
        answer("absent", 2, 9),
    ),
    "a full GPU after which its rank trained on was caught": (
        [out_of_memory(0), "[rank0]: step 411 loss 2.3", *WAITING],
        answer("absent", 2, 9),
    ),
    "an illegal access in a kernel is an exception of its rank": (
        [
            "[rank2]:[E1120 10:09:00.1 ProcessGroupNCCL.cpp:1414] [PG 0 Rank 2] Process group"
            " watchdog thread terminated"
            " with exception: CUDA error: an illegal memory access was encountered",
            *WAITING,
        ],
        answer("exception", 2, 9),
    ),
    "an exception without a rank is that of the silent one": (
        ["ValueError: bad sample", *WAITING],
        answer("exception", 2, 9),
    ),
    "an ECC error that torch reports is the GPU's": (
        ["[rank2]: RuntimeError: CUDA error: uncorrectable ECC error encountered", *WAITING],
        answer("device", 2, 9),
    ),
    "an Xid is joined to its rank by the bus": (
        {
            "nccl.log": JOINED,
            "train.log": ALL,
            "node-a.dmesg": [kernel("NVRM: Xid (PCI:0000:3d:00): 74, NVLink error")],
        },
        answer("device", 2, 9),
    ),
    "an Xid is joined to its rank by the process": (
        {"train.log": [*JOINED, *WAITING], "dmesg": [kernel("NVRM: Xid (PCI:0000:99:00): 48, pid=5002, name=python")]},
        answer("device", 2, 9),
    ),
    "an Xid of a GPU that another rank uses is not the silent rank's": (
        {"train.log": [*JOINED, *WAITING], "dmesg": [kernel("NVRM: Xid (PCI:0000:99:00): 48, ECC error")]},
        answer("absent", 2, 9),
    ),
    "an exception without a rank is of none of the waiting ranks": (
        ["ValueError: bad sample", *ALL],
        answer("stuck", None, 9),
    ),
    "a GPU that fell off the bus without a number is a device too": (
        {
            "train.log": [*JOINED, *WAITING],
            "node-a.dmesg": [
                kernel(
                    "NVRM: The NVIDIA GPU 0000:3d:00.0 (PCI ID: 10de:2330) has fallen off the bus and is not"
                    " responding to commands."
                )
            ],
        },
        answer("device", 2, 9),
    ),
    "the driver spreads a lost GPU over three lines": (
        {
            "train.log": [*JOINED, *WAITING],
            "dmesg.txt": [
                "[ 1843.308145] NVRM: The NVIDIA GPU 0000:3d:00.0",
                "               NVRM: (PCI ID: 10de:26b5) installed in this system has",
                "               NVRM: fallen off the bus and is not responding to commands.",
            ],
        },
        answer("device", 2, 9),
    ),
    "an Xid of last week is not the cause of today": (
        {
            "train.log": [*JOINED, *ALL],
            "node-a.dmesg": [kernel("NVRM: Xid (PCI:0000:3d:00): 79, gone").replace("20", "12", 1)],
        },
        answer("stuck", None, 9),
    ),
    "a link that came up again is no fault": (
        {
            "train.log": ALL,
            "node-a.dmesg": [
                kernel("mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN"),
                kernel("mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE", "10:10:30"),
            ],
        },
        answer("stuck", None, 9),
    ),
    "a link that stayed down is the network": (
        {"train.log": ALL, "node-a.dmesg": [kernel("mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN")]},
        answer("network", None, 9),
    ),
    "an AMD GPU that is reset is a device too": (
        {"train.log": [*JOINED, *WAITING], "node-a.dmesg": [kernel("amdgpu 0000:3d:00.0: amdgpu: GPU reset begin!")]},
        answer("device", 2, 9),
    ),
    "Xid 43 and 45 follow from a process that ended": (
        {
            "train.log": WAITING,
            "node-a.dmesg": [
                kernel(f"NVRM: Xid (PCI:0000:44:00): {n}, pid=5012, name=python", "10:21:10") for n in (43, 45)
            ],
        },
        answer("absent", 2, 9),
    ),
    "a completion error names the network and no rank": ([IB.format(12)], answer("network")),
    "older NCCL prints the completion otherwise": (
        [
            "node-b:3468:3905 [4] transport/net_ib.cc:845 NCCL WARN NET/IB : Got completion with"
            " error 12, opcode 0, len 0, vendor err 129"
        ],
        answer("network"),
    ),
    "a flushed completion follows from another": ([*ALL, IB.format(5)], answer("stuck", None, 9)),
    "a port that fails is the network": (
        ["node-b:3468:3905 [4] NCCL WARN NET/IB : mlx5_2:1 Got async event : port error"],
        answer("network"),
    ),
    "a queue pair that cannot be set up is the network": (
        ["node-b:3:9 [4] misc/ibvwrap.cc:201 NCCL WARN Call to ibv_modify_qp failed with error Connection timed out"],
        answer("network"),
    ),
    "an EFA that cannot reach its peer is the network": (
        [
            "node-b:3:9 [4] nccl_net_ofi:1 NCCL WARN NET/OFI Request 0x7f completed with error. RC:"
            " 113. Error: Unreachable remote"
        ],
        answer("network"),
    ),
    "a socket that its peer closed may be the peer or the link": (
        ["node-b:3:9 [4] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node-c<3292>"],
        answer("network", unknown=True),
    ),
    "a fatal fault of the NVSwitch is a device of no rank": (
        {
            "train.log": ALL,
            "node-a.dmesg": [kernel("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 32 LTSSM Fault Up")],
        },
        answer("device", None, 9, unknown=True),
    ),
    "a lost link to a rank that is not there is that rank": (
        {"train.log": WAITING, "nccl.log": [IB.format(12)]},
        answer("absent", 2, 9),
    ),
    "a process that the kernel killed is joined to its rank by its pid": (
        {"train.log": summary(2, -9), "dmesg.txt": [KILLED.format(5002, "python")]},
        answer("host_memory", 2),
    ),
    "a python that the kernel killed is the silent rank": (
        {"train.log": WAITING, "dmesg.txt": [KILLED.format(999, "python3")]},
        answer("host_memory", 2, 9),
    ),
    "another program that the kernel killed is not of the job": (
        {"train.log": WAITING, "dmesg.txt": [KILLED.format(999, "java")]},
        answer("absent", 2, 9),
    ),
    "a task blocked in the kernel is a host call": (
        {
            "train.log": [*JOINED, *WAITING],
            "dmesg": [kernel("INFO: task python:5002 blocked for more than 120 seconds.")],
        },
        answer("host", 2, 9),
    ),
    "SIGKILL without the kernel's word is a process killed": (summary(5, -9), answer("killed", 5)),
    "a segmentation fault is a process killed": (summary(5, -11), answer("killed", 5)),
    "torchrun's first failure is a victim where it waited": (
        [*WAITING, *summary(1, -6, "Signal 6 (SIGABRT)")],
        answer("absent", 2, 9),
    ),
    "SLURM names the task that ran out of memory": (
        [
            "slurmstepd: error: Detected 1 oom_kill event in StepId=440575.0. Some of the step tasks"
            " have been OOM Killed.",
            "srun: error: node-a: task 3: Out Of Memory",
        ],
        answer("host_memory", 3),
    ),
    "SLURM says in one line what, in another whom": (
        ["slurmstepd: error: Detected 1 oom_kill event in StepId=4.0.", "srun: error: node-a: task 3: Killed"],
        answer("host_memory", 3),
    ),
    "what srun collects of memory at the end explains the rank that is missing": (
        [
            *WAITING,
            "slurmstepd: error: Detected 1 oom_kill event in StepId=4.0. Some of the step tasks have been OOM Killed.",
            "srun: error: node-a: task 2: Out Of Memory",
        ],
        answer("host_memory", 2, 9),
    ),
    "an exit code is no cause beside calls that differ": (
        [
            f"RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: {MADE}"
            f"(SequenceNumber=85, OpType=ALLREDUCE, TensorShape=[25]), but Rank 0 is running collective: {MADE}"
            "(SequenceNumber=85, OpType=BROADCAST, TensorShape=[1]).Collectives differ in the following aspects",
            "[2024-02-09 09:09:15,164] torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: 1)"
            " local_rank: 0 (pid: 17058) of binary: /usr/bin/python3.10",
        ],
        answer("desync", None, 85, unknown=True),
    ),
    "a task of SLURM is no rank where torchrun starts the ranks": (
        [*summary(5, -15), "srun: error: node-a: task 1: Out Of Memory"],
        answer("host_memory", unknown=True),
    ),
    "a task of SLURM that ran out of memory is the agent of the rank that torchrun saw killed": (
        [
            "0: [rank1]: step 10 loss 2.0",
            "1: [rank5]: step 10 loss 2.0",
            "slurmstepd: error: Detected 1 oom_kill event in StepId=8.0. Some of the step tasks have been OOM Killed.",
            *(f"1: {line}" for line in summary(5, -9, "Signal 9 (SIGKILL) received by PID 5005")),
            "srun: error: node-a: task 1: Out Of Memory",
        ],
        answer("host_memory", 5),
    ),
    "a time limit ends what hangs and is not its cause": (
        [*WAITING, CANCELLED.format("TIME LIMIT")],
        answer("absent", 2, 9),
    ),
    "a time limit alone is what ended the job": (["step 1", CANCELLED.format("TIME LIMIT")], answer("killed")),
    "a launcher that was told to end says no more": (
        [
            "step 1",
            "W1120 10:20:00.1 torch/distributed/elastic/agent/server/api.py:704] Received Signals.SIGTERM death"
            " signal, shutting down workers",
        ],
        answer("killed"),
    ),
    "preemption is nobody's fault": (["step 1", CANCELLED.format("PREEMPTION")], answer("killed")),
    "a node that failed ended the job": (["srun: error: Node failure on node-c"], answer("killed")),
    "Kubernetes says OOMKilled of a pod and not of a rank": (
        {"describe.txt": ["Name: train-worker-3", "    Last State:     Terminated", "      Reason:       OOMKilled"]},
        answer("host_memory", unknown=True),
    ),
    "an evicted pod was killed": (
        ["Warning  Evicted  2m  kubelet  The node was low on resource: ephemeral-storage. "],
        answer("killed", unknown=True),
    ),
    "a loader's worker that was killed ran out of host memory": (
        ["[rank2]: RuntimeError: DataLoader worker (pid 7001) is killed by signal: Killed. ", *WAITING],
        answer("host_memory", 2, 9),
    ),
    "a loader's worker with a bus error ran out of shared memory": (
        [
            "[rank2]: RuntimeError: DataLoader worker (pid 7001) is killed by signal: Bus error. It is possible that"
            " dataloader's workers are out of shared memory.",
            *WAITING,
        ],
        answer("host_memory", 2, 9),
    ),
    "what backend meshwright says of a dead rank is taken at its word": (
        [
            "meshwright.backend.faults.failures.RankFailure: rank 1 (host node-a, pid 77) died, "
            "in all_reduce #5 of 4 KiB"
        ],
        answer("killed", 1),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_failed_first(name, tmp_path):
    files, wanted = CASES[name]

    assert told(judge(tmp_path, files), wanted) == wanted


def test_the_line_that_joins_a_gpu_and_a_rank_is_shown(tmp_path):
    files, _ = CASES["an Xid is joined to its rank by the bus"]

    shown = [line.text for line in judge(tmp_path, files).evidence]

    assert any("busId 3d000" in text for text in shown)


def test_the_lines_stand_in_the_order_of_time(tmp_path):
    late = timed_out(0, 9).replace("10:20:00.1", "10:30:00.1")
    files = {"a.log": [late], "b.log": [timed_out(1, 9)], "z.dmesg": [kernel("NVRM: Xid (PCI:0000:3d:00): 79, gone")]}

    shown = judge(tmp_path, files).evidence

    assert [line.file for line in shown] == ["z.dmesg", "b.log", "a.log"]
    assert [line.time_s for line in shown] == [0.0, 602.1, 1202.1]
