"""Prices and figures of schedules: the closed formulas of the field, contention, and clusters of links."""

from fractions import Fraction
from math import log2

import pytest

from meshwright.cluster.graph import Cluster, Device, Link
from meshwright.collectives.catalogue import algorithm_names, build_schedule, hierarchical_of
from meshwright.collectives.pricing.figures import bus_factor, figures
from meshwright.collectives.pricing.formulas import between_nodes, closed_formula, names_with_formula
from meshwright.collectives.pricing.network import HostsNetwork, LinkRate, network_of, uniform
from meshwright.collectives.pricing.price import PricedSchedule, cheapest, price_schedule
from meshwright.errors import InputError

ALPHA, RATE, N = 5e-6, 1e9, 10**8
BETA = 1 / RATE


def time_s(name, ranks, network, collective="all_reduce", size=N, lockstep=True, **keys):
    return price_schedule(build_schedule(collective, name, ranks, **keys), network, size, lockstep=lockstep).time_s


@pytest.mark.parametrize("name", names_with_formula())
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 17, 31, 32, 64])
def test_schedules_have_the_figures_of_the_closed_formulas(name, ranks):
    counted, formula = figures(build_schedule("all_reduce", name, ranks)), closed_formula(name, ranks)

    assert counted.rounds == formula.rounds
    if formula.exact:
        assert counted.sent_most == formula.sent_most
        assert counted.received_at_once == formula.received_at_once
        assert counted.fan_in == formula.fan_in
    else:
        assert counted.sent_most <= formula.sent_most
        assert counted.received_at_once <= formula.received_at_once
        assert counted.fan_in <= formula.fan_in


def test_the_rows_of_the_table_that_the_formulas_leave_out():
    assert figures(build_schedule("all_reduce", "parameter_server", 9)).sent_least == 1
    assert figures(build_schedule("all_reduce", "partitioned", 9)).largest_message == Fraction(1, 9)
    for nodes, per_node in ((2, 4), (3, 4), (8, 8)):
        for inner in ("ring", "partitioned", "halving_doubling"):
            schedule = hierarchical_of("all_reduce", nodes * per_node, per_node, inner=inner, outer="ring")
            assert figures(schedule, per_node).between_nodes_most == between_nodes(nodes)
    assert figures(build_schedule("all_reduce", "ring", 8), 4).between_nodes_most == Fraction(14, 8)


@pytest.mark.parametrize(
    ("collective", "name", "rounds", "sent"),
    [
        ("broadcast", "binomial", 4, 4),
        ("broadcast", "linear", 1, 15),
        ("broadcast", "scatter_gather", 19, Fraction(30, 16)),
        ("reduce", "binomial", 4, 1),
        ("scatter", "binomial", 4, Fraction(15, 16)),
        ("gather", "binomial", 4, Fraction(1, 2)),
        ("all_gather", "ring", 15, Fraction(15, 16)),
        ("all_gather", "dissemination", 4, Fraction(15, 16)),
        ("reduce_scatter", "halving", 4, Fraction(15, 16)),
        ("all_to_all", "pairwise", 15, Fraction(15, 16)),
        ("all_to_all", "bruck", 4, 2),
        ("barrier", "dissemination", 4, 0),
        ("barrier", "central", 2, 0),
    ],
)
def test_figures_of_the_other_collectives_on_16_ranks(collective, name, rounds, sent):
    counted = figures(build_schedule(collective, name, 16))

    assert (counted.rounds, counted.sent_most) == (rounds, sent)


