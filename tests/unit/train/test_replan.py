"""A run plans once for each number of ranks that it comes to have."""

from types import SimpleNamespace

import msgspec
import pytest
import torch.distributed as dist

from meshwright.cli import run_command
from meshwright.cli import train as cli
from meshwright.cluster.graph import Cluster
from meshwright.errors import InputError
from meshwright.layout import Layout
from meshwright.train import launch, replan
from meshwright.train.replan import asks_for_another, ensure_planned
from meshwright.train.run.events import read_events
from meshwright.train.run.run_folder import PLAN_FILES
from testkit.train_jobs import small_job, write_corpus, write_run


@pytest.fixture
def job(tmp_path):
    return small_job(write_corpus(tmp_path))


@pytest.fixture
def folder(tmp_path, job):
    return write_run(tmp_path / "run", job, Layout(dp=2, mbs=1))


@pytest.fixture
def asked(monkeypatch, folder):
    """Return a list that gets the number of ranks that each plan is made for, without measuring anything."""
    asked = []

    def prepared(config, path, *, ranks, say):
        asked.append(ranks)
        plan = msgspec.structs.replace(
            folder.plan(),
            layout=Layout(dp=ranks, mbs=1),
            reason=f"plan number {len(asked)}",
            global_batch_sequences=config.train.global_batch,
            model=msgspec.to_builtins(config.model),
        )
        cluster = Cluster(name=f"of {ranks}")
        return SimpleNamespace(cluster=cluster, plan=plan, predicted_timeline=folder.timeline("predicted"))

    store = dist.HashStore()
    monkeypatch.setattr(replan, "prepare", prepared)
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", lambda: store)
    return asked


def planned(job, folder, ranks):
    """Let rank 0 of a number of ranks see to the plan; return what the files of the plan hold."""
    ensure_planned(job, folder, rank=0, ranks=ranks)
    return [(folder.path / name).read_bytes() for name in PLAN_FILES]


def test_a_plan_for_ranks_that_are_back_is_taken_up_as_it_was(job, folder, asked):
    of_two = planned(job, folder, 2)
    of_one = planned(job, folder, 1)

    assert planned(job, folder, 2) == of_two
    assert planned(job, folder, 1) == of_one != of_two
    assert asked == [1]
    layouts = [event.message.partition(": ")[2] for event in read_events(folder.events)]
    there, back = "layout dp=1,mbs=1 in place of dp=2,mbs=1", "layout dp=2,mbs=1 in place of dp=1,mbs=1"
    assert layouts == [there, back, there]


def test_a_plan_of_another_batch_or_model_is_not_taken_up(job, folder, asked):
    planned(job, folder, 1)
    other = msgspec.structs.replace(job, train=msgspec.structs.replace(job.train, global_batch=64))
    planned(other, folder, 2)
    assert folder.plan().global_batch_sequences == 64

    planned(job, folder, 1)
    deeper = msgspec.structs.replace(job, model=msgspec.structs.replace(job.model, num_hidden_layers=7))
    planned(msgspec.structs.replace(deeper, train=other.train), folder, 2)
    assert folder.plan().model["num_hidden_layers"] == 7
    assert asked == [1, 2, 2]


@pytest.mark.parametrize("name", PLAN_FILES)
def test_a_kept_plan_that_is_damaged_is_made_anew(job, folder, asked, name):
    planned(job, folder, 1)
    (folder.plans / "2" / name).unlink()
    if name == "plan.json":
        (folder.plans / "2" / name).write_text("{")

    planned(job, folder, 2)

    assert asked == [1, 2]


def test_a_plan_that_cannot_be_kept_is_made_anew(job, folder, asked):
    folder.plans.write_text("a file in the place of the folder")

    planned(job, folder, 1)
    planned(job, folder, 2)

    assert asked == [1, 2]


def with_launch(job, **launch):
    return msgspec.structs.replace(job, launch=msgspec.structs.replace(job.launch, **launch))


@pytest.mark.parametrize("layout", ["tp=2", "cp=2", "pp=2,mbs=1", "dp=2,mbs=2", "dp=2,mbs=1,zero=1"])
def test_a_layout_that_the_configuration_has_come_to_ask_for_is_planned(job, folder, asked, layout):
    planned(job, folder, 1)
    planned(job, folder, 2)

    planned(with_launch(job, layout=layout), folder, 2)

    assert asked == [1, 2]
    assert not folder.plans.exists()
    assert "in place of dp=2,mbs=1" in read_events(folder.events)[-1].message


@pytest.mark.parametrize("layout", ["", "dp=2,mbs=1", "mbs=1", "dp=4,mbs=1", "tp=3"])
def test_a_layout_that_runs_already_or_does_not_go_with_the_ranks_asks_for_nothing(job, folder, asked, layout):
    before = planned(job, folder, 2)

    assert planned(with_launch(job, layout=layout), folder, 2) == before
    assert asked == []


def test_a_run_that_has_lost_ranks_keeps_what_it_was_left_with(job, folder, asked):
    fixed = with_launch(job, layout="dp=2,mbs=1", ranks=2)
    planned(fixed, folder, 1)

    assert folder.plan().layout == Layout(dp=1, mbs=1)
    assert not asks_for_another(fixed, folder)
    assert asks_for_another(with_launch(job, layout="tp=2", ranks=2), folder)
    assert asks_for_another(with_launch(job, ranks=4), folder)
    assert not asks_for_another(with_launch(job, ranks=1), folder)


def test_a_layout_that_is_illegal_is_refused_when_the_run_goes_on(job, folder):
    with pytest.raises(InputError, match="tp: 3 does not divide num_attention_heads = 4"):
        asks_for_another(with_launch(job, layout="tp=3"), folder)


@pytest.fixture
def resumed(monkeypatch, folder):
    """Return a function that goes on with the run from the command line; nothing is trained."""
    monkeypatch.setattr(cli, "_run", lambda path, *, as_json: 0)
    monkeypatch.setattr(
        replan,
        "prepare",
        lambda config, path, *, ranks, say: SimpleNamespace(
            cluster=folder.cluster(),
            plan=msgspec.structs.replace(folder.plan(), layout=Layout.parse(config.launch.layout)),
            predicted_timeline=folder.timeline("predicted"),
        ),
    )
    return lambda *options: run_command(["train", "--resume", str(folder.path), *options])


def test_a_layout_that_is_put_into_the_configuration_of_a_run_is_the_one_that_goes_on(job, folder, resumed):
    folder.write_config(with_launch(job, layout="tp=2"))

    assert resumed() == 0
    assert folder.plan().layout == Layout(tp=2)


def test_a_run_that_is_complete_keeps_the_plan_that_was_measured_and_says_so(job, folder, resumed, monkeypatch, capsys):
    folder.write_config(with_launch(job, layout="tp=2"))
    monkeypatch.setattr(launch, "is_complete", lambda folder, config: True)

    assert resumed() == 0
    assert folder.plan().layout == Layout(dp=2, mbs=1)
    assert "the layout stays dp=2,mbs=1: the run is complete; --steps N" in capsys.readouterr().err
