"""Lines that look like faults and are none, and what a job that goes on or has finished leaves behind."""

import pytest

from .made import answer, judge, out_of_memory, raised, stood_still, timed_out, told

STEPS = [f"2026-11-20 10:05:{n:02},120 INFO step {n} loss 2.{n}" for n in range(12)]
NOISE = [
    "W1120 10:00:00.1 12 torch/distributed/run.py:792] Setting OMP_NUM_THREADS environment variable for each process",
    "[W1120 10:00:02.1 socket.cpp:697] [c10d] The client socket has failed to connect to [localhost]:29500 (errno: 99"
    " - Cannot assign requested address).",
    "[W socket.cpp:601] [c10d] The client socket has failed to connect to [::ffff:10.0.0.1]:29500 (errno: 97 - Address"
    " family not supported by protocol).",
    "[W1014 08:00:09.5 socket.cpp:767] [c10d] The IPv6 network addresses of (node-a, 29500) cannot be retrieved (gai"
    " error: -2 - Name or service not known).",
    "huggingface/tokenizers: The current process just got forked, after parallelism has already been used. Disabling"
    " parallelism to avoid deadlocks...",
    "[rank0]:[W1120 10:00:05.1 ProcessGroupNCCL.cpp:4571] [PG ID 0 PG GUID 0 Rank 0]  using GPU 0 to perform barrier as"
    " devices used by this process are currently unknown. This can potentially cause a hang",
    "node-a:12:12 [0] NCCL INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2 : cannot open shared object file",
    "libibverbs: Warning: couldn't load driver 'libmlx4-rdmav34.so': cannot open shared object file",
    "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f12>",
    "Traceback (most recent call last):",
    '  File "/opt/torch/utils/data/dataloader.py", line 1477, in __del__',
    "    self._shutdown_workers()",
    "AssertionError: can only test a child process",
    "ERROR: flash_attn is not installed, falling back to sdpa",
    "'(ReadTimeoutError(\"HTTPSConnectionPool(host='hub', port=443): Read timed out.\"))' thrown while requesting HEAD",
]
DEAD_STORE = [
    f"[rank{rank}]:[W1120 10:40:06.1 ProcessGroupNCCL.cpp:1783] [PG ID 0 PG GUID 0 Rank {rank}] Failed to check the"
    ' "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: failed to recv'
    for rank in (1, 2, 3)
]
REFUSED = (
    "node-a:41:43 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.9<45321> failed : Connection"
    " refused"
)
OTHER_KILLED = [
    "[Fri Nov 20 10:01:02 2026] oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/kubepods/x,task=java,pid=88123,uid=0",
    "[Fri Nov 20 10:01:02 2026] Memory cgroup out of memory: Killed process 88123 (java) total-vm:9kB, anon-rss:41kB",
]
INTERRUPTED = [
    "^CW0109 20:04:02.2 9120 torch/distributed/elastic/agent/server/api.py:704] Received 2 death signal, shutting down",
    "Traceback (most recent call last):",
    '  File "torch/distributed/elastic/multiprocessing/api.py", line 84, in _terminate_process_handler',
    '    raise SignalException(f"Process {os.getpid()} got signal: {sigval}", sigval=sigval)',
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 9120 got signal: 2",
]
PODS_BEGIN = [
    "12m  Warning  FailedScheduling  pod/job-0  0/8 nodes are available. preemption: No preemption victims found",
    "11m  Warning  Unhealthy  pod/job-0  Readiness probe failed: dial tcp 10.0.0.1:8080: connect: connection refused",
]
NOTHING = {
    "warnings of a start": NOISE,
    "warnings before steps": [*NOISE, *STEPS],
    "a store that ends with a job that has finished": [*STEPS, "Training completed", *DEAD_STORE],
    "a refused connection before many steps": [REFUSED, *STEPS],
    "another program that the kernel killed": {"train.log": STEPS, "node-a.dmesg": OTHER_KILLED},
    "a connection that a thread of a library lost": [
        *STEPS,
        "Exception in thread NetStatThr:",
        "Traceback (most recent call last):",
        '  File "/opt/wandb/sdk/wandb_run.py", line 270, in check_network_status',
        "BrokenPipeError: [Errno 32] Broken pipe",
    ],
    "an interrupt from the keyboard": [*STEPS, *INTERRUPTED],
    "pods that have to wait": {"events.txt": PODS_BEGIN, "job-0.log": STEPS},
    "two hundred lines of noise": [*(NOISE * 14), *STEPS],
}


@pytest.mark.parametrize("name", NOTHING)
def test_what_does_no_harm_is_no_verdict(name, tmp_path):
    wanted = answer("none", unknown=True)
    assert told(judge(tmp_path, NOTHING[name]), wanted) == wanted


