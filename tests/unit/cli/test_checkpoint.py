"""`meshwright checkpoint` as a user types it."""

import json

import msgspec
import pytest

from meshwright import cli
from tests.unit.train.checkpoint.samples import FACTS, whole_tensors, write_checkpoint
from tests.unit.train.checkpoint.test_huggingface import MODELS, saved


@pytest.fixture
def run(capsys):
    def call(*arguments):
        code = cli.run_command(["checkpoint", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_verify_reads_all_and_names_the_damaged_file(run, tmp_path):
    for step in (5, 10):
        facts = msgspec.structs.replace(FACTS, step=step)
        path = tmp_path / "run" / "checkpoints" / f"step-{step:08d}"
        write_checkpoint(path, whole_tensors(), "rows", ranks=2, facts=facts)
    code, out, _ = run("verify", tmp_path / "run", "--json")
    assert code == 0
    assert [json.loads(line)["whole"] for line in out.splitlines()] == [True, True]

    damaged = tmp_path / "run" / "checkpoints" / "step-00000005" / "rank-00001.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
    code, _, err = run("verify", tmp_path / "run")
    assert code == 2
    assert "step-00000005/rank-00001.safetensors" in err
    assert len(err.splitlines()) == 1


def test_show_says_step_layout_and_position(run, tmp_path):
    write_checkpoint(tmp_path / "c", whole_tensors())

    code, out, _ = run("show", tmp_path / "c", "--tensors")

    assert code == 0
    for text in (
        "step           7",
        "layout         dp=2,mbs=1",
        "next_sequence  56",
        "a.weight  F32[12, 10]  1 piece",
    ):
        assert text in out


def test_convert_goes_out_and_in(run, tmp_path):
    saved(tmp_path / "c", MODELS["tied"])

    code, out, _ = run("convert", tmp_path / "c", tmp_path / "hf", "--json")
    assert code == 0
    assert all((tmp_path / "hf" / name).exists() for name in json.loads(out)["files"])
    code, out, _ = run("convert", tmp_path / "hf", tmp_path / "back")
    assert (code, "train.start_from=" in out) == (0, True)
    code, _, err = run("convert", tmp_path / "hf", tmp_path / "back")
    assert (code, "is there already" in err) == (2, True)


def test_a_path_without_a_checkpoint_is_said(run, tmp_path):
    code, _, err = run("show", tmp_path)

    assert code == 2
    assert "no checkpoint; expected a folder with manifest.json" in err