@pytest.mark.parametrize("p", [2, 4, 8, 16])
def test_prices_on_equal_links_are_the_textbook_times(p):
    net = uniform(p, ALPHA, RATE)
    steps = 2 * (p - 1)

    assert time_s("ring", p, net) == pytest.approx(steps * ALPHA + steps / p * N * BETA)
    assert time_s("halving_doubling", p, net) == pytest.approx(2 * log2(p) * ALPHA + steps / p * N * BETA)
    assert time_s("recursive_doubling", p, net) == pytest.approx(log2(p) * (ALPHA + N * BETA))
    assert time_s("parameter_server", p, net) == pytest.approx(2 * ALPHA + 2 * (p - 1) * N * BETA)
    assert time_s("naive", p, net) == pytest.approx(p * (p - 1) * (ALPHA + N * BETA))
    assert time_s("staggered", p, net) == pytest.approx((p - 1) * (ALPHA + N * BETA))
    assert time_s("partitioned", p, net) == pytest.approx(2 * ALPHA + steps / p * N * BETA)
    assert time_s("ring", p, net, "all_gather") == pytest.approx((p - 1) * (ALPHA + N * BETA / p))
    assert time_s("binomial", p, net, "broadcast") == pytest.approx(log2(p) * (ALPHA + N * BETA))
    long = (log2(p) + p - 1) * ALPHA + steps / p * N * BETA
    assert time_s("scatter_gather", p, net, "broadcast") == pytest.approx(long)
    assert time_s("pairwise", p, net, "all_to_all") == pytest.approx((p - 1) * (ALPHA + N * BETA / p))
    if p >= 4:
        assert time_s("tree", p, net) == pytest.approx(2 * log2(p) * ALPHA + (2 * log2(p) - 1) * N * BETA)


def test_the_server_s_time_grows_with_the_ranks_and_the_ring_s_hardly():
    server, ring = ([time_s(name, p, uniform(p, 0.0, RATE)) for p in (8, 64)] for name in ("parameter_server", "ring"))

    assert server[1] / server[0] == pytest.approx(9)
    assert ring[1] / ring[0] == pytest.approx((2 * 63 / 64) / (2 * 7 / 8))


def test_the_golden_parameter_server_of_the_reference():
    """256 workers x 3 iterations/s x 97.5 MB at one server: 74.88 GB/s, or, read as MiB, 73.1 GiB/s = 78.5 GB/s."""
    received = figures(build_schedule("all_reduce", "parameter_server", 257)).received_at_once

    assert received * 3 * Fraction("97.5e6") == Fraction("74.88e9")
    assert float(received * 3 * Fraction("97.5")) * 2**20 == pytest.approx(78.5e9, rel=1e-3)
    assert float(received * 3 * Fraction("97.5")) / 2**10 == pytest.approx(73.1, rel=1e-3)
    assert 74.88e9 > 400e9 / 8


@pytest.mark.parametrize(
    ("collective", "ranks", "factor"),
    [
        ("all_reduce", 2, 1),
        ("all_reduce", 8, 1.75),
        ("all_gather", 8, 0.875),
        ("broadcast", 8, 1),
        ("all_to_all", 4, 0.75),
    ],
)
def test_bus_bandwidth_is_what_nccl_tests_define(collective, ranks, factor):
    assert bus_factor(collective, ranks) == factor


def test_ranks_that_share_a_nic_share_its_rate():
    inside, between = LinkRate(0.0, 100e9), LinkRate(0.0, 1e9)
    one, four = (HostsNetwork(8, 4, inside, between, nics=nics) for nics in (1, 4))
    flat = time_s("halving_doubling", 8, one)  # 4 ranks of a host cross at once, in the rounds at distance 4

    assert flat == pytest.approx(2 * 4 * N / 2 / 1e9 + 2 * (N / 4 + N / 8) / 100e9)
    assert time_s("halving_doubling", 8, four) == pytest.approx(2 * N / 2 / 1e9 + 2 * (N / 4 + N / 8) / 100e9)
    best = time_s("hierarchical:partitioned/ring:4", 8, one)
    assert best == pytest.approx(N / 1e9 + 2 * 3 / 4 * N / 100e9)  # N leaves each host: the least that is possible


