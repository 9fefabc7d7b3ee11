"""Simulated collectives: closed formulas, prices, folding, bounds, and what is not as it should be."""

import pytest

from benchmarks.simulator import unfolded_bytes
from meshwright.collectives.algorithms.rotation import ROTATING
from meshwright.collectives.catalogue import algorithm_names, build_schedule
from meshwright.collectives.pricing.formulas import closed_formula
from meshwright.collectives.pricing.network import HostsNetwork, LinkRate, uniform
from meshwright.collectives.pricing.price import price_schedule
from meshwright.collectives.schedules.schedule import Schedule
from meshwright.errors import InputError
from meshwright.simulate.bounds import bounds
from meshwright.simulate.collective import simulate_collective, timeline
from meshwright.simulate.fold import fold
from meshwright.simulate.native import run_activities
from meshwright.simulate.nodes import ROUTINGS, NodesTopology
from meshwright.simulate.problem import Costs, Disturbance, problem
from meshwright.simulate.topology import PricedNetwork
from meshwright.simulate.traffic import named_traffic, traffic_of
from meshwright.simulate.unroll import unroll
from meshwright.timeline import chrome_trace, parse_chrome_trace

from .networks import nodes

ALPHA, RATE, SIZE = 5e-6, 1e9, 10**7
FABRICS = {
    "flat": {},
    "fat-tree": {"nodes_per_leaf": 2, "oversubscription": 2.0},
    "rail-optimised": {"nodes_per_leaf": 4, "oversubscription": 2.0},
    "dragonfly": {"nodes_per_leaf": 2, "leaves_per_group": 2, "oversubscription": 2.0},
    "torus": {"sides": (4, 2)},
}


def time_s(name, ranks, *, collective="all_reduce", network=None, **keys):
    topology = PricedNetwork(network or uniform(ranks, ALPHA, RATE))
    return simulate_collective(named_traffic(collective, name, ranks), topology, SIZE, **keys).result.time_s


def rounds_of(traffic):
    """Return what each round sends, in an order of its own."""
    found = []
    for o in traffic.order:
        p = traffic.patterns[o]
        found.append(
            sorted(zip(p.src.tolist(), p.dst.tolist(), p.share.round(12).tolist(), p.reduces.tolist(), strict=True))
        )
    return found


# one message in and out of each rank at a time, all of one size: every round takes alpha and the same bytes
@pytest.mark.parametrize(
    "name", ["ring", "partitioned_staggered", "staggered", "halving_doubling", "recursive_doubling"]
)
@pytest.mark.parametrize("ranks", [2, 4, 8, 16, 64])
def test_closed_formulas_come_out_where_nothing_contends(name, ranks):
    formula = closed_formula(name, ranks)

    expected = formula.rounds * ALPHA + float(formula.sent_most) * SIZE / RATE

    assert time_s(name, ranks) == pytest.approx(expected, rel=1e-9)
    assert time_s(name, ranks, folding=False) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", ["parameter_server", "one_shot", "partitioned"])
def test_closed_formulas_come_out_where_all_send_at_once(name):
    ranks = 8
    formula = closed_formula(name, ranks)
    through_root = {"parameter_server": 2 * (ranks - 1), "one_shot": ranks - 1, "partitioned": 2 * (ranks - 1) / ranks}

    expected = formula.rounds * ALPHA + through_root[name] * SIZE / RATE

    assert time_s(name, ranks) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", [*algorithm_names("all_gather"), *algorithm_names("reduce_scatter")])
def test_prices_agree_where_each_round_waits_for_the_one_before(name):
    for collective in ("all_gather", "reduce_scatter"):
        if name in algorithm_names(collective):
            network = uniform(8, ALPHA, RATE, reduce_bytes_per_s=4e9)
            priced = price_schedule(build_schedule(collective, name, 8), network, SIZE).time_s
            costs = Costs(reduce_bytes_per_s=4e9)
            found = time_s(name, 8, collective=collective, network=network, costs=costs)
            assert found == pytest.approx(priced, rel=1e-9)


