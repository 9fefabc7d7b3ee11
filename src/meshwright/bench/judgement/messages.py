"""The verdict on times of messages between two ends: what the smallest takes, and what the largest makes of a link."""

from collections.abc import Sequence

from ...hardware import Catalogue
from ...units import format_bytes, format_rate, format_time
from ..table import Row
from .named_link import ABOVE_USUAL, BEYOND_RATE, GOOD, IS_USUAL, SLOW_NETWORK, named_link
from .verdict import TableVerdict

FILLING = 2**23  # bytes: from these on a message, alone on its way, hides its start
OF_MESSAGES = "times of messages between two ends, and of no collective"


def judge_messages(catalogue: Catalogue, rows: Sequence[Row], link: str | None) -> TableVerdict:
    """Return whether the fastest message reaches what `--link` lets through; None where all are too short to tell."""
    first, best = min(rows, key=lambda row: row.bytes), max(rows, key=lambda row: row.algbw_bytes_per_s)
    rate, longest = best.algbw_bytes_per_s, max(row.bytes for row in rows)
    known = named_link(catalogue, link) if link is not None else None
    expected = known.attainable_bytes_per_s if known is not None else None
    begins = f"{OF_MESSAGES}: {format_time(first.time_s)} for {format_bytes(first.bytes)}"
    if longest < FILLING and (expected is None or rate < GOOD * expected):
        little = f"{format_bytes(longest)} is too little to fill a link: measure to {format_bytes(FILLING)}"
        return TableVerdict(ok=None, reason=f"{begins}; {little}", expected_bytes_per_s=expected)
    if known is None or expected is None:
        reason = f"{begins}, {format_rate(rate)} at {format_bytes(best.bytes)}; --link says what it is held against"
        return TableVerdict(ok=None, reason=reason)
    words = f"{begins}, {format_rate(rate)} of the {format_rate(expected)} that {known.title} lets through"
    if rate > BEYOND_RATE * known.rate_bytes_per_s:
        return TableVerdict(
            ok=None, reason=f"{words}: more than it carries, so it ran over others", expected_bytes_per_s=expected
        )
    ok = rate >= GOOD * expected
    words += f": {IS_USUAL}" if rate > ABOVE_USUAL * expected else "" if ok else f": {SLOW_NETWORK}"
    return TableVerdict(ok=ok, reason=words, expected_bytes_per_s=expected)
