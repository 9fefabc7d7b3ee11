"""The data of the reports of two stored runs: what a change of the page's code alone must not move.

    python -m tests.unit.report.goldens.pages    # writes both files anew; say in the changelog what moved, and why

Figures are kept to nine digits: libraries add in other orders elsewhere.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from meshwright.files import write_struct
from meshwright.report.pages.run import run_page
from meshwright.train.run.run_folder import FirstStart
from testkit.runs import fake_run

HERE = Path(__file__).parent
RUNS: dict[str, dict[str, Any]] = {
    "two-hosts": {"steps": 12, "ranks": 4, "hosts": 2, "seed": 1},
    "one-host": {"steps": 8, "ranks": 2, "hosts": 1, "seed": 2, "hostile": "<b>x</b>", "slow_rank": 0},
}


def page_data(name: str, folder: Path) -> Any:
    """Return what report.json of a run holds; `folder` is empty."""
    run = fake_run(folder / name, **RUNS[name])
    write_struct(run.path / "start.json", FirstStart(0.0, ("meshwright", "train")))
    page = run_page(run)[1]
    return _rounded(json.loads(msgspec.json.encode(page)))


def stored(name: str) -> Path:
    """Return the file that holds the data of a run's page."""
    return HERE / f"{name}.json"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return {key: _rounded(item) for key, item in value.items()} if isinstance(value, dict) else value


def main() -> None:
    """Write the files."""
    for name in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            stored(name).write_text(json.dumps(page_data(name, Path(folder))) + "\n")


if __name__ == "__main__":
    main()
