"""The shortened benchmarks of predictions: what is run in the time given, and what is said of the rest."""

import itertools

from benchmarks.planner_choice import LAYOUTS, _options, same
from benchmarks.prediction import in_time, parts_told
from meshwright.layout import Layout


class Timed:
    """A launch that takes its seconds by a clock of its own."""

    now_s = 0.0

    def __init__(self, name, seconds):
        self.name, self.ranks, self.seconds = name, 1, seconds

    def outcome(self):
        Timed.now_s += self.seconds
        return {"took": self.seconds}


def run(minutes, *seconds):
    Timed.now_s = 0.0
    launches = [Timed(f"job {number}", each) for number, each in enumerate(seconds)]
    found, left_out = in_time(launches, minutes, clock=lambda: Timed.now_s)
    return len(found), left_out, Timed.now_s


def test_no_launch_begins_that_would_end_after_the_minutes():
    assert run(2, 50, 30, 30, 30) == (2, ["job 2 on 1", "job 3 on 1"], 80)
    assert run(None, 50, 30, 30, 30) == (4, [], 140)


def test_the_first_launch_is_made_however_short_the_time():
    assert run(0.1, 50, 30)[0] == 1


def test_a_job_that_ran_in_an_earlier_round_is_not_left_out():
    Timed.now_s = 0.0
    launches = [Timed("job", 40), Timed("job", 40)]

    found, left_out = in_time(launches, 1, clock=lambda: Timed.now_s)

    assert [len(each) for each in found.values()] == [1]
    assert left_out == []


def test_minutes_make_one_round_at_one_rate_with_layouts_of_every_kind_first():
    options = _options(["--minutes", "4"])

    assert (options.nic, options.rounds) == (["1Gbps"], 1)
    assert sorted(options.layouts) == sorted(LAYOUTS)
    assert {"tp", "pp", "cp"} <= {text[:2] for text in itertools.islice(options.layouts, 8)}
    assert same("tp=8,mbs=16", str(Layout(tp=8, mbs=16)))
    assert not same("tp=8,mbs=16", str(Layout(tp=8, mbs=8)))
    assert _options([]).rounds == 3


def test_parts_above_a_millisecond_are_told_with_their_errors_the_largest_first():
    silent = {"data_s": 0.0, "backward_s": 0.0, "bubble_s": 0.0}
    predicted = silent | {"forward_s": 0.018, "optimizer_s": 0.0014, "exposed_comm_s": 0.0001}
    measured = silent | {"forward_s": 0.020, "optimizer_s": 0.0020, "exposed_comm_s": 0.0009}

    assert parts_told([{"predicted": predicted, "measured": measured}]) == "optimizer -30, forward -10"
