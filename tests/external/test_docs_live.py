"""Commands of the documentation that train, measure or emulate: each is started, on a job or a range small enough."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from docsite.box import samples
from meshwright.cluster.builders import catalogue_cluster
from meshwright.files import write_struct
from meshwright.hardware import load_catalogue
from meshwright.train.job.config import to_toml
from testkit.train_jobs import small_job, write_corpus
from tests.external.test_docs import EVERY, ROOT, RUN, SOURCES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
PATIENCE_S = 400
# what is added to a command so that it takes seconds; the last of an option given twice holds
SMALLER = {
    "bench": ["--ranks", "2", "--min", "1K", "--max", "64K", "--time", "0.01"],
    "train": ["--steps", "4"],
    "completion": [],
    "doctor": [],
}
FAULTS = ["slow", "delay", "lose", "cut", "restore", "pause", "kill"]  # in this order on one emulated cluster
ELSEWHERE = {  # needs what a test has not, or is run by another; parsed by `test_a_command_..._is_understood`
    "kubectl": "a Kubernetes cluster; the manifest is parsed",
    "sbatch": "a SLURM cluster; the script is parsed",
    "srun": "a SLURM cluster; tests/faults/test_doctor.py and tests/multiproc/train take srun's variables",
    "torchrun --nnodes": "two machines; tests/multiproc/train/test_torchrun.py runs it on one",
    "torchrun --nproc-per-node 8 -m meshwright -- bench --backend nccl": "eight GPUs",
    "make": "CI",
    "pip": "tests/external/test_packaging.py installs wheel and sdist; both need the network for the dependencies",
    "python -c": "tests/external/test_docs.py, with the page of mechanisms",
    "python -m benchmarks": "run below, by every name that a page has",
    "python examples": "tests/multiproc/test_examples.py",
}
HERE = sorted({words for words, _ in EVERY if words.split()[0] in {"meshwright", "torchrun"}})
STARTED = [
    words
    for words in HERE
    if words.split()[1] not in {*RUN, "emulate"} and not any(words.startswith(start) for start in ELSEWHERE)
]
EMULATED = [words for words in HERE if words.startswith("meshwright emulate --")]


def some(every, by):
    """Return parameters of a test: each is run, but only the first of each kind, as `by` tells it, outside of soak."""
    kinds, found = set(), []
    for words in every:
        marks = [pytest.mark.soak] if by(words) in kinds else []
        kinds.add(by(words))
        found.append(pytest.param(words, marks=marks, id=words))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("live")
    samples(made)
    (made / "job.toml").write_text(to_toml(small_job(write_corpus(made), steps=4)))
    (made / "train.py").write_text(TRAIN)
    (made / "home").mkdir()
    write_struct(made / "dgx.json", catalogue_cluster(load_catalogue(), "dgx-a100-80g", gpus=16))
    return made


TRAIN = f"""
import faulthandler
faulthandler.dump_traceback_later({PATIENCE_S // 2}, exit=True)
import torch, torch.distributed as dist
import meshwright
dist.init_process_group("meshwright")
t = torch.ones(1)
dist.all_reduce(t)
assert t.item() == dist.get_world_size()
dist.destroy_process_group()
"""


def started(words: list[str], folder: Path) -> subprocess.Popen[str]:
    programs = {
        "meshwright": [sys.executable, "-m", "meshwright"],
        "torchrun": [sys.executable, "-m", "torch.distributed.run"],
    }
    environment = {
        **os.environ,
        "HOME": str(folder / "home"),
        "XDG_RUNTIME_DIR": str(folder / "home"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    return subprocess.Popen(
        [*programs[words[0]], *words[1:]], cwd=folder, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def outcome(words: list[str], folder: Path) -> tuple[int, str]:
    process = started(words, folder)
    try:
        out, _ = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.terminate()
        out, _ = process.communicate(timeout=PATIENCE_S / 4)
        pytest.fail(f"{shlex.join(words)} did not end within {PATIENCE_S} s; it printed:\n{out}")
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out


@pytest.mark.parametrize("words", some(STARTED, by=lambda words: (words.split()[1], "job.toml" in words)))
def test_a_command_that_trains_or_measures_runs(words, folder):
    parts = shlex.split(words.partition(" > ")[0])
    verb = "train" if parts[0] == "torchrun" else parts[1]
    if "--resume" in parts:
        before = ["meshwright", "train", "job.toml", "--ranks", "2", "--run-dir", "begun", "--steps", "4"]
        assert outcome(before, folder)[0] == 0
        parts[parts.index("--resume") + 1], verb = "begun", ""
    small = [] if {"--from", "--print-config"} & {*parts} else SMALLER.get(verb, [])
    code, out = outcome([*parts, *small], folder)

    assert code == 0 or (verb == "doctor" and code == 1), out  # 1: it has found something
    assert "Traceback" not in out


@pytest.mark.netns
@pytest.mark.parametrize("words", some(EMULATED, by=lambda words: words.split()[-2]))  # python or torchrun
def test_a_command_in_an_emulated_cluster_runs(words, folder):
    code, out = outcome(shlex.split(words), folder)
    if code == 2 and "refuses" in out:
        pytest.skip(out.strip())

    assert code == 0, out


@pytest.mark.netns
def test_the_faults_of_the_documentation_strike_a_running_cluster(folder):
    given = [shlex.split(w) for w in HERE if w.startswith("meshwright emulate fault")]
    assert {words[3] for words in given} == {*FAULTS}
    cluster = started(shlex.split("meshwright emulate --nodes 2 --ranks-per-node 2 --nic 1Gbps -- sleep 60"), folder)
    deadline = time.monotonic() + 60
    while "4 programs running" not in (listed := outcome(["meshwright", "emulate", "list"], folder))[1]:
        if cluster.poll() is not None and "refuses" in (said := cluster.communicate()[0]):
            pytest.skip(said.strip())
        assert time.monotonic() < deadline, listed
    struck = [
        (words, *outcome(words, folder))
        for words in [
            shlex.split("meshwright emulate exec node1 -- ip -s link"),
            *sorted(given, key=lambda words: FAULTS.index(words[3])),
        ]
    ]
    cluster.communicate(timeout=PATIENCE_S)

    failed = [(words, out) for words, code, out in struck if code != 0]
    assert [out for words, out in failed if not ("delay" in words and "no netem queue" in out)] == []
    assert cluster.returncode != 0  # a rank was killed


# by benchmark: options with which it takes seconds and still goes through all that it does
SMALLEST = {
    "algorithms": "--ranks 2 --sizes 4096 --seconds 0.01",
    "collectives": "--ranks 2 --launches 1 --rounds 1 --only broadcast --sizes 4KiB",
    "ddp": "--launches 1 --rounds 1",
    "emulate_rates": "100Mbps",
    "filling": "--size 1MiB --blocks 1",
    "fits": "--tables p4de_2n",
    "gpu_contest": "--tiny --rounds 1 --steps 1 --batch 1",
    "hangs": "--seeds 2",
    "hosts": "--sizes 1MiB --rounds 1 --ranks-per-node 1",
    "many": "--ranks 4 --launches 1 --calls 1",
    "memory_rows": "",
    "opening": "1",
    "pace": "--minutes 0.05",
    "planner": "--model llama3-8b --gpus 16 --global-batch 32 --rounds 1",
    "planner_choice": "--nic 1Gbps --layouts tp=8,mbs=16 --rounds 1 --steps 1 --operator-seconds 1",
    "recording": "--steps 10",
    "simulated": "--ranks 2 --sizes 4096 --rounds 1",
    "small": "--ranks 2 --launches 1 --rounds 1",
    "steps": "--ranks 2 --hidden 256 --only ddp --launches 1 --rounds 1",
    "traces": "--long 1",
    "training": "--parts layers --rounds 1",
    "unfitted": "",
    "ways": "--ranks 2 --sizes 1MiB --rounds 1",
}
TOO_LONG = {  # and what runs the same code instead
    "against": "needs a checkout of the commit that it is held against, and builds it; tests/multiproc times nothing",
    "async": "jobs of hundreds of steps, part by part; tests/multiproc/asynchronous trains in every mode",
    "faults": "kills and resumes of whole jobs; tests/faults does each once",
    "campaign": "minutes a seed in a cluster of its own; tests/unit/bench/test_campaign.py draws, judges and scores",
    "corruption": "trains a job for every flipped bit; tests/multiproc/train/test_corruption.py does each kind once",
    "gpu": "a flight of minutes; tests/multiproc/test_fake_device.py runs jobs on the device that it falls back on",
    "fit_planner": "fits every constant; tests.unit.plan.analytic holds the constants to the published runs",
    "pipeline": "layers that sleep for a minute; tests/multiproc/parallel trains under every schedule",
    "prediction": "calibrates sixteen jobs anew; tests/multiproc/train runs `train`, which is what it launches",
    "simulator": "100,000 devices; tests/unit/simulate runs smaller ones",
}
BENCHMARKS = sorted({name for path in SOURCES for name in re.findall(r"python -m benchmarks (\w+)", path.read_text())})
NAMED = [name for name in BENCHMARKS if name != "NAME"]


@pytest.mark.netns
@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name in NAMED if name in SMALLEST])
def test_a_benchmark_of_the_documentation_runs(name, tmp_path):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "MESHWRIGHT_TRIAL": str(tmp_path)}
    before = {path: path.read_bytes() for path in (ROOT / "benchmarks" / "results").rglob("*.json")}

    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", name, *shlex.split(SMALLEST[name])],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0 and "refuses" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])

    assert done.returncode == 0, done.stdout + done.stderr
    (written,) = [*tmp_path.glob(f"{name}.json"), *tmp_path.glob(f"{name}/*.json")]
    assert json.loads(written.read_text())["rows"]
    assert all(path.read_bytes() == old for path, old in before.items())