@pytest.mark.parametrize(("collective", "name"), ROTATING)
def test_what_rank_0_sends_says_what_all_ranks_send(collective, name):
    for ranks in range(1, 9):
        assert rounds_of(named_traffic(collective, name, ranks)) == rounds_of(
            traffic_of(build_schedule(collective, name, ranks))
        )


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize(
    "name", ["hierarchical", "hierarchical:direct/pairwise:2", "hierarchical:ring/ring:4", "rings:4"]
)
def test_phases_put_together_are_the_rounds_of_the_schedule(collective, name):
    if collective == "all_reduce":
        name = name.replace("direct/pairwise", "partitioned/partitioned_staggered")
    for ranks in (1, 4, 8, 12):
        if ranks % int(name[-1]) == 0 if name[-1].isdecimal() else True:
            found = named_traffic(collective, name, ranks)
            assert rounds_of(found) == rounds_of(traffic_of(build_schedule(collective, name, ranks)))


@pytest.mark.parametrize(("fabric", "routing"), [(f, r) for f, routings in ROUTINGS.items() for r in routings])
@pytest.mark.parametrize("name", ["ring", "hierarchical:ring/ring:4", "tree", "one_shot"])
def test_folding_changes_no_time(fabric, routing, name):
    topology = NodesTopology(nodes(8, gpus=4, nics=4, kind=fabric, **FABRICS[fabric]), 32, routing=routing)
    whole = problem(named_traffic("all_reduce", name, 32), topology, SIZE)

    folded = fold(whole)

    assert int(folded.members.sum()) == 32
    assert run_activities(unroll(folded)).time_s == pytest.approx(run_activities(unroll(whole)).time_s, rel=1e-9)


def test_a_symmetric_collective_folds_to_one_class():
    topology = NodesTopology(nodes(8, gpus=4, nics=4), 32)

    folded = fold(problem(named_traffic("all_reduce", "hierarchical:ring/ring:4", 32), topology, SIZE))

    assert len(folded.members) == 1
    assert folded.transfers == len(folded.order)


@pytest.mark.parametrize("name", ["ring", "hierarchical:ring/ring:4", "tree", "one_shot", "halving_doubling"])
@pytest.mark.parametrize("seed", range(4))
def test_the_time_lies_between_its_bounds(name, seed):
    slow = Disturbance(slow_share=0.1, slow_to=0.4, seed=seed)
    tree = nodes(16, gpus=4, nics=4, kind="fat-tree", nodes_per_leaf=4, leaves_per_group=2, oversubscription=2.0)
    topology = NodesTopology(tree, 64, routing="ecmp", seed=seed)
    whole = problem(named_traffic("all_reduce", name, 64), topology, SIZE, None, slow)

    found, exact_s = bounds(whole), run_activities(unroll(whole)).time_s

    assert found.lower_s * (1 - 1e-9) <= exact_s <= found.upper_s * (1 + 1e-9)


def test_bounds_meet_where_no_link_is_shared():
    slow = Disturbance(slow_share=0.05, seed=1)
    topology = NodesTopology(nodes(32, gpus=4, nics=4), 128)
    traffic = named_traffic("all_reduce", "hierarchical:ring/ring:4", 128)

    bounded = simulate_collective(traffic, topology, SIZE, disturbance=slow, method="bounded").result
    exact = simulate_collective(traffic, topology, SIZE, disturbance=slow, method="exact").result

    assert bounded.error_bound == 0
    assert bounded.time_s == pytest.approx(exact.time_s, rel=1e-9)


def test_a_slow_link_slows_the_ring_to_its_rate():
    topology = NodesTopology(nodes(8), 8)
    traffic = named_traffic("all_reduce", "ring", 8)
    before = simulate_collective(traffic, topology, 10**9).result.time_s

    slow = Disturbance(slow={"node3/NIC0>fabric": 0.25})
    after = simulate_collective(traffic, topology, 10**9, disturbance=slow).result.time_s

    assert after / before == pytest.approx(4, rel=1e-3)


def test_a_late_rank_makes_all_wait():
    plain = time_s("ring", 8)

    assert time_s("ring", 8, disturbance=Disturbance(late_s={3: 0.5})) == pytest.approx(plain + 0.5)


def test_jitter_is_had_again_by_its_seed():
    times = [time_s("ring", 8, disturbance=Disturbance(jitter=0.3, seed=seed)) for seed in (1, 1, 2)]

    assert times[0] == times[1] != times[2]


