"""Simulated training steps: bubbles, overlap, gradients, stragglers, shared cores."""

import pytest

from meshwright.collectives.pricing.network import uniform
from meshwright.errors import InputError
from meshwright.layout import Layout
from meshwright.mesh import groups
from meshwright.simulate.nodes import NodesTopology
from meshwright.simulate.problem import Disturbance
from meshwright.simulate.step import simulate_step
from meshwright.simulate.topology import PricedNetwork
from meshwright.timeline import length_s, overlap_s
from meshwright.workload.program import Comm, Pass, Stage, StepProgram

from .networks import nodes

FORWARD_S, BACKWARD_S = 1.0, 2.0
ALPHA, RATE = 1e-3, 1e9


def program(layout, micro_batches, *, stage=None, **keys):
    parts = layout.vpp
    stage = stage or Stage.of(forward=Pass(compute_s=FORWARD_S / parts), backward=Pass(compute_s=BACKWARD_S / parts))
    return StepProgram(
        layout=layout, micro_batches=micro_batches, stages=(stage,) * (layout.pp * layout.vpp), **keys
    )  # fmt: skip


def simulated(program, topology=None, **keys):
    topology = topology or PricedNetwork(uniform(program.layout.world_size, ALPHA, RATE))
    return simulate_step(program, topology, **keys).spans


def step_s(spans):
    return max(span.end_s for span in spans)


def times(spans, lane, rank=None):
    return [(s.start_s, s.end_s) for s in spans if s.lane == lane and rank in (None, s.rank)]


@pytest.mark.parametrize(("schedule", "vpp"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("interleaved", 4)])
@pytest.mark.parametrize(("pp", "micro_batches"), [(2, 4), (4, 8), (4, 16)])
def test_the_bubble_is_that_of_the_closed_formula(schedule, vpp, pp, micro_batches):
    layout = Layout(pp=pp, vpp=vpp, schedule=schedule)

    spans = simulated(program(layout, micro_batches))

    ideal_s = micro_batches * (FORWARD_S + BACKWARD_S)
    share = (pp - 1) / (vpp * micro_batches)
    assert step_s(spans) == pytest.approx(ideal_s * (1 + share), rel=1e-9)


def test_activations_take_their_time_between_stages():
    stage = Stage.of(forward=Pass(compute_s=1.0), backward=Pass(compute_s=2.0), output_bytes=10**8)

    spans = simulated(program(Layout(pp=2), 1, stage=stage))

    assert step_s(spans) == pytest.approx(2 * (1 + 2) + 2 * (ALPHA + 0.1))
    assert [s.name for s in spans if s.lane == "comm" and s.rank == 1] == ["recv", "send"]


def test_messages_from_one_stage_to_the_next_arrive_one_after_the_other():
    stage = Stage.of(forward=Pass(compute_s=0.25), backward=Pass(compute_s=0.0), output_bytes=10**9)

    spans = simulated(program(Layout(pp=2, schedule="gpipe"), 4, stage=stage))

    arrivals = sorted(s.end_s for s in spans if s.name == "recv" and s.rank == 1)
    assert arrivals == pytest.approx([0.25 + k * (ALPHA + 1.0) for k in (1, 2, 3, 4)])


def test_collectives_of_each_layer_stand_in_the_way_of_compute():
    comm = Comm(axis="tp", collective="all_reduce", bytes=10**8, algorithm="ring")
    work = Pass(compute_s=1.0, layers=4, comms=(comm, comm))

    spans = simulated(program(Layout(tp=2), 1, stage=Stage.of(forward=work, backward=work)))

    each_s = 2 * ALPHA + 10**8 / RATE  # 2(P-1) rounds of N/P
    assert step_s(spans) == pytest.approx(2 * (1 + 4 * 2 * each_s), rel=1e-9)


def test_gradients_travel_while_backward_goes_on_and_the_update_waits_for_them():
    bucket = Comm(axis="dp", collective="all_reduce", bytes=10**8, algorithm="ring")
    stage = Stage.of(forward=Pass(compute_s=1.0), backward=Pass(compute_s=2.0, layers=4), gradients=(bucket,) * 4)

    spans = simulated(program(Layout(dp=2), 2, stage=stage, optimizer_s=0.5))

    each_s = 2 * ALPHA + 10**8 / RATE
    assert step_s(spans) == pytest.approx(2 * 3 + each_s + 0.5, rel=1e-9)
    hidden = overlap_s(times(spans, "compute"), times(spans, "comm"))
    assert hidden == pytest.approx(3 * each_s, rel=1e-9)
    assert {s.step for s in spans} == {0}


