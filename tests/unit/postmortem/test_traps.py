"""Xids that a program's own kernel brings about: the fault is the program's, where its rank raised the error of it."""

import pytest

from .made import answer, joined, judge, raised, timed_out, told

XID = "Nov 20 10:08:59 node-a kernel: NVRM: Xid (PCI:0000:{}:00): {}, pid={}, name=python, Ch 00000012"
BUSES = ("44000", "45000", "46000", "47000")
ACCESS = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
WAITED = [timed_out(rank, 9) for rank in (0, 1, 3)]
JOINED = [joined(rank, 4, bus) for rank, bus in enumerate(BUSES)]


@pytest.mark.parametrize("number", [13, 31])
@pytest.mark.parametrize("known", [JOINED, []], ids=["of a known GPU", "of a GPU that no line joins to a rank"])
def test_the_xid_of_a_kernel_is_the_error_of_the_rank_that_it_stopped(number, known, tmp_path):
    files = {"train.log": [*known, *raised(2, ACCESS), *WAITED], "dmesg.txt": [XID.format(46, number, 5002)]}
    verdict = judge(tmp_path, files)

    assert told(verdict, wanted := answer("exception", 2, 9)) == wanted
    assert f"Xid {number}" in verdict.because


def test_a_gpu_that_fell_off_the_bus_is_at_fault_whatever_its_rank_raises(tmp_path):
    files = {"train.log": [*JOINED, *raised(2, ACCESS), *WAITED], "dmesg.txt": [XID.format(46, 79, 5002)]}

    assert told(judge(tmp_path, files), wanted := answer("device", 2, 9)) == wanted


def test_the_xid_of_a_rank_that_raised_something_else_stays_its_gpus(tmp_path):
    files = {"train.log": [*JOINED, *raised(2, "ValueError: no"), *WAITED], "dmesg.txt": [XID.format(46, 31, 5002)]}

    assert told(judge(tmp_path, files), wanted := answer("device", 2, 9)) == wanted
