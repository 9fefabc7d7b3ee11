"""Jobs that go on under another layout than the one that saved them."""

import shutil

import msgspec

from meshwright.layout import Layout
from testkit.train_jobs import losses, run_rank, small_job, write_run

LAYOUTS = (
    "dp=1,mbs=4",
    "dp=4,mbs=2",
    "dp=2,mbs=2,zero=1",
    "dp=4,mbs=1,zero=3",
    "dp=4,mbs=2,zero=3,replicas=2",
    "dp=2,tp=2,mbs=2,sp=1,zero=2",
    "dp=1,tp=4,mbs=4",
    "dp=1,pp=2,mbs=2,vpp=2,schedule=interleaved",
    "dp=2,tp=2,pp=2,mbs=2,zero=1",
    "dp=2,tp=2,cp=2,mbs=2,zero=3,sp=1",
)
SAVED, STEPS = 5, 10
PATIENCE_S = 150.0


def train(path, corpus, layout, rank_pool, start=None):
    """Train under a layout, from the checkpoint of another run where one is given; return the run folder."""
    job = small_job(corpus, steps=STEPS, checkpoint_every=SAVED)
    model = msgspec.structs.replace(job.model, num_hidden_layers=4, num_key_value_heads=4)
    chosen = Layout.parse(layout)
    folder = write_run(path, msgspec.structs.replace(job, model=model), chosen)
    if start is not None:
        shutil.copytree(start, folder.checkpoints / start.name)
    stopped = rank_pool(chosen.world_size).run(run_rank, str(folder.path), timeout_s=PATIENCE_S)
    assert stopped == [""] * chosen.world_size
    return folder


def goes_on(tmp_path, corpus, rank_pool, saved, wrote, reads):
    """Load what one layout has saved under another; return the largest relative difference of the next losses."""
    before = saved(wrote)
    start = before.checkpoints / f"step-{SAVED:08d}"
    after = train(tmp_path / "after", corpus, reads, rank_pool, start)
    shutil.rmtree(tmp_path / "after" / "checkpoints")
    found, expected = losses(after), losses(before)[SAVED:]
    shutil.rmtree(tmp_path / "after")
    assert len(found) == len(expected) == STEPS - SAVED
    return max(abs(a - b) / b for a, b in zip(found, expected, strict=True))
