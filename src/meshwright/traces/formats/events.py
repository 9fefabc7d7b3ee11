"""The events of a Chrome trace (object or array form), streamed: a file is never held whole, and decoded once.

A piece of the file is cut after its last event and decoded as a list. Where that fails, what writers get wrong is
mended (NaN and Infinity, bytes that are not UTF-8, lone backslashes) and the cut is looked for brace by brace.
"""

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from ...errors import InputError
from ...quantities import MOST_RANKS
from ..names import number
from .opening import NoTrace, Source, pieces

MOST_EVENT_BYTES = 64 * 2**20  # what stands before, between or after the events
_EXPECTED = (
    "expected a trace of torch.profiler (JSON, packed or not), an SQLite export of nsys, a Chakra execution trace or a "
    "timeline.json"
)
EXPORT_AGAIN = "the trace is cut off; export it again, or copy the whole file"
_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BOUNDARY = re.compile(rb"\}\s*,\s*\{")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)
_NO_NUMBER = re.compile(  # or one beyond what a double holds
    rb"(?<=[:\[,\s])[-+]?(?:nan|inf(?:inity)?|\d[\d.]*e\+?[3-9]\d\d+)(?=[\s,\]}])", re.IGNORECASE
)
_BACKSLASH = re.compile(rb'(\\\\)|\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')  # a pair of them is right, one alone is not
_HALF = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_CONTROL = re.compile(rb"[\x00-\x1f]")


class Args(msgspec.Struct, frozen=True, gc=False):
    """The arguments of an event that are read here; the others are skipped. None where an event has none."""

    correlation: Any = None
    external: Any = msgspec.field(default=None, name="External id")
    external_2021: Any = msgspec.field(default=None, name="external id")
    collective: Any = msgspec.field(default=None, name="Collective name")
    elements_in: Any = msgspec.field(default=None, name="In msg nelems")
    elements_out: Any = msgspec.field(default=None, name="Out msg nelems")
    group_size: Any = msgspec.field(default=None, name="Group size")
    dtype: Any = None
    group: Any = msgspec.field(default=None, name="Process Group Name")
    group_text: Any = msgspec.field(default=None, name="Process Group Description")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    seq: Any = msgspec.field(default=None, name="Seq")
    rank_in_group: Any = msgspec.field(default=None, name="Rank")
    source_rank: Any = msgspec.field(default=None, name="Src Rank")  # of a receive
    target_rank: Any = msgspec.field(default=None, name="Dst Rank")  # of a send
    rank: Any = None  # as scripts that merge traces note it
    bytes: Any = None
    stream: Any = None
    device: Any = None
    task: Any = msgspec.field(default=None, name="Task Type")  # of an Ascend device
    name: Any = None  # of a process
    labels: Any = None
    sort_index: Any = None
    value: Any = None


class TraceEvent(msgspec.Struct, frozen=True, gc=False):
    """One event; times in microseconds."""

    ph: str = ""
    name: str = ""
    cat: str = ""
    ts: float = 0.0
    dur: float | None = None
    pid: int | str = 0
    tid: int | str = 0
    args: Args | None = None


class TraceHead(msgspec.Struct, frozen=True):
    """Metadata beside the events."""

    distributed: Any = msgspec.field(default=None, name="distributedInfo")
    base_ns: Any = msgspec.field(default=0, name="baseTimeNanoseconds")
    host: Any = msgspec.field(default="", name="host_name")
    devices: Any = msgspec.field(default=None, name="deviceProperties")
    other: Any = msgspec.field(default=None, name="otherData")

    def joined(self, later: "TraceHead") -> "TraceHead":
        """Return what either says, the first where both do."""
        return TraceHead(*(getattr(self, name) or getattr(later, name) for name in self.__struct_fields__))

    @property
    def rank(self) -> int | None:
        """Return the rank that the trace names."""
        found = self.distributed.get("rank") if isinstance(self.distributed, dict) else None
        if isinstance(found, str) and re.fullmatch(r"\s*[0-9]{1,9}\s*", found):
            found = int(found)
        return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < MOST_RANKS else None

    @property
    def world_size(self) -> int:
        """Return how many ranks the job has, 0 where the trace does not say."""
        found = number(self.distributed.get("world_size")) if isinstance(self.distributed, dict) else 0.0
        return int(found) if found <= MOST_RANKS else 0

    @property
    def groups(self) -> dict[str, str]:
        """Return the ranks of each process group that the rank is in, by its name, as calls write them."""
        listed = self.distributed.get("pg_config") if isinstance(self.distributed, dict) else None
        found: dict[str, str] = {}
        for group in listed if isinstance(listed, list) else ():
            ranks = group.get("ranks") if isinstance(group, dict) else None
            if not isinstance(ranks, list) or self.rank not in ranks or any(type(rank) is not int for rank in ranks):
                continue
            if number(group.get("pg_size")) in (0, len(ranks)):  # else the list is cut short
                found[str(group.get("pg_name"))] = str(ranks)
        return found


