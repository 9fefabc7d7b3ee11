"""A run that goes on is held to what its checkpoint says of the job, and to there being one."""

import json

import msgspec
import numpy as np
import pytest

from meshwright.errors import InputError
from meshwright.layout import Layout
from meshwright.train.checkpoint.resume import CHANGED_VARIABLE, ResumeCheck, check_keys, checkpoint_facts
from meshwright.train.data.corpus import Corpus, CorpusSplit
from testkit.train_jobs import small_job, write_run

CORPUS = Corpus(split=CorpusSplit((), ()), train=np.arange(9), validation=np.arange(9), content="aa")


def resume_check(folder, config, corpus=CORPUS):
    return ResumeCheck(config, folder.plan(), corpus, folder)


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path / "run", small_job(str(tmp_path)), Layout(dp=2, mbs=2))


def with_key(config, key, value):
    section, name = key.split(".")
    return msgspec.structs.replace(
        config, **{section: msgspec.structs.replace(getattr(config, section), **{name: value})}
    )


CHANGES = {
    "model.num_hidden_layers": 1,
    "model.rope_theta": 500.0,
    "model.rms_norm_eps": 1e-3,
    "optimizer.kind": "sgd",
    "optimizer.learning_rate": 1e-5,
    "optimizer.warmup_steps": 7,
    "optimizer.beta2": 0.5,
    "train.steps": 77,
    "data.seq_len": 16,
}


@pytest.mark.parametrize(("key", "value"), CHANGES.items())
def test_each_difference_is_named_and_needs_to_be_said(folder, key, value, monkeypatch):
    config = folder.config()
    saved = checkpoint_facts(config, folder.plan(), 5, CORPUS)
    changed = with_key(config, key, value)
    section, name = key.split(".")
    before = getattr(getattr(config, section), name)

    with pytest.raises(InputError, match="was saved by another job") as refused:
        resume_check(folder, changed).check(saved)

    assert f"{key}: {before}, now {value}" in str(refused.value)
    assert f"--changed {key}" in str(refused.value)
    assert str(refused.value).count("--changed") == 1
    monkeypatch.setenv(CHANGED_VARIABLE, f"data.paths,{key}")
    check_keys([key])
    resume_check(folder, changed).check(saved)
    assert [difference.key for difference in resume_check(folder, changed).differences(saved)] == [key]


def test_other_tokens_are_named_whatever_they_come_from(folder, monkeypatch):
    saved = checkpoint_facts(folder.config(), folder.plan(), 5, CORPUS)
    other = msgspec.structs.replace(CORPUS, content="bb")

    with pytest.raises(InputError, match=r"data.paths: other tokens .* --changed data.paths$"):
        resume_check(folder, folder.config(), other).check(saved)

    monkeypatch.setenv(CHANGED_VARIABLE, "data.paths")
    resume_check(folder, folder.config(), other).check(saved)


def test_another_precision_is_named_and_auto_is_what_it_was(folder, monkeypatch):
    config, plan = folder.config(), folder.plan()
    saved = checkpoint_facts(config, plan, 5, CORPUS, precision="float32")

    ResumeCheck(config, plan, CORPUS, folder, precision="float32").check(saved)
    with pytest.raises(InputError, match=r"train.precision: float32, now bf16; .* --changed train.precision$"):
        ResumeCheck(config, plan, CORPUS, folder, precision="bf16").check(saved)

    monkeypatch.setenv(CHANGED_VARIABLE, "train.precision")
    check_keys(["train.precision"])
    ResumeCheck(config, plan, CORPUS, folder, precision="bf16").check(saved)


def test_a_checkpoint_that_does_not_say_its_precision_goes_on_in_any(folder):
    config, plan = folder.config(), folder.plan()
    saved = checkpoint_facts(config, plan, 5, CORPUS)

    ResumeCheck(config, plan, CORPUS, folder, precision="bf16").check(saved)
    ResumeCheck(config, plan, CORPUS, folder).check(msgspec.structs.replace(saved, precision="bf16"))


