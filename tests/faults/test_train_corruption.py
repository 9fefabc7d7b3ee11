"""A whole job in which a bit flips: the rank is named, and what is gone on from is a state from before the flip."""

import pytest

from meshwright.layout import Layout
from meshwright.train.checkpoint.folder import checkpoints, is_whole
from meshwright.train.checkpoint.manifest import read_manifest
from meshwright.train.integrity.flips import FLIP_VARIABLE
from testkit.caches import new_cache
from testkit.fault_jobs import Job, events, final_weights
from testkit.train_jobs import losses, small_job, write_corpus, write_run

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]
STEPS, EVERY, AT = 40, 10, 25  # the last checkpoint before the flip is that of step 20
BATCH = 12  # sequences: for two ranks, for three, and for two that are left of three


@pytest.fixture(scope="module")
def begin(tmp_path_factory):
    """Return a function that runs a job of some ranks to its end; it returns folder, exit code and standard error."""
    base = tmp_path_factory.mktemp("corruption")
    corpus = write_corpus(base)
    jobs = []

    def go_on(folder, flip=""):
        environment = {"XDG_CACHE_HOME": new_cache(base / "cache"), "OMP_NUM_THREADS": "1", FLIP_VARIABLE: flip}
        jobs.append(Job(["--resume", str(folder.path)], environment))
        code, errors = jobs[-1].end(timeout_s=400)
        assert jobs[-1].nobody_is_left()
        return folder, code, errors

    def run(name, ranks, flip="", **train):
        train = {"steps": STEPS, "checkpoint_every": EVERY, "keep_last": 0, "record": False} | train
        job = small_job(corpus, global_batch=BATCH, **train)
        return go_on(write_run(base / name, job, Layout(dp=ranks, mbs=2)), flip)

    run.go_on = go_on
    yield run
    for started in jobs:
        started.kill()


@pytest.fixture(scope="module")
def undisturbed(begin):
    """Return losses and final weights by the number of ranks, of runs that nothing happened to."""
    found = {}
    for ranks in (2, 3):
        folder, code, errors = begin(f"undisturbed-{ranks}", ranks)
        assert code == 0, errors
        assert not events(folder)
        found[ranks] = losses(folder), final_weights(folder)
    return found


def saved_steps(folder):
    """Return the steps of all checkpoints, each of which is whole."""
    found = checkpoints(folder.checkpoints)
    assert all(is_whole(path) for path in found)
    return sorted(read_manifest(path).facts.step for path in found)


@pytest.mark.parametrize(("ranks", "flip", "culprit"), [(2, "1:25:weight:3", 1), (3, "0:25:exp_avg:20", 0)])
def test_a_flipped_bit_ends_the_job_and_what_is_resumed_is_from_before_it(begin, undisturbed, ranks, flip, culprit):
    folder, code, errors = begin(f"end-{ranks}", ranks, flip)

    assert code == 1, errors
    assert f"wrong on rank {culprit} (" in errors[-1]
    (event,) = events(folder, "corruption")
    assert event.culprit == culprit
    assert AT <= event.step < AT + 10
    assert not events(folder, "restart")
    assert saved_steps(folder) == [10, 20]

    folder, code, errors = begin.go_on(folder)
    assert code == 0, errors
    assert (losses(folder), final_weights(folder)) == undisturbed[ranks]


@pytest.mark.parametrize(
    ("ranks", "flip", "settings"),
    [
        (2, "0:25:exp_avg_sq:23", {}),
        (3, "2:25:weight:30", {}),
        (2, "1:24:received:3", {"replay": 5}),
        (2, "1:24:gradient:3", {"replay": 5}),
    ],
)
def test_ranks_that_are_started_again_end_as_if_no_bit_had_flipped(begin, undisturbed, ranks, flip, settings):
    folder, code, errors = begin(f"again-{flip}", ranks, flip, on_corruption="restart", **settings)

    assert code == 0, errors
    (event,) = events(folder, "corruption")
    assert event.culprit == int(flip[0])
    (resumed,) = events(folder, "resume")
    assert resumed.step == 20
    assert (losses(folder), final_weights(folder)) == undisturbed[ranks]


def test_the_rank_to_blame_is_left_out_and_the_others_go_on_from_before_the_flip(begin, undisturbed):
    folder, code, errors = begin("without", 3, "1:25:weight:3", on_corruption="exclude")

    assert code == 0, errors
    (event,) = events(folder, "corruption")
    assert (event.culprit, event.step) == (1, 29)
    (resumed,) = events(folder, "resume")
    assert (resumed.step, len(events(folder, "restart"))) == (20, 1)
    saved = [read_manifest(path).facts for path in checkpoints(folder.checkpoints)]
    assert {facts.step: facts.ranks for facts in saved} == {10: 3, 20: 3, 30: 2, 40: 2}
    found = losses(folder)
    assert len(found) == STEPS
    assert found[:20] == undisturbed[3][0][:20]
    assert found == pytest.approx(undisturbed[3][0], rel=1e-4)  # sums of two ranks are rounded in another order


def test_a_gradient_that_is_infinite_once_is_gone_back_from_once(begin, undisturbed):
    flip = "0:25:received:30,1:25:received:30"  # the same on both, so that no copies differ
    folder, code, errors = begin("rewind", 2, flip, on_not_finite="rewind")

    assert code == 0, errors
    (event,) = events(folder, "not_finite")
    (resumed,) = events(folder, "resume")
    assert (event.step, resumed.step, len(events(folder, "restart"))) == (AT, 20, 1)
    assert not events(folder, "corruption")
    assert not events(folder, "failure")
    assert (losses(folder), final_weights(folder)) == undisturbed[2]
