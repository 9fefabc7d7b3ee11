"""MaxText's global_parameter_scale: one number for the sizes of a model."""

import pytest

from meshwright.errors import InputError
from meshwright.jobs.draft import JobOptions
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
