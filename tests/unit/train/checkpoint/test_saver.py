"""Checkpoints are written beside the training, whole or not at all, and the newest good one is taken."""

import os
import shutil
import signal
import time

import msgspec
import pytest
import torch
import torch.distributed as dist

from meshwright.errors import InputError
from meshwright.parallel.engine import unsplit_shard
from meshwright.train.checkpoint.folder import checkpoints, latest_checkpoint, prune
from meshwright.train.checkpoint.manifest import CheckpointFacts, read_manifest
from meshwright.train.checkpoint.pieces import Piece
from meshwright.train.checkpoint.saver import Saver
from meshwright.train.checkpoint.state import pieces_of, restore
from meshwright.train.checkpoint.stored import verify_pieces
from meshwright.train.job.config import OptimizerConfig
from meshwright.train.model.decoder import Decoder
from meshwright.train.model.optimizer import make_optimizer
from meshwright.workload.transformer import ModelConfig

MODEL = ModelConfig(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2)


def shards(model=MODEL, *, steps=1):
    """Return the shards of a model and its optimiser after some steps on one rank."""
    module = Decoder(model)
    optimizer = make_optimizer(module, OptimizerConfig())
    tokens = torch.arange(34).view(2, 17)
    for _ in range(steps):
        module(tokens[:, :-1], tokens[:, 1:]).backward()
        optimizer.step()
    return [unsplit_shard(name, parameter, optimizer, owner=True) for name, parameter in module.named_parameters()]


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "checkpoints"
    path.mkdir()
    return path


def save(folder, step, tensors, **keep):
    saver = Saver(folder, **keep)
    saver.save(CheckpointFacts(step=step), tensors)
    saver.finish()
    assert saver.take_problem() == ""


def start_writing(folder, step, pieces):
    """Write a checkpoint in a process of its own; return its id."""
    pid = os.fork()
    if pid == 0:
        try:
            Saver(folder)._write(CheckpointFacts(step=step), pieces)
        finally:
            os._exit(0)
    return pid


def remove_newest(folder):
    shutil.rmtree(checkpoints(folder)[0])


def restored(folder, into, warnings=None):
    return restore(folder, into, 0, total=int, warn=(warnings if warnings is not None else []).append)


def test_a_checkpoint_brings_back_weights_and_moments_bit_by_bit(folder):
    mine, theirs = shards(steps=3), shards()
    save(folder, 3, pieces_of(mine))

    assert restored(folder, theirs).step == 3
    for a, b in zip(pieces_of(mine), pieces_of(theirs), strict=True):
        assert torch.equal(a.tensor, b.tensor), a.name
    assert {key for shard in mine for key in shard.moments} == {"exp_avg", "exp_avg_sq", "step"}


def test_what_is_saved_is_the_state_at_the_call_and_not_what_training_makes_of_it(folder):
    tensor = torch.zeros(2**20)
    saver = Saver(folder)

    saver.save(CheckpointFacts(step=1), [Piece("w", tuple(tensor.shape), (0,), tensor)])
    tensor += 1
    saver.save(CheckpointFacts(step=2), [Piece("w", tuple(tensor.shape), (0,), tensor)])
    tensor += 1
    saver.finish()

    for step in (1, 2):
        read = torch.full_like(tensor, 7)
        from meshwright.train.checkpoint.pieces import read_pieces

        path = folder / f"step-{step:08d}"
        read_pieces(path, read_manifest(path), [Piece("w", tuple(tensor.shape), (0,), read)])
        assert bool((read == step - 1).all())


def test_a_damaged_checkpoint_is_passed_over_with_a_warning(folder):
    mine = shards()
    for step in (5, 20, 100):
        save(folder, step, pieces_of(mine))
    (folder / "step-00000100" / "manifest.json").unlink()
    (folder / ".step-00000200.0badc0de").mkdir()
    assert latest_checkpoint(folder).name == "step-00000020"
    data = folder / "step-00000020" / "rank-00000.safetensors"
    data.write_bytes(data.read_bytes()[:-1] + b"x")
    warnings = []

    assert restored(folder, shards(), warnings).step == 5
    assert ["step-00000020" in text and "rank-00000.safetensors" in text for text in warnings] == [True, False]
    assert "kept as damaged-step-00000020" in warnings[1]
    assert [path.name for path in checkpoints(folder)] == ["step-00000005"]
    assert (folder / "damaged-step-00000020" / "rank-00000.safetensors").exists()

    os.truncate(folder / "step-00000005" / "rank-00000.safetensors", 10)
    with pytest.raises(InputError, match="no checkpoint can be loaded: .*step-00000005"):
        restored(folder, shards())


