"""Network devices whose own state shows trouble where nothing else does: counters, queues, domains, missing GIDs."""

from collections import defaultdict
from collections.abc import Iterator

from ..nouns.facts import Fact, PortDown, of
from ..nouns.network_state import GidRow, NcclSetting, NetworkAlarm
from ..nouns.world import short_host

MOST = 6  # alarms that are told one by one


def network_alarms(facts: list[Fact]) -> list[NetworkAlarm]:
    """Return the alarms of all files, and the devices that lack a GID that NCCL is told to use or that others have."""
    return [*of(facts, NetworkAlarm), *_without_gid(facts)]


def _without_gid(facts: list[Fact]) -> Iterator[NetworkAlarm]:
    told = {setting.name: setting.value for setting in of(facts, NcclSetting)}
    index = told.get("NCCL_IB_GID_INDEX", "")
    wanted = int(index) if index.isdecimal() else None
    down = {(short_host(port.host), port.device) for port in of(facts, PortDown)}
    tables: dict[tuple[str, str], list[GidRow]] = defaultdict(list)
    for row in of(facts, GidRow):
        tables[row.host, row.device].append(row)
    has_address = any(row.is_v2 and row.address for rows in tables.values() for row in rows)
    for (host, device), rows in tables.items():
        if (short_host(host), device) in down or not _is_chosen(device, told.get("NCCL_IB_HCA", "")):
            continue
        lacks = wanted is not None and wanted not in {row.index for row in rows}
        if lacks or (has_address and not any(row.is_v2 and row.address for row in rows)):
            listed = ", ".join(str(row.index) for row in rows)
            name = f" ({rows[0].name})" if rows[0].name else ""
            asks = f", and NCCL_IB_GID_INDEX={wanted} asks for one: its queue pairs cannot be made" if lacks else ""
            bare = "" if any(row.address for row in rows) else " and has no IPv4 address"
            what = f"{device}{name}{f' of {host}' if host else ''} has GIDs {listed} alone{bare}{asks}"
            yield NetworkAlarm(host=host, what=what, where=rows[-1].where)


def _is_chosen(device: str, chosen: str) -> bool:
    """Whether NCCL uses a device by NCCL_IB_HCA: prefixes, after = whole names, after ^ the ones left out."""
    if not chosen:
        return True
    is_out, is_whole = chosen.startswith("^"), chosen.lstrip("^").startswith("=")
    names = [name.partition(":")[0] for name in chosen.lstrip("^=").split(",") if name]
    return any(device == name if is_whole else device.startswith(name) for name in names) != is_out
