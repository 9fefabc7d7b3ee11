"""`python -m tests.fuzz --minutes N [--reader NAME] [--seed FIRST] [--cases N] [--keep FOLDER]`."""

import argparse
import collections
import contextlib
import itertools
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.harness import Fault, cases
from tests.fuzz.readers import Reader, readers

MOST_MEMORY_BYTES = 4 * 2**30  # of the whole process: a case that needs more ends in a MemoryError, which is a fault
ROUND = 50  # cases of a reader before the next has its turn


def main() -> int:
    """Try cases until the time is over; print the faults, each kind once, and return 1 if there is any."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=sys.modules["tests.fuzz"].__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--reader", action="append", help="this one alone; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    parser.add_argument("--cases", type=int, help="cases of each reader, however long they take")
    parser.add_argument("--keep", type=Path, help="keep the files of the faults here")
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        chosen = [reader for reader in readers(Path(folder)) if not given.reader or reader.name in given.reader]
        if not chosen:
            parser.error(f"--reader: known are {', '.join(reader.name for reader in readers(Path(folder)))}")
        return _tried(chosen, Path(folder), given)


def _tried(chosen: list[Reader], folder: Path, given: argparse.Namespace) -> int:
    ends_s = time.monotonic() + 60 * given.minutes
    counts: collections.Counter[str] = collections.Counter()
    kinds: dict[tuple[str, str], Fault] = {}
    with contextlib.suppress(KeyboardInterrupt):  # what was tried until then is said
        for first in itertools.count(given.seed, ROUND):
            for reader in chosen:
                if time.monotonic() > ends_s and not given.cases:
                    break
                for fault in cases(reader, folder, first, min(ROUND, given.cases or ROUND)):
                    counts[reader.name] += 1
                    if fault is not None:
                        _say(fault, kinds, given.keep)
            if first + ROUND >= given.seed + given.cases if given.cases else time.monotonic() > ends_s:
                break
    sys.stdout.write(f"{sum(counts.values())} cases of {len(counts)} readers, {len(kinds)} kinds of fault\n")
    return 1 if kinds else 0


def _say(fault: Fault, kinds: dict[tuple[str, str], Fault], keep: Path | None) -> None:
    kind = (fault.reader, fault.what.rpartition("(")[2] or fault.what[:40])
    if kind in kinds:
        return
    kinds[kind] = fault
    sys.stdout.write(str(fault).encode("utf-8", "backslashreplace").decode() + "\n")
    sys.stdout.flush()
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{fault.reader.replace(' ', '-')}-{fault.seed}-{fault.name}").write_bytes(fault.data)


if __name__ == "__main__":
    sys.exit(main())
