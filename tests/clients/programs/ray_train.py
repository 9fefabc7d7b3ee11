"""Trains with Ray Train, whose workers know the backend by its name alone. Arguments: a backend, a number of ranks."""

import sys
import tempfile
from pathlib import Path

import ray
import ray.train
import torch
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model


def train(settings):
    import torch.distributed as dist

    torch.manual_seed(0)
    model = prepare_model(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rank = dist.get_rank()
    for step in range(3):
        optimizer.zero_grad()
        loss = model(torch.full((2, 8), float(rank + step))).square().mean()
        loss.backward()
        optimizer.step()
    total = torch.tensor([rank + 1.0])
    dist.all_reduce(total)
    sys.path.insert(0, settings["programs"])
    from reporting import report

    report(name=dist.get_backend() == settings["backend"], sum=total, weights=list(model.parameters()))
    ray.train.report({"loss": float(loss)})


if __name__ == "__main__":
    backend, ranks = sys.argv[1], int(sys.argv[2])
    ray.init(num_cpus=ranks, include_dashboard=False)
    TorchTrainer(
        train,
        train_loop_config={"backend": backend, "programs": str(Path(__file__).parent)},
        torch_config=TorchConfig(backend=backend),
        scaling_config=ray.train.ScalingConfig(num_workers=ranks),
        run_config=ray.train.RunConfig(storage_path=tempfile.mkdtemp()),
    ).fit()
    ray.shutdown()
