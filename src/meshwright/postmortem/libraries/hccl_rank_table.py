"""HCCL's table of ranks (`hccl.json`, RANK_TABLE_FILE): the rank of each NPU of each server, which need not go up."""

import re
from collections.abc import Iterator, Sequence

from ..nouns.identities import RankIdentity
from ..text.lines import LogMessage

_KEY = re.compile(r'"(?P<key>server_id|device_id|rank_id)"\s*:\s*"?(?P<value>[\w.:-]{1,80})"?')

_MOST_DIGITS = 9  # of the numbers of a device and a rank


def read(messages: Sequence[LogMessage]) -> Iterator[RankIdentity]:
    """Yield the NPUs of one file's table, in whatever lines it stands."""
    server, device = "", ""
    for message in messages:
        text = message.where.text
        for pair in _KEY.finditer(text) if "_id" in text else ():
            value = pair["value"]
            if pair["key"] == "server_id":
                server, device = value, ""
            elif pair["key"] == "device_id":
                device = value
            elif server and device.isdecimal() and value.isdecimal() and len(device + value) <= _MOST_DIGITS:
                yield RankIdentity(rank=int(value), host=server, device=int(device), where=message.where.by(int(value)))
