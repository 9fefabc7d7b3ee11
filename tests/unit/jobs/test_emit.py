"""What is emitted for an engine reads back as the layout that it was emitted for."""

import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.jobs.emit import EMITTERS, SUFFIXES, emitted
from meshwright.jobs.engines import ENGINES, engine_named, refusals
from meshwright.jobs.read import read_job
from meshwright.jobs.target import Target
from meshwright.layout import Layout
from meshwright.workload.models import load_model

DENSE, EXPERTS = ("llama3-8b", "llama3-70b"), ("qwen3-30b-a3b",)
PRECISIONS = ("bf16",)


def read_back(engine: str, target: Target):
    """Write what is emitted to a file and read the job in it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"job{SUFFIXES[engine]}"
        file.write_text(emitted(engine, target))
        return read_job([str(file)])


def settled(layout: Layout) -> Layout:
    """Return a layout without switches that have no effect."""
    if layout.dp * layout.cp == 1:
        layout = msgspec.structs.replace(layout, zero=0, replicas=1, offload="none")
    return layout if layout.pp > 1 else msgspec.structs.replace(layout, schedule="1f1b")


@st.composite
def targets(draw, engine: str):
    """Draw a layout that an engine can run, with a model and a batch."""
    facts = ENGINES[engine]
    power = st.sampled_from([1, 2, 4, 8])
    tp, pp, cp = (draw(power) if axis in facts.axes else 1 for axis in ("tp", "pp", "cp"))
    dp = draw(st.sampled_from([1, 2, 4, 8, 16]))
    model = draw(st.sampled_from((*DENSE, *EXPERTS) if "ep" in facts.axes and engine != "nemo" else DENSE))
    ep = draw(st.sampled_from([1, 2, 4, 8])) if model in EXPERTS else 1
    schedule = draw(st.sampled_from(facts.schedules)) if pp > 1 else "1f1b"
    vpp = draw(st.sampled_from([2, 3, 4])) if pp > 1 and schedule in {"interleaved", "zb"} else 1
    values = {
        **{"tp": tp, "pp": pp, "cp": cp, "dp": dp, "ep": ep, "vpp": vpp, "schedule": schedule},
        "mbs": draw(st.sampled_from([1, 2, 3])),
        "zero": draw(st.sampled_from(facts.zero)),
        "sp": draw(st.sampled_from([0, 1])) if tp > 1 else 0,
        "recompute": draw(st.sampled_from(facts.recompute)),
        "replicas": draw(st.sampled_from([1, 1, 2, 4])),
        "order": draw(st.sampled_from(facts.orders)),
        "offload": draw(st.sampled_from(facts.offload)),
    }
    try:
        layout = settled(msgspec.convert(values, Layout))
    except (msgspec.ValidationError, ValueError):
        assume(False)
    assume(not refusals(facts, layout, load_model(model).architecture.num_key_value_heads))
    rounds = draw(st.sampled_from([1, 2, 3])) * (layout.pp if layout.pp > 1 else 1)
    return Target(
        layout=layout,
        architecture=load_model(model).architecture,
        model=model,
        global_batch=layout.dp * layout.mbs * rounds,
        seq_len=draw(st.sampled_from([2048, 4096, 8192])),
        precision=draw(st.sampled_from(["bf16", "fp8"] if engine in {"megatron", "bridge", "maxtext"} else PRECISIONS)),
        gpus_per_node=8,
        reason="the fastest",
    )


def same_layout(layout: Layout, order_matters: bool = True) -> Layout:
    """Return a layout with the order of its axes reduced to those of degree above 1."""
    active = [axis for axis in layout.order.split("-") if getattr(layout, axis) > 1]
    default = [axis for axis in Layout().order.split("-") if getattr(layout, axis) > 1]
    return msgspec.structs.replace(settled(layout), order=Layout().order if active == default else layout.order)


@pytest.mark.parametrize("examples", [6, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
@pytest.mark.parametrize("engine", sorted(EMITTERS))
def test_what_is_emitted_reads_back_as_the_same_job(engine, examples):
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(targets(engine))
    def holds(target: Target):
        try:
            text = emitted(engine, target)
        except InputError:  # uneven stages that the engine's keys cannot say
            assume(False)
        job = read_back(engine, target)

        assert job.engine == engine, text
        assert job.world == target.world, text
        assert same_layout(job.full_layout()) == same_layout(target.layout), text
        assert (job.global_batch, job.seq_len, job.precision) == (target.global_batch, target.seq_len, target.precision)
        assert job.architecture.parameters == target.architecture.parameters, text
        assert not job.ignored, text

    holds()


def plain_target(**layout) -> Target:
    model = "llama3-70b"
    return Target(
        layout=Layout(**layout), architecture=load_model(model).architecture, model=model, global_batch=64, seq_len=8192
    )


def test_a_layout_that_an_engine_cannot_run_is_refused_with_every_rule_it_breaks():
    with pytest.raises(InputError, match=r"--emit deepspeed: .*DeepSpeed has no pp; DeepSpeed has no cp"):
        emitted("deepspeed", plain_target(pp=2, cp=2, dp=8, zero=1))


def test_an_unknown_engine_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"--engine megatrn: no such engine \(did you mean megatron\?\)"):
        engine_named("megatrn")


def test_uneven_stages_become_megatrons_layout_string():
    text = emitted("megatron", plain_target(tp=8, pp=3, dp=2, sp=1))

    assert "--pipeline-model-parallel-layout 'Et*27|t*27|t*26L'" in text


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_every_fact_of_an_engine_has_a_source(engine):
    facts = ENGINES[engine]

    assert facts.sources
    named = {word.strip() for key in facts.sources for word in key.split(",")}
    assert named <= set(facts.__struct_fields__)
    assert {"axes", "zero"} <= named
