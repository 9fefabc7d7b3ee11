"""The words of launchers, NCCL and the driver about a process that ended, where nothing else is at hand."""

import pytest

from .made import answer, joined, judge, summary, timed_out, told

WARN = "node-7:4100:4160 [2] misc/socket.cc:483 NCCL WARN "


def at_once(codes):
    """Torchrun's summary of ranks that ended in the same second, {rank: code}, the last of them observed first."""
    lines = ["ChildFailedError:", "=" * 60, "train.py FAILED", "-" * 60, "Failures:"]
    for place, (rank, code) in enumerate(codes.items(), 1):
        lines += ["-" * 60, "Root Cause (first observed failure):"] if place == len(codes) else []
        lines += [f"[{rank}]:", "  time      : 2026-11-20_10:20:58", "  host      : node-a"]
        lines += [f"  rank      : {rank} (local_rank: {rank})", f"  exitcode  : {code} (pid: {5000 + rank})"]
        lines += ["  error_file: <N/A>", "  traceback : To enable traceback see: errors.html"]
    return [*lines, "=" * 60]


CASES = {
    "an elastic agent counts on its host": (
        ["W torchrun", "api.py:874] failed (exitcode: -9) local_rank: 3 (pid: 5003) of binary: /usr/bin/python3"],
        answer("killed", unknown=True),
    ),
    "its process leads to a rank": (
        [joined(11, 16, pid=5003), "api.py:874] failed (exitcode: -11) local_rank: 3 (pid: 5003) of binary: python3"],
        answer("killed", 11),
    ),
    "the summary says the same once more": (
        ["api.py:874] failed (exitcode: -9) local_rank: 3 (pid: 5003) of binary: python3", *summary(3, -9)],
        answer("killed", 3),
    ),
    "an exit code says less than the time-outs of waiting ranks": (
        [timed_out(0, 9), timed_out(1, 9), timed_out(3, 9), "failed (exitcode: 1) local_rank: 0 (pid: 60) of binary"],
        answer("absent", 2, 9),
    ),
    "a watchdog's abort is shown and blames nobody": (
        ["api.py:874] failed (exitcode: -6) local_rank: 3 (pid: 5003) of binary: /usr/bin/python3"],
        answer("killed", unknown=True),
    ),
    "DeepSpeed's launcher": (
        ["[ERROR] [launch.py:434] ['python', '-u', 'main.py', '--local_rank=1'] exits with return code = -9"],
        answer("killed", unknown=True),
    ),
    "torchrun's local rank 0 is rank 0 on one host": (
        [
            *(f"[rank{rank}]: step 1 loss 2.0" for rank in range(3)),
            "api.py:874] failed (exitcode: -9) local_rank: 0 (pid: 60) of binary: python3",
        ],
        answer("killed", 0),
    ),
    "DeepSpeed prints the command that it started last, whichever ended": (
        [
            "[rank0]: step 1 loss 2.0",
            "[rank1]: step 1 loss 2.0",
            "[ERROR] [launch.py:321] ['python', '-u', 'main.py', '--local_rank=2'] exits with return code = -9",
        ],
        answer("killed", unknown=True),
    ),
    "of two hosts the one whose rank ended first": (
        [*summary(0, 1), *(line.replace("10:20:58", "10:20:07") for line in summary(4, 1))],
        answer("exception", 4),
    ),
    "two hosts whose ranks ended in the same second name nobody": (
        [*summary(0, 1), *summary(4, 1)],
        answer("exception", unknown=True),
    ),
    "Lightning's launcher": (
        ["[rank: 2] Child process with PID 4123 terminated with code -9. Forcefully terminating all other processes"],
        answer("killed", unknown=True),
    ),
    "Open MPI's task is a rank": (
        ["mpirun noticed that process rank 3 with PID 0 on node n07 exited on signal 9 (Killed)."],
        answer("killed", 3),
    ),
    "Open MPI wraps its notice": (
        [
            "> prterun noticed that process rank 5 with PID 2110 on node n02 exited on",
            "> signal 11 (Segmentation fault).",
        ],
        answer("killed", 5),
    ),
    "Open MPI's first exit code": (
        [
            "mpirun detected that one or more processes exited with non-zero status, thus causing",
            "the job to be terminated. The first process to do so was:",
            "",
            "  Process name: [[12345,1],6]",
            "  Exit code:    1",
        ],
        answer("exception", 6),
    ),
    "a task of MPI may be torchrun's agent of a host": (
        [
            "+ torchrun --nproc-per-node 8 train.py",
            "mpirun noticed that process rank 1 with PID 77 on node b exited on signal 9 (Killed).",
        ],
        answer("killed", unknown=True),
    ),
    "Hydra's notice": (
        [
            "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
            "=   RANK 6 PID 5512 RUNNING AT nid001234",
            "=   KILLED BY SIGNAL: 9 (Killed)",
        ],
        answer("killed", 6),
    ),
    "Ray's memory is the host's": (
        [
            "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
            "Memory on the node (IP: 10.0.0.4) where the task (name=RayTrainWorker, pid=5312, memory used=110GB) was",
        ],
        answer("host_memory", unknown=True),
    ),
    "a Ray worker that ended for an unknown reason": (
        ["The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR"],
        answer("killed", unknown=True),
    ),
    "srun's exit code of a signal": (
        ["srun: error: n01: task 3: Exited with exit code 137"],
        answer("killed", 3),
    ),
    "a completion of a link-local peer": (
        [WARN + "NET/IB : Got completion from peer fe80::1:2%ib0<53249> with error 4, opcode 1, len 2, vendor err 81"],
        answer("network"),
    ),
    "a refused connection": (
        [WARN + "Net : Connect to 10.1.2.3<43211> failed : Connection refused"],
        answer("network"),
    ),
    "a call of verbs that failed": (
        [WARN + "Call to ibv_reg_mr failed with error Cannot allocate memory"],
        answer("network"),
    ),
    "NCCL found sizes that differ": (
        [
            WARN
            + "NET/IB : req 0/1 tag 0 peer 10.1.1.6<58683> collective mismatch error, local size 4966 remote size 65"
        ],
        answer("sizes", unknown=True),
    ),
    "NCCL found calls that differ, its line cut from the prefix": (
        ["init.cc:1247 NCCL WARN Mismatched collective detected, please check your collective calls at rank 39."],
        answer("desync", unknown=True),
    ),
    "two ranks on one GPU are nobody's fault but the launcher's": (
        [WARN + "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 4000"],
        answer("exception"),
    ),
    "a rank given twice": ([WARN + "Bootstrap Root : rank 1 of 8 ranks has already checked in"], answer("exception")),
    "two versions of NCCL": (
        [WARN + "Mismatched NCCL version detected : rank 0 version 22304 rank 8 version 21805"],
        answer("exception"),
    ),
    "CUDA failed inside NCCL, as torch tells it": (
        [
            "[rank7]: ncclUnhandledCudaError: Call to CUDA function failed.",
            "[rank7]: Last error:",
            "[rank7]: Cuda failure 1 'invalid argument'",
        ],
        answer("exception", 7),
    ),
    "shared memory of NCCL": (
        [WARN + "Error while creating shared memory segment /dev/shm/nccl-7dX4mg (size 9637888)"],
        answer("host_memory", unknown=True),
    ),
    "a pod's name before each line": (
        ["gpu-worker-1: Last error:", "gpu-worker-1: Cuda failure 'initialization error'", "gpu-worker-1: "],
        answer("exception", unknown=True),
    ),
    "an error of NCCL alone is a consequence": (
        ["torch.distributed.DistBackendError: NCCL error in: c10d/ProcessGroupNCCL.cpp:3376, internal error"],
        answer("exception", unknown=True),
    ),
    "an Xid that names the one before it": (
        ["kernel: NVRM: Xid (PCI:0000:dc:00): 45, pid=18, name=python3, Ch 00000001 caused by previous Xid 149"],
        answer("device", unknown=True),
    ),
    "a GPU without a handle": (
        ["Unable to determine the device handle for GPU0000:03:00.0: Unknown Error"],
        answer("device", unknown=True),
    ),
    "NVLink is the device's": (
        ["[rank6]: RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution"],
        answer("device", 6),
    ),
    "HCCL names the rank that it waits for": (
        [
            line
            for rank in (0, 1, 2)
            for line in (
                f"[rank{rank}]: RuntimeError: [ERROR] HCCL error in: ProcessGroupHCCL.cpp:64",
                f"[rank{rank}]: EI0002: The Notify register has not received the Notify record from remote rank [3].",
            )
        ],
        answer("absent", 3),
    ),
    "a store that cannot be reached is nobody's wait for a key": (
        ["torch.distributed.DistNetworkError: The client socket has timed out while trying to connect to (n0, 29500)."],
        answer("absent", unknown=True),
    ),
    "MPI's own abort": (
        ["MPI_ABORT was invoked on rank 5 in communicator MPI_COMM_WORLD", "with errorcode 1."],
        answer("exception", 5),
    ),
    "a disk that is full is no shared memory": (
        ["[rank0]: OSError: [Errno 28] No space left on device: '/ckpt/step_1000/model.pt'"],
        answer("exception", 0),
    ),
    "a full /dev/shm": (
        ["[rank0]: OSError: [Errno 28] No space left on device: '/dev/shm/torch_1'"],
        answer("host_memory", 0),
    ),
    "a job that somebody cancelled": (
        ["slurmstepd: error: *** STEP 12345.0 ON n01 CANCELLED AT 2025-01-01T10:00:00 ***"],
        answer("killed"),
    ),
    "who srun kills after one has failed is a victim": (
        [
            "srun: error: n1: task 9: Exited with exit code 1",
            "srun: Terminating StepId=991.0",
            "srun: error: n0: tasks 0-7: Killed",
        ],
        answer("exception", 9),
    ),
    "a node that fails comes before the tasks that SLURM ends": (
        ["srun: error: Node failure on gpu-17", "srun: error: gpu-16: tasks 0-7: Killed"],
        answer("killed"),
    ),
    "Python's own word of a crash": (
        ["[rank3]: Fatal Python error: Segmentation fault"],
        answer("killed", 3),
    ),
    "a container's exit code": (
        ["      Reason:       Error", "      Exit Code:    139"],
        answer("killed", unknown=True),
    ),
    "a container's exit code beside its reason": (
        ["      Reason:       OOMKilled", "      Exit Code:    137"],
        answer("host_memory", unknown=True),
    ),
    "of two hosts a local rank is no rank": (
        [joined(0, 4, host="a"), joined(2, 4, host="b"), "failed (exitcode: -9) local_rank: 1 (pid: 77) of binary: x"],
        answer("killed", unknown=True),
    ),
    "of one host it is": (
        [joined(0, 4), joined(2, 4), "failed (exitcode: -9) local_rank: 1 (pid: 77) of binary: x"],
        answer("killed", 1),
    ),
    "steps before each line are no hosts": (
        [*(f"step{n}: loss 2.1" for n in range(8)), "step8: [rank0]: KeyboardInterrupt"],
        answer("none", unknown=True),
    ),
    "all that a bus error ends in one second are alike": (
        at_once({1: -7, 2: -7, 0: -7}),
        answer("killed"),
    ),
    "those of more ranks that one signal ends at once are named together": (
        ["world_size=4", *at_once({3: -9, 1: -9})],
        answer("killed", ranks=(1, 3)),
    ),
    "of equal exit codes in one second the first of the list is chance": (
        at_once({2: 1, 0: 1}),
        answer("exception", unknown=True),
    ),
    "a killed rank comes before ranks that gave up in the same second": (
        at_once({1: -9, 2: 1, 0: 1}),
        answer("killed", 1),
    ),
    "an error that a rank printed decides between them": (
        ["[rank2]: ValueError: no such key", *at_once({2: 1, 0: 1})],
        answer("exception", 2),
    ),
    "UCX caught a crash in every process, of no known rank": (
        [f"[n1:{4100 + n}:0:{9000 + n}] Caught signal 11 (Segmentation fault: address not mapped)" for n in range(4)],
        answer("killed", unknown=True),
    ),
    "UCX caught a crash in a process that NCCL knows": (
        [joined(5, 8, pid=5005), "[node-a:5005 :0:77] Caught signal 11 (Segmentation fault: invalid permissions)"],
        answer("killed", 5),
    ),
    "an interrupt is no evidence": (["[rank0]: KeyboardInterrupt"], answer("none", unknown=True)),
}


@pytest.mark.parametrize("name", CASES)
def test_how_a_process_ended_is_read_from_what_its_launcher_prints(name, tmp_path):
    lines, wanted = CASES[name]

    found = judge(tmp_path, lines)

    assert told(found, wanted) == wanted, found.because


def test_the_line_of_nccl_keeps_its_host_where_other_lines_have_none(tmp_path):
    line = "H100-2:19989:20082 [1] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion with status=12 len=1"

    assert judge(tmp_path, [line]).evidence[0].text == line