def test_more_nics_than_ranks_of_a_host_carry_each_rank_s_messages_together():
    wire = LinkRate(0.0, 10e9)
    four, twelve = (HostsNetwork(8, 4, LinkRate(0.0, 900e9), wire, nics=nics) for nics in (4, 12))

    assert time_s("pairwise", 8, four, "all_to_all") == pytest.approx(
        3 * time_s("pairwise", 8, twelve, "all_to_all"), rel=0.1
    )


def test_reductions_and_many_messages_cost_what_the_network_says():
    net = uniform(4, ALPHA, RATE, message_s=1e-6, reduce_bytes_per_s=RATE)

    assert time_s("ring", 4, net) == pytest.approx(6 * ALPHA + 6 / 4 * N * BETA + 3 / 4 * N * BETA)
    assert time_s("partitioned", 4, net) == pytest.approx(2 * ALPHA + 6 / 4 * N * BETA + 3 / 4 * N * BETA)


def test_messages_wait_for_the_copies_of_their_round():
    free, net = uniform(2, ALPHA, RATE), uniform(2, ALPHA, RATE, copy_s=1e-6)

    # one before its messages, one after
    assert time_s("naive", 2, net) == pytest.approx(time_s("naive", 2, free) + 2e-6)


def test_further_messages_are_handled_while_the_first_ones_travel():
    net = uniform(4, ALPHA, RATE, message_s=1e-3)
    short, long = PricedSchedule(build_schedule("all_reduce", "partitioned", 4), net).times_s([4, N])

    assert short == pytest.approx(2 * (ALPHA + 2e-3))
    assert long == pytest.approx(2 * ALPHA + 6 / 4 * N * BETA)


def test_the_crossover_from_tree_to_ring_is_where_their_times_are_equal():
    net = uniform(8, 20e-6, 1e9)
    ring, tree = (PricedSchedule(build_schedule("all_reduce", name, 8), net) for name in ("ring", "tree"))
    # 14 a + 14/8 N b = 6 a + 5 N b
    crossover = 8 * 20e-6 / ((5 - 14 / 8) * 1e-9)
    sizes = [int(crossover * 0.99), int(crossover * 1.01)]

    assert list(tree.times_s(sizes, lockstep=True) < ring.times_s(sizes, lockstep=True)) == [True, False]


def test_cheapest_changes_from_few_rounds_to_few_bytes():
    schedules = [build_schedule("all_reduce", name, 8) for name in ("ring", "tree", "one_shot", "naive")]

    assert [s.name for s in cheapest(schedules, uniform(8, 20e-6, 1e9), [8, 2**26])] == ["one_shot", "ring"]


@pytest.mark.parametrize("name", algorithm_names("all_reduce"))
@pytest.mark.parametrize("ranks", [2, 5, 8])
def test_going_on_at_once_is_never_slower_than_lockstep(name, ranks):
    net = uniform(ranks, ALPHA, RATE, message_s=1e-6)

    assert time_s(name, ranks, net, lockstep=False) <= time_s(name, ranks, net) * (1 + 1e-9)


def test_where_all_ranks_are_alike_going_on_at_once_gains_nothing():
    net = uniform(8, ALPHA, RATE, reduce_bytes_per_s=3e9)

    for name in ("ring", "halving_doubling", "recursive_doubling", "partitioned_staggered", "staggered"):
        assert time_s(name, 8, net, lockstep=False) == pytest.approx(time_s(name, 8, net))


def test_the_naive_way_overlaps_where_links_are_free():
    """0>1, 0>2 while 1 waits; then 1>2 when 2 has received: worked out by hand for 4 ranks, 9 messages in a row."""
    net = uniform(4, 0.0, RATE)

    assert time_s("naive", 4, net) == pytest.approx(12 * N / RATE)
    assert time_s("naive", 4, net, lockstep=False) == pytest.approx(9 * N / RATE)