def test_a_damaged_checkpoint_is_replaced_by_a_good_one_and_a_good_one_stays(folder):
    mine = shards()
    save(folder, 5, pieces_of(mine))
    written = (folder / "step-00000005" / "manifest.json").stat().st_mtime_ns
    save(folder, 5, pieces_of(mine))
    assert (folder / "step-00000005" / "manifest.json").stat().st_mtime_ns == written

    (folder / "step-00000005" / "manifest.json").write_text("{}")
    save(folder, 5, pieces_of(mine))

    assert restored(folder, shards()).step == 5
    assert sorted(os.listdir(folder)) == ["damaged-step-00000005", "step-00000005"]


@pytest.mark.parametrize("damage", ["a bit", "the end", "the file"])
def test_a_checkpoint_whose_data_are_damaged_is_set_aside_and_saved_anew(folder, damage):
    mine = shards()
    save(folder, 5, pieces_of(mine))
    data = folder / "step-00000005" / "rank-00000.safetensors"
    whole_bytes = data.read_bytes()
    if damage == "the file":
        data.unlink()
    else:
        data.write_bytes(whole_bytes[:50] if damage == "the end" else whole_bytes[:-9] + b"!" + whole_bytes[-8:])

    save(folder, 5, pieces_of(mine))

    assert verify_pieces(folder / "step-00000005", read_manifest(folder / "step-00000005"))
    assert sorted(os.listdir(folder)) == ["damaged-step-00000005", "step-00000005"]
    data.unlink()
    save(folder, 5, pieces_of(mine))
    assert sorted(os.listdir(folder)) == ["damaged-step-00000005", "damaged-step-00000005-2", "step-00000005"]


@pytest.mark.parametrize("by", ["an earlier process", "this process"])
def test_a_damaged_checkpoint_counts_for_none_of_the_kept_ones(folder, by):
    mine = pieces_of(shards())
    saver = Saver(folder, keep_last=2)
    for step in (10, 20, 30, 40):
        if step == 40:
            os.truncate(folder / "step-00000030" / "rank-00000.safetensors", 50)
        saver = saver if by == "this process" else Saver(folder, keep_last=2)
        saver.save(CheckpointFacts(step=step), mine)
        saver.finish()
        assert saver.take_problem() == ""

    assert sorted(os.listdir(folder)) == ["damaged-step-00000030", "step-00000020", "step-00000040"]


def test_a_generator_that_no_rank_loads_is_checked_as_well(folder):
    mine = shards()
    stranger = Piece("rng/cpu/7", (4,), (0,), torch.zeros(4, dtype=torch.uint8))
    save(folder, 5, pieces_of(mine))
    save(folder, 10, [*pieces_of(mine), stranger])
    data = folder / "step-00000010" / "rank-00000.safetensors"
    data.write_bytes(data.read_bytes()[:-1] + b"!")

    assert restored(folder, shards()).step == 5
    assert [path.name for path in checkpoints(folder)] == ["step-00000005"]


def test_a_checkpoint_that_does_not_fit_is_refused_and_none_is_passed_over_for_it(folder):
    save(folder, 5, pieces_of(shards()))
    save(folder, 10, pieces_of(shards(msgspec.structs.replace(MODEL, hidden_size=32))))

    with pytest.raises(InputError, match="step-00000010: does not fit the model"):
        restored(folder, shards())

    assert sorted(os.listdir(folder)) == ["step-00000005", "step-00000010"]


def test_the_last_ones_and_every_so_manieth_are_kept(folder):
    mine = pieces_of(shards())
    for step in range(10, 80, 10):
        save(folder, step, mine, keep_last=2, keep_every=30)

    assert [path.name[-2:] for path in checkpoints(folder)] == ["70", "60", "30"]
    assert len(os.listdir(folder)) == 3


def test_a_copy_that_a_person_has_named_is_neither_taken_for_a_checkpoint_nor_counted_nor_removed(folder):
    mine = pieces_of(shards())
    for step in (5, 10):
        save(folder, step, mine)
    copies = ["step-00000005-copy", "step-00000099.bak", "step-9", "step--1", "step-000000000000010", "step-\u0661"]
    for name in copies:
        shutil.copytree(folder / "step-00000005", folder / name)

    prune(folder, keep_last=1, keep_every=0)
    facts = restored(folder, shards())

    assert facts.step == 10
    assert sorted(os.listdir(folder)) == sorted(["step-00000010", *copies])


def test_a_checkpoint_under_the_name_of_another_step_is_not_gone_on_from_and_the_step_is_saved(folder):
    save(folder, 5, pieces_of(shards()))
    shutil.copytree(folder / "step-00000005", folder / "step-00000010")

    assert restored(folder, shards()).step == 5
    assert (folder / "damaged-step-00000010").exists()
    shutil.copytree(folder / "step-00000005", folder / "step-00000010")
    save(folder, 10, pieces_of(shards()))

    assert restored(folder, shards()).step == 10


