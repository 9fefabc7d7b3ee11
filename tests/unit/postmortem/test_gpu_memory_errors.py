"""GPUs whose memory has failed by the counts of nvidia-smi, which an earlier job may have left."""

import pytest

from .made import judge, timed_out


def table(pod, errors, bus="1A"):
    """What nvidia-smi prints in a pod with one GPU."""
    return [
        f"$ kubectl exec {pod} -- nvidia-smi",
        "| NVIDIA-SMI 550.54   Driver Version: 550.54   CUDA Version: 12.4 |",
        f"|   0  NVIDIA H100 80GB HBM3          On  |   00000000:{bus}:00.0 Off | {errors:>20} |",
        "| N/A   41C    P0             120W / 700W |   60311MiB / 81559MiB |    100%      Default |",
    ]


def stack(pod, rank, *frames):
    return [
        f"$ kubectl exec {pod} -- py-spy dump --pid 7",
        f"Process 7: python -m job --rank {rank}",
        'Thread 7 (idle): "MainThread"',
        *(f"    {frame}" for frame in frames),
        "",
    ]


SYNCS = "synchronize (torch/cuda/streams.py:90)"
RECEIVES = (SYNCS, "wait (pipe/link.py:12)", "recv_grad (pipe/link.py:40)", "main (job.py:9)")
COMPUTES = (SYNCS, "done (pipe/part.py:71)", "forward (pipe/part.py:60)", "main (job.py:9)")
READS = ("read (socket.py:3)", "__getitem__ (data/shards.py:8)", "main (job.py:9)")
WEAR = [
    *("$ kubectl exec job-2 -- nvidia-smi -q -d ECC,ROW_REMAPPER", "GPU 00000000:1C:00.0", "    Ecc Errors"),
    *("        Volatile", "            SRAM Uncorrectable            : 0", "            DRAM Uncorrectable : 8"),
    *("        Aggregate", "            DRAM Uncorrectable            : 99", "    Remapped Rows"),
    "        Remapping Failure Occurred        : Yes",
]


def job(odd, *, computes=COMPUTES, errors=23):
    """Stacks and tables of four pods, of which one computes and one has a GPU with errors."""
    stacks = [line for n in range(4) for line in stack(f"job-{n}", 8 + n, *(computes if n == 2 else RECEIVES))]
    return {
        "stacks.txt": stacks,
        "smi.txt": [line for n in range(4) for line in table(f"job-{n}", errors if n == odd else 0, f"1{'ABCD'[n]}")],
    }


def test_a_stage_that_waits_for_its_device_while_the_others_wait_for_it_has_the_gpu_with_errors(tmp_path):
    verdict = judge(tmp_path, job(2))

    assert (verdict.kind, verdict.blamed) == ("device", (10,))
    assert "23 uncorrectable ECC errors" in verdict.because


def test_counts_of_one_gpu_alone_tell_as_well(tmp_path):
    files = job(None)
    verdict = judge(tmp_path, {**files, "smi.txt": [*files["smi.txt"], *WEAR]})

    assert (verdict.kind, verdict.blamed) == ("device", (10,))
    assert "8 uncorrectable" in verdict.because
    assert "no rows left" in verdict.because


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        (job(0), "absent"),
        (job(None), "absent"),
        (job(1, computes=READS), "data"),
    ],
    ids=["of one that waits", "of none", "of one that waits for another's data"],
)
def test_errors_of_a_gpu_whose_rank_waits_for_another_are_of_some_other_time(files, kind, tmp_path):
    verdict = judge(tmp_path, files)

    assert (verdict.kind, verdict.blamed) == (kind, (10,))


def test_errors_of_most_gpus_of_a_file_tell_of_none(tmp_path):
    verdict = judge(tmp_path, {"smi.txt": [*table("a-0", 3), *table("a-1", 4), *table("a-2", 0)]})

    assert verdict.kind == "none"


def test_calls_that_differ_are_no_fault_of_a_gpu(tmp_path):
    lines = [timed_out(rank, 7, "ALLGATHER" if rank == 1 else "ALLREDUCE") for rank in range(4)]
    verdict = judge(tmp_path, {"job.log": lines, "smi.txt": job(3)["smi.txt"]})

    assert (verdict.kind, verdict.blamed) == ("desync", (1,))
