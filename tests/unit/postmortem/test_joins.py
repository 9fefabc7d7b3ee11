"""Identities of ranks, and the one of all that did not come, by lines of NCCL, Ray, the store and the kernel."""

import pytest

from .made import judge, timed_out

XID = "NVRM: Xid (PCI:0000:4b:00): 79, pid=71, GPU has fallen off the bus."
LATE = "RuntimeError: Timed out after 1801 seconds waiting for clients."


def init(rank, size=16, place=None):
    """NCCL's line when a rank has joined a communicator, eight GPUs a host; `place` is its number in a smaller one."""
    gpu, number = rank % 8, rank if place is None else place
    return (
        f"n{rank // 8}:{5000 + gpu}:60 [{gpu}] NCCL INFO comm 0x5{rank} rank {number} nranks {size} cudaDev {gpu}"
        f" nvmlDev {gpu} busId {gpu + 1}b000 commId 0x5a{size}{rank // 8 if place is not None else ''} - Init COMPLETE"
    )


WORLD = [init(rank) for rank in range(16)]
SPLIT = [init(rank, 8, rank % 8) for rank in range(16)]
WAITS = [timed_out(rank, 5) for rank in range(16) if rank != 11]


@pytest.mark.parametrize(
    "kernel",
    [
        {"kern.log": [f"Nov 20 10:05:00 n1 kernel: {XID}"]},
        {"n1.dmesg-T.txt": [f"[Fri Nov 20 10:05:00 2026] {XID}"]},
        {"n1-dmesg.txt": [f"[Fri Nov 20 10:05:00 2026] {XID}"]},
        {"dmesg.txt": [f"[Fri Nov 20 10:05:00 2026] {XID}"]},
    ],
)
def test_a_gpu_is_that_of_the_rank_of_the_largest_communicator(kernel, tmp_path):
    verdict = judge(tmp_path, {"train.log": WORLD + SPLIT + WAITS, **kernel})

    assert (verdict.kind, verdict.rank, verdict.seq) == ("device", 11, 5)


def test_a_place_in_a_group_of_one_host_names_no_rank_of_the_job(tmp_path):
    waits = [timed_out(rank, 5) for rank in range(8, 16) if rank != 11]

    verdict = judge(tmp_path, {"train.log": SPLIT[8:] + waits, "n1.dmesg.txt": [f"[Fri Nov 20 10:05:00 2026] {XID}"]})

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("device", (), True)


def test_several_groups_of_the_largest_size_name_no_rank_of_the_job(tmp_path):
    verdict = judge(tmp_path, {"train.log": SPLIT, "n1.dmesg.txt": [f"[Fri Nov 20 10:05:00 2026] {XID}"]})

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("device", (), True)


def worker(pid, text, address=""):
    """A line of a worker of Ray inside an engine's."""
    where = f", ip={address}" if address else ""
    return f"(Engine_0 pid=70) (Wrapper pid={pid}{where}) {text}"


def assigned(rank, size=4):
    return (
        f"INFO 06-12 02:14:21 [state.py:10] rank {rank} in world size {size} is assigned as PP rank 0, TP rank {rank}"
    )


