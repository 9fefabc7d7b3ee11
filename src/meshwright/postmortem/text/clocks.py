"""Clocks in lines of logs, and the times of records that services keep, as one kind of seconds."""

import re
from datetime import UTC, datetime

STAMP = r"\d{4}-\d\d-\d\d[T_ ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_C10D_TIME = re.compile(r"(?:\[|^|\^C)[EWIF](?P<month>\d{1,2}?)(?P<day>\d{2}) (?P<clock>\d\d:\d\d:\d\d(?:\.\d+)?)")
_ISO_TIME = re.compile(r"\d{4}-(?P<month>\d\d)-(?P<day>\d\d)[T_ -](?P<clock>\d\d:\d\d:\d\d(?:[.,]\d+)?)")
_SLASHED_TIME = re.compile(
    r"\b(?P<month>0[1-9]|1[0-2])/(?P<day>\d\d)/\d{4},? (?P<clock>\d\d:\d\d:\d\d)"
)  # logging's in examples
_SYSLOG_TIME = re.compile(
    r"^[ =#*-]{0,8}(?:\[?(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) |\d{4}-)?"
    r"(?P<name>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)(?: +|-)(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d:\d\d)"
)
_CLOCKS = (_C10D_TIME, _ISO_TIME, _SYSLOG_TIME, _SLASHED_TIME)
_HEAD = 160  # characters of a line in which its clock stands
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"
_PARTS = {10: 1, 13: 10**3, 16: 10**6, 19: 10**9}  # of a second, by the number of digits of a count of them since 1970


def time_of(*texts: str) -> float | None:
    """Return the time that the first of the texts to have one shows, in seconds since the start of the year."""
    for text in texts:
        if ":" not in text[:_HEAD]:
            continue
        for pattern in _CLOCKS:
            if match := pattern.search(text[:_HEAD]):
                return _seconds(match)
    return None


def first_time_of(text: str) -> float | None:
    """Return the time that stands first in a line: what a viewer put there, of whatever form."""
    found = [match for pattern in _CLOCKS if (match := pattern.search(text[:_HEAD]))] if ":" in text[:_HEAD] else []
    return _seconds(min(found, key=lambda match: match.start())) if found else None


def _seconds(match: re.Match[str]) -> float:
    parts = match.groupdict()
    month = _MONTHS.index(parts["name"]) // 3 + 1 if parts.get("name") else int(parts["month"])
    hours, minutes, seconds = parts["clock"].replace(",", ".").split(":")
    days = month * 31 + int(parts["day"])
    return ((days * 24 + int(hours)) * 60 + int(minutes)) * 60 + float(seconds)


def stamp_of_count(count: str) -> str:
    """Return seconds, or thousandths and less, since 1970 as a clock of UTC; "" for another number."""
    parts = _PARTS.get(len(count)) if count.isdecimal() and count[0] in "12" else None
    if parts is None:
        return ""
    seconds, rest = divmod(int(count), parts)
    micros = rest * 10**6 // parts
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{micros:06}Z"
