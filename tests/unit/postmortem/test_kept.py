"""More texts of the kinds that people post, in our own rendering: frameworks that tell whose error they pass on."""

import pytest

from .made import (
    LINE,
    WORLD,
    answer,
    failed_at,
    judge,
    out_of_memory,
    signalled,
    stood_still,
    summary,
    timed_out,
    told,
)

OLD = "[E ProcessGroupNCCL.cpp:737] [Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={},"
REMOTE = "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."
TRACE = ["Traceback (most recent call last):", '  File "train.py", line 9, in <module>']


def old(rank, seq, operation="_ALLGATHER_BASE"):
    """The watchdog of torch 1.12."""
    rest = f" OpType={operation}, Timeout(ms)=1800000) ran for 1801750 milliseconds before timing out."
    return OLD.format(rank, seq) + rest


def of(rank, *lines):
    return [f"[rank{rank}]: {line}" for line in lines]


def checkpoint(*ranks, error="OSError: [Errno 5] Input/output error"):
    """What torch.distributed.checkpoint raises on every rank where some of them failed."""
    lines = ["torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys"]
    lines = [f"{lines[0]}({list(ranks)})"]
    for rank in ranks:
        lines += [f"Traceback (most recent call last): (RANK {rank})", '  File "dcp/utils.py", line 192, in x', error]
    return lines


def no_quorum(came):
    """What torchft's lighthouse prints while replicas are missing from the next quorum."""
    told = f"New quorum not ready, only have {came} participants, need min_replicas 2"
    return f"torchft::lighthouse: 2026-01-23T11:20:01.340-08:00 - INFO Next quorum status: {told}"


