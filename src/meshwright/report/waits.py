"""Communication without its waiting: bytes move only once every rank that takes part has come."""

from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from ..timeline import PEER, Span
from .paths import Paths


def without_waits(spans: Sequence[Span], paths: Paths) -> list[Span]:
    """Return the spans of one step, communication from the moment at which the last of its ranks began it.

    The n-th call of a rank meets the n-th of the others with the same name, detail and ranks; a message its receive. A
    span that had ended by then (a send that is done when the bytes are handed over) and one whose ranks are not known
    stay as they are.
    """
    calls: dict[tuple[object, ...], int] = defaultdict(int)
    keys: list[tuple[object, ...] | None] = []
    last: dict[tuple[object, ...], float] = {}
    ordered = sorted(spans, key=lambda span: span.start_s)
    for span in ordered:
        key = _meeting(span, paths)
        if key is not None:
            calls[span.rank, *key] += 1
            key = (*key, calls[span.rank, *key])
            last[key] = span.start_s  # ascending: the latest so far
        keys.append(key)
    found = []
    for span, key in zip(ordered, keys, strict=True):
        begun = span.start_s if key is None else last[key]
        found.append(replace(span, start_s=begun) if span.start_s < begun < span.end_s else span)
    return found


def _meeting(span: Span, paths: Paths) -> tuple[object, ...] | None:
    """Return what the spans of one communication have in common, None where that is not known."""
    if span.lane != "comm" or not span.bytes:
        return None
    if peer := PEER.fullmatch(span.detail):
        other = int(peer["peer"])
        ends = (span.rank, other) if peer["way"] == "to" else (other, span.rank)
        return (peer["what"], *ends)
    joined = paths.joined(span)
    # groups of one axis share no rank, so that the lowest, which comes first, names its group
    return (span.name, span.detail, next(iter(joined.values()))[0]) if joined else None
