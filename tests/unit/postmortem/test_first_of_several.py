"""The first of several faults: the one that came before the others, in the words of who knows most of it."""

import json

import pytest

from .made import judge

XID = "[Fri Aug 30 11:43:{s} 2024] NVRM: Xid (PCI:0000:9a:00): {rest}"
ILLEGAL = XID.format(s="09", rest="13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC 1, TPC 2)")
SWITCH = XID.format(s="14", rest="109, pid=8123, name=python3, Ch 0000000a, errorString CTX SWITCH TIMEOUT, Info 0x3c5")
KERNEL_FAULT = "Memory access fault by GPU node-6 (Agent handle: 0x5c) on address 0x7f12aa400000. Reason: Unknown."
AMD = "[ 81.97{n}] amdgpu 0000:9d:00.0: amdgpu: "
NEWER = [
    AMD.format(n=1) + "[gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:8 pasid:32771)",
    AMD.format(n=2) + " for process python3 pid 5120 thread python3 pid 5120)",
    AMD.format(n=3) + "  in page starting at address 0x00007f12aa400000 from IH client 0x1b (UTCL2)",
]
OLDER = [NEWER[0][:-1] + ", for process python3 pid 5120 thread python3 pid 5120)", NEWER[2]]
RERUN = "ERROR:megatron.core.rerun_state_machine:"
AGAIN = RERUN + "Rank {0}, node n1, device 3, iteration #3: First rerun: unexpected result is reproducible within the"
AGAIN += " tolerance (nan = nan). Need to rerun on a different GPU to verify correctness"
NAN = RERUN + "Unexpected result nan on rank {} at iteration #3 invocation #2 (message='found NaN in local grad norm"
NAN += " for bucket #0 in backward pass before data-parallel communication collective')"


def test_the_xid_that_came_first_is_the_cause_and_not_the_one_with_more_words(tmp_path):
    verdict = judge(tmp_path, {"kern.log": [ILLEGAL, SWITCH]})

    assert verdict.because.startswith("Xid 13 ")
    assert "CUDA_LAUNCH_BLOCKING" in verdict.next[0]


@pytest.mark.parametrize("driver", [NEWER, OLDER], ids=["newer", "older"])
def test_the_driver_knows_the_device_and_the_process_of_a_fault_that_the_runtime_met(driver, tmp_path):
    verdict = judge(tmp_path, {"train.log": [KERNEL_FAULT], "dmesg": driver})

    assert "Reason: Unknown.; amdgpu 0000:9d:00.0" in verdict.because
    assert "process 5120" in verdict.because


def test_the_faulting_process_of_an_amd_gpu_leads_to_its_rank(tmp_path):
    made = "n1:5120:5300 [2] NCCL INFO comm 0x1 rank 2 nranks 4 cudaDev 2 busId 9d000 commId 0x9 - Init COMPLETE"

    assert judge(tmp_path, {"train.log": [made, KERNEL_FAULT], "dmesg": NEWER}).blamed == (2,)


@pytest.mark.parametrize("ranks", [(3,), (3, 5)])
def test_a_result_that_one_rank_alone_computed_again_as_nan_is_that_ranks(ranks, tmp_path):
    verdict = judge(tmp_path, [line.format(rank) for rank in ranks for line in (NAN, AGAIN)])

    assert verdict.blamed == (ranks if len(ranks) == 1 else ())
    assert "local grad norm" in verdict.because


def test_an_error_file_whose_stack_was_cut_off_has_its_message(tmp_path):
    trace = 'Traceback (most recent call last):\n  File "fit.py", line 5, in main\n    step()\n'
    told = {"message": "ValueError: bad shard 4", "extraInfo": {"py_callstack": trace, "timestamp": "1795169405"}}

    assert judge(tmp_path, {"attempt_0/6/error.json": [json.dumps({"message": told})]}).blamed == (6,)


def test_a_port_that_hccl_could_not_listen_on_comes_before_the_wait_for_its_peer(tmp_path):
    head = "[ERROR] HCCL(911,python3):2025-08-01-03:4{}:57.070.463 [x.cc:100] [911]"
    lines = [
        head.format(7) + "[Listen] socket type[1], listen on ip[10.9.0.4] and specific port[16000] fail.",
        "EI0006: [PID: 911] 2025-08-01-03:49:57.177.301 Getting socket times out. Reason: Remote Rank did not send",
    ]

    verdict = judge(tmp_path, lines)

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("exception", (), True)
    assert "port 16000 of 10.9.0.4" in verdict.because


REFUSED = (
    "[rank5] WatchTasksAsync failed for task 5: UNAVAILABLE: failed to connect to all addresses; last error: UNKNOWN:"
    " ipv4:10.9.0.4:8476: Failed to connect to remote host: Connection refused"
)
NO_REPLY = "[rank5] F0817 17:41:22.1 8 client.h:80] UNAVAILABLE: Failed to send RPC to coordination service. Either the"
NO_REPLY += " leader task was preempted/died/restarted unexpectedly or this task is experiencing network issues."


@pytest.mark.parametrize("line", [REFUSED, NO_REPLY], ids=["refused", "no reply"])
def test_who_cannot_speak_to_jaxs_coordinator_is_not_who_ended(line, tmp_path):
    verdict = judge(tmp_path, [line])

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("killed", (), True)
    assert "coordinator" in verdict.because


def test_a_process_that_jaxs_service_ended_shows_that_something_failed_elsewhere(tmp_path):
    line = "F0720 10:00:01.2 811 client.h:77] Terminating process because the JAX distributed service detected fatal"

    verdict = judge(tmp_path, [f"{line} errors. This most likely indicates that another task died."])

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("killed", (), True)


def test_a_warning_of_a_missing_fabric_manager_after_which_the_job_trains_is_no_fault(tmp_path):
    line = "cuda/__init__.py:180: UserWarning: CUDA initialization: Error 802: system not yet initialized (Triggered"

    assert judge(tmp_path, [line, *(f"step {n} loss 2.0" for n in range(9))]).kind == "none"


def test_a_coordinator_that_was_up_after_all_is_no_fault(tmp_path):
    assert judge(tmp_path, [REFUSED, *(f"step {n} loss 2.0" for n in range(9))]).kind == "none"


@pytest.mark.parametrize(
    "line",
    [
        "[rank9]: RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
        "n04:77:77 [1] init.cc:1785 NCCL WARN Cuda failure 802 'system not yet initialized'",
    ],
    ids=["torch", "NCCL"],
)
def test_a_host_without_its_fabric_manager_is_a_fault_of_the_host_and_not_of_the_program(line, tmp_path):
    verdict = judge(tmp_path, [line])

    assert verdict.kind == "device"
    assert "fabricmanager" in verdict.next[0]


def test_nohup_is_not_said_to_keep_torchruns_job_from_the_end_of_its_terminal(tmp_path):
    line = "W0920 09:10:41.1 84 torch/distributed/elastic/agent/server/api.py:719] Received 1 death signal, shutting"

    assert "nohup does not" in judge(tmp_path, [line]).because


def test_memory_that_nccl_lacked_is_told_with_the_gpu_of_its_line(tmp_path):
    line = "n30:3063:3066 [3] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'"

    assert "GPU 3 of n30" in judge(tmp_path, [line]).because
