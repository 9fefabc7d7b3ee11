"""The corpus: text files as one memory-mapped array of tokens, whole files held out, sampled by seed and step alone."""

import hashlib
import os
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from ...errors import InputError
from ...files import read_bytes, read_text
from ...native import kept_folder
from ..job.config import DataConfig
from ..run.run_folder import is_of_a_run
from .token_file import VERSION, TokenFile, read_tokens, write_tokens

SEPARATOR = 0  # the byte token between files; no text file holds it
LEFT_OUT = {"site-packages", "dist-packages", "__pycache__"}
Tokens = npt.NDArray[Any]


class CorpusSplit(msgspec.Struct, frozen=True):
    """Files for training and held-out files, as paths with the root that they were found under."""

    train: tuple[tuple[Path, Path], ...]
    validation: tuple[tuple[Path, Path], ...]


def standard_library() -> Path:
    """Return the folder of the running interpreter's standard library: real text that every machine has."""
    return Path(sysconfig.get_paths()["stdlib"])


def find_files(paths: Sequence[str], pattern: str) -> list[tuple[Path, Path]]:
    """Return (root, file) pairs in a fixed order; folders are searched for `pattern`, site-packages left out.

    Raises InputError where a path is missing or nothing is found.
    """
    roots = [Path(path).expanduser() for path in paths] or [standard_library()]
    found: list[tuple[Path, Path]] = []
    for root in roots:
        if root.is_file():
            found.append((root.parent, root))
        elif root.is_dir():
            found += [(root, file) for file in _walk(root, pattern)]
        else:
            raise InputError(f"data.paths: {root}: no such file or folder")
    if not found:
        raise InputError(
            f"data.paths: no file matches {pattern!r} in {', '.join(map(str, roots))}; data.pattern says which are text"
            f"{_most_common(roots)}"
        )
    return found


def _most_common(roots: Sequence[Path]) -> str:
    """Return the pattern that most files of the folders match, as an example; "" where none has an ending."""
    endings = Counter(file.suffix for root in roots for file in _walk(root, "*.*") if file.suffix)
    return f', such as --set data.pattern="*{endings.most_common(1)[0][0]}"' if endings else ""


def split_files(files: Sequence[tuple[Path, Path]], validation_share: float) -> CorpusSplit:
    """Hold out whole files, chosen by a hash of their relative path, so that the choice is the same everywhere."""

    def held_out(item: tuple[Path, Path]) -> bool:
        root, file = item
        digest = hashlib.sha256(os.fsencode(file.relative_to(root).as_posix())).digest()
        return int.from_bytes(digest[:8]) < validation_share * 2**64

    if len(files) == 1:  # a single file cannot be held out whole: `load_corpus` holds out its end
        return CorpusSplit(train=tuple(files), validation=())
    validation = tuple(item for item in files if held_out(item)) or (files[-1],)
    return CorpusSplit(
        train=tuple(item for item in files if item not in set(validation)) or validation, validation=validation
    )


def tokenize(files: Sequence[tuple[Path, Path]], tokenizer: str, cache: Path) -> Tokens:
    """Return the tokens of the files, a separator after each, memory-mapped from a file in `cache`.

    `tokenizer` is "bytes" or the path of a Hugging Face tokenizer.json.
    """
    return tokenized(files, tokenizer, cache).tokens


def tokenized(files: Sequence[tuple[Path, Path]], tokenizer: str, cache: Path) -> TokenFile:
    """Return the tokens of the files, with their checksum; a damaged cache is rebuilt, with a warning."""
    dtype = np.dtype(np.uint8 if tokenizer == "bytes" else np.uint32)
    path = cache / f"{_fingerprint(files, tokenizer)}.{dtype.name}.{VERSION}.tokens"
    try:
        found = read_tokens(path, dtype) if path.exists() else None
        if found is None:
            if path.exists():
                sys.stderr.write(f"warning: {path}: damaged; the corpus is tokenised anew\n")
            cache.mkdir(parents=True, exist_ok=True)
            write_tokens(path, _encoded(files, tokenizer), dtype)
            found = read_tokens(path, dtype)
    except OSError as error:
        raise InputError(f"{path}: cannot hold the tokens of the corpus: {error.strerror or error}") from None
    if found is None:
        raise InputError(f"{path}: differs from what was just written (a bad disk?)")
    if not len(found.tokens):
        raise InputError("data.paths: the files are empty")
    return found


class Corpus(msgspec.Struct, frozen=True):
    """The files of a job and their tokens, memory-mapped."""

    split: CorpusSplit
    train: Tokens
    validation: Tokens
    content: str = ""  # checksum of both

    def listing(self) -> str:
        """Return every file, a line each, with the part that it belongs to."""
        rows = [("train", file) for _, file in self.split.train]
        rows += [("held out", file) for _, file in self.split.validation]
        return "".join(f"{part}\t{file}\n" for part, file in rows)


def check_same_text(content: str, theirs: str, *, who: str, other: str) -> None:
    """Raise InputError where a process has read other text (the checksum of its corpus) than another one of its job."""
    if content != theirs:
        raise InputError(
            f"data.paths: {who} has read other text than {other}: its files were written while the job started, "
            "or differ from machine to machine; train on a copy that nobody writes"
        )


