"""GIDs of RDMA ports by `show_gids`, and the variables by which NCCL chooses ports and GIDs."""

import re
from collections.abc import Iterator, Sequence

from ..nouns.network_state import GidRow, NcclSetting
from ..surroundings.port_states import asked_host
from ..text.lines import LogMessage

_GID = re.compile(
    r"^(?P<device>[a-z]\w+)\s+\d{1,3}\s+(?P<index>\d{1,3})\s+(?:[0-9a-f]{4}:){7}[0-9a-f]{4}"
    r"(?:\s+(?P<address>\d{1,3}(?:\.\d{1,3}){3}))?\s+(?P<version>v[12])(?:\s+(?P<name>\S+))?\s*$"
)
_SETTING = re.compile(
    r"\b(?P<name>NCCL_IB_GID_INDEX|NCCL_IB_HCA)(?:=| set (?:by environment )?to )[\"']?(?P<value>[^\s\"';]{1,200})"
)


def read(messages: Sequence[LogMessage]) -> Iterator[GidRow | NcclSetting]:
    """Yield the GIDs of one file, and what NCCL is told about them."""
    asked = ""
    for message in messages:
        text = message.text.strip()
        if "show_gids" in text:
            asked = asked_host(text)
        elif (": " not in text[:40] and ":" in text) and (row := _GID.match(text)):
            host = message.host or message.where.host or asked
            yield GidRow(
                host=host, device=row["device"], index=int(row["index"]), is_v2=row["version"] == "v2",
                address=row["address"] or "", name=row["name"] or "", where=message.where,
            )  # fmt: skip
        if "NCCL_IB_" in text:
            for told in _SETTING.finditer(text):
                yield NcclSetting(name=told["name"], value=told["value"].rstrip("."), where=message.where)
