"""The traffic of a run's links, and where it went: by the layout and the hosts, whatever the transport did."""

import pytest
from msgspec.structs import replace

from meshwright.cluster.graph import Cluster, Measurements
from meshwright.layout import Layout
from meshwright.report.blame import blame
from meshwright.report.links import LinkUse, Specs, cluster_drawing, link_descriptions, link_uses, links_table, specs_of
from meshwright.report.paths import Paths
from meshwright.timeline import Performance, Span, Timeline

TWO_HOSTS = {0: "node0", 1: "node0", 2: "node1", 3: "node1"}
SPECS = Specs(10e9, "memory copy", {"node0": 125e6, "node1": 125e6})
MB = 10**6


def uses_of(spans, layout, hosts=TWO_HOSTS, specs=SPECS):
    found = link_uses(Timeline(tuple(spans), "measured"), Paths(layout, hosts), specs)
    return {use.name: use for use in found}


def all_reduces(detail="", size=4 * MB):
    return [Span(rank, "comm", "all_reduce", 0.0, 0.1, bytes=size, detail=detail) for rank in range(4)]


def test_an_all_reduce_over_two_hosts_crosses_the_network_of_each_once():
    uses = uses_of(all_reduces(), Layout(dp=4))

    assert {name: use.bytes for name, use in uses.items()} == {
        **{f"rank {rank}": 4 * MB for rank in range(4)},  # 2(2-1)/2 of it among the two of a host
        "network of node0": 4 * MB, "network of node1": 4 * MB,  # 2(2-1)/2 of it among the two hosts
    }  # fmt: skip
    assert uses["network of node0"].share_of_spec == pytest.approx(40e6 / 125e6)
    assert uses["rank 0"].held_s == pytest.approx(0.1)


def test_an_all_reduce_inside_each_host_leaves_the_network_alone():
    """Two stages, one a host: the copies of a stage are neighbours."""
    uses = uses_of(all_reduces("2 ranks of data"), Layout(pp=2, dp=2))

    assert set(uses) == {"rank 0", "rank 1", "rank 2", "rank 3"}
    assert uses["rank 0"].held_s == 0


def test_activations_cross_the_network_where_the_stages_are_on_two_hosts():
    spans = [
        Span(0, "comm", "send_activation", 0.0, 0.01, bytes=MB, detail="0F0 to 2"),
        Span(2, "comm", "recv_activation", 0.0, 0.02, bytes=MB, detail="0F0 from 0"),
        Span(1, "comm", "send_activation", 0.0, 0.01, bytes=MB, detail="0F0 to 3"),
        Span(3, "comm", "recv_activation", 0.0, 0.02, bytes=MB, detail="0F0 from 1"),
    ]
    uses = uses_of(spans, Layout(pp=2, dp=2))

    assert {name: use.bytes for name, use in uses.items()} == {"network of node0": 2 * MB, "network of node1": 2 * MB}


def test_messages_of_one_host_stay_on_the_links_of_its_ranks():
    spans = [
        Span(0, "comm", "send_activation", 0.0, 0.01, bytes=MB, detail="0F0 to 1"),
        Span(1, "comm", "recv_activation", 0.0, 0.02, bytes=MB, detail="0F0 from 0"),
        Span(1, "comm", "send_gradient", 0.02, 0.03, bytes=2 * MB, detail="1B0 to 0"),
    ]
    uses = uses_of(spans, Layout(pp=2), dict.fromkeys(range(2), "node0"))

    assert uses["rank 0"].bytes == MB
    assert uses["rank 1"].bytes == 2 * MB  # the larger of what came and what left
    assert uses["rank 1"].busy_s == pytest.approx(0.03)


def test_every_rank_of_a_host_sends_other_data_in_an_all_to_all():
    spans = [Span(r, "comm", "all_to_all", 0.0, 0.1, bytes=4 * MB, detail="4 ranks of ep") for r in range(4)]

    assert uses_of(spans, Layout(dp=4, ep=4))["network of node0"].bytes == 2 * (4 * MB) / 2


def test_ranks_that_a_launcher_dealt_out_in_turn_are_put_with_their_hosts():
    hosts = {0: "a", 1: "b", 2: "a", 3: "b"}

    assert Paths(Layout(tp=2, dp=2), hosts).joined(all_reduces("2 ranks of tp")[0]) == {"a": (0, 2)}


def test_hosts_under_one_switch_stand_together_as_in_the_mesh_of_the_run():
    hosts = {0: "a", 1: "b", 2: "c", 3: "d"}
    span = all_reduces("2 ranks of tp")[0]

    assert Paths(Layout(tp=2, dp=2), hosts).hosts(span) == ("a", "b")
    switches = {"a": ("leaf0",), "b": ("leaf1",), "c": ("leaf0",), "d": ("leaf1",)}
    assert Paths(Layout(tp=2, dp=2), hosts, switches).hosts(span) == ("a", "c")


@pytest.mark.parametrize(
    ("span", "layout"),
    [
        (Span(0, "comm", "all_reduce", 0, 1, bytes=8), Layout(tp=2, dp=2)),  # which ranks, it does not say
        (Span(0, "comm", "all_reduce", 0, 1, bytes=8, detail="4 ranks of nothing"), Layout(dp=4)),
        (Span(0, "comm", "push", 0, 1, bytes=8), Layout(dp=4, mode="async")),
        (Span(0, "compute", "forward", 0, 1), Layout(dp=4)),
    ],
)
def test_what_joins_unknown_ranks_is_laid_to_no_link(span, layout):
    assert uses_of([span], layout) == {}
    assert link_descriptions(Paths(layout, TWO_HOSTS), SPECS)(span) == ""


