"""A checkpoint that was saved under one layout goes on under another, on other ranks, as if nothing had been."""

import itertools

import pytest

from meshwright.layout import Layout
from meshwright.train.checkpoint.manifest import read_manifest
from meshwright.train.checkpoint.stored import verify_pieces
from testkit.reshard import LAYOUTS, SAVED, goes_on, train
from testkit.train_jobs import write_corpus

FAST = (
    ("dp=4,mbs=1,zero=3", "dp=2,tp=2,mbs=2,sp=1,zero=2"),
    ("dp=2,tp=2,mbs=2,sp=1,zero=2", "dp=2,mbs=2,zero=1"),
    ("dp=1,pp=2,mbs=2,vpp=2,schedule=interleaved", "dp=4,mbs=1,zero=3"),
)
pytestmark = pytest.mark.timeout(400)  # eight ranks on two cores, beside whatever else runs


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def saved(tmp_path, corpus, rank_pool):
    """Return a function from a layout to a run of ten steps that saved after five, and after the last."""
    done = {}

    def run(layout: str):
        if layout not in done:
            done[layout] = train(tmp_path / f"saved-{len(done)}", corpus, layout, rank_pool)
        return done[layout]

    return run


@pytest.mark.parametrize(("wrote", "reads"), FAST)
def test_the_next_losses_are_the_same_under_another_layout(wrote, reads, tmp_path, corpus, rank_pool, saved):
    assert goes_on(tmp_path, corpus, rank_pool, saved, wrote, reads) < 1e-6
    checkpoint = saved(wrote).checkpoints / f"step-{SAVED:08d}"
    manifest = read_manifest(checkpoint)
    assert manifest.facts.layout == str(Layout.parse(wrote))
    assert verify_pieces(checkpoint, manifest) > 0


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(900)
def test_every_layout_loads_what_every_other_has_saved(tmp_path, corpus, rank_pool, saved):
    differences = {
        (wrote, reads): goes_on(tmp_path, corpus, rank_pool, saved, wrote, reads)
        for wrote, reads in itertools.permutations(LAYOUTS, 2)
    }

    assert len(differences) == 90
    assert {pair: d for pair, d in differences.items() if not d < 1e-6} == {}
