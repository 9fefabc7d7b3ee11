"""Data parallelism changes who computes, not what is computed."""

import shutil

import pytest

from meshwright.layout import Layout
from testkit.train_jobs import losses, run_rank, small_job, write_corpus, write_run

LAYOUTS = ["dp=1,mbs=2", "dp=2,mbs=4", "dp=2,mbs=2", "dp=4,mbs=2", "dp=4,mbs=1", "dp=2,mbs=4,recompute=full"]


@pytest.mark.parametrize("backend", ["gloo", "meshwright"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_losses_equal_those_of_one_process_with_the_same_global_batch(layout, backend, tmp_path, rank_pool):
    job = small_job(write_corpus(tmp_path))
    alone = write_run(tmp_path / "alone", job, Layout(dp=1, mbs=8))
    split = write_run(tmp_path / "split", job, Layout.parse(layout))

    rank_pool(1).run(run_rank, str(alone.path))
    rank_pool(split.plan().layout.dp).run(run_rank, str(split.path), backend)

    assert len(losses(alone)) == 20
    assert losses(split) == pytest.approx(losses(alone), rel=1e-6)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile needs a C++ compiler on CPUs")
@pytest.mark.parametrize("layout", ["dp=2,mbs=4", "dp=2,mbs=2,zero=3,recompute=full"])
def test_compiled_layers_train_as_the_others_do(layout, tmp_path, rank_pool):
    corpus = write_corpus(tmp_path)
    plain = write_run(tmp_path / "plain", small_job(corpus), Layout.parse(layout))
    compiled = write_run(tmp_path / "compiled", small_job(corpus, compile=True), Layout.parse(layout))

    rank_pool(2).run(run_rank, str(plain.path))
    rank_pool(2).run(run_rank, str(compiled.path), timeout_s=280)

    assert losses(compiled) == pytest.approx(losses(plain), rel=1e-4)
