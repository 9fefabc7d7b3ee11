"""Stacks of py-spy and faulthandler, and sums of kernels by nsys: the one that stands apart."""

import json

import pytest

from .made import DONE, answer, entry, joined, judge, record, timed_out, told

TORCH = "/opt/env/lib/python3.11/site-packages/torch"
REDUCE = [(f"{TORCH}/distributed/distributed_c10d.py", 3245, "all_reduce"), ("/job/train.py", 42, "step")]
BROADCAST = [(f"{TORCH}/distributed/distributed_c10d.py", 2900, "broadcast"), ("/job/train.py", 44, "step")]
SAVE = [(f"{TORCH}/serialization.py", 600, "write"), ("/job/train.py", 70, "save_checkpoint")]
LOADS = [
    ("/usr/lib/python3.11/threading.py", 331, "wait"),
    (f"{TORCH}/utils/data/dataloader.py", 1275, "_try_get_data"),
    ("/job/train.py", 88, "main"),
]
SYNCS = [(f"{TORCH}/cuda/__init__.py", 900, "synchronize"), ("/job/train.py", 50, "step")]
WORKS = [("/job/metrics.py", 7, "evaluate"), ("/job/train.py", 60, "main")]
ELSEWHERE = [("/job/metrics.py", 19, "evaluate"), ("/job/train.py", 60, "main")]
BACKGROUND = [
    ("/usr/lib/python3.11/threading.py", 331, "wait"),
    ("/usr/lib/python3.11/threading.py", 1002, "_bootstrap"),
]


def fault(*threads):
    """What faulthandler prints; the main thread comes last and ends in <module>."""
    text = "Timeout (0:05:00)!\n"
    for number, frames in enumerate(threads):
        text += f"Thread 0x00007f000000000{number} (most recent call first):\n"
        text += "".join(f'  File "{file}", line {line} in {name}\n' for file, line, name in frames) + "\n"
    return text


def main(frames):
    return fault(BACKGROUND, [*frames, ("/job/train.py", 99, "<module>")])


def spy(pid, frames, command="python train.py"):
    """What `py-spy dump` prints."""
    lines = [f"Process {pid}: {command}", "Python v3.11.9 (/opt/env/bin/python3.11)", ""]
    lines += [f'Thread {pid} (idle): "MainThread"', *(f"    {name} ({file}:{line})" for file, line, name in frames)]
    return [*lines, 'Thread 9 (idle): "pin"', "    wait (threading.py:331)", ""]


BARRIER = [(f"{TORCH}/distributed/distributed_c10d.py", 4100, "barrier"), ("/job/train.py", 91, "main")]
GATHERS = [("torch/distributed/distributed_c10d.py", 2709, "all_gather_into_tensor"), ("zero/stage3.py", 9, "fetch")]
PARTS = [("zero/stage3.py", 1500, "partition_grads"), ("zero/stage3.py", 1309, "reduce_grads")]


def backward(pid, frames):
    """What py-spy prints of a process whose main thread waits for autograd's own."""
    waits = [("torch/autograd/graph.py", 769, "_engine_run_backward"), ("torch/_tensor.py", 521, "backward")]
    lines = spy(pid, [*waits, ("train.py", 40, "step"), ("train.py", 99, "<module>")])
    return [*lines, "Thread 77 (active)", *(f"    {name} ({file}:{line})" for file, line, name in frames)]


