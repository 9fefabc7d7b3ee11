"""Addresses of hosts beside their names: as NCCL prints its own, in tables of hosts, in lists that people write."""

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
_LEFT = re.compile(r"[A-Za-z]{3,}")  # words that say something else
_NAMES = re.compile(r"\b(?:hosts?|nodes?|ips?|addr(?:ess(?:es)?)?|are|and)\b", re.IGNORECASE)
_MAY_TELL = ("Bootstrap", "OOB ", "NET/Socket")
_LONGEST = 2000  # characters of a line that are read
_FEW = 2  # pairs in a list: one alone may be an option


def read(messages: Sequence[LogMessage]) -> Iterator[HostAddress]:
    """Yield the addresses of hosts that the messages of one file tell."""
    for message in messages:
        text = message.text[:_LONGEST]
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
