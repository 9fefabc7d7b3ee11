"""Lines of DeepEP's tests, and of those made after them for other accelerators: dispatch and combine by kind of link.

Of a tuning run the best configuration counts, as its last line says it. The rates over the network and inside a node
are of one transfer, each with its own bytes, and stand in tables of their own.
"""

import re
from collections.abc import Iterator, Sequence

from .prefixes import clean_lines
from .tables import Rate, ReadTable

_LINE = re.compile(r"\btuning\]|^\s*\[rank (?P<rank>\d{1,6})\]|^\s*(?:dispatch|combine)\b.*GB/s \(", re.I)
_PHASE = re.compile(r"\b(?P<best>Best )?(?P<phase>dispatch(?: \+ combine)?|combine)\b(?P<kind> \([A-Z]+\d+\))?", re.I)
_RATE = re.compile(r"(?<![\d.])(?P<rate>\d{1,9}(?:\.\d+)?) GB/s(?: \((?P<link>NVL|RDMA|HCCS|XGMI)\)|(?=, avg_t=))")
_LINKS = {"NVL": "NVLink", "XGMI": "xGMI", None: "low latency"}
_NETWORK, _INSIDE = "RDMA", ("NVLink", "xGMI", "HCCS")
_GPUS_OF_A_HOST = 8  # that its kernels between hosts expect, all of which send at once (NUM_MAX_NVL_PEERS)
_FOLLOWS = "bytes of the same transfers as over the network, which these links wait for: nothing of them follows"
_UNNAMED = "dispatch or combine, tuning"  # the text ends before the line that says which it was


def read_deepep(text: str, where: str) -> list[ReadTable]:
    """Return a table for each kind of link; a text without phases has the largest rate of its tuning lines."""
    found = [one for _, line in clean_lines(text) for one in _rates(line)] if "GB/s" in text else []
    named = [(link, rate) for link, rate in found if rate.what != _UNNAMED]
    if not named:
        most: dict[str, Rate] = {}
        for link, rate in found:
            most[link] = max(rate, most.get(link, rate), key=lambda one: one.rate_bytes_per_s)
        named = list(most.items())
    tables: dict[str, list[Rate]] = {}
    for link, rate in named:
        tables.setdefault(link, []).append(rate)
    sharing = _GPUS_OF_A_HOST if "HCCS" not in tables else None
    return [_table(link, rates, sharing, follows=_NETWORK in tables) for link, rates in tables.items()]


def _table(link: str, rates: Sequence[Rate], sharing: int | None, *, follows: bool) -> ReadTable:
    """Return the table of a kind of link; of a transfer over both the links inside a node wait for the network."""
    return ReadTable(
        name=f"DeepEP, {link}",
        tool="DeepEP",
        rates=tuple(rates),
        unjudged=_FOLLOWS if follows and link in _INSIDE else "",
        sharing=sharing if link == _NETWORK else None,
    )


def _rates(line: str) -> Iterator[tuple[str, Rate]]:
    """Yield each rate of a line with the kind of its link."""
    kind = _LINE.search(line)
    if kind is None:
        return
    rank = f", rank {kind['rank']}" if kind["rank"] else ""
    phases = [*_PHASE.finditer(line)]
    ends = [*(phase.start() for phase in phases[1:]), len(line)]
    for phase, end in zip(phases, ends, strict=False):
        what = f"{phase['phase'].lower()}{phase['kind'] or ''}{rank}"
        yield from _of_segment(line[phase.end() : end], what)
    if not phases:
        yield from _of_segment(line, _UNNAMED)


def _of_segment(words: str, what: str) -> Iterator[tuple[str, Rate]]:
    for found in _RATE.finditer(words):
        rate = Rate(what=what, rate_bytes_per_s=float(found["rate"]) * 1e9)
        yield _LINKS.get(found["link"], found["link"]), rate
