"""PyTorch's own tests of collectives, run on ranks that stay alive.

`python -m tests.external.pytorch_suite` runs all of them on Gloo and on this backend, writes the table of
docs/generated/backend-pytorch-tests.md, and ends with 1 where one that Gloo passes fails and it is not known why. With
a backend, a number of ranks and names of tests it prints what becomes of those.

The suite starts new processes for every test, which takes seconds each. Here the ranks of a pool run them one after
the other, each with a process group of its own. The suite decides by the name of the backend which tests it skips, so
that a test that it keeps for Gloo alone is run with the suite told "gloo" and every group made by "meshwright".
"""

import argparse
import contextlib
import io
import os
import sys
import tempfile
import unittest
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import meshwright  # noqa: F401  (registers the backend)
from benchmarks.result import banner
from meshwright.bench.ranks.pool import RankFailedError, RankPool

FEATURES = ("gpu", "cuda", "ddp", "subgroup", "plugin")
PASSED, SKIPPED, FAILED = "passed", "skipped", "failed"
START_S = 600.0  # for all ranks to read the suite, on a busy machine
DOCUMENT = Path(__file__).parents[2] / "docs" / "generated" / "backend-pytorch-tests.md"
_suites: dict[str, type] = {}


@dataclass(frozen=True)
class Outcome:
    """What became of one test: passed, skipped or failed, and why if it did not pass."""

    status: str
    reason: str = ""


def suite(believed):
    """Return the suite's test class, with the suite told that the backend is `believed`. Once in a process."""
    if believed in _suites:
        return _suites[believed]
    os.environ["BACKEND"] = believed
    with contextlib.redirect_stderr(io.StringIO()):
        from torch.testing._internal.common_distributed import DistTestCases
        from torch.testing._internal.distributed import distributed_test

    for feature in FEATURES:
        DistTestCases.backend_feature[feature].add(believed)

    class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def _barrier(self, *args, **kwargs):
            count = self.store.add("barrier", 1)
            size = dist.get_world_size() if dist.is_initialized() else int(os.environ["WORLD_SIZE"])
            self.store.add(f"barrier/{-(-count // size)}", 1)
            while self.store.add(f"barrier/{-(-count // size)}", 0) < size:
                pass

    _suites[believed] = Suite
    return Suite


def test_names(rank, world_size, store, believed):
    os.environ["WORLD_SIZE"] = str(world_size)
    return sorted(name for name in dir(suite(believed)) if name.startswith("test_"))


def run_one(rank, world_size, store, believed, backend, folder, name):
    """Run one test of the suite on this rank, in a process group of its own."""
    os.environ["WORLD_SIZE"] = str(world_size)
    os.environ["TEMP_DIR"] = folder
    cls = suite(believed)
    method = getattr(cls, name)
    if getattr(method, "__unittest_skip__", False):
        return SKIPPED, getattr(method, "__unittest_skip_why__", "")
    from torch.testing._internal.common_distributed import TEST_SKIPS

    torch.manual_seed(0)
    real = dist.new_group
    test = cls(name)
    test.rank, test.store = rank, dist.PrefixStore("suite", store)
    test.file_name = os.path.join(folder, "init")
    test.skip_return_code_checks = []
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=25))

    def new_group(*args, **kwargs):
        if kwargs.get("backend") == "gloo":
            kwargs["backend"] = backend
        return real(*args, **kwargs)

    try:
        dist.new_group = new_group
        with contextlib.redirect_stderr(io.StringIO()):
            getattr(test, name)()
        return PASSED, ""
    except unittest.SkipTest as skip:
        return SKIPPED, str(skip)
    except SystemExit as leave:
        why = [skip.message for skip in TEST_SKIPS.values() if skip.exit_code == leave.code]
        return (SKIPPED, why[0]) if why else (FAILED, f"exit {leave.code}")
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return FAILED, f"{type(error).__name__}: {lines[0][:200]}"
    finally:
        dist.new_group = real
        if dist.is_initialized():
            with contextlib.suppress(Exception):
                dist.destroy_process_group()


class Suites:
    """Pools of ranks for one backend; a pool that a test has ruined is replaced."""

    def __init__(self, world_size, backend, believed=None):
        self.world_size, self.backend, self.believed = world_size, backend, believed or backend
        self.start()

    def start(self):
        """Start ranks that have read the suite, which takes longer than a test."""
        self.pool = RankPool(self.world_size)
        self.names = self.pool.run(test_names, self.believed, timeout_s=START_S)[0]

    def run(self, name):
        if not self.pool.alive:
            self.pool.close()
            self.start()
        try:
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "test_dir").mkdir()
                answers = self.pool.run(run_one, self.believed, self.backend, folder, name, timeout_s=40.0)
        except (RankFailedError, EOFError, ConnectionError) as error:
            self.pool.close()
            return Outcome(FAILED, str(error).strip().splitlines()[-1][:200] if str(error) else "a rank ended")
        for status in (FAILED, SKIPPED):
            reasons = [reason for s, reason in answers if s == status]
            if reasons:
                return Outcome(status, reasons[0])
        return Outcome(PASSED)

    def close(self):
        self.pool.close()