def load_corpus(data: DataConfig, cache: Path | None = None) -> Corpus:
    """Find, split and tokenise the files of a job; tokens are kept in `cache`, by default where all jobs keep them.

    Raises InputError where there is no text, or where a part is shorter than a sequence.
    """
    cache, seq_len = cache or kept_folder("tokens"), data.seq_len
    split = split_files(find_files(data.paths, data.pattern), data.validation_share)
    whole = tokenized(split.train, data.tokenizer, cache)
    train, content = whole.tokens, whole.checksum
    if split.validation:
        held_out = tokenized(split.validation, data.tokenizer, cache)
        validation, content = held_out.tokens, content + held_out.checksum
    else:
        cut = len(train) - max(seq_len + 1, int(len(train) * data.validation_share))
        train, validation = train[: max(cut, 0)], train[max(cut, 0) :]
    for part, tokens, least in (("training", train, 2 * seq_len + 1), ("held-out", validation, seq_len + 1)):
        if len(tokens) < least:
            raise InputError(
                f"data.paths: {len(tokens)} {part} tokens are too few for sequences of {seq_len} "
                f"(at least {least}): give more text or a smaller data.seq_len"
            )
    content = xxhash.xxh3_128_hexdigest(f"{content} {len(train)} {len(validation)}".encode())
    return Corpus(split=split, train=train, validation=validation, content=content)


def vocabulary_size(tokenizer: str) -> int:
    """Return the vocabulary that a model needs: the largest token number and one, where numbers are left out too."""
    if tokenizer == "bytes":
        return 256
    return max(_load_tokenizer(tokenizer).get_vocab().values(), default=-1) + 1


class Sampler:
    """Sequences of `seq_len` + 1 tokens, in an order that depends only on the seed and the index.

    Windows of `seq_len` tokens are visited in a new random order, from a new random offset, in every epoch. There
    must be at least 2 `seq_len` + 1 tokens.
    """

    def __init__(self, tokens: Tokens, *, seq_len: int, seed: int) -> None:
        self._tokens = tokens
        self._seq_len = seq_len
        self._seed = seed
        self._windows = (len(tokens) - 1) // seq_len - 1
        self._epoch: tuple[int, npt.NDArray[np.int64], int] | None = None

    def sequences(self, indices: Sequence[int] | range) -> npt.NDArray[np.int64]:
        """Return the sequences with these indices as [len(indices), seq_len + 1] token numbers."""
        starts = np.array([self._start(index) for index in indices])
        rows: npt.NDArray[np.int64] = self._tokens[starts[:, None] + np.arange(self._seq_len + 1)].astype(np.int64)
        return rows

    def _start(self, index: int) -> int:
        epoch, position = divmod(index, self._windows)
        if self._epoch is None or self._epoch[0] != epoch:
            rng = np.random.default_rng([self._seed, epoch])
            self._epoch = (epoch, rng.permutation(self._windows), int(rng.integers(self._seq_len)))
        return int(self._epoch[1][position]) * self._seq_len + self._epoch[2]


def validation_sequences(tokens: Tokens, *, seq_len: int, count: int) -> npt.NDArray[np.int64]:
    """Return `count` sequences spread evenly over the held-out tokens (fewer if there are fewer)."""
    windows = (len(tokens) - 1) // seq_len
    chosen = np.unique(np.linspace(0, windows - 1, min(count, windows)).astype(np.int64))
    rows: npt.NDArray[np.int64] = tokens[chosen[:, None] * seq_len + np.arange(seq_len + 1)].astype(np.int64)
    return rows


def _walk(root: Path, pattern: str) -> Iterator[Path]:
    for folder, names, files in os.walk(root):
        if is_of_a_run(files) and Path(folder) != root:  # what a job writes is no text that it reads
            names.clear()
            continue
        names[:] = sorted(name for name in names if name not in LEFT_OUT and not name.startswith("."))
        for name in sorted(files):  # a link to nothing, an editor's lock, a pipe or a device are no text
            file = Path(folder) / name
            if not name.startswith(".") and file.match(pattern) and file.is_file():
                yield file


def _fingerprint(files: Sequence[tuple[Path, Path]], tokenizer: str) -> str:
    state = hashlib.sha256(tokenizer.encode())
    if tokenizer != "bytes":
        state.update(read_bytes(tokenizer))
    for _, file in files:
        try:
            stat = file.stat()
        except OSError as error:
            raise InputError(f"data.paths: {file}: {error.strerror or error}") from None
        state.update(os.fsencode(f"{file}\0{stat.st_size}\0{stat.st_mtime_ns}\n"))
    return state.hexdigest()[:32]


def _encoded(files: Sequence[tuple[Path, Path]], tokenizer: str) -> Iterator[bytes]:
    encoder = None if tokenizer == "bytes" else _load_tokenizer(tokenizer)
    for _, file in files:
        try:
            data = file.read_bytes()
        except OSError as error:
            raise InputError(f"data.paths: {file}: {error.strerror or error}") from None
        if encoder is None:
            yield data + bytes([SEPARATOR])
        else:
            yield np.asarray(encoder.encode(data.decode("utf-8", "replace")).ids, dtype=np.uint32).tobytes()


def _load_tokenizer(path: str) -> Any:
    from tokenizers import Tokenizer

    text = read_text(path)
    try:
        return Tokenizer.from_str(text)
    except Exception as error:  # the library raises plain Exception for a bad file
        raise InputError(f"data.tokenizer: {path}: not a tokenizer.json: {error}") from None
