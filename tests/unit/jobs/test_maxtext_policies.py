"""MaxText's remat_policy: what is kept of a layer, what is computed again, and what both cost."""

import json

import pytest

from meshwright.cli import run_command
from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job

BASE = "model_name: llama3.1-8b\nhardware: gpu\nici_fsdp_parallelism: 8\nper_device_batch_size: 2\n"
BASE += "base_config: base.yml\nmax_target_length: 8192\n"


def file_of(folder, *lines):
    path = folder / "job.yml"
    path.write_text(BASE + "".join(f"{line}\n" for line in lines))
    return str(path)


def priced(folder, capsys, *lines):
    args = ["plan", "--job", file_of(folder, *lines), "--cluster", "dgx-h100", "--gpus", "8", "--json"]
    assert run_command(args) == 0
    return json.loads(capsys.readouterr().out)["predicted"]


def test_policies_are_ordered_in_memory_and_time_as_their_names_say(tmp_path, capsys):
    policies = ("full", "save_out_proj", "save_qkv_proj", "save_dot_except_mlp", "save_dot_with_context_except_mlp")
    found = [priced(tmp_path, capsys, f"remat_policy: {policy}") for policy in (*policies, "minimal", "none")]
    peaks = [one["peak_memory_bytes_per_gpu"] for one in found]
    times = [one["step_time_s"] for one in found]

    assert peaks[:5] == sorted(peaks[:5])
    assert peaks[4] < peaks[5] <= peaks[6]
    assert times == sorted(times, reverse=True)


def test_minimal_policies_keep_what_products_return(tmp_path, capsys):
    full, minimal, more = (
        priced(tmp_path, capsys, f"remat_policy: {name}")["peak_memory_bytes_per_gpu"]
        for name in ("full", "minimal", "minimal_with_context")
    )
    columns = (32 + 2 * 8) * 128 + 2 * 4096 + 2 * 14336  # of Llama 3.1 8B: projections, both halves' results, gates
    tokens, layers = 2 * 8192, 32

    assert minimal - full == pytest.approx(2 * columns * tokens * layers, rel=0.2)
    assert more - minimal == pytest.approx(2 * 4096 * tokens * layers, rel=0.3)


def test_minimal_beside_experts_says_what_it_leaves_out(tmp_path):
    path = file_of(tmp_path, "remat_policy: minimal")
    (tmp_path / "job.yml").write_text((tmp_path / "job.yml").read_text().replace("llama3.1-8b", "mixtral-8x7b"))
    found = read_job([path], JobOptions(gpus=8))

    assert "remat_policy minimal: priced as if what attention returns were kept too" in found.ignored


def test_a_policy_keeps_the_bytes_of_the_results_that_it_names(tmp_path, capsys):
    out, both = (priced(tmp_path, capsys, f"remat_policy: {name}") for name in ("save_out_proj", "save_dot_except_mlp"))
    columns = (32 + 2 * 8) * 128  # queries, keys and values of Llama 3.1 8B, two bytes each
    tokens, layers = 2 * 8192, 32

    more = both["peak_memory_bytes_per_gpu"] - out["peak_memory_bytes_per_gpu"]
    assert more == pytest.approx(2 * columns * tokens * layers, rel=0.2)  # and what the allocator splits of it


def test_a_custom_policy_keeps_the_tensors_that_are_on_the_device(tmp_path):
    def results(*lines):
        return read_job([file_of(tmp_path, "remat_policy: custom", *lines)], JobOptions(gpus=8))

    assert results("query_proj: device", "key_proj: device", "value_proj: device").results == ("qkv_proj",)
    assert results("context: device", "mlpwo: device").results == ("context", "mlpwo")
    assert results().results == ()
    assert any("mla_kv device: priced as computed again" in line for line in results("mla_kv: device").ignored)
    assert any("as if all of mlpwi" in line for line in results("mlpwi_0: device").ignored)


def test_what_a_policy_offloads_lies_in_the_memory_of_the_hosts(tmp_path):
    def read(*lines):
        found = read_job([file_of(tmp_path, *lines)], JobOptions(gpus=8))
        return found.results, found.away, [line for line in found.ignored if "device" in line]

    custom = "remat_policy: custom"
    assert read("remat_policy: qkv_proj_offloaded") == (("qkv_proj",), ("qkv_proj",), [])
    assert read(custom, "out_proj: offload", "context: device") == (("context", "out_proj"), ("out_proj",), [])
    assert read(custom, "decoder_layer_input: offload") == ((), ("input",), [])
    _, away, told = read(custom, "query_proj: offload", "key_proj: device", "value_proj: device")
    assert not away
    assert any("as if all of qkv_proj were on the device" in line for line in told)
    _, away, told = read("remat_policy: minimal_offloaded")
    assert not away
    assert any("priced as kept on the device" in line for line in told)


def test_activations_on_the_hosts_take_memory_there_and_not_on_the_device(tmp_path, capsys):
    kept, gone = (priced(tmp_path, capsys, f"remat_policy: {name}") for name in ("save_qkv_proj", "qkv_proj_offloaded"))

    queries = 2 * (32 + 2 * 8) * 128 * 2 * 8192 * 32
    assert kept["peak_memory_bytes_per_gpu"] - gone["peak_memory_bytes_per_gpu"] > 0.9 * queries
    assert any("activations lie on the host" in line for line in gone["not_modelled"])


def test_without_a_policy_nothing_is_computed_again(tmp_path):
    assert read_job([file_of(tmp_path, "remat_policy: none")], JobOptions(gpus=8)).layout.recompute == "none"
