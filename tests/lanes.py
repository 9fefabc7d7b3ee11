"""The fast tests in lanes that run at a time: `python -m tests.lanes`, or `make test`.

Two files of unit tests at a time, which take a processor each, and two of tests of several processes, which mostly
wait. Emulated clusters and killed jobs are a lane of their own, since each looks at what another of them has left on
the machine. Tests that are marked `alone` come after all lanes, one after the other.
"""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).parent
EMULATED = sorted(TESTS.glob("multiproc/test_emulate*.py"))
LANES_OF_THEIR_OWN = {"unit", "multiproc"}
TWO_FILES = ["-n", "2", "--dist", "loadfile"]
LANES = {
    "ranks": [TESTS / "multiproc", *(f"--ignore={path}" for path in EMULATED), *TWO_FILES],
    "unit": [TESTS / "unit", *TWO_FILES],
    "others": [
        *sorted(path for path in TESTS.iterdir() if path.is_dir() and path.name not in LANES_OF_THEIR_OWN),
        *EMULATED,
    ],
}


def main(*options: str) -> int:
    """Run all lanes, the first with its output as it comes, then what runs alone.

    Returns 0 where all passed, else the worst exit code.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory() as folder:
        logs = {name: Path(folder, name) for name in LANES}
        started = {name: start(name, options, logs[name]) for name in LANES}
        try:
            codes = [process.wait() for process in started.values()]
        finally:
            for process in started.values():
                process.terminate()
                process.wait()
        for name in list(LANES)[1:]:
            sys.stdout.write(f"\n{name}\n{logs[name].read_text()}")
        sys.stdout.write("\nalone\n")
        sys.stdout.flush()
        codes.append(subprocess.call(command("alone and not slow", files_marked_alone(), options), cwd=TESTS.parent))
    return max(code if code >= 0 else 128 - code for code in codes)


def files_marked_alone() -> list[Path]:
    """Return the files of tests in which the mark stands: reading them is quicker than to collect all tests again."""
    return sorted(path for path in TESTS.rglob("test_*.py") if "pytest.mark.alone" in path.read_text())


def command(marks: str, where: Sequence[object], options: Sequence[str]) -> list[str]:
    """Return the command that runs the tests with some marks."""
    return [sys.executable, "-m", "pytest", "-m", marks, *map(str, where), *options]


def start(name: str, options: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start the tests of a lane; all but the first write to a file."""
    tests = command("not slow and not alone", LANES[name], options)
    if name == next(iter(LANES)):
        return subprocess.Popen(tests, cwd=TESTS.parent)
    with log.open("wb") as file:
        return subprocess.Popen(tests, cwd=TESTS.parent, stdout=file, stderr=subprocess.STDOUT)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