CASES = {
    "old torch, the first rank saves": ([old(rank, 3738254) for rank in range(1, 8)], answer("absent", 0, 3738254)),
    "old torch, one rank reduces": (
        [old(rank, 3742816, "REDUCE" if rank == 0 else "_ALLGATHER_BASE") for rank in range(8)],
        answer("desync", 0, 3742816),
    ),
    "one rank skipped a batch": (
        [
            *(timed_out(rank, 21937, "_ALLGATHER_BASE", 100, 400) for rank in (0, 2, 3)),
            *(failed_at(rank, WORLD, 21937, 21937, 21936) for rank in (0, 2, 3)),
            signalled(1, WORLD, 21936, 21936, by=0),
        ],
        answer("absent", 1, 21937),
    ),
    "one rank of whose job nothing else is here": (
        [timed_out(1, 34036, "ALLGATHER", 8, 64), "  traceback : Signal 6 (SIGABRT) received by PID 77"],
        answer("absent", seq=34036, unknown=True),
    ),
    "one heartbeat alone": ([stood_still(144)], answer("host", unknown=True)),
    "XLA's clique that is not complete": (
        [
            "2026-07-29 17:14:59.920189: E external/xla/xla/service/rendezvous.cc:38] This thread has been waiting for"
            " `initialize clique for rank 6; clique=devices=[0,1,2,3]; stream=0; run_id=724296073` for 10 seconds and"
            " may be"
            " stuck. Expected 8 threads to join the rendezvous, but not all of them arrived on time."
        ],
        answer("absent", unknown=True),
    ),
    "torchft waits for a replica": (
        [
            f"torchft::lighthouse: 2026-01-23T11:20:0{second}.340-08:00 - INFO Next quorum status: New quorum not"
            f" ready, only"
            " have 1 participants, need min_replicas 2 [1/1 participants healthy][1 heartbeating][shrink_only=false]"
            for second in range(4)
        ],
        answer("absent", unknown=True),
    ),
    "torchft's quorum was met in the end": (
        [
            "torchft::lighthouse: 2026-01-23T11:20:01.340-08:00 - INFO Next quorum status: New quorum not ready, only"
            " have 1"
            " participants, need min_replicas 2 [1/1 participants healthy][1 heartbeating][shrink_only=false]",
            *(f"step {step} loss 2.0" for step in range(5)),
        ],
        answer("none", unknown=True),
    ),
    "torchft's quorum was met, and the next one is not asked for yet": (
        [
            no_quorum(0),
            no_quorum(1),
            "torchft::lighthouse: 2026-01-23T11:20:04.101-08:00 - INFO Quorum! Quorum { quorum_id: 1 }",
            no_quorum(0),
            no_quorum(0),
        ],
        answer("none", unknown=True),
    ),
    "torchft's quorum was met once, and a replica waits for the next": (
        [no_quorum(1), "INFO Detected quorum change, bumping quorum_id to 1", no_quorum(0), no_quorum(1)],
        answer("absent", unknown=True),
    ),
    "torchft waits for replicas that live and do not come": (
        ["Valid quorum with 3 participants, waiting for 1 healthy but not participating stragglers"],
        answer("absent", unknown=True),
    ),
    "an older torchft waits for a replica": (
        ["2025-01-09T19:50:55.422+00:00 - INFO start: No quorum, only have 1 participants, need 2"],
        answer("absent", unknown=True),
    ),
    "Ray Train tells whose error it is": (
        [
            "ray.train.WorkerGroupError: Training failed due to worker errors:",
            "[Rank 2 Error Snippet]:",
            *TRACE,
            "ValueError: shard 71 is empty",
        ],
        answer("exception", 2),
    ),
    "a checkpoint that one rank could not write": (
        [line for rank in range(4) for line in of(rank, *TRACE, *checkpoint(2))],
        answer("exception", 2),
    ),
    "a checkpoint that two ranks could not write": (
        [line for rank in range(4) for line in of(rank, *TRACE, *checkpoint(1, 3))],
        answer("exception", ranks=(1, 3)),
    ),
    "DeepEP's wait is nobody's error": (
        of(3, *TRACE, "RuntimeError: DeepEP error: CPU recv timeout"),
        answer("exception", unknown=True),
    ),
    "DeepEP's wait beside who ran out of memory": (
        [*of(3, *TRACE, "RuntimeError: DeepEP error: timeout (dispatch CPU)"), out_of_memory(5)],
        answer("device_memory", 5),
    ),
    "SLURM says what and whom": (
        [
            "slurmstepd: error: Detected 1 oom_kill event in StepId=71.0. Some of the step tasks have been OOM Killed.",
            "srun: error: node-3: task 12: Out Of Memory",
        ],
        answer("host_memory", 12),
    ),
    "an assertion on a device": (
        [
            *of(2, *TRACE, "RuntimeError: CUDA error: device-side assert triggered"),
            *(timed_out(r, 8) for r in (0, 1, 3)),
        ],
        answer("exception", 2, 8),
    ),
    "peers of one that says nothing": (
        [
            line
            for rank in (0, 1, 3)
            for line in of(rank, *TRACE, f"torch.distributed.DistBackendError: NCCL error: {REMOTE}")
        ],
        answer("network", unknown=True),
    ),
    "a store's barrier that all but one came to": (
        [
            f"[rank{rank}]: torch.distributed.DistStoreError: Timed out initializing process group in store based"
            f" barrier on"
            f" rank: {rank}, for key: store_based_barrier_key:1 (world_size=8, worker_count=7, timeout=0:30:00)"
            for rank in range(7)
        ],
        answer("absent", 7),
    ),
    "gloo's time-outs leave one of four out": (
        [
            line
            for rank in (0, 1, 3)
            for line in of(
                rank,
                *TRACE,
                "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:84] Timed out waiting"
                " 1800000ms for"
                " recv operation to complete",
            )
        ],
        answer("absent", 2),
    ),
    "shared memory of a loader": (
        of(
            1,
            *TRACE,
            "RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error. It is possible that"
            " dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
        ),
        answer("host_memory", 1),
    ),
    "an exception before a barrier": (
        [*of(0, *TRACE, "KeyError: 'labels'"), *(timed_out(rank, 3, "BARRIER", 1) for rank in (1, 2, 3))],
        answer("exception", 0, 3),
    ),
    "the store broke off while NCCL's id was fetched": (
        of(
            1,
            *TRACE,
            "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId"
            " from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer",
        ),
        answer("exception", unknown=True),
    ),
    "a driver that is too old for all": (
        [
            f"[rank{rank}]: node-a:{70 + rank}:90 [{rank}] NCCL WARN Cuda failure 803 'system has unsupported display"
            f" driver /"
            " cuda driver combination'"
            for rank in range(4)
        ],
        answer("exception"),
    ),
    "a summary of several failures whose first is an exception": (
        [
            "train.py FAILED",
            LINE,
            "Failures:",
            "[1]:",
            "  time      : 2026-11-20_10:21:03",
            "  host      : node-a",
            "  rank      : 0 (local_rank: 0)",
            "  exitcode  : -15 (pid: 5000)",
            "  error_file: <N/A>",
            "  traceback : Signal 15 (SIGTERM) received by PID 5000",
            LINE,
            "Root Cause (first observed failure):",
            "[0]:",
            "  time      : 2026-11-20_10:20:58",
            "  host      : node-a",
            "  rank      : 3 (local_rank: 3)",
            "  exitcode  : 1 (pid: 5003)",
            "  error_file: <N/A>",
            "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
        ],
        answer("exception", 3),
    ),
    "iterations of Megatron without a fault": (
        [
            f" [2026-11-20 10:20:0{n}] iteration {n}/ 1000 | consumed samples: {n} | elapsed time per iteration (ms):"
            f" 900.1 |"
            " number of skipped iterations: 0 | number of nan iterations: 0 |"
            for n in range(5)
        ],
        answer("none", unknown=True),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_texts_that_were_kept_back_are_judged_right(name, tmp_path):
    files, wanted = CASES[name]
    verdict = judge(tmp_path, files)
    assert told(verdict, wanted) == wanted, str(verdict)


OF_OTHERS = [
    "filelock._error.Timeout: The file lock '/cache/x.lock' could not be acquired.",
    "RuntimeError: [Rank 3] Caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE,"
    " Timeout(ms)=600000) ran for 600040 milliseconds before timing out.",
    "RuntimeError: Work timed out in blocking wait (NCCL_BLOCKING_WAIT=1).",
    "RuntimeError: Stop_waiting response is expected",
    "torch.distributed.DistNetworkError: failed to recv, got 0 bytes",
    "RuntimeError: failed to recv, got 0 bytes",
    "RuntimeError: oneCCL: atl_ofi_comm.cpp:281 init_transport: EXCEPTION: atl_status: FAILURE",
    "ray.exceptions.GetTimeoutError: Get timed out: some object(s) not ready.",
    "ray.exceptions.RayChannelTimeoutError: System error: Timed out waiting for object available to read.",
    "TimeoutError: Timed out after 600 seconds waiting for other ranks at the barrier",
    "RuntimeError: nvshmem: barrier timeout on PE 3",
    "RuntimeError: NVSHMEM barrier timed out",
    "ucxx._lib.libucxx.UCXXConnectionResetError: Connection reset by remote peer",
    "ucp._libs.exceptions.UCXConnectionReset: <[Recv #001] ep: 0x7f, tag: 0x1>: Connection reset by remote peer",
    "mpi4py.MPI.Exception: MPI_ERR_PROC_FAILED: Process Failure",
    "grpc._channel._InactiveRpcError: <_InactiveRpcError of RPC that terminated with: status = StatusCode.UNAVAILABLE",
    "jaxlib._jax.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: step 4",
    "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: NCCL operation ncclGroupEnd() failed: remote process exited or"
    " there was a network error",
    "XlaRuntimeError: FAILED_PRECONDITION: Buffer Definition Event: Gloo all-reduce failed:"
    " [external/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.2]:4321",
    "torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cuda//0",
    "RuntimeError: NCCL communicator was aborted on rank 3.  Original reason for failure was: [Rank 3] Watchdog caught"
    " collective operation timeout",
    "RuntimeError: ProcessGroupGloo: Application timeout caused pair closure",
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:525] Application timeout caused pair closure",
    "torch.distributed.elastic.rendezvous.api.RendezvousGracefulExitError: ",
    "RuntimeError: Timeout waiting for peer rank 2 in symmetric memory barrier",
    "queue.Empty",
    "_queue.Empty",
    "RuntimeError: ACL stream synchronize failed, error code:507048",
    "RuntimeError: HCCL function error: HcclAllReduce, error code is 6",
    "deepspeed.runtime.fault.PeerLostError: peer 2 left",
]
ITS_OWN = [
    "ValueError: shape mismatch",
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)",
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/x'",
    "TimeoutError: reading /data/shard-3.tar timed out",
    "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out. (read"
    " timeout=10)",
    "AssertionError: loss is nan",
    "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
    "botocore.exceptions.ReadTimeoutError: Read timeout on endpoint URL: 's3'",
    "UnboundLocalError: local variable 'x'",
    "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
    "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
    "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
]


