"""Lines that only speak of faults: hints, settings, help texts, lines of source; and lines that report one."""

import pytest

from meshwright.postmortem.text.mentions import is_mention

from .made import answer, judge, timed_out, told

STEPS = [f"2026-11-20 10:05:{n:02},120 INFO step {n} loss 2.{n}" for n in range(6)]
WAITING = [timed_out(rank, 52) for rank in (0, 1, 3)]
MENTIONS = [
    "hint: if the job runs into CUDA out of memory, lower train.micro_batch",
    "To avoid HIP out of memory, set PYTORCH_HIP_ALLOC_CONF=expandable_segments:True",
    "recover: {'CUDA out of memory': 'halve', 'ECC error': 'leave'}",
    'settings: {"restart_on": ["CUDA out of memory", "Connection reset by peer"], "times": 2}',
    "restarts on: [OOMKilled, Evicted, Preempted]",
    "usage: fit.py [--on-full {skip,stop}]  what to do when CUDA out of memory is raised",
    "            if 'CUDA out of memory' in str(error):",
    "elastic: will restart on NCCL timeout, CUDA error: an illegal memory access, ECC error",
]
REPORTS = [
    "CUDA out of memory. Tried to allocate 2.00 GiB",
    "checking if the batch fits: CUDA out of memory. Tried to allocate 2.00 GiB",
    "RuntimeError('CUDA out of memory')",
    "skipping batch 12, caught 'CUDA out of memory'",
    "{'rank': 2, 'error': 'CUDA out of memory'}",
    "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
    "warmup done. CUDA out of memory when the cache grew; to avoid CUDA out of memory use less",
    "job-0   0/1   OOMKilled   2 (30s ago)",
]


@pytest.mark.parametrize("line", MENTIONS)
def test_a_line_that_only_speaks_of_a_fault_shows_none(line, tmp_path):
    assert judge(tmp_path, [line, *STEPS]).kind == "none"


@pytest.mark.parametrize("line", MENTIONS)
def test_a_line_that_only_speaks_of_a_fault_is_not_the_cause_of_a_wait(line, tmp_path):
    verdict = judge(tmp_path, [line, *STEPS, *WAITING])

    assert told(verdict, answer("absent", 2, 52)) == answer("absent", 2, 52)


@pytest.mark.parametrize("line", REPORTS)
def test_a_line_that_reports_a_fault_is_no_mention(line):
    assert not is_mention(line)
