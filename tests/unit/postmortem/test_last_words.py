"""Faults that other lines explain: the last words of a rank, a full disk, the many and the few."""

import pytest

from .made import WORLD, answer, failed_at, joined, judge, raised, signalled, timed_out, told

OTHERS = [timed_out(rank, 9) for rank in (0, 1, 3)]
READING = [
    "datasets.utils.file_utils - WARNING - Got disconnected from remote data host. Retrying in 5sec [3/20]",
    "'(ReadTimeoutError(\"Read timed out.\"))' thrown while requesting GET https://hub/datasets/x/data/0041.parquet",
    "INFO building the shuffled index of the dataset, 41 of 700 blocks",
    "Retrying (Retry(total=2)) after connection broken by 'ReadTimeoutError(\"Read timed out.\")': /laion/0261.tar",
    'WARNING s3 retry 2: Read timeout on endpoint URL: "https://store.example/mix/part-7.parquet"',
    "reading shard s3://bucket/train-00041.tar (attempt 4, timeout)",
    "dataloader: worker queue empty, waiting",
    "Interleaving 12 datasets",
    "mixture: 31 % (620 of 2000 documents)",
]


@pytest.mark.parametrize("words", READING)
def test_a_missing_rank_whose_last_words_are_of_its_data_reads_them(words, tmp_path):
    wanted = answer("data", 2, 9)
    assert told(judge(tmp_path, ["[rank2]: step 7 loss 2.0", f"[rank2]: {words}", *OTHERS]), wanted) == wanted


WAITING = [
    "WARNING feeder iter=8 has waited 488.1 s for the next batch (queue 0/32)",
    "step 8: still waiting for a batch (410s)",
    "blocked on the dataloader for 7 min at step 8",
    "step 8 no sample from the readers for 300 seconds",
    "iter 8: next batch not there after 95 s",
]


@pytest.mark.parametrize("words", WAITING)
def test_a_word_on_a_long_wait_for_data_is_no_step_though_it_bears_the_step_s_number(words, tmp_path):
    wanted = answer("data", 2, 9)
    lines = ["[rank2]: Retrying s3://mix/part-7.tar, timeout", f"[rank2]: {words}"]
    assert told(judge(tmp_path, ["[rank2]: step 7 loss 2.0", *lines, *OTHERS]), wanted) == wanted


def test_a_step_that_says_how_little_it_waited_for_data_is_a_step(tmp_path):
    wanted = answer("absent", 2, 9)
    lines = ["[rank2]: step 8: waited 0.02s for data, elapsed 80 min, loss 2.0"]
    assert told(judge(tmp_path, [*lines, *OTHERS]), wanted) == wanted


def test_progress_in_a_program_s_own_words_does_not_hide_what_it_is_of(tmp_path):
    lines = ["Tokenizing the corpus of the second stage", *(f" > {percent}% done" for percent in range(5, 60, 5))]
    wanted = answer("data", 2, 9)
    assert told(judge(tmp_path, [*(f"[rank2]: {line}" for line in lines), *OTHERS]), wanted) == wanted


NOT_READING = [
    "loaded 12 of 12 shards",
    "saved 3 of 16 files of the checkpoint",
    "Retrying (Retry(total=2)) after connection broken by 'ReadTimeoutError(\"Read timed out.\")': /ckpt/0261.tar",
    "3 of 16 documents were of rank 7's step 4",
]


@pytest.mark.parametrize("words", NOT_READING)
def test_a_count_that_is_full_or_of_a_checkpoint_is_no_reading(words, tmp_path):
    wanted = answer("absent", 2, 9)
    assert told(judge(tmp_path, [f"[rank2]: {words}", *OTHERS]), wanted) == wanted


@pytest.mark.parametrize("words", READING)
def test_a_rank_that_stepped_on_after_it_read_does_not_read(words, tmp_path):
    wanted = answer("absent", 2, 9)
    assert told(judge(tmp_path, [f"[rank2]: {words}", "[rank2]: step 7 loss 2.0", *OTHERS]), wanted) == wanted


def test_a_rank_that_waits_is_not_blamed_for_what_it_read(tmp_path):
    lines = [f"[rank1]: {READING[0]}", *OTHERS]
    wanted = answer("absent", 2, 9)
    assert told(judge(tmp_path, lines), wanted) == wanted


def no_space(frames, error="OSError: [Errno 28] No space left on device"):
    return [f"[rank0]: {line}" for line in ("Traceback (most recent call last):", *frames, error)]


