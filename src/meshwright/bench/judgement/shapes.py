"""Faults that the shape of a table shows without any knowledge of the machine: a collapse, a dip, a slow pair."""

import math
import statistics
from collections.abc import Iterable, Sequence, Set
from itertools import pairwise
from typing import NamedTuple

import msgspec

from ...files import natural
from ...units import counted, format_bytes, format_rate
from ..reading.tables import Rate, ReadTable
from ..table import Row

_Pair = tuple[str, str]
COLLAPSE = 0.5  # of the best smaller size, from some size to the end
DIP = 1.35  # times as long as a larger size, and slower than both neighbours
FALL = 0.65  # of the best smaller size, though larger ones surpass it again
NOTCH = 0.75  # of both neighbours: a dip beside a deeper one
DECLINE = 0.8  # of the best smaller size, from some size to the end
DECLINE_SIZES = 3  # at the end that show it: one or two may be late calls
DIP_FROM = 32 * 2**10
_CHANGE = "a change of protocol or algorithm (compare NCCL_PROTO and NCCL_ALGO)"
STALL = 0.1  # of the best smaller size: more than a protocol costs
_SOME_LINKS = "as where some of its links are down: nvidia-smi nvlink -s"
_STALLED = "calls stall, as where packets are lost and sent again, or memory is registered for each call"
SLOW_PAIR = 0.7  # of the median pair
SLOWER_WITH_P2P = 0.9
# where pairs are as alike as this, a device below all others is so by itself: 17 of 18 NVLinks carry 94 %
ALIKE = 0.98
BELOW_ALIKE = 0.96
STEP = 1.15  # from one kind of pairs to the next: the spread within a kind is a few per cent
SHOWN_ISLANDS = 4  # groups of devices that are named
SHOWN_PAIRS = 5  # beside the slowest
OVER_PCIE_BYTES_PER_S = 128e9  # PCIe 5, both ways together: pairs above it have links of their own


_HOST_LINK = "as where its PCIe link has fewer lanes or a lower speed: lspci -vv under load, LnkSta"


class _SlowDevice(NamedTuple):
    """A device that is slow with all that it was measured with: its best rate, that of the others, a cause."""

    name: str
    among: str  # with which others, in words
    rate_bytes_per_s: float
    others_bytes_per_s: float
    why: str = ""

    @property
    def rates(self) -> str:
        """Both rates in words."""
        return f"{format_rate(self.rate_bytes_per_s)} of {format_rate(self.others_bytes_per_s)}"


def collapse(rows: Sequence[Row]) -> str | None:
    """Return from which size on the bandwidth falls below half of what smaller sizes had, and stays there."""
    return _collapse([(row.bytes, row.known_busbw_bytes_per_s or row.algbw_bytes_per_s) for row in rows])


def collapse_of_rates(rates: Sequence[Rate]) -> str | None:
    """Return the same of the rates of one pair by size; None of a matrix of pairs."""
    sized = [(rate.bytes, rate.rate_bytes_per_s) for rate in rates if rate.bytes is not None and rate.src is None]
    return _collapse(sorted(sized)) if len(sized) == len(rates) else None


def _collapse(points: Sequence[tuple[int, float]]) -> str | None:
    sizes, rates = [size for size, _ in points], [rate for _, rate in points]
    for i in range(1, len(points)):
        best = max(rates[:i])
        if sizes[i] < DIP_FROM:  # a late start and no transfer
            continue
        if best > 0 and max(rates[i:]) < COLLAPSE * best and sizes[i] > sizes[i - 1]:
            return (
                f"collapses from {format_bytes(sizes[i])} on: {format_rate(max(rates[i:]))} "
                f"after {format_rate(best)} (congestion or lost packets, a slow or busy link)"
            )
    return None


