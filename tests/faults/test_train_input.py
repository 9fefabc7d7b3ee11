"""Bad input to `meshwright train`: one line that says what to do, exit 2, nothing written."""

import shutil
import socket

import msgspec
import pytest

from meshwright import cli
from meshwright.layout import Layout
from meshwright.plan.search.measured_search import needed_bytes
from meshwright.train import prepare
from testkit.caches import new_cache
from testkit.train_jobs import small_job, write_corpus, write_run

SMALL = ["--set", "model.hidden_size=32", "--set", "data.seq_len=32", "--set", "train.global_batch=4"]


@pytest.fixture
def refused(tmp_path, capsys, monkeypatch):
    """Return a function that runs `meshwright train`, expects exit 2 and one line, and returns that line."""
    monkeypatch.setenv("XDG_CACHE_HOME", new_cache(tmp_path / "cache"))

    def run(*arguments: str, run_dir: str = "run") -> str:
        path = tmp_path / run_dir
        before = path.exists() and sorted(path.iterdir())
        assert cli.run_command(["train", "--run-dir", str(path), *SMALL, *arguments]) == 2
        assert (path.exists() and sorted(path.iterdir())) == before
        lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("meshwright: ")]
        assert len(lines) == 1
        return lines[0]

    return run


def test_a_missing_corpus(refused, tmp_path):
    assert "no such file or folder" in refused("--set", f"data.paths=['{tmp_path}/none']")


def test_an_empty_corpus(refused, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "no file matches" in refused("--set", f"data.paths=['{tmp_path}/empty']")

    (tmp_path / "empty" / "a.py").touch()
    assert "too few" in refused("--set", f"data.paths=['{tmp_path}/empty']")


def test_a_corpus_shorter_than_a_sequence(refused, tmp_path):
    (tmp_path / "short.py").write_text("x = 1\n")

    assert "give more text or a smaller data.seq_len" in refused("--set", f"data.paths=['{tmp_path}/short.py']")


def test_a_batch_that_does_not_divide(refused, tmp_path):
    corpus = f"data.paths=['{write_corpus(tmp_path)}']"

    assert "dp x mbs = 3" in refused("--set", corpus, "--layout", "dp=3,mbs=1")
    assert "does not divide the global batch" in refused("--set", corpus, "--layout", "dp=3")
    assert "do not divide over 3 ranks" in refused("--set", corpus, "--ranks", "3")


def test_more_ranks_than_the_cores_carry(refused, tmp_path):
    assert "cores carry at most" in refused("--set", f"data.paths=['{write_corpus(tmp_path)}']", "--ranks", "4096")


def test_more_than_memory_can_hold(refused, tmp_path, monkeypatch):
    monkeypatch.setattr("meshwright.train.prepare.available_memory_bytes", lambda: 64 * 2**20)

    assert "not enough memory" in refused("--set", f"data.paths=['{write_corpus(tmp_path)}']")


def test_a_layout_that_memory_cannot_hold_says_which_ones_it_can(refused, tmp_path, monkeypatch):
    whole, problems = prepare._problem, []

    def limited(*arguments):
        problem = whole(*arguments)
        sharded, plain = (needed_bytes(Layout(dp=2, zero=zero), problem) for zero in (3, 0))
        problems.append(msgspec.structs.replace(problem, memory_bytes=(sharded + plain) // 2))
        return problems[-1]

    monkeypatch.setattr(prepare, "_problem", limited)
    said = refused("--set", f"data.paths=['{write_corpus(tmp_path)}']", "--layout", "dp=2,mbs=1")

    assert "not enough memory: the smallest layout (dp=2,mbs=1) needs" in said
    named = [Layout.parse(text) for text in said.partition("; these fit: ")[2].split(" | ")]
    assert len(named) == 3
    assert all(needed_bytes(layout, problems[0]) <= problems[0].memory_bytes for layout in named)


def test_more_than_the_disk_can_hold(refused, monkeypatch):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=2**20))

    assert "1 MiB are free" in refused()


def test_an_illegal_layout_says_the_rule_and_the_nearest_legal_ones(refused, tmp_path):
    said = refused("--set", f"data.paths=['{write_corpus(tmp_path)}']", "--layout", "tp=2")

    assert "tp: 2 does not divide num_key_value_heads = 1" in said
    assert "nearest legal: dp=1,cp=2" in said


def test_degrees_that_do_not_multiply_to_the_ranks_say_so_and_the_nearest_legal_ones(refused, tmp_path):
    job = ["--set", f"data.paths=['{write_corpus(tmp_path)}']", "--ranks", "2"]

    assert "= 3, but there are 2 ranks; nearest legal: dp=2" in refused(*job, "--layout", "dp=3")
    assert "does not divide the 2 ranks; nearest legal: " in refused(*job, "--layout", "pp=3")


def test_a_port_in_use(refused):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()

        assert "Address already in use" in refused("--set", f"launch.port={taken.getsockname()[1]}")


def test_a_port_in_use_when_a_run_goes_on(tmp_path, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        job = small_job(write_corpus(tmp_path))
        launch = msgspec.structs.replace(job.launch, port=taken.getsockname()[1])
        folder = write_run(tmp_path / "run", msgspec.structs.replace(job, launch=launch), Layout(dp=2, mbs=2))

        assert cli.run_command(["train", "--resume", str(folder.path)]) == 2
        assert "Address already in use" in capsys.readouterr().err


def test_a_run_folder_that_holds_a_run(refused, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").touch()

    assert "--resume" in refused()


def test_a_run_folder_that_is_a_link_to_nothing(refused, tmp_path):
    (tmp_path / "run").symlink_to(tmp_path / "nowhere")

    assert "run: is a link to " in refused("--run-dir", str(tmp_path / "run"))
    assert not (tmp_path / "nowhere").exists()


def test_a_run_folder_below_a_file(refused, tmp_path):
    (tmp_path / "file").touch()

    assert "is not a folder" in refused(run_dir="file/run")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.stpes=3", "unknown key (did you mean train.steps?)"),
        ("train.steps='many'", "train.steps: Expected `int`"),
        ("train.steps=0", "steps: expected 1 or more"),
        ("model.num_attention_heads=5", "does not divide hidden_size"),
        ("data.seq_len=100000", "max_position_embeddings"),
        ("launch.backend=mpi", "launch.backend"),
        ("train.async_tensor_parallel=true", "train.async_tensor_parallel: "),
        ("steps", "expected KEY=VALUE"),
    ],
)
def test_a_bad_key_or_value_is_named(refused, setting, message):
    assert message in refused("--set", setting)


def test_a_config_file_names_file_and_key(refused, tmp_path):
    (tmp_path / "job.toml").write_text("[train]\nsteps = 3\nglobal_bach = 4\n")

    line = refused(str(tmp_path / "job.toml"))
    assert "job.toml" in line
    assert "did you mean global_batch?" in line
