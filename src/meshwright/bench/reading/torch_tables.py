"""Tables of benchmarks that call torch.distributed: PARAM's, IBM's all-reduce after Megatron, all_reduce_bench.py.

All print a bus bandwidth as nccl-tests define it; ranks follow from it, or from the command above the table.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ...errors import InputError
from ...units import counted
from .columns import WIDTHS, Parsed
from .identify import NAMES, Named, identify, named_in
from .nccl_text import table_row
from .tables import ReadTable

_PARAM = re.compile(r"\bCOMMS-RES(?:-(?P<what>[a-z_]+))?(?:-(?P<type>[a-z]\w*))?\s+(?P<rest>\S.*)$")
_RATE = re.compile(r"\d+\.?\d*(e[+-]?\d{1,2})?|N/A|-", re.I)
# old versions write num-elements, and set "Latency(us):" apart from the first of its columns
_PARAM_COLUMNS = re.compile(r"(?:total-)?size \(B\)\s+(?:nElementsPerRank|num-elements)\s.*\bBusBW\(GB/s\)")
_PARAM_RANKS = re.compile(r"'world_size': (?P<ranks>[1-9]\d{0,5}), 'local_size': (?P<local>[1-9]\d{0,3})\b")
_PARAM_CALLS = {
    "all_gather_base": "all_gather",
    "reduce_scatter_base": "reduce_scatter",
    "all_to_all_single": "all_to_all",
}
_IBM = re.compile(r"size\(MB\)\s+tavg\(usec\)\s+tmin\(usec\)\s+tmax\(usec\)\s+avgbw\(GB/sec\)")
# "The average bandwidth of all_reduce with a 4.0GB payload (5 trials, 16 ranks):", then algbw and busbw, a line each
_PAYLOAD = re.compile(r"average bandwidth of (\w+) with a (\d+\.?\d*) ?GB payload \(.*?\b([1-9]\d{0,5}) ranks\)")
_OF_PAYLOAD = re.compile(r"^\s*(algbw|busbw): (\d+\.?\d*) GBps\b")
_RAISED = 1.35  # times the fastest call: a mean that others spoil
_LATE = 5  # times the fastest call
_NUMBERS = re.compile(r"^\s*\d+(?:\.\d*)?(?:\s+\d+(?:\.\d*)?){3,}\s*$")


def read_param(text: str, where: str) -> list[ReadTable]:
    """Return the tables of PARAM, one for each collective and type; the time is the median over calls."""
    columns: list[str] = []
    found: dict[tuple[str, str], list[Parsed]] = {}
    for number, line in enumerate(text.splitlines(), start=1) if "COMMS-RES" in text else ():
        match = _PARAM.search(line)
        if match is None:
            continue
        if _PARAM_COLUMNS.match(match["rest"]):
            columns = re.sub(r"\(us\):\s+", "(us):", match["rest"].replace("size (B)", "size")).split()
        elif columns and len(words := match["rest"].split()) == len(columns):
            key = (match["what"] or "", match["type"] or "")
            values = dict(zip(columns, words, strict=True))
            row = _param_row(values, f"{where}:{number}", number)
            found.setdefault(key, []).append(replace(row, type=key[1]) if key[1] in WIDTHS else row)
    world = _PARAM_RANKS.search(text)
    tables = []
    for (what, kind), rows in found.items():
        collective = _PARAM_CALLS.get(what, NAMES.get(what))
        known = identify(rows, Named(collective, sure=True) if collective else None, None, None, where)
        tables.append(
            ReadTable(
                name="-".join(word for word in (what, kind) if word) or "table", tool="PARAM",
                collective=known.collective, ranks=known.ranks, ranks_range=known.ranks_range,
                candidates=known.candidates, hosts=_param_hosts(world, known.ranks),
                rows=tuple(table_row(row, known, "nccl") for row in rows if row.bytes), notes=known.notes,
            )
        )  # fmt: skip
    return tables


def _param_hosts(world: re.Match[str] | None, ranks: int | None) -> tuple[str, ...]:
    """Return the host of each rank by the environment that PARAM prints, () where a table is of other ranks."""
    if world is None or int(world["ranks"]) != ranks:
        return ()
    return tuple(f"host {rank // int(world['local'])}" for rank in range(ranks))


def _param_row(values: Mapping[str, str], at: str, number: int) -> Parsed:
    try:
        size = int(values.get("size") or values["total-size"])
        time_s = float(values["Latency(us):p50"]) * 1e-6
    except (KeyError, ValueError):
        raise InputError(f"{at}: expected a size in bytes and a median latency in us") from None
    return _parsed(size, time_s, values.get("AlgBW(GB/s)"), values.get("BusBW(GB/s)"), at, number)


def _parsed(size: int, time_s: float, algbw: str | None, busbw: str | None, at: str, number: int) -> Parsed:
    if not 0 < time_s < 1e6:
        raise InputError(f"{at}: expected a time above 0")
    for rate in (algbw, busbw):
        if rate is not None and _RATE.fullmatch(rate) is None:
            raise InputError(f"{at}: {rate}: expected a bandwidth in GB/s")
    return Parsed(
        line=number, lead="", bytes=size, count=0, type="float", redop="sum", root=None, time_s=time_s, algbw=algbw,
        busbw=busbw, wrong=None, in_place_checked=None,
    )  # fmt: skip


def read_ibm(text: str, where: str) -> list[ReadTable]:
    """Return the tables of the all-reduce benchmark; megabytes are a million, bandwidths those of the bus."""
    tables: list[ReadTable] = []
    named: Named | None = None
    ranks: int | None = None
    rows: list[Parsed] | None = None
    spread: list[tuple[float, float]] = []  # the fastest and the slowest call of each row
    for number, line in enumerate([*text.splitlines(), ""], start=1) if _IBM.search(text) else ():
        if rows is not None and _NUMBERS.match(line):
            size, time, *calls, busbw = line.split()[:5]
            size_bytes, time_s = round(float(size) * 1e6), float(time) * 1e-6
            if size_bytes and time_s > 0:
                spread.append((float(calls[0]) * 1e-6, float(calls[-1]) * 1e-6))
                rows.append(
                    _parsed(size_bytes, time_s, f"{size_bytes / time_s / 1e9:.3f}", busbw, f"{where}:{number}", number)
                )
            continue
        if rows:
            tables.append(_ibm_table(rows, spread, named, ranks, where))
        spread = []
        rows = [] if _IBM.search(line) else None
        named, ranks = named_in(line) or named, _torchrun(line) or ranks
    return tables


def _ibm_table(
    rows: Sequence[Parsed], spread: Sequence[tuple[float, float]], named: Named | None, ranks: int | None, where: str
) -> ReadTable:
    exact = rows[len(rows) // 2 :] if len(rows) > 2 else rows  # the sizes of small ones are rounded
    known = identify(
        exact, Named(named.collective, sure=True) if named else Named("all_reduce", sure=True), ranks, None, where
    )
    return ReadTable(
        name="table", tool="pytorch-communication-benchmarks", collective=known.collective, ranks=known.ranks,
        ranks_range=known.ranks_range, notes=(*known.notes, *_late_calls(rows, spread)),
        rows=tuple(
            replace(table_row(row, known, "nccl"), fastest_s=min(fastest, row.time_s) or None)
            for row, (fastest, _) in zip(rows, spread, strict=True)
        ),
    )  # fmt: skip


def _late_calls(rows: Sequence[Parsed], spread: Sequence[tuple[float, float]]) -> tuple[str, ...]:
    """Return that a few late calls raise the mean of a size far above its fastest call, () where none does."""
    late = [
        (slowest, fastest)
        for row, (fastest, slowest) in zip(rows, spread, strict=True)
        if row.time_s > _RAISED * fastest > 0 and slowest > _LATE * fastest
    ]
    if not late:
        return ()
    slowest, fastest = max(late)
    return (
        f"at {counted(len(late), 'size')} a few late calls raise the mean (up to {slowest * 1e6:.0f} us, the fastest "
        f"{fastest * 1e6:.0f}): they waited for a late rank, other work or lost packets",
    )


def _torchrun(line: str) -> int | None:
    """Return the ranks that torchrun starts by a command, None where it does not say."""
    each = re.search(r"--nproc[-_]per[-_]node[ =](\d{1,4})\b", line)
    nodes = re.search(r"--nnodes[ =](\d{1,5})\b", line)
    return int(each[1]) * int(nodes[1] if nodes else 1) if each else None


def read_payloads(text: str, where: str) -> list[ReadTable]:
    """Return the tables of all_reduce_bench.py as long as it printed one payload, of 1e9 bytes a GB, and two rates.

    Payloads of one collective over as many ranks are one table.
    """
    found: dict[tuple[str, int], list[Parsed]] = {}
    payload: re.Match[str] | None = None
    rates: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1) if _PAYLOAD.search(text) else ():
        if match := _PAYLOAD.search(line):
            payload, rates = match, {}
        elif payload and (rate := _OF_PAYLOAD.match(line)):
            rates[rate[1]] = rate[2]
            if len(rates) < 2:
                continue
            size, at = round(float(payload[2]) * 1e9), f"{where}:{number}"
            if not size or not float(rates["algbw"]):
                raise InputError(f"{at}: expected a payload and an algbw above 0")
            time_s = size / (float(rates["algbw"]) * 1e9)
            row = _parsed(size, time_s, rates["algbw"], rates["busbw"], at, number)
            found.setdefault((payload[1], int(payload[3])), []).append(row)
            payload = None
    return [_payload_table(name, ranks, rows, where) for (name, ranks), rows in found.items()]


def _payload_table(name: str, ranks: int, rows: Sequence[Parsed], where: str) -> ReadTable:
    known = identify(rows, Named(NAMES.get(name, name), sure=True), ranks, None, where)
    return ReadTable(
        name="table", tool="all_reduce_bench.py", collective=known.collective, ranks=known.ranks,
        rows=tuple(table_row(row, known, "nccl") for row in rows), notes=known.notes,
    )  # fmt: skip
