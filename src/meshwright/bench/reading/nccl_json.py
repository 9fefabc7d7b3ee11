"""The JSON of nccl-tests (-J, since 2.17), with the times of each process where they were taken."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ...errors import InputError
from ...files import sound
from .columns import Parsed
from .identify import Named, TableIdentity, identify, named_in
from .json_objects import json_objects
from .nccl_text import table_row
from .tables import ReadTable, unrepeatable

SLOWER = 1.2  # a process whose median call takes this multiple of the median process's is named


def read_nccl_json(text: str, where: str) -> list[ReadTable] | None:
    """Return the tables of such a text, None where it holds none."""
    found = [data for data in json_objects(text) if "results" in data and "config" in data]
    tables = [table for data in found for table in _read(data, where)]
    if len(found) < 2:
        return tables or None
    return [replace(table, name=f"table {number}") for number, table in enumerate(tables, start=1)]


def _read(data: dict[str, Any], where: str) -> list[ReadTable]:
    sound(data, where=where)
    try:
        return _tables(data, where)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{where}: JSON of nccl-tests: expected config, devices and results ({error})") from None


def _tables(data: Mapping[str, Any], where: str) -> list[ReadTable]:
    config = data["config"]
    devices = data.get("devices") or config.get("devices") or []
    each = int(config.get("nthreads", 1)) * int(config.get("ngpus", 1))
    listed = each * len(devices) or None  # one entry a process, which has `each` GPUs
    named = named_in(" ".join(str(word) for word in data.get("args", ())))
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for result in data["results"]:
        groups.setdefault(tuple(result.get(k) for k in ("experiment_name", "type", "redop", "root")), []).append(result)
    bounds = data.get("out_of_bounds") or {}
    wrong = int(bounds.get("count", bounds.get("out_of_bounds", 0)) or 0)
    found = []
    for number, results in enumerate(groups.values(), start=1):
        rows = [_row(result, i, f"{where}: result {i}") for i, result in enumerate(results, start=1)]
        by_name = named_in(f"{results[0].get('experiment_name', '')}_perf")
        known = identify(rows, named or (Named(by_name.collective, True) if by_name else None), listed, None, where)
        if known.ranks == 1:
            known = TableIdentity(collective=known.collective, ranks=1)
        found.append(
            ReadTable(
                name="table" if len(groups) == 1 else f"table {number}",
                tool="nccl-tests",
                collective=known.collective,
                ranks=known.ranks,
                ranks_range=known.ranks_range,
                candidates=known.candidates,
                rows=tuple(table_row(row, known, "nccl") for row in rows if row.bytes),
                hosts=tuple(str(d.get("hostname", "")) for d in devices for _ in range(each)),
                devices=tuple(str(d.get("device_info", "")) for d in devices for _ in range(each)),
                wrong=max(wrong, max((row.wrong or 0 for row in rows), default=0)),
                alone=1 if known.ranks == 1 else 0,
                slow=_slow(results, devices),
                failed=unrepeatable(row.different_bits for row in rows),
                notes=known.notes,
            )
        )
    return found


def _row(result: Mapping[str, Any], number: int, at: str) -> Parsed:
    sets = [one for one in (result.get("out_of_place"), result.get("in_place")) if one]
    if not sets:
        raise InputError(f"{at}: expected out_of_place or in_place")
    one = sets[0]
    if "time" not in one and "cpu_time" in one:
        raise InputError(f"{at}: cpu_time is what the host spends on launching; expected a run without -C 1")
    wrong = [each.get("nwrong") for each in sets]
    size, time = int(result["size"]), float(one["time"])
    if time <= 0:
        raise InputError(f"{at}: expected a time above 0")
    algbw = float(one["alg_bw"])
    said = size / time / 1e3
    if size and abs(algbw / said - 1) > 0.01 and abs(algbw - said) > 0.01:
        raise InputError(
            f"{at}: alg_bw {algbw:g} GB/s x time is not the size: {size} B in {time:g} us are {said:.4g} GB/s"
        )
    return Parsed(
        line=number, lead="", bytes=size, count=int(result["count"]), type=str(result["type"]),
        redop=str(result.get("redop", "none")), root=int(str(result.get("root", -1)).strip()), time_s=time * 1e-6,
        algbw=f"{algbw:.6f}" if algbw != round(algbw, 2) else f"{algbw:.2f}", busbw=f"{float(one['bus_bw']):.2f}",
        wrong=None if all(w is None for w in wrong) else int(max(w for w in wrong if w is not None)),
        in_place_checked=wrong[1] is not None if len(wrong) == 2 else None,
        different_bits=max((int(b["different_bits"]) for each in sets if (b := each.get("bitwise"))), default=None),
    )  # fmt: skip


def _slow(results: Sequence[Mapping[str, Any]], devices: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the processes whose calls take clearly longer than those of most, over all sizes."""
    ratios: dict[int, list[float]] = {}
    for result in results:
        times = (result.get("out_of_place_per_iter") or {}).get("per_process_max_times_us")
        if not times:
            continue
        medians = [statistics.median(process) for process in times]
        middle = statistics.median(medians)
        for process, median in enumerate(medians):
            ratios.setdefault(process, []).append(median / middle)
    words = []
    for process, found in ratios.items():
        ratio = statistics.median(found)
        if ratio >= SLOWER:
            host = (
                f" on {devices[process]['hostname']}"
                if process < len(devices) and "hostname" in devices[process]
                else ""
            )
            words.append(f"process {process}{host} takes {ratio:.1f} times as long as most")
    return tuple(words)