def dip(rows: Sequence[Row]) -> str | None:
    """Return the size in the middle of the sweep that takes longer than a larger one, as at a change of protocol.

    Of several it is the one that loses most. Else one whose bandwidth falls below what smaller sizes had, and larger
    ones surpass again. A protocol shows in the fastest call too: where tables have it, it counts, since a few late
    calls spoil a mean.
    """
    if rows and all(row.fastest_s for row in rows):
        rows = [msgspec.structs.replace(row, time_s=row.fastest_s or row.time_s) for row in rows]
    found: list[tuple[float, str, int]] = []
    for before, row, after in zip(rows, rows[1:], rows[2:], strict=False):
        rates = [one.algbw_bytes_per_s for one in (before, row, after)]
        if row.bytes < DIP_FROM or not before.bytes < row.bytes < after.bytes:
            continue
        if row.time_s > DIP * after.time_s and rates[1] < min(rates[0], rates[2]):
            kept = rates[1] / rates[0]
            found.append((kept, (
                f"dips at {format_bytes(row.bytes)}: {row.time_s * 1e6:.0f} us, and {after.time_s * 1e6:.0f} us for "
                f"{format_bytes(after.bytes)}: {_why(kept)}"
            ), row.bytes))  # fmt: skip
    if not found:
        return _fall([row for row in rows if row.bytes >= DIP_FROM])
    worst = min(found)
    return worst[1] + _others(rows, worst[2])


def _others(rows: Sequence[Row], named: int) -> str:
    """Return the other sizes whose bandwidth is far below that of both neighbours, in words, "" without any."""
    sizes = [
        row.bytes
        for before, row, after in zip(rows, rows[1:], rows[2:], strict=False)
        if row.bytes >= DIP_FROM
        and row.bytes != named
        and row.algbw_bytes_per_s < NOTCH * min(before.algbw_bytes_per_s, after.algbw_bytes_per_s)
    ]
    return f"; lesser dips at {', '.join(map(format_bytes, sizes))}" if sizes else ""


def decline(rows: Sequence[Row]) -> str | None:
    """Return from which size on the bandwidth stays well below what smaller sizes had, though above half of it."""
    points = [(row.bytes, row.known_busbw_bytes_per_s or row.algbw_bytes_per_s) for row in rows]
    for i in range(1, len(points)):
        best, rest = max(rate for _, rate in points[:i]), [rate for _, rate in points[i:]]
        if len(rest) >= DECLINE_SIZES and points[i][0] >= DIP_FROM and max(rest) < DECLINE * best:
            return (
                f"declines from {format_bytes(points[i][0])} on: at most {format_rate(max(rest))} after "
                f"{format_rate(best)} at a smaller size"
            )
    return None


def _why(kept: float) -> str:
    return _STALLED if kept < STALL else _CHANGE


def _fall(rows: Sequence[Row]) -> str | None:
    rates = [row.algbw_bytes_per_s for row in rows]
    found: list[tuple[float, int]] = []
    for i in range(1, len(rows) - 1):
        best = max(rates[:i])
        if rates[i] < FALL * best and max(rates[i + 1 :]) > best:
            found.append((rates[i] / best, i))
    if not found:
        return None
    kept, i = min(found)
    return (
        f"dips at {format_bytes(rows[i].bytes)}: {format_rate(rates[i])} (algbw) after {format_rate(max(rates[:i]))} "
        f"at a smaller size: {_why(kept)}"
    )


def pair_faults(tables: Sequence[ReadTable], index: int) -> list[str]:
    """Return what stands out in a matrix of pairs: a slow device, slow pairs, peer access slower than without it."""
    table = tables[index]
    pairs = _pairs(table)
    found = [_slow_ones(alike) for alike in _alike(pairs)]
    faults = [*_in_words([device for devices, _ in found for device in devices]), *(f for _, of in found for f in of)]
    other = _without_p2p(tables, table)
    if other is not None:
        worse = [
            p
            for p, r in pairs.items()
            if p in other and r.rate_bytes_per_s < SLOWER_WITH_P2P * other[p].rate_bytes_per_s
        ]
        if worse:
            (a, b), without = worse[0], sorted(other[pair].rate_bytes_per_s for pair in worse)
            now, then = (format_rate(of[a, b].rate_bytes_per_s) for of in (pairs, other))
            ends = " to ".join(dict.fromkeys(format_rate(rate) for rate in (without[0], without[-1])))
            faults.append(
                f"with peer access {len(worse)} pair{'s are' if len(worse) > 1 else ' is'} slower than without it "
                f"({a} to {b}: {now} after {then}): ACS or the IOMMU sends peer traffic through the CPU, or the driver "
                f"offers what the cards do not do; until that is mended {ends} without it is what counts "
                "(NCCL_P2P_DISABLE=1)"
            )
    return faults


