"""Addresses of hosts beside their names: as NCCL prints its own, in tables of hosts, in lists that people write.

EC2 numbers its machines (`i-0123abcd`), and EFA's errors name peers so: such a number is an address like any other.
"""

import re
from collections.abc import Iterator, Sequence

from ..nouns.identities import HostAddress
from ..text.lines import LogMessage
from .placements import HOST

_IPV4 = r"\d{1,3}(?:\.\d{1,3}){3}"
_OF_NCCL = re.compile(
    rf"^(?P<host>[\w.-]+):\d+:\d+ \[\d+\] NCCL INFO .*?(?:Bootstrap : |Bootstrap: |OOB |NET/Socket : )"
    rf".*?(?<!\d)(?P<address>{_IPV4})<"
)
_ROW = re.compile(rf"^\s*(?P<address>{_IPV4})\s+(?P<host>{HOST})(?:\s+[\w.-]+)*\s*$")  # of /etc/hosts, getent hosts
_PAIR = re.compile(  # of a list of all hosts
    rf"(?<![\w./-])(?P<host>{HOST}) ?(?:=|:|->|=>|\() ?(?P<address>{_IPV4})\b\)?(?![:\w/])"
)
_INSTANCE = re.compile(r"(?<![\w-])i-[0-9a-f]{8}(?:[0-9a-f]{9})?(?![\w-])")
_OWN_INSTANCE = re.compile(r"(?P<host>[\w.-]+):\d+:\d+ \[\d+\] .*?\bMy host id: (?P<address>i-[0-9a-f]{8,17})\b")
_OF_EC2 = re.compile(r"(?<![\w-])ip(?:-\d{1,3}){4}(?!\d)")
_KEY_OF_INSTANCE = re.compile(r"^\s*[\"']?InstanceId[\"']?: [\"']?(?P<address>i-[0-9a-f]{8,17})\b")  # JSON or YAML
_KEY_OF_NAME = re.compile(r"^\s*[\"']?PrivateDnsName[\"']?: [\"']?(?P<host>[A-Za-z][\w.-]*)")
_PARTS = re.compile(r"[\s,;|=/\"'()]+")
_LEFT = re.compile(r"[A-Za-z]{3,}")  # words that say something else
_NAMES = re.compile(r"\b(?:hosts?|nodes?|ips?|addr(?:ess(?:es)?)?|are|and)\b", re.IGNORECASE)
_MAY_TELL = ("Bootstrap", "OOB ", "NET/Socket")
_A_HOST = re.compile(HOST)
_LONGEST_ROW = 300  # characters of one that names an instance
_LONGEST = 2000  # characters of a line that are read
_FEW = 2  # pairs in a list: one alone may be an option


def read(messages: Sequence[LogMessage]) -> Iterator[HostAddress]:
    """Yield the addresses of hosts that the messages of one file tell."""
    instance = ""  # that is being described
    for message in messages:
        text = message.text[:_LONGEST]
        if "i-" in text and _INSTANCE.search(text):
            described = _KEY_OF_INSTANCE.match(text)
            instance = described["address"] if described else instance
            yield from _of_instance(message, text)
        elif instance and "PrivateDnsName" in text and (name := _KEY_OF_NAME.match(text)):
            yield HostAddress(host=name["host"], address=instance, where=message.where)
            instance = ""
        if any(word in text for word in _MAY_TELL):
            found = [own] if (own := _OF_NCCL.match(text)) else []
        elif text.count(".") < 3:
            continue
        elif row := _ROW.match(text):
            found = [row]
        else:
            found = list(_PAIR.finditer(text))
            is_list = len(found) >= _FEW and not _LEFT.search(_NAMES.sub(" ", _PAIR.sub(" ", text)))
            found = found if is_list else []
        for one in found:
            yield HostAddress(host=one["host"], address=one["address"], where=message.where)


def _of_instance(message: LogMessage, text: str) -> Iterator[HostAddress]:
    """Yield the host of an instance that a line names beside it: in front of it or behind, or by EC2's own name."""
    if own := _OWN_INSTANCE.search(text):
        yield HostAddress(host=own["host"], address=own["address"], where=message.where)
        return
    parts = [part for part in _PARTS.split(text) if part]
    places = [place for place, part in enumerate(parts) if _INSTANCE.fullmatch(part)]
    if len(places) != 1 or len(text) > _LONGEST_ROW:
        return
    names = set(_OF_EC2.findall(text))
    near = [parts[place] for place in (places[0] - 1, places[0] + 1) if 0 <= place < len(parts)]
    names = names or {part for part in near if _A_HOST.fullmatch(part)}
    if len(names) == 1:
        yield HostAddress(host=names.pop(), address=parts[places[0]], where=message.where)
