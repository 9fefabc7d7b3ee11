"""Trains a small model with transformers' Trainer.

Arguments: a backend, how it is chosen ("named": ddp_backend; "first": the group is made first; "unset": Trainer's own).
"""

import sys
import tempfile

import torch
import torch.distributed as dist
from reporting import report
from transformers import Trainer, TrainingArguments

import meshwright  # noqa: F401  (a user who has it installed needs no import)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))

    def forward(self, x, labels):
        out = self.layers(x).squeeze(-1)
        return {"loss": torch.nn.functional.mse_loss(out, labels), "logits": out}


backend, how = sys.argv[1:3]
if how == "first":
    dist.init_process_group(backend)
torch.manual_seed(0)
rows = [{"x": torch.randn(8), "labels": torch.randn(())} for _ in range(32)]
arguments = TrainingArguments(
    tempfile.mkdtemp(), use_cpu=True, ddp_backend=backend if how == "named" else None, report_to=[], max_steps=5,
    per_device_train_batch_size=2, logging_steps=1, save_strategy="no", disable_tqdm=True, seed=1,
)  # fmt: skip
trainer = Trainer(Model(), arguments, train_dataset=rows, eval_dataset=rows)
trainer.train()
losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
report(
    world=arguments.world_size,
    losses=losses,
    evaluated=trainer.evaluate()["eval_loss"],
    predictions=trainer.predict(rows).predictions.tolist(),
    weights=[p.detach() for p in trainer.model.parameters()],
)
