"""Saving beside the training: the state is copied, then written by a thread while the next steps run.

Every rank writes the pieces that it owns into one file of a hidden folder and tells rank 0 through the job's store;
rank 0 waits for all, writes the manifest, flushes everything and renames the folder into place. A process that ends at
any instant leaves a hidden folder, which is never loaded.
"""

import contextlib
import errno
import secrets
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.distributed import Store

from ...files import write_atomic
from .folder import complete, has_its_sizes, is_whole, prune, remove_partial
from .manifest import CheckpointFacts, Manifest, StoredFile, StoredTensor, checkpoint_name, write_manifest
from .pieces import Piece, merge_tables, write_file

PROBLEM = "checkpoint/problem"  # in the store: why the last save failed
LOOK_S = 0.02  # between looks for another rank's part


class RankPart(msgspec.Struct, frozen=True):
    """The files of one rank, or why it could not write them."""

    problem: str = ""
    name: str = ""
    file: StoredFile | None = None
    tensors: dict[str, StoredTensor] = {}


class Saver:
    """Writes the checkpoints of one rank; on rank 0 also completes and prunes them."""

    def __init__(
        self,
        folder: Path,
        *,
        rank: int = 0,
        ranks: int = 1,
        store: Store | None = None,
        keep_last: int = 0,
        keep_every: int = 0,
        timeout_s: float = 600.0,
        marker: Path | None = None,
    ) -> None:
        """Make the saver of one rank; `marker` is a file that says, for good, which step was saved last."""
        self._folder, self._rank, self._ranks = folder, rank, ranks
        self._keep = {"keep_last": keep_last, "keep_every": keep_every}
        self._timeout_s, self._marker = timeout_s, marker
        self._verified: set[str] = set()  # names of checkpoints that were written or read in full here
        self._store = _connection(store) if store is not None and ranks > 1 else None
        self._copies: dict[str, Tensor] = {}
        self._thread: threading.Thread | None = None
        self._problems: list[str] = []
        self._given_up = threading.Event()
        if rank == 0:
            remove_partial(folder)
        self._token = self._shared_token()

    def save(self, facts: CheckpointFacts, pieces: Sequence[Piece]) -> None:
        """Start to save a consistent copy of the state; returns once it is copied (and the save before has ended)."""
        self.finish()
        copies = [self._copy(piece) for piece in pieces if piece.owner]
        self._thread = threading.Thread(target=self._write, args=(facts, copies), name="checkpoint", daemon=True)
        self._thread.start()

    def finish(self, timeout_s: float | None = None) -> None:
        """Wait for the save under way; after `timeout_s` leave it unfinished."""
        if self._thread is None:
            return
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._given_up.set()
            self._thread.join(1.0)
        self._thread = None

    def take_problem(self) -> str:
        """Return why a save failed since the last call, or ""."""
        return self._problems.pop(0) if self._problems else ""

    def shared_problem(self, problem: str) -> str:
        """Return `problem`, or where this rank has none what another rank said before it took its own."""
        if not problem and self._store is not None and self._store.check([PROBLEM]):
            problem = self._store.get(PROBLEM).decode()
        return problem or "another rank cannot save the checkpoint"

    @property
    def busy(self) -> bool:
        """Whether a save is under way."""
        return self._thread is not None and self._thread.is_alive()

    def _shared_token(self) -> str:
        """Return a word of this start of the job, so that a rank of an earlier one cannot write among its files."""
        if self._store is None:
            return secrets.token_hex(4)
        if self._rank == 0:
            self._store.set("checkpoint/token", secrets.token_hex(4))
        return str(self._store.get("checkpoint/token"), "ascii")

    def _copy(self, piece: Piece) -> Piece:
        """Copy a piece into memory that is used again by the next save."""
        key = f"{piece.name}@{piece.offset}"
        tensor = piece.tensor.detach()
        kept = self._copies.get(key)
        if kept is None or kept.shape != tensor.shape or kept.dtype != tensor.dtype:
            kept = self._copies[key] = torch.empty(tensor.shape, dtype=tensor.dtype)
        kept.copy_(tensor)
        return Piece(piece.name, piece.shape, piece.offset, kept)

    def _write(self, facts: CheckpointFacts, pieces: Sequence[Piece]) -> None:
        """Run in the thread: write this rank's file; on rank 0 wait for the others and complete the checkpoint."""
        final = self._folder / checkpoint_name(facts.step)
        partial = self._folder / f".{final.name}.{self._token}"
        try:
            part = self._write_part(partial, pieces)
            if self._store is not None and self._rank:
                self._store.set(f"checkpoint/{facts.step}/{self._rank}", msgspec.json.encode(part).decode())
            if self._rank == 0:
                self._complete(facts, part, partial, final)
        except OSError as error:
            self._failed(facts.step, f"{self._folder}: {error.strerror or error}")
        except Exception as error:  # a thread has nobody to raise to
            self._failed(facts.step, f"{type(error).__name__}: {error}")

    def _failed(self, step: int, why: str) -> None:
        text = f"cannot save step {step}: {why}"
        if self._store is not None:
            with contextlib.suppress(RuntimeError):  # a store that is lost keeps this rank from nothing but telling
                self._store.set(PROBLEM, text)
        self._problems.append(text)

    def _write_part(self, partial: Path, pieces: Sequence[Piece]) -> RankPart:
        path = partial / f"rank-{self._rank:05d}.safetensors"
        try:
            if not self._folder.is_dir():
                raise FileNotFoundError(errno.ENOENT, "the folder has been removed")
            partial.mkdir(exist_ok=True)
            file, tensors = write_file(path, pieces)
        except OSError as error:
            return RankPart(problem=f"{self._folder}: {error.strerror or error}")
        return RankPart(name=path.name, file=file, tensors=tensors)

    def _complete(self, facts: CheckpointFacts, mine: RankPart, partial: Path, final: Path) -> None:
        parts = [mine, *(self._part_of(rank, facts.step) for rank in range(1, self._ranks))]
        problem = next((part.problem for part in parts if part.problem), "")
        if problem:
            self._failed(facts.step, problem)
            remove_partial(self._folder)
            return
        manifest = Manifest(
            facts=facts,
            files={part.name: part.file for part in parts if part.file is not None},
            tensors=merge_tables([part.tensors for part in parts], where=str(final)),
        )
        write_manifest(partial, manifest)
        complete(partial, final)
        self._verified.add(final.name)
        if self._marker is not None:
            write_atomic(self._marker, f"{facts.step}\n".encode())
        with contextlib.suppress(OSError):  # what is too much is removed the next time
            prune(self._folder, **self._keep, whole=self._is_whole)

    def _is_whole(self, path: Path) -> bool:
        """Return whether a checkpoint counts for pruning: one that an earlier process left is read in full, once."""
        if path.name in self._verified:
            return has_its_sizes(path)
        if is_whole(path):
            self._verified.add(path.name)
            return True
        return False

    def _part_of(self, rank: int, step: int) -> RankPart:
        """Return what another rank wrote, once it has."""
        assert self._store is not None
        key = f"checkpoint/{step}/{rank}"
        end = time.monotonic() + self._timeout_s
        while not self._store.check([key]):
            if self._given_up.wait(LOOK_S) or time.monotonic() > end:
                return RankPart(problem=f"rank {rank} did not write its part")
        part = msgspec.json.decode(self._store.get(key), type=RankPart)
        self._store.delete_key(key)  # a run of any length takes the same memory where the store lives
        return part


def _connection(store: Any) -> Any:
    """Return the same store over a connection of its own: a wait in the writer holds up nobody else."""
    return store.clone()
