"""Faults of NVLink, met by every GPU that uses the link: the one at which it began is named only where it is told."""

import pytest

from .made import joined, judge

BUSES = ["1b000", "43000", "ba000", "dc000"]
RANKS = [joined(rank, 4, bus=bus, host="n4") for rank, bus in enumerate(BUSES)]
XID = "Sep  2 11:30:{:02} n4 kernel: NVRM: Xid (PCI:0000:{}:00): {}"
FATAL = XID.format(5, "dc", "149, NETIR_LINK_EVT Fatal XC0 i0 Link 07 (0x026001c6)")
MILD = [XID.format(6, bus[:2], "145, RLW_RXPIPE Nonfatal XC0 i0 Link 03 (0x0409a0c2)") for bus in BUSES[1:3]]
AFTER = [
    XID.format(7, bus[:2], f"45, pid={5001 + at}, name=python3, Ch 3 caused by previous Xid {xid}")
    for at, (bus, xid) in enumerate(zip(BUSES[1:], (145, 145, 149), strict=True))
]


def met(*ranks):
    error = "CUDA error: uncorrectable NVLink error detected during the execution"
    return [
        f"[rank{rank}]:[E902 11:30:08.{rank} ProcessGroupNCCL.cpp:2068] [PG ID 3 PG GUID 17(tp) Rank {rank}] Process"
        f" group watchdog thread terminated with exception: {error}"
        for rank in ranks
    ]


UNTOLD = {
    "nobody saved the kernel's log": {},
    "the end of the kernel's log alone": {"n4.journal": AFTER},
}


@pytest.mark.parametrize("kernel", UNTOLD.values(), ids=UNTOLD)
def test_of_several_gpus_that_met_it_nobody_is_named(kernel, tmp_path):
    verdict = judge(tmp_path, {"n4.log": [*RANKS, *met(1, 2, 3)], **kernel})

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("device", (), True), verdict.because
    assert any("nvlink" in lacking for lacking in verdict.missing)


def test_the_gpu_of_which_the_kernel_tells_a_fatal_one_is_named(tmp_path):
    verdict = judge(tmp_path, {"n4.log": [*RANKS, *met(1, 2, 3)], "n4.journal": [FATAL, *MILD, *AFTER]})

    assert (verdict.kind, verdict.blamed) == ("device", (3,))


def test_one_gpu_alone_that_met_it_is_named(tmp_path):
    verdict = judge(tmp_path, {"n4.log": [*RANKS, *met(2)]})

    assert (verdict.kind, verdict.blamed) == ("device", (2,))
