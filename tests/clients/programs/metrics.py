"""Computes metrics of torchmetrics over all ranks. Argument: a backend."""

import sys

import torch
import torch.distributed as dist
from reporting import report
from torchmetrics import CatMetric, MeanMetric
from torchmetrics.classification import MulticlassAccuracy, MulticlassAUROC, MulticlassConfusionMatrix
from torchmetrics.regression import PearsonCorrCoef

import meshwright  # noqa: F401  (a user who has it installed needs no import)

dist.init_process_group(sys.argv[1])
rank = dist.get_rank()
torch.manual_seed(rank)
rows = 20 + 7 * rank  # ranks with unequally many
scores, labels = torch.randn(rows, 4).softmax(-1), torch.arange(rows) % 4
found = {}
for metric in (MulticlassAccuracy(4), MulticlassAUROC(4), MulticlassConfusionMatrix(4)):
    metric.update(scores, labels)
    found[type(metric).__name__] = metric.compute()
for metric in (MeanMetric(), CatMetric()):
    metric.update(scores[:, 0])
    found[type(metric).__name__] = metric.compute()
correlation = PearsonCorrCoef()
correlation.update(scores[:, 0], scores[:, 1])
report(correlation=correlation.compute(), **found)
dist.destroy_process_group()
