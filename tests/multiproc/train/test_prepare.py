"""The plan of a job, from measurements of this machine."""

import json

import msgspec
import pytest

from meshwright.bench import calibrate
from meshwright.bench.pace import pace
from meshwright.cli import run_command
from meshwright.cluster.graph import blocking
from meshwright.files import read_struct
from meshwright.layout import Plan
from meshwright.plan.search.measured_search import candidate_layouts, needed_bytes
from meshwright.train import prepare
from meshwright.train.planned import planned_job
from meshwright.workload.transformer import ModelConfig
from testkit.caches import new_cache
from testkit.train_jobs import small_job, write_corpus

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """Return a function that plans a job of four heads on two ranks, with as much memory as it is told is there."""
    monkeypatch.setenv("XDG_CACHE_HOME", new_cache(tmp_path / "cache"))
    model = ModelConfig(
        hidden_size=512, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2
    )
    job = msgspec.structs.replace(small_job(write_corpus(tmp_path)), model=model)

    def plan(spare_bytes):
        """`spare_bytes`: beyond what the smallest layout of plain data parallelism needs."""
        whole = prepare._problem

        def limited(*arguments):
            problem = whole(*arguments)
            least = min(needed_bytes(layout, problem) for layout in candidate_layouts([2], job.train.global_batch))
            return msgspec.structs.replace(problem, memory_bytes=least + spare_bytes)

        monkeypatch.setattr(prepare, "_problem", limited)
        return prepare.prepare(job, None, ranks=2, say=lambda _: None).plan

    return plan


def test_a_model_that_fits_whole_nowhere_is_planned_as_a_split_one(planned):
    plan = planned(spare_bytes=-1)

    assert not plan.layout.is_plain
    assert plan.layout.world_size == 2
    assert all(not other.layout.is_plain for other in plan.alternatives)


def test_plan_of_this_machine_and_train_say_the_same(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", new_cache(tmp_path / "cache"))
    drawn = {"data_s_per_draw": 0.0, "data_s_per_sequence": 1e-4}
    monkeypatch.setattr(prepare, "_drawing_s", lambda *_: drawn)  # measured anew each time, and part of a step
    steady = pace()
    monkeypatch.setattr(calibrate, "pace", lambda: steady)  # a machine that grew busy would be measured anew
    sizes = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 64}
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    path = tmp_path / "plan.json"

    asked = ["plan", "--model", str(tmp_path / "config.json"), "--cluster", "this", "--gpus", "2"]
    assert run_command([*asked, "--global-batch", "4", "--output", str(path)]) == 0
    text = capsys.readouterr().out
    planned = read_struct(path, Plan)
    again = prepare.prepare(planned_job(path, {}), None, say=lambda _: None).plan

    assert "GFLOP a token (causal) at 64 tokens a sequence" in text
    assert f"sequence length 64: the longest that {tmp_path / 'config.json'} allows" in text
    assert again.layout == planned.layout
    assert again.model == planned.model
    assert again.cluster == planned.cluster
    assert again.predicted == planned.predicted


@pytest.mark.parametrize(
    ("precision", "kept", "dtypes"), [("bf16", "bf16", {"float", "bfloat16"}), ("float32", "fp32", {"float"})]
)
def test_a_job_is_measured_in_its_precision_and_its_plan_keeps_it(precision, kept, dtypes, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", new_cache(tmp_path / "cache"))
    job = small_job(write_corpus(tmp_path), precision=precision)
    job = msgspec.structs.replace(job, launch=msgspec.structs.replace(job.launch, layout="dp=1,tp=2,mbs=2"))

    found = prepare.prepare(job, None, ranks=2, say=lambda _: None)

    waited = [fit for fit in found.cluster.measured.collectives if fit.collective == blocking("all_reduce")]
    assert {fit.dtype for fit in waited} == dtypes
    assert {time.operator.endswith(":bf16") for time in found.cluster.measured.operators} >= {precision == "bf16"}
    assert found.plan.precision == kept
    assert not any("bf16" in what for what in found.plan.predicted.not_modelled)


def test_times_among_ranks_of_one_host_are_no_prediction_of_the_network_between_two(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", new_cache(tmp_path / "cache"))
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    said = []

    plan = prepare.prepare(small_job(write_corpus(tmp_path)), None, ranks=2, say=said.append).plan

    assert plan.layout.world_size == 2
    assert {one.predicted.error_band for one in (plan, *plan.alternatives)} == {None}
    assert prepare.BETWEEN_HOSTS in plan.predicted.not_modelled
    assert any(prepare.BETWEEN_HOSTS in text for text in said)