def _in_words(slow: Sequence[_SlowDevice]) -> list[str]:
    """Return slow devices in words; one that is slow with the same others both ways once, with the rates of both."""
    ways: dict[tuple[str, str, str], list[str]] = {}
    for device in slow:
        ways.setdefault((device.name, device.among, device.why), []).append(device.rates)
    return [
        f"device {name} is slow with {among}: {' and '.join(dict.fromkeys(rates))}" + (f" ({why})" if why else "")
        for (name, among, why), rates in ways.items()
    ]


def _alike(pairs: dict[_Pair, Rate]) -> list[dict[_Pair, Rate]]:
    """Return the pairs by what they join: CPUs to GPUs are not held against GPUs to GPUs."""
    kinds: dict[_Pair, dict[_Pair, Rate]] = {}
    for pair, rate in pairs.items():
        kinds.setdefault((_kind(pair[0]), _kind(pair[1])), {})[pair] = rate
    return list(kinds.values())


def _slow_ones(pairs: dict[_Pair, Rate]) -> tuple[list[_SlowDevice], list[str]]:
    """Return the devices that are slow with all, and in words the slow pairs among the rest."""
    if len(pairs) < 2:
        return [], []
    devices, rest = _slow_devices(pairs)
    if len(rest) < 2:
        return devices, []
    middle = statistics.median(r.rate_bytes_per_s for r in rest.values())
    slow = {pair for pair, r in rest.items() if r.rate_bytes_per_s < SLOW_PAIR * middle}
    return devices, [] if _is_layout(slow, rest) else _slow(slow, rest, middle)


def _slow_devices(pairs: dict[_Pair, Rate]) -> tuple[list[_SlowDevice], dict[_Pair, Rate]]:
    """Return the devices that are slow with every other, and the pairs without them.

    Held against the pairs of the others, for in small machines a device is in half of all pairs. Of three devices two
    may have a bridge of their own.
    """
    devices = sorted({str(device) for pair in pairs for device in pair})
    if len(devices) < 4 or 2 * len(pairs) <= len(devices):  # else each device is in one pair alone
        return [], pairs
    slow: dict[str, _SlowDevice] = {}
    for device in devices:
        own = [rate.rate_bytes_per_s for pair, rate in pairs.items() if device in pair]
        others = [rate.rate_bytes_per_s for pair, rate in pairs.items() if device not in pair]
        if own and others and max(own) < SLOW_PAIR * (middle := statistics.median(others)):
            among, why = _partners(device, pairs)
            slow[device] = _SlowDevice(device, among, max(own), middle, why)
    slow = slow or _lame_devices(pairs, devices)
    if 2 * len(slow) >= len(devices):  # as the layout has it
        return [], pairs
    return list(slow.values()), {pair: rate for pair, rate in pairs.items() if not slow.keys() & set(pair)}


def _partners(device: str, pairs: Iterable[_Pair]) -> tuple[str, str]:
    """Return with which others a device was measured, in words, and what makes it slow where these are CPUs alone."""
    others = sorted({end for pair in pairs if device in pair for end in pair if end != device}, key=natural)
    if any(_kind(other) == _kind(device) for other in others):
        return "every other", ""
    shown = " and ".join(others) if len(others) <= 2 else f"{others[0]} to {others[-1]}"
    return shown, _HOST_LINK if all(_kind(other) == "CPU" for other in others) else ""


def _kind(device: str) -> str:
    return device.rstrip("0123456789")


def _lame_devices(pairs: dict[_Pair, Rate], devices: Sequence[str]) -> dict[str, _SlowDevice]:
    """Return the devices a little below all others with every peer, where those are alike among themselves.

    So one of many links is missing. Where pairs differ anyway, or go over PCIe, that may be the layout.
    """
    least = BELOW_ALIKE * max(rate.rate_bytes_per_s for rate in pairs.values())
    of = {device: [rate.rate_bytes_per_s for pair, rate in pairs.items() if device in pair] for device in devices}
    lame = {device: max(own) for device, own in of.items() if own and max(own) < least}
    sound = [rate.rate_bytes_per_s for pair, rate in pairs.items() if not lame.keys() & set(pair)]
    if len(sound) <= 2 or min(sound) < max(ALIKE * max(sound), OVER_PCIE_BYTES_PER_S):
        return {}
    return {
        device: _SlowDevice(device, _partners(device, pairs)[0], best, statistics.median(sound), _SOME_LINKS)
        for device, best in lame.items()
    }


