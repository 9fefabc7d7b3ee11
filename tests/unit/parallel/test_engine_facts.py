"""Facts of our engine that the recorded collectives tell: an engine that did otherwise would be seen.

`parallel/` takes some of its facts from `conventions.ENGINE`; what else it does by its own code is a fact there too.
For each fact of what is sent a layout that is recorded (`test_program`) sends something else where the fact is another.
"""

import msgspec
import pytest

from meshwright.parallel.layers import recompute
from meshwright.workload import stages
from meshwright.workload.conventions import ENGINE, Conventions
from meshwright.workload.elements import HALF_BYTES
from tests.multiproc.parallel.layouts import FAST, SLOW
from tests.multiproc.parallel.test_program import OFTEN, programmed

OTHERWISE = {
    "weight_bytes": HALF_BYTES, "gradient_bytes": HALF_BYTES, "scattered_bytes": HALF_BYTES,
    "residual_bytes": HALF_BYTES, "product_bytes": HALF_BYTES, "reshards": 0, "root_stays": 0, "sends_cut": 1,
    "keys_ring": 1, "heads_exchanged": 1, "routed_cut": 1, "router_messages": 0, "sums_whole": 1, "gather_waits": 0,
    "stops_early": 0,
}  # fmt: skip
# when something is sent, over which links, and what only lies in memory: no number of calls tells these. Of states on
# the host multiproc/parallel/test_offload.py records what travels; of memory test_memory.py compares measured peaks
UNTOLD = frozenset(Conventions.__struct_fields__) - OTHERWISE.keys() - {"trained"}  # of a frozen weight nothing is sent


@pytest.fixture(scope="module")
def said():
    return [programmed(case) for case in OFTEN]


@pytest.mark.parametrize("fact", OTHERWISE)
def test_what_is_recorded_holds_the_engine_to_each_fact_of_what_it_sends(fact, said, monkeypatch):
    changed = msgspec.structs.replace(ENGINE, **{fact: OTHERWISE[fact]})
    monkeypatch.setattr(stages, "engine", lambda _: changed)

    assert getattr(ENGINE, fact) != OTHERWISE[fact]
    assert any(programmed(case) != before for case, before in zip(OFTEN, said, strict=True))


def test_no_other_fact_of_the_engine_is_told_by_the_longest_set_alone(monkeypatch):
    before = [programmed(case) for case in (*FAST, *SLOW)]
    others = {fact: int(getattr(ENGINE, fact) != 1) for fact in UNTOLD}
    monkeypatch.setattr(stages, "engine", lambda _: msgspec.structs.replace(ENGINE, **others))

    told = [case for case, said in zip((*FAST, *SLOW), before, strict=True) if programmed(case) != said]
    assert not told or any(case in OFTEN for case in told)


def test_recomputation_stops_where_the_engines_facts_say_so(monkeypatch):
    asked = []
    monkeypatch.setattr(recompute, "checkpoint", lambda run, *inputs, **options: asked.append(options["early_stop"]))

    for stops in (0, 1):
        monkeypatch.setattr(recompute, "ENGINE", msgspec.structs.replace(ENGINE, stops_early=stops))
        recompute.recomputed("full", lambda: None)

    assert asked == [False, True]
