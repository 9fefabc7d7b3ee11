"""The folder of a run's checkpoints: which are complete, which is kept, how a new one gets its name."""

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from ...errors import InputError
from .manifest import MANIFEST, named_step, read_manifest
from .stored import verify_pieces

SET_ASIDE = "damaged-"  # before the name of a checkpoint that was passed over


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints under `folder` that have a manifest, the newest first.

    A copy that a person has given another name is none of them: it is not resumed from, counted or pruned.
    """
    steps = {path.parent: named_step(path.parent) for path in folder.glob(f"step-*/{MANIFEST}")}
    named = {path: step for path, step in steps.items() if step is not None}
    return sorted(named, key=named.__getitem__, reverse=True)


def latest_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint under `folder`, or None."""
    return next(iter(checkpoints(folder)), None)


def is_whole(path: Path) -> bool:
    """Return whether every byte of a checkpoint is as it was written; reads all of it."""
    try:
        verify_pieces(path, read_manifest(path))
    except InputError:
        return False
    return True


def has_its_sizes(path: Path) -> bool:
    """Return whether the manifest of a checkpoint is whole and its files have the sizes that it says."""
    try:
        files = read_manifest(path).files
        return all((path / name).lstat().st_size == file.size_bytes for name, file in files.items())
    except (InputError, OSError):
        return False


def set_aside(path: Path) -> Path:
    """Give a damaged checkpoint a name under which it is kept but never loaded, verified or pruned; return that.

    Raises OSError if the disk refuses.
    """
    for number in range(1, 1000):
        aside = path.with_name(f"{SET_ASIDE}{path.name}" + (f"-{number}" if number > 1 else ""))
        if not aside.exists():
            with contextlib.suppress(FileNotFoundError):  # another process has just done it
                os.rename(path, aside)
            sync_folder(path.parent)
            return aside
    discard(path)  # a thousand of one step are kept already
    return path


def complete(partial: Path, final: Path) -> None:
    """Give a folder whose files are all on disk its name.

    A whole checkpoint that has it already stays instead; one that is damaged, or of another job, is set aside.

    Raises OSError if the disk refuses.
    """
    sync_folder(partial)
    if final.exists():
        if is_whole(final) and read_manifest(final).facts == read_manifest(partial).facts:
            discard(partial)
            return
        set_aside(final)
    os.rename(partial, final)
    sync_folder(final.parent)


def prune(folder: Path, *, keep_last: int, keep_every: int, whole: Callable[[Path], bool] = is_whole) -> None:
    """Remove checkpoints that are neither among the `keep_last` newest (0: keep all) nor at a multiple of `keep_every`.

    A checkpoint that is not `whole` does not count among the newest, and is set aside. Raises OSError if the disk
    refuses.
    """
    kept = 0
    for path in checkpoints(folder) if keep_last else []:
        if kept < keep_last:
            if whole(path):
                kept += 1
            else:
                set_aside(path)
        elif not (keep_every and (named_step(path) or 0) % keep_every == 0):
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
