"""Runs of ucx_perftest: bandwidth of its *_bw and get tests, times of its latency tests; its MB/s are MiB/s.

Of a run the line of the end counts (Final:, in old versions the last); the lines before it are of one thread each. The
message size is in the command (-s) or in the box that the server prints; a file of tests prints each one's name.
"""

import re
from dataclasses import dataclass, field

from ...errors import InputError
from .columns import half_digit
from .prefixes import clean_lines
from .tables import BETWEEN_TWO, Rate, ReadTable, message

_COMMAND = re.compile(r"\bucx_perftest\s+(?P<words>.*)")
_TEST = re.compile(r"(?:^|\s)-t\s*(\w+)")
_SIZE = re.compile(r"(?:^|\s)-s\s*(\d{1,15}(?:,\d{1,15})*)(?![\w(])")
_USUAL_BYTES = 8  # of a message without -s
_BOX = re.compile(r"^\s*\|\s*(?P<key>Test|Message size):\s+(?P<value>\S.*?)\s*\|\s*$")
_NAME = re.compile(r"^\s*={3,} (?P<test>\w+) ={3,}\s*$")  # of a test out of a file of tests (-b)
_HEAD = re.compile(r"(?P<time>overhead|latency) \(usec\)\s*\|\s*bandwidth \(MB/s\)")
_FIGURE = r"\s+([\d,]+\.\d+)"
_ROW = re.compile(
    r"^\s*(?P<stage>(?:[\w.-]+:)?Final:|\[thread (?P<thread>\d+)\])?\s*(?P<iterations>[\d,]+)"
    rf"{_FIGURE * 5}\s+(?P<rate>[\d,]+)\s+([\d,]+)\s*$"
)
_MIB = 2.0**20
_SLACK = 0.01


@dataclass
class _Run:
    """The command or the box above a run, and its last line."""

    test: str = ""
    size_bytes: int | None = None
    has_overhead: bool = False  # the head of a bandwidth test, in newer versions
    headed: bool = False
    at: str = ""
    figures: tuple[float, float, float] | None = None  # overall: seconds, MiB/s and messages a second
    half_rate: float = 0.0  # half a unit of the last digit of the rate of messages
    threads: set[str] = field(default_factory=set)  # whose lines stand above that of the end

    @property
    def is_latency(self) -> bool:
        """Whether a message goes to and fro, by the name of the test, else by the head."""
        if "lat" in self.test.lower():
            return True
        return not self.test and not self.has_overhead


def read_ucx(text: str, where: str) -> list[ReadTable]:
    """Return a table for each run; InputError where size, bandwidth and rate of messages contradict each other."""
    if _HEAD.search(text) is None:
        return []
    tables: list[ReadTable] = []
    run = _Run()
    for number, line in clean_lines(text):
        if command := _COMMAND.search(line):
            tables += _closed(run)
            test, size = _TEST.search(command["words"]), _SIZE.search(command["words"])
            run = _Run(test=test[1] if test else "", size_bytes=sum(map(int, size[1].split(","))) if size else None)
            if size is None and not re.search(r"(?:^|\s)-s", command["words"]):
                run.size_bytes = _USUAL_BYTES
        elif box := _BOX.match(line):
            if run.figures:
                tables += _closed(run)
                run = _Run()
            if box["key"] == "Test":
                run.test = box["value"]
            elif box["value"].isdecimal():
                run.size_bytes = int(box["value"])
        elif name := _NAME.match(line):
            tables += _closed(run)
            run = _Run(test=name["test"])
        elif head := _HEAD.search(line):
            if run.figures:
                tables += _closed(run)
                run = _Run()
            run.headed, run.has_overhead = True, head["time"] == "overhead"
        elif run.headed and (row := _ROW.match(line)):
            _take(run, row, f"{where}:{number}")
    tables += _closed(run)
    return tables


def _take(run: _Run, row: re.Match[str], at: str) -> None:
    time_us, rate, messages = (float(row[i].replace(",", "")) for i in (6, 8, 10))
    run.at, run.figures, run.half_rate = at, (time_us * 1e-6, rate * _MIB, messages), half_digit(row[10])
    run.threads = run.threads | {row["thread"]} if row["thread"] else set()


def _closed(run: _Run) -> list[ReadTable]:
    """Return the table of a run that has a line."""
    if run.figures is None:
        return []
    time_s, rate, messages = run.figures
    size = run.size_bytes
    if time_s <= 0 or rate <= 0:
        raise InputError(f"{run.at}: expected a time and a bandwidth above 0")
    if size and messages and abs(rate / (size * messages) - 1) > _SLACK + run.half_rate / messages:
        raise InputError(
            f"{run.at}: {rate / _MIB:g} MB/s are not {messages:g} messages a second of {size} B: another size or a "
            "line of another run"
        )
    what = run.test or "unnamed test"
    if len(run.threads) > 1:
        open_end = f"lines of {len(run.threads)} threads without a Final: below them: what all do together is not known"
        return [ReadTable(name=what, tool="ucx_perftest", notes=(open_end,), unjudged="no rate of the whole run")]
    if not run.is_latency:
        pair = Rate(what=what, rate_bytes_per_s=rate, bytes=size)
        return [ReadTable(name=what, tool="ucx_perftest", rates=(pair,))]
    if size is None:
        raise InputError(
            f"{run.at}: a latency test of which the size is not known: keep the command (ucx_perftest ...)"
        )
    return [ReadTable(name=what, tool="ucx_perftest", rows=(message("ucx", size, time_s),), unjudged=BETWEEN_TWO)]
