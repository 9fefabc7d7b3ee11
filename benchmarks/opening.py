"""How long a person waits: `meshwright --help` beside `torchrun --help`, and the page of a long run until it is drawn.

The page is that of 100,000 steps on 64 ranks; it is written by `report` and opened in headless Chromium, where there is
one. Targets: 0.3 s for the help, 3 s for the page.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.result import Result, alternating_medians

STEPS, RANKS = 100_000, 64
HELPS = {
    "meshwright --help": ["-m", "meshwright", "--help"],
    "meshwright bench --help": ["-m", "meshwright", "bench", "--help"],
    "meshwright train --help": ["-m", "meshwright", "train", "--help"],
    "torchrun --help": ["-m", "torch.distributed.run", "--help"],
    "python -c pass": ["-c", "pass"],
}


def run(arguments: list[str]) -> Result:
    """Time the helps in turns, then the page."""
    rounds = int(arguments[0]) if arguments else 9
    medians, samples = alternating_medians(
        {name: lambda words=words: _seconds([sys.executable, *words]) for name, words in HELPS.items()}, rounds
    )
    rows: list[dict[str, Any]] = [
        {"what": name, "seconds": medians[name], "lowest": min(samples[name]), "highest": max(samples[name])}
        for name in HELPS
    ]
    with tempfile.TemporaryDirectory() as folder:
        rows += _page(Path(folder))
    notes = [f"{rounds} rounds in turns, each a process of its own", f"page: {STEPS:,} steps, {RANKS} ranks"]
    return Result("how long a person waits", rows, notes)


def _seconds(words: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(words, capture_output=True, check=True)
    return time.perf_counter() - begun


def _page(folder: Path) -> list[dict[str, Any]]:
    """Return the seconds to write the page and to open it, all its figures drawn."""
    from meshwright.report.pages.run import report
    from testkit.chromium import Browser, missing
    from testkit.runs import fake_run

    run = fake_run(folder / "run", steps=STEPS, ranks=RANKS)
    begun = time.perf_counter()
    report(run)
    rows = [_row(f"write the page ({run.report.stat().st_size / 2**20:.1f} MiB)", [time.perf_counter() - begun])]
    if missing():
        return rows
    opened, drawn = [], []
    with Browser() as browser:
        browser.open(run.report)  # the first page starts the renderer
        for _ in range(5):
            begun = time.perf_counter()
            browser.driver.get(run.report.as_uri())
            browser.wait("document.querySelector('.plot .main-svg')")
            opened.append(time.perf_counter() - begun)
            browser.draw_all()
            drawn.append(time.perf_counter() - begun)
    return [*rows, _row("open the page to its first figure", opened), _row("open it and draw every figure", drawn)]


def _row(what: str, times: list[float]) -> dict[str, Any]:
    return {"what": what, "seconds": sorted(times)[len(times) // 2], "lowest": min(times), "highest": max(times)}