@pytest.mark.parametrize("name", ["rank-00000.safetensors", "manifest.json"])
@pytest.mark.parametrize("how", ["is missing", "is of another step", "is of another run"])
def test_a_checkpoint_of_which_a_file_is_missing_or_anothers_is_passed_over(folder, tmp_path, name, how):
    save(folder, 5, pieces_of(shards()))
    save(folder, 10, pieces_of(shards(steps=2)))
    (tmp_path / "other").mkdir()
    save(tmp_path / "other", 10, pieces_of(shards(steps=3)))
    source = {"is of another step": folder / "step-00000005", "is of another run": tmp_path / "other/step-00000010"}
    (folder / "step-00000010" / name).unlink()
    if how in source:
        shutil.copy(source[how] / name, folder / "step-00000010" / name)

    assert restored(folder, shards()).step == 5


def test_a_checkpoint_of_another_job_that_was_put_in_the_way_is_set_aside(folder):
    saver = Saver(folder)
    saver.save(CheckpointFacts(step=5, seed=7), pieces_of(shards()))
    saver.finish()

    save(folder, 5, pieces_of(shards(steps=2)))

    assert read_manifest(folder / "step-00000005").facts.seed == 0
    assert read_manifest(folder / "damaged-step-00000005").facts.seed == 7


def test_another_models_checkpoint_is_refused(folder):
    save(folder, 1, pieces_of(shards()))

    with pytest.raises(InputError, match="does not fit the model"):
        restored(folder, shards(ModelConfig(hidden_size=16, intermediate_size=32, num_attention_heads=2)))


def test_a_disk_that_refuses_is_a_problem_of_the_next_look_and_the_last_good_one_stays(folder, monkeypatch):
    mine = pieces_of(shards())
    save(folder, 1, mine)

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("meshwright.train.checkpoint.pieces._write_all", refuse)
    saver = Saver(folder)
    saver.save(CheckpointFacts(step=2), mine)
    saver.finish()

    assert "cannot save step 2" in (problem := saver.take_problem())
    assert "No space left" in problem
    assert saver.take_problem() == ""
    assert os.listdir(folder) == ["step-00000001"]


def test_a_folder_that_was_removed_is_a_problem_and_is_not_made_again(folder):
    saver = Saver(folder)
    folder.rmdir()

    saver.save(CheckpointFacts(step=2), pieces_of(shards()))
    saver.finish()

    assert "has been removed" in saver.take_problem()
    assert not folder.exists()


@pytest.mark.timeout(300)
@pytest.mark.slow
@pytest.mark.soak
def test_a_writer_killed_at_any_instant_leaves_no_part_that_loads(folder):
    """Kill a process that saves, at 200 instants spread over the write; the last complete checkpoint always loads."""
    tensor = torch.arange(2**19, dtype=torch.float32)
    pieces = [Piece(f"w{i}", tuple(tensor.shape), (0,), tensor) for i in range(4)]
    save(folder, 1, pieces)
    completed = 0
    for number in range(200):
        if number % 20 == 0:  # how long a whole write takes in such a process at present
            start = time.monotonic()
            os.waitpid(start_writing(folder, 2, pieces), 0)
            whole_s = time.monotonic() - start
            remove_newest(folder)
        pid = start_writing(folder, 2, pieces)
        time.sleep(1.5 * whole_s * (number % 20) / 20)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        for path in checkpoints(folder):
            verify_pieces(path, read_manifest(path))
        assert checkpoints(folder)[-1].name == "step-00000001"
        if len(checkpoints(folder)) == 2:
            completed += 1
            remove_newest(folder)
    assert 0 < completed < 200  # the instants lay on both sides of the rename


class StoreLostLater(dist.HashStore):
    """A store that is there when the saver is made, and lost when it writes."""

    is_lost = False

    def clone(self):
        return self

    def set(self, key, value):
        if self.is_lost:
            raise dist.DistNetworkError("lost the job's store")
        super().set(key, value)


def test_a_checkpoint_that_nobody_can_be_told_of_is_a_problem_of_the_next_look(folder):
    store = StoreLostLater()
    store.set("checkpoint/token", "of this start")
    saver = Saver(folder, rank=1, ranks=2, store=store)
    store.is_lost = True

    saver.save(CheckpointFacts(step=7), pieces_of(shards()))
    saver.finish()

    assert saver.take_problem() == "cannot save step 7: DistNetworkError: lost the job's store"
