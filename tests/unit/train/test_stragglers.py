"""A slow rank or link is named within a few steps; healthy ones are left alone."""

import random
from pathlib import Path

from meshwright.backend.hosts.link_rates import Carried
from meshwright.train.measure.stragglers import SlowLinks, SlowRanks


def steps(rng, ranks, *, slow=None, times=1.0, base_s=0.01):
    """Return how long each rank works in a step: a fifth of scatter, now and then a hiccup."""
    return [
        base_s * rng.lognormvariate(0, 0.2) * (4 if rng.random() < 0.02 else 1) * (times if rank == slow else 1)
        for rank in range(ranks)
    ]


def test_a_slow_rank_is_named_once_and_again_after_it_had_recovered():
    rng, detector = random.Random(1), SlowRanks(4)
    for _ in range(100):
        assert detector.observe(steps(rng, 4)) == []

    named = [(step, f) for step in range(40) for f in detector.observe(steps(rng, 4, slow=2, times=2.0))]
    assert [f.culprit for _, f in named] == [2]
    assert named[0][0] < 20
    assert "rank 2 is slow: it works" in named[0][1].message
    assert 1.5 < named[0][1].evidence["ratio"] < 2.5

    for _ in range(50):
        assert detector.observe(steps(rng, 4)) == []
    again = [f for _ in range(40) for f in detector.observe(steps(rng, 4, slow=2, times=2.0))]
    assert [f.culprit for f in again] == [2]


