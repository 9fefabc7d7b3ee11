"""How far a calibration is, as it is said while it goes on."""

from meshwright.bench.ranks.progress import Progress, ProgressTeller


def test_a_calibration_says_how_much_is_done_and_how_long_the_rest_takes(tmp_path):
    progress, said, now = Progress(tmp_path / "done", total=40), [], [0.0]
    watch = ProgressTeller(progress, said.append, clock=lambda: now[0])

    assert not watch()  # nothing is done yet
    for time_s, done in ((20.0, 10), (22.0, 15), (25.0, 5), (31.0, 10)):
        for _ in range(done):
            progress.count()
        now[0] = time_s
        assert watch()
    assert not watch()

    # the 20 s in which the ranks started are no part of the pace
    assert said == [
        "  10 of 40 done after 20 s",
        "  30 of 40 done, about 2 s left",
        "  40 of 40 done; the pace of the ranks and the rate of memory are left",
    ]


def test_a_calibration_that_has_measured_nothing_yet_promises_no_time(tmp_path):
    said, now = [], [0.0]
    watch = ProgressTeller(Progress(tmp_path / "done", total=40), said.append, clock=lambda: now[0])

    for now[0] in range(1, 40):
        assert not watch()
    assert said == ["  0 of 40 done after 30 s"]  # and not a line every few seconds
