"""`meshwright checkpoint` as a user types it."""

import json
import subprocess
import sys

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from meshwright import cli
from meshwright.train.checkpoint import huggingface, llama
from meshwright.train.checkpoint.huggingface import export
from meshwright.train.checkpoint.manifest import read_manifest, write_manifest
from meshwright.train.checkpoint.stored import StoredFiles
from testkit.small_checkpoints import MODELS, saved
from tests.unit.train.checkpoint.samples import FACTS, whole_tensors, write_checkpoint

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


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


IN_ANOTHER_PROCESS = (
    "import sys; from meshwright import cli; code = cli.run_command(sys.argv[1:]); print(code, 'torch' in sys.modules)"
)


def refused_without_torch(*arguments):
    """Return the one line that a command is refused with, before it has imported torch."""
    done = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    assert done.stdout.split() == ["2", "False"]
    (line,) = done.stderr.splitlines()
    return line


def hf_folder(tmp_path, change=None, config=None):
    """Write what save_pretrained would, with its first projection and its configuration changed."""
    _, path = saved(tmp_path / "c", MODELS["untied"])
    export(path, read_manifest(path), tmp_path / "hf")
    if change is not None:
        tensors = load_file(tmp_path / "hf" / "model.safetensors")
        name = "model.layers.0.self_attn.q_proj.weight"
        tensors = {**tensors, name: change(tensors[name])}
        save_file({n: t for n, t in tensors.items() if t is not None}, tmp_path / "hf" / "model.safetensors")
    file = tmp_path / "hf" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | (config or {})))
    return tmp_path / "hf"


def with_infinity(dtype):
    def change(tensor):
        tensor = tensor.to(dtype)
        tensor[3, 2] = float("inf")
        return tensor

    return change


@pytest.mark.parametrize(
    ("change", "config", "message"),
    [
        *((with_infinity(dtype), {}, "1 of 1024 weights are NaN or infinite") for dtype in FLOATS),
        (lambda t: t.to(torch.int32), {}, "is I32"),
        (lambda t: None, {}, "lacks model.layers.0.self_attn.q_proj.weight (1 missing, 0 left over)"),
        (lambda t: t[:7].clone(), {}, "config.json asks for"),
        (lambda t: t[:, :7].clone(), {}, "which do not fit each other"),
        (None, {"num_hidden_layers": 2**20}, "lacks model.layers.2.input_layernorm.weight (9437166 missing"),
        (None, {"num_local_experts": 4}, "has experts"),
        (None, {"hidden_act": "gelu"}, "hidden_act"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused_before_torch_is_imported(tmp_path, change, config, message):
    line = refused_without_torch("checkpoint", "convert", hf_folder(tmp_path, change, config), tmp_path / "back")

    assert message in line
    assert not (tmp_path / "back").exists()


def test_a_checkpoint_that_is_damaged_or_no_decoder_is_refused_before_torch_is_imported(tmp_path):
    _, path = saved(tmp_path / "c", MODELS["tied"])
    data = path / "rank-00000.safetensors"
    whole = data.read_bytes()
    data.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert "differs from its checksum" in refused_without_torch("checkpoint", "convert", path, tmp_path / "hf")
    assert "differs from its checksum" in refused_without_torch("checkpoint", "verify", path)

    data.write_bytes(whole)
    (tmp_path / "hf").mkdir()
    assert "is there already" in refused_without_torch("checkpoint", "convert", path, tmp_path / "hf")

    write_checkpoint(tmp_path / "other", whole_tensors())
    line = refused_without_torch("checkpoint", "convert", tmp_path / "other", tmp_path / "x")
    assert "of the built-in decoder" in line


def test_an_export_is_held_to_the_shapes_of_its_model(tmp_path):
    _, path = saved(tmp_path / "c", MODELS["tied"])
    manifest = read_manifest(path)
    model = manifest.facts.model | {"intermediate_size": 48}
    facts = msgspec.structs.replace(manifest.facts, model=model)
    (path / "manifest.json").unlink()
    write_manifest(path, msgspec.structs.replace(manifest, facts=facts))

    line = refused_without_torch("checkpoint", "convert", path, tmp_path / "hf")

    assert "layers.0.gate_up.weight is F32[80, 32], its model asks for [96, 32]" in line


def tensors_read(monkeypatch):
    """Return a list that gets the name of each foreign tensor that is read, at the look or in the conversion."""
    read = []
    look, convert = llama.check_finite, huggingface.safe_open

    def looked(file, name, header):
        read.append(name)
        look(file, name, header)

    class Opened:
        def __init__(self, *arguments):
            self._file = convert(*arguments)

        def __enter__(self):
            self._inner = self._file.__enter__()
            return self

        def __exit__(self, *error):
            return self._file.__exit__(*error)

        def get_tensor(self, name):
            read.append(name)
            return self._inner.get_tensor(name)

    monkeypatch.setattr(llama, "check_finite", looked)
    monkeypatch.setattr(huggingface, "safe_open", Opened)
    return read


def test_weights_that_are_many_are_read_once_and_refused_all_the_same(run, tmp_path, monkeypatch):
    folder = hf_folder(tmp_path)
    read = tensors_read(monkeypatch)
    monkeypatch.setattr(llama, "LOOK_BYTES", 1000)
    assert run("convert", folder, tmp_path / "back")[0] == 0
    assert len(read) == len(set(read)) > 10

    name = "model.layers.1.mlp.up_proj.weight"
    tensors = load_file(folder / "model.safetensors")
    tensors[name][3, 2] = float("nan")
    save_file(tensors, folder / "model.safetensors")
    code, _, err = run("convert", folder, tmp_path / "bad")
    assert (code, f"{name}: 1 of 1280 weights are NaN or infinite" in err) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "c", "hf"]


def test_a_checkpoint_of_many_bytes_is_read_once_and_refused_where_it_is_damaged(run, tmp_path, monkeypatch):
    _, path = saved(tmp_path / "c", MODELS["tied"])
    read = []
    whole = StoredFiles.read

    def counted(files, piece, size_bytes, name):
        read.append((name, piece.byte_offset))
        return whole(files, piece, size_bytes, name)

    monkeypatch.setattr(StoredFiles, "read", counted)
    monkeypatch.setattr(llama, "LOOK_BYTES", 1000)
    assert run("convert", path, tmp_path / "hf")[0] == 0
    assert len(read) == len(set(read)) > 10

    data = path / "rank-00000.safetensors"
    data.write_bytes(data.read_bytes()[:-1] + b"!")
    code, _, err = run("convert", path, tmp_path / "bad")
    assert (code, "differs from its checksum" in err) == (2, True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["c", "hf"]
