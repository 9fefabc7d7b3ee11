"""Hangs of jobs that c10d does not tell of alone: Horovod, JAX, XLA, MPI, Ray; prefixes, memory, exceptions."""

import pytest

from .made import answer, failed_at, joined, judge, raised, timed_out, told

STALLS = "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting"
TASK = "/job:jax_worker/replica:0/task:"
XID = "NVRM: Xid (PCI:0000:44:00): 79, pid=1234, name=python, GPU has fallen off the bus."
STUCK = (
    "E0000 00:00 rendezvous.cc:50] This thread has been waiting for `first call to collective op=all-reduce` for 20"
    " seconds and may be stuck. Expected 8 threads to join the rendezvous, but only 7 of them arrived on time."
)
FREED = "Thread is unstuck!  Warning above was a false-positive.  Perhaps the timeout is too short."


def came(*devices, run=7, ranks=4, local=4, form="participant for device ordinal {}, stream 0x55 "):
    """What XLA prints of each device that waits at a rendezvous."""
    key = f"run_id=RunId: {run}, global_devices={list(range(ranks))}, num_local_participants={local}, op_id=3"
    head = "E collective_ops_utils.h:209] This thread has been waiting for 5000ms for and may be stuck: "
    ways = [form.format(device) for device in devices]
    return [f"{head}{way}waiting for all participants to arrive at rendezvous RendezvousKey{{{key}}}" for way in ways]


def in_clique(*ranks, threads=4):
    """What a newer XLA prints of each device that waits for the others of its clique."""
    return [
        f"This thread has been waiting for `initialize clique for rank {rank}; clique=devices=[0,1,2,3]; stream=0;"
        f" run_id=7` for 10 seconds and may be stuck. Expected {threads} threads to join the rendezvous, but not all of"
        " them arrived on time."
        for rank in ranks
    ]


TWO_HOSTS = [joined(11, 16, host="node-b"), joined(3, 16, host="node-a")]


def others(seq=9, but=2, ranks=4):
    """The time-outs of all ranks but one."""
    return [timed_out(rank, seq) for rank in range(ranks) if rank != but]


def unlike(rank, count, other, others_count):
    """What DDP says on a rank whose number of parameters is not another's."""
    who = f"but Rank {rank} has {count} params, while rank {other} has inconsistent {others_count} params."
    return f"[rank{rank}]: RuntimeError: DDP expects same model across all ranks, {who}"


ARRIVED = (
    "[E ProcessGroupGloo.cpp:138] Rank {} successfully reached monitoredBarrier, but received errors while waiting for"
    " send/recv from rank 0. Please check rank 0 logs for faulty rank."
)
LOW = "(raylet, ip=10.0.1.75) 1 Workers (tasks / actors) killed due to memory pressure (OOM)"


def ray(pid, text="", *, rank=None):
    """A line that a worker of Ray printed on one host."""
    return f"(Worker pid={pid}, ip=10.0.1.75) " + (text or f"[rank{rank}]: step 1 loss 2.0")


def killed_by_ray(pid, ip):
    """What Ray's raylet prints of a worker that it killed."""
    return (
        f"(raylet, ip={ip}) A worker died or was killed. Worker ID: 5ed9 Node ID: 7578 Worker IP address: {ip} Worker"
        f" port: 10230 Worker PID: {pid} Worker exit type: NODE_OUT_OF_MEMORY Worker exit detail: Task was killed"
        " due to the node running low on memory."
    )


