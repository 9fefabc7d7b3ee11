"""Predicted time of offload, from figures that can be added up by hand, and the measurements that it needs."""

import msgspec
import pytest

from meshwright.cluster.graph import CollectiveFit, Measurements, OperatorTime, blocking
from meshwright.errors import InputError
from meshwright.layout import Layout
from meshwright.plan.measured.data_parallel import StepInputs
from meshwright.plan.measured.needs import needs
from meshwright.plan.measured.pipeline import predict_pipeline_step
from meshwright.plan.measured.spmd import predict_spmd_step
from meshwright.plan.search.measured_search import SearchProblem, fits, splits
from meshwright.timeline import step_parts
from meshwright.workload.holdings import held_by, peak_memory_bytes
from meshwright.workload.transformer import ModelConfig, describe_workload

MODEL = ModelConfig(num_attention_heads=4, num_key_value_heads=4, num_hidden_layers=3)
LEAVING_S, COMING_S, UPDATE_S, OTHER_S = 0.5, 0.25, 2.0, 1e-3


def predicted(text, global_batch=4, without=()):
    layout = Layout.parse(text)
    workload = describe_workload(MODEL, seq_len=128, micro_batch=layout.mbs, layout=layout)
    needed = needs(layout, workload, global_batch)
    times = [
        OperatorTime(
            operator=op.key, ranks=layout.world_size, threads=1, backward_s=OTHER_S,
            forward_s=UPDATE_S if op.kind == "host_adamw" else OTHER_S,
        )
        for op in needed.operators
    ]  # fmt: skip
    seconds = {"to_host": LEAVING_S, "to_device": COMING_S}
    fits = [
        CollectiveFit(
            collective=name, backend="nccl", ranks=layout.world_size, alpha_s=seconds.get(name.split()[-1], 1e-6),
            beta_s_per_byte=0.0, min_bytes=1, max_bytes=2**40,
        )
        for name in (
            *map(blocking, ("to_host", "to_device", "all_reduce", "all_gather", "reduce_scatter", "send_recv")),
            *("all_reduce", "reduce_scatter", "link send_recv"),
        )
        if name.split()[-1] not in without
    ]  # fmt: skip
    measured = Measurements(fingerprint="test", operators=tuple(times), collectives=tuple(fits))
    inputs = StepInputs(
        workload=workload, global_batch=global_batch, measured=measured, backend="nccl", peak_flops_per_s=None
    )
    return (predict_pipeline_step if layout.pp > 1 else predict_spmd_step)(layout, inputs, 2**30)


def between(timeline, name):
    return [(span.start_s, span.end_s) for span in timeline.spans if span.name == name and span.rank == 0]


@pytest.mark.parametrize("text", ["dp=1,mbs=4,offload=optimizer", "dp=2,mbs=2,zero=1,offload=optimizer"])
def test_gradients_leave_weights_come_back_and_the_host_updates_between_them(text):
    timeline = predicted(text)
    (leaving,), (coming,), update = (between(timeline, name) for name in ("to_host", "to_device", "optimizer"))

    assert leaving[1] - leaving[0] == pytest.approx(LEAVING_S)
    assert coming[1] - coming[0] == pytest.approx(COMING_S)
    assert leaving[1] <= update[0][0] < update[-1][1] <= coming[0]
    assert step_parts([span for span in timeline.spans if span.rank == 0])["optimizer_s"] >= UPDATE_S


def test_weights_come_for_each_gather_and_gradients_of_the_first_micro_batch_leave_beside_what_follows():
    layers, ends = 3, 1
    whole, twice = (predicted(f"dp=2,mbs={mbs},zero=3,offload=parameters") for mbs in (2, 1))

    assert len(between(whole, "to_device")) == 2 * layers + ends
    assert len(between(whole, "to_host")) == layers + ends
    assert len(between(twice, "to_device")) == 2 * (2 * layers + ends)
    compute = [span for span in whole.spans if span.name == "backward"]
    first = between(whole, "to_host")[0]
    assert any(span.start_s < first[1] and span.end_s > first[0] for span in compute)
    (update, *_) = between(whole, "optimizer")
    assert max(end for _, end in between(whole, "to_host")) <= update[0]


def test_a_pipeline_waits_for_what_crosses_at_the_end_of_its_step():
    timeline = predicted("dp=1,pp=2,mbs=1,offload=optimizer")

    assert len(between(timeline, "to_host")) == len(between(timeline, "to_device")) == 1


def test_copies_and_the_hosts_update_are_measured_for_layouts_that_offload_alone():
    def needed(text):
        layout = Layout.parse(text)
        return needs(layout, describe_workload(MODEL, seq_len=128, micro_batch=layout.mbs, layout=layout), 4)

    plain, offloading = needed("dp=1,mbs=4,recompute=full"), needed("dp=1,mbs=4,recompute=full,offload=optimizer")

    assert plain.host_bytes == 0 < offloading.host_bytes
    assert {op.kind for op in offloading.operators} - {op.kind for op in plain.operators} == {"host_adamw"}
    with pytest.raises(InputError, match="to_host .* was not measured"):
        predicted("dp=1,mbs=4,offload=optimizer", without={"to_host"})


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_moments_leave_the_device_and_are_counted_on_the_host(zero):
    def held(offload):
        layout = Layout(dp=2, mbs=2, zero=zero, offload=offload)
        workload = describe_workload(MODEL, seq_len=128, micro_batch=2, layout=layout)
        return peak_memory_bytes(workload, layout), held_by(workload, layout)[0].states.host, workload.parameters

    (plain, nothing, parameters), (less, host, _) = held("none"), held("optimizer")
    share = parameters // (2 if zero else 1)

    assert nothing == 0
    assert plain - less == pytest.approx(8 * share, rel=0.01)
    assert host == pytest.approx(16 * share, rel=0.01)
    if zero >= 2:
        assert held("parameters")[0] < less


def test_a_search_that_may_offload_finds_what_fits_in_a_gpu_no_other_way():
    layout = Layout(dp=1, mbs=1)
    least = peak_memory_bytes(describe_workload(MODEL, seq_len=128, micro_batch=1, layout=layout), layout)
    problem = SearchProblem(
        describe=lambda one: describe_workload(MODEL, seq_len=128, micro_batch=one.mbs, layout=one), global_batch=1,
        seq_len=128, backend="nccl", memory_bytes=least // 2, runtime_bytes=0, data_s_per_sequence=0.0,
        host_memory_bytes=2**40,
    )  # fmt: skip

    found = splits([1], MODEL, problem, ("optimizer", "parameters"))

    assert not splits([1], MODEL, problem)
    assert found
    assert {one.offload for one in found} <= {"optimizer", "parameters"}
    assert not fits(found[0], msgspec.structs.replace(problem, host_memory_bytes=1))
