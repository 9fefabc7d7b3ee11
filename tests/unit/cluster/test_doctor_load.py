"""A busy machine is said by `doctor` and `bench`, a quiet one is not."""

import pytest
from msgspec.structs import replace

from meshwright.bench.ranks.setup import OnRanks
from meshwright.cli.bench_work import _beside_notes
from meshwright.cluster.doctor import run_checks
from meshwright.cluster.doctor.facts import NodeFacts
from meshwright.cluster.doctor.report import machine_report
from meshwright.machine_load import Load, watched, words_since

QUIET = Load(host="a", wall_s=0.5, processors=4, own_s=0.0, all_s=0.1, stolen_s=0.0, waited_s=0.0)
BUSY = replace(QUIET, all_s=1.4)
NODE = NodeFacts(node=0, nodes=1, host="a", shm_bytes=2**34, shm_free_bytes=2**34, load=BUSY)


def found(facts):
    return [(finding.check, finding.found) for finding in run_checks([facts]) if finding.check == "busy-processors"]


def test_doctor_says_what_share_other_programs_take():
    assert found(NODE) == [("busy-processors", "other programs take 70% of 4 processors")]
    assert machine_report(NODE, [], [])["other_programs_share"] == 0.7


def test_doctor_says_what_a_hypervisor_took():
    stolen = replace(NODE, load=replace(QUIET, stolen_s=1.0))

    assert found(stolen) == [("busy-processors", "other programs take 55% of 4 processors, 50% other virtual machines")]


@pytest.mark.parametrize(
    "facts",
    [replace(NODE, load=QUIET), replace(NODE, load=None), replace(NODE, environment={"MESHWRIGHT_EMULATION": "/tmp"})],
    ids=["quiet", "not watched", "nodes that share one machine"],
)
def test_doctor_says_nothing_of(facts):
    assert found(facts) == []


def test_a_sleeping_process_waits_for_nobody_while_it_watches():
    load = watched(0.05)

    assert load is not None
    assert load.wall_s >= 0.05
    assert load.own_s < 0.05


def test_bench_says_that_the_ranks_had_to_wait_for_other_programs():
    busy = replace(BUSY, own_s=0.1, waited_s=0.3)

    assert OnRanks([], [busy]).beside == "other programs took 65% of the processors"
    assert OnRanks([], [QUIET]).beside == ""
    assert _beside_notes("") == []
    assert "measure again on a quiet machine" in _beside_notes(OnRanks([], [busy]).beside)[0]


class Begun:
    """A snapshot whose end is known."""

    def __init__(self, load):
        self.load = load

    def until_now(self):
        return self.load


def test_where_nothing_is_counted_nothing_is_said():
    assert words_since(Begun(None)) == ""
    assert words_since(Begun(replace(BUSY, waited_s=0.3))) == "other programs took 70% of the processors"
