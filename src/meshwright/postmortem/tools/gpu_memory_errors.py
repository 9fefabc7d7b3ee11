"""GPUs whose memory has failed, by the counts of `nvidia-smi`: its table, and what `nvidia-smi -q` says of each.

What that lists by addresses are the numbers of GPUs, too.

A count has no clock: an earlier job may have met the errors. So it `follows`, and counts where nothing blames another.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec

from ..nouns.facts import Failure
from ..nouns.identities import GpuPlace
from ..nouns.names import bus_number
from ..ranks.process_owners import gpu_of_file
from ..text.lines import LogMessage
from .gpu_tables import BUS, host_of_smi

_ROW = re.compile(rf"^\| +(?P<device>\d{{1,2}}) +\S.*\| +{BUS} +\S+ *\| +(?P<count>\d{{1,12}}|N/A|Off) *\|$")
_GPU = re.compile(rf"^GPU {BUS}\s*$")
_PART = re.compile(r"^\s+(?P<part>Volatile|Aggregate)\s*$")
_COUNT = re.compile(r"^\s+[SD]RAM Uncorrectable(?: \S+)?\s*: (?P<count>\d{1,12})\s*$")
_REMAP = re.compile(r"^\s+Remapping Failure Occurred\s*: (?P<failed>Yes|No)\s*$")
_ATTACHED = re.compile(r"^Attached GPUs\s*: (?P<gpus>\d{1,3})\s*$")
_MINOR = re.compile(r"^\s+Minor Number\s*: (?P<number>\d{1,3})\s*$")  # of the device file
_ASKED = re.compile(r"\bnvidia-smi\b.*? (?:-i|--id)[ =](?P<number>\d{1,2})\b(?!,)")
COUNTED = " has had "  # in what such a fault is called


class _Gpu(msgspec.Struct):
    """One GPU of a host while its lines are read; `listing` numbers the lists of `nvidia-smi -q`."""

    host: str
    message: LogMessage
    device: int | None = None
    bus: str = ""
    count: int = 0
    is_worn: bool = False
    minor: int | None = None
    listing: int | None = None

    @property
    def what(self) -> str:
        """What its counts say, "" where they are none."""
        told = [f"{self.count} uncorrectable ECC errors since its driver was loaded"] if self.count else []
        told += ["no rows left to remap faulty ones to"] if self.is_worn else []
        gpu = f"GPU {self.bus or self.device if self.device is not None else self.bus}".rstrip()
        return f"{gpu}{f' of {self.host}' if self.host else ''}{COUNTED}{' and '.join(told)}" if told else ""


class _Listing(msgspec.Struct):
    """One list of `nvidia-smi -q`: how many GPUs its host has, and which one was asked for."""

    attached: int | None = None
    asked: int | None = None


def read(messages: Sequence[LogMessage]) -> Iterator[Failure | GpuPlace]:
    """Yield the GPUs of one file whose memory has failed, where those of most do not, and the numbers of those listed.

    Of a host of which one GPU is listed alone, no other is known: that may be the one of many that somebody asked for.
    """
    gpus, listings = _gpus(messages)
    for number, listing in enumerate(listings):
        own = [gpu for gpu in gpus if gpu.listing == number]
        for place, gpu in enumerate(own):
            gpu.device = _number(gpu, place, len(own), listing)
            if gpu.device is not None:
                bus = bus_number(gpu.bus)
                yield GpuPlace(device=gpu.device, bus_id=bus, host=gpu.host, where=gpu.message.where)
    bad = [gpu for gpu in gpus if gpu.what]
    if len(gpus) > 1 and 2 * len(bad) >= len(gpus):
        return
    for gpu in bad:
        yield Failure(
            kind="device",
            what=gpu.what,
            host=gpu.host,
            device=gpu.device,
            bus_id=bus_number(gpu.bus) if gpu.bus else "",
            follows=True,
            where=gpu.message.where,
        )


def _number(gpu: _Gpu, place: int, listed: int, listing: _Listing) -> int | None:
    """Return the number of a GPU on its host: its place in a list of all; of one alone, what the command asked for.

    Or what the name of the file says; a device file is mostly called by the same number, and must not be by another.
    """
    if listing.attached == listed or (listing.attached is None and listed > 1):
        return place
    told = listing.asked if listing.asked is not None else gpu_of_file(gpu.message.where.file)
    return told if listed == 1 and gpu.minor in {None, told} else None


def _gpus(messages: Sequence[LogMessage]) -> tuple[list[_Gpu], list[_Listing]]:
    found: list[_Gpu] = []
    listings = [_Listing()]
    asked, part = "", ""
    own: _Gpu | None = None  # that `nvidia-smi -q` tells of
    for message in messages:
        text = message.text
        if "nvidia-smi" in text:
            one = _ASKED.search(text)
            asked, own = host_of_smi(text), None
            listings.append(_Listing(asked=int(one["number"]) if one else None))
        host = message.host or asked or message.where.host
        if row := _ROW.match(text):
            errors = int(row["count"]) if row["count"].isdecimal() else 0
            found.append(_Gpu(host=host, message=message, device=int(row["device"]), bus=row["bus"], count=errors))
        elif gpu := _GPU.match(text):
            own = _Gpu(host=host, message=message, bus=gpu["bus"], listing=len(listings) - 1)
            found.append(own)
        elif attached := _ATTACHED.match(text):
            if listings[-1].attached is not None:
                listings.append(_Listing())
            listings[-1].attached = int(attached["gpus"])
        elif own and (minor := _MINOR.match(text)):
            own.minor = int(minor["number"])
        elif told := _PART.match(text):
            part = told["part"]
        elif (count := _COUNT.match(text)) or (remap := _REMAP.match(text)):
            own = own or _only(host, found, message)
            if count and part == "Volatile" and int(count["count"]):
                own.count, own.message = max(own.count, int(count["count"])), message
            elif not count and remap and remap["failed"] == "Yes":
                own.is_worn = True
    return found, listings


def _only(host: str, found: list[_Gpu], message: LogMessage) -> _Gpu:
    """Return the only GPU of a host that its table lists; else one that is added to those found."""
    here = [gpu for gpu in found if gpu.host == host]
    if len(here) != 1:
        here = [_Gpu(host=host, message=message)]
        found += here
    return here[0]