_EVENTS = msgspec.json.Decoder(list[TraceEvent], strict=False)
_ANY = msgspec.json.Decoder(list[Any])
_HEAD = msgspec.json.Decoder(TraceHead)


class EventStream:
    """The events of one source in batches, and after them its `head`."""

    def __init__(self, source: Source) -> None:
        self.where = str(source)
        self.head = TraceHead()
        self._pieces = pieces(source)
        self._buffer = b""
        self._read_bytes = 0
        self._ended = False
        self._is_trace = False  # as far as it has been read

    def batches(self) -> Iterator[list[TraceEvent]]:
        """Yield lists of events; InputError where this is no Chrome trace or is cut off."""
        array = self._begin()
        while True:
            self._buffer = self._buffer.lstrip(b" \t\r\n,")
            cut = self._last_boundary()
            if cut is None:
                if not self._doubled():
                    break
                continue
            decoded = _parsed(self._buffer[:cut])
            if decoded is None:  # no cut between two events: look for one brace by brace
                cut, closed = _scanned(self._buffer)
                if closed:
                    break
                if not cut:
                    if not self._doubled():
                        break
                    continue
                decoded = self._decoded(self._buffer[:cut])
            self._buffer = self._buffer[cut:]
            yield self._seen(decoded)
            self._more()
        end, closed = _scanned(self._buffer)
        if not closed and not (array and not self._buffer[end:].strip(b" \t\r\n,")):
            raise InputError(f"{self.where}: byte {self._read_bytes}: {EXPORT_AGAIN}")
        if self._buffer[:end].strip():
            yield self._seen(self._decoded(self._buffer[:end]))
        if not array:
            self._finish(self._buffer[end + 1 :])
        elif not self._is_trace:
            raise NoTrace(f"{self.where}: a list, no operator and no kernel in it; {_EXPECTED}")

    def _seen(self, events: list[TraceEvent]) -> list[TraceEvent]:
        """Return the events as they are; with the first of them an array is a trace."""
        self._is_trace = self._is_trace or any(event.ph for event in events)
        return events

    def _more(self) -> bool:
        """Read one more piece; False at the end of the file."""
        if self._ended:
            return False
        if len(self._buffer) > MOST_EVENT_BYTES:
            kind = InputError if self._is_trace else NoTrace
            raise kind(f"{self.where}: byte {self._read_bytes}: one value of more than {MOST_EVENT_BYTES} bytes")
        piece = next(self._pieces, b"")
        self._ended = not piece
        self._read_bytes += len(piece)
        self._buffer += piece
        return bool(piece)

    def _doubled(self) -> bool:
        """Read as much again as there is, so that what is looked through from its begin is not for every piece."""
        wanted = 2 * len(self._buffer)
        found = self._more()
        while len(self._buffer) < wanted and self._more():
            pass
        return found

    def _begin(self) -> bool:
        """Read up to the first event; return whether the file is an array."""
        while not self._buffer.lstrip()[:1]:
            self._buffer = self._buffer.lstrip()
            if not self._more():
                raise InputError(f"{self.where}: is empty; expected a trace of torch.profiler")
        self._buffer = self._buffer.lstrip()
        if self._buffer[:1] == b"[":
            self._buffer = self._buffer[1:]
            return True
        searched = 0
        while self._buffer[:1] == b"{":
            for match in _KEY.finditer(self._buffer, searched):
                head = _head(self._buffer[: match.start()] + b'"traceEvents":0}')
                if head is not None:
                    self.head, self._buffer, self._is_trace = head, self._buffer[match.end() :], True
                    return False
                searched = match.end()
            if not self._more():
                break
        whole = self._ended or not self._more()
        kind = NoTrace if whole and _is_json(self._buffer) else InputError
        raise kind(f"{self.where}: no list of traceEvents in it; {_EXPECTED}")

    def _last_boundary(self) -> int | None:
        """Return where the last event but one seems to end; None where no event is complete."""
        window = 2**16
        while True:
            low = max(0, len(self._buffer) - window)
            found = None
            for found in _BOUNDARY.finditer(self._buffer, low):  # noqa: B007, the last of them is meant
                pass
            if found is not None:
                return found.start() + 1
            if low == 0:
                return None
            window *= 16

    def _decoded(self, part: bytes) -> list[TraceEvent]:
        decoded = _parsed(part)
        if decoded is None:
            raise InputError(f"{self.where}: near byte {self._read_bytes}: is no JSON; expected events of a trace")
        return decoded

    def _finish(self, rest: bytes) -> None:
        """Read what follows the events."""
        self._buffer = rest
        while len(self._buffer) <= MOST_EVENT_BYTES and self._more():
            pass
        tail = self._buffer.strip()
        if self._ended and not tail.endswith(b"}"):
            raise InputError(f"{self.where}: byte {self._read_bytes}: {EXPORT_AGAIN}")
        head = _head(b'{"x":0' + tail)
        if head is not None:
            self.head = self.head.joined(head)


