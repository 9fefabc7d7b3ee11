"""The undisturbed run that a disturbed one is held against, from what its rank 0 wrote down."""

from benchmarks.faults_truth import Part, parts_of
from meshwright.train.run.events import Event


def resumed(step):
    return Event(kind="resume", message=f"goes on from step {step}", rank=0, step=step)


def replanned(ranks, layout):
    return Event(kind="replan", message=f"{ranks} ranks in place of 3: layout {layout} in place of dp=3", rank=0)


def test_a_run_that_went_on_with_all_ranks_is_held_against_one_that_nothing_happened_to():
    assert parts_of([resumed(40), resumed(80)]) == (Part(0, 4),)


def test_steps_that_were_done_with_fewer_ranks_count_from_the_checkpoint_that_they_went_on_from():
    events = [resumed(20), replanned(2, "dp=2,mbs=6"), resumed(40), resumed(60)]

    assert parts_of(events) == (Part(0, 4), Part(40, 2, "dp=2,mbs=6"))


def test_steps_that_were_done_again_with_all_ranks_count_as_if_nothing_had_been():
    events = [replanned(2, "dp=2,mbs=6"), resumed(40), replanned(4, "dp=4,mbs=3"), resumed(40)]

    assert parts_of(events) == (Part(0, 4),)


def test_all_ranks_after_fewer_go_on_from_what_the_fewer_made():
    events = [replanned(2, "dp=2,mbs=6"), resumed(40), replanned(4, "dp=4,mbs=3"), resumed(60)]

    assert parts_of(events) == (Part(0, 4), Part(40, 2, "dp=2,mbs=6"), Part(60, 4))
