"""One case: a damaged file, a reader, a deadline; and what of the answer is a fault."""

import contextlib
import random
import shutil
import signal
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from meshwright.errors import MeshwrightError, one_line
from tests.fuzz.mutate import mutated
from tests.fuzz.oracle import faults
from tests.fuzz.readers import Reader

DEADLINE_S = 4.0  # of the processor, for one case; none takes two
WAIT_S = 600.0  # of the clock: for a reader that sleeps, on a busy machine


class TooLong(BaseException):
    """Not an Exception: no reader may take it for its own."""


@dataclass(frozen=True)
class Fault:
    """A case that went wrong, and what repeats it."""

    reader: str
    seed: int
    damage: str
    what: str
    data: bytes
    name: str

    def __str__(self) -> str:
        return f"{self.reader} --seed {self.seed}: {self.name}: {self.damage}: {self.what}"


def cases(reader: Reader, folder: Path, first: int, count: int) -> Iterator[Fault | None]:
    """Yield for each case its fault, or None; case `n` is the same whatever was tried before it."""
    seeds = reader.seeds()
    assert seeds, f"{reader.name}: no good file to begin with"
    for seed in range(first, first + count):
        rng = random.Random(f"{reader.name} {seed}")
        name, good = rng.choice(seeds)
        damage, data = mutated(good, Path(name).suffix, rng)
        home = folder / f"case-{seed}"  # what is cached by its path is read anew
        home.mkdir()
        (home / name).write_bytes(data)
        what = answer(reader, home / name)
        shutil.rmtree(home)
        yield Fault(reader.name, seed, damage, what, data, name) if what else None


def answer(reader: Reader, path: Path) -> str:
    """Return what is wrong with how a file is read, "" where nothing is."""
    try:
        with _deadline(), warnings.catch_warnings():
            warnings.simplefilter("error")
            found = reader.read(path)
        return next(faults(found), "")
    except MeshwrightError as error:  # bad input, or what was looked for is wrong: a schedule with a race
        return "" if one_line(str(error)).strip() else "a refusal without a word"
    except TooLong:
        return f"more than {DEADLINE_S} s of the processor, or {WAIT_S} s"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {str(error)[:200]} ({last.filename.rpartition('/')[2]}:{last.lineno})"


@contextlib.contextmanager
def _deadline() -> Iterator[None]:
    before = [(number, signal.signal(number, _too_long)) for number in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, DEADLINE_S)
    signal.setitimer(signal.ITIMER_REAL, WAIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before:
            signal.signal(number, handler)


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TooLong
