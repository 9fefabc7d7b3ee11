"""Made-up tensors and ways to split them over ranks."""

import torch

from meshwright.train.checkpoint.manifest import CheckpointFacts, Manifest, write_manifest
from meshwright.train.checkpoint.pieces import Piece, merge_tables, write_file

FACTS = CheckpointFacts(
    step=7, seed=3, next_sequence=56, schedule={"learning_rate": 0.1}, steps=20, layout="dp=2,mbs=1", ranks=2
)


def whole_tensors():
    """Return tensors of several types and shapes, each element another number."""
    generator = torch.Generator().manual_seed(1)
    return {
        "a.weight": torch.randn(12, 10, generator=generator),
        "b.weight": torch.randn(7, 5, generator=generator).bfloat16(),
        "c.bias": torch.randn(11, generator=generator, dtype=torch.float64),
        "c.bias/step": torch.tensor(3.0),
    }


def replicated(name, tensor, ranks):
    return [[Piece(name, tuple(tensor.shape), (0,) * tensor.dim(), tensor.clone(), rank == 0)] for rank in range(ranks)]


def cut(dim):
    """Return the split that cuts tensors along a dimension, unevenly where it does not divide, as FSDP2 does."""

    def split(name, tensor, ranks):
        if tensor.dim() <= dim:
            return replicated(name, tensor, ranks)
        size, each = tensor.shape[dim], -(-tensor.shape[dim] // ranks)
        pieces = []
        for rank in range(ranks):
            start = min(rank * each, size)
            offset = tuple(start if d == dim else 0 for d in range(tensor.dim()))
            part = tensor.narrow(dim, start, min(each, size - start)).clone()
            pieces.append([Piece(name, tuple(tensor.shape), offset, part)])
        return pieces

    return split


def grid(name, tensor, ranks):
    """Cut rows over ranks and columns in three, as tensor parallelism under ZeRO does."""
    pieces = cut(0)(name, tensor, ranks)
    if tensor.dim() < 2:
        return pieces
    return [
        [
            Piece(p.name, p.shape, (p.offset[0], start), p.tensor[:, start : start + 4].clone())
            for p in held
            for start in range(0, tensor.shape[1], 4)
        ]
        for held in pieces
    ]


def stages(name, tensor, ranks):
    """Give each tensor to one rank, as a pipeline does."""
    owner = len(name) % ranks
    return [
        [Piece(name, tuple(tensor.shape), (0,) * tensor.dim(), tensor.clone())] * (r == owner) for r in range(ranks)
    ]


SPLITS = {"replicated": replicated, "rows": cut(0), "columns": cut(1), "grid": grid, "stages": stages}


def split_all(tensors, split, ranks):
    """Return the pieces of each rank."""
    held = [[] for _ in range(ranks)]
    for name, tensor in tensors.items():
        for rank, pieces in enumerate(split(name, tensor, ranks)):
            held[rank] += pieces
    return held


def write_checkpoint(folder, tensors, split="replicated", ranks=1, facts=FACTS):
    """Write a checkpoint as the ranks of a job would, one after the other."""
    folder.mkdir(parents=True)
    files, tables = {}, []
    for rank, pieces in enumerate(split_all(tensors, SPLITS[split], ranks)):
        name = f"rank-{rank:05d}.safetensors"
        files[name], table = write_file(folder / name, [piece for piece in pieces if piece.owner])
        tables.append(table)
    write_manifest(folder, Manifest(facts=facts, files=files, tensors=merge_tables(tables, where=str(folder))))
    return folder