SAVES = ['  File "/opt/torch/serialization.py", line 850, in save', "    _save(obj, opened_zipfile)"]
SHARES = ['  File "/opt/multiprocessing/synchronize.py", line 57, in __init__', "    sl = self._semlock = SemLock()"]


def test_a_disk_that_is_full_is_no_shared_memory(tmp_path):
    wanted = answer("exception", 0, 9)
    assert told(judge(tmp_path, [*no_space(SAVES), timed_out(1, 9), timed_out(2, 9)]), wanted) == wanted


@pytest.mark.parametrize("frames", [[], ['  File "/srv/index.py", line 9, in build_index']], ids=["none", "its own"])
def test_no_space_where_nothing_is_shared_with_other_processes_is_a_disk(frames, tmp_path):
    wanted = answer("exception", 0, 9)
    assert told(judge(tmp_path, [*no_space(frames), timed_out(1, 9), timed_out(2, 9)]), wanted) == wanted


def test_a_semaphore_without_space_is_shared_memory(tmp_path):
    wanted = answer("host_memory", 0, 9)
    assert told(judge(tmp_path, [*no_space(SHARES), timed_out(1, 9), timed_out(2, 9)]), wanted) == wanted


def test_rccl_says_that_memory_of_its_gpu_ran_out(tmp_path):
    lines = ["[rank2]:mi-1:510:777 [2] /src/rccl/src/include/alloc.h:151 NCCL WARN HIP failure: 'out of memory'"]
    wanted = answer("device_memory", 2)
    assert told(judge(tmp_path, lines), wanted) == wanted


def test_oneccl_loses_a_peer(tmp_path):
    line = "2025:11:20-10:20:00:(41) |CCL_ERROR| atl_ofi.cpp:12 atl_ofi_wait: fi_cq_readerr: Connection reset by peer"
    assert told(judge(tmp_path, [line]), wanted := answer("network", unknown=True)) == wanted


def test_one_that_is_ahead_of_all_others_blames_none_of_them(tmp_path):
    waits = [timed_out(0, 101), failed_at(0, WORLD, 101, 101, 100)]
    verdict = judge(tmp_path, [*waits, *(signalled(rank, WORLD, 100, 100, by=0) for rank in (1, 2, 3))])
    assert (verdict.blamed, verdict.unknown) == ((), True)


def test_more_than_half_that_say_that_they_stopped_before_the_call_of_the_others_are_who_is_missing(tmp_path):
    waits = [line for rank in (0, 1) for line in (timed_out(rank, 101), failed_at(rank, WORLD, 101, 103, 100))]
    verdict = judge(tmp_path, [*waits, *(signalled(rank, WORLD, 100, 100, by=0) for rank in (2, 3, 4))])
    assert (verdict.kind, verdict.blamed, verdict.seq) == ("absent", (2, 3, 4), 101)


def test_a_heartbeat_that_was_wrapped_is_whole_again(tmp_path):
    text = (
        "[rank6]:[E429 13:55:49.3 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) Rank 6] ProcessGroupNCCL's"
        " watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives. This typically"
        " indicates a NCCL/CUDA API (e.g., CudaEventDestroy) hang blocking the watchdog"
    )
    lines = [text[at : at + 115] for at in range(0, len(text), 115)]
    assert "watchdog got stuck" not in "".join(f"{line}\n" for line in lines)
    assert told(judge(tmp_path, lines), wanted := answer("host", unknown=True)) == wanted


@pytest.mark.parametrize("status", ["status=12 opcode=1 len=0 vendor err 129", "status=IBV_WC_RETRY_EXC_ERR(12)"])
def test_nccl_of_any_age_says_that_a_link_no_longer_acknowledges(status, tmp_path):
    line = (
        f"gpu-1:4103:4303 [3] NCCL WARN NET/IB: Got completion from peer 10.0.0.9<55921> with {status} vendor_err=129"
    )
    verdict = judge(tmp_path, [line, *OTHERS, timed_out(2, 9)])
    assert (verdict.kind, verdict.blamed) == ("network", ())
    assert "retries exhausted" in verdict.because


def test_a_mesh_of_gloo_that_does_not_connect_is_a_network(tmp_path):
    line = "[rank0]: RuntimeError: Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:144] no error"
    assert told(judge(tmp_path, [line]), wanted := answer("network", unknown=True)) == wanted


