"""The folder of a run's checkpoints: which are complete, which is kept, how a new one gets its name."""

import os
import shutil
from pathlib import Path

from ...errors import InputError
from .manifest import MANIFEST, read_manifest


def name_of(step: int) -> str:
    """Return the name of the checkpoint after `step` steps."""
    return f"step-{step:08d}"


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints under `folder` that have a manifest, the newest first."""
    found = [path.parent for path in folder.glob(f"step-*/{MANIFEST}")]
    return sorted(found, key=lambda path: (len(path.name), path.name), reverse=True)


def latest_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint under `folder`, or None."""
    return next(iter(checkpoints(folder)), None)


def complete(partial: Path, final: Path) -> None:
    """Give a folder whose files are all on disk its name; a good checkpoint that has it already stays instead.

    Raises OSError if the disk refuses.
    """
    sync_folder(partial)
    if final.exists():
        try:
            read_manifest(final)
        except InputError:
            discard(final)
        else:
            discard(partial)
            return
    os.rename(partial, final)
    sync_folder(final.parent)


def prune(folder: Path, *, keep_last: int, keep_every: int) -> None:
    """Remove checkpoints that are neither among the `keep_last` newest (0: keep all) nor at a multiple of `keep_every`.

    Raises OSError if the disk refuses.
    """
    for path in checkpoints(folder)[keep_last:] if keep_last else []:
        step = path.name.removeprefix("step-")
        if not (keep_every and step.isdecimal() and int(step) % keep_every == 0):
            discard(path)


def remove_partial(folder: Path) -> None:
    """Remove what an earlier process left unfinished."""
    for path in folder.glob(".step-*"):
        shutil.rmtree(path, ignore_errors=True)


def discard(path: Path) -> None:
    """Remove a checkpoint: it loses its name first, so that no part of it is ever taken for a whole."""
    hidden = path if path.name.startswith(".") else path.with_name(f".{path.name}.discarded")
    if hidden != path:
        shutil.rmtree(hidden, ignore_errors=True)
        os.rename(path, hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def sync_folder(path: Path) -> None:
    """Flush the entries of a folder to disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
