"""A checkpoint written under one split loads under every other; damage is refused and named."""

import itertools
import random

import pytest
import torch
from safetensors import safe_open

from meshwright.errors import InputError
from meshwright.train.checkpoint import pieces as module
from meshwright.train.checkpoint.manifest import read_manifest
from meshwright.train.checkpoint.pieces import Piece, read_pieces, read_whole
from meshwright.train.checkpoint.stored import verify_pieces
from tests.unit.train.checkpoint.samples import FACTS, SPLITS, split_all, whole_tensors, write_checkpoint


def emptied(pieces):
    return [Piece(p.name, p.shape, p.offset, torch.full_like(p.tensor, 77)) for p in pieces]


@pytest.mark.parametrize(("wrote", "reads"), [*itertools.product(SPLITS, repeat=2)])
def test_a_checkpoint_loads_under_every_other_split_and_rank_count(tmp_path, wrote, reads):
    tensors = whole_tensors()
    path = write_checkpoint(tmp_path / "c", tensors, wrote, ranks=3)

    for ranks in (1, 2, 5):
        for expected in split_all(tensors, SPLITS[reads], ranks):
            wanted = emptied(expected)
            read_pieces(path, read_manifest(path), wanted)
            for found, right in zip(wanted, expected, strict=True):
                assert torch.equal(found.tensor, right.tensor), found.name


def test_the_manifest_brings_back_the_facts(tmp_path):
    path = write_checkpoint(tmp_path / "c", whole_tensors())

    assert read_manifest(path).facts == FACTS
    assert verify_pieces(path, read_manifest(path)) == (path / "rank-00000.safetensors").stat().st_size


def test_large_tensors_are_cut_and_only_wanted_parts_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LARGEST_PIECE_BYTES", 100)
    tensors = whole_tensors()
    path = write_checkpoint(tmp_path / "c", tensors)
    manifest = read_manifest(path)
    assert len(manifest.tensors["a.weight"].pieces) == 6
    read = []
    monkeypatch.setattr(module.StoredFiles, "read", counting(module.StoredFiles.read, read))

    rows = Piece("a.weight", (12, 10), (3, 0), torch.zeros(2, 10))
    read_pieces(path, manifest, [rows])

    assert torch.equal(rows.tensor, tensors["a.weight"][3:5])
    assert read == [80, 80]
    assert dict(read_whole(path, manifest, ["a.weight"]))["a.weight"].equal(tensors["a.weight"])


def counting(function, sizes):
    def read(self, piece, size_bytes, name):
        sizes.append(size_bytes)
        return function(self, piece, size_bytes, name)

    return read


def test_the_files_are_safetensors_that_others_read(tmp_path):
    tensors = whole_tensors()
    path = write_checkpoint(tmp_path / "c", tensors)

    with safe_open(str(path / "rank-00000.safetensors"), "pt") as file:
        for name in file.keys():  # noqa: SIM118  (not a mapping)
            assert torch.equal(file.get_tensor(name), tensors[name])


def load_all(path, tensors):
    [held] = split_all(tensors, SPLITS["replicated"], 1)
    read_pieces(path, read_manifest(path), emptied(held))


def test_every_flipped_bit_and_every_truncation_is_refused_by_the_files_name(tmp_path):
    tensors = whole_tensors()
    path = write_checkpoint(tmp_path / "c", tensors, "grid", ranks=2)
    rng = random.Random(11)
    files = sorted(path.iterdir())
    for number in range(550):
        file = rng.choice(files)
        whole = file.read_bytes()
        at = rng.randrange(len(whole))
        if number < 500:
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :])
        else:
            file.write_bytes(whole[:at])
        with pytest.raises(InputError, match=file.name):
            load_all(path, tensors)
        with pytest.raises(InputError, match=file.name):
            verify_pieces(path, read_manifest(path))
        file.write_bytes(whole)
    load_all(path, tensors)


def test_what_does_not_fit_is_named(tmp_path):
    path = write_checkpoint(tmp_path / "c", whole_tensors())
    manifest = read_manifest(path)

    for piece, message in (
        (Piece("d", (1,), (0,), torch.zeros(1)), "lacks d"),
        (Piece("a.weight", (12, 11), (0, 0), torch.zeros(12, 11)), r"a.weight is \[12, 10\], expected \[12, 11\]"),
        (Piece("a.weight", (12, 10), (0, 0), torch.zeros(12, 10).half()), "a.weight is F32, expected F16"),
    ):
        with pytest.raises(InputError, match=message):
            read_pieces(path, manifest, [piece])
