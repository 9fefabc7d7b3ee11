"""Hold a refactoring to equal losses: `python -m tests.compare_losses BASE [LAYOUT ...]`, or `make compare-losses`.

Trains a small job under some layouts with the package of the commit BASE, its testkit and its copy of this script, and
with those of this folder, each in processes of its own, and compares the loss of every step bit by bit. Exits with 1
where one differs, with 2 where BASE cannot be trained so.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from meshwright.layout import Layout

ROOT = Path(__file__).parents[1]
SCRIPT = f"tests/{Path(__file__).name}"
LAYOUTS = (
    *("dp=1,mbs=4", "dp=2,mbs=2", "dp=2,mbs=2,zero=1", "dp=2,mbs=2,zero=3,recompute=full", "dp=1,tp=2,sp=1,mbs=4"),
    *("dp=1,cp=2,mbs=4", "dp=1,pp=2,mbs=2,schedule=1f1b"),
)


def main(base: str, *layouts: str) -> int:
    """Print a line a layout; return 0 where all losses are equal, else 1."""
    chosen = layouts or LAYOUTS
    try:
        with checked_out(base) as tree:
            before = losses_of(tree, chosen)
    except subprocess.CalledProcessError:
        sys.stderr.write(f"{base}: has no package with a testkit that trains these layouts\n")
        return 2
    here = losses_of(ROOT, chosen)
    found = differences(before, here)
    for layout in chosen:
        sys.stdout.write(f"{layout:<36} {found[layout] or f'equal: {len(here[layout])} losses'}\n")
    return int(any(found.values()))


def differences(before: dict[str, list[float]], after: dict[str, list[float]]) -> dict[str, str]:
    """Return by layout the first step whose losses differ, "" where none does."""
    found = {}
    for layout, losses in after.items():
        pairs = enumerate(zip(before[layout], losses, strict=False))
        at = next(((step, a, b) for step, (a, b) in pairs if a != b), None)
        found[layout] = f"step {at[0]}: {at[1]!r} before, {at[2]!r} now" if at else ""
        if at is None and len(before[layout]) != len(losses):
            found[layout] = f"{len(before[layout])} steps before, {len(losses)} now"
    return found


@contextlib.contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Give the files of a commit in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "-C", ROOT, "archive", commit, "src", "testkit", SCRIPT], stdout=subprocess.PIPE, check=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(folder)


def losses_of(tree: Path, layouts: Sequence[str]) -> dict[str, list[float]]:
    """Return the losses of each layout, trained by the package in a folder, with the testkit beside it."""
    environment = os.environ | {"PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"}
    done = subprocess.run(
        [sys.executable, tree / SCRIPT, "--print", *layouts],
        env=environment, stdout=subprocess.PIPE, check=True, text=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert Path(found["package"]).is_relative_to(tree), found["package"]
    return dict(found["losses"])


def print_losses(layouts: Sequence[str]) -> None:
    """Train the small job under each layout with the package that this process imports, and print all losses."""
    import meshwright
    from meshwright.bench.ranks.pool import RankPool
    from testkit.train_jobs import losses, run_rank, small_job, write_corpus, write_run

    found = {}
    with tempfile.TemporaryDirectory() as folder:
        job = small_job(write_corpus(Path(folder)))
        for number, text in enumerate(layouts):
            layout = Layout.parse(text)
            run = write_run(Path(folder) / f"run{number}", job, layout)
            with RankPool(layout.world_size) as pool:
                pool.run(run_rank, str(run.path), timeout_s=300)
            found[text] = losses(run)
    json.dump({"package": meshwright.__file__, "losses": found}, sys.stdout)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--print"]:
        print_losses(sys.argv[2:])
    else:
        sys.exit(main(*sys.argv[1:]))
