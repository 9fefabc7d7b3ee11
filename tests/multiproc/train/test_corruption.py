"""A bit that flips on one rank ends the job with that rank named, before a checkpoint holds it."""

import pytest

from meshwright.layout import Layout
from meshwright.train.checkpoint.folder import checkpoints
from meshwright.train.run.events import read_events
from meshwright.train.run.run_folder import RunFolder
from testkit.train_jobs import losses, run_flipped, run_rank, small_job, write_corpus, write_run

SETTINGS = {"steps": 12, "checkpoint_every": 6, "check_replicas": 4, "record": False}
AT = 7  # the step before which, or in which, a bit flips; the next check is that of step 7, the last one of step 11


def outcome(rank_pool, tmp_path, layout: str, flip: str, **train: object) -> tuple[RunFolder, set[str]]:
    job = small_job(write_corpus(tmp_path), **(SETTINGS | train))
    folder = write_run(tmp_path / "run", job, Layout.parse(layout))
    said = rank_pool(folder.plan().layout.world_size).run(run_flipped, str(folder.path), flip, timeout_s=250)
    return folder, set(said)


def saved(folder: RunFolder) -> list[int]:
    return [int(path.name.removeprefix("step-")) for path in checkpoints(folder.checkpoints)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("flip", [f"1:{AT}:weight:2", f"0:{AT}:exp_avg:27", f"1:{AT}:received:12"])
def test_of_two_copies_the_one_that_is_wrong_is_found_by_running_the_steps_again(flip, tmp_path, rank_pool):
    folder, said = outcome(rank_pool, tmp_path, "dp=2,mbs=4", flip)

    culprit = int(flip[0])
    (event,) = read_events(folder.events)
    assert (event.kind, event.culprit, event.step) == ("corruption", culprit, AT)
    assert said == {event.message}
    assert f"wrong on rank {culprit}" in event.message
    assert saved(folder) == [6]


@pytest.mark.timeout(300)
def test_a_gradient_that_is_not_finite_makes_no_update_and_names_the_rank(tmp_path, rank_pool):
    folder, _ = outcome(rank_pool, tmp_path, "dp=2,mbs=4", "1:8:weight:30")

    (event,) = read_events(folder.events)
    assert (event.culprit, event.step) == (1, 8)  # not at the next check, which is that of step 11
    assert saved(folder) == [6]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("where", "cause"), [("gradient", "by the computation of rank 1"), ("received", "by communication: rank 1")]
)
def test_a_replayed_step_tells_computation_from_communication(where, cause, tmp_path, rank_pool):
    folder, _ = outcome(rank_pool, tmp_path, "dp=2,mbs=2", f"1:{AT}:{where}:3", replay=1)

    (event,) = read_events(folder.events)
    assert (event.culprit, event.step) == (1, AT)
    assert cause in event.message
    assert len(losses(folder)) == AT  # the optimiser has not seen it


@pytest.mark.timeout(300)
def test_a_gradient_that_is_not_finite_in_a_step_that_is_not_replayed_names_the_rank(tmp_path, rank_pool):
    folder, _ = outcome(rank_pool, tmp_path, "dp=2,mbs=2", f"1:{AT}:gradient:30", replay=1000)

    (event,) = read_events(folder.events)
    assert (event.kind, event.culprit, event.step) == ("corruption", 1, AT)
    assert "by the computation of rank 1" in event.message
    assert len(losses(folder)) == AT


@pytest.mark.timeout(300)
def test_checks_and_replays_change_no_bit_of_a_healthy_run(tmp_path, rank_pool):
    job = small_job(write_corpus(tmp_path), **SETTINGS)
    plain = write_run(
        tmp_path / "plain", small_job(job.data.paths[0], **(SETTINGS | {"check_replicas": 0})), Layout(dp=2, mbs=2)
    )
    checked = write_run(
        tmp_path / "checked",
        small_job(job.data.paths[0], **(SETTINGS | {"check_replicas": 1, "replay": 2})),
        Layout(dp=2, mbs=2),
    )
    for folder in (plain, checked):
        rank_pool(2).run(run_rank, str(folder.path), timeout_s=250)

    assert losses(checked) == losses(plain)
    assert len(losses(plain)) == 12
    assert not read_events(checked.events)


SPLIT = [
    *("dp=2,mbs=4,zero=1", "dp=4,mbs=2,zero=2,replicas=2", "dp=4,mbs=2,zero=3,replicas=2"),
    *("dp=2,tp=2,mbs=4", "dp=2,tp=2,sp=1,mbs=4", "dp=2,cp=2,mbs=4", "dp=2,pp=2,mbs=2", "dp=2,pp=2,mbs=2,zero=1"),
]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("layout", SPLIT)
def test_a_healthy_run_of_any_layout_raises_nothing(layout, tmp_path, rank_pool):
    folder, _ = outcome(rank_pool, tmp_path, layout, "", check_replicas=1, replay=3)

    assert not read_events(folder.events)
    assert len(losses(folder)) == 12


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("layout", [text for text in SPLIT if "zero=1" not in text])
def test_a_flipped_weight_is_found_where_a_layout_has_two_copies_of_it(layout, tmp_path, rank_pool):
    folder, _ = outcome(rank_pool, tmp_path, layout, f"1:{AT}:weight:12")

    (event,) = read_events(folder.events)
    assert (event.kind, event.culprit) == ("corruption", 1)
    assert saved(folder) == [6]
