"""Traces of a process's calls of the kernel by `strace -p`: which process waits for the lock of a file, which polls.

A rank that waits in a collective polls, or yields its core: a call that a trace of many seconds does not see return is
none of these where it is that of a lock. Who does anything else may hold that lock.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec

from ..nouns.identities import FreeProcesses, HeldProcess
from ..text.lines import LogMessage
from .commands import host_of_prompt

_ASKED = re.compile(r"\bstrace\b(?P<options>[^|;&]{1,200})")
_PROCESS = re.compile(r"(?:-p|--attach)[ =]?(?P<pid>\d{2,8})\b")
_ATTACHED = re.compile(r"^strace: Process (?P<pid>\d{2,8}) attached\b")
_CALL = re.compile(
    r"^(?:\[pid +(?P<thread>\d{2,8})\] |(?P<also>\d{2,8}) +)?(?:\d[\d:.]* +)?(?P<name>[a-z_]\w{1,30})\((?P<rest>.*)$"
)
_RESUMED = re.compile(r"^(?:\[pid +(?P<thread>\d{2,8})\] |(?P<also>\d{2,8}) +)?(?:\d[\d:.]* +)?<\.\.\. \w+ resumed>")
_RETURNED = re.compile(r"\) += (?:-?\d|\?|0x)")
_LOCK = {"fcntl": re.compile(r"(?P<file>\d+)(?:<[^>]*>)?, F_(?:OFD_)?SETLKW"), "flock": re.compile(r"(?P<file>\d+)")}
_POLLS = {
    "sched_yield",
    "futex",
    "poll",
    "ppoll",
    "epoll_wait",
    "epoll_pwait",
    "select",
    "clock_nanosleep",
    "nanosleep",
}
_COUNTED = re.compile(r"^ *\d+\.\d+ +\d+\.\d+ +\d+ +\d+ +(?:\d+ +)?(?P<name>[a-z_]\w{1,30})$")  # of `strace -c`
_FILE = re.compile(r"/proc/(?P<pid>\d{2,8})/fd/(?P<file>\d+) -> (?P<path>/\S+)")


class _Traced(msgspec.Struct):
    """A process of which a trace is read: the call in which its first thread stands, and the line of it."""

    pid: int
    host: str
    first: LogMessage
    open_call: LogMessage | None = None
    is_counted: bool = False  # the first row of a table of its calls was read, in which it spends most
    polls: bool = False
    file: str = ""  # number of the open one whose lock it waits for


def read(messages: Sequence[LogMessage]) -> Iterator[HeldProcess | FreeProcesses]:
    """Yield the processes that a trace shows in a wait for a lock, and the ones that poll."""
    traced = _traced(messages) if any("strace" in message.text for message in messages) else {}
    files = {(one["pid"], one["file"]): one["path"] for one in map(_FILE.search, _texts(messages, "/fd/")) if one}
    for one in traced.values():
        if one.open_call is None:
            if one.polls:
                yield FreeProcesses(pids=(one.pid,), host=one.host, rank=one.first.rank, where=one.first.where)
            continue
        path = files.get((str(one.pid), one.file), "")
        what = f"process {one.pid} waits for the lock of {path or 'a file'}, in a call that does not return (strace)"
        yield HeldProcess(pid=one.pid, what=what, host=one.host, rank=one.first.rank, where=one.open_call.where)


def _texts(messages: Sequence[LogMessage], part: str) -> list[str]:
    return [message.text for message in messages if part in message.text]


def _traced(messages: Sequence[LogMessage]) -> dict[int, _Traced]:
    """Return the processes of the traces of one file, each as the last trace of it shows it."""
    found: dict[int, _Traced] = {}
    own: _Traced | None = None
    host = ""
    for message in messages:
        text = message.text
        host = message.host or host_of_prompt(text) or host
        if (asked := _ASKED.search(text)) and (pids := _PROCESS.findall(asked["options"])):
            own = _Traced(pid=int(pids[0]), host=host, first=message) if len(pids) == 1 else None
        elif (attached := _ATTACHED.match(text)) and (own is None or own.pid != int(attached["pid"])):
            own = _Traced(pid=int(attached["pid"]), host=host, first=message) if own is None else own
        elif own is not None:
            _note(own, message)
        if own is not None:
            found[own.pid] = own
    return found


def _note(own: _Traced, message: LogMessage) -> None:
    """Note what a line of a trace says of the first thread of its process."""
    if (row := _COUNTED.match(message.text)) and not own.is_counted:
        own.is_counted, own.polls = True, row["name"] in _POLLS
    resumed, call = _RESUMED.match(message.text), _CALL.match(message.text)
    line = resumed or call
    thread = None if line is None else line["thread"] or line["also"]
    if line is None or (thread is not None and int(thread) != own.pid):
        return
    own.open_call, own.file = None, ""
    own.polls = call is not None and call["name"] in _POLLS
    if resumed or call is None or call["name"] not in _LOCK or _RETURNED.search(call["rest"]):
        return
    if waits := _LOCK[call["name"]].match(call["rest"]):
        own.open_call, own.file = message, waits["file"]