CASES = {
    "Horovod names who is missing": ([STALLS, "Stalled ops:", "grad_1 [missing ranks: 0]"], answer("absent", 0)),
    "Horovod under Open MPI": (
        [f"[1,0]<stderr>:{STALLS}", "[1,0]<stderr>:Stalled ops:grad_1 [missing ranks: 1]"],
        answer("absent", 1),
    ),
    "Horovod names who is ready, and one is left out": (
        [f"{STALLS} Stalled ops: grad_1 [ready ranks: 1, 3, 0], grad_2 [ready ranks: 0, 1, 3]"],
        answer("absent", 2),
    ),
    "Horovod's ready ranks without a hole leave the number of ranks open": (
        [f"{STALLS} Stalled ops: grad_1 [ready ranks: 1, 2, 0]"],
        answer("absent", unknown=True),
    ),
    "Horovod's newer list": (
        ["W stall_inspector.cc:107] " + STALLS, "Missing ranks:", "2: [grad_1, grad_2 ...]"],
        answer("absent", 2),
    ),
    "each rank waits with another tensor of Horovod's": (
        [STALLS, "Missing ranks:", "0: [grad_b]", "1: [grad_a]"],
        answer("desync", unknown=True),
    ),
    "one rank alone with another tensor of Horovod's": (
        [f"{STALLS} Stalled ops: loss [ready ranks: 3], grad_1 [ready ranks: 2, 0, 1], grad_2 [ready ranks: 0, 1, 2]"],
        answer("desync", 3),
    ),
    "a list of Horovod's that a terminal wrapped in its words, its numbers and its tensors": (
        [
            *(STALLS, "Stalled ops: val_loss [ready ranks: 3], opt_Allreduce/grads_conv_kern"),
            *("el_0 [ready ranks: 0,", " 2, 1], opt_Allreduce/grads_conv_bias_0 [ready ra", "nks: 1, 2, 0]"),
            *(", opt_Allreduce/grads_dense_0 [ready ranks: 0, 1", ", 2]"),
        ],
        answer("desync", 3),
    ),
    "a list of Horovod's that was cut off, and a line of another kind behind it": (
        [STALLS, "Stalled ops: grad_1 [missing ranks: 2], grad_2 [missing ranks: 2,", "2031 examples a second"],
        answer("absent", 2),
    ),
    "of Horovod's lists the last": (
        [STALLS, "Missing ranks:", "1: [val_loss]", STALLS, "Missing ranks:", "3: [grad_1, grad_2]"],
        answer("absent", 3),
    ),
    "of Horovod's lists the last that is whole": (
        [STALLS, "Stalled ops:", "grad_1 [missing ranks: 1]", STALLS],
        answer("absent", 1),
    ),
    "a stall of Horovod's after which the training goes on": (
        [STALLS, "Stalled ops:", "grad_1 [missing ranks: 0]", *(f"step {step} loss 1.0" for step in range(4))],
        answer("none", unknown=True),
    ),
    "Horovod's list of a rank that no job has": (
        [STALLS, "grad_1 [missing ranks: 9999999]"],
        answer("none", unknown=True),
    ),
    "one of four ranks has another model, and DDP tells of it on all": (
        [unlike(0, 10, 2, 8), unlike(1, 10, 2, 8), unlike(2, 8, 0, 10), unlike(3, 10, 2, 8)],
        answer("sizes", 2),
    ),
    "two ranks have other models, and the logs of the others are not there": (
        [unlike(0, 10, 2, 8), unlike(2, 8, 0, 10)],
        answer("sizes", unknown=True),
    ),
    "XLA's rendezvous that was met after all": (
        [STUCK, "E0000 rendezvous.cc:60] Thread is unstuck! Warning above was a false-positive."],
        answer("none", unknown=True),
    ),
    "XLA's rendezvous that nobody else comes to": ([STUCK], answer("absent", unknown=True)),
    "JAX no longer hears a task": (
        ["UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):", f"{TASK}3", "See the logs."],
        answer("killed", 3),
    ),
    "JAX of 2023 no longer hears a task": ([f"UNAVAILABLE: Task {TASK}5 heartbeat timeout."], answer("killed", 5)),
    "JAX's task that reported an error": (
        [f"Polled an error: INTERNAL: Error reported from {TASK}2: ran out of hosts."],
        answer("exception", 2),
    ),
    "JAX's task that came back as another process": (
        [f"ABORTED: {TASK}4 unexpectedly tried to connect with a different incarnation. It has likely restarted."],
        answer("killed", 4),
    ),
    "JAX's barrier": (
        ["Barrier timed out. Id: x", f"# of tasks that reached the barrier: 7/8. Some timed out task names: {TASK}6"],
        answer("absent", 6),
    ),
    "XLA's rendezvous names nobody": (
        [
            "This thread has been waiting for `all reduce 3` for 20 seconds and may be stuck. Expected 2 threads to"
            " join the rendezvous, but not all of them arrived on time."
        ],
        answer("absent", unknown=True),
    ),
    "all devices of XLA's process but one come to a rendezvous": (came(0, 3, 1), answer("absent", 2)),
    "XLA's devices by their places": (
        came(0, 1, 2, form="participant AllReduceParticipantData{{rank={}, element_count=4}} "),
        answer("absent", 3),
    ),
    "all ranks of XLA's clique but one": (in_clique(0, 1, 3), answer("absent", 2)),
    "the last rendezvous of XLA counts, not one that was met late": (
        [*came(1, 2, 3, run=1), FREED, FREED, FREED, "step 1 loss 2.0", *came(0, 1, 3)],
        answer("absent", 2),
    ),
    "the steps that follow a late rendezvous of XLA's": (
        [*came(1, 2, 3), FREED, FREED, FREED, *(f"step {step} loss 2.0" for step in range(4))],
        answer("none", unknown=True),
    ),
    "two devices that did not come, or of which nothing was kept": (came(0, 3), answer("absent", unknown=True)),
    "devices of one of two processes of XLA": (came(0, 1, 3, ranks=8), answer("absent", unknown=True)),
    "PyTorch/XLA's rendezvous": (
        ["RuntimeError: mesh_service.cc:364 : Failed to meet rendezvous 'save': Connection reset by peer (14)"],
        answer("absent", unknown=True),
    ),
    "a name of the first host that does not resolve": (
        ["The IPv4 network addresses of (node-a, 29500) cannot be retrieved (gai error: -2)."],
        answer("absent", unknown=True),
    ),
    "MPI_Abort of MPICH": (["application called MPI_Abort(MPI_COMM_WORLD, 1) - process 6"], answer("exception", 6)),
    "Open MPI lost a node": (
        ["ORTE has lost communication with a remote daemon.", "  Remote daemon: [[16372,0],3] on node gpu04"],
        answer("network"),
    ),
    "Ray lost a node": (
        ["The node with node id: 8f205b and ip: 10.128.0.103 has been marked dead because the detector has missed"],
        answer("killed"),
    ),
    "Ray's worker died with its node": (["The actor is dead because its node has died."], answer("killed")),
    "Composer's launcher": (["ERROR:composer.cli.launcher:Rank 3 crashed with exit code -9."], answer("killed", 3)),
    "horovodrun says whose line it is": (
        ["[1]<stderr>:Killed", "[0]<stderr>:Terminated", "[2]<stderr>:Terminated"],
        answer("killed", 1),
    ),
    "SageMaker says whose line it is": (
        ["[1,mpirank:5,algo-1]<stderr>:ValueError: x"],
        answer("exception", 5),
    ),
    "a viewer that numbers the lines": (
        [f"[{80746 + at}] {line}" for at, line in enumerate(others(but=5, ranks=8))],
        answer("absent", 5, 9),
    ),
    "docker compose": (
        [f"trainer-{r}  | {line}" for r in (0, 1, 3) for line in ("step 1 loss 2.0", timed_out(r, 9))],
        answer("absent", 2, 9),
    ),
    "a process that Ray killed for memory is the rank that its lines begin with": (
        [
            ray(pid=2210, rank=3),
            LOW,
            killed_by_ray(2210, "10.0.1.75"),
            *(ray(2207 + n, timed_out(n, 7)) for n in (0, 1)),
        ],
        answer("host_memory", 3, 7),
    ),
    "the same process number on another host is another process": (
        [ray(pid=2210, rank=3), killed_by_ray(2210, "10.0.1.76")],
        answer("host_memory", unknown=True),
    ),
    "a process without an address is none of a host that has them": (
        ["(Worker pid=31) [rank0]: step 1", ray(pid=29, rank=3), killed_by_ray(31, "10.0.1.75")],
        answer("host_memory", unknown=True),
    ),
    "workers of two addresses are on two hosts, where a local rank is no rank": (
        [
            ray(pid=2210, rank=3),
            ray(pid=2210, rank=1).replace("10.0.1.75", "10.0.1.76"),
            "failed (exitcode: -9) local_rank: 0 (pid: 77) of binary: x",
        ],
        answer("killed", unknown=True),
    ),
    "a worker that speaks for two ranks is neither": (
        [ray(pid=2210, rank=3), ray(pid=2210, rank=1), killed_by_ray(2210, "10.0.1.75")],
        answer("host_memory", unknown=True),
    ),
    "a runner that names the stream it passes on, and breaks lines in their middle": (
        [
            f"bench.node-d4 [stderr] {piece}" if n == 0 else piece
            for rank in (0, 1, 3)
            for n, piece in enumerate(timed_out(rank, 7).replace(": WorkNCCL", ": \nWorkNCCL").split("\n"))
        ],
        answer("absent", 2, 7),
    ),
    "a program's own prefix without a colon shows that a rank is there": (
        ["[rank4] step 10 loss 2.0", *(timed_out(rank, 7) for rank in range(4))],
        answer("absent", 4, 7),
    ),
    "a rank that a monitored barrier gave up on does not know who is missing": (
        [f"{ARRIVED.format(rank)}" for rank in (5, 6)],
        answer("absent", unknown=True),
    ),
    "nor where data are still prepared": (
        ["Map (num_proc=14):  70%|#######   | 652/930 [6:39<4:31, 17.07 examples/s]" + ARRIVED.format(3)],
        answer("data", unknown=True),
    ),
    "a time-out that is wrapped between its words": (
        [
            part
            for rank in (0, 1, 3)
            for part in timed_out(rank, 7).replace("collective op", "collective \nop").split("\n")
        ],
        answer("absent", 2, 7),
    ),
    "a worker of vLLM that died, by its place in its engine": (
        ["ERROR [multiproc_executor.py:140] Worker proc VllmWorker-1 died unexpectedly, shutting down executor."],
        answer("killed", unknown=True),
    ),
    "Ray's actor with its rank in brackets": (
        ["(Work[rank=3] pid=31, ip=10.1.1.2) ValueError: x", "(Work[rank=1] pid=29, ip=10.1.1.2) " + timed_out(1, 7)],
        answer("exception", 3, 7),
    ),
    "the terminal was closed": (
        ["Received Signals.SIGHUP death signal, shutting down workers", "SignalException: Process 13 got signal: 1"],
        answer("killed"),
    ),
    "host memory, as torch's allocator says": (
        ["[rank2]: RuntimeError: DefaultCPUAllocator: can't allocate memory: tried 8 bytes.", *others()],
        answer("host_memory", 2, 9),
    ),
    "host memory, as numpy says": (
        [*raised(2, "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.4 GiB for an array"), *others()],
        answer("host_memory", 2, 9),
    ),
    "host memory, as Python says": ([*raised(1, "MemoryError"), *others(but=1)], answer("host_memory", 1, 9)),
    "GPU memory, as cuBLAS says": (
        ["[rank1]: RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"],
        answer("device_memory", 1),
    ),
    "device memory, as XLA says": (
        ["XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes."],
        answer("device_memory", unknown=True),
    ),
    "a loader's worker met full shared memory": (
        ["Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm)."],
        answer("host_memory", unknown=True),
    ),
    "an exception whose name has no ending": (
        [*raised(2, "torch._dynamo.exc.FailOnRecompileLimitHit: recompile_limit reached"), *others()],
        answer("exception", 2, 9),
    ),
    "an exception without a text": ([*raised(2, "StopIteration"), *others()], answer("exception", 2, 9)),
    "a service that a rank cannot reach is no other rank": (
        [*raised(2, "requests.exceptions.ConnectionError: HTTPSConnectionPool: Max retries exceeded"), *others()],
        answer("exception", 2, 9),
    ),
    "a file that ends too soon": ([*raised(2, "EOFError: Ran out of input"), *others()], answer("exception", 2, 9)),
    "a pipe whose other end is gone": ([*raised(2, "EOFError"), *others()], answer("absent", 2, 9)),
    "DDP finds one rank's parameters unlike": (
        [
            "[rank3]: RuntimeError: [3]: params[3] in this process with sizes [128] appears not to match sizes of the"
            " same param in process 0.",
            *others(but=3),
        ],
        answer("sizes", 3),
    ),
    "DDP finds all unlike rank 0": (
        [
            f"[rank{rank}]: [{rank}]: params[3] in this process with sizes [128] appears not to match sizes of"
            " the same param in process 0."
            for rank in (1, 2, 3)
        ],
        answer("sizes", 0),
    ),
    "NCCL's sockets met another size": (
        [
            "n:41:46 [2] net_socket.cc:590 NCCL WARN NET/Socket : peer 10.0.0.5<4> message truncated : receiving 65536"
            " bytes instead of 32768."
        ],
        answer("sizes", unknown=True),
    ),
    "libfabric": (
        ["libfabric:451707:1708::efa:cq:efa_rdm_txe_handle_error():737<warn> err: 5, message: Invalid address"],
        answer("network"),
    ),
    "the verbs library": (["mlx5: node-3: got completion with error:", "00000000 00008813"], answer("network")),
    "a socket that the host's own side gave up": (
        [
            "n:12:13 [5] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to fe80::9%ib1<17943> failed :"
            " Software caused connection abort"
        ],
        answer("network"),
    ),
    "amdgpu's page fault": (
        ["[19277.9] amdgpu 0000:3d:00.0: amdgpu: [mmhub0] no-retry page fault (src_id:0 ring:160 vmid:3 pasid:3)"],
        answer("device", unknown=True),
    ),
    "Horovod's words on the rank that ended are not those of the one that did": (
        [f"[1,{r}]<stderr>:HorovodInternalError: Horovod has been shut down." for r in (0, 2, 3)]
        + ["[1,1]<stderr>:ValueError: bad batch"],
        answer("exception", 1),
    ),
    "Horovod's words by themselves blame nobody": (
        [f"[1,{r}]<stderr>:HorovodInternalError: Horovod has been shut down." for r in (0, 2, 3)],
        answer("exception", unknown=True),
    ),
    "the launcher ends the loader's workers of ranks that waited": (
        [*others(), "[rank1]: RuntimeError: DataLoader worker (pid 33) is killed by signal: Terminated. "],
        answer("absent", 2, 9),
    ),
    "a worker that the launcher ended is nobody's fault": (
        ["[rank1]: RuntimeError: DataLoader worker (pid 33) is killed by signal: Terminated. "],
        answer("none", unknown=True),
    ),
    "an error of NCCL as old torch spells it": (
        [f"[rank{r}]: RuntimeError: NCCL Error 2: unhandled system error" for r in (0, 1, 3)]
        + ["[rank2]: ValueError: bad batch"],
        answer("exception", 2),
    ),
    "JAX's word on a task that died": (
        [f"[1,{r}]<stderr>:XlaRuntimeError: UNAVAILABLE: Task {TASK}1 heartbeat timeout." for r in (0, 2, 3)],
        answer("killed", 1),
    ),
    "what befell every rank alike is nobody's": (
        [f"[rank{r}]: RuntimeError: CUDA error: an illegal memory access was encountered" for r in range(4)],
        answer("exception"),
    ),
    "Megatron's assertion says on which rank it failed": (
        ["AssertionError: Rank 11: found NaN in local grad norm in backward pass before data-parallel communication"],
        answer("exception", 11),
    ),
    "UCX gives up on a link": (
        ["[n1:3118:0:3118] ib_mlx5_log.c:143  Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81)"],
        answer("network"),
    ),
    "libfabric cannot reach its peer": (
        [
            "n:12:13 [1] insert_rail:9 NCCL WARN NET/OFI Unable to insert remote address into address vector",
            "DistBackendError: NCCL error in: NCCLUtils.hpp:317, internal error, NCCL version 2.21.5",
        ],
        answer("network"),
    ),
    "PBS ends a job for its memory": (
        ["=>> PBS: job killed: mem 264kb exceeded limit 251kb"],
        answer("host_memory", unknown=True),
    ),
    "PBS ends a job for its time": (["=>> PBS: job killed: walltime 3601 exceeded limit 3600"], answer("killed")),
    "a time limit of PBS ends what hangs": (
        [*others(), "=>> PBS: job killed: walltime 3601 exceeded limit 3600"],
        answer("absent", 2, 9),
    ),
    "LSF ends a job for its memory": (
        ["TERM_MEMLIMIT: job killed after reaching LSF memory usage limit."],
        answer("host_memory", unknown=True),
    ),
    "LSF ends a job for its time": (
        ["TERM_RUNLIMIT: job killed after reaching LSF run time limit."],
        answer("killed"),
    ),
    "SLURM's record of a job whose node failed": (["   JobState=NODE_FAIL Reason=NodeDown"], answer("killed")),
    "SLURM's record of a step that ran out of memory": (
        ["12345.0          python                    OUT_OF_ME+    0:125 "],
        answer("host_memory", unknown=True),
    ),
    "a line with a clock and the word TIMEOUT is no record of SLURM's": (
        ["2026-11-20 10:20:30 TIMEOUT=600 10:20"],
        answer("none", unknown=True),
    ),
    "SLURM's controller saw a signal": (
        ["[2026-05-27T11:37:57.377] _job_complete: JobId=127441 WTERMSIG 9"],
        answer("killed", unknown=True),
    ),
    "a spot machine is taken back": (
        ["[2026-11-20 10:01:02] EC2 Spot Instance interruption notice: action terminate at 10:03:02Z"],
        answer("killed"),
    ),
    "who asks whether a spot machine is taken back hears no": (
        [*others(), "GET http://169.254.169.254/latest/meta-data/spot/instance-action 404"],
        answer("absent", 2, 9),
    ),
    "the host of the rendezvous is gone": (
        [
            "WARNING:torch.distributed.elastic.rendezvous.dynamic_rendezvous:The node 'b_3427_0' has failed to send a"
            " keep-alive heartbeat to the rendezvous 'x' due to an error of type RendezvousConnectionError."
        ],
        answer("killed", unknown=True),
    ),
    "NVLink's Xid that is not fatal blames no rank": (
        {
            "train.log": [joined(1, 4, "2c000"), *(timed_out(rank, 9) for rank in range(4))],
            "node-a.dmesg": [
                "Nov 20 10:09:58 node-a kernel: NVRM: Xid (PCI:0000:2c:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13"
            ],
        },
        answer("stuck", seq=9),
    ),
    "DETAIL names the calls of two ranks, the second without its shape": (
        [
            "[RANK 1] Detected mismatch between collectives on ranks. Rank 1 is running collective:"
            " CollectiveFingerPrint(SequenceNumber=101, OpType=ALLGATHER, TensorShape=[1], TensorDtypes=Long), but Rank"
            " 7 is running collective: CollectiveFingerPrint(SequenceNumber=0OpType=REDUCE)."
        ],
        answer("desync", seq=101, unknown=True),
    ),
    "DETAIL of torch 1.11 names the call of one rank": (
        [
            "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running inconsistent collective:"
            " CollectiveFingerPrint(OpType=BROADCAST, TensorShape=[34112], TensorDtypes=Float)"
        ],
        answer("desync", unknown=True),
    ),
    "a queue of a GPU that ROCm's runtime gives up": (
        [
            "[rank2]: :0:rocdevice.cpp:3586: Callback: Queue 0x7f78 aborting with error : HSA_STATUS_ERROR_EXCEPTION:"
            " An HSAIL operation resulted in a hardware exception. code: 0x1016",
            *others(),
        ],
        answer("device", 2, 9),
    ),
    "an Intel GPU that was lost": (
        ["[rank2]: RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)", *others()],
        answer("device", 2, 9),
    ),
    "an Intel GPU that hangs": (
        ["[ 100.1] i915 0000:03:00.0: [drm] GPU HANG: ecode 12:1:85dffffb, in python3 [5002]"],
        answer("device", unknown=True),
    ),
    "who writes NCCL's id did not come, as torch spelt it until 2.0": (
        [
            f"RuntimeError: [{rank}] is setting up NCCL communicator and retreiving ncclUniqueId from [0] via c10d"
            " key-value store by key '0', but store->get('0') got error: Timeout waiting for key: default_pg/0/0"
            for rank in (1, 2, 3)
        ],
        answer("absent", 0),
    ),
    "a process that accelerate started": (
        ["subprocess.CalledProcessError: Command '['python']' died with <Signals.SIGKILL: 9>."],
        answer("killed", unknown=True),
    ),
    "torch.multiprocessing.spawn": (
        ["ProcessExitedException: process 3 terminated with signal SIGKILL"],
        answer("killed", unknown=True),
    ),
    "torch.multiprocessing.spawn, and another line glued to it": (
        ["ProcessExitedException: process 3 terminated with signal SIGKILLProcessExitedException: process 2"],
        answer("killed", unknown=True),
    ),
    "an exception of no class of its own": ([*raised(2, "Exception: bad"), *others()], answer("exception", 2, 9)),
    "one assertion that names its rank, on two ranks": (
        [f"[rank{r}]: AssertionError: Rank {r}: found NaN in local grad norm" for r in (1, 2)] + [timed_out(0, 9)],
        answer("exception", ranks=(1, 2), seq=9),
    ),
    "a group whose size is not told may have members that are not heard": (
        [timed_out(rank, 9, place=place) for place, rank in enumerate((0, 2, 4))]
        + [failed_at(rank, "PG ID 2 PG GUID 3(dp)", 9, 10, 8, place=place) for place, rank in enumerate((0, 2, 4))]
        + ["world_size=8"],
        answer("absent", seq=9, unknown=True),
    ),
    "a size that was printed without its sign": (
        [timed_out(rank, 1, "COALESCED", 18446744073709551615) for rank in (1, 2, 3)],
        answer("absent", 0, 1),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_others_print_is_read(name, tmp_path):
    lines, wanted = CASES[name]
    assert told(judge(tmp_path, lines), wanted) == wanted


@pytest.mark.parametrize(
    "prefix",
    [
        "2026-11-20T10:20:30+00:00 node-b kernel: ",
        "2026-11-20T10:20:30,123456+00:00 node-b kernel: ",
        "Fri 2026-11-20 10:20:30 UTC node-b kernel: ",
        "Nov 20 10:20:30 node-b kernel: ",
        "[12345.678901] node-b kernel: ",
    ],
    ids=["iso", "dmesg iso", "full", "syslog", "monotonic"],
)
def test_the_host_of_a_kernel_line_leads_to_the_rank(prefix, tmp_path):
    verdict = judge(tmp_path, {"journal.txt": [prefix + XID], "train.log": TWO_HOSTS})
    assert (verdict.kind, verdict.rank) == ("device", 11)


@pytest.mark.parametrize(
    "prefix",
    [
        "[pod/job-{}/main] ",
        "job-{}: ",
        "2026-11-20T10:20:30.123456789Z ",
        "[1,{}]<stderr>:",
        "(Worker pid={}, ip=1.2.3.4) ",
    ],
    ids=["kubectl", "stern", "stamps", "mpi", "ray"],
)
@pytest.mark.parametrize("mixed", [False, True], ids=["in a row", "mixed"])
def test_a_message_that_was_wrapped_behind_a_prefix_is_whole_again(prefix, mixed, tmp_path):
    pieces = []
    for rank in (1, 2, 3):
        text = timed_out(rank, 88)
        at = text.index("collective") + 4
        rest = text.index("Timeout(ms)") - 1  # the space at this break is lost
        pieces.append([prefix.format(rank) + part for part in (text[:at], text[at:rest], text[rest + 1 :])])
    mixed = mixed and "{}" in prefix  # without a name nothing tells whose piece it is
    lines = [line for row in (zip(*pieces, strict=True) if mixed else pieces) for line in row]
    wanted = answer("absent", 0, 88)
    assert told(judge(tmp_path, lines), wanted) == wanted


def test_stamps_of_kubectl_do_not_hide_an_exception(tmp_path):
    stamp = "2026-11-20T10:20:30.123456789Z "
    wanted = answer("exception", 2)
    assert told(judge(tmp_path, [stamp + line for line in raised(2, "ValueError: bad batch")]), wanted) == wanted


def test_a_rank_whose_file_is_not_here_is_not_taken_for_silent(tmp_path):
    files = {f"rank{rank}.log": ["step 1 loss 2.0", timed_out(rank, 9)] for rank in (0, 1, 3)}
    verdict = judge(tmp_path, files)
    assert told(verdict, wanted := answer("absent", seq=9, unknown=True)) == wanted
    assert any("rank 2" in what for what in verdict.missing)


def test_of_two_that_did_not_time_out_the_one_whose_file_is_here_is_blamed(tmp_path):
    files = {f"rank{rank}.log": ["step 1 loss 2.0", timed_out(rank, 9)] for rank in (0, 1, 2, 4, 5, 7)}
    wanted = answer("absent", 3, 9)
    assert told(judge(tmp_path, {**files, "rank3.log": ["step 1 loss 2.0"]}), wanted) == wanted


def test_equal_sizes_of_a_gather_do_not_make_a_group_of_one(tmp_path):
    lines = [timed_out(rank, 9, "_ALLGATHER_BASE", 1000) for rank in (0, 1, 2)]
    assert judge(tmp_path, lines).kind != "stuck"


def test_the_error_in_the_numbered_file_of_a_task_that_jax_misses_is_why(tmp_path):
    dead = [f"UNAVAILABLE: Task {TASK}2 heartbeat timeout."]
    files = {f"worker_{task}.log": ["step 1 loss 2.0", *dead] for task in (0, 1, 3)}
    traceback = [line.removeprefix("[rank2]: ") for line in raised(2, "ValueError: bad batch")]
    verdict = judge(tmp_path, {**files, "worker_2.log": ["step 1 loss 2.0", *traceback]})
    assert (verdict.kind, verdict.rank) == ("exception", 2)
