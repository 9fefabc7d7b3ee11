"""Steps to try next after a verdict: by what was found where that is known, else by its kind."""

import re

from .names import (
    A_DEBUGGER,
    BY_ITSELF,
    BY_LOOPBACK,
    BY_REQUEST,
    FRAGMENTED,
    HELD_BY_OTHERS,
    NO_FABRIC,
    NO_PROGRESS,
    NOT_FINITE,
    OF_GAUDI,
    OF_PROGRAM,
    UNLIKE_BOOTSTRAPS,
    UNUSED_PARAMETERS,
)

NEXT: dict[str, tuple[str, ...]] = {
    "absent": (
        "look at what the blamed rank did on its host: its own log, `py-spy dump --pid` of it, a"
        " checkpoint, an evaluation"
        " that only it runs",
        "look for a branch on the rank, or a loader that gives it fewer batches (DDP: Join; else drop_last)",
    ),
    "desync": (
        "compare the two lines of code: a branch on the rank, on its data or on a caught error leads there",
        "set TORCH_DISTRIBUTED_DEBUG=DETAIL for one run: it checks each call before it is made",
    ),
    "sizes": (
        "print the shapes that each rank brings to this call; pad them to one size, or gather the sizes first",
        "set TORCH_DISTRIBUTED_DEBUG=DETAIL for one run: it names the rank and both sizes",
    ),
    "circle": (
        "make every rank enter the groups in the same order, or wait for one call before the next of another stream",
        "set CUDA_DEVICE_MAX_CONNECTIONS=1, or leave the prefetch of the next layer out, to see whether it goes away",
    ),
    "stuck": (
        "look at the links and GPUs: NCCL_DEBUG=INFO, the kernel log (Xid), ECC counters, `ibstat`, `meshwright bench`",
        "leave nodes out one by one; run the same job on half of the nodes",
    ),
    "data": (
        "prepare the data before init_process_group, or on one rank first, behind a barrier with a longer timeout",
        "look at the loader: num_workers, a slow or dead file system, `py-spy dump --pid` of its workers",
    ),
    "host": (
        "look at the stack of the blamed rank: a lock, a file system, a socket, a subprocess; `py-spy dump --native`",
        "take the call out of the step, or give it a timeout of its own",
    ),
    "slow": ("look at the clock, the temperature and the neighbours of that GPU; `meshwright report` of its traces",),
    "device": (
        "drain the node and run its vendor's diagnostics (NVIDIA: `dcgmi diag -r 3`, AMD: `rvs`); reset or replace the"
        " device",
        "restart from the last checkpoint on another node",
    ),
    "device_memory": (
        "lower the batch or the sequence of that rank, recompute activations, or shard more;"
        " `meshwright plan` prices it",
        "end the process on out of memory: a rank that catches it and goes on leaves the others waiting",
    ),
    "host_memory": (
        "raise the memory limit of the job, lower num_workers and what they cache; watch the resident size over epochs",
        "give /dev/shm more room if it was shared memory",
    ),
    "network": (
        "test the link and both of its ends: `ib_write_bw`, `ibdiagnet`, `meshwright bench p2p`; cable, port, switch",
        "check NCCL_IB_GID_INDEX, NCCL_IB_HCA and the time-out (NCCL_IB_TIMEOUT)",
    ),
    "exception": ("mend what the exception says; the time-outs of the other ranks are its consequence",),
    "killed": (
        "ask who killed it: kernel log of that host (out of memory?), SLURM's or Kubernetes' events, a time limit",
    ),
    "not_finite": (
        "take a checkpoint from before it, none from after; look at the steps right before: loss, gradient norm,"
        " learning rate, data",
        "then a lower learning rate, clipped gradients or bf16 in place of fp16; one run under"
        " `torch.autograd.set_detect_anomaly(True)` says where it begins",
        "let the training stop at a loss that is no number: what it writes from then on is lost",
    ),
    "none": (
        "collect the logs of all ranks and, with TORCH_FR_BUFFER_SIZE=2000 and"
        " TORCH_NCCL_DUMP_ON_TIMEOUT=1, their flight"
        " records",
        "while it hangs: `py-spy dump --pid` of every rank",
    ),
}
_NEXT_OF_NOBODY: dict[str, tuple[str, ...]] = {  # the same where nobody is blamed
    "absent": (
        "collect the log of every rank and, while it hangs, `py-spy dump --pid` of every process: who stands elsewhere"
        " keeps the others",
        NEXT["absent"][1].replace("on the rank", "on one rank"),
    ),
    "host": (
        "take the stack of every rank: a lock, a file system, a socket, a subprocess; `py-spy dump --native`",
        NEXT["host"][1],
    ),
    "slow": ("look at the clocks, the temperatures and the neighbours of all GPUs; `meshwright report` of the traces",),
    "device_memory": (NEXT["device_memory"][0].replace(" of that rank", ""), NEXT["device_memory"][1]),
    "killed": (NEXT["killed"][0].replace("that host", "its host"),),
}
_NEXT_OF_TRANSFERS = (  # of a circle
    "let every other rank of the ring receive before it sends, or post both at once (batch_isend_irecv)",
    "look at what each rank does before this call: who must send first has taken the other branch",
)
_BY_KERNEL = (  # of a GPU's fault that a program's kernels bring about
    "look at the program's kernels first (custom ones, an index or a pointer out of range): one step under"
    " CUDA_LAUNCH_BLOCKING=1 and `compute-sanitizer`, or AMD_SERIALIZE_KERNEL=3 and `rocgdb`",
    "if it comes back on this GPU alone, whatever runs there: drain the node and run its vendor's diagnostics (NVIDIA:"
    " `dcgmi diag -r 3`, AMD: `rvs`)",
)
_OF_KERNELS = (OF_PROGRAM, "Memory access fault by GPU", "retry page fault")
_NO_FABRIC = (
    "on its host: `systemctl status nvidia-fabricmanager` (it must run, in the version of the driver), `nvidia-smi -q`"
    " (Fabric: State)",
    "then restart from the last checkpoint",
)
_AT_LIMIT = (
    "ask for more time, or end and save before the limit: the scheduler can send a signal first (SLURM: `--signal`)",
    "if no step was done for long before it: see who was waited for, by the logs and stacks of that time",
)
_BY_MONITOR = (
    "its monitor ended it, and who waits makes no progress either: take `py-spy dump --pid` of every rank before the"
    " limit, or flight records (TORCH_FR_BUFFER_SIZE=2000)",
    "if the step or the save was only long: raise the monitor's limit (`rank_heartbeat_timeout`)",
)
_OVER_SOCKETS = (  # of a connection that was not made or broke, which no InfiniBand carried
    "let NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME name the interface on which the hosts reach each other: not lo,"
    " and not a bridge of one host (docker0, virbr0)",
    "try that address and port from the other host (`nc -zv HOST PORT`); a firewall must pass all ports between hosts",
)
_BY_SOCKETS = ("connecting to ", "a socket broke", " cannot be reached: ")
_OF_A_PORT = " Gb/s, those of its name on other hosts"
_SYMPTOM = re.compile(r"unexpected pos \d+ vs \d+")  # of a file that could not be written whole
_LIMITS = ("time limit", "walltime", "RUNLIMIT")
# by kind (any where it is "") and words of the reason, the first that fits: what the kind's own steps would not mend
_BY_REASON: tuple[tuple[str, re.Pattern[str], tuple[str, ...]], ...] = (
    (
        "network",
        re.compile(r"^the name .* (?:is not known|has no address)"),
        (
            "look the name up on the host that asked (`getent hosts NAME`); on Kubernetes it needs a headless service"
            " whose selector fits, and a pod of that name that runs",
            "let MASTER_ADDR be a name or an address that every host knows",
        ),
    ),
    (  # NCCL's user guide, Troubleshooting, Docker: "--ulimit memlock=-1"
        "",
        re.compile(r"ibv_\w+ (?:failed|returned).{0,40}Cannot allocate memory|ibv_reg_mr.{0,60}\bENOMEM\b"),
        (
            "ask the job's own shell for `ulimit -l`: it must be unlimited (limits.conf; LimitMEMLOCK of slurmd or of"
            " the container runtime; docker: `--ulimit memlock=-1`)",
            "if it is: the memory of that host, and the queue pairs and regions that its adapter has left (`rdma res`)",
        ),
    ),
    (  # IBV_WC_LOC_PROT_ERR and IBV_WC_REM_ACCESS_ERR: buffers that no valid memory region holds
        "network",
        re.compile(r"completion with status (?:4|10) "),
        (
            "no cable does this: an adapter was given memory that is not registered for it. One run with"
            " NCCL_NET_GDR_LEVEL=LOC tells whether it is that of GPUs (GPUDirect RDMA)",
            "if it is: nvidia-peermem or DMA-BUF of that driver, ACS and IOMMU (`dmesg`); else NCCL's network plugin",
        ),
    ),
    (
        "exception",
        re.compile(rf"versions? of NCCL|{re.escape(UNLIKE_BOOTSTRAPS)}|Mismatched NCCL|has NCCL \d"),
        (
            "print it on every host, in the job's own environment: `python -c 'import torch;"
            " print(torch.__version__, torch.cuda.nccl.version())'`; NCCL_DEBUG=VERSION prints what is loaded",
            "start all ranks from one image, or one environment on a shared disk; look for an LD_PRELOAD of NCCL",
        ),
    ),
    (
        "exception",
        re.compile(r"(?i:address already in use)|EADDRINUSE"),
        (
            "see who holds the port on that host (`ss -ltnp`): a run that was not ended, or another job there",
            "choose another one (MASTER_PORT, `--rdzv-endpoint`); on one host `torchrun --standalone` finds a free one",
        ),
    ),
    (
        "data",
        re.compile(r"^a data loader's worker ended \(unexpectedly\)"),
        (
            "one run with num_workers=0 raises its error in the rank itself; the kernel's log says whether it was"
            " killed for memory",
            "leave native code of threads (OpenCV, tokenizers) to the workers: start them by spawn or forkserver",
        ),
    ),
    (
        "absent",
        re.compile(r"^pod \S+ has not started"),
        (
            "`kubectl describe pod POD` and `kubectl get events`: an image that is not there, no room, a volume",
            "let the scheduler start all pods of a job or none (Kueue, Volcano), so that none waits for another",
        ),
    ),
    (
        "absent",
        re.compile(r"torchrun's rendezvous"),
        (
            "see on which host torchrun did not start, or with other words: --rdzv-id, --rdzv-endpoint, --rdzv-backend"
            " and --nnodes must be the same on every host",
            "try the endpoint from each host (`nc -zv HOST PORT`); hosts that start later than the others need"
            " `--rdzv-conf join_timeout=SECONDS`",
        ),
    ),
    (
        "absent",
        re.compile(r"clients of the store|^the store at \S+ did not answer"),
        (
            "see which ranks did not start, by the launcher's log on every host; MASTER_ADDR, MASTER_PORT and"
            " WORLD_SIZE must be the same everywhere, and rank 0 must run on MASTER_ADDR",
            "try the store from each host (`nc -zv MASTER_ADDR MASTER_PORT`)",
        ),
    ),
    (
        "network",
        re.compile(re.escape(BY_LOOPBACK)),
        (
            "GLOO_SOCKET_IFNAME=eth0 (the interface by which the hosts reach each other; `ip -br addr`) on every host",
            "or let the host's name lead to that address: `getent hosts $(hostname)` must not say 127.0.0.1 or nothing",
        ),
    ),
    (
        "exception",
        re.compile(
            rf"^{re.escape(NOT_FINITE)}|[Ff]ound (?:NaN|Inf)\b"
            r"|\b(?i:loss|grad\w*)\b.{0,40}?\b(?i:nan|inf|not finite)\b"
        ),
        (
            "look at the last steps before it: loss, gradient norm, learning rate, loss scale; go back to a checkpoint"
            " before the rise with a lower learning rate, clipped gradients or other data",
            "one run under `torch.autograd.set_detect_anomaly(True)`, or with a check of each layer's output, says"
            " where the first value that is not finite comes from",
        ),
    ),
    (
        "host",
        re.compile(rf"{re.escape(A_DEBUGGER)}|debugger's prompt"),
        (
            "take the breakpoint out (`grep -rn 'breakpoint()\\|set_trace' .`); PYTHONBREAKPOINT=0 passes over"
            " breakpoint()",
            "to debug one rank of a job: torch.distributed.breakpoint(rank), under which the others wait",
        ),
    ),
    (
        "host",
        re.compile(r"\b(?:nfs: server|Lustre(?:Error)?: |ceph: |mmfs: |beegfs: )"),
        (
            "ask on that host whether the file system answers (`timeout 10 ls DIR`, `lfs check servers`, `nfsstat`,"
            " `dmesg -T`), and its servers why not",
            "write checkpoints in the background, or to local disks first: a server that stalls then holds up no step",
        ),
    ),
    (
        "device",
        re.compile(rf"^{OF_GAUDI}"),
        (
            "drain the node and run its vendor's diagnostics (`hl-smi`, `hl_qual`); reset or replace the card",
            "restart from the last checkpoint on another node",
        ),
    ),
    (  # torch.multiprocessing's documentation, "Sharing strategies"
        "",
        re.compile(r"Too many open files|items of ancdata"),
        (
            "ask the job's own shell for `ulimit -n`, and raise it (docker: `--ulimit nofile=65536`)",
            "of a loader: `torch.multiprocessing.set_sharing_strategy('file_system')`, fewer workers",
        ),
    ),
    (
        "exception",
        re.compile(r"can't start new thread|Resource temporarily unavailable"),
        (
            "ask for `ulimit -u` and for `pids.max` of the job's cgroup; raise them",
            "start fewer threads: OMP_NUM_THREADS, num_workers",
        ),
    ),
    (
        "exception",
        re.compile(r"No space left on device|Disk quota exceeded|unexpected pos \d+ vs \d+"),
        (
            "look at the disk that it writes to, on its host: `df -h`, `df -i` (files), `quota`",
            "keep fewer checkpoints, or write elsewhere; then restart from the last whole one",
        ),
    ),
    (
        "device_memory",
        re.compile(re.escape(HELD_BY_OTHERS)),
        (
            "see whose they are, on that host: `nvidia-smi`, `ps -o pid,ppid,user,lstart,cmd -p PID` (in a container"
            " the host's numbers may differ); end what an earlier job or another user left there",
            "a process of this job: let each take the GPU of its own LOCAL_RANK (`torch.cuda.set_device`)",
        ),
    ),
    (  # PyTorch's notes on CUDA, "Optimizing memory usage with PYTORCH_CUDA_ALLOC_CONF"
        "device_memory",
        re.compile(re.escape(FRAGMENTED)),
        (
            "let its segments grow in place of new ones: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
            " (PYTORCH_ALLOC_CONF since 2.9)",
            "keep the lengths of sequences within a few sizes (buckets, a maximum): each new one leaves pieces behind",
        ),
    ),
    (  # NCCL's user guide, Troubleshooting, Docker: "--shm-size=1g"
        "host_memory",
        re.compile(r"shared memory|/dev/shm"),
        (
            "give /dev/shm more room: docker `--shm-size`, Kubernetes an emptyDir of medium Memory there; see"
            " `df -h /dev/shm`",
            "start fewer loader workers, or prefetch less",
        ),
    ),
    (
        "exception",
        re.compile(r"device-side assert.*assertion `[^`]*(?:<|[Ii]nd(?:ex|ices)|[Ll]abel|[Cc]lass)"),
        (
            "an index is out of range: hold the largest token, label or position of the batch against the size of the"
            " table (vocab_size, num_classes, max_position_embeddings)",
            "one step under CUDA_LAUNCH_BLOCKING=1, or on the CPU, shows the call that did it",
        ),
    ),
    (
        "exception",
        re.compile(r"device-side assert"),
        (
            "look for the line with `Assertion` above it: most often an index (a token, a label) is out of range",
            "one step under CUDA_LAUNCH_BLOCKING=1 shows the call that did it",
        ),
    ),
    ("exception", re.compile(rf"illegal memory access|misaligned address|{OF_PROGRAM}"), _BY_KERNEL),
    (  # DistributedDataParallel's documentation, find_unused_parameters
        "exception",
        re.compile(re.escape(UNUSED_PARAMETERS)),
        (
            "use them in the loss of every step on every rank, or freeze them (requires_grad=False) before DDP wraps"
            " the model",
            "else DistributedDataParallel(..., find_unused_parameters=True); TORCH_DISTRIBUTED_DEBUG=DETAIL names them",
        ),
    ),
    (  # DeepSpeed, fairseq, Apex
        "exception",
        re.compile(r"[Ll]oss scale.{0,40}\bminimum\b|[Mm]inimum loss scale"),
        (
            "gradients overflowed in fp16 at every scale: train in bf16 where the GPUs have it, or see whether the loss"
            " had grown before (learning rate, warm-up, a bad batch)",
            "go back to a checkpoint from before the first of the skipped steps",
        ),
    ),
    (  # vLLM's documentation, "Conserving Memory"
        "exception",
        re.compile(r"No available memory for the cache blocks|KV cache is needed, which is larger than"),
        (
            "give the engine more of the GPU (gpu_memory_utilization), split its weights further"
            " (tensor_parallel_size), or let the trainer beside it offload first",
            "else a shorter max_model_len, or weights of fewer bits",
        ),
    ),
    (
        "killed",
        re.compile(re.escape(BY_REQUEST)),
        (
            "see who cancelled it: `sacct -j JOB -o JobID,State%30,Elapsed` (CANCELLED by UID), `getent passwd UID`",
            "if nobody says so: whether a dependency, a script or an administrator did, and whether it hung before",
        ),
    ),
    (
        "killed",
        re.compile(r"\(SIGHUP\)"),
        ("start it where no terminal belongs to it: sbatch, tmux, or `setsid torchrun ... </dev/null >log 2>&1 &`",),
    ),
    (
        "killed",
        re.compile(r"[Pp]reempt"),
        (
            "nothing to mend in the program: save when the signal comes (SLURM: `--signal=B:USR1@120`), and let the"
            " scheduler start it again (`--requeue`) from the last checkpoint",
            "a partition or priority that is not preempted, if one is to be had",
        ),
    ),
    (  # Kubernetes' documentation, "Node-pressure Eviction"
        "killed",
        re.compile(r"evicted the pod: node low on "),
        (
            "see what filled it: `kubectl describe pod POD` (Message), `kubectl describe node NODE` (Conditions); files"
            " of caches, of checkpoints and of logs count as ephemeral-storage",
            "ask for what it uses (resources.requests and limits of that resource), or write it to a volume",
        ),
    ),
    (
        "killed",
        re.compile(r"\bnode \S+ (?:failed|does not respond)"),
        (
            "look at that node: `scontrol show node NODE` (Reason), its kernel's log, its BMC (`ipmitool sel list`)",
            "restart from the last checkpoint without it (`--exclude=NODE`)",
        ),
    ),
    (
        "killed",
        re.compile(rf"^{re.escape(BY_ITSELF)}|segmentation fault"),
        (
            "take its stack: PYTHONFAULTHANDLER=1, or a core dump (`ulimit -c unlimited`, `coredumpctl gdb`)",
            "suspect extensions that were built for another version of torch, CUDA or the C library; then the host's"
            " memory",
        ),
    ),
    (
        "device",
        re.compile(r"^SXid "),
        (
            "drain the host: after a fatal fault of an NVSwitch all of its GPUs and NVSwitches are reset together, or"
            " it is restarted; see the journal of nvidia-fabricmanager",
            "restart from the last checkpoint on another host",
        ),
    ),
)