def test_a_hundred_thousand_healthy_steps_give_no_false_alarm():
    rng = random.Random(2)
    for ranks in (2, 4, 8):
        detector = SlowRanks(ranks)
        assert [f.message for _ in range(100_000 // ranks) for f in detector.observe(steps(rng, ranks))] == []


def test_a_single_step_that_stalls_is_told_of():
    detector = SlowRanks(3)

    [found] = detector.observe([0.02, 5.0, 0.02])

    assert found.culprit == 1
    assert "worked 5 s in one step, the others 20 ms" in found.message


def test_where_ranks_share_cores_only_work_that_waiting_does_not_explain_makes_one_slow():
    rng, crowded = random.Random(4), SlowRanks(3, crowded=True)
    for _ in range(40):  # rank 1 waits for a core as long as the others work
        work = steps(rng, 3)
        assert crowded.observe([work[0], 2 * work[1], work[2]], [0.0, work[1], 0.0]) == []
    stalled = [0.02, 5.0, 0.02]
    assert crowded.observe(stalled, [0.0, 4.9, 0.0]) == []

    assert crowded.observe([0.02, 1.5, 0.02], [0.0, 0.6, 0.0]) == []  # 0.88 s are left: no stall
    assert [f.culprit for f in crowded.observe(stalled, [0.0, 0.1, 0.0])] == [1]
    slow = [f for _ in range(40) for f in crowded.observe(steps(rng, 3, slow=2, times=2.0), [0.001] * 3)]
    assert [f.culprit for f in slow] == [2]


def shared_cores(rng, detector, seconds, start_s, *, step_s=0.025, **slow):
    """Let ranks that share cores work for a while; return the ranks that were named, and the time at the end."""
    found, now_s = [], start_s
    while now_s < start_s + seconds:
        now_s += step_s
        found += detector.observe(steps(rng, 4, **slow), [0.0] * 4, now_s=now_s)
    return found, now_s


def test_a_rank_of_long_steps_that_now_and_then_waits_for_a_core_is_slow_all_the_same():
    crowded = SlowRanks(3, crowded=True)

    found = [f for _ in range(40) for f in crowded.observe([1.0, 2.2, 1.0], [0.0, 0.3, 0.0])]

    assert [f.culprit for f in found] == [1]
    assert "2.20 times as long" in found[0].message


def test_where_ranks_share_cores_a_fraction_of_a_second_makes_none_slow():
    rng, detector, now_s = random.Random(6), SlowRanks(4, crowded=True), 0.0
    for _ in range(20):  # twelve steps take 0.3 s: somebody else had the caches, or the core
        for seconds, slow in ((2.0, {}), (2.0, {"slow": 0, "times": 1.8})):
            found, now_s = shared_cores(rng, detector, seconds, now_s, **slow)
            assert found == []

    found, _ = shared_cores(rng, detector, 6.0, now_s, slow=0, times=1.8)
    assert [each.culprit for each in found] == [0]


def test_elsewhere_a_slow_rank_is_named_at_once():
    found, _ = shared_cores(random.Random(6), SlowRanks(4), 0.5, 0.0, slow=2, times=2.0)

    assert [each.culprit for each in found] == [2]


def test_a_rank_that_a_full_disk_holds_up_is_not_called_slow():
    rng, detector = random.Random(7), SlowRanks(4)
    for _ in range(100):
        assert detector.observe(steps(rng, 4, slow=0, times=3.0)) == []
        detector.forget()  # its rows are refused

    assert [f.culprit for _ in range(20) for f in detector.observe(steps(rng, 4, slow=0, times=3.0))] == [0]


def test_a_rank_whose_cores_somebody_else_uses_is_named_with_that_reason():
    rng, detector = random.Random(5), SlowRanks(3)
    found = []
    for _ in range(40):
        work = steps(rng, 3)
        found += detector.observe([work[0], 2 * work[1], work[2]], [0.0, work[1], 0.0])

    assert [f.culprit for f in found] == [1]
    assert found[0].message.endswith("most of that because something else runs on its cores")
    assert found[0].evidence["waiting_for_a_core"] > 0.5


def test_ranks_with_different_work_are_compared_with_themselves():
    detector = SlowRanks(2, own_baseline=True)
    for _ in range(60):
        assert detector.observe([0.01, 0.03]) == []

    assert [f.culprit for _ in range(20) for f in detector.observe([0.01, 0.06])] == [1]


def carried(rng, rates):
    return {peer: Carried(100_000, 100_000 / (rate * rng.lognormvariate(0, 0.25))) for peer, rate in rates.items()}


def test_a_link_at_a_tenth_is_named_within_twenty_steps():
    rng, detector = random.Random(3), SlowLinks(0)
    for _ in range(1000):
        assert detector.observe(carried(rng, {1: 1e8, 2: 1e8})) == []

    named = [(step, f) for step in range(20) for f in detector.observe(carried(rng, {1: 1e8, 2: 1e7}))]

    assert [f.culprit for _, f in named] == [2]
    assert "the link from rank 0 to rank 2 is slow" in named[0][1].message
    for _ in range(30):
        detector.observe(carried(rng, {1: 1e8, 2: 1e8}))
    assert [f.culprit for _ in range(20) for f in detector.observe(carried(rng, {1: 1e7, 2: 1e8}))] == [1]


def test_links_that_carry_next_to_nothing_say_nothing():
    detector = SlowLinks(0)
    for _ in range(100):
        assert detector.observe({1: Carried(100, 1.0), 2: Carried(10**6, 0.0)}) == []


def recorded(name, rank, peer):
    """Yield what a connection carried in each step, and how long each rank waited for a core.

    Recorded in jobs of 2 nodes x 2 ranks in a cluster in a box on 2 cores, under a load of 13 to 17.
    """
    lines = (Path(__file__).with_name("links") / f"{name}.csv").read_text().splitlines()[1:]
    for size_bytes, busy_ms, *waited_ms in (map(float, line.split(",")) for line in lines):
        yield {peer: Carried(int(size_bytes), busy_ms / 1e3)}, [each / 1e3 for each in waited_ms]


def test_a_link_whose_ranks_wait_for_a_core_is_not_called_slow():
    steps, without = list(recorded("healthy", 1, 3)), SlowLinks(1)
    detector = SlowLinks(1)

    assert [found for carried, waited_s in steps for found in detector.observe(carried, waited_s)] == []
    assert [found.culprit for carried, _ in steps for found in without.observe(carried)] == [3]


def test_a_nic_at_a_tenth_is_named_on_a_machine_under_load_too():
    detector = SlowLinks(0)

    found = [
        (step, one)
        for step, (carried, waited_s) in enumerate(recorded("slow", 0, 2))
        for one in detector.observe(carried, waited_s)
    ]

    assert [one.culprit for _, one in found] == [2]
    assert 41 < found[0][0] < 61  # it was slowed at step 41
