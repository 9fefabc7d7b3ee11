"""The published tables of collective times that the fits are judged by."""

import json
from pathlib import Path
from typing import Any

from benchmarks.result import RESULTS
from meshwright.bench.reading import load_tables
from meshwright.bench.table import Row

# reference notes, section 4: one 8 x A100 node (size in bytes: microseconds)
A100 = {
    **{32768: 43.83, 65536: 46.80, 131072: 51.76, 262144: 61.38, 524288: 80.40, 1048576: 101.9, 2097152: 101.4},
    **{4194304: 101.5, 8388608: 133.5, 16777216: 276.6, 33554432: 424.0, 67108864: 684.6, 134217728: 1327.6},
    **{268435456: 2420.6, 536870912: 4218.4, 1073741824: 8203.9, 2147483648: 16240, 4294967296: 32136},
    **{8589934592: 64074, 17179869184: 127997},
}
SWEEPS = ("h100x8_dgxc", "p4de_2n", "p5_1n", "mle_h200x8", "mle_4n_unknown")


def collective_tables() -> Path:
    """Return the CSV of published tables."""
    return Path(__file__).parents[1] / "tests" / "external" / "published" / "collective_tables.csv"


def rows_of(times_us: dict[int, float], ranks: int = 8) -> list[Row]:
    """Return all-reduces of NCCL of these bytes and microseconds."""
    return [
        Row(collective="all_reduce", backend="nccl", ranks=ranks, bytes=size, time_s=us / 1e6)
        for size, us in times_us.items()
    ]


def sweeps() -> dict[str, list[Row]]:
    """Return every published table that has ten sizes or more, by name."""
    found = load_tables(str(collective_tables()))
    return {**{name: found[name] for name in SWEEPS}, "reference, 8 x A100": rows_of(A100)}


def told(name: str) -> dict[str, Any]:
    """Return what docs/bench.md says of the fit of a table, in percent (`python -m benchmarks fits`)."""
    rows = json.loads((RESULTS / "fits.json").read_text())["rows"]
    return next(row for row in rows if (row["part"], row["table"]) == ("fits", name))
