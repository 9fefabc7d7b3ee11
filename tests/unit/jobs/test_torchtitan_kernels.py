"""torchtitan: what its products and element-wise kernels hide follows from the job's switches, and is said."""

import json

import pytest

from meshwright.cli import run_command
from meshwright.errors import InputError
from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job

JOB = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
global_batch_size = 32
seq_len = 4096
[parallelism]
tensor_parallel_degree = 8
"""
ASYNC = "enable_async_tensor_parallel = true\n"
COMPILE = "[compile]\nenable = true\n"


@pytest.fixture
def job(tmp_path):
    """Return a function that writes a job with more settings and returns its file."""

    def write(more=""):
        path = tmp_path / "job.toml"
        path.write_text(JOB + more)
        return path

    return write


@pytest.mark.parametrize(
    ("more", "traits"),
    [
        ("", ("eager", "vanilla")),
        (COMPILE, ("vanilla",)),
        (COMPILE + "components = ['loss']\n", ("eager", "vanilla")),
        (ASYNC + COMPILE, ()),
        (ASYNC, ("eager", "vanilla")),  # it acts in compiled layers alone
        ("enable_async_tensor_parallel = false\n" + COMPILE, ("vanilla",)),
        (COMPILE + ASYNC, ()),  # of releases that have it beside compile
    ],
)
def test_switches_of_a_job_say_what_it_does_otherwise_than_the_measured_runs(job, more, traits):
    found = read_job([str(job(more))], JobOptions(gpus=16))

    assert found.traits == traits
    assert not any("compile" in text or "async" in text for text in found.ignored)


def test_a_job_that_nothing_compiles_says_so_and_one_that_says_so_itself_needs_not(job):
    silent = read_job([str(job())], JobOptions(gpus=16))
    told = read_job([str(job("[compile]\nenable = false\n"))], JobOptions(gpus=16))

    assert any("nothing switches torch.compile on" in text for text in silent.assumed)
    assert not any("torch.compile" in text for text in told.assumed)


def test_a_job_without_compiled_layers_or_asynchronous_products_takes_longer(job, capsys):
    def step_s(more):
        words = ["plan", "--job", str(job(more)), "--gpus", "16", "--cluster", "dgx-h100", "--json"]
        assert run_command(words) == 0
        answer = json.loads(capsys.readouterr().out)
        return answer["predicted"]["step_time_s"], " ".join(answer["predicted"]["calibration"])

    best, synchronous, eager = (step_s(more) for more in (ASYNC + COMPILE, COMPILE, ""))

    assert best[0] < synchronous[0] < eager[0]
    assert "this job has" not in best[1]
    assert "this job has no asynchronous tensor parallelism" in synchronous[1]
    assert "this job has layers that run operator by operator and no asynchronous" in eager[1]


def emitted(capsys, *words):
    assert run_command(["plan", *words, "--gpus", "16", "--cluster", "dgx-h100", "--emit", "torchtitan"]) == 0
    return capsys.readouterr().out


def test_what_is_emitted_compiles_where_the_price_does(job, capsys):
    compiled, eager = (emitted(capsys, "--job", str(job(more))) for more in (COMPILE, ""))

    assert "compile=CompileConfig(enable=True)," in compiled
    assert "import CompileConfig, ParallelismConfig" in compiled
    assert "CompileConfig" not in eager
    assert "a TOML file of releases before it" in compiled


def test_a_job_is_written_for_another_engine_with_the_loss_that_takes_most(job, capsys):
    words = ["plan", "--job", str(job(COMPILE)), "--gpus", "16", "--cluster", "dgx-h100", "--emit", "megatron"]

    assert run_command(words) == 2
    assert "the job has --loss compiled" in (told := capsys.readouterr().err)
    assert "which the written configuration does not ask for: --loss whole prices the most" in told
    assert run_command([*words, "--loss", "whole"]) == 0
    assert "--tensor-model-parallel-size" in capsys.readouterr().out


def test_asynchronous_products_that_are_priced_are_asked_for(job, capsys):
    told = "priced with asynchronous tensor parallelism"
    layout = ("--layout", "tp=8,dp=2,zero=3,sp=1")

    assert told in emitted(capsys, "--job", str(job(ASYNC + COMPILE)), *layout)
    assert told not in emitted(capsys, "--job", str(job(COMPILE)), *layout)
    assert told not in emitted(capsys, "--job", str(job(ASYNC + COMPILE)), "--layout", "dp=16,zero=3")


def test_a_length_in_thousands_is_no_number_since_it_has_two_meanings(tmp_path):
    (tmp_path / "job.toml").write_text(JOB.replace("seq_len = 4096", 'seq_len = "4k"'))

    with pytest.raises(InputError, match=r"training\.seq_len: expected a whole number of 1 or more, got '4k'"):
        read_job([str(tmp_path / "job.toml")], JobOptions(gpus=16))


def test_a_schedule_that_halves_each_backward_is_offered_to_a_job_without_compiled_layers_alone(job, capsys):
    def offered(more):
        words = ["plan", "--job", str(job(more)), "--gpus", "16", "--cluster", "dgx-h100", "--json"]
        assert run_command([*words, "--only", "pp>1", "--only", "schedule=zb"]) == 0
        return json.loads(capsys.readouterr().out)["faster"]

    assert not offered(COMPILE)
    assert {one["layout"]["schedule"] for one in offered("")} == {"zb"}


def test_a_compiled_job_with_such_a_schedule_is_told_that_the_two_do_not_run_together(tmp_path, job):
    piped = JOB.replace("tensor_parallel_degree = 8", "tensor_parallel_degree = 2\npipeline_parallel_degree = 2")
    schedule = 'pipeline_parallel_schedule = "InterleavedZeroBubble"\n'
    path = tmp_path / "piped.toml"
    notes = []
    for more in (COMPILE, ""):
        path.write_text(piped + schedule + more)
        notes.append(read_job([str(path)], JobOptions(gpus=16)).notes)

    assert any("halves each backward, which torch.compile joins" in text for text in notes[0])
    assert not any("halves each backward" in text for text in notes[1])


def test_such_a_schedule_is_not_written_with_compiled_layers(capsys):
    words = ["plan", "--model", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "16", "--global-batch", "32"]
    layout = ["--layout", "pp=2,dp=8,vpp=2,mbs=1,zero=3,schedule=zb"]

    assert run_command([*words, "--emit", "torchtitan", *layout]) == 2
    assert "schedule=zb halves a backward" in capsys.readouterr().err


@pytest.mark.parametrize(("switch", "optimizer"), [("true", "adamw-in-backward"), ("false", "")])
def test_a_step_in_backward_uses_gradients_up_as_they_come(job, switch, optimizer):
    found = read_job([str(job(f"[optimizer]\nearly_step_in_backward = {switch}\n"))], JobOptions(gpus=64))

    assert found.optimizer == optimizer
    assert not any("early_step" in text for text in found.ignored)
