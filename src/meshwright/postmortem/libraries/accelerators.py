"""Accelerators that are no GPUs: their faults by driver or runtime, and the rank of each by its device file.

The numbers of device files are those of the driver: the rank of a device is known only where a line says it.
"""

import re
from collections.abc import Iterator, Sequence

from ..nouns.facts import Fact, Failure
from ..nouns.identities import DeviceFile, RankIdentity
from ..nouns.names import OF_GAUDI, bus_number
from ..surroundings.system import syslog_host
from ..text.lines import LogMessage

_GAUDI = re.compile(  # Linux, drivers/accel/habanalabs; older ones call a device hl4
    r"\b(?:habanalabs|accel) (?P<named>(?:(?:accel|hl)\d{1,2}|[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d)\b.*?"
    r"(?P<what>[Dd]evice heartbeat failed|[Ff]ailed to (?:reset|initialize)\b.*(?:disabled|NOT usable)"
    r"|Received H/W interrupt \d+ \[\"\w{1,40}_DERR\b"  # two bits of a memory's word
    r"|(?<!\bno )(?<!\b0 )[Uu]ncorrectable [\w ()]{0,24}\b(?:ECC|error)\b[\w ()]{0,16}))"
)
_NAME = re.compile(r"\b(?:accel|hl)(?P<number>\d{1,2})\b")
_BUS = re.compile(r"\b[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d\b")
_ASCEND = re.compile(r"\bDevice\[(?P<number>\d{1,2})\] lost heartbeat\b")  # CANN's runtime
_FILE = re.compile(  # with its path, or a Gaudi's name alone
    r"(?:/dev/(?:accel/)?(?P<kind>accel|hl|davinci)|(?<![\w/.-])(?P<bare>hl|accel))(?P<number>\d{1,2})(?![\w.-])"
)
_UNUSABLE = re.compile(r"initialize\b")
_NEVER_BEGAN = "a Gaudi that its driver could not initialize is not usable"  # several may be so from the start
_RANK = re.compile(r"(?<![\w-])(?<!local )(?<!node )(?:global[_ -]?)?rank[ =:#]{0,2}(\d{1,6})\b", re.IGNORECASE)


def read(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield what failed, and which rank has which device, in the messages of one file."""
    for message in messages:
        text = message.text
        if "habanalabs" in text or "accel accel" in text:
            yield from _of_gaudi(message)
        elif "lost heartbeat" in text and (lost := _ASCEND.search(text)):
            what = f"NPU {lost['number']} does not answer (lost heartbeat)"
            file = f"davinci{lost['number']}"
            yield Failure(kind="device", what=what, rank=message.rank, bus_id=file, where=message.where)
        elif ("/dev/" in text or "hl" in text or "accel" in text) and len(files := list(_FILE.finditer(text))) == 1:
            ranks = {int(rank) for rank in _RANK.findall(text)}
            ranks |= set() if ranks or message.rank is None else {message.rank}
            if len(ranks) == 1:
                rank = ranks.pop()
                file, where = _named(files[0]["kind"] or files[0]["bare"], files[0]["number"]), message.where.by(rank)
                yield RankIdentity(rank=rank, host=message.host, bus_id=file, where=where)


def _of_gaudi(message: LogMessage) -> Iterator[Failure | DeviceFile]:
    found = _GAUDI.search(message.text)
    if found is None:
        return
    name, bus = _NAME.search(found["named"]), _BUS.search(found["named"])
    named = name[0] if name else bus[0] if bus else ""
    host = syslog_host(message.text) or message.host
    if name and bus:
        file = _named("accel", name["number"])
        yield DeviceFile(name=file, bus_id=bus_number(bus[0]), host=host, where=message.where)
    yield Failure(
        kind="device",
        what=_NEVER_BEGAN if _UNUSABLE.search(found["what"]) else f"{OF_GAUDI}{named}: {found['what']}",
        host=host,
        bus_id=_named("accel", name["number"]) if name else bus_number(bus[0]) if bus else "",
        where=message.where,
    )


def _named(kind: str, number: str) -> str:
    """Return the name of a device file as newer drivers have it."""
    return f"{'accel' if kind == 'hl' else kind}{number}"