def says_how(kind: str, because: str) -> bool:
    """Return whether a reason of a fault tells what would mend it."""
    if _SYMPTOM.search(because):
        return False
    return any(of_kind in {"", kind} and words.search(because) for of_kind, words, _ in _BY_REASON)


def next_steps(kind: str, operation: str, because: str, *, blames: bool) -> tuple[str, ...]:
    """Return what to try next: of transfers, ports, sockets, monitors, limits and other reasons, or by the kind.

    With `blames` the verdict names a rank, at which somebody can look.
    """
    if kind == "circle" and operation in {"send", "recv"}:
        return _NEXT_OF_TRANSFERS
    if kind == "slow" and _OF_A_PORT in because:
        return NEXT["network"][:1]
    if kind == "network" and any(words in because for words in _BY_SOCKETS):
        return _OVER_SOCKETS
    if kind == "killed" and NO_PROGRESS in because:
        return _BY_MONITOR
    if kind == "killed" and any(limit in because for limit in _LIMITS):
        return _AT_LIMIT
    if kind == "device" and NO_FABRIC in because:
        return _NO_FABRIC
    if kind == "device" and any(words in because for words in _OF_KERNELS):
        return _BY_KERNEL
    for of_kind, words, steps in _BY_REASON:
        if of_kind in {"", kind} and words.search(because):
            return steps
    return NEXT[kind] if blames else _NEXT_OF_NOBODY.get(kind, NEXT[kind])
