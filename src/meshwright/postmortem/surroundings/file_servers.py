"""Logs of file servers (Lustre, GPFS): the clients that they shut out, and which of the job's hosts these are.

A server serves other jobs, too, and knows its clients by their addresses: a client counts where a line shows that
one of the job's hosts has its address.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from ..nouns.facts import Fact, Failure
from ..nouns.world import identities_of, names_of_addresses
from ..text.lines import LogMessage

SHUT_OUT = "the file server shut out its client at "  # how such a fault begins
_IPV4 = r"\d{1,3}(?:\.\d{1,3}){3}"
_LUSTRE = re.compile(
    rf"evicting client at (?P<late>{_IPV4})@|(?P<bulk>Eviction on bulk (?:READ|WRITE))\b.*?@(?P<at>{_IPV4})@"
    rf"|haven't heard from client \S+ \(at (?P<silent>{_IPV4})@\S+\) in \d+ seconds.*\bevicting it"
)
_GPFS = re.compile(
    rf"\b(?:Node (?P<node>{_IPV4}) \([^)]*\) (?:is being|has been|was) expelled|[Ee]xpelling:? (?P<other>{_IPV4}) \()"
)
_MAY_TELL = ("vict", "xpell")


def read(messages: Sequence[LogMessage]) -> Iterator[Failure]:
    """Yield the clients that a file server shut out, by address."""
    for message in messages:
        text = message.text
        if not any(word in text for word in _MAY_TELL):
            continue
        if lustre := _LUSTRE.search(text):
            address = lustre["late"] or lustre["at"] or lustre["silent"]
            why = "it did not give back a lock in time" if lustre["late"] else "it was not heard any more"
            why = f"{lustre['bulk'].lower()}" if lustre["bulk"] else why
            yield Failure(kind="host", what=f"{SHUT_OUT}{address}: {why}", host=address, where=message.where)
        elif gpfs := _GPFS.search(text):
            address = gpfs["node"] or gpfs["other"]
            what = f"{SHUT_OUT}{address}: it was expelled from the cluster"
            yield Failure(kind="host", what=what, host=address, where=message.where)


def with_hosts_of_clients(facts: list[Fact]) -> list[Fact]:
    """Return the facts, clients that were shut out by the names of their hosts, without those of other jobs."""
    names = names_of_addresses(facts)
    by_address = {identity.host for identity in identities_of(facts)}
    found: list[Fact] = []
    for fact in facts:
        if isinstance(fact, Failure) and fact.what.startswith(SHUT_OUT):
            if host := names.get(fact.host):
                fact = replace(fact, host=host, what=fact.what.replace(f"{fact.host}:", f"{fact.host} ({host}):", 1))
            elif fact.host not in by_address:
                continue
        found.append(fact)
    return found
