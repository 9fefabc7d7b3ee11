"""Horovod's words: lists of who is missing, waits that end, calls of the ranks that are unlike."""

import pytest

from .made import answer, judge, told

STALL = "W horovod/common/stall_inspector.cc:105] One or more tensors were submitted to be reduced, gathered or"
STALL += " broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds."


def steps(*numbers, ranks=4):
    return [f"[1,{rank}]<stderr>:step {step} loss 1.{step}" for step in numbers for rank in range(ranks)]


def stalled(*ranks, head="Stalled"):
    """A list of the stall check, of ranks that have not brought a gradient."""
    rows = (STALL, f"{head} ranks:", *(f"{rank}: [grad_0, grad_1 ...]" for rank in ranks))
    return [f"[1,0]<stderr>:{row}" for row in rows]


def unlike(what, one, other):
    """The error that all four ranks raise, and mpirun's word on the one that ended first."""
    error = f"tensorflow.errors_impl.FailedPreconditionError: Mismatched {what}: One rank {one}, but another rank"
    end = ["mpirun detected that one or more processes exited with non-zero status. The first process to do so was:"]
    end += ["  Process name: [[4,1],2]", "  Exit code:    1"]
    raised = ((f"[1,{rank}]<stderr>:Traceback (most recent call last):", f"{error} {other}.") for rank in (2, 0, 3, 1))
    return [
        *steps(1, 2),
        *(
            line
            for rank, (head, told_by) in zip((2, 0, 3, 1), raised, strict=True)
            for line in _lines(rank, head, told_by)
        ),
        *end,
    ]


def _lines(rank, head, error):
    return [head, f'[1,{rank}]<stderr>:  File "fit.py", line 9, in fit', f"[1,{rank}]<stderr>:{error}"]


def dated(lines, at="Thu Sep 17 21:05:10 2020"):
    """As `horovodrun --prefix-output-with-timestamp` prints them."""
    return [line.replace("[1,", f"{at}[").replace(",]<", "]<") for line in lines]


TRACEBACK = "Traceback (most recent call last):"
FULL = "ResourceExhaustedError: OOM when allocating tensor with shape[8,512] and type float on /job:localhost/"
LATE = [*steps(1, 2), *stalled(2), *stalled(2), *steps(3, 4), *stalled(2), *steps(5), *stalled(2), *steps(6, 7)]
SAVES = [line.replace("2: [", "0: [") for line in LATE]
CASES = {
    "the others waited for one rank again and again, and trained on": (LATE, answer("slow", 2)),
    "with a date in front": (dated(LATE), answer("slow", 2)),
    "they waited for one rank, then for another": (
        [*LATE, *stalled(1), *steps(8, 9)],
        answer("none", unknown=True),
    ),
    "twice may be chance": ([*stalled(2), *steps(1), *stalled(2), *steps(2)], answer("none", unknown=True)),
    "the rank saved each time": (
        [
            line
            for one in SAVES
            for line in ([one, "[1,0]<stderr>:saving model"] if one.endswith("seconds.") else [one])
        ],
        answer("none", unknown=True),
    ),
    "they wait for it once more": ([*LATE, *stalled(2)], answer("absent", 2)),
    "a rank marked as too late": (
        [*steps(1, 2), *(line.replace("2: [", "2!: [") for line in stalled(2, head="Missing"))],
        answer("absent", 2),
    ),
    "a process that was killed, by Horovod's own launcher": (
        [
            *(line.replace("[1,", "[") for line in steps(1, 2)),
            "Exception: Horovod detected that one or more processes exited with non-zero status, thus causing the"
            " job to be terminated. The first process to do so was:",
            *("Process name: 3", "Exit code: 137"),
        ],
        answer("killed", 3),
    ),
    "TensorFlow's words on a full GPU": (
        [*steps(1, 2), *_lines(2, f"[1,2]<stderr>:{TRACEBACK}", f"{FULL}device:GPU:0 by allocator GPU_0_bfc")],
        answer("device_memory", 2),
    ),
    "one of four is in another call": (
        [f"[1,0]<stderr>:{STALL}", *(f"[1,0]<stderr>:{row}" for row in ("Missing ranks:", "0: [size]", "1: [size]"))]
        + [f"[1,0]<stderr>:{row}" for row in ("2: [size]", "3: [grad_0, grad_1 ...]")],
        answer("desync", 3),
    ),
    "tensors of two shapes": (
        unlike("ALLREDUCE tensor shapes", "sent a tensor of shape [4, 36]", "sent a tensor of shape [4, 24]"),
        answer("sizes", unknown=True),
    ),
    "tensors of two dimensions": (
        unlike("ALLGATHER tensor shapes", "sent a tensor of rank 2", "sent a tensor of rank 3"),
        answer("sizes", unknown=True),
    ),
    "tensors of two types": (
        unlike("data types", "had type float16", "had type float32"),
        answer("sizes", unknown=True),
    ),
    "two operations": (unlike("operations", "did an ALLREDUCE", "did an BROADCAST"), answer("desync", unknown=True)),
    "two roots": (
        unlike("BROADCAST root ranks", "specified root rank 0", "specified root rank 1"),
        answer("desync", unknown=True),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_horovod_says_of_its_ranks_is_read(name, tmp_path):
    lines, wanted = CASES[name]
    verdict = judge(tmp_path, lines)
    assert told(verdict, wanted) == wanted, str(verdict)
