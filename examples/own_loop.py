"""Your own model in your own loop: what its steps are spent on, without changing either.

    python examples/own_loop.py [FOLDER]

A small image classifier trains under DistributedDataParallel on two ranks; the only addition is torch.profiler. You see
where a step goes, and the page that `meshwright report` makes of the traces lies in FOLDER (default: build/own_loop).
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

RANKS, WAIT, STEPS = 2, 3, 4


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        first, second = nn.Conv2d(3, 16, 3, stride=2), nn.Conv2d(16, 32, 3, stride=2)
        self.features = nn.Sequential(first, nn.ReLU(), second, nn.ReLU())
        self.head = nn.Linear(32 * 7 * 7, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(images).flatten(1))


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/own_loop")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as meeting:
        mp.start_processes(train, args=(f"{meeting}/store", folder), nprocs=RANKS, start_method="fork")
    traces = [str(folder / f"rank{rank}.json") for rank in range(RANKS)]
    subprocess.run(
        [sys.executable, "-m", "meshwright", "report", *traces, "--output", str(folder / "report.html")], check=True
    )


def train(rank: int, store: str, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, RANKS), rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    model = DistributedDataParallel(Classifier())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    images, labels = torch.randn(512, 3, 32, 32), torch.randint(10, (512,))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), batch_size=32, shuffle=True)

    def save(profiler: profile) -> None:
        profiler.export_chrome_trace(str(folder / f"rank{rank}.json"))

    steps = schedule(wait=0, warmup=WAIT, active=STEPS, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=steps, on_trace_ready=save) as profiler:
        for step, (batch, target) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(batch), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profiler.step()
            if step == WAIT + STEPS:
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