@pytest.mark.parametrize("error", OF_OTHERS)
def test_a_rank_that_timed_out_or_lost_a_peer_is_not_to_blame_for_it(error, tmp_path):
    verdict = judge(tmp_path, of(3, *TRACE, error))

    assert verdict.blamed == (), str(verdict)


@pytest.mark.parametrize("error", ITS_OWN)
def test_who_failed_by_itself_is_to_blame(error, tmp_path):
    verdict = judge(tmp_path, of(3, *TRACE, error))

    assert (verdict.kind, verdict.rank) == ("exception", 3), str(verdict)


@pytest.mark.parametrize("code", [1, -6, -15])
@pytest.mark.parametrize("error", OF_OTHERS[::5])
def test_torchruns_first_failure_does_not_make_a_victim_a_culprit(error, code, tmp_path):
    verdict = judge(tmp_path, [*of(1, *TRACE, error), *summary(1, code)])

    assert verdict.blamed == (), str(verdict)


GAVE_UP = (
    "[rank3]:[E1120 {}.500000000 ProcessGroupNCCL.cpp:699] [Rank 3] Some NCCL operations have failed or timed out. Due"
    " to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data."
)


@pytest.mark.parametrize(("at", "blamed"), [("10:20:01", ()), ("10:27:01", (3,))], ids=["with the others", "later"])
def test_a_rank_that_gave_up_a_call_of_its_own_with_the_others_had_come_though_its_time_out_is_lost(
    at, blamed, tmp_path
):
    verdict = judge(tmp_path, [*(timed_out(rank, 7) for rank in range(3)), GAVE_UP.format(at)])

    assert (verdict.kind, verdict.blamed) == ("absent", blamed), verdict.because