def test_a_pair_of_which_one_spoke_is_not_all_in(tmp_path):
    lines = [
        timed_out(4, 900, "_ALLGATHER_BASE", 1024, 2048, place=0),
        failed_at(4, "PG ID 2 PG GUID 9(tp)", 900, 900, 899),
    ]
    for rank in (0, 1, 2, 3, 6, 7):
        group = f"PG ID 1 PG GUID {3 + rank % 2}(dp)"
        lines += [timed_out(rank, 120, "_REDUCE_SCATTER_BASE", 4096, 1024, place=rank // 2)]
        lines += [failed_at(rank, group, 120, 121, 119, place=rank // 2)]
    verdict = judge(tmp_path, ["world_size=8", *lines])
    assert (verdict.kind, verdict.blamed) == ("absent", (5,))


def test_a_fault_of_a_host_without_ranks_is_none_of_the_job(tmp_path):
    xid = "[Thu Nov 20 10:09:00 2025] NVRM: Xid (PCI:0000:1b:00): 13, pid=991, name=python3, Graphics SM Warp Exception"
    files = {"train.log": [*(joined(rank, 4) for rank in range(4)), *raised(1, "IndexError: none"), *OTHERS[::2]]}
    wanted = answer("exception", 1, 9)
    assert told(judge(tmp_path, {**files, "node-z.dmesg": [xid]}), wanted) == wanted


def test_places_in_the_group_of_all_of_hccl_are_ranks(tmp_path):
    lines = []
    for rank in (0, 1, 2):
        lines += [f"[ERROR] 2025-10-11-15:09:30 (PID:29, Device:{rank}, RankID:{rank}) ERR02200 DIST call hccl failed."]
        lines += [
            "EI0002: [PID: 29] The wait execution of the Notify register times out. Reason: The Notify register has not"
            " received the Notify record from remote rank: [3]. group information: [group:[hccl_world_group], user"
            f" define information[Unspecified], rankSize[4], rankId[{rank}]]"
        ]
    wanted = answer("absent", 3)
    assert told(judge(tmp_path, lines), wanted) == wanted


DEEPEP = "DeepEP timeout check failed: rank = {}, thread = {}, value = {})"


def test_deepep_says_whose_signal_has_not_come(tmp_path):
    lines = [DEEPEP.format(rank, other, 1024 if other == 5 else 0) for rank in (6, 2) for other in range(8)]
    wanted = answer("absent", 5)
    assert told(judge(tmp_path, lines), wanted) == wanted


LAUNCH = "RuntimeError: Failed: CUDA error /opt/DeepEP/csrc/kernels/internode.cu:77 'unspecified launch failure'"


def test_the_launch_failure_of_a_kernel_of_deepep_that_gave_up_is_no_fault_of_its_rank(tmp_path):
    came = [rank for rank in range(8) if rank != 4]
    lines = [DEEPEP.format(rank, other, 1024 if other == 4 else 0) for rank in came for other in range(8)]
    wanted = answer("absent", 4)
    assert told(judge(tmp_path, [*lines, *(line for rank in came for line in raised(rank, LAUNCH))]), wanted) == wanted


@pytest.mark.parametrize(
    ("before", "missing"),
    [
        (["[rank12]: step 4 loss 2.0"], {5}),  # several hosts
        (["  rank      : 14 (local_rank: 6)"], {5}),  # a later host
        ([], {0, 1, 3, 4, 5}),  # of whom more are said to be missing than wait
    ],
)
@pytest.mark.parametrize("error", [LAUNCH, "torch.AcceleratorError: CUDA error: unspecified launch failure"])
def test_deepep_names_nobody_where_its_numbers_may_be_of_others(before, missing, error, tmp_path):
    lines = [DEEPEP.format(rank, other, 1024 * (other in missing)) for rank in (6, 2) for other in range(8)]
    assert not judge(tmp_path, [*before, *lines, *raised(6, error), *raised(2, error)]).blamed


def test_hccls_heartbeat_says_whose_process_is_gone(tmp_path):
    line = (
        "EI0002: [PID: 72] 2024-11-28-11:59:30.6 The wait execution of the Notify register times out. Reason: The"
        " Notify register has not received the Notify record from remote rank [unknown].base information: [tag[Sum]]"
        " there are(is) 1 abnormal device(s): Cluster Exception Location[IP/ID]:[10.0.0.24/1], Arrival Time:[Thu Nov 28"
        " 11:56:34 2024], Discoverer:[10.0.0.24/0], ExceptionType:[Heartbeat Lost Occurred], Possible Reason:1. Process"
        " has exited, 2. Network Disconnected"
    )
    speaker = "[ERROR] 2024-11-28-11:59:30 (PID:7{0}, Device:{0}, RankID:{0}) ERR02200 DIST call hccl api failed."
    lines = [row for rank in (0, 2, 3) for row in (speaker.format(rank), line)]
    wanted = answer("killed", 1)
    assert told(judge(tmp_path, lines), wanted) == wanted


@pytest.mark.parametrize(
    "form",
    [
        "[rank{0}]: RuntimeError: [Rank {0}] Caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE,"
        " Timeout(ms)=1800000) ran for 1800474 milliseconds before timing out.",
        "[rank{0}]:[E1120 10:20:00.1 ProcessGroupNCCL.cpp:815] Work WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1,"
        " NumelOut=1, Timeout(ms)=60000) timed out in blocking wait.",
    ],
    ids=["1.x", "blocking wait"],
)
def test_a_time_out_is_read_however_it_was_found(form, tmp_path):
    wanted = answer("absent", 2, 9)
    assert told(judge(tmp_path, [form.format(rank) for rank in (0, 1, 3)]), wanted) == wanted


@pytest.mark.parametrize("operation", ["SEND", "RECV"])
def test_a_ring_in_which_nobody_meets_anybody_is_a_circle(operation, tmp_path):
    wanted = answer("circle", None, 26)
    lines = ["world_size=4", *(timed_out(rank, 26, operation) for rank in range(4))]
    assert told(judge(tmp_path, lines), wanted) == wanted


NO_NAME = (
    "[W605 11:10:00.4 socket.cpp:759] [c10d] The IPv6 network addresses of (job-master-0, 23456) cannot be retrieved"
    " (gai error: -2 - Name or service not known)."
)
GIVES_UP = (
    "torch.distributed.DistNetworkError: The client socket has timed out after 1800000ms while trying to connect to"
    " (job-master-0, 23456)."
)


def test_a_name_that_is_unknown_until_the_client_gives_up_is_a_network(tmp_path):
    verdict = judge(tmp_path, [NO_NAME, NO_NAME, GIVES_UP])
    assert told(verdict, wanted := answer("network")) == wanted
    assert "job-master-0" in verdict.because


STORE_LOST = (
    "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed."
)
REFUSES = (
    "[W605 11:10:00.4 socket.cpp:697] [c10d] The client socket has failed to connect to [::ffff:10.0.0.1]:23456 (111)."
)
NO_ANSWER = NO_NAME.replace("-2 - Name or service not known", "-3 - Temporary failure in name resolution")
UNKNOWN_NAMES = {
    "the rendezvous gave up": [NO_ANSWER, NO_ANSWER, STORE_LOST],
    "the client tries still": [NO_ANSWER] * 3,
    "the error itself": ["[rank3]: torch.distributed.DistNetworkError: " + NO_NAME.partition("[c10d] ")[2]],
    "ssh": ["ssh: Could not resolve hostname job-master-0: Name or service not known"],
    "gRPC": ["XlaRuntimeError: UNAVAILABLE: DNS resolution failed for job-master-0:8476: Domain name not found"],
}


@pytest.mark.parametrize("lines", UNKNOWN_NAMES.values(), ids=UNKNOWN_NAMES)
def test_a_name_that_stays_unknown_is_a_network_no_matter_which_client_gives_up(lines, tmp_path):
    verdict = judge(tmp_path, lines)
    assert told(verdict, wanted := answer("network")) == wanted
    assert "job-master-0" in verdict.because


@pytest.mark.parametrize(
    "lines",
    [
        [NO_NAME, STORE_LOST],
        [NO_NAME, NO_NAME, REFUSES, STORE_LOST],
        [NO_ANSWER] * 3 + [f"step {n} loss 2.0" for n in range(9)],
        UNKNOWN_NAMES["ssh"] + [f"step {n} loss 2.0" for n in range(9)],
    ],
    ids=["one try by IPv6", "an address that refuses", "steps", "steps after ssh"],
)
def test_a_name_that_is_unknown_to_one_try_or_becomes_known_is_no_network(lines, tmp_path):
    assert judge(tmp_path, lines).kind != "network"


def test_a_call_that_timed_out_is_told_rather_than_one_that_is_only_open(tmp_path):
    """Of a job of many ranks two logs are here: one timed out in its own group, the other was asked for its record."""
    experts = "PG ID 5 PG GUID 41(experts)"
    waits = [timed_out(13, 41, "ALLTOALL_BASE", place=5), failed_at(13, experts, 41, 41, 40, place=5)]

    verdict = judge(tmp_path, {"rank13.log": waits, "rank0.log": [signalled(0, WORLD, 1261, 1259, by=13)]})

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("absent", (), True)
    assert (verdict.collective, verdict.seq, verdict.group) == ("all_to_all", 41, "41 (experts)")
    assert verdict.waiting == (13,)
