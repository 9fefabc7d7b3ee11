"""Trains with Lightning's DDP. Arguments: a backend, a start method (popen, spawn, fork), a number of ranks."""

import sys
import tempfile

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from reporting import report

import meshwright  # noqa: F401  (a user who has it installed needs no import)


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        self.losses = []

    def training_step(self, batch):
        loss = self.layers(batch).square().mean()
        self.log("loss", loss, sync_dist=True)
        self.losses.append(self.all_gather(loss.detach()).flatten())
        return loss

    def validation_step(self, batch):
        self.log("validation", self.layers(batch).mean(), sync_dist=True)

    def on_train_end(self):
        logged = {name: float(value) for name, value in self.trainer.callback_metrics.items()}
        report(losses=self.losses, logged=logged, weights=list(self.parameters()))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    backend, start_method, ranks = sys.argv[1:]
    lightning.seed_everything(0)
    rows = torch.randn(32, 8)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=int(ranks), max_epochs=2, logger=False, enable_checkpointing=False,
        strategy=DDPStrategy(process_group_backend=backend, start_method=start_method), enable_progress_bar=False,
        default_root_dir=tempfile.mkdtemp(), num_sanity_val_steps=0,
    )  # fmt: skip
    loader = torch.utils.data.DataLoader(rows, batch_size=4)
    trainer.fit(Module(), loader, loader)
