"""States of network devices that tools of the host or of the fabric print, beside any job: counters, tables, queues."""

import msgspec

from .where import Where


class NetworkAlarm(msgspec.Struct, frozen=True, kw_only=True):
    """A device of the network whose own state shows trouble, in words that name it."""

    host: str
    what: str
    where: Where


class GidRow(msgspec.Struct, frozen=True, kw_only=True):
    """One GID of the port of a device, as `show_gids` prints it; `address` is empty where it has no IPv4 address."""

    host: str
    device: str
    index: int
    is_v2: bool
    address: str
    name: str  # of its network
    where: Where


class NcclSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A variable of NCCL about its network, by the environment of a job or by NCCL's own log."""

    name: str
    value: str
    where: Where