def run_all(world_size, backend, believed=None, names=None):
    """Return the outcome of every test of the suite (or of `names`) by name."""
    suites = Suites(world_size, backend, believed)
    try:
        return {name: suites.run(name) for name in (names or suites.names)}
    finally:
        suites.close()


BY_NAME = 'compares the name of the backend with "gloo"'
LEFT = "wants a timeout where a rank has left the group, which we say at once instead"
KNOWN = {  # tests that Gloo passes and this backend does not, and why
    "test_get_backend": BY_NAME,
    "test_barrier_timeout_full_group": LEFT,
    "test_barrier_timeout_group": LEFT,
}


def write_document():
    """Run the suite on Gloo and on this backend, and write what passed into docs/.

    Return the tests that Gloo passes and this backend does not, without those of which it is known why.
    """
    text = [
        "# PyTorch's own tests on the backend",
        "",
        banner("make test-pytorch"),
        "On the CPU, with torch "
        f"{torch.__version__.partition('+')[0]}. The tests are those of `torch.testing._internal.distributed."
        "distributed_test`; what a GPU is needed for is skipped by the suite itself.",
        "",
        "| ranks | tests | Gloo passes | Meshwright passes | of Gloo's passes |",
        "|---|---|---|---|---|",
    ]
    missing, at_four = {}, {}
    for world_size in (4, 8):
        names = [n for n, o in at_four.items() if "small world size" in o.reason] if at_four else None
        say(f"{world_size} ranks: Gloo, then this backend")
        gloo = run_all(world_size, "gloo", names=names)
        ours = run_all(world_size, "meshwright", "gloo", names)
        at_four = at_four or gloo
        passed = {name for name, outcome in gloo.items() if outcome.status == PASSED}
        both = {name for name in passed if ours[name].status == PASSED}
        missing.update({name: ours[name].reason for name in passed - both})
        count = sum(outcome.status == PASSED for outcome in ours.values())
        text.append(
            f"| {world_size} | {'all' if names is None else 'tests of 8 ranks'} ({len(gloo)}) | {len(passed)} "
            f"| {count} | {len(both)} of {len(passed)} |"
        )
    mpi = {n: o for n, o in run_all(4, "meshwright", "mpi", ALL_TO_ALL).items() if o.status != SKIPPED}
    passed = sum(outcome.status == PASSED for outcome in mpi.values())
    text.append(f"| 4 | all-to-all, which the suite keeps for MPI ({len(mpi)}) | skipped | {passed} | |")
    text += [
        "",
        "Tests that Gloo passes and this backend does not:",
        "",
        "| test | what it says | why |",
        "|---|---|---|",
    ]
    text += [f"| `{name}` | {reason} | {KNOWN.get(name, 'not known')} |" for name, reason in sorted(missing.items())]
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text("\n".join(text) + "\n")
    say(*text[6:], "", f"written: {DOCUMENT.parent.name}/{DOCUMENT.name}")
    return sorted(missing.keys() - KNOWN.keys())


def say(*lines):
    """Print lines at once: the whole takes minutes."""
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


ALL_TO_ALL = [
    *(f"test_all_to_all{group}" for group in ("", "_group", "_full_group", "_complex")),
    *(f"test_all_to_all_single_{e}_split{g}" for e in ("equal", "unequal") for g in ("", "_group", "_full_group")),
    *(f"test_all_to_all_single_{e}_split_complex" for e in ("equal", "unequal")),
]


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="tests.external.pytorch_suite")
    parser.add_argument("backend", nargs="?", help="such as gloo, or meshwright:gloo if the suite is told it were gloo")
    parser.add_argument("ranks", nargs="?", type=int, default=4)
    parser.add_argument("tests", nargs="*", help="all if none is named")
    options = parser.parse_args(arguments)
    if options.backend is None:
        unknown = write_document()
        if unknown:
            sys.exit(f"fails, and it is not known why: {', '.join(unknown)}")
        return
    backend, _, believed = options.backend.partition(":")
    results = run_all(options.ranks, backend, believed or None, options.tests or None)
    for name, outcome in results.items():
        if outcome.status != SKIPPED or options.tests:
            say(f"{outcome.status:8}{name}  {outcome.reason}")
    say(str({s: sum(o.status == s for o in results.values()) for s in (PASSED, SKIPPED, FAILED)}))


if __name__ == "__main__":
    main()