IN_NCCL = [
    ("libc.so.6", 1, "__sched_yield"),
    ("libnccl.so.2", 1, "ncclProxyAppend(ncclComm*, ncclProxyOp*)"),
    ("libnccl.so.2", 1, "groupLaunch(ncclAsyncJob*)"),
    ("libnccl.so.2", 1, "ncclReduceScatter"),
    ("serve/own_nccl.py", 41, "sum_up"),
    ("serve.py", 12, "main"),
]
CASES = {
    "who is still on its device has not come to the barrier": (
        {f"rank{r}.txt": main(BARRIER if r else SYNCS) for r in range(4)},
        answer("absent", 0),
    ),
    "autograd's thread tells where a backward pass stands": (
        {f"rank{r}.txt": backward(500 + r, PARTS if r == 2 else GATHERS) for r in range(4)},
        answer("host", 2),
    ),
    "who writes a checkpoint while the others wait is in a host call": (
        {f"rank{r}.txt": main(SAVE if r == 1 else REDUCE) for r in range(4)},
        answer("host", 1),
    ),
    "who waits for its loader is late by its data": (
        {f"rank{r}.txt": main(LOADS if r == 2 else REDUCE) for r in range(4)},
        answer("data", 2),
    ),
    "who runs the program elsewhere is in a host call": (
        {f"rank{r}.txt": main(WORKS if r == 0 else REDUCE) for r in range(4)},
        answer("host", 0),
    ),
    "who waits for its loader while all others stand in one line of the program is late by its data": (
        {f"rank{r}.txt": main(LOADS if r == 2 else WORKS) for r in range(4)},
        answer("data", 2),
    ),
    "who stands in another line of the program than the others is ahead or behind": (
        {f"rank{r}.txt": main(ELSEWHERE if r == 2 else WORKS) for r in range(4)},
        answer("none", unknown=True),
    ),
    "two who compute do not show where the others wait": (
        {f"rank{r}.txt": main(LOADS if r == 2 else WORKS) for r in range(3)},
        answer("none", unknown=True),
    ),
    "all in one line of the program": (
        {f"rank{r}.txt": main(WORKS) for r in range(4)},
        answer("none", unknown=True),
    ),
    "all in one collective blame nobody": ({f"rank{r}.txt": main(REDUCE) for r in range(4)}, answer("stuck")),
    "who waits for its device waits like those in a collective": (
        {f"rank{r}.txt": main(SYNCS if r else REDUCE) for r in range(4)},
        answer("stuck"),
    ),
    "who is in another collective is named": (
        {f"rank{r}.txt": main(BROADCAST if r == 3 else REDUCE) for r in range(4)},
        answer("desync", 3),
    ),
    "two and two in different collectives name nobody": (
        {f"rank{r}.txt": main(BROADCAST if r > 1 else REDUCE) for r in range(4)},
        answer("desync", unknown=True),
    ),
    "all in their loaders wait for their data": (
        {f"rank{r}.txt": main(LOADS) for r in range(4)},
        answer("data"),
    ),
    "one file of py-spy may hold all ranks": (
        {
            "stacks.txt": [
                line
                for r in range(4)
                for line in spy(5000 + r, WORKS if r == 0 else REDUCE, f"python train.py --local_rank={r}")
            ]
        },
        answer("host", 0),
    ),
    "py-spy --native shows NCCL below Python": (
        {
            f"rank{r}.txt": spy(5000 + r, WORKS if r == 2 else [("libnccl.so.2", 1, "ncclAllReduce"), *REDUCE])
            for r in range(3)
        },
        answer("host", 2),
    ),
    "whose innermost functions are NCCL's own is in the collective that called them": (
        {f"rank{r}.txt": spy(5000 + r, IN_NCCL if r else BROADCAST) for r in range(2)},
        answer("desync", unknown=True),
    ),
    "files named after processes tell what, and not who": (
        {f"stack-{5000 + r}.txt": spy(5000 + r, LOADS if r == 2 else REDUCE) for r in range(4)},
        answer("data", unknown=True),
    ),
    "torchrun or NCCL says which rank a process is": (
        {
            **{f"stack-{5000 + r}.txt": spy(5000 + r, LOADS if r == 2 else REDUCE) for r in range(4)},
            "nccl.log": [joined(r, 4) for r in range(4)],
        },
        answer("data", 2),
    ),
    "one stack alone shows nothing": ({"rank0.txt": main(REDUCE)}, answer("none", unknown=True)),
    "a stack says what the rank does that the records miss": (
        {
            **{f"nccl_trace_rank_{r}": record([*DONE, entry(4, 5, "all_reduce", 9, 9, "started")]) for r in (0, 1, 3)},
            "nccl_trace_rank_2": record(DONE),
            "rank2.txt": main(LOADS),
        },
        answer("data", 2, 5),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_stacks_tell(name, tmp_path):
    files, wanted = CASES[name]

    assert told(judge(tmp_path, files), wanted) == wanted


def test_a_thread_of_autograd_that_python_calls_a_dummy_tells_the_call_of_its_rank(tmp_path):
    hooks = ["reduce_scatter_tensor (torch/distributed/distributed_c10d.py:4195)", "hook (train.py:7)"]
    backward = ["_engine_run_backward (torch/autograd/graph.py:829)", "fit (train.py:9)"]
    gather = ["all_gather (torch/distributed/distributed_c10d.py:3706)", "log (train.py:5)", "fit (train.py:8)"]

    def dumped(rank):
        threads = {"MainThread": gather} if rank == 2 else {"MainThread": backward, "Dummy-6": hooks}
        shown = [
            [f'Thread {at} (active): "{name}"', *(f"    {f}" for f in threads[name])] for at, name in enumerate(threads)
        ]
        return ["Process 7: python train.py", *(line for thread in shown for line in [*thread, ""])]

    verdict = judge(tmp_path, {f"rank{rank}.txt": dumped(rank) for rank in range(4)})

    assert (verdict.kind, verdict.rank) == ("desync", 2)


HEAD = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"


def kernels(nccl_ns, gemm_ns):
    rows = ((nccl_ns, 10, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(Args)"), (gemm_ns, 1000, "sm90_xmma_gemm_bf16"))
    return [HEAD, *(f'50.0,{total},{count},1.0,1.0,1,1,1.0,"{name}"' for total, count, name in rows)]


def test_the_rank_with_short_collectives_is_the_late_one(tmp_path):
    files = {f"rank{r}_cuda_gpu_kern_sum.csv": kernels(300_000 if r == 1 else 6_200_000, 4_000_000) for r in range(4)}

    verdict = judge(tmp_path, files)

    assert (verdict.kind, verdict.rank) == ("slow", 1)


def test_the_rank_that_computes_longer_by_what_the_others_wait_is_the_late_one(tmp_path):
    times_ns = {r: (9_000_000, 4_000_000) if r != 2 else (6_000_000, 6_900_000) for r in range(4)}

    verdict = judge(tmp_path, {f"rank{r}_cuda_gpu_kern_sum.csv": kernels(*times_ns[r]) for r in range(4)})

    assert (verdict.kind, verdict.rank) == ("slow", 2)


def test_a_rank_that_computes_longer_but_waits_as_long_as_the_others_is_not_late(tmp_path):
    times_ns = {r: (9_000_000, 4_000_000 if r != 2 else 6_900_000) for r in range(4)}

    verdict = judge(tmp_path, {f"rank{r}_cuda_gpu_kern_sum.csv": kernels(*times_ns[r]) for r in range(4)})

    assert verdict.kind == "none"


def test_ranks_with_collectives_of_one_length_are_alike(tmp_path):
    files = {f"rank{r}_cuda_gpu_kern_sum.csv": kernels(6_000_000 + 10 * r, 4_000_000) for r in range(4)}

    assert judge(tmp_path, files).kind == "none"


def test_the_table_of_nsys_reads_like_its_csv(tmp_path):
    def table(nccl_ns):
        rows = [(nccl_ns, 10, "ncclDevKernel_AllReduce_Sum_bf16"), (4_000_000, 1000, "sm90_gemm")]
        head = " Time (%)  Total Time (ns)  Instances  Avg (ns)  Med (ns)  Min (ns)  Max (ns)  StdDev (ns)  Name"
        shown = [f"     50.0  {total:,}  {count:,}  1.0  1.0  1  1  1.0  {name}" for total, count, name in rows]
        return [head, " --------  ---------------  ---------", *shown]

    verdict = judge(tmp_path, {f"rank{r}_kern_sum.txt": table(300_000 if r == 0 else 6_200_000) for r in range(3)})

    assert (verdict.kind, verdict.rank) == ("slow", 0)


@pytest.mark.parametrize(
    ("name", "spent_s", "kind"),
    [
        ("check_on_cpu", 26, "slow"),
        ("next_batch", 26, "data"),
        ("DataLoader.__next__", 26, "data"),
        ("offload_optimizer", 26, "slow"),
        ("next_batch", 9, "slow"),  # not what the others wait for
    ],
)
def test_nsys_prints_several_tables_of_which_the_one_of_kernels_and_the_ranges_of_the_program_count(
    name, spent_s, kind, tmp_path
):
    def report(nccl_ns, check_s):
        return [
            " ** CUDA API Summary (cuda_api_sum):",
            " Time (%)  Total Time (ns)  Num Calls  Avg (ns)  Name",
            "     99.0   90,000,000,000         10  9,000.0   cudaLaunchKernel",
            "",
            " ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):",
            " Time (%)  Total Time (ns)  Instances  Avg (ns)  Name",
            f"     60.0   {nccl_ns:,}  3,200  9.0  ncclDevKernel_AllReduce_Sum_bf16_RING_LL(Args)",
            "     40.0   20,000,000,000  96,000  210,000.0  sm90_gemm",
            "",
            " ** NVTX Range Summary (nvtx_sum):",
            " Time (%)  Total Time (ns)  Instances  Avg (ns)  Style  Range",
            f"     60.0   {10 + check_s}000000000  100  1.0  PushPop  :forward",
            *([f"     40.0   {check_s},000,000,000  100  1.0  PushPop  :{name}"] if check_s else []),
        ]

    files = {
        f"rank{r}.txt": report(3_000_000_000 if r == 1 else 28_000_000_000 + r, spent_s * (r == 1)) for r in range(4)
    }
    verdict = judge(tmp_path, files)

    assert (verdict.kind, verdict.rank, f"{spent_s} s in {name}" in verdict.because) == (kind, 1, True)


WAITS_FOR_OTHERS = {
    "item": ["item (torch/_tensor.py:1)", "clip (train.py:3)"],
    "own item": [
        "clip_grad_norm (megatron/core/optimizer/clip_grads.py:120)",
        "step (megatron/core/optimizer/optimizer.py:400)",
        "train_step (training.py:3)",
    ],
    "tolist": ["tolist (torch/_tensor.py:1000)", "log (train.py:8)"],
    "work.wait": ["wait (torch/distributed/distributed_c10d.py:400)", "main (train.py:3)"],
    "p2p": [
        "_communicate (megatron/core/pipeline_parallel/p2p_communication.py:300)",
        "recv_forward (megatron/core/pipeline_parallel/p2p_communication.py:400)",
        "forward_backward (schedules.py:3)",
    ],
    "deepspeed": [
        "all_reduce (deepspeed/comm/torch.py:150)",
        "wrapper (deepspeed/comm/comm.py:100)",
        "step (engine.py:3)",
    ],
    "event": ["synchronize (torch/cuda/streams.py:230)", "_prefetch (train.py:3)"],
    "backward": [
        "_engine_run_backward (torch/autograd/graph.py:769)",
        "backward (torch/_tensor.py:521)",
        "main (train.py:3)",
    ],
    "wait_tensor": ["wait_tensor (torch/distributed/_functional_collectives.py:120)", "main (train.py:3)"],
    "fsdp": [
        "wait_for_unshard (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py:300)",
        "pre_forward (torch/distributed/fsdp/_fully_shard/_fsdp_state.py:200)",
        "main (train.py:3)",
    ],
    "native": ["ncclAllReduce (libnccl.so.2)", "main (train.py:3)"],
    "nccl group": ["ncclGroupEnd (libnccl.so.2)", "main (train.py:3)"],
    "c10d in C++": ["sched_yield (libc.so.6)", "c10d::ProcessGroupXCCL::allreduce (libxpu.so)", "main (train.py:3)"],
    "a wait of c10d's": ["poll (libc.so.6)", "c10d::AsyncWork::wait (libtorch_cpu.so)", "main (train.py:3)"],
    "oneccl": ["ccl_executor::wait (libccl.so.1)", "ccl_coll_create (libccl.so.1)", "main (train.py:3)"],
    "mpi": [
        "poll (libc.so.6)",
        "opal_progress (libopen-pal.so)",
        "PMPI_Allreduce (libmpi.so.40)",
        "main (train.py:3)",
    ],
    "threads of autograd": [
        "wait (libc.so.6)",
        "torch::autograd::Engine::execute (libtorch_cpu.so)",
        "main (train.py:3)",
    ],
    "cuda": ["cuStreamSynchronize (libcuda.so.1)", "main (train.py:3)"],
    "cudaDeviceSynchronize": [
        "cudaDeviceSynchronize (libcudart.so.12)",
        "synchronize (torch/cuda/__init__.py:900)",
        "main (train.py:3)",
    ],
    "nonzero": ["nonzero (torch/functional.py:10)", "main (train.py:3)"],
    "gloo": ["allreduce (torch/distributed/distributed_c10d.py:2700)", "main (train.py:3)"],
    "store": [
        "get (torch/distributed/elastic/utils/store.py:30)",
        "barrier (torch/distributed/elastic/utils/store.py:200)",
        "main (train.py:3)",
    ],
    "a new group": [
        "_store_based_barrier (torch/distributed/distributed_c10d.py:339)",
        "new_group (torch/distributed/distributed_c10d.py:3544)",
        "main (train.py:3)",
    ],
    "the first group": [
        "_create_c10d_store (torch/distributed/rendezvous.py:189)",
        "_env_rendezvous_handler (torch/distributed/rendezvous.py:258)",
        "main (train.py:3)",
    ],
    "hccl": ["synchronize (torch_npu/npu/utils.py:40)", "main (train.py:3)"],
    "accelerate": ["wait_for_everyone (accelerate/state.py:400)", "main (train.py:3)"],
    "xm": ["mark_step (torch_xla/core/xla_model.py:1)", "main (train.py:3)"],
    "jax": ["block_until_ready (jax/_src/array.py:600)", "main (train.py:3)"],
    "jax barrier": ["wait_at_barrier (jax/_src/distributed.py:170)", "save (orbax.py:8)", "main (train.py:3)"],
    "jax sync": [
        "sync_global_devices (jax/experimental/multihost_utils.py:85)",
        "save (train.py:90)",
        "main (train.py:3)",
    ],
    "jax reads": ["_value (jax/_src/array.py:631)", "log (metrics.py:9)", "main (train.py:3)"],
}
STANDS_BY_ITSELF = {
    "dcp": (
        "host",
        [
            "write_data (torch/distributed/checkpoint/filesystem.py:500)",
            "save (torch/distributed/checkpoint/state_dict_saver.py:160)",
            "main (train.py:3)",
        ],
    ),
    "inductor": (
        "host",
        [
            "compile_fx (torch/_inductor/compile_fx.py:900)",
            "_compile (torch/_dynamo/convert_frame.py:700)",
            "main (train.py:3)",
        ],
    ),
    "neuron": (
        "host",
        [
            "wait_for_lock (libneuronxla/neuron_cc_cache.py:171)",
            "neuron_xla_compile (libneuronxla/neuron_cc_wrapper.py:301)",
            "mark_step (torch_xla/core/xla_model.py:962)",
            "main (train.py:3)",
        ],
    ),
    "compiled autograd": (
        "host",
        [
            "wait (concurrent/futures/_base.py:451)",
            "_compile_to_module (torch/_inductor/graph.py:2100)",
            "_engine_run_backward (torch/autograd/graph.py:769)",
            "main (train.py:3)",
        ],
    ),
    "filelock": ("host", ["acquire (filelock/_api.py:300)", "download (hub.py:3)", "main (train.py:3)"]),
    "sleep": ("host", ["sleep (time.py:1)", "retry (util.py:3)", "main (train.py:3)"]),
    "pdb": ("host", ["interaction (pdb.py:350)", "main (train.py:3)"]),
    "wandb": (
        "host",
        ["recv (wandb/sdk/lib/sock_client.py:200)", "log (wandb/sdk/wandb_run.py:1700)", "main (train.py:3)"],
    ),
    "datasets": ("data", ["map (datasets/arrow_dataset.py:3000)", "prepare (train.py:3)"]),
    "webdataset": ("data", ["group_by_keys (webdataset/tariterators.py:200)", "main (train.py:3)"]),
    "megatron": (
        "data",
        [
            "__getitem__ (megatron/core/datasets/gpt_dataset.py:100)",
            "_next_data (torch/utils/data/dataloader.py:600)",
            "main (train.py:3)",
        ],
    ),
    "streaming": ("data", ["prepare_shard (streaming/base/dataset.py:1000)", "main (train.py:3)"]),
    "fairseq": (
        "data",
        ["get (queue.py:170)", "__next__ (fairseq/data/iterators.py:648)", "train (fairseq_cli/train.py:274)"],
    ),
    "program": ("host", ["evaluate (metrics.py:7)", "main (train.py:60)"]),
}


def three_reduce_and_one(frames):
    """Dumps of four ranks: three in an all-reduce, rank 2 in other frames, innermost first."""
    reduces = ["all_reduce (torch/distributed/distributed_c10d.py:2895)", "main (train.py:9)"]
    files = {}
    for rank in range(4):
        lines = [f"Process {6473 + rank}: python train.py", "Python v3.11.2 (/opt/env/bin/python3.11)", ""]
        lines += [f'Thread {6473 + rank} (idle): "MainThread"']
        files[f"rank{rank}.txt"] = lines + [f"    {frame}" for frame in (frames if rank == 2 else reduces)]
    return files


@pytest.mark.parametrize("name", WAITS_FOR_OTHERS)
def test_who_waits_for_its_device_or_for_others_is_not_to_blame(name, tmp_path):
    verdict = judge(tmp_path, three_reduce_and_one(WAITS_FOR_OTHERS[name]))

    assert verdict.blamed == (), str(verdict)


@pytest.mark.parametrize("name", STANDS_BY_ITSELF)
def test_who_stands_in_its_data_or_in_a_call_of_its_host_is_named(name, tmp_path):
    kind, frames = STANDS_BY_ITSELF[name]
    verdict = judge(tmp_path, three_reduce_and_one(frames))

    assert (verdict.kind, verdict.rank) == (kind, 2), str(verdict)


@pytest.mark.parametrize("folder", ["rank{}", "rank_{}", "global-rank{}"])
def test_a_folder_for_each_rank_says_whose_stack_it_is(folder, tmp_path):
    reads = [("/usr/lib/python3.11/ssl.py", 1130, "read"), ("/job/dataset.py", 31, "__getitem__")]
    files = {
        f"{folder.format(rank)}/stderr.txt": [fault(BACKGROUND, reads if rank == 1 else REDUCE)] for rank in range(3)
    }

    verdict = judge(tmp_path, files)

    assert (verdict.kind, verdict.rank, verdict.unknown) == ("data", 1, False)


OLD_BACKWARD = [(f"{TORCH}/autograd/__init__.py", 251, "backward"), (f"{TORCH}/_tensor.py", 492, "backward")]
LABELS = {
    "srun": " {}: {}",
    "torch": "[rank{}]: {}",
    "torchrun": "[default{}]:{}",
    "MPI": "[1,{}]<stderr>:{}",
    "kubectl": "[pod/job-{}/main] 2026-01-01T10:00:00.000000001Z {}",
    "Ray": "(TrainWorker pid=90{}) {}",
}


def between(label, stacks):
    """Lines of several ranks' stacks, each rank's next line in turn, with a launcher's label."""
    rows = [stack.splitlines() for stack in stacks]
    return [
        label.format(rank, row[at])
        for at in range(max(map(len, rows)))
        for rank, row in enumerate(rows)
        if at < len(row)
    ]


@pytest.mark.parametrize("name", LABELS)
def test_stacks_that_ranks_write_between_each_other_are_each_read(name, tmp_path):
    label = LABELS[name]
    begins = [label.format(rank, f"[rank={rank}, world_size=4]") for rank in range(4)]
    stacks = [main(LOADS if rank == 2 else OLD_BACKWARD) for rank in range(4)]

    verdict = judge(tmp_path, [*begins, *between(label, stacks)])

    assert (verdict.kind, verdict.rank, verdict.unknown) == ("data", 2, False), str(verdict)


@pytest.mark.parametrize("name", ["kubectl", "Ray"])
def test_a_process_of_which_nobody_says_the_rank_is_told_without_one(name, tmp_path):
    stacks = [main(LOADS if rank == 2 else OLD_BACKWARD) for rank in range(4)]

    verdict = judge(tmp_path, between(LABELS[name], stacks))

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("data", (), True), str(verdict)


def test_the_stack_that_stands_apart_is_told_in_the_call_of_the_time_outs(tmp_path):
    files = {f"stacks/rank{rank}.txt": [main(LOADS if rank == 2 else OLD_BACKWARD)] for rank in (0, 1, 2, 3)}
    files["console.log"] = [timed_out(rank, 77) for rank in (0, 1, 6)]  # of 3, 4 and 5 nothing

    verdict = judge(tmp_path, files)

    assert (verdict.kind, verdict.rank, verdict.collective, verdict.seq) == ("data", 2, "all_reduce", 77)


def test_a_barrier_on_the_stacks_is_the_all_reduce_of_the_time_outs(tmp_path):
    files = {f"rank{rank}.txt": spy(200 + rank, SAVE if rank == 2 else BARRIER) for rank in (2, 3)}
    files["console.log"] = [timed_out(rank, 77) for rank in (0, 1)]

    verdict = judge(tmp_path, files)

    assert (verdict.kind, verdict.rank, verdict.seq) == ("host", 2, 77), str(verdict)


def test_who_printed_a_time_out_itself_is_not_named_for_its_stack(tmp_path):
    files = {f"stacks/rank{rank}.txt": [main(LOADS if rank == 1 else OLD_BACKWARD)] for rank in (0, 1, 2, 3)}
    files["console.log"] = [timed_out(rank, 77) for rank in (0, 1, 6)]

    assert judge(tmp_path, files).blamed == ()


AGENT = [("torch/distributed/elastic/agent/server/api.py", 870, "_invoke_run"), ("torchrun", 8, "<module>")]
LOADER = [("multiprocessing/queues.py", 113, "get"), ("torch/utils/data/_utils/worker.py", 308, "_worker_loop")]


def test_a_launcher_and_the_workers_of_a_loader_are_no_ranks(tmp_path):
    dump = [*spy(90, AGENT, "torchrun"), *spy(310, LOADER, "python train.py --local-rank=3")]
    for rank in range(4):
        dump += spy(200 + rank, SAVE if rank == 1 else BARRIER, f"python train.py --local-rank={rank}")

    verdict = judge(tmp_path, {"dump.txt": dump})

    assert (verdict.kind, verdict.rank) == ("host", 1), str(verdict)


def in_json(pid, frames):
    """What `py-spy dump --json` prints."""
    told = [{"name": name, "filename": file, "short_filename": file, "line": line} for file, line, name in frames]
    return json.dumps([{"pid": pid, "thread_id": 1, "thread_name": "MainThread", "active": True, "frames": told}])


def by_pystack(pid, frames):
    """What `pystack remote` prints: the innermost function last, with its line of code."""
    lines = [f"Traceback for thread {pid} (python) [] (most recent call last):"]
    for file, line, name in reversed(frames):
        lines += [f'    (Python) File "{file}", line {line}, in {name}', "        step()"]
    return lines


@pytest.mark.parametrize("dumped", [lambda *of: [in_json(*of)], by_pystack])
def test_dumps_in_other_forms_are_read(dumped, tmp_path):
    files = {f"rank{rank}.txt": dumped(200 + rank, LOADS if rank == 1 else OLD_BACKWARD) for rank in range(4)}

    verdict = judge(tmp_path, files)

    assert (verdict.kind, verdict.rank, verdict.unknown) == ("data", 1, False), str(verdict)


def test_a_dump_in_json_that_is_cut_off_says_nothing(tmp_path):
    files = {f"rank{rank}.json": [in_json(200 + rank, BARRIER)[:-9]] for rank in range(4)}

    assert judge(tmp_path, files).blamed == ()


HUNG = "Mar 12 07:00:40 n1 kernel: INFO: task python3:201 blocked for more than 120 seconds."
SERVER = "Mar 12 06:58:03 n1 kernel: nfs: server nas2 not responding, still trying"


@pytest.mark.parametrize("kernel", [[SERVER, HUNG], [SERVER], [HUNG]])
def test_the_rank_that_stands_in_a_dead_file_system_is_joined_by_its_process_or_its_stack(kernel, tmp_path):
    files = {f"rank{rank}.pyspy": spy(200 + rank, SAVE if rank == 1 else BARRIER) for rank in (0, 1, 2, 5)}

    verdict = judge(tmp_path, {**files, "kern.log": kernel})

    assert (verdict.kind, verdict.rank, verdict.unknown) == ("host", 1, False), str(verdict)


def test_a_function_that_torchs_launcher_runs_in_a_process_of_its_own_is_a_rank(tmp_path):
    wrapped = ("torch/distributed/elastic/multiprocessing/api.py", 805, "_wrap")
    asks = [("threading.py", 331, "wait"), ("tracker/mailbox.py", 126, "get"), ("work.py", 4, "start"), wrapped]
    stacks = [f"== RANK={rank} LOCAL_RANK={rank} ==" for rank in range(4)]
    dumped = [
        line for rank in range(4) for line in (stacks[rank], *spy(9 + rank, [*BARRIER, wrapped] if rank else asks))
    ]

    verdict = judge(tmp_path, {"all.txt": dumped})

    assert (verdict.kind, verdict.blamed) == ("host", (0,))


ONE_LINE = [("engine/attention/common.py", 212, "parts_ag_out"), ("engine/worker.py", 90, "busy_loop")]


@pytest.mark.parametrize(
    ("last", "kind"), [(ONE_LINE, "stuck"), ([("engine/attention/common.py", 15, "scores"), *ONE_LINE[1:]], "none")]
)
def test_all_processes_in_one_line_wait_there_and_in_several_nobody_knows(last, kind, tmp_path):
    files = {f"rank{rank}.txt": spy(9 + rank, last if rank == 2 else ONE_LINE) for rank in range(3)}
    there = [(f"/opt/env/lib/{file}", line, name) for file, line, name in ONE_LINE]
    verdict = judge(tmp_path, {**files, "rank3.txt": fault(there)})

    assert (verdict.kind, verdict.blamed) == (kind, ())