def graph(latency_s=1e-6):
    gpus = [Device(id=f"GPU{i}", kind="gpu") for i in range(4)]
    switches = [Device(id=f"S{i}", kind="switch") for i in range(2)]
    links = [
        Link(a=f"GPU{i}", b=f"S{i // 2}", kind="x", bandwidth_bytes_per_s=10e9, latency_s=latency_s) for i in range(4)
    ]
    links.append(Link(a="S0", b="S1", kind="x", bandwidth_bytes_per_s=5e9, latency_s=latency_s))
    return Cluster(name="two switches", devices=(*gpus, *switches), links=tuple(links))


def test_a_cluster_s_links_are_shared_by_what_crosses_them():
    net = network_of(graph(), 4)

    assert time_s("ring", 4, net) == pytest.approx(6 * (3e-6 + N / 4 / 5e9))  # one message each way over the trunk
    pairwise = time_s("pairwise", 4, net, "all_to_all", size=4000)
    # distance 1: one message crosses each way; distance 2: two do; distance 3: one again
    assert pairwise == pytest.approx(3 * 3e-6 + (1000 + 2000 + 1000) / 5e9)


def test_a_latency_that_is_given_counts_where_links_say_another():
    assert time_s("ring", 4, network_of(graph(), 4, latency_s=2e-6), size=0) == pytest.approx(12e-6)


def test_a_link_without_a_figure_is_named():
    with pytest.raises(InputError, match=r"link GPU0-S0 has no latency_s.*--alpha"):
        price_schedule(build_schedule("all_reduce", "ring", 4), network_of(graph(None), 4), N)
    with pytest.raises(InputError, match="has 4 devices for ranks, 5 are asked for; nodes of a file count as they"):
        network_of(graph(), 5)
    lonely = Cluster(name="x", devices=graph().devices, links=graph().links[:4])
    with pytest.raises(InputError, match="no route from GPU1 to GPU2"):
        price_schedule(build_schedule("all_reduce", "ring", 4), network_of(lonely, 4), N)

    assert time_s("ring", 4, network_of(graph(None), 4, latency_s=2e-6), size=0) == pytest.approx(12e-6)


@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_messages_of_other_ranks_and_ports_do_not_wait_for_each_other(ranks):
    """Naive: rank r can give to r + 1 two messages after rank r - 1 began, so that all are through in 3 (P - 1)."""
    found = time_s("naive", ranks, uniform(ranks, 0.0, RATE), lockstep=False)

    assert found == pytest.approx(3 * (ranks - 1) * N * BETA)


def test_what_a_host_shares_is_still_queued_for():
    net = HostsNetwork(8, 4, LinkRate(0.0, RATE), LinkRate(0.0, RATE), shared_bytes_per_s=RATE)

    assert time_s("naive", 4, net, lockstep=False) == pytest.approx(12 * N * BETA)


def test_messages_and_ranks_at_work_cost_the_cores_that_they_share():
    crowded = uniform(8, 1e-4, 1e12, crowding_s=1e-5, turn_s=3e-5)

    ring = 14 * (1e-4 + 7 * 1e-5 + 6 * 3e-5)  # rounds of 8 messages between 8 ranks
    assert time_s("ring", 8, crowded, size=1, lockstep=False) == pytest.approx(ring, rel=1e-3)
    partitioned = 2 * (1e-4 + 55 * 1e-5 + 6 * 3e-5)
    assert time_s("partitioned", 8, crowded, size=1, lockstep=False) == pytest.approx(partitioned, rel=1e-3)


def test_rounds_that_overlap_take_no_less_than_the_work_of_all_cores():
    crowded = uniform(8, 1e-6, 1e12, crowding_s=1e-5)
    assert time_s("naive", 8, crowded, size=1, lockstep=False) == pytest.approx(56 * 1e-5, rel=1e-3)

    takes_turns = uniform(8, 1e-6, 1e12, crowding_s=1e-5, turn_s=3e-5)  # each message is a round of two ranks
    assert time_s("naive", 8, takes_turns, size=1, lockstep=False) == pytest.approx(56 * 1e-5 + 112 * 3e-5, rel=1e-3)
