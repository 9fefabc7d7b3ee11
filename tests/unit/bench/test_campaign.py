"""The campaign of faults: scenarios by seed, and a score that sees what is wrong."""

import math
from typing import get_args

import pytest

from benchmarks.campaign import summary
from benchmarks.faults_acts import FIRST_ENDED, SLOWED, Done, Stage, act
from benchmarks.faults_manifest import ENDING, LASTS_S, TIMEOUT_S, Fault, Kind, Scenario, draw
from benchmarks.faults_play import Played
from benchmarks.faults_score import score
from benchmarks.faults_seeds import known, seed_range, store
from benchmarks.faults_systems import STEPS, Loop, Named
from meshwright.cluster.emulation import EmulationSpec
from meshwright.cluster.emulation.faults import parse_fault

RIGHT = {step: 4.0 - step / 100 for step in range(STEPS)}
OWNED = "another job has this run folder: root on node0 (pid 2, since 2026-11-27 03:39:24)"
KILL = Fault(kind="kill", after_s=0.0, node=1, rank=2)


def scenario(*faults, **how):
    return Scenario(**{"seed": 1, "at_step": 30, "min_nodes": 2, "on_storage_error": "end", "faults": faults} | how)


def played(*truth, named=(), losses=None, **what):
    """Return a run that began at 1,000 s, did a step every 0.1 s, and was whole in the end."""
    rows = [(1000.0 + step / 10, step + 1) for step in range(STEPS)]
    ends_s = what.pop("ends_s", [1021.0])
    found = RIGHT if losses is None else losses
    return Played(
        truth=list(truth), named=list(named), losses=dict(found), rows=rows, ends_s=ends_s, **{"codes": [(0, 0)]} | what
    )


def scored(run, *faults, truth=None, told="undisturbed", **how):
    return score("meshwright", scenario(*faults, **how), run, played(), truth=truth, told=told)


def test_a_seed_is_always_the_same_scenario_and_other_seeds_are_others():
    assert [draw(seed) for seed in range(50)] == [draw(seed) for seed in range(50)]
    assert len({str(draw(seed)) for seed in range(200)}) == 200


def test_two_hundred_seeds_have_every_kind_and_two_or_three_that_overlap():
    drawn = [draw(seed) for seed in range(1, 201)]

    assert {fault.kind for one in drawn for fault in one.faults} == set(get_args(Kind))
    assert {len(one.faults) for one in drawn} == {2, 3}
    assert {one.min_nodes for one in drawn} == {1, 2}
    assert all(one.faults[0].after_s == 0 and fault.after_s <= 3 for one in drawn for fault in one.faults)


def test_what_ends_a_life_lasts_longer_than_the_timeout_and_what_may_not_be_noticed_is_shorter():
    assert all(LASTS_S[kind][0] > TIMEOUT_S for kind in ENDING if kind in LASTS_S)
    assert all(LASTS_S[kind][1] < TIMEOUT_S for kind in ("stop", "cut"))


def test_kinds_that_a_machine_cannot_do_are_left_out_and_the_others_stay_as_they_are():
    for seed in range(50):
        able = [kind for kind in get_args(Kind) if kind not in {"oom", "full"}]

        assert draw(seed, able).faults == tuple(fault for fault in draw(seed).faults if fault.kind in able)


def test_a_rank_that_was_killed_and_named_is_right():
    named = Named(1005.2, "failure", "rank 2 has died", node=1, rank=2, by=0)
    row = scored(played(Done(fault=KILL, begun_s=1005.0, node=1), named=[named], ends_s=[1006.0, 1021.0]), KILL)

    assert (row["due"], row["missed"], row["named wrongly"]) == (1, [], [])
    assert (row["complete"], row["bit-identical"], row["losses wrong"]) == (True, True, False)


