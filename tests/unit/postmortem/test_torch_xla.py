"""PyTorch/XLA on pods of TPUs: its launcher's lines, the errors of cores by rank, pods that somebody ended."""

import pytest

from .made import answer, judge, told

HOSTS = ["10.4.0.11", "10.4.0.12", "10.4.0.13"]


def said(host, *texts, second=1):
    """Lines of a worker of `xla_dist`, which counts hosts."""
    return [f"2026-11-20 08:14:{second:02} {HOSTS[host]} [{host}] {text}" for text in texts]


def raised(host, core, *texts, second=1):
    return said(
        host,
        f"Exception in device=TPU:{core}: {texts[0]}",
        *texts[1:],
        "Traceback (most recent call last):",
        '  File "/env/torch_xla/distributed/xla_multiprocessing.py", line 330, in _mp_start_fn',
        "    _start_fn(index, pf_cfg, fn, args)",
        f"RuntimeError: {texts[0]}",
        second=second,
    )


BEGUN = [line for host in range(3) for line in said(host, "| epoch 1 begins", "| epoch 1 batch 3 loss 2.5")]
FROM = "From /job:tpu_worker/replica:0/task:0:"
FULL = (f"Resource exhausted: {FROM}", "1 root error(s) found.")
FULL += (
    "  (0) Resource exhausted: Attempting to reserve 3.10G at the bottom of memory. That was not possible. There are"
    " 2.75G free, 0B reserved, and 2.75G reservable.",
)
NEWER = [text.replace("Resource exhausted", "RESOURCE_EXHAUSTED") for text in FULL]
LOST = (f"Aborted: {FROM}", "Session 71ab is not found. Possibly, this master has restarted.")
CLOSED = (
    "tensorflow/compiler/xla/xla_client/mesh_service.cc:294 : Failed to meet rendezvous 'step': Socket closed (14)",
)
OTHERS = [*raised(0, 3, *LOST, second=20), *raised(1, 12, *CLOSED, second=21), *raised(2, 20, *CLOSED, second=21)]
ENDED = [line for host in range(3) for line in said(host, "Terminated", second=30 + host % 2)]
COMMAND = ["Traceback (most recent call last):", '  File "/env/torch_xla/distributed/xla_dist.py", line 598, in run']
COMMAND += ["RuntimeError: Remote command exitted with code: 143"]
CASES = {
    "the memory of one core is full": (
        [*BEGUN, *raised(2, 18, *FULL, second=10), *OTHERS],
        answer("device_memory", 18),
    ),
    "in newer words": ([*BEGUN, *raised(2, 18, *NEWER, second=10), *OTHERS], answer("device_memory", 18)),
    "one core raised an error": (
        [*BEGUN, *raised(1, 9, "list index out of range", second=10), *OTHERS],
        answer("exception", 9),
    ),
    "all processes were ended at once": ([*BEGUN, *ENDED, *COMMAND], answer("killed")),
    "some were ended": ([*BEGUN, *ENDED[:2], *COMMAND], answer("exception", unknown=True)),
    "one failed, and the launcher ended the others": (
        [*BEGUN, *raised(1, 9, "list index out of range", second=10), *ENDED, *COMMAND],
        answer("exception", 9),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_number_of_a_core_is_its_rank_and_that_of_a_worker_is_not(name, tmp_path):
    lines, wanted = CASES[name]
    verdict = judge(tmp_path, lines)
    assert told(verdict, wanted) == wanted, str(verdict)
