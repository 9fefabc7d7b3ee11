"""Hosts that a client could not reach by the network until it gave up: no route, no answer at all.

A refused connection is none of these: that host answers, and nobody listens there yet.
"""

import re
from collections.abc import Iterator, Sequence

from ..nouns.facts import Failure
from ..surroundings.connections import NO_WAY
from ..text.lines import LogMessage
from ..text.steps import WENT_ON

_WHY = rf"(?P<why>{NO_WAY})"
_TRIED = re.compile(  # c10d's client of a store
    r"client socket has failed to connect to \[?(?P<host>[\w.:-]+?)\]?:\d+ \((?:errno|system error): \d+ - (?:"
    + _WHY
    + r"|(?P<other>[^)]*))"
)
_GAVE_UP = re.compile(
    r"client socket has timed out|client socket has failed to connect to any|RendezvousConnectionError"
    r"|DistNetworkError|DistStoreError|TCPStore.{0,40}timed out"
)
_SSH = re.compile(r"\bssh: connect to host (?P<host>\S+) port \d+: " + _WHY)
_MLX = re.compile(  # its backends tell the number alone
    r"\[(?P<by>ring|jaccl|ibv)\] (?:Couldn't connect \(error:|Changing queue pair to RTR failed with errno)"
    r" (?P<code>\d{1,3})\b"
)
_CODES = {  # of macOS and of Linux, which have no number in common
    **dict.fromkeys(("50", "100"), "Network is down"),
    **dict.fromkeys(("51", "101"), "Network is unreachable"),
    **dict.fromkeys(("60", "110"), "Connection timed out"),
    **dict.fromkeys(("64", "112"), "Host is down"),
    **dict.fromkeys(("65", "113"), "No route to host"),
}
_MPI = re.compile(r"unable to complete a TCP connection")
_REMOTE = re.compile(r"^\s*Remote host: +(?P<host>\S+)")
_SPREAD = 8  # lines over which MPI spreads one notice
_NOT_A_ROUTE = re.compile(r"^(?:fe80:|::1|127\.)")  # to the link or the host itself, tried with the others


def read(messages: Sequence[LogMessage]) -> Iterator[Failure]:
    """Yield the hosts that clients in one file could not reach: by all their tries until they gave up."""
    tried: dict[str, tuple[str, LogMessage]] = {}
    refused: set[str] = set()
    begun = False  # the job: what a person tries afterwards says nothing of how it went
    for at, message in enumerate(messages):
        text = message.text
        if tried and (message.is_of_library or WENT_ON.search(text)):
            tried = {}
        begun = begun or message.rank is not None
        if "connect" not in text and "Error" not in text and "timed out" not in text and "] Changing" not in text:
            continue
        if "client socket has failed to connect to" in text:
            for one in _TRIED.finditer(text):
                if one["why"] and not _NOT_A_ROUTE.match(one["host"]):
                    tried.setdefault(one["host"], (one["why"], message))
                elif one["other"]:
                    refused.add(one["host"])
        if tried and _GAVE_UP.search(text):
            for host, (why, first) in tried.items():
                if host not in refused:
                    yield _unreached(host, why, first)
            tried = {}
        elif not begun and "ssh: " in text and (ssh := _SSH.search(text)):
            yield _unreached(ssh["host"], ssh["why"], message)
        elif (mlx := _MLX.search(text)) and mlx["code"] in _CODES:
            what = f"MLX's backend {mlx['by']} cannot reach one of its peers: {_CODES[mlx['code']]}"
            yield Failure(kind="network", what=what, where=message.where, is_general=True)
        elif _MPI.search(text):
            near = messages[at + 1 : at + _SPREAD]
            remote = next((named["host"] for line in near if (named := _REMOTE.match(line.text))), "")
            yield _unreached(remote, "no connection", message)


def _unreached(host: str, why: str, message: LogMessage) -> Failure:
    what = f"host {host or 'of another process'} cannot be reached: {why}"
    return Failure(kind="network", what=what, where=message.where, is_general=True)
