"""A job hangs, and its files say why: two emulated nodes of two ranks, of which rank 2 waits for its data.

    python examples/hung_job.py [FOLDER]

Four ranks train with torch's own backend gloo (root or user namespaces are needed). At step 5 the data of rank 2 do not
come; the others wait in an all-reduce until it times out. Every rank leaves a log, its stack, and torch's flight
record. You see what `meshwright doctor --logs FOLDER` makes of them: the rank, the call that the others wait in, and
what that rank does instead.
"""

import datetime
import faulthandler
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

STEPS, TIMEOUT_S, LEAVE_S = 8, 4.0, 7.0


class Samples(Dataset):
    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, step: int) -> torch.Tensor:
        if (os.environ["RANK"], step) == ("2", 5):
            time.sleep(60)  # a file system that is gone
        return torch.full((1000,), float(step))


def train(folder: Path) -> None:
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=TIMEOUT_S))
    leave = threading.Timer(LEAVE_S, leave_files, (folder, rank))
    leave.start()
    with open(folder / f"rank{rank}.log", "w", buffering=1) as log:
        try:
            for step, batch in enumerate(DataLoader(Samples())):
                loss = batch.mean()
                dist.all_reduce(loss)
                print(f"step {step} loss {loss:.2f}", file=log)
        except RuntimeError as error:
            print(f"[rank{rank}]: RuntimeError: {error}", file=log)
        leave.join()


def leave_files(folder: Path, rank: int) -> None:
    """Write stack and flight record from a thread of its own, as a watchdog does, and end the process."""
    with open(folder / f"stack-rank{rank}.txt", "w") as file:
        faulthandler.dump_traceback(file, all_threads=True)
    (folder / f"nccl_trace_rank_{rank}").write_bytes(torch._C._distributed_c10d._dump_fr_trace())
    os._exit(1)


def main() -> None:
    if "RANK" in os.environ:
        return train(Path(sys.argv[1]))
    with tempfile.TemporaryDirectory() as made:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else made).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        words = ["emulate", "--nodes", "2", "--ranks-per-node", "2", "--", sys.executable, __file__, str(folder)]
        job = subprocess.run([sys.executable, "-m", "meshwright", *words], capture_output=True, text=True, check=False)
        if not list(folder.glob("nccl_trace_rank_*")):
            raise SystemExit(job.stdout[-2000:] + job.stderr[-2000:])
        doctor = [sys.executable, "-m", "meshwright", "doctor", "--logs", str(folder)]
        print(subprocess.run(doctor, capture_output=True, text=True, check=False).stdout, end="")


if __name__ == "__main__":
    main()