def killed(pid, address):
    return [
        "ERROR ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        f"Memory on the node (IP: {address}, ID: c1) where the task (actor ID: 8a, name=W.__init__, pid={pid}, memory"
        " used=17.22GB) was running was 23.50GB / 24.55GB, which exceeds the threshold of 0.95.",
    ]


def test_ray_kills_the_worker_that_said_which_rank_it_is(tmp_path):
    lines = [
        *(worker(pid, assigned(rank)) for rank, pid in ((0, 712), (1, 711))),
        *(worker(pid, assigned(rank), "10.8.0.12") for rank, pid in ((3, 331), (2, 332))),
        *killed(332, "10.8.0.12"),
    ]

    verdict = judge(tmp_path, lines)

    assert (verdict.kind, verdict.rank, verdict.unknown) == ("host_memory", 2, False)


def test_of_two_engines_that_both_count_from_0_no_worker_is_named(tmp_path):
    lines = [worker(pid, assigned(rank, 2)) for rank, pid in ((0, 712), (1, 711), (0, 714), (1, 713))]

    verdict = judge(tmp_path, [*lines, *killed(713, "10.8.0.12")])

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("host_memory", (), True)


def begins(rank):
    return f"{rank}: Initializing distributed: GLOBAL_RANK: {rank}, MEMBER: {rank + 1}/4"


LOADED = [f"{rank}: loaded cuda/12" for rank in range(4)]


def test_who_alone_does_not_say_that_it_joins_has_not_come_to_the_store(tmp_path):
    lines = [*LOADED, *map(begins, (3, 0, 1)), f"0: {LATE} 3/4 clients joined."]

    verdict = judge(tmp_path, lines)

    assert (verdict.kind, verdict.rank, verdict.waiting) == ("absent", 2, (0, 1, 3))


@pytest.mark.parametrize(("came", "joined"), [((0, 1), "2/4"), ((0, 1, 3), "2/4")])
def test_nobody_is_named_where_two_have_not_come_or_the_store_counts_otherwise(came, joined, tmp_path):
    lines = [*LOADED, *map(begins, came), f"0: {LATE} {joined} clients joined."]

    verdict = judge(tmp_path, lines)

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("absent", (), True)


def test_a_store_that_waited_for_clients_says_how_many_came(tmp_path):
    verdict = judge(tmp_path, [f"[rank0]: {LATE} 5/8 clients joined."])

    assert "5 of 8" in verdict.because


def test_who_came_to_another_barrier_of_the_store_has_not_come_to_this_one(tmp_path):
    added = "INFO:torch.distributed.distributed_c10d:Added key: store_based_barrier_key:{} to store for rank: {}"
    late = (
        "RuntimeError: Timed out initializing process group in store based barrier on rank: {}, for key:"
        " store_based_barrier_key:2 (world_size=4, worker_count=3, timeout=0:30:00)"
    )
    lines = [*(added.format(1, rank) for rank in range(4)), *(added.format(2, rank) for rank in (0, 1, 3))]

    verdict = judge(tmp_path, [*lines, *map(late.format, (0, 3))])

    assert (verdict.kind, verdict.rank, verdict.waiting) == ("absent", 2, (0, 1, 3))


STILL = (
    "I1120 07:{:02}:14.838260 1398639{} distributed_c10d.py:337] Waiting in store based barrier to initialize process"
    " group for rank: {}, key: store_based_barrier_key:{} (world_size=4, worker_count={}, timeout=0:30:00)"
)
PASSED = "INFO Rank 0: Completed store-based barrier for key:store_based_barrier_key:2 with 4 nodes."


def still(*ranks, count=3, key=2):
    """What ranks print again and again while they wait in a barrier of the store, at the end of their logs."""
    return [STILL.format(minute, rank, rank, key, count) for minute in (30, 32) for rank in ranks]


def test_who_is_not_in_a_barrier_of_the_store_in_which_the_others_still_wait_is_absent(tmp_path):
    verdict = judge(tmp_path, still(1, 2, 3))

    assert (verdict.kind, verdict.rank, verdict.waiting) == ("absent", 0, (1, 2, 3))


BARRIERS = {
    "passed": [*still(1, 2, 3), PASSED],
    "two have not come": still(1, 2, count=2),
    "one more has come than is heard": still(1, 2),
    "a store that an earlier run has left": still(1, 2, 3, count=7),
    "steps came after it": [*still(1, 2, 3), *(f"step {at} loss 1.0" for at in range(40))],
}


@pytest.mark.parametrize("lines", BARRIERS.values(), ids=BARRIERS)
def test_a_barrier_of_the_store_that_does_not_lack_one_rank_names_nobody(lines, tmp_path):
    assert judge(tmp_path, lines).blamed == ()


RAISED = (
    "{}: [rank{}]:[E ProcessGroupNCCL.cpp:523] [Rank {}] Collective WorkNCCL(SeqNum=77, OpType=_ALLGATHER_BASE,"
    " NumelIn=3, NumelOut=48, Timeout(ms)=1800000) raised the following async exception: NCCL error: remote process"
    " exited or there was a network error, NCCL version 2.20.5"
)
COMPLETION = (
    "n{0}: n{0}:55:56 [3] transport/net_ib.cc:12 NCCL WARN NET/IB : Got completion from peer 10.7.3.7<41> with"
    " status=12 opcode=0 len=0 vendor err 129 (Recv)"
)


def test_a_port_that_reports_its_own_fault_is_the_end_of_the_link_and_the_call_is_told(tmp_path):
    port = "n1: n1:61:62 [3] transport/net_ib.cc:96 NCCL WARN NET/IB : mlx5_3:1 Got async event : port error"
    lines = [port, COMPLETION.format(0), COMPLETION.format(2), RAISED.format("n0", 3, 3), RAISED.format("n2", 19, 19)]

    verdict = judge(tmp_path, lines)

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("network", (), False)
    assert (verdict.collective, verdict.seq) == ("all_gather", 77)


def test_of_two_ends_that_complain_of_each_other_none_is_told(tmp_path):
    verdict = judge(tmp_path, [COMPLETION.format(0), COMPLETION.format(2), RAISED.format("n0", 3, 3)])

    assert (verdict.kind, verdict.unknown) == ("network", True)


def test_memory_of_a_container_ran_out_for_the_rank_that_is_missing_there(tmp_path):
    killed_there = "Memory cgroup out of memory: Killed process 77123 (python) total-vm:9kB, anon-rss:1000000kB"
    kernel = [f"Nov 20 10:05:00 n1 kernel: {killed_there}, file-rss:0kB, oom_score_adj:0"]

    verdict = judge(tmp_path, {"train.log": WORLD + WAITS, "kern.log": kernel})

    assert (verdict.kind, verdict.rank) == ("host_memory", 11), str(verdict)


def test_a_program_says_which_gpu_its_rank_has(tmp_path):
    own = [f"[rank{rank}]: rank {rank} local_rank {rank} uses cuda:{rank} (0000:{rank + 1}b:00.0)" for rank in range(4)]
    kernel = [f"[Fri Nov 20 10:05:00 2026] {XID}"]

    verdict = judge(tmp_path, {"train.log": [*own, *(timed_out(rank, 5) for rank in range(4))], "dmesg.txt": kernel})

    assert (verdict.kind, verdict.rank) == ("device", 3), str(verdict)


def split_calls():
    """The calls of all ranks in the communicators of one host each; rank 13 makes one fewer."""
    return [
        f"n{rank // 8}:{5000 + rank % 8}:60 [{rank % 8}] NCCL INFO AllReduce: opCount {count:x} sendbuff 0x7 recvbuff"
        f" 0x7 count 5 datatype 7 op 0 root 0 comm 0x6{rank} [nranks=8] stream 0x5"
        for count in range(9)
        for rank in range(16)
        if (rank, count) != (13, 8)
    ]


OWN = [line.replace("comm 0x5", "comm 0x6") for line in SPLIT]


def test_calls_of_a_split_communicator_are_counted_by_ranks_of_the_job(tmp_path):
    verdict = judge(tmp_path, [*WORLD, *OWN, *split_calls()])

    assert (verdict.kind, verdict.rank, verdict.unknown) == ("absent", 13, False), str(verdict)


def test_places_of_a_split_communicator_alone_name_no_rank(tmp_path):
    verdict = judge(tmp_path, [*OWN, *split_calls()])

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("absent", (), True), str(verdict)


def in_towers(*calls):
    """Calls of two ranks, each on a host of its own, in two communicators of both; a call is rank, tower, count."""
    inits = [
        f"n{rank}:{600 + rank}:60 [0] NCCL INFO comm 0x{tower}{rank} rank {rank} nranks 2 cudaDev 0 nvmlDev 0"
        f" busId {rank + 1}a000 commId 0x9{tower} - Init COMPLETE"
        for tower in (1, 2)
        for rank in (0, 1)
    ]
    return inits + [
        f"n{rank}:{600 + rank}:60 [0] NCCL INFO AllReduce: opCount {count:x} sendbuff 0x7 recvbuff 0x7 count 5"
        f" datatype 7 op 0 root 0 comm 0x{tower}{rank} [nranks=2] stream 0x5"
        for rank, tower, count in calls
    ]


@pytest.mark.parametrize(
    ("calls", "kind"),
    [
        ([(0, 1, 0), (1, 2, 0)], "circle"),
        ([(0, 1, 0), (1, 1, 0), (0, 2, 0), (1, 2, 0), (1, 2, 1), (0, 1, 1)], "circle"),
        ([(0, 1, 0), (1, 2, 0), (1, 1, 0), (0, 2, 0)], "none"),
        ([(0, 1, 0), (0, 2, 0), (1, 2, 0)], "none"),
    ],
)
def test_ranks_whose_last_calls_are_in_communicators_in_which_the_other_has_made_none_wait_for_each_other(
    calls, kind, tmp_path
):
    verdict = judge(tmp_path, in_towers(*calls))

    assert (verdict.kind, verdict.blamed) == (kind, ()), str(verdict)


def test_a_gpu_that_hung_is_that_of_the_rank_of_the_process_in_another_line_of_that_gpu(tmp_path):
    kernel = [
        "[410.008812] i915 0000:4d:00.0: [drm] GT1: GUC: Engine reset request failed on ccs0 because 0x00000000",
        "[410.009114] i915 0000:4d:00.0: [drm] GPU HANG: ecode 12:10:85dcffff, in python [30119]",
    ]
    other = "[410.009114] i915 0000:3a:00.0: [drm] GPU HANG: ecode 12:10:85dcffff, in python [30118]"
    log = [f"[{rank}] rank {rank}/4 host n1 card {rank // 2} pid {30112 + rank}" for rank in range(8)]

    assert judge(tmp_path, {"dmesg.txt": kernel, "mpiexec.out": log}).blamed == (7,)
    assert judge(tmp_path, {"dmesg.txt": [kernel[0], other], "mpiexec.out": log}).blamed != (7,)


def test_numbers_that_torchrun_gives_to_the_ranks_of_a_host_do_not_make_its_gpus_ranks_of_the_job(tmp_path):
    head = "timestamp, index, clocks.current.sm [MHz], clocks_event_reasons.sw_thermal_slowdown"
    rows = [f"2025/05/16 11:00:00.10{gpu}, {gpu}, 1980 MHz, Not Active" for gpu in range(8)]
    rows[5] = "2025/05/16 11:00:00.105, 5, 1110 MHz, Active"
    log = ["[default0]:step 9 loss 2.0", "[default7]:step 9 loss 2.0"]

    assert judge(tmp_path, {"smi-node1.csv": [head, *rows], "train.log": log}).blamed == ()


JAX = {
    "MaxText": "Jax distributed system initialized! process_index: {}, process_count: 8",
    "Flax": "I1120 10:00:00.123456 77 train.py:56] JAX process: {} / 8",
    "a program": "jax.distributed.initialize(process_id={}, num_processes=8)",
}


@pytest.mark.parametrize("line", JAX.values(), ids=JAX)
def test_a_process_of_jax_says_whose_log_it_is(line, tmp_path):
    error = ["Traceback (most recent call last):", '  File "fit.py", line 3, in <module>', "OSError: disk full"]
    files = {f"pod-{name}.log": [line.format(rank), "step 3"] for name, rank in (("a", 0), ("b", 5))}
    files["pod-b.log"] += error

    verdict = judge(tmp_path, files)

    assert (verdict.kind, verdict.rank) == ("exception", 5)


def test_ranks_that_want_as_much_memory_have_one_fault_whatever_was_free(tmp_path):
    free = {0: "79.94", 1: "237.94", 2: "306.94", 3: "302.94"}
    error = (
        "[rank{0}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {1} MiB. GPU {0} has a total capacity"
        " of 79.11 GiB of which {2} MiB is free."
    )
    lines = [error.format(rank, 352 if rank < 4 else 99, free.get(rank, "8.10")) for rank in (*free, 4)]

    verdict = judge(tmp_path, ["world_size=8", *lines])

    assert (verdict.kind, verdict.blamed) == ("device_memory", (0, 1, 2, 3))


def clients(ranks, joined, size, host="bay-7"):
    """What the host of a store and the clients print that could not connect."""
    own = f"[rank0]: torch.distributed.DistStoreError: {LATE.partition(': ')[2]} {joined}/{size} clients joined."
    return [
        own,
        *(
            f"[rank{rank}]: torch.distributed.DistNetworkError: The client socket has timed out after 1800000ms while"
            f" trying to connect to ({host}, 29511)."
            for rank in ranks
        ),
    ]


KEPT_OFF = {
    "the few of many": (clients((4, 5), 6, 8), (4, 5)),
    "as many as joined": (clients((4, 5, 6, 7), 4, 8), ()),
    "some of whom the store lacks": (clients((5,), 6, 8), ()),
    "the store's own rank": (clients((0, 5), 6, 8), ()),
}


@pytest.mark.parametrize(("lines", "blamed"), KEPT_OFF.values(), ids=KEPT_OFF)
def test_the_few_ranks_that_alone_cannot_connect_to_a_store_that_most_joined_are_cut_off(lines, blamed, tmp_path):
    verdict = judge(tmp_path, lines)

    assert (verdict.kind, verdict.blamed) == ("network", blamed)


BEGUN = [f"initializing ddp: GLOBAL_RANK: {rank}, MEMBER: {rank + 1}/8" for rank in (1, 0, 3, 2)]


@pytest.mark.parametrize(
    "behind", ["And that is all, for 40 minutes.", "Nothing more happens.", "It hangs here forever."]
)
def test_ranks_that_alone_join_below_which_somebody_says_that_nothing_came_wait_for_the_others(behind, tmp_path):
    verdict = judge(tmp_path, {"post.md": ["It freezes at once:", "```", *BEGUN, "```", behind, "JOBID  ST  NODES"]})

    assert (verdict.kind, verdict.blamed, verdict.waiting) == ("absent", (), (0, 1, 2, 3))
    assert "ranks 4-7" in verdict.missing[0]


@pytest.mark.parametrize("behind", ["That is all that I changed.", "It works with one node.", "step 40 loss 2.1"])
def test_ranks_that_alone_join_in_a_log_that_nobody_calls_hung_show_no_fault(behind, tmp_path):
    assert judge(tmp_path, {"post.md": ["```", *BEGUN, "```", behind]}).kind == "none"


COUNTED = (
    "RuntimeError: Timed out initializing process group in store based barrier on rank: {}, for key:"
    " store_based_barrier_key:1 (world_size={}, {}={}, timeout=0:30:00)"
)


@pytest.mark.parametrize("name", ["worker_count", "num_workers_joined"])
def test_who_is_not_among_as_many_as_a_barrier_of_the_store_counted_did_not_come(name, tmp_path):
    counts = (2, 4, 4, 4)  # the first gave up before the others had come

    verdict = judge(
        tmp_path, [COUNTED.format(rank, 6, name, count) for rank, count in zip((0, 1, 3, 5), counts, strict=True)]
    )

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("absent", (2, 4), False)
    assert "4 of 6 came; ranks 2, 4 are the ones" in verdict.because


def test_of_a_barrier_to_which_more_came_than_are_heard_nobody_is_named(tmp_path):
    verdict = judge(tmp_path, [COUNTED.format(rank, 6, "worker_count", 4) for rank in (0, 1, 3)])

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("absent", (), True)


def test_a_barrier_that_counts_more_than_there_are_has_keys_of_an_earlier_run(tmp_path):
    verdict = judge(tmp_path, [COUNTED.format(rank, 6, "worker_count", 10) for rank in (0, 1, 3, 5)])

    assert verdict.blamed == ()
    assert "keys of an earlier run" in verdict.because