def test_parameters_of_zero_3_are_gathered_while_the_layer_before_computes():
    gather = Comm(axis="dp", collective="all_gather", bytes=2 * 10**8, algorithm="ring")
    work = Pass(compute_s=4.0, layers=4, ahead=(gather,))

    spans = simulated(program(Layout(dp=2, zero=3), 1, stage=Stage.of(forward=work, backward=work)))

    each_s = ALPHA + 10**8 / RATE
    assert length_s(times(spans, "comm")) == pytest.approx(8 * each_s, rel=1e-9)
    assert step_s(spans) == pytest.approx(8 + each_s, rel=1e-9)  # only the first is waited for


def test_the_next_weights_are_asked_for_before_the_gradients_of_a_layer_leave_on_the_same_communicator():
    gather = Comm(axis="dp", collective="all_gather", bytes=2 * 10**8, algorithm="ring")
    scatter = Comm(axis="dp", collective="reduce_scatter", bytes=2 * 10**8, algorithm="ring")
    forward = Pass(compute_s=4.0, layers=4, ahead=(gather,))
    backward = Pass(compute_s=4.0, layers=4, ahead=(gather,), behind=(scatter,))

    spans = simulated(program(Layout(dp=2, zero=3), 1, stage=Stage.of(forward=forward, backward=backward)))

    each_s = ALPHA + 10**8 / RATE
    names = [span.name for span in sorted(spans, key=lambda s: s.start_s) if span.lane == "comm"]
    assert names[4:] == ["all_gather", *["all_gather", "reduce_scatter"] * 3, "reduce_scatter"]
    assert step_s(spans) == pytest.approx(8 + 2 * each_s, rel=1e-9)  # the first gather and the last scatter


def test_a_straggler_holds_up_everyone_through_the_gradients():
    bucket = Comm(axis="dp", collective="all_reduce", bytes=8, algorithm="ring")
    stage = Stage.of(forward=Pass(compute_s=1.0), backward=Pass(compute_s=2.0), gradients=(bucket,))
    job = program(Layout(dp=8), 4, stage=stage)

    plain, slow = simulated(job), simulated(job, stragglers={5: 1.5})

    assert {s.rank for s in plain} == {0}
    assert len({s.rank for s in slow}) == 2
    assert step_s(slow) - 4 * 3 * 1.5 == pytest.approx(step_s(plain) - 4 * 3)


def test_a_straggler_of_a_tensor_parallel_group_is_shown_itself_and_its_peers_of_the_pipeline_with_it():
    slow = simulated(program(Layout(tp=4, pp=2), 2), stragglers={6: 1.5})

    assert {span.rank for span in slow} == {2, 6}


def test_ranks_that_share_cores_compute_in_turns():
    job = program(Layout(dp=4), 1, cores=2.0)

    assert step_s(simulated(job)) == pytest.approx((FORWARD_S + BACKWARD_S) * 4 / 2)


def test_jitter_tells_replicas_apart_and_is_had_again_by_its_seed():
    job = program(Layout(dp=4), 2)

    one, same, other = (simulated(job, disturbance=Disturbance(jitter=0.1, seed=seed)) for seed in (1, 1, 2))

    assert one == same != other
    assert len({s.rank for s in one}) == 4


def test_the_groups_of_an_axis_follow_the_order_of_the_layout():
    layout = Layout(tp=2, cp=2, dp=2, pp=1, ep=4, order="tp-cp-dp-pp")

    assert groups(layout, "tp").tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert groups(layout, "dp").tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert groups(layout, "data").tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert groups(layout, "ep").tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_the_copies_of_a_sharded_model_are_runs_of_neighbours():
    layout = Layout(tp=2, dp=4, zero=3, replicas=2)

    assert groups(layout, "shard").tolist() == [[0, 2], [4, 6], [1, 3], [5, 7]]
    assert groups(layout, "replica").tolist() == [[0, 4], [2, 6], [1, 5], [3, 7]]


