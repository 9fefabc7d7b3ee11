"""Text of MPI: the error stack of MPICH and of those made from it (Cray's, Intel's), the block of Open MPI.

A rank prints it when it gives up. The last line of a stack says why: a fabric that did not deliver, a peer that is
gone, a message of another size.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from ..nouns.facts import Fact, Failure, SizesDiffer
from ..nouns.identities import AgentRanks, RankIdentity
from ..text.lines import LogMessage

_HEAD = re.compile(
    r"(?:MPICH ERROR \[Rank (?P<rank>\d{1,6})\] .{0,120}?\[(?P<host>[A-Za-z][\w.-]*)\] - )?"
    r"Abort\(-?\d{1,12}\) (?:on node \d{1,6} )?\(rank (?P<place>\d{1,6}) in comm (?P<comm>(?:0x)?[0-9a-f]{1,16})\): "
)
_NO_RANK = re.compile(r"^Fatal error in (?:P?MPI_|internal_)\w+: ")  # repeated for the user, or by older versions
_OF_FABRIC = re.compile(r"OFI poll failed \([\w.]+:\d+:\w+:(?P<why>[^()]{1,160})\)")
_GONE = re.compile(  # what a process that has ended leaves to its peers
    r"PTLTE_NOT_FOUND|not connected|reset|refused|aborted|[Bb]roken pipe|[Ee]ndpoint|shutdown|shut down|timed? ?out"
)
_OWN = re.compile(r"Cannot allocate memory|Message too long|truncated|[Ii]nvalid argument|[Pp]ermission|[Bb]ad address")
_LOST = re.compile(r"connection (?:failure|reset|closed)|Communication error with rank|process failed", re.IGNORECASE)
_TRUNCATED = re.compile(r"truncated; (?P<came>\d{1,15}) bytes received but buffer size is (?P<size>\d{1,15})")
_UNLIKE = re.compile(  # of a collective, whose ranks gave unlike counts
    r"message sizes do not match across processes in the collective routine: "
    r"Received (?P<came>\d{1,15}) but expected (?P<size>\d{1,15})"
)
_REPORTED = re.compile(r"\*\*\* reported by process \[\d+,(?P<rank>\d{1,6})\]")  # of Open MPI
_NODE = re.compile(r"^\s*Data for node: (?:Name: )?(?P<host>[A-Za-z][\w.-]*)")  # mpirun --display-map
_PROCESS = re.compile(r"\bProcess OMPI jobid: \[\d+,\d+\] (?:App: \d+ )?Process rank: (?P<rank>\d{1,6})\b")
_TELLS = re.compile(r"OFI|truncated|message sizes do not match")
_MOST, _ABOVE = 24, 8  # lines of a stack; of a block


def read(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield why ranks gave up, by the error stacks of one file, and where Open MPI's map of a job has its ranks."""
    yield from _mapped(messages)
    head: re.Match[str] | None = None
    begun = -_MOST
    for index, message in enumerate(messages):
        text = message.text
        if "*** MPI_ERR_TRUNCATE" in text:
            above = [said for one in messages[max(0, index - _ABOVE) : index] if (said := _REPORTED.search(one.text))]
            rank = int(above[-1]["rank"]) if above else message.rank
            what = "MPI: a message was larger than its receiver expected"
            yield SizesDiffer(rank=rank, what=what, where=message.where.by(rank))
        elif "(rank " in text and (found := _HEAD.search(text)):
            head, begun = found, index
            if found["rank"]:
                rank = int(found["rank"])
                yield RankIdentity(rank=rank, host=found["host"], where=message.where.by(rank))
        elif _NO_RANK.match(text):
            begun = index
        elif index - begun < _MOST and (_TELLS.search(text) or _LOST.search(text)):
            yield from _why(message, head)
            begun = index - _MOST


def _mapped(messages: Sequence[LogMessage]) -> Iterator[AgentRanks]:
    """Yield the ranks of each host of the last map of a job, in one line or in one for each rank."""
    ranks: dict[str, list[int]] = {}
    lines: dict[str, LogMessage] = {}
    host = ""
    for message in messages:
        text = message.text
        if "  JOB MAP  " in text:
            ranks, host = {}, ""
        if "Data for node: " in text and (node := _NODE.search(text)):
            host = node["host"]
            lines[host] = message
        if host and "Process rank: " in text and (process := _PROCESS.search(text)):
            ranks.setdefault(host, []).append(int(process["rank"]))
    for name, own in ranks.items():
        yield AgentRanks(ranks=tuple(sorted(own)), where=replace(lines[name].where, host=name))


def _why(message: LogMessage, head: re.Match[str] | None) -> Iterator[Fact]:
    rank = message.rank
    if head is not None and (head["rank"] or int(head["comm"], 16) == 0):  # a communicator of its own counts its own
        rank = int(head["rank"] or head["place"])
    text, where = message.text, message.where.by(rank)
    if size := _TRUNCATED.search(text) or _UNLIKE.search(text):
        yield SizesDiffer(rank=rank, came_bytes=int(size["came"]), expected_bytes=int(size["size"]), where=where)
    elif (fabric := _OF_FABRIC.search(text)) and not _OWN.search(fabric["why"]):
        what, follows = f"MPICH: the fabric failed ({fabric['why']})", _GONE.search(fabric["why"]) is not None
        yield Failure(kind="network", what=what, rank=rank, where=where, follows=follows)
    elif _LOST.search(text):
        what = "MPICH: a connection to a peer broke"
        yield Failure(kind="network", what=what, rank=rank, where=where, follows=True)
