"""The verdict on tables of plain rates: of pairs of devices, of messages, of streams, held against a named link."""

from collections.abc import Sequence

from msgspec.structs import replace

from ...hardware import Catalogue
from ...units import format_bytes, format_rate
from ..reading.tables import ReadTable
from .beside import from_host_memory, reached_beside, slow_beside, why_of_gpu_memory
from .ethernet import limit_of_flow, port_of_goodput
from .named_link import (
    ABOVE_USUAL,
    BEYOND_RATE,
    GOOD,
    IS_USUAL,
    OWN_LINKS,
    SLOW_HOST_LINK,
    SLOW_NETWORK,
    SLOW_SOCKETS,
    SLOW_VERBS,
    NamedLink,
    named_link,
)
from .shapes import collapse_of_rates, kinds_of_pairs, pair_faults, slowest_pair
from .verdict import TableVerdict
from .yardstick import link_of_devices

MESSAGE_S = 3e-6  # a message's own time on a sound network, with which short ones cannot fill a link
FILLED_BY_VERBS = 2**16  # bytes of a message: perftest's own size, of which many are on their way at once


def rates_verdict(
    catalogue: Catalogue, tables: Sequence[ReadTable], index: int, link: str | None, nics: int | None = None
) -> TableVerdict:
    """Return the verdict on a table of rates; `nics` of a host are shared by the GPUs that send at once."""
    table = tables[index]
    between = [rate for rate in table.rates if rate.src is None or rate.src != rate.dst]
    if not between:
        bounds = f"; {table.bounds}" if table.bounds and table.by_sockets else ""
        return TableVerdict(ok=None, reason=f"one device: there is no pair to judge{bounds}")
    best = max(rate.rate_bytes_per_s for rate in between)
    if table.unjudged:
        return TableVerdict(ok=None, reason=f"best {format_rate(best)}; {table.unjudged}")
    link = link or link_of_devices(catalogue, table)
    known = named_link(catalogue, link, is_rdma=table.by_verbs) if link is not None else None
    if known is not None and known.link is None and nics and table.sharing:
        known = _share(known, nics, table.sharing)
    expected = known.attainable_bytes_per_s * (2 if table.both_ways else 1) if known is not None else None
    fallen = collapse_of_rates(table.rates)
    faults = [*pair_faults(tables, index), *([fallen] if fallen else [])]
    if faults:
        return TableVerdict(ok=False, reason="; ".join(faults), expected_bytes_per_s=expected)
    kinds = kinds_of_pairs(table)
    if known is None or expected is None:
        alike = ", no pair stands out" if len(between) > 1 and between[0].src is not None else ""
        alike = f"; {kinds}" if kinds else alike
        slow, staged = slow_beside(tables, index), from_host_memory(tables, index, None)
        alike += f"; {slow}, or it is of another kind" if slow else ""
        alike += f"; {staged}: where both were between two hosts, {why_of_gpu_memory(table)}" if staged else ""
        return TableVerdict(ok=None, reason=f"best {_rate(table, best)}{alike}; --link says what it is held against")
    if best > BEYOND_RATE * known.rate_bytes_per_s * (2 if table.both_ways else 1):
        beyond = f"best {_rate(table, best)} is more than {known.title} carries: it ran over others, or over several"
        return TableVerdict(ok=None, reason=beyond, expected_bytes_per_s=expected)
    slowest = slowest_pair(table)
    least = slowest.rate_bytes_per_s if slowest is not None else best
    words = f"{_rate(table, least)} of the {format_rate(expected)} that {known.title} lets through"
    words += f" ({kinds})" if kinds else ""
    each = least / (2 if table.both_ways else 1)
    if least > ABOVE_USUAL * expected:
        words += f": {IS_USUAL} ({100 * each / known.rate_bytes_per_s:.0f} % of it)"
    if least >= GOOD * expected:
        return TableVerdict(ok=True, reason=words, expected_bytes_per_s=expected)
    return replace(_below(tables, index, (best, least, expected), known, words), expected_bytes_per_s=expected)


def _share(nic: NamedLink, nics: int, sharing: int) -> NamedLink:
    """Return what each of the GPUs of a host has of its NICs: of one, where there are as many or more."""
    part = min(1.0, nics / sharing)
    title = nic.title if part == 1 else f"its share of {nics} x {nic.title} for {sharing} GPUs"
    return replace(
        nic,
        title=title,
        rate_bytes_per_s=part * nic.rate_bytes_per_s,
        attainable_bytes_per_s=part * nic.attainable_bytes_per_s,
    )


def _below(
    tables: Sequence[ReadTable], index: int, rates: tuple[float, float, float], known: NamedLink, words: str
) -> TableVerdict:
    """Return the verdict on rates below what the link lets through: bad, or what else may have bounded them.

    `rates` are the best, the least and the expected one, in bytes per second.
    """
    table, (best, least, expected) = tables[index], rates
    longest = max((rate.bytes or 0 for rate in table.rates), default=0)
    is_filled = table.by_verbs and longest >= FILLED_BY_VERBS
    if not table.bounds and (slow := slow_beside(tables, index)):
        return TableVerdict(ok=False, reason=f"{words}: {slow}")
    if longest and not is_filled and best >= GOOD * longest / (longest / expected + MESSAGE_S):
        little = f"{words}, but {format_bytes(longest)} is too little to fill it: measure to 8 MiB"
        return TableVerdict(ok=None, reason=little)
    if table.bounds:
        return TableVerdict(ok=None, reason=f"{words}, but {table.bounds}: no fault of the link follows")
    if table.may_bound and (beside := reached_beside(tables, index, expected)):
        held = f"{words}, but it was {table.may_bound}; {beside}: no fault of the link follows"
        return TableVerdict(ok=None, reason=held)
    flow = limit_of_flow(least, known.rate_bytes_per_s) if table.is_one_stream and not table.both_ways else ""
    if flow and table.is_on_ec2:
        held = f"{words}, but it was {table.may_bound}, and on Amazon EC2 {flow}: no fault of the link follows"
        return TableVerdict(ok=None, reason=held)
    if staged := from_host_memory(tables, index, expected):
        return TableVerdict(ok=False, reason=f"{words}: {staged}, so {why_of_gpu_memory(table)}")
    why = _slow(table, least, known) + (f"; on Amazon EC2 {flow}" if flow else "")
    if table.may_bound:
        is_port = table.by_sockets and not why.startswith(SLOW_SOCKETS)
        why = f"{why}; else it was {table.may_bound}" if is_port else f"it was {table.may_bound}; else {why}"
    return TableVerdict(ok=False, reason=f"{words}: {why}")


def _slow(table: ReadTable, rate: float, known: NamedLink) -> str:
    """Return what keeps rates below those of a link, in words."""
    if table.by_sockets:
        port = port_of_goodput(rate, known.rate_bytes_per_s) if not table.both_ways else ""
        return port or SLOW_SOCKETS
    if table.host:
        return SLOW_HOST_LINK
    if known.link is not None:
        return OWN_LINKS
    return SLOW_VERBS if table.by_verbs else SLOW_NETWORK


def _rate(table: ReadTable, rate: float) -> str:
    """Return a rate in words: one that counts both directions of a link together also by direction."""
    each = f" both ways together ({format_rate(rate / 2)} each way)" if table.both_ways else ""
    return f"{format_rate(rate)}{each}"
