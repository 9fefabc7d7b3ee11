"""MaxText's scale: one number for the sizes of a model, and the devices of a mesh."""

import pytest

from meshwright.errors import InputError
from meshwright.jobs.job import missing
from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job


def launched(folder, *words):
    script = folder / "run.sh"
    script.write_text(f"python3 -m maxtext.trainers.pre_train.train base.yml {' '.join(words)}\n")
    (folder / "base.yml").write_text("per_device_batch_size: 1\nmax_target_length: 2048\nici_fsdp_parallelism: -1\n")
    return read_job([str(script)], JobOptions(gpus=256))


@pytest.mark.parametrize(
    ("scale", "billions", "layers"), [(2, 2, 16), (16, 16, 32), (32, 32, 32), (128, 125, 64), (1024, 1000, 128)]
)
def test_a_scale_of_n_is_a_model_of_about_n_billion_parameters(tmp_path, scale, billions, layers):
    job = launched(tmp_path, f"global_parameter_scale={scale}")

    assert job.architecture.num_hidden_layers == layers
    assert job.architecture.parameters == pytest.approx(billions * 1e9, rel=0.25)
    assert any("base.yml" in line for line in job.assumed)


def test_a_scale_multiplies_the_sizes_that_are_said(tmp_path):
    job = launched(tmp_path, "global_parameter_scale=4", "base_emb_dim=1024", "base_num_decoder_layers=8")

    found = job.architecture
    assert (found.hidden_size, found.num_hidden_layers, found.intermediate_size) == (2048, 8, 14336)


def test_a_scale_that_is_no_power_of_two_is_refused(tmp_path):
    with pytest.raises(InputError, match="global_parameter_scale.*power of two"):
        launched(tmp_path, "global_parameter_scale=3")


def test_sizes_that_a_command_leaves_out_are_those_of_base_yml(tmp_path):
    job = launched(tmp_path, "base_emb_dim=1024", "base_num_decoder_layers=8")

    assert (job.architecture.vocab_size, job.architecture.intermediate_size) == (32_000, 7168)
    assert any("vocab_size 32000" in line and "base.yml" in line for line in job.assumed)


@pytest.mark.parametrize(("activations", "gated"), [('["silu","linear"]', True), ('["relu"]', False)])
def test_a_network_of_one_activation_has_no_gate(tmp_path, activations, gated):
    job = launched(tmp_path, "base_emb_dim=1024", f"'mlp_activations={activations}'")

    assert job.architecture.gated is gated


WHOLE = "model_name=llama3.1-405b per_device_batch_size=1 max_target_length=8192 remat_policy=full hardware=gpu"
MESH = "dcn_fsdp_parallelism=4 ici_fsdp_parallelism=8"


def test_a_yaml_that_is_not_here_is_not_needed_where_the_command_says_all_that_is_priced(tmp_path):
    script = tmp_path / "run.sh"
    script.write_text(f"python3 -m MaxText.train MaxText/configs/models/own.yml {WHOLE} {MESH}\n")

    job = read_job([str(script)])

    assert (job.world, job.layout.dp, job.layout.zero, job.global_batch, job.seq_len) == (32, 32, 3, 32, 8192)
    assert "own.yml is not here: the rest, precision too, is taken as in base.yml" in job.assumed


@pytest.mark.parametrize("left", [WHOLE, f"{WHOLE.replace('remat_policy=full ', '')} {MESH}"])
def test_a_yaml_that_is_not_here_is_asked_for_where_the_command_leaves_some_of_it_open(tmp_path, left):
    script = tmp_path / "run.sh"
    script.write_text(f"python3 -m MaxText.train MaxText/configs/models/own.yml {left}\n")

    with pytest.raises(InputError, match=r"names own\.yml, which is not here"):
        read_job([str(script)])


XPK = """xpk workload create --cluster c --workload w --tpu-type={slice} --num-slices={count} \\
  --command "python3 -m MaxText.train base.yml model_name=llama2-7b per_device_batch_size=2 remat_policy=full \\
  max_target_length=1024 {mesh}"
"""


@pytest.mark.parametrize(
    ("kind", "count", "mesh", "ranks", "copies"),
    [
        ("v5p-64", 2, "dcn_data_parallelism=2 ici_fsdp_parallelism=-1", 64, 2),  # 64 TensorCores are 32 chips
        ("v6e-64", 1, "ici_fsdp_parallelism=-1", 64, None),
        ("v6e-16", 4, "ici_fsdp_parallelism=16", 64, 4),  # the slices are xpk's
    ],
)
def test_chips_are_those_of_the_slices_that_xpk_asks_for(tmp_path, kind, count, mesh, ranks, copies):
    (tmp_path / "run.sh").write_text(XPK.format(slice=kind, count=count, mesh=mesh))

    job = read_job([str(tmp_path / "run.sh")])

    assert (job.world, job.layout.dp, job.layout.zero, job.layout.replicas) == (ranks, ranks, 3, copies)
    assert (job.global_batch, job.machines) == (2 * ranks, f"tpu-{kind.partition('-')[0]}")


def test_a_mesh_of_other_devices_than_the_slices_have_is_refused(tmp_path):
    mesh = "dcn_data_parallelism=2 ici_fsdp_parallelism=32"
    (tmp_path / "run.sh").write_text(XPK.format(slice="v6e-64", count=2, mesh=mesh))

    with pytest.raises(InputError, match=r"dcn 2 x ici 32 = 64 contradicts the 2 slices of 64 chips that xpk asks for"):
        read_job([str(tmp_path / "run.sh")])


def test_a_share_of_a_sequence_on_each_device_is_a_batch_that_follows_from_the_ranks(tmp_path):
    (tmp_path / "share.yml").write_text("per_device_batch_size: 0.125\nici_tensor_parallelism: 8\nrun_name: long\n")
    told = missing(read_job([str(tmp_path / "share.yml")]))

    assert "--gpus" in told
    assert "--global-batch" not in told
