"""`--resume` on a run whose last checkpoint is damaged, whose job has changed, or that has nothing left."""

import json
import re
import shutil

import msgspec
import pytest

from meshwright.layout import Layout
from meshwright.train.checkpoint.folder import checkpoints, is_whole
from meshwright.train.job.config import OptimizerConfig, to_toml
from testkit.caches import new_cache
from testkit.fault_jobs import Job, events
from testkit.train_jobs import losses, small_job, write_corpus, write_run

pytestmark = [pytest.mark.timeout(1500), pytest.mark.slow]
STEPS = 40


@pytest.fixture
def go_on(tmp_path):
    """Return a function that resumes a run and returns its exit code and what it said."""
    jobs = []

    def run(folder, *arguments: str, **environment: str):
        known = {"XDG_CACHE_HOME": new_cache(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
        jobs.append(Job(["--resume", str(folder.path), *arguments], known | environment))
        return jobs[-1].end(timeout_s=300)

    yield run
    for started in jobs:
        started.kill()


def make(tmp_path, **train):
    job = small_job(write_corpus(tmp_path), **({"steps": STEPS, "checkpoint_every": 10} | train))
    return write_run(tmp_path / "run", job, Layout(dp=2, mbs=2))


def edit(folder, pattern, by):
    text = (folder.path / "config.toml").read_text()
    assert len(re.findall(pattern, text, re.MULTILINE)) == 1
    (folder.path / "config.toml").write_text(re.sub(pattern, by, text, flags=re.MULTILINE))


def test_a_finished_run_is_held_to_its_job_repaired_and_never_begun_anew(tmp_path, go_on):
    folder = make(tmp_path)
    assert go_on(folder)[0] == 0
    before = losses(folder)

    newest = checkpoints(folder.checkpoints)[0]
    data = bytearray((newest / "rank-00000.safetensors").read_bytes())
    data[-20] ^= 4
    (newest / "rank-00000.safetensors").write_bytes(data)
    code, errors = go_on(folder)
    assert code == 0, errors
    assert losses(folder) == before
    assert all(is_whole(path) for path in checkpoints(folder.checkpoints))
    assert (folder.checkpoints / f"damaged-{newest.name}").exists()

    edit(folder, r"^num_hidden_layers = 2", "num_hidden_layers = 1")
    code, errors = go_on(folder)
    assert code == 2
    assert "model.num_hidden_layers: 2, now 1" in errors[-1]
    edit(folder, r"^num_hidden_layers = 1", "num_hidden_layers = 2")

    shutil.rmtree(folder.checkpoints)
    code, errors = go_on(folder)
    assert code == 2
    assert f"step {STEPS} had been saved, and no checkpoint is left" in errors[-1]
    assert losses(folder) == before


def test_other_text_under_the_same_path_is_named_and_needs_to_be_said(tmp_path, go_on):
    folder = make(tmp_path)
    assert go_on(folder)[0] == 0
    (tmp_path / "corpus" / "file3.py").write_text("print('something else')\n" * 100)
    edit(folder, r"^steps = 40", "steps = 50")

    code, errors = go_on(folder)

    assert code == 2
    assert "data.paths: other tokens" in errors[-1]
    assert "train.steps: 40, now 50" in errors[-1]
    code, errors = go_on(folder, "--changed", "data.paths", "--changed", "train.steps")
    assert code == 0, errors
    assert len(losses(folder)) == 50


def test_steps_beside_resume_go_on_to_a_later_end_for_good(tmp_path, go_on):
    folder = make(tmp_path, steps=10)
    assert go_on(folder)[0] == 0

    code, errors = go_on(folder, "--steps", "20")

    assert code == 0, errors
    assert len(losses(folder)) == folder.config().train.steps == 20
    assert "changed: train.steps: 10, now 20" in events(folder, "resume")[-1].message


def test_a_single_step_more_measures_its_memory_too(tmp_path, go_on):
    def peak_bytes():
        return json.loads((folder.path / "measured.json").read_text())["peak_memory_bytes_per_gpu"]

    folder = make(tmp_path, steps=10)
    assert go_on(folder)[0] == 0
    before = peak_bytes()

    assert go_on(folder, "--steps", "11")[0] == 0

    assert peak_bytes() == pytest.approx(before, rel=0.1)


@pytest.mark.parametrize("choice", ["end", "rewind"])
def test_a_loss_that_is_no_number_ends_the_run_and_all_that_is_saved_is_finite(tmp_path, go_on, choice):
    job = small_job(write_corpus(tmp_path), steps=200, checkpoint_every=1, on_not_finite=choice)
    optimizer = OptimizerConfig(learning_rate=1e6, max_grad_norm=0.0, warmup_steps=30)
    folder = write_run(tmp_path / "run", msgspec.structs.replace(job, optimizer=optimizer), Layout(dp=2, mbs=2))

    code, errors = go_on(folder)

    assert code == 1, errors
    assert "not finite" in errors[-1]
    found = events(folder, "not_finite")
    assert len(found) == (2 if choice == "rewind" else 1)
    assert len({event.step for event in found}) == 1
    assert not any("NaN" in line or "Infinity" in line for line in folder.metrics.read_text().splitlines())
    assert [json.loads(line)["step"] for line in folder.metrics.read_text().splitlines()] == list(range(found[0].step))
    assert all(is_whole(path) for path in checkpoints(folder.checkpoints))
    assert "learning_rate = 1000000.0" in to_toml(folder.config())
