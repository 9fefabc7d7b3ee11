"""Between an engine and its checkpoints: a rank's shards as pieces, and the newest good checkpoint into them."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch

from ...device import generator_state, set_generator_state
from ...errors import InputError
from ...parallel.engine import Shard
from .folder import checkpoints, name_of
from .manifest import Facts, read_manifest
from .pieces import Piece, read_pieces

Sum = Callable[[int], int]  # of one whole number of each rank, over all ranks


def pieces_of(shards: Iterable[Shard]) -> list[Piece]:
    """Return weights and moments as pieces; what is one number for a whole tensor goes with the piece at its start."""
    pieces = []
    for shard in shards:
        pieces.append(Piece(shard.name, shard.shape, shard.offset, shard.parameter, shard.owner))
        for key, moment in shard.moments.items():
            name = f"{shard.name}/{key}"
            if moment.dim():
                pieces.append(Piece(name, shard.shape, shard.offset, moment, shard.owner))
            else:
                pieces.append(Piece(name, (), (), moment, shard.owner and not any(shard.offset)))
    return pieces


def generators(rank: int) -> list[Piece]:
    """Return the states of torch's random generators on this rank."""
    states = {f"rng/cpu/{rank}": torch.get_rng_state()}
    if (other := generator_state()) is not None:
        kind, state = other
        states[f"rng/{kind}/{rank}"] = state
    return [Piece(name, tuple(state.shape), (0,), state) for name, state in states.items()]


def load(path: Path, shards: Sequence[Shard], rank: int) -> Facts:
    """Put a checkpoint into the shards of this rank, and its generator into torch where it had this rank; all local.

    Raises InputError naming file or tensor where anything is damaged or does not fit.
    """
    manifest = read_manifest(path)
    read_pieces(path, manifest, pieces_of(shards))
    states = [piece for piece in generators(rank) if piece.name in manifest.tensors]
    read_pieces(path, manifest, states)
    for piece in states:
        set_generator_state(piece.name.split("/")[1], piece.tensor)
    return manifest.facts


def load_weights(path: Path, shards: Iterable[Shard]) -> None:
    """Put the weights of a checkpoint into the shards of this rank, and leave the optimiser as it is; all local."""
    pieces = [Piece(shard.name, shard.shape, shard.offset, shard.parameter) for shard in shards]
    read_pieces(path, read_manifest(path), pieces)


def restore(
    folder: Path, shards: Sequence[Shard], rank: int, *, total: Sum, warn: Callable[[str], None]
) -> Facts | None:
    """Load the newest checkpoint that every rank can read; None if there is none at all. Called on all ranks.

    `total` sums a number over the ranks. One that a rank refuses is passed over with a warning on that rank; if all are
    refused, InputError says why the newest one is.
    """
    steps = [int(path.name.removeprefix("step-")) for path in checkpoints(folder)] if rank == 0 else []
    first = ""
    while step := total(steps.pop(0) + 1 if steps else 0):
        path = folder / name_of(step - 1)
        facts, problem = None, ""
        try:
            facts = load(path, shards, rank)
        except InputError as error:
            problem = str(error)
            warn(f"{problem}; an older checkpoint is tried")
        if not total(bool(problem)) and facts is not None:
            return facts
        first = first or problem or f"{path}: another rank cannot load it"
    if first:
        raise InputError(f"no checkpoint can be loaded: {first}")
    return None
