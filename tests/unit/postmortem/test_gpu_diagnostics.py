"""GPUs that fail `dcgmi diag`, or are listed alone by `nvidia-smi -q`: whose each is among those of its host."""

import pytest

from .made import judge

LAUNCHED = [
    f"eta{n}: torchrun --nnodes 2 --node-rank {n} --nproc-per-node 4 --rdzv-endpoint eta0:29400 job.py" for n in (0, 1)
]
BROKEN = ["[rank1]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting."]
DIAG = [
    "$ hostname; dcgmi diag -r 2",
    "eta1",
    "Successfully ran diagnostic for group.",
    "| Diagnostic                | Result                                         |",
    "| Environment Variables     | Fail - GPU: 0                                  |",
    "| Page Retirement/Row Remap | Fail - GPU: 3                                  |",
    "| Warning                   | GPU 3 had uncorrectable memory errors          |",
    "| PCIe                      | Pass - All                                     |",
]
NEWER = [
    "$ ssh eta1 dcgmi diag -r 2",
    "| memory                    | Fail                                           |",
    "|                           | GPU3: Fail                                     |",
]
LISTED = [
    "Attached GPUs                             : 4",
    "GPU 00000000:C7:00.0",
    "    Minor Number                          : 3",
    "    Ecc Errors",
    "        Volatile",
    "            DRAM Uncorrectable            : 6",
    "    Remapped Rows",
    "        Remapping Failure Occurred        : Yes",
]
XID = "Nov 18 04:10:08 eta1 kernel: NVRM: Xid (PCI:0000:c7:00): 48, pid=881, name=python, DBE (double bit error)"


@pytest.mark.parametrize("lines", [DIAG, NEWER], ids=["one that names its host", "a newer one"])
def test_a_gpu_that_fails_its_diagnostics_is_that_of_the_rank_with_its_number_on_the_host(lines, tmp_path):
    verdict = judge(tmp_path, {"job.log": [*LAUNCHED, *BROKEN], "diag.txt": lines})

    assert (verdict.kind, verdict.blamed) == ("device", (7,))
    assert "GPU 3 of eta1 has had failures in dcgmi diag" in verdict.because


def test_a_diagnostic_that_all_gpus_fail_names_none(tmp_path):
    lines = [line.replace("Fail - GPU: 3", "Fail - All").replace("Fail - GPU: 0", "Pass") for line in DIAG]

    assert judge(tmp_path, {"job.log": [*LAUNCHED, *BROKEN], "diag.txt": lines}).blamed == ()


def test_an_address_in_the_kernels_log_is_joined_to_a_number_by_the_file_of_the_one_gpu_that_was_asked_for(tmp_path):
    files = {"job.log": [*LAUNCHED, *BROKEN], "journal.eta1.txt": [XID], "smi-q.eta1.gpu3.txt": LISTED}

    assert (judge(tmp_path, files).kind, judge(tmp_path, files).blamed) == ("device", (7,))


@pytest.mark.parametrize("name", ["smi-q.eta1.txt", "smi-q.eta1.gpu2.txt"], ids=["no number", "another number"])
def test_the_one_gpu_of_many_that_a_file_lists_is_not_taken_for_the_first(name, tmp_path):
    verdict = judge(tmp_path, {"job.log": [*LAUNCHED, *BROKEN], "journal.eta1.txt": [XID], name: LISTED})

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("device", (), True)


def test_a_list_of_all_gpus_of_a_host_joins_addresses_and_numbers(tmp_path):
    gpus = [line for bus in ("07", "0B", "48", "C7") for line in (f"GPU 00000000:{bus}:00.0", "    Minor Number : 9")]
    files = {"job.log": [*LAUNCHED, *BROKEN], "journal.eta1.txt": [XID], "smi-q.eta1.txt": [LISTED[0], *gpus]}

    assert judge(tmp_path, files).blamed == (7,)