@pytest.mark.parametrize("routing", ["ecmp", "adaptive"])
def test_routes_avoid_a_cut_uplink_where_there_are_others(routing):
    topology = NodesTopology(nodes(4, gpus=4, nics=4, kind="fat-tree", nodes_per_leaf=1), 16, routing=routing)
    traffic = named_traffic("all_reduce", "ring", 16)

    cut = Disturbance(cut=("leaf0-spine1", "leaf2>spine0"))
    run = simulate_collective(traffic, topology, SIZE, disturbance=cut)

    dead = {link for link in range(len(run.folded.capacity)) if run.folded.capacity[link] == 0}
    assert not any(dead & set(r.uses.items.tolist()) for r in run.folded.rounds)


def test_a_cut_link_without_another_way_is_named():
    topology = NodesTopology(nodes(4), 4)

    with pytest.raises(InputError, match="link fabric>node1/NIC0 is cut"):
        simulate_collective(
            named_traffic("all_reduce", "ring", 4), topology, SIZE, disturbance=Disturbance(cut=("node1/NIC0-fabric",))
        )


def test_an_unknown_link_is_named_with_one_that_is_there():
    topology = NodesTopology(nodes(4), 4)

    with pytest.raises(InputError, match=r"no such link .*node1/NIC0>fabric"):
        Disturbance(slow={"node1/NIC0>fabrik": 0.5}).apply(topology)


def test_handling_by_shared_cores_delays_every_message_of_a_round():
    costs = Costs(latency_s=ALPHA, handling_s=1e-3)

    assert time_s("recursive_doubling", 2, costs=costs) == pytest.approx(2e-3 + ALPHA + SIZE / RATE)


def test_an_eager_message_does_not_keep_its_sender():
    topology = PricedNetwork(uniform(3, 0.0, 1.0))
    chain = Schedule.parse("broadcast chain ranks=3 chunks=1\n0: c0:0>1\n1: c0:1>2\n2: c0:0>2")

    waits, goes = (
        simulate_collective(traffic_of(chain), topology, 8, costs=Costs(eager_bytes=eager)).result.time_s
        for eager in (-1.0, 8.0)
    )

    assert waits == 8 + 8 + 8
    assert goes == 8 + 8 + 8 / 2 + 8 / 2  # rank 0 sends to 1 and 2 at once; what comes early is kept for its round


def test_hosts_share_what_they_share():
    network = HostsNetwork(4, 4, LinkRate(0.0, 10.0), LinkRate(0.0, 1.0), shared_bytes_per_s=10.0)

    # four messages of a quarter each at once, through 10 bytes a second together
    found = time_s("ring", 4, network=network)

    assert found == pytest.approx(6 * SIZE / 10)


def test_the_trace_of_a_run_has_an_arrow_for_every_message():
    topology = PricedNetwork(uniform(4, ALPHA, RATE))
    run = simulate_collective(named_traffic("all_reduce", "ring", 4), topology, SIZE, folding=False)

    trace = chrome_trace(timeline(run))

    assert sum(event["ph"] == "s" for event in trace["traceEvents"]) == run.result.transfers == 24
    assert sum(event["ph"] == "f" for event in trace["traceEvents"]) == 24
    spans = parse_chrome_trace(trace).spans
    assert {span.rank for span in spans} == {0, 1, 2, 3}
    assert max(span.end_s for span in spans) == pytest.approx(run.result.time_s)


@pytest.mark.parametrize(("per_leaf", "leaves"), [(8, 10), pytest.param(20, 25, marks=pytest.mark.slow)])
def test_a_hierarchical_all_reduce_on_many_devices_is_folded(per_leaf, leaves):
    count = per_leaf * leaves * leaves  # nodes: 800, and 12,500 with 100,000 devices
    tree = nodes(count, gpus=8, nics=8, kind="fat-tree", nodes_per_leaf=per_leaf, leaves_per_group=leaves)
    topology = NodesTopology(tree, 8 * count)
    traffic = named_traffic("all_reduce", "hierarchical:ring/ring:8", 8 * count)

    result = simulate_collective(traffic, topology, 2**30).result

    inside_s = 2 * 7 * (2e-6 + 2**30 / 8 / 100e9)
    between_s = 2 * (count - 1) * (3e-6 + 2**30 / 8 / count / 12.5e9)
    assert result.error_bound == 0
    assert result.classes <= per_leaf * leaves
    assert result.time_s == pytest.approx(inside_s + between_s, rel=1e-9)


@pytest.mark.slow
def test_an_unfolded_transfer_takes_no_more_than_170_bytes():
    grown, transfers = unfolded_bytes(1024)

    assert transfers == 2 * 1023 * 1024
    assert grown <= 170 * transfers
