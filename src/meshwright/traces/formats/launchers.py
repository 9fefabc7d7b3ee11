"""The hosts of devices: which process launched the kernels of which device, where no name says so.

Correlations count from the start of each process, so that those of several ranks are alike. A process launched the
kernels of a device if it has a launch of nearly each and none of them begins before its launch; where several could
have been and there are as many hosts as devices, each has one device.
"""

from collections.abc import Mapping

import numpy as np

from ...files import natural
from .collector import Process
from .parts import floats, longs

Pid = int | str
KNOWN_SHARE = 0.5  # of the kernels: others were launched before the trace began
NEAR_BEST = 0.95  # of as many launches as any process has
EARLY_SHARE = 0.001  # of the kernels may seem to begin before their launch


def launchers(hosts: Mapping[Pid, Process], devices: Mapping[Pid, Process]) -> dict[Pid, Pid]:
    """Return for each device the process that launched its kernels; devices for which none can have are left out."""
    possible = {pid: _possible(device, hosts) for pid, device in devices.items()}
    one_each = len(hosts) == len(devices)
    found: dict[Pid, Pid] = {}
    while pair := _next_pair(possible, one_each):
        device, host = pair
        found[device] = host
        del possible[device]
        for left in possible.values() if one_each else ():
            left.discard(host)
    return found


def _next_pair(possible: Mapping[Pid, set[Pid]], one_each: bool) -> tuple[Pid, Pid] | None:
    """Return a device and its host: a pair that leaves no other choice, else the first possible one.

    Where there is a choice, ranks were in step to within the time of a launch, and hosts are as good as one another.
    """
    for device, hosts in possible.items():
        if len(hosts) == 1:
            return device, next(iter(hosts))
    if not one_each:
        return None
    by_host: dict[Pid, list[Pid]] = {}
    for device, hosts in possible.items():
        for host in hosts:
            by_host.setdefault(host, []).append(device)
    for host, devices in by_host.items():
        if len(devices) == 1:
            return devices[0], host
    if not by_host:
        return None
    device = min((pid for pid, hosts in possible.items() if hosts), key=lambda pid: natural(str(pid)))
    return device, min(possible[device], key=lambda pid: natural(str(pid)))


def _possible(device: Process, hosts: Mapping[Pid, Process]) -> set[Pid]:
    """Return the processes that can have launched the kernels of a device."""
    links, starts = longs(device.device.links), floats(device.device.starts)
    known = links >= 0
    links, starts = links[known], starts[known]
    counts: dict[Pid, int] = {}
    for pid, host in hosts.items():
        keys, times = longs(host.launches.links), floats(host.launches.starts)
        order = np.argsort(keys, kind="stable")
        keys, times = keys[order], times[order]
        if not len(keys) or not len(links):
            continue
        at = np.minimum(np.searchsorted(keys, links), len(keys) - 1)
        met = keys[at] == links
        early = met & (times[at] > starts)
        if met.sum() >= KNOWN_SHARE * len(links) and early.sum() <= EARLY_SHARE * len(links):
            counts[pid] = int(met.sum())
    most = max(counts.values(), default=0)
    return {pid for pid, count in counts.items() if count >= NEAR_BEST * most}
