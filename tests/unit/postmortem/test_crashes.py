"""Crashes: whose a line without a rank is, by how the launcher saw a process end; and GPUs that no longer answer."""

import pytest

from .made import answer, judge, timed_out, told

STEPS = [f"[rank{rank}] step {n} loss 1.{n}" for n in range(3) for rank in range(4)]
FAULTHANDLER = ["Fatal Python error: Segmentation fault", "", "Current thread 0x00007f (most recent call first):"]


def ended(local, pid, signal):
    """What torchrun prints of a process that a signal ended."""
    return (
        "E1120 10:20:41.1 12 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode:"
        f" -{signal}) local_rank: {local} (pid: {pid}) of binary: /usr/bin/python"
    )


def test_a_crash_without_a_rank_is_of_the_process_that_ended_so(tmp_path):
    verdict = judge(tmp_path, [*STEPS, *FAULTHANDLER, ended(2, 402, 11)])

    assert told(verdict, answer("killed", 2)) == answer("killed", 2)
    assert "segmentation fault" in verdict.because


def test_two_crashes_without_a_rank_are_of_nobody_known(tmp_path):
    verdict = judge(tmp_path, [*STEPS, *FAULTHANDLER, *FAULTHANDLER, ended(2, 402, 11)])

    assert told(verdict, answer("killed", unknown=True)) == answer("killed", unknown=True)


def test_a_crash_is_not_of_a_process_that_another_signal_ended(tmp_path):
    verdict = judge(tmp_path, [*STEPS, *FAULTHANDLER, ended(2, 402, 9)])

    assert "segmentation fault" in verdict.because or verdict.blamed == (2,)
    assert not ("segmentation fault" in verdict.because and verdict.blamed)


@pytest.mark.parametrize("words", ["free(): invalid pointer", "double free or corruption (!prev)"])
def test_memory_that_the_c_library_found_corrupted_ends_its_rank(words, tmp_path):
    verdict = judge(tmp_path, [*STEPS, f"[rank1]: {words}", ended(1, 401, 6)])

    assert told(verdict, answer("killed", 1)) == answer("killed", 1)
    assert words in verdict.because
    assert "core dump" in verdict.next[0]


@pytest.mark.parametrize("gpu", ["GPU 0000:4E:00.0", "GPU0000:4E:00.0", "GPU3: 0000:4E:00.0"])
def test_a_gpu_that_the_driver_no_longer_reaches_is_the_fault_of_the_rank_on_it(gpu, tmp_path):
    places = [
        f"node-a:30{n}:31{n} [{n}] NCCL INFO comm 0x5{n} rank {n} nranks 4 cudaDev {n} busId {bus} - Init COMPLETE"
        for n, bus in enumerate(("7000", "f000", "47000", "4e000"))
    ]
    table = f"Unable to determine the device handle for {gpu}: GPU is lost.  Reboot the system to recover this GPU"
    verdict = judge(tmp_path, {"train.log": [*places, *(timed_out(r, 5) for r in (0, 1, 2))], "smi.txt": [table]})

    assert told(verdict, answer("device", 3, 5)) == answer("device", 3, 5)
