"""Attention on longer sequences than any fitted run had: its kernel's own rate, where a stack calls one timed alone."""

import numpy as np
import pytest
from msgspec.structs import replace

from meshwright.layout import Layout
from meshwright.plan.analytic.attention import flash_s
from meshwright.plan.analytic.coefficients import book
from meshwright.plan.analytic.fitted_range import seen
from meshwright.plan.analytic.price import coefficients_of, machine_of
from meshwright.plan.analytic.quantities import Grid, ModelQuantities
from meshwright.workload.models import load_model
from tests.unit.plan.analytic.test_price import setting

MODEL = load_model("llama3-8b").architecture


def share_of_peak(seq_len, *, stack="bridge", cluster="dgx-h100", layout=None, **changes):
    """Return the share of the peak that a forward of causal attention reaches."""
    given = setting(MODEL, cluster, 8, stack=stack)
    machine, model = machine_of(given), ModelQuantities.of(MODEL)
    layout = layout or Layout(dp=8)
    forward = flash_s(machine, replace(coefficients_of(given), **changes), model, Grid.of([layout]), seq_len)[0]
    flops = 2.0 * seq_len**2 * model.heads * model.head_dim / layout.cp
    return float(np.ravel(flops / forward / machine.peak_half)[0])


@pytest.mark.parametrize("seq_len", [2048.0, 8192.0])
def test_sequences_that_runs_had_take_what_was_fitted_to_the_bit(seq_len):
    assert share_of_peak(seq_len) == share_of_peak(seq_len, attention_alone=0.0)


@pytest.mark.parametrize("stack", ["bridge", "megatron"])
def test_long_sequences_reach_what_the_kernel_does_alone(stack):
    assert share_of_peak(16_384.0, stack=stack) == pytest.approx(0.54)
    assert share_of_peak(131_072.0, stack=stack, layout=Layout(cp=8)) == pytest.approx(0.54)


def test_between_both_a_longer_sequence_never_takes_less():
    lengths = np.linspace(8192.0, 20_000.0, 50)
    seconds = [length**2 / share_of_peak(length) for length in lengths]
    assert all(np.diff(seconds) > 0)
    assert all(np.diff([share_of_peak(length) for length in lengths[:34]]) > 0)


@pytest.mark.parametrize(("stack", "cluster"), [("mpt", "dgx-h100"), ("nemo", "dgx-h100"), ("bridge", "dgx-a100-80g")])
def test_stacks_and_gpus_whose_kernels_nobody_timed_so_keep_what_was_fitted(stack, cluster):
    long = {"stack": stack, "cluster": cluster}
    assert share_of_peak(65_536.0, **long) == share_of_peak(65_536.0, attention_alone=0.0, **long)


def test_the_longest_fitted_sequence_is_that_of_the_runs():
    assert book().generic["attention_within"] == seen().lengths["bridge"]
