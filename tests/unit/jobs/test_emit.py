"""A configuration emitted for an engine reads back as the layout that it was emitted for."""

import contextlib
import re
import subprocess
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.jobs.emit.config import EMITTERS, SUFFIXES, emitted
from meshwright.jobs.emit.rules import refusals
from meshwright.jobs.emit.target import EmitTarget
from meshwright.jobs.read import read_job
from meshwright.layout import Layout
from meshwright.workload.architecture import Architecture
from meshwright.workload.engines import ENGINES, applicable, engine_named, fact_sources
from meshwright.workload.models import load_model, model_names

DENSE, EXPERTS = ("llama3-8b", "llama3-70b"), ("qwen3-30b-a3b",)
PRECISIONS = ("bf16",)


def read_back(engine: str, target: EmitTarget):
    """Write what is emitted to a file and read the job in it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"job{SUFFIXES[engine]}"
        file.write_text(emitted(engine, target))
        return read_job([str(file)])


def settled(layout: Layout) -> Layout:
    """Return a layout without switches that have no effect."""
    if layout.dp * layout.cp == 1:
        layout = msgspec.structs.replace(layout, zero=0, replicas=1, offload="none")
    plain = msgspec.structs.replace(layout, etp=None)
    layout = plain if plain.expert_tp == layout.expert_tp else layout
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
    etp = draw(st.sampled_from([None, 1])) if ep > 1 else None  # one: experts folded over tp
    schedule = draw(st.sampled_from(facts.schedules)) if pp > 1 else "1f1b"
    vpp = draw(st.sampled_from([2, 3, 4])) if pp > 1 and schedule in {"interleaved", "zb"} else 1
    values = {
        **{"tp": tp, "pp": pp, "cp": cp, "dp": dp, "ep": ep, "etp": etp, "vpp": vpp, "schedule": schedule},
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
    sizes = load_model(model).architecture
    assume(not refusals(facts, layout, sizes.num_key_value_heads, sizes.num_hidden_layers))
    rounds = draw(st.sampled_from([1, 2, 3])) * (layout.pp if layout.pp > 1 else 1)
    return EmitTarget(
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


@pytest.mark.parametrize(
    "examples", [6, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(300)])]
)
@pytest.mark.parametrize("engine", sorted(EMITTERS))
def test_what_is_emitted_reads_back_as_the_same_job(engine, examples):
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(targets(engine))
    def holds(target: EmitTarget):
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
        if engine in {"megatron", "bridge"} and target.layout.pp > 1 and not target.even:
            assert job.stages == target.stages, text

    holds()


def plain_target(**layout) -> EmitTarget:
    model = "llama3-70b"
    return EmitTarget(
        layout=Layout(**layout), architecture=load_model(model).architecture, model=model, global_batch=64, seq_len=8192
    )


def test_a_layout_that_an_engine_cannot_run_is_refused_with_every_rule_it_breaks():
    with pytest.raises(InputError, match=r"--emit deepspeed: .*Accelerate has no pp; DeepSpeed through .* has no cp"):
        emitted("deepspeed", plain_target(pp=2, cp=2, dp=8, zero=1))


def test_experts_folded_over_tp_are_refused_where_an_engine_cuts_them_too():
    target = msgspec.structs.replace(
        plain_target(tp=4, dp=8, ep=8, etp=1, zero=3, sp=1, recompute="full"),
        architecture=load_model("qwen3-30b-a3b").architecture,
        model="qwen3-30b-a3b",
    )

    with pytest.raises(InputError, match="its experts are cut by tensor parallelism as all else is: etp=tp"):
        emitted("maxtext", target)


ODD = ("mamba2-2.7b", "bert-base", "t5-11b", "vit-l16", "jamba-1.5-mini", "gemma3-27b", "llava1.5-7b", "deepseek-v3.2")
PLAIN = ("llama3-8b", "gpt3-175b", "bloom-176b")


@pytest.mark.parametrize("some", [(*ODD, *PLAIN), pytest.param((), marks=pytest.mark.slow, id="all")])
@pytest.mark.parametrize("engine", ["megatron", "nemo"])
def test_a_model_that_sizes_cannot_say_is_refused_and_never_emitted_as_another(engine, some):
    refused = []
    for name in some or model_names():
        model = load_model(name).description
        if not isinstance(model, Architecture):
            continue
        target = EmitTarget(
            layout=Layout.parse("dp=8,zero=0"), architecture=model, model=name, global_batch=8, seq_len=512
        )
        try:
            emitted(engine, target)
        except InputError:
            refused.append(name)
            continue
        read = read_back(engine, target).architecture
        assert abs(read.parameters / model.parameters - 1) < 5e-4, name
        assert read.num_hidden_layers == model.num_hidden_layers

    assert set(ODD) <= set(refused)
    assert not set(PLAIN) & set(refused)


def test_an_unknown_engine_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"--engine megatrn: no such engine \(did you mean megatron\?\)"):
        engine_named("megatrn")


def test_stages_that_an_engine_does_not_cut_are_refused_by_emission_and_search_alike():
    model = load_model("llama3-405b").architecture  # 126 layers
    cut = Layout.parse("tp=8,pp=8,dp=2,sp=1,zero=1"), Layout.parse("tp=8,pp=4,dp=4,sp=1,zero=1,schedule=gpipe")

    told = [refusals(ENGINES[name], cut[0], model.num_key_value_heads, 126) for name in ("nemo", "megatron")]
    even = refusals(ENGINES["maxtext"], cut[1], model.num_key_value_heads, 126)

    assert told == [[], []]  # 128 with embedding and output, in 8 stages of 16
    assert "126 layers do not fit: its stages hold equally many layers" in even


def test_nemo_counts_embedding_and_output_where_that_makes_stages_even():
    target = msgspec.structs.replace(
        plain_target(tp=8, pp=8, dp=2, sp=1, zero=1),
        architecture=load_model("llama3-405b").architecture,
        model="llama3-405b",
    )

    text, job = emitted("nemo", target), read_back("nemo", target)

    assert "account_for_embedding_in_pipeline_split: true" in text
    assert job.stages == target.stages == (15, 16, 16, 16, 16, 16, 16, 15)


def test_uneven_stages_become_megatrons_layout_string():
    text = emitted("megatron", plain_target(tp=8, pp=3, dp=2, sp=1))

    assert "--pipeline-model-parallel-layout 'Et*27|t*27|t*26L'" in text


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_every_fact_of_an_engine_has_a_source(engine):
    facts = ENGINES[engine]
    named = {word.strip() for key in facts.sources for word in key.split(",")}

    assert named <= set(facts.__struct_fields__)
    assert {"axes", "zero"} <= named
    for fact in applicable(facts):
        assert fact_sources(facts, fact), fact
        assert all(re.match(r"https://|[\w.-]+/[\w.-]+:\w", where) for where in fact_sources(facts, fact)), fact


CASES = [
    ("llama3-70b", "tp=4,pp=4,dp=2,vpp=5,sp=1,zero=1,schedule=interleaved,recompute=selective"),
    ("llama3-70b", "tp=8,pp=3,dp=2,sp=1,zero=1"),
    ("llama3-8b", "tp=2,cp=2,dp=4,sp=1,zero=3,recompute=full"),
    ("llama3-8b", "dp=16,zero=3,recompute=full,replicas=2"),
    ("llama3-8b", "tp=2,dp=4,pp=2,sp=1,zero=3,schedule=interleaved,vpp=2,recompute=full"),
    ("llama3-8b", "tp=2,dp=8,zero=2"),
    ("llama3-8b", "dp=8,zero=0"),
    ("qwen3-30b-a3b", "tp=2,dp=8,ep=8,sp=1,zero=1"),
    ("qwen3-30b-a3b", "dp=16,ep=8,zero=3,recompute=full"),
    ("deepseek-v3", "pp=8,dp=8,ep=8,zero=1"),
]
BARE = r"\s*(?:\w+=\(|\)|\),|EOF|cat > .*|srun .*|torchrun .*|deepspeed .*|accelerate .*|from .*|def .*|return .*)?"


def texts(engine: str) -> list[str]:
    """Return what is emitted for those of the cases that an engine can run."""
    found = []
    for model, layout in CASES:
        target = msgspec.structs.replace(
            plain_target(), layout=Layout.parse(layout), model=model, architecture=load_model(model).architecture
        )
        with contextlib.suppress(InputError):
            found.append(emitted(engine, msgspec.structs.replace(target, global_batch=256)))
    assert found
    return found


@pytest.mark.parametrize("engine", sorted(EMITTERS))
def test_every_setting_says_why_it_is_there(engine):
    for text in texts(engine):
        plain = re.sub(r"^\{\n.*?^\}$", "", text, flags=re.MULTILINE | re.DOTALL)  # JSON has no comments
        bare = [line for line in plain.splitlines() if "#" not in line and not re.fullmatch(BARE, line.strip())]

        assert not bare


@pytest.mark.parametrize("engine", [name for name, suffix in SUFFIXES.items() if suffix == ".sh"])
def test_emitted_scripts_are_what_a_shell_can_read(engine):
    for text in texts(engine):
        checked = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)

        assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize(
    ("engine", "layout", "line"),
    [
        ("megatron", "tp=4,dp=2,sp=1,zero=1", "export CUDA_DEVICE_MAX_CONNECTIONS=1"),
        ("megatron", "dp=8,zero=3", "unset CUDA_DEVICE_MAX_CONNECTIONS"),
        ("megatron", "tp=8,pp=2,sp=1,zero=0", "export NCCL_P2P_NET_CHUNKSIZE=2097152"),
        ("bridge", "tp=4,dp=2,sp=1,zero=1", "export NVTE_FWD_LAYERNORM_SM_MARGIN=16"),
        ("nemo", "tp=4,dp=2,sp=1,zero=1", "# set CUDA_DEVICE_MAX_CONNECTIONS=1"),
        ("torchtitan", "dp=8,zero=3", "# set PYTORCH_ALLOC_CONF=expandable_segments:True"),
        ("deepspeed", "dp=8,zero=3", "export PYTORCH_ALLOC_CONF=expandable_segments:True"),
        ("accelerate", "dp=8,zero=3", "export PYTORCH_ALLOC_CONF=expandable_segments:True"),
        ("maxtext", "dp=8,zero=3,recompute=full", "# set XLA_FLAGS='--xla_gpu_enable_latency_hiding_scheduler=true"),
    ],
)
def test_variables_that_a_layout_needs_are_set_with_why(engine, layout, line):
    text = emitted(engine, msgspec.structs.replace(plain_target(), layout=Layout.parse(layout)))

    found = [one for one in text.splitlines() if one.startswith(line)]
    assert len(found) == 1
    assert re.search(r"(?:  # |: )\w+", found[0])


def test_a_layout_without_communication_beside_computation_needs_no_variables():
    text = emitted("megatron", msgspec.structs.replace(plain_target(), layout=Layout.parse("dp=1,zero=0")))

    assert "export" not in text


@pytest.mark.parametrize("engine", ["megatron", "bridge", "accelerate"])
def test_ranks_of_several_nodes_fill_them_in_slurms_order(engine):
    text = emitted(engine, msgspec.structs.replace(plain_target(), layout=Layout.parse("dp=16,zero=3")))

    assert "--distribution=block" in text
    assert re.search(r"--(?:node|machine)_rank=\$SLURM_NODEID", text)
    assert "# rank r is GPU r % 8 of node r // 8: ranks fill dp" in text


def test_the_text_that_a_shell_is_given_takes_the_words_after_it(tmp_path):
    file = tmp_path / "job.sh"
    file.write_text(
        "srun bash -c 'exec torchrun --node_rank=$SLURM_NODEID \"$@\"' name --nnodes 2 --nproc_per_node 8 "
        "pretrain_gpt.py --micro-batch-size 1 --tensor-model-parallel-size 4\n"
    )

    job = read_job([str(file)])

    assert (job.world, job.layout.tp) == (16, 4)


@pytest.mark.parametrize("engine", sorted(set(EMITTERS) - {"megatron", "nemo"}))
def test_a_model_of_other_sizes_is_not_emitted_by_the_name_of_a_published_one(engine):
    layout = Layout.parse("dp=8,zero=3,recompute=full")
    published = msgspec.structs.replace(
        plain_target(), layout=layout, model="llama3-8b", architecture=load_model("llama3-8b").architecture
    )

    def with_sizes(**sizes) -> EmitTarget:
        return msgspec.structs.replace(
            published, architecture=msgspec.structs.replace(published.architecture, stack=(), **sizes)
        )

    assert emitted(engine, with_sizes(vocab_size=128512, max_position_embeddings=0)) == emitted(engine, published)
    with pytest.raises(InputError, match=r"num_hidden_layers 16, not 32; expected an engine that is told sizes"):
        emitted(engine, with_sizes(num_hidden_layers=16))
    with pytest.raises(InputError, match=r"the job's model has other matrices in its layers"):
        emitted(engine, with_sizes(intermediate_size=8192))
    with pytest.raises(InputError, match=r"the job's model has vocab_size 32000, not 128256"):
        emitted(engine, with_sizes(vocab_size=32000))
    with pytest.raises(InputError, match=r"the job's model has biases"):
        emitted(engine, with_sizes(bias=True))


def test_gradients_that_add_up_in_half_precision_are_emitted_so_or_not_at_all():
    half = msgspec.structs.replace(plain_target(tp=4, dp=8, sp=1, zero=1), half_sums=True)

    assert read_back("megatron", half).half_sums is True
    assert read_back("megatron", msgspec.structs.replace(half, half_sums=False)).half_sums is False
    with pytest.raises(InputError, match="gradients add up in bf16, which is emitted for megatron alone"):
        emitted("bridge", half)


@pytest.mark.parametrize(
    ("kind", "rows", "said"),
    [("learned", 1024, "learned_absolute"), ("learned", 0, "rope"), ("alibi", 0, "none"), ("rotary", 0, "rope")],
)
def test_a_model_without_a_table_of_positions_is_given_none(kind, rows, said):
    target = plain_target()
    model = msgspec.structs.replace(target.architecture, positions=kind, max_position_embeddings=rows)

    assert f"--position-embedding-type {said} " in emitted(
        "megatron", msgspec.structs.replace(target, architecture=model)
    )
