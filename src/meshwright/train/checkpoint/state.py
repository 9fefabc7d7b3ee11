"""Between an engine and its checkpoints: a rank's shards as pieces, and the newest good checkpoint into them."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ...device import generator_states, set_generator_state
from ...errors import InputError
from ...parallel.engine import Shard
from .folder import checkpoints, set_aside
from .manifest import CheckpointFacts, Damaged, checkpoint_name, named_step, read_manifest
from .pieces import Piece, read_pieces
from .stored import verify_pieces

Sum = Callable[[int], int]  # of one whole number of each rank, over all ranks
Accept = Callable[[CheckpointFacts], None]  # raises InputError where a checkpoint is of another job


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
    return [Piece(f"rng/{kind}/{rank}", tuple(state.shape), (0,), state) for kind, state in generator_states()]


def load_checkpoint(
    path: Path, shards: Sequence[Shard], rank: int, accept: Accept = lambda facts: None
) -> CheckpointFacts:
    """Put a checkpoint into the shards of this rank, and its generator into torch where it had this rank; all local.

    Rank 0 also checks what no rank loads, so that a checkpoint that all ranks have loaded is whole. Raises Damaged
    naming the file, InputError naming the tensor that does not fit.
    """
    manifest = read_manifest(path)
    accept(manifest.facts)
    if rank == 0:
        verify_pieces(path, manifest, only="rng/")
    read_pieces(path, manifest, pieces_of(shards))
    states = [piece for piece in generators(rank) if piece.name in manifest.tensors]
    read_pieces(path, manifest, states)
    for piece in states:
        set_generator_state(piece.name.split("/")[1], piece.tensor)
    return manifest.facts


def load_weights(path: Path, shards: Iterable[Shard]) -> None:
    """Put the weights of a checkpoint into the shards of this rank, and leave the optimiser as it is; all local."""
    pieces = [Piece(shard.name, shard.shape, shard.offset, shard.parameter) for shard in shards]
    try:
        read_pieces(path, read_manifest(path), pieces)
    except Damaged as error:
        raise InputError(f"train.start_from: {error}") from None


def restore(
    folder: Path,
    shards: Sequence[Shard],
    rank: int,
    *,
    total: Sum,
    warn: Callable[[str], None],
    accept: Accept = lambda facts: None,
) -> CheckpointFacts | None:
    """Load the newest checkpoint that every rank can read; None if there is none at all. Called on all ranks.

    `total` sums a number over the ranks. One that a rank finds damaged is passed over with a warning on that rank, and
    set aside once an older one is loaded; if all are damaged, InputError says why the newest one is. InputError as well
    where one is whole but does not fit, or `accept` refuses it.
    """
    steps = [named_step(path) or 0 for path in checkpoints(folder)] if rank == 0 else []
    first = ""
    passed_over: list[Path] = []
    while step := total(steps.pop(0) + 1 if steps else 0):
        path = folder / checkpoint_name(step - 1)
        facts, damage, misfit = None, "", ""
        try:
            facts = load_checkpoint(path, shards, rank, accept)
        except Damaged as error:
            damage = str(error)
            warn(f"{damage}; an older checkpoint is tried")
        except InputError as error:
            misfit = str(error)
        if total(bool(misfit)):
            raise InputError(misfit or f"{path}: does not fit on another rank")
        if not total(bool(damage)) and facts is not None:
            if rank == 0:
                _set_aside(passed_over, warn)
            return facts
        first = first or damage or f"{path}: another rank cannot load it"
        passed_over.append(path)
    if first:
        raise InputError(f"no checkpoint can be loaded: {first}")
    return None


def _set_aside(damaged: Iterable[Path], warn: Callable[[str], None]) -> None:
    """Rename checkpoints that were passed over, so that their steps are saved again."""
    for path in damaged:
        try:
            warn(f"{path}: damaged; kept as {set_aside(path).name}")
        except OSError as error:
            warn(f"{path}: damaged, and cannot be set aside: {error.strerror or error}")