@pytest.mark.parametrize(
    "named",
    [
        Named(1005.2, "failure", "rank 1 has died", node=0, rank=1, by=0),
        Named(990.0, "failure", "rank 2 has died", node=1, rank=2, by=0),  # before it was killed
        Named(1005.2, "slow_link", "node1", node=1, rank=2, by=0),
        Named(1005.2, "corruption", "rank 2", node=1, rank=2, by=0),
    ],
)
def test_who_was_not_at_fault_is_named_wrongly_and_who_was_is_missed(named):
    row = scored(played(Done(fault=KILL, begun_s=1005.0, node=1), named=[named], ends_s=[1006.0, 1021.0]), KILL)

    assert len(row["named wrongly"]) == 1
    assert row["missed"] == [str(KILL)]


def test_of_two_that_end_a_life_the_first_to_bite_must_be_named_and_the_other_may_be():
    freeze = Fault(kind="freeze", after_s=0.0, node=0, rank=1)
    truth = [Done(fault=freeze, begun_s=1004.0, node=0), Done(fault=KILL, begun_s=1005.0, node=1)]
    names = [Named(1005.2, "failure", "", node=1, rank=2, by=0), Named(1005.3, "failure", "", node=0, rank=1, by=1)]
    row = scored(played(*truth, named=names, ends_s=[1006.0, 1021.0]), freeze, KILL)
    alone = scored(played(*truth, named=names[1:], ends_s=[1006.0, 1021.0]), freeze, KILL)

    assert (row["due"], row["missed"], row["named wrongly"]) == (1, [], [])
    assert alone["missed"] == [str(KILL)]


def test_a_clock_that_is_wrong_moves_the_times_of_what_its_node_says():
    clock = Fault(kind="clock", after_s=0.0, node=1, ahead_s=3600)
    truth = [Done(fault=clock, begun_s=1.0, node=1), Done(fault=KILL, begun_s=1005.0, node=1)]
    names = [
        Named(1005.2 + 3600, "failure", "", node=1, rank=2, by=1),
        Named(0.0, "clock", "node1 is 3600 s ahead", node=1),
    ]
    row = scored(played(*truth, named=names, ends_s=[1006.0, 1021.0]), clock, KILL)

    assert (row["due"], row["missed"], row["named wrongly"]) == (2, [], [])


def test_losses_that_are_off_and_steps_that_were_lost_twice_are_seen():
    off = {**RIGHT, 150: RIGHT[150] * 1.001}
    rounded = {**RIGHT, 150: RIGHT[150] * (1 + 1e-8)}

    assert scored(played(losses=off))["losses wrong"]
    assert not scored(played(losses=rounded))["losses wrong"]
    assert not scored(played(losses=rounded))["bit-identical"]
    assert scored(played(resumed=[(21, 60)]))["lost more than it had to"]
    assert not scored(played(resumed=[(61, 60)]))["lost more than it had to"]
    assert not scored(played(losses={0: RIGHT[0]}, codes=[(1, 1)]))["complete"]


def test_losses_of_fewer_ranks_are_held_against_those_of_an_undisturbed_run_of_as_many():
    fewer = {**RIGHT, 150: RIGHT[150] * 1.001}

    row = scored(played(losses=fewer), truth=fewer, told="of 2 ranks from step 140")

    assert (row["losses wrong"], row["bit-identical"], row["held against"]) == (False, True, "of 2 ranks from step 140")
    assert scored(played(), truth=fewer, told="of 2 ranks from step 140")["losses wrong"]


def test_a_second_job_must_end_and_strangers_must_change_nothing():
    second = Fault(kind="second", after_s=0.0, node=0)
    done = Done(fault=second, begun_s=1005.0)

    assert scored(played(done, second=[(2, OWNED)]), second)["missed"] == []
    assert scored(played(done, second=[(2, "no such file")]), second)["missed"] == [str(second)]
    assert scored(played(done, second=[(None, "")]), second)["missed"] == [str(second)]
    assert scored(played(done, second=[(0, "")]), second)["missed"] == [str(second)]


PLAYED_BY_TWO = [("meshwright", 1, 0), ("meshwright", 2, 1), ("peer", 1, 0)]