def _head(text: bytes) -> TraceHead | None:
    for tried in (text, _mended(text)):
        try:
            return _HEAD.decode(tried)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            continue
    return None


def _is_json(text: bytes) -> bool:
    """Return whether a text is a value of JSON, or begins with a line that is one."""
    for tried in (text, text.strip().partition(b"\n")[0]):
        try:
            msgspec.json.decode(_mended(tried))
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            continue
        return True
    return False


def _parsed(part: bytes) -> list[TraceEvent] | None:
    """Return the events of a part, mended and with odd types if need be; None if it is no list of values."""
    try:
        return _EVENTS.decode(b"[" + part + b"]")
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        whole = b"[" + _mended(part) + b"]"
    try:
        return _EVENTS.decode(whole)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        pass
    try:
        values = _ANY.decode(whole)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    return [event for value in values if (event := _tolerant(value)) is not None]


def _mended(part: bytes) -> bytes:
    part = _NO_NUMBER.sub(b"null", part.decode("utf-8", "replace").encode())
    part = _BACKSLASH.sub(lambda found: found[1] or rb"\\", part)
    return _CONTROL.sub(b" ", _HALF.sub(rb"\\ufffd", part))


def _scanned(buffer: bytes) -> tuple[int, bool]:
    """Return where the last complete event ends, or where the list of them is closed, and which of the two it is."""
    depth = end = 0
    for token in _TOKEN.finditer(buffer):
        sign = token[0]
        if sign in b"{[":
            depth += 1
        elif sign in b"]}":
            if depth == 0:
                return token.start(), True
            depth -= 1
            if depth == 0:
                end = token.end()
    return end, False


def _tolerant(value: Any) -> TraceEvent | None:
    """Return an event whose fields have odd types, as far as they can be read; None for what is no event."""
    if not isinstance(value, dict):
        return None
    args = value.get("args")
    names = {field.encode_name: field.name for field in msgspec.structs.fields(Args)}
    kept = {names[key]: one for key, one in args.items() if key in names} if isinstance(args, dict) else None
    dur = value.get("dur")
    pid, tid = (one if isinstance(one, int | str) else str(one) for one in (value.get("pid", 0), value.get("tid", 0)))
    return TraceEvent(
        ph=str(value.get("ph", "")),
        name=str(value.get("name", "")),
        cat=str(value.get("cat", "")),
        ts=_float(value.get("ts")),
        dur=None if dur is None else _float(dur),
        pid=pid,
        tid=tid,
        args=None if kept is None else Args(**kept),
    )


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
