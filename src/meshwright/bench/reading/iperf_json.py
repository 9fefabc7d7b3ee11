"""The JSON of iperf3 (-J, --json-stream): what the receiver saw over the whole run, of all streams together."""

from collections.abc import Iterator, Mapping
from typing import Any

from ...errors import InputError
from ...files import sound
from .json_objects import json_objects
from .streams import SHORTEST_SENT_S, UNHEARD, only_buffered
from .tables import ONE_STREAM, PACED_UDP, Rate, ReadTable, busy_core, kept_to_target, lost_datagrams, shared_thread

_SLACK = 0.01


def read_iperf_json(text: str, where: str) -> list[ReadTable]:
    """Return a table for each run and direction; [] where a text is no such JSON."""
    tables: list[ReadTable] = []
    failed = ""
    for start, end, error in _runs(text):
        sound(start, where=where)
        sound(end, where=where)
        failed = failed or error
        tables += _tables(start, end, where)
    if failed and not tables:
        raise InputError(f"{where}: iperf3 measured nothing: {failed[:200]}")
    return tables


def _runs(text: str) -> Iterator[tuple[dict[str, Any], dict[str, Any], str]]:
    """Yield start, end and error of each run: of one object, or of the events that --json-stream prints."""
    start: dict[str, Any] = {}
    for data in json_objects(text):
        event, of_event = data.get("event"), data.get("data")
        if isinstance(data.get("start"), dict) and isinstance(data.get("end"), dict):
            yield data["start"], data["end"], str(data.get("error") or "")
        elif event == "start" and isinstance(of_event, dict):
            start = of_event
        elif event == "end" and isinstance(of_event, dict):
            yield start, of_event, ""
        elif event == "error":
            yield start, {}, str(of_event)


def _tables(start: Mapping[str, Any], end: Mapping[str, Any], where: str) -> list[ReadTable]:
    test = start.get("test_start")
    test = test if isinstance(test, dict) else {}
    connected = start.get("connected")
    first = connected[0] if isinstance(connected, list) and connected and isinstance(connected[0], dict) else {}
    ends = (str(first.get("local_host") or "here"), str(first.get("remote_host") or "there"))
    is_server = "accepted_connection" in start
    is_turned = is_server != bool(test.get("reverse"))  # then what comes first goes to this end
    what = f"{test.get('protocol') or 'TCP'} streams"
    tables = []
    for suffix in ("", "_bidir_reverse"):
        found = _rate(end, suffix, where)
        if found is not None:
            src, dst = reversed(ends) if is_turned != bool(suffix) else ends
            rate = Rate(what=what, rate_bytes_per_s=found[0], src=src, dst=dst)
            lost = _lost(end, suffix)
            notes = (*((found[1],) if found[1] else ()), *lost)
            tables.append(
                ReadTable(
                    name=f"{src} to {dst}", tool="iperf3", rates=(rate,), notes=notes,
                    bounds=_bounds(test, end, found[0], bool(lost), start.get("version")),
                    may_bound=_may_bound(test, str(start.get("version") or "")) if what.startswith("TCP") else "",
                )
            )  # fmt: skip
    return tables


def _bounds(test: Mapping[str, Any], end: Mapping[str, Any], rate: float, has_lost: bool, version: object) -> str:
    """Return what besides the link bounded a run by what it says, in words."""
    streams, target = test.get("num_streams"), test.get("target_bitrate")  # of each stream, 0 for none
    if (
        isinstance(target, int | float)
        and isinstance(streams, int)
        and (said := kept_to_target(rate, target * streams / 8))
    ):
        return said
    if test.get("protocol") == "UDP" and not has_lost:
        return PACED_UDP
    busy = end.get("cpu_utilization_percent")
    shares = [busy.get(f"{side}_total") for side in ("host", "remote")] if isinstance(busy, dict) else []
    most = max((share for share in shares if isinstance(share, int | float)), default=0.0)
    return busy_core(most, str(version), streams if isinstance(streams, int) else 1)


def _may_bound(test: Mapping[str, Any], version: str) -> str:
    """Return what besides the link may have bounded streams of TCP, in words, "" for nothing."""
    streams = test.get("num_streams")
    return ONE_STREAM if streams == 1 else shared_thread(version, streams) if isinstance(streams, int) else ""


def _rate(end: Mapping[str, Any], suffix: str, where: str) -> tuple[float, str] | None:
    """Return the rate of a direction and what is odd about it; None where the run had no such direction."""
    received, sent, both = (_sum(end, f"{key}{suffix}", where) for key in ("sum_received", "sum_sent", "sum"))
    if received:
        return received, ""
    if both:  # old versions count what was sent by UDP, beside the share that was lost
        lost = end[f"sum{suffix}"].get("lost_percent")
        return both * (1 - lost / 100 if isinstance(lost, int | float) and 0 <= lost <= 100 else 1.0), ""
    if not sent:
        return None
    lasted_s = end[f"sum_sent{suffix}"].get("seconds")
    if isinstance(lasted_s, int | float) and lasted_s < SHORTEST_SENT_S:
        raise only_buffered(where, lasted_s)
    return sent, UNHEARD


def _lost(end: Mapping[str, Any], suffix: str) -> tuple[str, ...]:
    """Return the note on datagrams that were lost, as the receiver counted them where it did."""
    for key in (f"sum_received{suffix}", f"sum{suffix}"):
        found = end.get(key)
        lost, sent = (found.get(name) for name in ("lost_packets", "packets")) if isinstance(found, dict) else (0, 0)
        if isinstance(lost, int | float) and isinstance(sent, int | float) and 0 < lost <= sent:
            return lost_datagrams(lost, sent)
    return ()


def _sum(end: Mapping[str, Any], key: str, where: str) -> float:
    """Return the bytes per second of a sum, 0 without it; InputError where its bytes and seconds say another rate."""
    found = end.get(key)
    if not isinstance(found, dict):
        return 0.0
    bits, size, seconds = (found.get(name) for name in ("bits_per_second", "bytes", "seconds"))
    if not isinstance(bits, int | float) or bits < 0:
        raise InputError(f"{where}: {key}: expected bits_per_second of iperf3")
    if isinstance(size, int | float) and isinstance(seconds, int | float) and seconds > 0:
        said = 8 * size / seconds
        if abs(bits - said) > _SLACK * max(bits, said):
            raise InputError(f"{where}: {key}: {size:g} bytes in {seconds:g} s are {said:.4g} bits/s, not {bits:.4g}")
    return bits / 8
