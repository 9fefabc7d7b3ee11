"""The examples run, and show what their first lines promise."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docsite.box import shown_output

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: str, timeout_s: float = 300) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", *arguments],
        capture_output=True, text=True, timeout=timeout_s, check=False,
    )  # fmt: skip
    if "refuses" in done.stderr + done.stdout and name in {"parameter_server", "local_sgd", "hung_job"}:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_every_example_is_run_by_a_test():
    tests = "".join(path.read_text() for path in Path(__file__).parents[1].rglob("*.py"))

    names = sorted(path.stem for path in EXAMPLES.glob("*.py"))
    assert [name for name in names if f'run("{name}"' not in tests and f'"{name}.py"' not in tests] == []


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_the_first_lines_say_how_it_is_called_and_what_is_seen(path):
    text = path.read_text().split('"""')[1]

    assert path.name in text
    assert "You see" in re.sub(r"\s+", " ", text) or "meshwright " in text


@pytest.mark.timeout(400)
def test_ddp_has_the_same_losses_on_the_backend_as_on_gloo():
    losses = re.findall(r"losses ((?:[\d.]+ )+)", run("ddp_on_backend", "2"))

    assert len(losses) == 2
    assert losses[0] == losses[1]


@pytest.mark.timeout(400)
@pytest.mark.slow
def test_a_model_that_is_not_ours_trains_alike_however_it_is_split():
    pytest.importorskip("transformers")
    lines = run("parallelize", "dp=2,zero=3", "dp=1,tp=2").splitlines()

    losses = [[float(loss) for loss in line.split()[-5:]] for line in lines if "." in line]
    assert len(losses) == 3
    assert all(row == pytest.approx(losses[0], rel=1e-5) for row in losses)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_model_that_is_not_ours_is_cut_into_stages_by_the_same_three_calls():
    pytest.importorskip("transformers")
    lines = run("parallelize", "dp=1,pp=2,mbs=2", "dp=1,pp=2,schedule=zb", timeout_s=300).splitlines()

    losses = [[float(loss) for loss in line.split()[-5:]] for line in lines if "." in line]
    assert len(losses) == 3
    assert all(row == pytest.approx(losses[0], rel=1e-5) for row in losses)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_job_that_hangs_is_explained_by_its_logs_stacks_and_records(tmp_path):
    out = run("hung_job", str(tmp_path / "files"), timeout_s=300)

    assert out.startswith("rank 2: data ")
    assert "in: all_reduce #6 of group 0 (default_pg)" in out
    assert "waiting: ranks 0, 1, 3" in out
    assert "rank 2 stands in __getitem__" in out


def test_an_a800_is_bound_by_nvlink_where_an_a100_is_not():
    out = run("dgx_a100_against_a800")

    assert "1.875, the rule asks for 1.75: fine" in out
    assert "1.250, the rule asks for 1.75: bound by NVLink" in out
    longer, explained, difference = re.search(r"takes ([\d.]+)% longer; .* explains (\S+) ms of (\S+) ms", out).groups()
    assert float(longer) > 1
    assert float(explained) > 0.8 * float(difference)


@pytest.mark.timeout(400)
def test_a_loop_of_ones_own_is_explained_by_its_traces(tmp_path):
    out = run("own_loop", str(tmp_path / "made"))

    assert "step time" in out
    assert re.search(r"on 2 ranks \(4 steps traced\): \d+% computing", out)
    page = json.loads((tmp_path / "made" / "report.json").read_text())
    assert "Communication" in [section["heading"] for section in page["sections"]]
    assert "all_reduce" in json.dumps(page)


def test_405b_is_planned_and_its_published_layout_is_priced_beside():
    out = run("plan_405b")
    mfu = {line.split()[0]: float(re.search(r"MFU ([\d.]+)%", line)[1]) for line in out.splitlines() if "MFU" in line}

    assert int(re.match(r"([\d,]+) legal", out)[1].replace(",", "")) > 10_000
    assert "fastest" in out
    assert out.count("(fits)") == out.count("(does not fit)") == 1
    behind = round(mfu["published"] - mfu["fastest"], 1)  # the digits that are printed
    assert behind <= 1  # of one that needs more memory than there is, by the stack taken here
    assert mfu["published"] == pytest.approx(41, abs=2)  # as was reported


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_parameter_server_trains_on_beside_a_straggler_with_bounded_staleness():
    out = run("sync_against_async", "15", timeout_s=580)

    assert len(re.findall(r"([\d.]+) s a step,", out)) == 2
    assert int(re.search(r"parameter server.*staleness up to (\d+)", out)[1]) > 0


@pytest.mark.timeout(400)
def test_every_collective_leaves_what_its_definition_says():
    held = {
        line[:20].strip(): re.findall(r"-> (\[[^]]*\])", line) for line in run("every_collective", "2").splitlines()
    }

    assert held["all-reduce, sum"] == ["[3.0]", "[3.0]"]
    assert held["all-reduce, average"] == ["[1.5]", "[1.5]"]
    assert held["all-reduce, product"] == ["[2.0]", "[2.0]"]
    assert held["reduce to rank 0"] == ["[3.0]", "[2.0]"]
    assert held["reduce-scatter"] == ["[30.0]", "[32.0]"]
    assert held["all-to-all"] == ["[10.0, 20.0]", "[11.0, 21.0]"]
    assert held["to the next rank"] == ["[2.0]", "[1.0]"]


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(600)
def test_every_mode_of_data_parallelism_trains_and_moves_what_the_page_says():
    out = run("data_parallel_modes", timeout_s=580)
    shown = shown_output(
        (EXAMPLES.parent / "docs" / "generated" / "box.md").read_text(), "python examples/data_parallel_modes.py"
    )
    moved, before = (
        {line[:37].strip(): float(re.search(r"([\d.]+) MB", line)[1]) for line in text.splitlines()}
        for text in (out, shown)
    )

    assert moved == pytest.approx(before, rel=0.02)
    assert max(int(stale) for stale in re.findall(r"staleness (\d+), loss", out)) <= 4
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", out)]
    assert max(losses) < 5.545  # of guessing one of 256 bytes: every mode has learnt


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.netns
@pytest.mark.timeout(600)
def test_local_sgd_over_a_slow_link_comes_to_about_the_same_loss():
    out = run("local_sgd", "30", timeout_s=580)
    found = re.findall(r"([\d.]+) s a step, loss ([\d.]+) to ([\d.]+)", out)
    (_, _, sync_loss), (_, _, local_loss) = [tuple(map(float, figures)) for figures in found]

    assert abs(local_loss - sync_loss) < 0.3


@pytest.mark.slow
@pytest.mark.netns
@pytest.mark.timeout(400)
def test_the_parameter_server_grows_with_the_ranks_and_the_ring_does_not():
    out = run("parameter_server", "2", "5")
    times = {line.split()[0]: [float(t) for t in re.findall(r"(\d+) ms", line)] for line in out.splitlines()}

    assert times["parameter_server"][1] > 2.5 * times["parameter_server"][0]  # 4 times, by the bound
    assert times["ring"][1] < 2.2 * times["ring"][0]  # 1.6 times
