"""Records of NCCL's inspector plugin, a JSON object a call and rank: the rank for which the others wait in most calls.

The kernel of a rank that comes early waits inside the call, so that the one with the shortest time came last.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from statistics import median

from ..nouns.facts import SlowRank
from ..text.lines import LogMessage

_SHORT = 0.5  # of the median of the ranks in a call: all wait for the one
_CALLS = 3  # that show it
_RANKS = 3  # of which one can stand apart

_Call = tuple[str, int, str]  # communicator, its number, collective


def read(messages: Sequence[LogMessage]) -> Iterator[SlowRank]:
    """Yield the rank of each communicator of one file that most of the others' calls wait for."""
    calls: dict[_Call, dict[int, tuple[float, LogMessage]]] = defaultdict(dict)
    ranks: dict[str, int] = {}
    for message in messages:
        if '"coll_perf"' not in message.text:
            continue
        try:
            record = json.loads(message.text)
            header, told = record["header"], record["coll_perf"]
            call = str(header["id"]), int(told["coll_sn"]), str(told["coll"])
            calls[call][int(header["rank"])] = float(told["coll_exec_time_us"]), message
            ranks[call[0]] = int(header["n_ranks"])
        except (KeyError, TypeError, ValueError, RecursionError):
            continue
    for communicator, count in ranks.items():
        yield from _late(communicator, count, calls, alone=len(ranks) == 1)


def _late(
    communicator: str, count: int, calls: dict[_Call, dict[int, tuple[float, LogMessage]]], *, alone: bool
) -> Iterator[SlowRank]:
    last: Counter[int] = Counter()
    waited_us: dict[int, list[float]] = defaultdict(list)
    shown: dict[int, LogMessage] = {}
    whole = 0
    for (name, _, _), times in calls.items():
        if name != communicator or count < _RANKS or len(times) != count:
            continue
        whole += 1
        rank = min(times, key=lambda one: times[one][0])
        usual = median(time_us for time_us, _ in times.values())
        if times[rank][0] < _SHORT * usual:
            last[rank] += 1
            waited_us[rank].append(usual - times[rank][0])
            shown[rank] = times[rank][1]
    if not last:
        return
    rank, often = last.most_common(1)[0]
    if often < _CALLS or 2 * often <= last.total():
        return
    what = (
        f"in {often} of {whole} calls of communicator {communicator} its rank {rank} is the shortest by "
        f"{median(waited_us[rank]) / 1000:.3g} ms: the others wait for it"
    )
    yield SlowRank(rank=rank if alone else None, what=what, where=shown[rank].where)
