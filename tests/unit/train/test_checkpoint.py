"""Checkpoints load whole or not at all."""

import pytest
import torch

from meshwright.errors import InputError
from meshwright.train.checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint
from meshwright.train.config import OptimizerConfig
from meshwright.train.decoder import Decoder
from meshwright.train.optimizer import make_optimizer
from meshwright.workload.transformer import ModelConfig

MODEL = ModelConfig(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2)


@pytest.fixture
def trained():
    """Return a model and its optimiser after one step."""
    module = Decoder(MODEL)
    optimizer = make_optimizer(module, OptimizerConfig())
    tokens = torch.arange(34).view(2, 17)
    module(tokens[:, :-1], tokens[:, 1:]).backward()
    optimizer.step()
    return module, optimizer


def test_a_checkpoint_brings_back_weights_and_moments_bit_by_bit(trained, tmp_path):
    path = save_checkpoint(tmp_path, 1, *trained)
    other = Decoder(MODEL)
    optimizer = make_optimizer(other, OptimizerConfig())

    assert load_checkpoint(path, other, optimizer) == 1
    for (name, mine), theirs in zip(trained[0].named_parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs), name
        for key, value in trained[1].state[mine].items():
            assert torch.equal(value, optimizer.state[theirs][key])


def test_the_newest_whole_checkpoint_is_taken(trained, tmp_path):
    assert latest_checkpoint(tmp_path) is None
    for step in (5, 20, 100):
        save_checkpoint(tmp_path, step, *trained)
    (tmp_path / "step-00000100" / "manifest.json").unlink()
    (tmp_path / ".step-00000200.partial").mkdir()

    assert latest_checkpoint(tmp_path).name == "step-00000020"


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors"])
def test_a_flipped_bit_and_a_lost_byte_are_refused_by_name(trained, tmp_path, name):
    path = save_checkpoint(tmp_path, 1, *trained)
    whole = (path / name).read_bytes()
    middle = len(whole) // 2
    for damaged in (whole[:-1], whole[:middle] + bytes([whole[middle] ^ 4]) + whole[middle + 1 :]):
        (path / name).write_bytes(damaged)
        with pytest.raises(InputError, match=name):
            load_checkpoint(path, *trained)


def test_another_models_checkpoint_is_refused(trained, tmp_path):
    path = save_checkpoint(tmp_path, 1, *trained)
    other = Decoder(ModelConfig(hidden_size=32, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2))

    with pytest.raises(InputError, match="does not fit the model"):
        load_checkpoint(path, other, make_optimizer(other, OptimizerConfig()))


def test_a_write_that_fails_leaves_nothing(trained, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("meshwright.train.checkpoint.write_atomic", full)
    with pytest.raises(OSError, match="No space"):
        save_checkpoint(tmp_path, 1, *trained)
    assert list(tmp_path.iterdir()) == []