@pytest.mark.parametrize("noise", [NOISE, NOISE * 14], ids=["some", "much"])
def test_noise_around_a_fault_changes_nothing(noise, tmp_path):
    others = [timed_out(rank, 9) for rank in (0, 1, 3)]
    wanted = answer("device_memory", 2, 9)
    assert told(judge(tmp_path, [*noise, out_of_memory(2), *noise, *others, *noise]), wanted) == wanted


@pytest.mark.parametrize(("steps", "kind"), [(12, "absent"), (3, "exception")])
def test_an_error_after_which_all_others_train_on_for_long_was_handled(steps, kind, tmp_path):
    lines = [*raised(3, "ValueError: corrupt sample"), *(f"[rank0]: step {n} loss 2.0" for n in range(steps))]
    wanted = answer(kind, 3, 9)
    assert told(judge(tmp_path, [*lines, *(timed_out(rank, 9) for rank in (0, 1, 2))]), wanted) == wanted


def test_a_limit_of_open_files_is_no_full_memory(tmp_path):
    error = "RuntimeError: unable to open shared memory object </torch_12> in read-write mode: Too many open files"
    wanted = answer("exception", 3)
    assert told(judge(tmp_path, raised(3, error)), wanted) == wanted


def test_a_refused_connection_after_which_nothing_comes_is_a_fault(tmp_path):
    assert judge(tmp_path, [*STEPS, REFUSED]).kind == "network"


def test_a_client_that_found_no_address_of_the_store_waits_for_it(tmp_path):
    line = (
        "[E socket.cpp:957] [c10d] The client socket has failed to connect to any network address of (node-a, 29500)."
    )
    verdict = judge(tmp_path, [*NOISE, line])
    assert told(verdict, wanted := answer("absent", unknown=True)) == wanted
    assert "node-a:29500" in verdict.because


def test_hosts_that_do_not_join_are_waited_for(tmp_path):
    error = "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError"
    assert told(judge(tmp_path, [error]), wanted := answer("absent", unknown=True)) == wanted


def test_a_port_that_is_taken_is_no_ranks_fault(tmp_path):
    error = (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port:"
        " 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
    )
    assert told(judge(tmp_path, [error]), wanted := answer("exception")) == wanted


@pytest.mark.parametrize(("ranks", "named"), [((0, 1, 2, 3), ()), ((2,), (2,))])
def test_memory_that_ran_out_on_all_ranks_with_numbers_of_their_own_is_the_fault_of_none(tmp_path, ranks, named):
    lines = [out_of_memory(rank, wanted=f"{300 + rank}.00 MiB").replace("141.25", f"14{rank}.25") for rank in ranks]

    verdict = judge(tmp_path, [*(f"[rank{rank}]: step 0 loss 2.{rank}" for rank in range(4)), *lines])

    assert (verdict.kind, verdict.blamed) == ("device_memory", named)


@pytest.mark.parametrize("why", ["Broken pipe", "failed to recv, got 0 bytes", "Connection reset by peer"])
def test_ranks_that_outlive_the_store_show_no_fault(why, tmp_path):
    lines = [line.replace("failed to recv", why) for line in DEAD_STORE]

    verdict = judge(tmp_path, lines)

    assert (verdict.kind, verdict.blamed, verdict.unknown, len(verdict.evidence)) == ("none", (), True, 3)
    assert "the process that holds the store ended before the others" in verdict.because


def test_a_store_that_is_gone_beside_an_error_is_its_consequence(tmp_path):
    verdict = judge(tmp_path, [*DEAD_STORE, "[rank0]: Traceback (most recent call last):", "[rank0]: KeyError: 'x'"])

    assert (verdict.kind, verdict.blamed) == ("exception", (0,))


POINTS_ELSEWHERE = [
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root"
    " cause.",
    "RuntimeError: worker group failed, check the logs of the workers for the root cause",
]


@pytest.mark.parametrize("error", POINTS_ELSEWHERE)
def test_an_error_that_says_that_another_came_first_is_not_the_cause(error, tmp_path):
    mesh = (
        "(Worker pid=71, ip=10.2.0.4) RuntimeError: Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:152]"
        " timed out connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:3187 (rank=8, size=16,"
        " local=[127.0.0.1])"
    )
    verdict = judge(tmp_path, [mesh, "Traceback (most recent call last):", '  File "serve.py", line 3', error])

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("network", (), True)
    assert "1 connection to a peer broke" in verdict.because
    assert "/etc/hosts" in verdict.because


