"""Three planners and one engine: what closed formulas time and the simulator plays is what the step's program sends.

The program is held to recorded runs of the engine (`tests/multiproc/parallel/test_program.py`); the measured planner
takes it as it is. The other two fill in the same rules from a model's sizes: axis, collective, bytes and count are
equal for every layout of the parity table and where states or weights lie on the host. What remains:

- Sizes leave out the norm before the output, and ranks fill up their parts: a row of weights in a message at most.
- How many gradients travel in a message under ZeRO 0 and 1 is a job's to say (`bucket_bytes`): the simulator has a
  message for each layer. Their bytes are equal.
- No configuration says dropout, which comes after a layer's last sum: the engine then repeats that in recomputation.
- Routing decides how many rows go to which expert: all of them have an even load.
"""

from collections import Counter

import pytest
from msgspec.structs import replace

from meshwright.plan.analytic import Grid, axis_traffic
from meshwright.plan.analytic import layer as layer_time
from meshwright.plan.analytic import step as step_time
from meshwright.plan.analytic.calls import calls_of_ranks
from meshwright.plan.analytic.price import coefficients_of, machine_of
from meshwright.plan.analytic.quantities import ModelQuantities
from meshwright.plan.search.simulated import step_program as simulated_program
from meshwright.workload.stages import rank_of_stages
from tests.unit.plan.analytic.test_own_memory import AUTOCAST
from tests.unit.plan.one_step import CASES, Step

OF_WEIGHTS = {"data", "shard", "replica", "edp", "host"}
PRODUCT_BYTES = {"fp32": 4, "bf16": 2}  # of what a layer's last product returns
SENDS = {"send_activation", "send_gradient"}


def repeated_sums(step):
    """Return what the engine sends again beside dropout, which no configuration says."""
    layout, found = step.layout, Counter()
    if step.model.hidden_dropout and layout.tp > 1 and layout.recompute != "none":
        name = "reduce_scatter" if layout.sp else "all_reduce"
        rows = layout.mbs * step.setting.seq_len // layout.cp
        size = rows * step.model.hidden_size * PRODUCT_BYTES[step.setting.precision]
        found["tp", name, size] = step.micro * step.model.num_hidden_layers
    return found


def without_equal(step, said, found):
    """Return the calls on either side that the other has none of, of as many bytes but for a row of weights."""
    left, right = Counter(said), Counter(found)
    for key in sorted(left):
        slack = 4 * step.model.hidden_size if key[0] in OF_WEIGHTS else 0
        for other in sorted(right):
            if key[:2] == other[:2] and abs(key[2] - other[2]) <= slack:
                both = min(left[key], right[other])
                left[key] -= both
                right[other] -= both
    return +left, +right


def in_one_message(calls, axes):
    """Return calls of which those along some axes are one message of all their bytes."""
    found = Counter()
    sizes = Counter()
    for (axis, name, size), count in calls.items():
        if axis in axes:
            sizes[axis, name] += size * count
        else:
            found[axis, name, size] += count
    return found + Counter({(*key, size): 1 for key, size in sizes.items()})


@pytest.mark.parametrize("precision", AUTOCAST)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_closed_formulas_time_what_the_program_sends(case, precision):
    step = Step(case, precision)

    timed = calls_of_ranks(step.setting, step.layout, step.stages if step.layout.pp > 1 else ())

    assert len(timed) == step.layout.pp
    for said, found in zip(step.said(), timed, strict=True):
        assert without_equal(step, said - repeated_sums(step), found) == (Counter(), Counter())


@pytest.mark.parametrize("precision", AUTOCAST)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_simulated_step_sends_what_the_program_says(case, precision):
    step = Step(case, precision)
    layout = step.layout

    simulated = simulated_program(step.setting, layout, step.stages if layout.pp > 1 else ())

    bucketed = {"data", "edp"} if layout.zero < 2 else set()
    for said, found in zip(step.said(), step.said(simulated), strict=True):
        both = [in_one_message(calls, bucketed) for calls in (said - repeated_sums(step), found)]
        assert without_equal(step, *both) == (Counter(), Counter())


def has_most_first(step):
    """Return whether the rank with the embedding, which sets the pace in closed formulas, has most layers too."""
    holders = rank_of_stages(step.layout, step.micro)
    layers = Counter()
    for holder, count in zip(holders, step.stages, strict=True):
        layers[holder] += count
    return layers[0] == max(layers.values())


TIMED = [case for case in CASES if "offload" not in case.layout and has_most_first(Step(case))]


def priced(step, monkeypatch, of_call):
    """Return the terms of a step on links where a call takes `of_call(bytes)` seconds, and nothing is dragged."""

    def call_s(_, over, size):
        return of_call(size) * (over.ranks > 1)

    for module in (axis_traffic, step_time):
        monkeypatch.setattr(module, "all_reduce_s", call_s)
    monkeypatch.setattr(axis_traffic, "gather_s", call_s)
    monkeypatch.setattr(layer_time, "all_to_all_s", lambda _, c, over, size, *, once: call_s(c, over, size))
    monkeypatch.setattr(step_time, "_send_s", lambda _machine, _c, _grid, message: of_call(message))
    own = ("pace", "moe_pace", "imbalance", "ep_exposed")
    c = replace(
        coefficients_of(step.setting), fsdp_drag=0.0, dp_drag=0.0, tp_hidden=0.0, sends_hidden=0.0,
        **dict.fromkeys(own, 1.0),
    )  # fmt: skip
    layout, setting = step.layout, step.setting
    return step_time.step_s(
        machine_of(setting), c, ModelQuantities.of(setting.architecture), Grid.of([layout]),
        seq_len=setting.seq_len, global_batch=setting.global_batch, shard=layout.dp * layout.cp / layout.replicas,
        stages=step.stages if layout.pp > 1 else (),
    )  # fmt: skip


@pytest.mark.parametrize("case", TIMED, ids=str)
def test_a_step_takes_as_many_seconds_as_its_calls_have_bytes_where_each_byte_takes_one(case, monkeypatch):
    step = Step(case)
    calls = calls_of_ranks(step.setting, step.layout, step.stages if step.layout.pp > 1 else ())[0]

    found = priced(step, monkeypatch, lambda size: 1.0 * size)

    inside = sum(size * count for (_, name, size), count in calls.items() if name not in SENDS)
    message = max([size for (_, name, size) in calls if name in SENDS], default=0)
    assert found.tensor_comm_s + found.data_comm_s + found.hidden_comm_s == pytest.approx(inside, rel=1e-4)
    # a rank between two others sets the pace, of a pipeline of two too
    many = 2 * step.layout.vpp * step.micro * (step.layout.pp > 1)
    assert found.pipeline_comm_s == pytest.approx(many * message)


@pytest.mark.parametrize("case", TIMED, ids=str)
def test_activations_take_as_many_seconds_as_they_have_calls_where_each_call_takes_one(case, monkeypatch):
    step = Step(case)
    calls = calls_of_ranks(step.setting, step.layout, step.stages if step.layout.pp > 1 else ())[0]

    found = priced(step, monkeypatch, lambda size: 1.0 * (size > 0))

    inside = sum(count for (axis, _, _), count in calls.items() if axis in {"tp", "cp", "ep"})
    sums = 1 if step.layout.sp else 0  # of gradients, after all micro-batches
    assert found.tensor_comm_s == pytest.approx(inside - sums)