def test_several_differences_are_all_named(folder, monkeypatch):
    saved = checkpoint_facts(folder.config(), folder.plan(), 5, CORPUS)
    changed = with_key(with_key(folder.config(), "model.num_hidden_layers", 1), "data.seq_len", 16)

    monkeypatch.setenv(CHANGED_VARIABLE, "data.seq_len")
    with pytest.raises(InputError, match="num_hidden_layers") as refused:
        resume_check(folder, changed).check(saved)
    assert "seq_len" not in str(refused.value)
    monkeypatch.delenv(CHANGED_VARIABLE)
    with pytest.raises(InputError, match=r"num_hidden_layers: 2, now 1; data\.seq_len: 32, now 16"):
        resume_check(folder, changed).check(saved)


def test_the_same_job_goes_on_and_so_does_one_whose_checkpoint_says_less(folder):
    saved = checkpoint_facts(folder.config(), folder.plan(), 5, CORPUS)

    resume_check(folder, folder.config()).check(saved)
    resume_check(folder, folder.config()).check(
        msgspec.structs.replace(saved, corpus="", seq_len=0, optimizer="", model={})
    )


@pytest.mark.parametrize(("key", "value"), [("train.seed", 9), ("train.global_batch", 16)])
def test_another_seed_or_batch_is_refused_whatever_is_said(folder, key, value, monkeypatch):
    saved = checkpoint_facts(folder.config(), folder.plan(), 5, CORPUS)
    monkeypatch.setenv(CHANGED_VARIABLE, key)

    with pytest.raises(InputError, match="seed 0 and 40 sequences"):
        resume_check(folder, with_key(folder.config(), key, value)).check(saved)


@pytest.mark.parametrize("key", ["train.seed", "model.layers", "x", ""])
def test_a_key_that_is_not_held_against_the_checkpoint_cannot_have_changed(key):
    with pytest.raises(InputError, match="--changed"):
        check_keys([key])


def test_no_checkpoint_that_is_left_is_no_start_at_step_0(folder):
    folder.saved.write_text("40\n")

    with pytest.raises(InputError, match="step 40 had been saved, and no checkpoint is left"):
        resume_check(folder, folder.config()).from_nothing(lambda text: None)


def test_steps_that_were_never_saved_are_trained_anew_and_that_is_said(folder):
    said = []
    resume_check(folder, folder.config()).from_nothing(said.append)
    assert not said

    folder.metrics.write_text("".join(json.dumps({"step": step, "loss": 1.0}) + "\n" for step in range(3)))
    resume_check(folder, folder.config()).from_nothing(said.append)

    assert "nothing had been saved; 3 steps are trained anew" in said[0]


def test_a_checkpoint_from_beyond_the_last_step_is_no_end_of_the_run(folder, monkeypatch):
    config = folder.config()
    saved = checkpoint_facts(config, folder.plan(), 20, CORPUS)
    monkeypatch.setenv(CHANGED_VARIABLE, "train.steps")

    with pytest.raises(InputError, match=r"step 20 is saved, the run ends at train.steps = 10; give it 20 or more"):
        resume_check(folder, with_key(config, "train.steps", 10)).check(saved)


def test_rows_before_the_checkpoint_stay_byte_for_byte_and_lost_ones_are_counted(folder):
    lines = [f'{{"step": {step}, "loss": {5.0 if step else "NaN"}, "ranks": [0, 1]}}\n' for step in range(10)]
    folder.metrics.write_text("".join(lines[:3] + lines[5:]) + '{"step": 10, "lo')

    assert folder.keep_metrics_before(8) == 2
    assert folder.metrics.read_text() == "".join(lines[:3] + lines[5:8])


def test_a_run_gets_more_steps_for_good_and_never_fewer_than_were_saved(folder):
    folder.saved.write_text("6")
    longer = with_key(folder.config(), "train.steps", 40)
    folder.check_end(longer)
    folder.write_config(longer)
    assert folder.whole_config() == longer
    with pytest.raises(InputError, match="--steps 5: .*checkpoints holds step 6 already; expected 6 or more"):
        folder.check_end(with_key(folder.config(), "train.steps", 5))
