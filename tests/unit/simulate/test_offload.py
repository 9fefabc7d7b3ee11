"""Copies between a device and its host in a simulated step: each way has a link of its own, beside computation."""

import pytest

from meshwright.collectives.pricing.network import uniform
from meshwright.errors import InputError
from meshwright.layout import Layout
from meshwright.simulate.step import simulate_step
from meshwright.simulate.topology import PricedNetwork
from meshwright.workload.program import Comm, Pass, Stage, StepProgram

RATE, SIZE = 1e9, 10**9  # a copy takes a second


def copy(name, **calls):
    return Comm(axis="host", collective=name, bytes=SIZE, **calls)


def spans(stage, *, layers=1, rate=RATE, micro_batches=1, optimizer_s=5.0):
    program = StepProgram(
        layout=Layout(), micro_batches=micro_batches, stages=(stage,), optimizer_s=optimizer_s, host_bytes_per_s=rate
    )
    return simulate_step(program, PricedNetwork(uniform(1, 1e-3, RATE))).spans


def ends(found, name):
    return [(round(span.start_s, 9), round(span.end_s, 9)) for span in found if span.name == name]


def test_gradients_leave_after_backward_and_weights_come_back_after_the_update():
    once = {"calls": 0, "once": 1}
    stage = Stage.of(
        forward=Pass(compute_s=1.0), backward=Pass(compute_s=2.0), sums=(copy("to_host", **once),),
        parameters=(copy("to_device", **once),),
    )  # fmt: skip
    found = spans(stage)

    assert ends(found, "to_host") == [(3.0, 4.0)]
    assert ends(found, "optimizer") == [(4.0, 9.0)]
    assert ends(found, "to_device") == [(9.0, 10.0)]


def test_weights_of_a_layer_come_while_the_one_before_computes_and_gradients_leave_meanwhile():
    stage = Stage.of(
        forward=Pass(compute_s=6.0, layers=3, ahead=(copy("to_device"),)),
        backward=Pass(compute_s=6.0, layers=3, behind=(copy("to_host"),)),
    )
    found = spans(stage, optimizer_s=0.0)

    assert ends(found, "to_device") == [(0.0, 1.0), (1.0, 2.0), (3.0, 4.0)]
    assert ends(found, "to_host") == [(9.0, 10.0), (11.0, 12.0), (13.0, 14.0)]
    assert max(end for _, end in ends(found, "backward")) == 13.0


def test_a_step_that_crosses_to_a_host_of_unknown_rate_is_refused():
    stage = Stage.of(
        forward=Pass(compute_s=1.0), backward=Pass(compute_s=2.0), sums=(copy("to_host", calls=0, once=1),)
    )

    with pytest.raises(InputError, match="rate between a device and its host"):
        spans(stage, rate=None)
