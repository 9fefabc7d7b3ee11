"""Tables of collective times: the columns of nccl-tests, printed, and as CSV or JSON; `reading` reads them back."""

import csv
import io
from collections.abc import Iterable, Sequence

import msgspec

from ..collectives.pricing.figures import bus_factor
from ..quantities import Bytes, Count, Number, PerSecond, Seconds
from ..workload.elements import SINGLE_BYTES

DTYPES = {"float": "float32", "bfloat16": "bfloat16", "half": "float16", "int32": "int32"}  # ours: torch's
# whose bus bandwidth follows from time and ranks; that of others is known where a table states it
COUNTED = frozenset(
    ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "broadcast", "reduce", "sendrecv")
)

WIDTHS = (13, 14, 10, 8, 12, 9, 9, 8, 12, 12)  # characters of the printed columns


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One size of one collective: seconds of a call, and how far they were spread; None where a table does not say."""

    collective: str | None
    backend: str
    ranks: Count | None
    bytes: Bytes
    time_s: Seconds
    low_s: Seconds | None = None  # 10th percentile
    high_s: Seconds | None = None  # 90th percentile
    fastest_s: Seconds | None = None  # the call that took least
    dtype: str = "float"
    element_bytes: Count = SINGLE_BYTES
    redop: str = "none"
    wrong: Number | None = None  # elements that were not what they must be; None where nothing was checked
    stated_busbw_bytes_per_s: PerSecond | None = None  # by the tool that printed the table

    @property
    def algbw_bytes_per_s(self) -> float:
        """Payload over time."""
        return self.bytes / self.time_s

    @property
    def known_busbw_bytes_per_s(self) -> float | None:
        """Algorithm bandwidth times the share that each rank's link must carry, as nccl-tests define it.

        What the table states where collective or ranks are not known, None where it states nothing either.
        """
        if self.collective in COUNTED and self.ranks is not None:
            return self.algbw_bytes_per_s * bus_factor(self.collective, self.ranks)
        return self.stated_busbw_bytes_per_s

    @property
    def busbw_bytes_per_s(self) -> float:
        """The bus bandwidth; 0 if it is not known: such a row is never the best."""
        return self.known_busbw_bytes_per_s or 0.0


def row_form(row: Row) -> dict[str, object]:
    """Return the object that `bench --json` prints for a size."""
    return {
        "collective": row.collective,
        "backend": row.backend,
        "ranks": row.ranks,
        "bytes": row.bytes,
        "time_us": row.time_s * 1e6,
        "algbw_GBps": row.algbw_bytes_per_s / 1e9,
        "busbw_GBps": None if row.known_busbw_bytes_per_s is None else row.known_busbw_bytes_per_s / 1e9,
        "time_us_p10": None if row.low_s is None else row.low_s * 1e6,
        "time_us_p90": None if row.high_s is None else row.high_s * 1e6,
        "dtype": row.dtype,
        "redop": row.redop,
        "wrong": row.wrong,
    }


def print_rows(rows: Sequence[Row]) -> str:
    """Return the table as nccl-tests print it: times are medians, the last columns their 10th and 90th percentile."""
    titles = [("size", "count", "type", "redop", "time", "algbw", "busbw", "#wrong", "p10", "p90")]
    titles += [("(B)", "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)")]
    lines = ["#" + _columns(title) for title in titles]
    for row in rows:
        busbw = "N/A" if row.known_busbw_bytes_per_s is None else f"{row.busbw_bytes_per_s / 1e9:.3f}"
        spread = ["-" if t is None else format(t * 1e6, ".2f") for t in (row.low_s, row.high_s)]
        wrong = "N/A" if row.wrong is None else f"{row.wrong:.6g}"  # as nccl-tests print millions of them
        count, time = f"{row.bytes // row.element_bytes}", f"{row.time_s * 1e6:.2f}"
        algbw = f"{row.algbw_bytes_per_s / 1e9:.3f}"
        cells = (f"{row.bytes}", count, row.dtype, row.redop, time, algbw, busbw, wrong, *spread)
        lines.append(" " + _columns(cells))
    return "\n".join(lines)


def _columns(cells: Sequence[str]) -> str:
    """Return cells below one another; one that is wider than its column still stands apart from the cell before it."""
    return "".join(
        f"{cell:>{width}}" if len(cell) < width else f" {cell}" for cell, width in zip(cells, WIDTHS, strict=True)
    )


def csv_text(rows: Iterable[Row]) -> str:
    """Return the rows as CSV with a header."""
    found = [row_form(row) for row in rows]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(found[0]) if found else ["collective"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return out.getvalue()