def _is_layout(slow: set[_Pair], pairs: dict[_Pair, Rate]) -> bool:
    """Return whether slow pairs are how a machine is built: every device has as many slow peers, both ways alike.

    So it is over two sockets, beside bridges that join pairs, or in a mesh of links (a DGX-1); a fault hits some.
    """
    devices = {device for pair in pairs for device in pair}
    counts = {sum(pair[0] == device for pair in slow) for device in devices}
    return len(devices) > 2 and len(counts) == 1 and all((b, a) in slow for a, b in slow)


def _slow(slow: set[_Pair], pairs: dict[_Pair, Rate], middle: float) -> list[str]:
    if not slow:
        return []
    first = min(slow, key=lambda pair: pairs[pair].rate_bytes_per_s)
    others = sorted((pair for pair in slow if pair != first), key=lambda pair: tuple(map(natural, pair)))
    more = ", ..." if len(others) > SHOWN_PAIRS else ""
    also = f"; also {', '.join(f'{a} to {b}' for a, b in others[:SHOWN_PAIRS])}{more}" if others else ""
    return [
        f"{len(slow)} pair{'s are' if len(slow) > 1 else ' is'} slow: {first[0]} to {first[1]} has "
        f"{format_rate(pairs[first].rate_bytes_per_s)}, the median is {format_rate(middle)}{also}"
    ]


def kinds_of_pairs(table: ReadTable) -> str:
    """Return that the pairs of a matrix are of two rates or more, in words, "" where they are alike.

    The widest step between neighbours in the order of rates parts them.
    """
    return "; ".join(words for alike in _alike(_pairs(table)) if (words := _kinds(alike)))


def _kinds(of: dict[_Pair, Rate]) -> str:
    pairs = sorted(of.items(), key=lambda item: -item[1].rate_bytes_per_s)
    rates = [rate.rate_bytes_per_s for _, rate in pairs]
    steps = [(fast / slow if slow else math.inf, i) for i, (fast, slow) in enumerate(pairwise(rates), start=1)]
    if not steps or max(steps)[0] < STEP:
        return ""
    cut = max(steps)[1]
    fast = {pair for pair, _ in pairs[:cut]}
    return f"{_range(rates[:cut])} {_which(fast)}, {_range(rates[cut:])} the other {counted(len(pairs) - cut, 'pair')}"


def _which(pairs: Set[_Pair]) -> str:
    """Return pairs in words: all pairs among some devices where they are just these, else how many and one of them."""
    of = {device: frozenset({device, *(b for a, b in pairs if a == device)}) for pair in pairs for device in pair}
    islands = sorted(set(of.values()), key=lambda island: sorted(island, key=natural))
    if len(of) == sum(map(len, islands)) and len(pairs) == sum(len(island) * (len(island) - 1) for island in islands):
        among = [", ".join(sorted(island, key=natural)) for island in islands[:SHOWN_ISLANDS]]
        return "among " + " and among ".join(among) + (" and so on" if len(islands) > SHOWN_ISLANDS else "")
    first = min(pairs, key=lambda pair: tuple(map(natural, pair)))
    return f"on {counted(len(pairs), 'pair')} ({first[0]} to {first[1]})"


def _range(rates: Sequence[float]) -> str:
    low, high = format_rate(min(rates)), format_rate(max(rates))
    return low if low == high else f"{low} to {high}"


def _without_p2p(tables: Sequence[ReadTable], table: ReadTable) -> dict[_Pair, Rate] | None:
    if "P2P=Enabled" not in table.name:
        return None
    kind = table.name.split()[0]
    twin = next((t for t in tables if t.name.startswith(f"{kind} P2P=Disabled")), None)
    return None if twin is None else _pairs(twin)


def _pairs(table: ReadTable) -> dict[_Pair, Rate]:
    """Return the best rate of each pair, of whatever size, without what a device reaches within itself."""
    found: dict[_Pair, Rate] = {}
    for rate in table.rates:
        if rate.src is not None and rate.dst is not None and rate.src != rate.dst:
            before = found.setdefault((rate.src, rate.dst), rate)
            if rate.rate_bytes_per_s > before.rate_bytes_per_s:
                found[rate.src, rate.dst] = rate
    return found


def slowest_pair(table: ReadTable) -> Rate | None:
    """Return the best rate of the pair that has the lowest, None where the table is of no pairs."""
    return min(_pairs(table).values(), key=lambda rate: rate.rate_bytes_per_s, default=None)
