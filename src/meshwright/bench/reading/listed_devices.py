"""Devices of ranks as nccl-tests list them above a table, and GPUs that several ranks share."""

from collections.abc import Mapping
from typing import NamedTuple

_CLOSE = 1_000  # numbers of processes that one launcher starts
_FIRST_PROCESSES = 4_096  # numbers up to here say nothing: two containers begin alike
_NO_BUS = {"", "0x00"}  # as virtual machines show every device


class ListedDevice(NamedTuple):
    """A rank's device in the list above a table."""

    host: str
    model: str
    group: int
    number: int  # on the host
    bus: str
    process: int  # 0 where it is not listed


def shared_gpus(devices: Mapping[int, ListedDevice]) -> tuple[str, ...]:
    """Name the GPUs of which several ranks of one communicator say that it is theirs.

    Two machines of one name look alike but for the numbers of their processes.
    """
    shared: dict[tuple[object, ...], list[int]] = {}
    for rank, device in devices.items():
        if device.bus not in _NO_BUS and device.process > _FIRST_PROCESSES:
            shared.setdefault(device[:-1], []).append(rank)
    words = []
    for its in shared.values():
        processes = [devices[rank].process for rank in its]
        if len(set(processes)) == len(its) > 1 and max(processes) - min(processes) < _CLOSE:
            device = devices[its[0]]
            words.append(f"ranks {', '.join(map(str, its[:8]))} share one GPU ({device.bus} of {device.host})")
    return (*words[:1], f"{len(words) - 1} more GPUs are shared") if len(words) > 1 else tuple(words)
