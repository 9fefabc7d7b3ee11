"""GPUs by their PCI addresses: lines in which ranks say their own, and the kernel's words of AMD's."""

import pytest

from .made import LINE, answer, joined, judge, raised, timed_out, told

BUSES = ["1b", "3d", "9d", "dd"]
HANGS = [f"HW Exception by GPU node-6 (Agent handle: 0x55d{rank}) reason :GPU Hang" for rank in range(4)]
SAYS = {
    "a logger's label": "[2026-11-20 10:00:00,490] [INFO] [env:4] [RANK:{rank}] cuda:{rank} MI300X pci 0000:{bus}:00.0",
    "torch": "[rank{rank}]: _CudaDeviceProperties(name='G', pci_bus_id={number}, pci_device_id=0, pci_domain_id=0)",
    "TensorFlow": "[1,{rank}]<stderr>:I gpu.cc:1] -> physical GPU (device: 0, name: G, pci bus id: 0000:{bus}:00.0)",
    "a program": "rank {rank}: xpu:0 Intel(R) Graphics, pci_bus 0000:{bus}:00.0",
}


def said(form):
    return [SAYS[form].format(rank=rank, bus=bus, number=int(bus, 16)) for rank, bus in enumerate(BUSES)]


def amd(bus, text, second):
    return f"[{second}.190522] amdgpu 0000:{bus}:00.0: {text}"


def aborted(*ranks, second=48):
    """The summary of torchrun: all ended by SIGABRT, the first of them as it says first."""
    head, ends = ["Failures:", *(f"[{at + 1}]:" for at in range(len(ranks) - 1))], []
    for at, rank in enumerate((*ranks[1:], ranks[0])):
        ends += [LINE, "Root Cause (first observed failure):"] if rank == ranks[0] else []
        ends += [
            f"[{at}]:",
            f"  time      : 2026-11-20_10:26:{second}",
            "  host      : node-a",
            f"  rank      : {rank} (local_rank: {rank})",
            f"  exitcode  : -6 (pid: {5000 + rank})",
            f"  traceback : Signal 6 (SIGABRT) received by PID {5000 + rank}",
        ]
    return ["train.py FAILED", LINE, head[0], *ends, "=" * 60]


UNCORRECTED = "{2}socket: 6, die: 0, 1 new uncorrectable hardware errors detected in umc block"
RESET = amd("dd", "amdgpu: GPU reset begin!", 77)


@pytest.mark.parametrize("form", SAYS)
def test_the_gpu_whose_memory_failed_is_that_of_the_rank_that_said_its_address(form, tmp_path):
    kernel = [amd("9d", UNCORRECTED, 76), RESET, *(amd(bus, "amdgpu: MODE1 reset", 78) for bus in BUSES)]

    verdict = judge(tmp_path, {"train.log": [*said(form), *HANGS, *aborted(0, 1, 2, 3)], "dmesg.txt": kernel})

    assert told(verdict, answer("device", 2)) == answer("device", 2)


@pytest.mark.parametrize(
    "text",
    [
        "amdgpu: poison is consumed by client 14, kick off gpu reset flow",
        "amdgpu: {3}Poison is created",
        "amdgpu: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
        "amdgpu: device lost from bus!",
        "amdgpu: GPU reset(1) failed",
        "amdgpu: Queue preemption failed for queue with doorbell_id: 80002008",
        "amdgpu: ring comp_1.0.1 timeout, signaled seq=4, emitted seq=6",
    ],
)
def test_what_comes_before_the_reset_of_linked_gpus_tells_whose_it_is(text, tmp_path):
    verdict = judge(tmp_path, {"train.log": [*said("a program"), *HANGS], "dmesg.txt": [amd("9d", text, 76), RESET]})

    assert told(verdict, answer("device", 2)) == answer("device", 2)


@pytest.mark.parametrize(
    "text",
    [
        "amdgpu: no uncorrectable hardware errors detected in umc block",
        "{1}socket: 4, die: 1, 0 new uncorrectable hardware errors detected in umc block",
        "{1}socket: 4, die: 1, 1533 new correctable hardware errors detected in xgmi_wafl block",
        "amdgpu: ring gfx timeout, but soft recovered",
    ],
)
def test_what_the_driver_counted_or_mended_is_no_fault(text, tmp_path):
    verdict = judge(tmp_path, {"train.log": [*said("a program"), *HANGS], "dmesg.txt": [amd("9d", text, 76), RESET]})

    assert told(verdict, answer("device", 3)) == answer("device", 3)


def test_of_ranks_that_all_abort_on_the_reset_of_their_gpus_the_first_seen_is_not_blamed(tmp_path):
    verdict = judge(tmp_path, [*HANGS, *aborted(0, 1, 2, 3)])

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("device", (), True)


def test_a_rank_that_lists_all_gpus_of_its_host_says_not_which_is_its_own(tmp_path):
    log = [f"rank 0: sees gpu {at} pci bus id 0000:{bus}:00.0" for at, bus in enumerate(BUSES)]

    verdict = judge(tmp_path, {"train.log": [*log, "rank 1: step 4 loss 2.0"], "dmesg.txt": [RESET]})

    assert (verdict.kind, verdict.blamed) == ("device", ())


ON_NODE = "Nov 20 10:08:00 node-a kernel: NVRM: Xid (PCI:0000:{}:00): 79, pid='<unknown>', GPU has fallen off the bus."


def of_job(*buses):
    """The log of a job of four ranks whose rank 1 raised: who uses which GPU, as far as it is told."""
    known = [joined(rank, 4, bus) for rank, bus in enumerate(buses)]
    return [*known, *raised(1, "ZeroDivisionError: division by zero"), *(timed_out(rank, 8) for rank in (0, 2, 3))]


@pytest.mark.parametrize("last", [[], ["61000"]], ids=["whose owner no line tells", "that no rank uses"])
def test_the_error_of_who_is_missing_is_the_cause_beside_a_gpu(last, tmp_path):
    files = {"train.log": of_job("1b000", "43000", "52000", *last), "dmesg.txt": [ON_NODE.format("d1")]}
    verdict = judge(tmp_path, files)

    assert (verdict.kind, verdict.blamed) == ("exception", (1,))


def test_a_gpu_whose_owner_no_line_tells_is_the_cause_where_nobody_raised(tmp_path):
    log = [line for line in of_job("1b000", "43000", "52000") if "[rank1]" not in line]
    verdict = judge(tmp_path, {"train.log": [*log, timed_out(1, 8)], "dmesg.txt": [ON_NODE.format("d1")]})

    assert verdict.kind == "device"