def test_what_workers_and_servers_of_one_host_move_is_on_the_links_of_that_host():
    spans = [Span(rank, "comm", "push", 0.0, 0.1, bytes=MB) for rank in range(2)]
    layout, hosts = Layout(dp=2, mode="async"), dict.fromkeys(range(2), "node0")

    assert {name: use.bytes for name, use in uses_of(spans, layout, hosts).items()} == {"rank 0": MB, "rank 1": MB}
    assert link_descriptions(Paths(layout, hosts), SPECS)(spans[0]) == "inside node0, 10 GB/s memory copy"


def test_a_rank_that_ran_nowhere_breaks_nothing():
    spans = [
        Span(7, "comm", "all_reduce", 0.0, 0.1, bytes=MB),
        Span(0, "comm", "send", 0.0, 0.1, bytes=MB, detail="to 7"),
    ]

    uses = uses_of(spans, Layout(dp=4))

    assert list(uses) == ["network of node0"]  # rank 7 is on no host that is known, so on another one


def test_the_link_of_a_communication_is_named_with_what_it_can():
    told = link_descriptions(Paths(Layout(dp=4), TWO_HOSTS), SPECS)
    inside = link_descriptions(Paths(Layout(tp=2, dp=2), TWO_HOSTS), SPECS)

    assert told(all_reduces()[0]) == "network node0-node1, 1 Gb/s"
    assert inside(all_reduces("2 ranks of tp")[0]) == "inside node0, 10 GB/s memory copy"


def test_the_network_of_a_host_is_what_its_ranks_have_read():
    cluster = Cluster(name="", measured=Measurements(fingerprint="", memory_bandwidth_bytes_per_s=8e9))
    specs = specs_of(cluster, ("node0", "node1"), {"node0": 125e6})

    assert (specs.inside, specs.network) == (8e9, {"node0": 125e6})


@pytest.mark.parametrize(
    ("share", "message_bytes", "held_s", "colour"),
    [
        (0.2, 1e8, 0.0, "#d62728"),
        (0.4, 1e8, 0.0, "#e0a100"),
        (0.9, 1e8, 0.0, "#8c96a3"),
        (0.05, 1e5, 0.0, "#8c96a3"),  # a short message: its latency, no fault of the link
        (0.4, 1e8, 0.6, "#7f9fbf"),
        (None, 1e8, 0.0, "#8c96a3"),
    ],
)
def test_only_slow_links_are_coloured_and_all_are_as_thick_as_they_are_busy(share, message_bytes, held_s, colour):
    use = LinkUse(
        host="node0", rank=0, bytes=1e9, busy_s=1.0, held_s=held_s, step_s=2.0,
        spec_bytes_per_s=1e9 / share if share else None, spec="wire", message_bytes=message_bytes,
    )  # fmt: skip
    svg = cluster_drawing([use], {0: "node0"}).svg

    assert f'stroke="{colour}" stroke-width="6.0"' in svg
    assert "rank 0: 954 MiB one way, 1 GB/s" in svg
    assert links_table([use]).rows[0][5].text == "1 GB/s"


def test_waiting_for_a_rank_that_comes_later_is_no_traffic():
    calls = [replace(span, start_s=0.09) if span.rank == 3 else span for span in all_reduces()]
    uses = uses_of(calls, Layout(dp=4))

    assert uses["network of node0"].busy_s == pytest.approx(0.01)
    assert uses["rank 0"].busy_s == pytest.approx(0.01)
    assert uses["rank 0"].message_bytes == 4 * MB


def test_waiting_for_a_message_is_no_traffic_and_its_send_is_counted_once():
    spans = [
        Span(0, "comm", "send_activation", 0.5, 0.51, bytes=MB, detail="0F0 to 1"),
        Span(1, "comm", "recv_activation", 0.0, 0.52, bytes=MB, detail="0F0 from 0"),
    ]
    uses = uses_of(spans, Layout(pp=2), dict.fromkeys(range(2), "node0"))

    assert uses["rank 1"].busy_s == pytest.approx(0.02)
    assert uses["rank 0"].busy_s == pytest.approx(0.01)


def test_the_network_is_told_in_gigabits():
    table = links_table(list(uses_of(all_reduces(), Layout(dp=4)).values()))

    assert [cell.text for cell in table.rows[4]] == [
        "network of node0", "node0", "3.81 MiB", "100 ms", "100%", "0.32 Gb/s", "32%", "1 Gb/s",
    ]  # fmt: skip
    assert table.note.endswith("spec: memory copy, all NICs")


PERFORMANCE = Performance(
    step_time_s=0.1, forward_s=0.0, backward_s=0.0, optimizer_s=0.0, exposed_comm_s=0.1, hidden_comm_s=0.0,
    bubble_s=0.0, data_s=0.0, tokens_per_s_per_gpu=1.0, model_tflops_per_gpu=1.0, mfu=None, peak_memory_bytes_per_gpu=1,
)  # fmt: skip


@pytest.mark.parametrize(
    ("layout", "detail", "where"),
    [
        (Layout(dp=4), "", "all_reduce over node0-node1"),
        (Layout(tp=2, dp=2), "2 ranks of data", "all_reduce over node0-node1"),
        (Layout(tp=2, dp=2), "2 ranks of tp", "all_reduce over 4 ranks inside each of 2 hosts"),
    ],
)
def test_an_error_in_a_collective_is_laid_to_the_hosts_that_it_joins(layout, detail, where):
    faster = replace(PERFORMANCE, exposed_comm_s=0.0)
    nothing = Timeline((Span(0, "compute", "forward", 0.0, 0.1),), "predicted")

    measured = Timeline(tuple(all_reduces(detail)), "measured")
    found = blame(faster, PERFORMANCE, nothing, measured, Paths(layout, TWO_HOSTS), [])

    assert found == where
