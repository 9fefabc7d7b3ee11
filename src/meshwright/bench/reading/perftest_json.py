"""The JSON that perftest writes with --out_json: as it is, without quotation marks as in 2023, or with commas too many.

It does not say the unit of a bandwidth: Gb/s with --report_gbits, else MiB/s. The rate of messages beside it does, and
where there is none (--output=bandwidth) the figure is refused.
"""

import re
from collections.abc import Mapping

from ...errors import InputError
from .columns import half_digit, is_plain
from .perftest import BYTES_PER_S, Found, Tested, table_of_test
from .tables import Rate, ReadTable, message

_BLOCK = re.compile(r"\"?\b(test_info|results(?:_local|_remote)?)\"?\s*:\s*\{([^{}]*)\}")
_ENTRY = re.compile(r"\"?\b([A-Za-z][\w.]*)\"?\s*:\s*\"?([^\",\n}]*)")
_TEST = re.compile(
    r"(?P<what>RDMA_[A-Za-z]+|Send|Atomic)(?P<both>_Bidirectional)?(?:_\w+)??_(?P<kind>BW|Latency)(?:_\w+)?$"
)
_TIMES = ("t_typical", "t_avg")
_SLACK = 0.02


def read_perftest_json(text: str, where: str) -> list[ReadTable]:
    """Return a table for each report of a text; InputError for one whose unit nothing tells."""
    tables: list[ReadTable] = []
    test: Tested | None = None
    for name, body in _BLOCK.findall(text) if "test_info" in text else ():
        entries = {key: value.strip() for key, value in _ENTRY.findall(body)}
        if name == "test_info":
            title = _TEST.match(entries.get("test", ""))
            device, both_ports = entries.get("Device", ""), entries.get("Dual_port") == "ON"
            test = Tested(title["what"], title["both"] is not None, device, both_ports) if title else None
        elif test is not None:
            its = test if name == "results" else test._replace(both_ways=False)
            found = Found()
            _take(entries, its, found, f"{where}: {name} of {test.what}{test.device and ' on ' + test.device}")
            side = name.removeprefix("results").strip("_")
            tables.append(table_of_test(its, found, tables, side))
    return tables


def _take(entries: Mapping[str, str], test: Tested, found: Found, at: str) -> None:
    figures = {key: float(value) for key, value in entries.items() if is_plain(value)}
    size = int(figures.get("MsgSize", 0))
    time = next((figures[key] for key in _TIMES if key in figures), None)
    if time is not None:
        if not size or time <= 0:
            raise InputError(f"{at}: expected MsgSize and a time above 0")
        found.messages.append(message("verbs", size, time * 1e-6))
        return
    average = entries.get("BW_average", entries.get("bw_avg", ""))
    if not is_plain(average):
        raise InputError(f"{at}: expected MsgSize with BW_average or t_avg")
    rate = _bytes_per_s(average, size, entries.get("MsgRate", ""), at)
    found.rates.append(Rate(what=f"{test.what} bandwidth", rate_bytes_per_s=rate, bytes=size or None))


def _bytes_per_s(average: str, size: int, messages: str, at: str) -> float:
    """Return a bandwidth by the unit in which it is what the messages carry."""
    if float(average) == 0:
        return 0.0
    millions = float(messages) if is_plain(messages) else 0.0
    if not size or millions <= 0:
        raise InputError(
            f"{at}: a bandwidth of {average}, and nothing says whether in Gb/s (--report_gbits) or MiB/s: expected "
            "MsgSize and MsgRate beside it, or what the tool printed"
        )
    carried = millions * 1e6 * size
    slack = _SLACK + half_digit(messages) / millions
    for unit in ("Gb", "MiB"):
        rate = float(average) * BYTES_PER_S[unit]
        if abs(rate / carried - 1) <= slack:
            return rate
    raise InputError(
        f"{at}: BW_average {average} is neither in Gb/s nor in MiB/s what {messages} million messages of {size} B carry"
    )