def test_copies_are_summed_after_their_shards_and_before_the_update():
    scatter = Comm(axis="shard", collective="reduce_scatter", bytes=2 * 10**8, algorithm="ring")
    summed = Comm(axis="replica", collective="all_reduce", bytes=10**8, algorithm="ring")
    backward = Pass(compute_s=2.0, layers=2, behind=(scatter,))
    stage = Stage.of(forward=Pass(compute_s=1.0), backward=backward, gradients=(summed,) * 2)

    spans = simulated(program(Layout(dp=4, zero=3, replicas=2), 2, stage=stage, optimizer_s=0.5))

    scatter_s, summed_s = ALPHA + 10**8 / RATE, 2 * ALPHA + 10**8 / RATE
    assert [s.name for s in spans if s.lane == "comm"].count("reduce_scatter") == 2 * 2
    assert [s.name for s in spans if s.lane == "comm"].count("all_reduce") == 2  # once a step, each layer
    assert step_s(spans) == pytest.approx(2 * 3 + scatter_s + summed_s + 0.5, rel=1e-9)


def test_groups_with_several_ranks_in_a_node_use_all_of_its_nics():
    topology = NodesTopology(nodes(4, gpus=4, nics=4), 16)
    times_s = {}
    for algorithm in ("auto", "ring"):
        bucket = Comm(axis="dp", collective="all_reduce", bytes=10**9, algorithm=algorithm)
        stage = Stage.of(forward=Pass(compute_s=0.0), backward=Pass(compute_s=0.0), gradients=(bucket,))
        times_s[algorithm] = step_s(simulated(program(Layout(dp=16), 1, stage=stage), topology))

    assert times_s["auto"] < times_s["ring"] / 3


@pytest.mark.parametrize(("keys", "message"), [
    ({"stragglers": {9: 2.0}}, "expected a rank below 4"),
    ({"stragglers": {1: 0.5}}, "factor of 1 or more"),
])  # fmt: skip
def test_a_straggler_that_cannot_be_is_refused(keys, message):
    with pytest.raises(InputError, match=message):
        simulated(program(Layout(dp=4), 1), **keys)


def test_a_layout_that_the_cluster_cannot_hold_is_refused():
    with pytest.raises(InputError, match="needs 8 ranks, the cluster has 4"):
        simulated(program(Layout(dp=8), 1), PricedNetwork(uniform(4, ALPHA, RATE)))


def exposed_s(collective, topology, layout, axis="tp"):
    """Return what one collective of 1 GB takes that nothing hides."""
    comm = Comm(axis=axis, collective=collective, bytes=10**9)
    stage = Stage.of(forward=Pass(compute_s=0.0, comms=(comm,)), backward=Pass(compute_s=0.0))
    spans = simulated(program(layout, 1, stage=stage), topology)
    return sum(end - start for start, end in times(spans, "comm", 0))


@pytest.mark.parametrize(("collective", "times_over"), [("all_reduce", 2), ("all_gather", 1), ("reduce_scatter", 1)])
def test_collectives_use_all_links_of_gpus_that_links_join_in_pairs(collective, times_over):
    """Five GPUs with 25 GB/s to each of four peers send as fast as those with 100 GB/s into a switch."""
    layout = Layout(tp=5)
    mesh, switch = (NodesTopology(nodes(1, gpus=5, switched=switched), 5) for switched in (False, True))
    least_s = times_over * 10**9 * 4 / 5 / 100e9

    assert exposed_s(collective, mesh, layout) == pytest.approx(least_s, rel=0.01)
    assert exposed_s(collective, switch, layout) == pytest.approx(least_s, rel=0.01)


def test_few_of_such_gpus_have_as_many_of_their_links():
    topology = NodesTopology(nodes(1, gpus=5, switched=False), 5)

    assert exposed_s("all_gather", topology, Layout(tp=2)) == pytest.approx(10**9 / 2 / 25e9, rel=0.01)


def test_between_nodes_of_such_gpus_each_sends_its_part_by_its_own_nic():
    topology = NodesTopology(nodes(2, gpus=5, nics=5, switched=False), 10)
    between_s, inside_s = 10**9 / 5 / 2 / 12.5e9, 10**9 * 4 / 5 / 100e9

    assert exposed_s("all_gather", topology, Layout(tp=10)) == pytest.approx(between_s + inside_s, rel=0.01)
