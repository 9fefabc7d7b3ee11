"""Steps to try next: by the reason where it has its own, not by the kind alone."""

import pytest

from .made import judge

WARN = "node-a:70:79 [0] misc/ibvwrap.cc:201 NCCL WARN "
REASONS = {
    "a name without an address": (
        "torch.distributed.DistNetworkError: The client socket has failed to resolve fit-0.fit: Name or service not"
        " known",
        "getent hosts",
    ),
    "memory that cannot be pinned": (WARN + "Call to ibv_reg_mr failed with error Cannot allocate memory", "ulimit -l"),
    "memory that is not registered": (
        "node-a:70:79 [0] ib_plugin.c:1105 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<5542> with error 4,"
        " opcode 0, len 0, vendor err 81 (Send)",
        "NCCL_NET_GDR_LEVEL",
    ),
    "a port that is taken": (
        "RuntimeError: The server socket has failed to bind to 0.0.0.0:29500 (errno: 98 - Address already in use).",
        "ss -ltnp",
    ),
    "too many files": ("[rank1]: OSError: [Errno 24] Too many open files: '/data/7.npy'", "ulimit -n"),
    "too many threads": ("[rank1]: RuntimeError: can't start new thread", "ulimit -u"),
    "a full disk": ("[rank1]: OSError: [Errno 28] No space left on device: '/ckpt/7.pt'", "df -h"),
    "a loss that is no number": ("[rank1]: ValueError: loss became NaN at step 90", "learning rate"),
    "a loader's worker": (
        "[rank1]: RuntimeError: DataLoader worker (pid(s) 411) exited unexpectedly",
        "num_workers=0",
    ),
    "a full /dev/shm": (
        "[rank1]: RuntimeError: unable to write to file </torch_71_9>: No space left on device (28)",
        "--shm-size",
    ),
    "an assertion of a kernel": ("[rank1]: RuntimeError: CUDA error: device-side assert triggered", "Assertion"),
    "a kernel out of bounds": (
        "[rank1]: RuntimeError: CUDA error: an illegal memory access was encountered",
        "compute-sanitizer",
    ),
    "a fault of a switch": (
        "[9.1] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 32 sourcetrack timeout error (First)",
        "NVSwitches",
    ),
}


@pytest.mark.parametrize(("line", "step"), REASONS.values(), ids=REASONS)
def test_what_to_try_next_fits_the_reason(line, step, tmp_path):
    verdict = judge(tmp_path, [line])

    assert step in verdict.next[0]
    assert not any("ib_write_bw" in one for one in verdict.next)


def test_a_pod_that_does_not_start_is_looked_for_in_its_events(tmp_path):
    rows = [
        "NAME           READY   STATUS             RESTARTS   AGE",
        "fit-worker-0   1/1     Running            0          9m",
    ]
    verdict = judge(tmp_path, {"pods.txt": [*rows, "fit-worker-1   0/1     ImagePullBackOff   0          9m"]})

    assert "kubectl describe pod" in verdict.next[0]
