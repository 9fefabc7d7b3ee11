"""Where tensor parallelism can overlap with its products; what it computes is in tests/multiproc/parallel."""

import pytest
import torch
from torch import nn

from meshwright.errors import InputError
from meshwright.layout import Layout, Plan
from meshwright.parallel.api import Silent
from meshwright.parallel.build import build_engine
from meshwright.parallel.engine import Settings
from meshwright.parallel.spmd.overlapped import check_overlappable
from meshwright.train.job.config import load_job
from meshwright.train.model.engine_settings import engine_settings
from testkit.train_jobs import UNMEASURED

CUT = Layout.parse("dp=2,tp=4,sp=1")


@pytest.mark.parametrize(
    ("layout", "device", "hosts", "reason"),
    [
        ("dp=1,tp=2,sp=1", "cpu", (), "on GPUs alone, through memory that they share; leave it off on CPUs"),
        ("dp=2", "cuda", (), "expected a layout with tp of 2 or more and sp=1 .launch.layout., got dp=2"),
        ("dp=1,tp=2", "cuda", (), "expected a layout with tp of 2 or more and sp=1"),
        ("dp=1,tp=2,pp=2,sp=1,schedule=zb", "cuda", (), "schedule=zb goes through each product's backward twice"),
        ("dp=1,tp=4,sp=1", "cuda", ((0, 1), (2, 3)), "and tp = 4 of .* crosses hosts"),
    ],
)
def test_where_it_cannot_overlap_it_says_why(layout, device, hosts, reason):
    with pytest.raises(InputError, match=reason):
        check_overlappable(Layout.parse(layout), torch.device(device), hosts)


def test_on_gpus_of_one_host_and_where_each_host_has_its_own_groups_it_can():
    check_overlappable(CUT, torch.device("cuda"))
    check_overlappable(CUT, torch.device("cuda"), (tuple(range(8)),))
    check_overlappable(CUT, torch.device("cuda"), ((0, 1, 2, 3), (4, 5, 6, 7)))


def test_the_switch_of_a_job_reaches_the_engine_which_refuses_it_on_cpus():
    plan = Plan(layout=CUT, predicted=UNMEASURED, global_batch_sequences=8, seq_len=8, bucket_bytes=1)

    for switched in (True, False):
        job = load_job(None, {"train.async_tensor_parallel": switched})
        assert engine_settings(job, torch.device("cpu"), Silent()).async_tensor_parallel is switched
    settings = Settings(torch.device("cpu"), lambda part: None, Silent(), async_tensor_parallel=True)
    with pytest.raises(InputError, match=r"train.async_tensor_parallel: .* leave it off on CPUs"):
        build_engine(nn.Linear(2, 2), plan, settings)