DOWNLOAD = (
    "2026-11-20 10:{minute}:58,002 - hub - WARNING - '(ReadTimeoutError(\"HTTPSConnectionPool(host='hub.example',"
    " port=443): Read timed out.\"))' thrown while requesting GET https://hub.example/datasets/c4/en-00001.json.gz"
)
STEP = "2026-11-20 10:09:58,003 - root - INFO - step: 40 loss: 2.1"
DOWNLOADS = {
    "just before the wait": ([STEP, DOWNLOAD.format(minute="09")], "data"),
    "while they wait": ([STEP, DOWNLOAD.format(minute="14")], "data"),
    "and a step after it": ([DOWNLOAD.format(minute="09"), STEP], "absent"),
    "long before the wait": ([DOWNLOAD.format(minute="02")], "absent"),
    "of a model": (
        [STEP, DOWNLOAD.format(minute="09").replace("datasets/c4/en-00001.json.gz", "llm/config.json")],
        "absent",
    ),
}


@pytest.mark.parametrize(("lines", "kind"), DOWNLOADS.values(), ids=DOWNLOADS)
def test_a_download_of_data_that_does_not_answer_while_ranks_wait_is_data_of_nobody_known(lines, kind, tmp_path):
    verdict = judge(tmp_path, [*lines, timed_out(0, 52)])

    assert (verdict.kind, verdict.blamed, verdict.unknown) == (kind, (), True)


RETRY = (
    "2026-11-20 10:{minute}:58,002 | WARNING | rank {rank} Retrying (Retry(total=2, connect=None)) after connection"
    " broken by 'ReadTimeoutError(\"Read timed out. (read timeout=300)\")': /mix/00261.tar"
)
CANCELLED = "slurmstepd: error: *** STEP 80114.0 ON node-1 CANCELLED AT 2026-11-20T10:25:40 ***"


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ([STEP, RETRY.format(minute="14", rank=2)], "data"),
        ([STEP, RETRY.format(minute="14", rank=2), RETRY.format(minute="15", rank=1)], "data"),
        ([STEP, RETRY.format(minute="14", rank=1)], "absent"),
        ([RETRY.format(minute="09", rank=2), STEP], "absent"),
    ],
    ids=["the missing one", "one that waits does too", "one that waits", "and a step after it"],
)
def test_a_download_is_of_the_rank_that_its_line_names_until_the_next_step_of_the_training(lines, kind, tmp_path):
    verdict = judge(tmp_path, [*lines, *(timed_out(rank, 52) for rank in (0, 1, 3)), CANCELLED])

    assert (verdict.kind, verdict.blamed) == (kind, (2,))


def test_an_object_that_is_read_again_and_again_is_data_of_the_task_in_front_of_the_line(tmp_path):
    again = (
        "2: 2026-11-20 10:14:11.812: I tsl/platform/retrying_utils.cc:105] The operation failed and will be"
        " automatically retried in 31.2 seconds (attempt 7 out of 10), caused by: UNAVAILABLE: code 28"
        " when reading {}"
    )
    waits = [f"{rank}: {timed_out(rank, 52)}" for rank in (0, 1, 3)]

    verdict = judge(tmp_path, [f"0: {STEP}", again.format("gs://mix/train-00012.tfrecord"), *waits])
    assert (verdict.kind, verdict.blamed) == ("data", (2,))
    verdict = judge(tmp_path, [f"0: {STEP}", again.format("gs://runs/ckpt-4/part-12.tar"), *waits])
    assert (verdict.kind, verdict.blamed) == ("absent", (2,))


def test_a_name_that_a_screen_wrote_over_is_no_other_operation(tmp_path):
    lines = [timed_out(rank, 9, "_ALLGATHER_BASE", 64, 512) for rank in (0, 2, 5)]
    lines[1] = lines[1].replace("_BASE, NumelIn", "_BA[4/19]n")

    verdict = judge(tmp_path, lines)

    assert (verdict.kind, verdict.blamed, verdict.collective) == ("absent", (), "all_gather")


STILL = stood_still(2, 2).replace("F1120 10:28:00", "F1120 {}")
WAIT = [timed_out(rank, 7) for rank in (0, 1, 3)]


def stood(rank, at):
    return STILL.format(at).replace("rank2]", f"rank{rank}]").replace("Rank 2]", f"Rank {rank}]")


def test_a_watchdog_that_stood_still_long_before_those_of_the_others_tells_of_its_host(tmp_path):
    lines = [stood(2, "10:01:00"), *WAIT, *(stood(rank, "10:28:00") for rank in (0, 1, 3))]

    verdict = judge(tmp_path, lines)

    assert (verdict.kind, verdict.rank) == ("host", 2)


def test_watchdogs_of_all_ranks_that_stand_still_at_the_end_tell_of_no_host(tmp_path):
    verdict = judge(tmp_path, [*WAIT, *(stood(rank, "10:28:00") for rank in range(4))])

    assert (verdict.kind, verdict.rank) == ("absent", 2)
