"""The job under an external launcher."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from meshwright.train.job.config import to_toml
from testkit.caches import new_cache
from testkit.train_jobs import small_job, write_corpus


@pytest.fixture
def job(tmp_path):
    (tmp_path / "job.toml").write_text(to_toml(small_job(write_corpus(tmp_path), steps=8)))
    return tmp_path / "job.toml"


def torchrun(*arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    launcher = str(Path(sys.executable).with_name("torchrun"))
    command = [launcher, "--nproc-per-node", "2", "--local-addr", "127.0.0.1", "--standalone", "-m", "meshwright.train"]
    environment = os.environ | {"XDG_CACHE_HOME": new_cache(cache)}
    return subprocess.run([*command, *arguments], capture_output=True, text=True, env=environment, check=False)


@pytest.mark.slow
@pytest.mark.timeout(400)  # three processes that load torch, beside whatever else runs
def test_torchruns_ranks_plan_train_and_verify(job, tmp_path):
    done = torchrun(str(job), "--run-dir", str(tmp_path / "run"), cache=tmp_path / "cache")

    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "plan.json").read_text())["layout"]["dp"] == 2
    assert json.loads((tmp_path / "run" / "measured.json").read_text())["step_time_s"] > 0
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 8
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000
    assert "predicted beside measured" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_bad_input_is_said_by_every_rank_and_writes_nothing(job, tmp_path):
    done = torchrun(str(job), "--run-dir", str(tmp_path / "run"), "--layout", "dp=3", cache=tmp_path / "cache")

    assert done.returncode != 0
    assert "there are 2 ranks" in done.stderr
    assert not (tmp_path / "run").exists()


def test_bad_input_leaves_nothing_where_ranks_meet_by_the_secret_of_the_run(job, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    one = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-m", "meshwright.train", str(job), "--run-dir", str(tmp_path / "run")]
    environment = os.environ | one | {"XDG_CACHE_HOME": new_cache(tmp_path / "cache")}
    done = subprocess.run([*command, "--layout", "dp=3"], capture_output=True, text=True, env=environment, check=False)

    assert done.returncode == 2, done.stderr
    assert "there is 1 rank" in done.stderr
    assert not (tmp_path / "run").exists()