def test_the_summary_counts_over_all_seeds_of_a_system():
    named = Named(1005.2, "failure", "", node=1, rank=2, by=0)
    done = Done(fault=KILL, begun_s=1005.0, node=1)
    good = scored(played(done, named=[named], ends_s=[1006.0, 1021.0]), KILL)
    bad = scored(played(done, named=[named._replace(rank=0, node=0)], ends_s=[1006.0, 1021.0], hangs=1), KILL)
    (row,) = summary([good, bad])

    assert (row["scenarios"], row["hangs"], row["precision"], row["recall"]) == (2, 1, 0.5, 0.5)
    assert row["wrong losses"] == 0


def test_a_system_with_more_seeds_is_scored_on_the_common_ones_too():
    rows = [scored(played(hangs=hangs)) | {"system": name, "seed": seed} for name, seed, hangs in PLAYED_BY_TWO]

    assert [(row["scenarios"], row["hangs"]) for row in summary(rows)] == [(2, 1), (1, 0), (1, 0)]
    assert [(row["scenarios"], row["hangs"]) for row in summary(rows[::2])] == [(1, 0), (1, 0)]


def test_a_job_that_never_ends_has_no_time():
    assert math.isinf(Played().took_s)


def test_results_accumulate_by_seed_and_the_newest_counts(tmp_path):
    path, keys = tmp_path / "results" / "seeds.jsonl", ("system", "seed")
    for seed, what in ((2, "old"), (1, "a"), (2, "new")):
        store(path, {"system": "meshwright", "seed": seed, "what": what}, keys)

    assert [(row["seed"], row["what"]) for row in known(path, keys)] == [(1, "a"), (2, "new")]
    assert (seed_range("3..5"), seed_range("7")) == (range(3, 6), range(7, 8))


class Cables:
    """A cluster that writes down what is done to its cables."""

    spec = EmulationSpec(nodes=2, nic_bytes_per_s=25e6)

    def __init__(self):
        self.said = []

    def fault(self, text):
        parse_fault(text)
        self.said.append(text)


def begun(stage, *faults):
    return [act(stage, fault, 0)[1] for fault in faults]


class NoSystem:
    def rows(self):
        return 0


def test_a_cable_that_two_faults_concern_is_whole_only_after_both():
    stage = Stage(Cables(), NoSystem(), 1)
    partition = Fault(kind="partition", after_s=0.0, node=0, for_s=30.0)
    cut = Fault(kind="cut", after_s=1.0, node=0, for_s=4.0)
    mend_partition, mend_cut = begun(stage, partition, cut)

    mend_cut()
    assert "restore node0" not in stage.cluster.said
    mend_partition()
    assert stage.cluster.said[-1] == "restore node0"


def test_a_slow_cable_is_slow_again_after_it_was_out():
    stage = Stage(Cables(), NoSystem(), 1)
    slow = Fault(kind="slow", after_s=0.0, node=1, for_s=20.0)
    cut = Fault(kind="cut", after_s=1.0, node=1, for_s=4.0)
    mend_slow, mend_cut = begun(stage, slow, cut)

    mend_cut()
    assert stage.cluster.said[-2:] == ["restore node1", f"slow node1 {SLOWED}"]
    mend_slow()
    assert stage.cluster.said[-1] == "restore node1"


def test_a_second_job_may_have_the_folder_of_one_that_has_ended_on_its_machine():
    second = Fault(kind="second", after_s=1.0, node=1)
    done = Done(fault=second, begun_s=1005.0, node=1, note=FIRST_ENDED)

    row = scored(played(done, second=[(0, "")], codes=[(0, 137, 0)]), second)

    assert (row["due"], row["missed"], row["complete"]) == (0, [], True)


@pytest.mark.parametrize(
    ("line", "ranks"),
    [
        ("[rank1]: RuntimeError: Connection closed by peer [10.0.0.1]", set()),
        ("[rank1]: RuntimeError: rank 3 failed to send", {3}),
        ("2026-11-28T04:41:16.652 [INFO] [torchft::manager] - rank 2 lost", set()),
    ],
)
def test_a_peer_names_the_rank_of_which_it_speaks_and_not_the_one_that_speaks(tmp_path, line, ranks):
    named = Loop("peer", tmp_path, "true").named([(0, line)], ["10.0.1.1", "10.0.1.2"])

    assert {one.rank for one in named} == ranks
